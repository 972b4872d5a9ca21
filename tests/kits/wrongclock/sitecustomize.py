"""A Python process whose wall clock is off by the number of seconds that the file named by WALL_CLOCK_OFFSET holds at
the moment.

This folder on PYTHONPATH is all it takes: Python loads it before anything else. Monotonic clocks are right, as on a
machine whose clock somebody sets.
"""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path
from typing import Any

OFFSET = Path(os.environ["WALL_CLOCK_OFFSET"])
_seconds, _nanoseconds, _datetime = time.time, time.time_ns, datetime.datetime


def offset() -> float:
    return float(OFFSET.read_text())


class _Either(type):
    """What C code makes is of the real class, and must pass for one of this class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)


class Shifted(_datetime, metaclass=_Either):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _datetime.now(tz) + datetime.timedelta(seconds=offset())

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetime.UTC).replace(tzinfo=None)


time.time = lambda: _seconds() + offset()
time.time_ns = lambda: _nanoseconds() + int(offset() * 1e9)
datetime.datetime = Shifted  # type: ignore[misc]

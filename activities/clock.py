"""The time that activities decide by: the server's, never that of the machine that the worker happens to run on.

Start times are the server's, as are the times in a workflow's state; a worker's wall clock may be hours off, or jump.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from temporalio import activity


class ServerClock:
    """The server's time, taken at the beginning of an attempt. It may run behind by the moment that the task was on its
    way, which makes a lag window longer, never shorter."""

    def __init__(self) -> None:
        self.started = activity.info().started_time
        self._mark = time.monotonic()

    def now(self) -> datetime:
        return self.started + timedelta(seconds=time.monotonic() - self._mark)

"""A few at a time, with patience: whom to tell next of something new, so that only so many are at work on it.

One who is told is at work until it says that it is done, or has been silent for too long: then it no longer holds up
the others, and is told again after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

LONGEST = timedelta(hours=1)
"""The longest time between two tellings of one who never answers: its history must not grow with every one."""


class Hearer(NamedTuple):
    """One who is to hear of the newest, or is at work on something older."""

    told: bool
    """Whether it was told of the newest."""
    patience: datetime | None = None
    """Until when its answer is awaited, or was. None: it was never told."""
    at_work: bool = False
    """It was told, is not done, and has not been silent for too long: it holds a place."""
    free: bool = False
    """It needs no place, because telling it costs nothing."""


def to_tell(hearers: Mapping[str, Hearer], limit: int, now: datetime) -> list[str]:
    """The names of those to tell now.

    First come those at work on something older: they keep their places, and the newest wins. Then come those never told
    of it, by name. Last come those that were told and stayed silent, the longest silent first. Those that need no place
    come before all others.
    """
    holding = [n for n, h in hearers.items() if h.at_work]
    switching = sorted(n for n in holding if not hearers[n].told)
    waiting = [n for n, h in hearers.items() if not h.at_work]
    waiting.sort(key=lambda n: (hearers[n].told, hearers[n].patience or now, n))
    free = [n for n in (*switching, *waiting) if hearers[n].free]
    room = max(0, limit - sum(not hearers[n].free for n in holding))
    first, others = ([n for n in names if not hearers[n].free] for names in (switching, waiting))
    # More than the limit may be at work, because it was lowered, or because some were born with the newest.
    return free + (first + others[:room])[:limit]


def patience_after(tells: int, silence: timedelta, now: datetime) -> datetime:
    """The time until which to wait for one who was told so many times without an answer: each telling doubles the
    wait."""
    return now + min(silence * (1 << min(max(tells - 1, 0), 16)), max(silence, LONGEST))


def next_look(awaited: Iterable[datetime | None], now: datetime) -> datetime | None:
    """When the first of those awaited will have been silent for too long; None when nobody is awaited."""
    return min((until for until in awaited if until is not None and until > now), default=None)

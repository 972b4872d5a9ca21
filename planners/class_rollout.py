"""Which users a class tells next of its newest generation, so that only so many are at work at the same time.

Seed 002: every change of a class pushes the machines that refer to it to be reconciled. Machine-controller-manager does
it to all at once, bounded by its workers alone; here the bound is the class's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from resources.machine_class import UpdateState, User

LONGEST = timedelta(hours=1)
"""Between two tellings of one that never answers: its history must not grow with every one."""


def behind(user: User, generation: int) -> bool:
    """It has not said that it has this generation."""
    return user.generation < generation


def unfinished(user: User, generation: int) -> bool:
    """It has not said that it has this generation, or said last that it is at it: the word that it is done may be
    lost."""
    return behind(user, generation) or user.state is UpdateState.UPDATING


def at_work(user: User, now: datetime) -> bool:
    """It was told, is not done, and has not been silent for too long."""
    done = user.generation >= user.told and user.settled
    return not done and user.patience is not None and now < user.patience


def to_tell(users: Mapping[str, User], generation: int, limit: int, now: datetime) -> list[str]:
    """Names of those to tell now.

    First those who are at work on an older generation: they hold their places, and the newest wins. Then those who were
    never told of this one, by name; last those who were told and stayed silent, the longest silent first.
    """
    holding = [n for n, u in users.items() if at_work(u, now)]
    switching = [n for n in holding if behind(users[n], generation) and users[n].told < generation]
    waiting = [n for n, u in users.items() if unfinished(u, generation) and not at_work(u, now)]
    waiting.sort(key=lambda n: (users[n].told >= generation, users[n].patience or now, n))
    room = max(0, limit - len(holding))
    # More than the limit may be at work: it was lowered, or machines were born with this class.
    return (sorted(switching) + waiting[:room])[:limit]


def when_told(user: User, generation: int, silence: timedelta, now: datetime) -> User:
    """The user's record once it is told. Each telling that does not end it doubles the wait for the next."""
    tells = user.tells + 1 if user.told == generation else 1
    return user._replace(told=generation, tells=tells, patience=until_next(tells, silence, now))


def until_next(tells: int, silence: timedelta, now: datetime) -> datetime:
    """How long one is waited for that was told so many times already."""
    return now + min(silence * (1 << min(max(tells - 1, 0), 16)), max(silence, LONGEST))


def next_look(users: Mapping[str, User], generation: int, now: datetime) -> datetime | None:
    """When the first of those at work has been silent for too long; None when nobody is waited for."""
    if not any(unfinished(u, generation) for u in users.values()):
        return None
    return min((u.patience for u in users.values() if u.patience and at_work(u, now)), default=None)

"""Which users a class tells next of its newest generation, so that only so many are at work at the same time.

Users are machines and pools. Seed 002: every change of a class pushes the machines that refer to it to be reconciled.
Machine-controller-manager does it to all at once, bounded by its workers alone; here the bound is the class's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from resources.machine_class import UpdateState, User, is_pool

OPEN = (UpdateState.UPDATING, UpdateState.FAILED)
"""Of them another word is to come."""
LONGEST = timedelta(hours=1)
"""Between two tellings of one that never answers: its history must not grow with every one."""


def behind(user: User, generation: int) -> bool:
    """It has not said that it has this generation."""
    return user.generation < generation


def unfinished(user: User, generation: int) -> bool:
    """It has not said that it has this generation, or not how that ended: the word that it is done may be lost."""
    return behind(user, generation) or user.state in OPEN


def waited_for(user: User, generation: int, now: datetime) -> bool:
    """It is not told now: it is at work, or has failed and tries again by itself."""
    patient = user.patience is not None and now < user.patience
    return patient and (at_work(user, now) or not behind(user, generation))


def at_work(user: User, now: datetime) -> bool:
    """It was told, is not done, and has not been silent for too long."""
    done = user.generation >= user.told and user.settled
    return not done and user.patience is not None and now < user.patience


def to_tell(users: Mapping[str, User], generation: int, limit: int, now: datetime) -> list[str]:
    """Names of those to tell now.

    First those who are at work on an older generation: they hold their places, and the newest wins. Then those who were
    never told of this one, by name. Last those who were told and stayed silent, the longest silent first. Pools need no
    place, and come before machines: it costs them nothing, and what they plan from now on is of the newest.
    """
    holding = [n for n, u in users.items() if at_work(u, now)]
    switching = [n for n in holding if behind(users[n], generation) and users[n].told < generation]
    waiting = [n for n, u in users.items() if unfinished(u, generation) and not waited_for(u, generation, now)]
    waiting.sort(key=lambda n: (users[n].told >= generation, users[n].patience or now, n))
    pools = [n for n in [*sorted(switching), *waiting] if is_pool(n)]
    room = max(0, limit - sum(1 for n in holding if not is_pool(n)))
    first, others = ([n for n in names if not is_pool(n)] for names in (sorted(switching), waiting))
    # More than the limit may be at work: it was lowered, or machines were born with this class.
    return pools + (first + others[:room])[:limit]


def when_told(user: User, generation: int, silence: timedelta, now: datetime) -> User:
    """The user's record once it is told. Each telling that does not end it doubles the wait for the next."""
    tells = user.tells + 1 if user.told == generation else 1
    return user._replace(told=generation, tells=tells, patience=until_next(tells, silence, now))


def until_next(tells: int, silence: timedelta, now: datetime) -> datetime:
    """How long one is waited for that was told so many times already."""
    return now + min(silence * (1 << min(max(tells - 1, 0), 16)), max(silence, LONGEST))


def next_look(users: Mapping[str, User], generation: int, now: datetime) -> datetime | None:
    """When the first of those at work has been silent for too long; None when nobody is waited for."""
    unsure = [u for u in users.values() if unfinished(u, generation)]
    held_up = any(behind(u, generation) for u in unsure)  # by those at work, of whatever generation
    waited = [u for u in (users.values() if held_up else unsure) if waited_for(u, generation, now)]
    return min((u.patience for u in waited if u.patience), default=None)

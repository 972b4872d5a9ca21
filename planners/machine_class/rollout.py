"""Which users a class tells next about its newest generation, so that only so many are at work at the same time.

Users are machines and pools. Seed 002: every change of a class pushes the machines that refer to it to be reconciled.
Machine-controller-manager pushes all at once, bounded only by its workers; here the class sets its own bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from resources.machine_class.state import UpdateState, User, is_pool

OPEN = (UpdateState.UPDATING, UpdateState.FAILED)
"""States of a user that has more to report."""
LONGEST = timedelta(hours=1)
"""The longest time between two tellings of a user that never answers: its history must not grow with every one."""


def behind(user: User, generation: int) -> bool:
    """Whether it has not yet said that it has this generation."""
    return user.generation < generation


def unfinished(user: User, generation: int) -> bool:
    """Whether it has not yet said that it has this generation, or how that ended. The word that it is done may be
    lost."""
    return behind(user, generation) or user.state in OPEN


def waited_for(user: User, generation: int, now: datetime) -> bool:
    """Whether it is not told now, because it is at work, or has failed and tries again on its own."""
    patient = user.patience is not None and now < user.patience
    return patient and (at_work(user, now) or not behind(user, generation))


def at_work(user: User, now: datetime) -> bool:
    """Whether it was told, is not done, and has not been silent for too long."""
    done = user.generation >= user.told and user.settled
    return not done and user.patience is not None and now < user.patience


def to_tell(users: Mapping[str, User], generation: int, limit: int, now: datetime) -> list[str]:
    """The names of those to tell now.

    First come those at work on an older generation: they hold their places, and the newest wins. Then come those never
    told of this one, by name. Last come those that were told and stayed silent, the longest silent first. Pools need no
    place and come before machines: telling them costs nothing, and from then on they plan with the newest.
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
    """The user's record once it is told. Each telling without an end doubles the wait for the next."""
    tells = user.tells + 1 if user.told == generation else 1
    return user._replace(told=generation, tells=tells, patience=until_next(tells, silence, now))


def until_next(tells: int, silence: timedelta, now: datetime) -> datetime:
    """Until when to wait for a user that was already told so many times."""
    return now + min(silence * (1 << min(max(tells - 1, 0), 16)), max(silence, LONGEST))


def next_look(users: Mapping[str, User], generation: int, now: datetime) -> datetime | None:
    """When the first of those at work has been silent for too long; None when there is nobody to wait for."""
    unsure = [u for u in users.values() if unfinished(u, generation)]
    held_up = any(behind(u, generation) for u in unsure)  # by those at work, on whatever generation
    waited = [u for u in (users.values() if held_up else unsure) if waited_for(u, generation, now)]
    return min((u.patience for u in waited if u.patience), default=None)

"""Which users a class tells next about its newest generation (planners/telling.py).

Users are machines, and owners of machines such as pools. Seed 002: every change of a class pushes the machines that
refer to it to be reconciled. Machine-controller-manager pushes all at once, bounded only by its workers; here the class
sets its own bound. Owners need no place: from then on they plan with the newest.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from planners import telling
from planners.telling import Hearer
from resources.machine_class.state import UpdateState, User
from resources.maintenance import Opening, is_open
from resources.owner import is_owner, pool_of

OPEN = (UpdateState.UPDATING, UpdateState.FAILED)
"""States of a user that has more to report."""


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


def held(
    users: Mapping[str, User], openings: Mapping[str, Sequence[Opening]], touching: int, now: datetime
) -> dict[str, datetime | None]:
    """Machines that are not told now, because their pool may not be changed, and until when; None: that is not known.
    `touching`: the newest generation that changes VMs. Anything else, such as other credentials, waits for no window.
    """
    shut = {}
    for owner, spans in openings.items():
        if not is_open(spans, now):
            shut[owner] = min((o.begin for o in spans if o.begin > now), default=None)
    if not shut:
        return {}
    late = (name for name, user in users.items() if user.generation < touching and not is_owner(name))
    return {name: shut[owner] for name in late if (owner := pool_of(name)) in shut}


def busy(users: Mapping[str, User], generation: int, now: datetime) -> int:
    """How many machines are at work on a generation, or are yet to be told of it. One that was told and says nothing is
    not waited for."""
    machines = (user for name, user in users.items() if not is_owner(name))
    return sum((behind(u, generation) and u.told < generation) or at_work(u, now) for u in machines)


def deferred(users: Iterable[str], awaited: Container[str]) -> set[str]:
    """Owners whose own word is awaited, and their machines: nobody is told before the owner has what may hold it up."""
    return {name for name in users if (name if is_owner(name) else pool_of(name)) in awaited}


def to_tell(
    users: Mapping[str, User], generation: int, limit: int, now: datetime, held: Container[str] = ()
) -> list[str]:
    """The names of those to tell now."""
    hearers = {}
    for name, user in users.items():
        if name in held:
            continue
        working = at_work(user, now)
        if working or (unfinished(user, generation) and not waited_for(user, generation, now)):
            knows = user.told >= generation or (working and not behind(user, generation))
            hearers[name] = Hearer(knows, user.patience, working, is_owner(name))
    return telling.to_tell(hearers, limit, now)


def when_told(user: User, generation: int, silence: timedelta, now: datetime) -> User:
    """The user's record once it is told."""
    tells = user.tells + 1 if user.told == generation else 1
    return user._replace(told=generation, tells=tells, patience=telling.patience_after(tells, silence, now))


def next_look(users: Mapping[str, User], generation: int, now: datetime) -> datetime | None:
    """When the first of those waited for has been silent for too long; None when there is nobody to wait for."""
    awaited = (u for u in users.values() if unfinished(u, generation) and waited_for(u, generation, now))
    return telling.next_look((u.patience for u in awaited), now)

"""Which machines are told next about a template change that needs no new machine: node template, timeouts.

Only so many are told at a time (hostler.io/update-concurrency), like the users of a class: a wrong taint must not reach
all Nodes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from planners import telling
from planners.telling import Hearer
from resources.fleet.member import Member
from resources.machine.state import Phase

PATIENCE = timedelta(minutes=2)
"""How long a told machine may be silent before it no longer holds up the others, and is told again."""


def pending(members: Mapping[str, Member], generation: int) -> list[str]:
    """Machines that have not taken it, and stay; a Failed one takes nothing more."""
    return sorted(
        n for n, m in members.items() if m.template < generation and not m.leaving and m.phase is not Phase.FAILED
    )


def _awaited(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int
) -> dict[str, datetime | None]:
    return {n: told[n] + PATIENCE if n in told else None for n in pending(members, generation)}


def to_tell(
    members: Mapping[str, Member],
    told: Mapping[str, datetime],
    superseded: Mapping[str, datetime],
    generation: int,
    limit: int,
    now: datetime,
) -> list[str]:
    """The machines to tell now. `told`: when those that have not taken this generation were told of it; `superseded`:
    when those that are at work on an older one were told of that. They keep their places, and are told first."""
    awaited = _awaited(members, {**superseded, **told}, generation).items()
    return telling.to_tell({n: Hearer(n in told, end, end is not None and now < end) for n, end in awaited}, limit, now)


def busy(members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, now: datetime) -> int:
    """How many machines are at work on it, or are yet to be told. One that was told and stays silent is not waited
    for."""
    return sum(end is None or now < end for end in _awaited(members, told, generation).values())


def next_look(
    members: Mapping[str, Member], told: Mapping[str, datetime], generation: int, now: datetime
) -> datetime | None:
    """When the first of those at work will have been silent for too long."""
    return telling.next_look(_awaited(members, told, generation).values(), now)

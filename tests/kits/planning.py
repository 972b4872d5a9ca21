"""One plan at a time: pools in a few words, and what a plan says of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from poolkit import EPOCH, member

from planners.fleet import pace
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, Plan, TakeSlots
from planners.pool import progress
from planners.pool.plan import plan
from planners.pool.view import ObservedPool
from resources.fleet.member import Member, Permit, PreserveWish, Trouble
from resources.fleet.revision import Pace
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec

R, P, U, F, C = Phase.RUNNING, Phase.PENDING, Phase.UNKNOWN, Phase.FAILED, Phase.CRASH_LOOP_BACK_OFF
FAST = Pace(revision=2, window=pace.CAP)
LATER = EPOCH + timedelta(hours=1)


def at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def pool(*counts: int, phase: Phase = R) -> dict[str, Member]:
    """This many machines of revisions 1, 2, …; the newest is the last."""
    made = [(r, n) for r, count in enumerate(counts, start=1) for n in range(count)]
    return {f"r{r}-{n:02d}": member(r, phase, age=1000 - r) for r, n in made}


def look(
    members: dict[str, Member], settings: MachineDeploymentSpec, now: datetime = EPOCH, revision: int = 2, **more: Any
) -> Plan:
    observed = ObservedPool(members, revision, **{"pace": Pace(revision=revision, window=pace.CAP), **more})
    if "rollout" not in more:
        observed = ObservedPool(**{**vars(observed), "rollout": progress.follow(observed, settings, now)})
    return plan(observed, settings, now)


def created(made: Plan) -> int:
    return sum(s.count for s in made.steps if isinstance(s, Create))


def deleted(made: Plan, reason: str = "") -> list[str]:
    return [n for s in made.steps if isinstance(s, Delete) and s.reason.startswith(reason) for n in s.names]


def granted(made: Plan) -> list[str]:
    return [n for s in made.steps if isinstance(s, GrantPermit) for n in s.names]


def preserving(made: Plan, by: PreservedBy) -> list[str]:
    return [n for s in made.steps if isinstance(s, GrantPreservation) and s.by is by for n in s.names]


def taking(made: Plan) -> list[str]:
    return [n for s in made.steps if isinstance(s, TakeSlots) for n in s.names]


def waits(made: Plan) -> set[str]:
    return {w.reason for w in made.waits}


def asking(seconds: int = 0) -> Member:
    return member(2, U, age=seconds, trouble=Trouble.HEALTH, permit=Permit.ASKED)


def failing(**more: Any) -> Member:
    """A machine that is Failed by permit, after a life that lasted."""
    return member(2, F, **{"trouble": Trouble.HEALTH, "permit": Permit.GRANTED, "lasted": True, **more})


def drained(keep: PreserveWish = PreserveWish.SLOT, **more: Any) -> Member:
    """A machine that is Failed, and waits to hear whether it is preserved."""
    return failing(drained=True, keep=keep, **more)


def kept(by: PreservedBy = PreservedBy.AUTO, **more: Any) -> Member:
    """A machine that is Failed, and preserved."""
    given = {"drained": True, "preserved_until": LATER, "preserved_by": by, "trouble": Trouble.HEALTH, "lasted": True}
    return member(2, F, **{**given, **more})

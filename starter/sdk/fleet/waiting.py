"""When a wait for an owner of machines is over (rolled out, ready, gone): by the server's records and its own numbers.

Done, continuing on its own, or stopped until a person acts: waits, and `hostler rollout status`, end accordingly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from starter.sdk.errors import NotFound, Refused
from starter.sdk.fleet.results import FleetDescription
from starter.sdk.results import since

AnyOwner = FleetDescription[Any, Any]
FoundT = TypeVar("FoundT", bound=AnyOwner)


class Goal(StrEnum):
    ROLLED_OUT = "rolled-out"
    READY = "ready"
    DELETED = "deleted"


class Stand(Enum):
    GOING = auto()
    DONE = auto()
    STANDS = auto()


class RolloutVerdict(NamedTuple):
    stand: Stand
    words: str


@dataclass
class FleetWaiting(Generic[FoundT]):
    """One wait, from look to look."""

    noun: str
    goal: Goal
    judge: Callable[[FoundT], RolloutVerdict]
    unheard: Callable[[FoundT], Awaitable[bool]]
    """A change applied to its class a moment ago may be on its way to the owner, which is rolled out until it hears of
    it."""
    stood: bool = False
    """Whether at the last look its rollout had stopped until a person acts."""

    async def reached(self, found: FoundT, first: FoundT) -> bool:
        """Whether it is reached. Raises when it can no longer be reached."""
        rolls = self.goal is Goal.ROLLED_OUT
        if reached(found, first, self.goal, self.noun) and not (rolls and await self.unheard(found)):
            return True
        stands = rolls and found.summary is not None and self.judge(found).stand is Stand.STANDS
        if stands and self.stood:
            # Only at the second look: a person may have acted a moment ago, and no plan has taken that up yet.
            raise Refused(self.judge(found).words)
        self.stood = stands
        return False


def reached(found: AnyOwner, first: AnyOwner, goal: Goal, noun: str) -> bool:
    """Whether it is reached. Raises when it can no longer be reached."""
    name, summary = found.listed.name, found.summary
    another = found.first_run_id != first.first_run_id  # a new one has taken the name
    over = another or not found.running
    if goal is Goal.DELETED:
        if over and not another and found.status != "COMPLETED":
            raise Refused(
                f"the workflow of {noun} {name} ended as {found.status}: its machines may still exist: hostler "
                f"describe {noun} {name} --cluster {found.listed.cluster}"
            )
        return over
    if over:
        raise NotFound(f"{noun} {name} is gone{since(found.ended)}; it never became {goal}")
    if summary is None:
        return False  # a worker that is away may come back
    if summary.deleted:
        raise Refused(f"{noun} {name} is being deleted and will not become {goal}: hostler describe {noun} {name}")
    return bool(summary.rolled_out if goal is Goal.ROLLED_OUT else summary.all_available)

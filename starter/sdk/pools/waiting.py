"""When a wait for a pool is over (rolled out, ready, gone): by the server's records and the pool's own numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from resources.base import format_duration
from starter.sdk.errors import NotFound, Refused
from starter.sdk.pools.results import PoolDescription
from starter.sdk.pools.rollout_status import Stand, judge, numbers
from starter.sdk.results import since


class Goal(StrEnum):
    ROLLED_OUT = "rolled-out"
    READY = "ready"
    DELETED = "deleted"


@dataclass
class PoolWait:
    """One wait, from look to look."""

    goal: Goal
    unheard: Callable[[PoolDescription], Awaitable[bool]]
    """A change applied to its class a moment ago may be on its way to the pool, which is rolled out until it hears of
    it."""
    stood: bool = False
    """Whether at the last look its rollout had stopped until a person acts."""

    async def reached(self, found: PoolDescription, first: PoolDescription) -> bool:
        """Whether it is reached. Raises when it can no longer be reached."""
        if reached(found, first, self.goal) and not (self.goal is Goal.ROLLED_OUT and await self.unheard(found)):
            return True
        stands = self.goal is Goal.ROLLED_OUT and found.summary is not None and judge(found).stand is Stand.STANDS
        if stands and self.stood:
            # Only at the second look: a person may have acted a moment ago, and the pool's plan has not taken that up
            # yet.
            raise Refused(judge(found).words)
        self.stood = stands
        return False


def reached(found: PoolDescription, first: PoolDescription, goal: Goal) -> bool:
    """Whether it is reached. Raises when it can no longer be reached."""
    name, summary = found.listed.name, found.summary
    another = found.first_run_id != first.first_run_id  # a new pool has taken the name
    over = another or not found.running
    if goal is Goal.DELETED:
        if over and not another and found.status != "COMPLETED":
            raise Refused(
                f"the workflow of pool {name} ended as {found.status}: its machines may still exist: hostler "
                f"describe pool {name} --cluster {found.listed.cluster}"
            )
        return over
    if over:
        raise NotFound(f"pool {name} is gone{since(found.ended)}; it never became {goal}")
    if summary is None:
        return False  # a worker that is away may come back
    if summary.deleted:
        raise Refused(f"pool {name} is being deleted and will not become {goal}: hostler describe pool {name}")
    return summary.rolled_out if goal is Goal.ROLLED_OUT else summary.available >= summary.replicas


def late(found: PoolDescription, goal: Goal, timeout: timedelta | None) -> str:
    """The message for one that is not there in time."""
    after = f", after {format_duration(timeout)}" if timeout else ""
    return f"pool {found.listed.name} is not {goal}{after}: {where(found)}; it may get there yet"


def where(found: PoolDescription) -> str:
    """How far it is and what it waits for, in one line."""
    if not found.running:
        return f"its workflow has ended{since(found.ended)}"
    if found.summary is None:
        return f"{found.listed.phase}; its numbers are not known: {found.no_answer}"
    return numbers(found.summary) + "".join(f"; {w.reason}: {w.message}" for w in found.summary.waits)

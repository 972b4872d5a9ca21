"""Waiting until a pool is rolled out, ready, or gone: by the server's records and the pool's own numbers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from resources.base import format_duration
from starter.sdk.errors import NotFound, Refused, WaitTimeout
from starter.sdk.patience import patiently
from starter.sdk.pools.results import PoolDescription, since
from starter.sdk.pools.rollout_status import Stand, judge, numbers

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

INTERVAL = 1.0
"""Seconds between two looks."""


class Goal(StrEnum):
    ROLLED_OUT = "rolled-out"
    READY = "ready"
    DELETED = "deleted"


Progress = Callable[[PoolDescription], Awaitable[None]]


async def wait(
    client: HostlerClient,
    name: str,
    until: str,
    *,
    timeout: timedelta | None,
    progress: Progress | None,
    cluster: str | None,
) -> PoolDescription:
    """`HostlerClient.pools.wait`."""
    goal, stood = Goal(until), False
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    look = partial(client.pools.look, name, cluster=cluster)
    found = first = await patiently(look)
    while not reached(found, first, goal) or await patiently(partial(_ahead, client, found, goal)):
        stands = goal is Goal.ROLLED_OUT and found.summary is not None and judge(found).stand is Stand.STANDS
        if stands and stood:
            # Twice: a person's word may have come a moment ago, and the pool has not planned by it yet.
            raise Refused(judge(found).words)
        stood = stands
        if end is not None and time.monotonic() >= end:
            after = f", after {format_duration(timeout)}" if timeout else ""
            raise WaitTimeout(f"pool {name} is not {goal}{after}: {where(found)}; it may get there yet")
        if progress is not None:
            await progress(found)
        await asyncio.sleep(INTERVAL)
        found = await patiently(look)
    return found


def reached(found: PoolDescription, first: PoolDescription, goal: Goal) -> bool:
    """Raises when it cannot be reached any more."""
    name, summary = found.listed.name, found.summary
    another = found.first_run_id != first.first_run_id  # a new pool has taken the name
    over = another or not found.running
    if goal is Goal.DELETED:
        if over and not another and found.status != "COMPLETED":
            raise Refused(
                f"the workflow of pool {name} ended as {found.status}: its machines may still be there: "
                f"hostler describe pool {name} --cluster {found.listed.cluster}"
            )
        return over
    if over:
        raise NotFound(f"pool {name} is gone{since(found)}; it was to become {goal}")
    if summary is None:
        return False  # a worker that is away comes back
    if summary.deleted:
        raise Refused(f"pool {name} is being deleted and will not become {goal}: hostler describe pool {name}")
    return summary.rolled_out if goal is Goal.ROLLED_OUT else summary.available >= summary.replicas


async def _ahead(client: HostlerClient, found: PoolDescription, goal: Goal) -> bool:
    """What was applied to its class a moment ago may be on its way to the pool, which is rolled out until it hears."""
    return goal is Goal.ROLLED_OUT and await client.pools.unheard(found.listed) > 0


def where(found: PoolDescription) -> str:
    """How far it is and what it waits for, in one line."""
    if not found.running:
        return f"its workflow has ended{since(found)}"
    if found.summary is None:
        return f"{found.listed.phase}; its numbers are not known: {found.no_answer}"
    return numbers(found.summary) + "".join(f"; {w.reason}: {w.message}" for w in found.summary.waits)

"""One look at the rollout of a pool: its numbers, its story, and the machines that it waits for."""

from __future__ import annotations

import asyncio

from resources.pool.intents import PoolSummary
from resources.pool.rollout import RolloutOutcome, RolloutResult
from starter.sdk.errors import NotFound, Refused, translated
from starter.sdk.fleet.trouble import trouble_of
from starter.sdk.fleet.waiting import RolloutVerdict, Stand
from starter.sdk.machines.records import summary_of
from starter.sdk.pools.rollout_status import RolloutLook, judge, unwell_of
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import MachineSummary

SOME = 5
"""Machines named."""
OUTCOME_PATIENCE = 10.0
"""Seconds that the news of a rollout's end may take once another rollout has begun."""


async def look(pools: Pools, name: str, *, cluster: str | None = None) -> RolloutLook:
    """Looks. Raises NotFound where there never was such a pool."""
    pool = await pools.look(name, cluster=cluster)
    verdict = judge(pool)
    if verdict.stand is Stand.DONE and pool.summary is not None:
        # A look right after `apply` means the rollout to come (kubectl's observedGeneration).
        if generation := await pools.unheard(pool.listed):
            words = f"pool {name} does not know yet of generation {generation} of class {pool.summary.machine_class}"
            verdict = RolloutVerdict(Stand.GOING, words)
        else:  # it may have heard of its class between the two questions
            pool = await pools.look(name, cluster=cluster)
            verdict = judge(pool)
    if pool.summary is None or not pool.running:
        return RolloutLook(pool, verdict)
    unwell = await _unwell(pools, pool.summary) if verdict.stand is not Stand.DONE else ()
    try:
        story = await pools.rollout(name, pool.summary.revision, cluster=cluster)
    except NotFound:
        story = None  # a first revision replaces nothing; or its story has not begun yet
    return RolloutLook(pool, verdict, story, unwell, await trouble_of(pools.temporal, unwell))


async def _unwell(pools: Pools, pool: PoolSummary) -> tuple[MachineSummary, ...]:
    """Machines that are not Running, and not on their way out: why a rollout waits is written on them."""
    with translated():
        found = pools.temporal.list_workflows(unwell_of(pool), limit=SOME)
        return tuple(sorted([await summary_of(e) async for e in found], key=lambda m: m.name))


async def undone(pools: Pools, name: str, revision: int, *, cluster: str | None = None) -> RolloutResult | None:
    """The end of a rollout that another revision has followed, if it was undone; otherwise that revision came after
    it."""
    try:
        end = pools.rollout_result(name, revision, cluster=cluster)
        result = await asyncio.wait_for(end, OUTCOME_PATIENCE)
    except (NotFound, Refused, TimeoutError):
        return None
    return result if result.outcome is RolloutOutcome.UNDONE else None

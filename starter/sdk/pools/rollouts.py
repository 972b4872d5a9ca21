"""Reads the stories of rollouts: from the server's records, from their workflows, from their results."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError

from resources import attributes, names
from resources.pool.rollout import RolloutResult, RolloutState
from starter.sdk import live, parallel
from starter.sdk.errors import NoAnswer, Refused
from starter.sdk.pools.results import RolloutListed

GOING_ON = "ExecutionStatus!='ContinuedAsNew'"
"""Where a story has continued in a new run, only the last run is the story."""


def query(cluster: str | None, pool: str | None) -> str:
    """The visibility query for the rollouts of one cluster or all, of one pool or all."""
    terms = ["WorkflowType='RolloutWorkflow'", GOING_ON]
    terms += [f"HostlerCluster='{cluster}'"] if cluster else []
    terms += [f"HostlerPool='{pool}'"] if pool else []
    return " AND ".join(terms)


def listed(execution: WorkflowExecution, state: RolloutState | None, result: RolloutResult | None) -> RolloutListed:
    cluster, pool, revision = names.id_parts(execution.id, 3)
    found = execution.typed_search_attributes
    phase = found.get(attributes.PHASE, "")
    if execution.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED):
        phase = execution.status.name if execution.status else phase  # what it was doing last is not its outcome
    began = (state.began if state else None) or (result.began if result else None) or execution.start_time
    return RolloutListed(
        pool=pool,
        cluster=cluster,
        revision=int(revision) if revision.isdecimal() else 0,
        phase=str(result.outcome) if result else phase,
        began=began,
        ended=execution.close_time,
        reason=found.get(attributes.REASON, ""),
        state=state,
        result=result,
    )


async def read(temporal: Client, execution: WorkflowExecution) -> tuple[RolloutListed, str]:
    """Reads the story, and why it could not be told."""
    handle = temporal.get_workflow_handle(execution.id, run_id=execution.run_id, result_type=RolloutResult)
    if execution.status is WorkflowExecutionStatus.RUNNING:
        try:
            return listed(execution, await live.query(handle, RolloutState), None), ""
        except NoAnswer as e:
            return listed(execution, None, None), str(e)
    if execution.status is WorkflowExecutionStatus.COMPLETED:
        return listed(execution, None, await handle.result()), ""
    return listed(execution, None, None), ""


async def every(temporal: Client, cluster: str | None, pool: str | None) -> list[RolloutListed]:
    """The rollouts by cluster and pool, the newest first. For a pool that runs, those of its own life."""
    executions = [e async for e in temporal.list_workflows(query(cluster, pool))]
    stories = [story for story, _ in await parallel.each(partial(read, temporal, e) for e in executions)]
    pools = sorted({(r.cluster, r.pool) for r in stories})
    lives = dict(zip(pools, await parallel.each(partial(life_began, temporal, *p) for p in pools), strict=True))
    own = [r for r in stories if _since(r, lives[r.cluster, r.pool])]
    own.sort(key=lambda r: r.began, reverse=True)
    return sorted(own, key=lambda r: (r.cluster, r.pool))


async def is_own(temporal: Client, rollout: RolloutListed) -> bool:
    """Whether the rollout is of the pool's own life; an earlier pool of the same name counted its revisions from 1
    too."""
    return _since(rollout, await life_began(temporal, rollout.cluster, rollout.pool))


async def life_began(temporal: Client, cluster: str, pool: str) -> datetime | None:
    """When the life of a running pool began, by the server's clock, like its rollouts. None: it does not run; or the
    server no longer keeps its first run, and then none of the rollouts that had ended before it either."""
    found = await live.described(temporal.get_workflow_handle(names.pool_id(cluster, pool)))
    if found is None or found.status != WorkflowExecutionStatus.RUNNING:
        return None
    first = found.raw_description.workflow_execution_info.first_run_id
    if first and first != found.run_id:
        found = await live.described(temporal.get_workflow_handle(found.id, run_id=first))
    return found.start_time if found is not None else None


def _since(rollout: RolloutListed, began: datetime | None) -> bool:
    return began is None or rollout.began >= began


async def result(handle: Any, what: str) -> RolloutResult:
    """Waits for the end. Raises Refused where it was ended from outside."""
    try:
        found: RolloutResult = await handle.result()
    except WorkflowFailureError as e:
        raise Refused(f"{what}: its workflow was ended otherwise: {live.failure_words(e)}") from None
    return found

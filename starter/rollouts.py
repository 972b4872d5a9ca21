"""Reading the stories of rollouts: from the server's records, from their workflows, from their results."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError

from resources import attributes
from resources.rollout import RolloutResult, RolloutState
from starter import live
from starter.errors import NoAnswer, Refused
from starter.pool_results import RolloutListed

GOING_ON = "ExecutionStatus!='ContinuedAsNew'"
"""Of a story that went on in a new run, the last run alone is the story."""


def query(cluster: str | None, pool: str | None) -> str:
    """The visibility query for the rollouts of a cluster or of all, of a pool or of all."""
    terms = ["WorkflowType='RolloutWorkflow'", GOING_ON]
    terms += [f"HostlerCluster='{cluster}'"] if cluster else []
    terms += [f"HostlerPool='{pool}'"] if pool else []
    return " AND ".join(terms)


def listed(execution: WorkflowExecution, state: RolloutState | None, result: RolloutResult | None) -> RolloutListed:
    _, cluster, pool, revision = execution.id.split("/", 3)
    found = execution.typed_search_attributes
    phase = found.get(attributes.PHASE, "")
    if execution.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED):
        phase = execution.status.name if execution.status else phase  # what it was doing is not what it came to
    began = (state.began if state else None) or (result.began if result else None) or execution.start_time
    return RolloutListed(
        pool=pool,
        cluster=cluster,
        revision=int(revision),
        phase=str(result.outcome) if result else phase,
        began=began,
        ended=execution.close_time,
        reason=found.get(attributes.REASON, ""),
        state=state,
        result=result,
    )


async def read(temporal: Client, execution: WorkflowExecution) -> tuple[RolloutListed, str]:
    """The story, and why it could not be told."""
    handle = temporal.get_workflow_handle(execution.id, run_id=execution.run_id, result_type=RolloutResult)
    if execution.status is WorkflowExecutionStatus.RUNNING:
        try:
            return listed(execution, await live.query(handle, RolloutState), None), ""
        except NoAnswer as e:
            return listed(execution, None, None), str(e)
    if execution.status is WorkflowExecutionStatus.COMPLETED:
        return listed(execution, None, await handle.result()), ""
    return listed(execution, None, None), ""


async def result(handle: Any, what: str) -> RolloutResult:
    """Waits for the end. Raises Refused where it was ended from outside."""
    try:
        found: RolloutResult = await handle.result()
    except WorkflowFailureError as e:
        raise Refused(f"{what}: its workflow was ended otherwise: {live.failure_words(e)}") from None
    return found

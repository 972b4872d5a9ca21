"""Machines in the server's own records: no worker is needed to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowFailureError

from resources import attributes
from resources.names import TAG_MACHINE, id_parts
from starter.sdk import live
from starter.sdk.results import Life, MachineSummary

if TYPE_CHECKING:
    from resources.machine.state import MachineResult

MACHINE_TYPE = "MachineWorkflow"


def machines_of(cluster: str | None, **where: str) -> str:
    """The visibility query for the machines that exist, of a cluster or of all; `where` are further attributes."""
    terms = ({"HostlerCluster": cluster} if cluster else {}) | where
    return " AND ".join([live.running(MACHINE_TYPE), *(f"{name}='{value}'" for name, value in terms.items())])


async def summary_of(execution: WorkflowExecution) -> MachineSummary:
    cluster, name = id_parts(execution.id, 2)
    found = execution.typed_search_attributes
    return MachineSummary(
        name=name,
        cluster=cluster,
        created=await live.created_of(execution),
        phase=found.get(attributes.PHASE, ""),
        reason=found.get(attributes.REASON, ""),
        node=found.get(attributes.NODE, ""),
        machine_class=found.get(attributes.CLASS, ""),
        pool=found.get(attributes.POOL, ""),
        provider_id=found.get(attributes.PROVIDER_ID, ""),
        deadline=found.get(attributes.DEADLINE),
        preserved_until=found.get(attributes.PRESERVED_UNTIL),
    )


async def life_of(found: WorkflowExecutionDescription) -> Life:
    return Life(
        summary=await summary_of(found),
        status=found.status.name if found.status else "UNKNOWN",
        run_id=found.run_id,
        first_run_id=found.raw_description.workflow_execution_info.first_run_id,
        task_queue=found.task_queue,
        closed=found.close_time,
        task_attempt=live.task_attempt(found),
        pending=await live.pending_of(found),
    )


async def ending(temporal: Client, workflow_id: str, life: Life) -> tuple[MachineResult | None, str]:
    """What is left of a life that has ended, or how it ended when not on its own."""
    from resources.machine.state import MachineResult

    handle = temporal.get_workflow_handle(workflow_id, run_id=life.run_id, result_type=MachineResult)
    if life.status == "COMPLETED":
        return await handle.result(), ""
    if life.status == "FAILED":
        try:
            return await handle.result(), ""
        except WorkflowFailureError as e:
            return None, f"its workflow failed: {live.failure_words(e)}"
    return None, (
        f"somebody ended its workflow ({life.status}): its resources may still exist in the cloud, with the tag "
        f"{TAG_MACHINE}={life.summary.name}"
    )

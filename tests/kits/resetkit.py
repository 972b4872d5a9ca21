"""Resets, as the web UI's button does them: to a workflow task of a run, whatever came after it."""

from __future__ import annotations

import uuid

from lifekit import Stack, eventually
from matrixkit import EVERYTHING
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from workflows.machine import MachineWorkflow

SHARES = tuple(i / 11 for i in range(12)) if EVERYTHING else (0.0, 0.5, 1.0)
"""Where in a run to reset: its first workflow task, one in the middle, its last."""


async def runs(client: Client, workflow_id: str) -> list[str]:
    """Ids of the runs of its chain, the first one first, from the server's own records."""
    newest = await client.get_workflow_handle(workflow_id).describe()
    found, run = [], newest.raw_description.workflow_execution_info.first_run_id
    while run:
        found.append(run)
        described = await client.get_workflow_handle(workflow_id, run_id=run).describe()
        run = ""
        if described.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            events = (await client.get_workflow_handle(workflow_id, run_id=found[-1]).fetch_history()).events
            run = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def run_of(client: Client, workflow_id: str, number: int) -> str:
    """The id of the run of this number, once there is one."""
    found = await eventually(lambda: runs(client, workflow_id), lambda ids: len(ids) > number, f"run {number}")
    return found[number]


async def reset(client: Client, workflow_id: str, share: float, run_id: str | None = None) -> None:
    """Resets to the task at this share of the tasks of a run, the newest by default; returns when there is a run that
    goes on from there."""
    run_id = run_id or (await client.get_workflow_handle(workflow_id).describe()).run_id
    events = (await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()).events
    points = [e.event_id for e in events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            reason="somebody has pressed the button",
            workflow_task_finish_event_id=points[round(share * (len(points) - 1))],
            request_id=str(uuid.uuid4()),
        )
    )


async def reset_machine(stack: Stack, name: str, share: float, run_id: str | None = None) -> None:
    handle = stack.client.get_workflow_handle_for(MachineWorkflow.run, stack.started[name].id)
    await reset(stack.client, handle.id, share, run_id)
    stack.started[name] = handle  # the newest run's, whichever that is

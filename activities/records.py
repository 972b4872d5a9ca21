"""What the server's own records say of a machine's runs: which uid each had, and which of them a reset cut off."""

from __future__ import annotations

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from resources.attributes import PROVIDER_ID
from resources.machine import MachineState
from resources.messages import CreateInput
from resources.names import indexed

CREATE = "create_machine"
"""The name of the activity, whose class needs this module."""


async def uid_of(client: Client, workflow_id: str, run_id: str | None) -> str:
    """Of a run of a machine; "" when it has not asked a cloud for anything yet.

    From its history, which answers always: a query needs a worker, and code that can answer.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            (state,) = await client.data_converter.decode(list(payloads), [MachineState])
            if state.uid:
                return str(state.uid)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            call = event.activity_task_scheduled_event_attributes
            if call.activity_type.name == CREATE:
                (asked,) = await client.data_converter.decode(list(call.input.payloads), [CreateInput])
                return str(asked.target.machine.uid)
    return ""


async def has_vm(client: Client, workflow_id: str, provider_id: str) -> bool:
    """Whether the machine of this workflow id runs, and this is its VM, or may be: its create call has not answered."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as e:
        if e.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    vm = found.typed_search_attributes.get(PROVIDER_ID)
    return found.status is WorkflowExecutionStatus.RUNNING and vm in (None, indexed(provider_id))


async def cut_off(client: Client, uid: str) -> bool:
    """Whether a run of the activity's own workflow had this uid and was ended by a reset: then what it made is its own.

    A reset ends the newest run of a chain and leaves its beginning; somebody who terminates a workflow and starts
    another begins a chain. Visibility only says which runs to read: one that it does not list yet is found at the next
    try.
    """
    info = activity.info()
    assert info.workflow_id is not None
    chain = await _chain(client, info.workflow_id, info.workflow_run_id)
    async for run in client.list_workflows(f"WorkflowId = '{info.workflow_id}' AND ExecutionStatus = 'Terminated'"):
        if run.status is not WorkflowExecutionStatus.TERMINATED or await _chain(client, run.id, run.run_id) != chain:
            continue
        if await uid_of(client, run.id, run.run_id) == uid:
            return True
    return False


async def _chain(client: Client, workflow_id: str, run_id: str | None) -> str:
    """Id of the first run, which continue-as-new and resets keep."""
    described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    return described.raw_description.workflow_execution_info.first_run_id

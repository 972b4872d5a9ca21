"""What the server's own records say: the state of a machine's run, the uid that each of its runs had, which runs a
reset cut off, and the VM that each knew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from temporalio import activity
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.temporal.workflows import described
from resources.attributes import PHASE, PROVIDER_ID
from resources.calls.cloud import CreateInput, CreateOutput
from resources.clouds import indexed
from resources.machine.state import MachineState, Phase

T = TypeVar("T")

CREATE = "create_machine"
"""The name of the activity whose class needs this module."""
LEAVING = (Phase.TERMINATING, Phase.FAILED)


@dataclass(frozen=True)
class Standing:
    leaving: str
    """Why the machine no longer wants a VM, in words; "": it wants one."""
    was_reset: bool
    """Its run goes on from a task of an earlier one, which may have known more."""


async def standing(client: Client) -> Standing:
    """The state of the activity's own run, as it is now: the server answers from the run itself, and not from
    visibility.

    A cancellation of the activity would say less: between two tries the server ends it at once, and with it what its
    heartbeat knew of the account in which an earlier try may have made a VM.
    """
    info = activity.info()
    assert info.workflow_id is not None
    described = await client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id).describe()
    phase, _, _ = (described.typed_search_attributes.get(PHASE) or "").partition(":")
    leaving = f"the machine is {phase}" if phase in LEAVING else ""
    if described.status is not WorkflowExecutionStatus.RUNNING:
        leaving = "somebody has ended its workflow"
    return Standing(leaving, described.raw_description.workflow_extended_info.HasField("last_reset_time"))


async def began_here(client: Client) -> bool:
    """Whether the activity's run is the first of its chain: it goes on from no other, which may have asked for more, or
    was reset, than the state says."""
    info = activity.info()
    assert info.workflow_id is not None
    return await _chain(client, info.workflow_id, info.workflow_run_id) == info.workflow_run_id


async def uid_of(client: Client, workflow_id: str, run_id: str | None) -> str:
    """The uid of a machine's run; "" when it has not asked a cloud for anything yet.

    It comes from the history, which is always there: a query needs a worker, and code that can answer.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            began = event.workflow_execution_started_event_attributes
            if uid := (await _decoded(client, began.input, MachineState)).uid:
                return uid
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            call = event.activity_task_scheduled_event_attributes
            if call.activity_type.name == CREATE:
                return (await _decoded(client, call.input, CreateInput)).target.machine.uid
    return ""


async def has_vm(client: Client, workflow_id: str, provider_id: str) -> bool:
    """Whether the machine of this workflow id runs, and this is its VM, or may be: its create call has not answered."""
    found = await described(client, workflow_id)
    if found is None:
        return False
    vm = found.typed_search_attributes.get(PROVIDER_ID)
    return found.status is WorkflowExecutionStatus.RUNNING and vm in (None, indexed(provider_id))


async def cut_off(client: Client, uid: str) -> bool:
    """Whether a run of the activity's own workflow had this uid and was ended by a reset: then what it made belongs to
    that workflow.

    A reset ends the newest run of a chain and keeps its beginning; somebody who terminates a workflow and starts
    another begins a new chain. Visibility only says which runs to read: one that it does not list yet is found at the
    next try.
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


async def former_vm(client: Client, uid: str) -> CreateOutput | None:
    """The VM that a machine of this uid knew in a run that a reset has cut off; None where no record says so.

    It reads histories: of the run that was reset, which this one's history names, and of those that it went on in; and
    of all that visibility lists as terminated, since somebody may have reset an older run once more.
    """
    info = activity.info()
    assert info.workflow_id is not None
    listed = client.list_workflows(f"WorkflowId = '{info.workflow_id}' AND ExecutionStatus = 'Terminated'")
    runs, seen = [run.run_id async for run in listed] + [info.workflow_run_id or ""], set[str]()
    while runs:
        run = runs.pop()
        if run not in seen:
            seen.add(run)
            vm, others = await _knew(client, info.workflow_id, run, uid)
            if vm is not None:
                return vm
            runs += others
    return None


async def _knew(client: Client, workflow_id: str, run_id: str, uid: str) -> tuple[CreateOutput | None, list[str]]:
    """The VM that a run knew, by its history; else the runs that it was reset from, or went on in. Nothing for a run
    that the server no longer keeps."""
    asked, others = set[int](), list[str]()
    try:
        async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events():
            match event.event_type:
                case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                    began = event.workflow_execution_started_event_attributes
                    state = await _decoded(client, began.input, MachineState)
                    if state.uid == uid and (vm := state.status.provider_id):
                        name, account = state.status.node_name or "", state.account_id
                        return CreateOutput(provider_id=vm, node_name=name, account_id=account), []
                case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    call = event.activity_task_scheduled_event_attributes
                    if call.activity_type.name == CREATE:
                        target = (await _decoded(client, call.input, CreateInput)).target
                        asked |= {event.event_id} if target.machine.uid == uid else set()
                case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                    done = event.activity_task_completed_event_attributes
                    if done.scheduled_event_id in asked:
                        return await _decoded(client, done.result, CreateOutput), []
                case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    failed = event.workflow_task_failed_event_attributes
                    others += [failed.base_run_id] if failed.base_run_id else []
                case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                    goes_on = event.workflow_execution_continued_as_new_event_attributes
                    others.append(goes_on.new_execution_run_id)
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
    return None, others


async def _decoded(client: Client, payloads: Payloads, kind: type[T]) -> T:
    (value,) = await client.data_converter.decode(list(payloads.payloads), [kind])
    assert isinstance(value, kind)
    return value


async def _chain(client: Client, workflow_id: str, run_id: str | None) -> str:
    """The id of the first run, which continue-as-new and resets keep."""
    described = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    return described.raw_description.workflow_execution_info.first_run_id

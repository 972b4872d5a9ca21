"""The post-start update (seed 000, stage A): what a cloud lets be set only once the VM has started."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import failure_of
from workflows.machine import claim, confirm
from workflows.machine.entity import MachineEntity
from workflows.machine.report import report

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from planners.machine.claims import has_node
    from planners.machine.creation import Retry, after_failed_update, again_after_update, may_update_after_start
    from resources.calls.cloud import UpdateInput, UpdateOutput
    from resources.errors import ErrorInfo
    from resources.machine.advice import GONE
    from resources.machine.facts import VmFacts
    from resources.machine.state import OperationState, OperationType


async def post_start(machine: MachineEntity) -> None:
    """Ends when it is done, with the machine Failed, or with a deletion wanted. Create is never repeated."""
    while not machine.leaving and _may_update(machine):
        if machine.due("confirm"):
            await confirm.creation(machine)
            continue
        report(machine)
        machine.waiting("PostStartUpdate", f"{machine.status.provider_id} is being configured after its start")
        handle = machine.start(
            MachineActivities.update_machine,
            UpdateInput(target=machine.target(), tagged=machine.s.tagged),
            queue=machine.cloud,
            summary="post-start update",
        )
        try:
            output = await machine.answer(handle, repeats=True)
        except ActivityError as e:
            if not machine.leaving:
                await _failed(machine, e)
        else:
            machine.s.post_start_done = True
            if not machine.leaving:
                _done(machine, output)


def _may_update(m: MachineEntity) -> bool:
    operation = m.status.last_operation
    return may_update_after_start(
        m.status.phase,
        operation.type if operation else None,
        operation.state if operation else None,
        m.s.post_start_done,
    )


def _done(m: MachineEntity, output: UpdateOutput) -> None:
    words = ", ".join(output.changed) if output.changed else "nothing to change"
    if not output.supported:
        words = "the driver has no post-start update"
    m.operation(OperationType.UPDATE, OperationState.SUCCESSFUL, f"post-start update: {words}")
    if output.changed:
        m.note("PostStartUpdated", words)


async def _failed(machine: MachineEntity, e: ActivityError) -> None:
    failure = failure_of(e)
    info = failure.info.model_copy(update={"message": machine.words_of_cloud(failure)})
    assert machine.s.made is not None
    reason = failure.reason
    retry = after_failed_update(info, machine.s.made, workflow.now(), machine.s.timings, reason, machine.tried(reason))
    if retry is None and has_node(machine.s) and workflow.patched(claim.CLAIMS):
        retry = await _weigh(machine, info)
        if machine.leaving:
            return
    if retry is None:
        words = f"{machine.status.provider_id} was gone before its node joined: {info.message}; it is not created again"
        machine.fail(OperationType.UPDATE, "VMGone", words)
    else:
        await machine.retry(retry)


async def _weigh(m: MachineEntity, info: ErrorInfo) -> Retry | None:
    """None: the VM is gone, and the kubelet of the Node that was seen is not alive either. Otherwise what was not found
    may be something that the update names."""
    assert m.status.provider_id is not None
    claim.raise_(m, VmFacts(epoch=0, seq=0, provider_id=m.status.provider_id, state=GONE))
    if await claim.weighed(m, lambda: m.leaving):
        return None
    return again_after_update(info, workflow.now(), m.s.timings)

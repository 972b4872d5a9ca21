"""The hot update: a changed class reaches the VM that runs, and nothing is replaced (seed 002; seed 000, stage B).

What the VM carries moves only when every resource was updated. A failing update never fails the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Failure, failure_of
from workflows.entity import NEVER
from workflows.machine.entity import MachineEntity, reason_of
from workflows.machine.report import differs, fields_of, report

with workflow.unsafe.imports_passed_through():
    from activities.machine import MachineActivities
    from planners.hot_update import applied_after, compare
    from planners.provider_spec import spec_hash
    from planners.waits import wait_after_update
    from resources.machine import (
        AppliedSpec,
        ClassSnapshot,
        MachineState,
        OperationState,
        OperationType,
        Phase,
        UpdateTrouble,
    )
    from resources.messages import ResourceUpdate, UpdateInput, UpdateOutput


def due(m: MachineEntity) -> bool:
    """Whether the VM carries other values of updatable fields than its class has, and it is time to try."""
    if m.s.deletion is not None or not m.s.post_start_done or not differs(m):
        return False
    trouble = m.status.update_trouble
    return trouble is None or (trouble.next_try is not None and m.due("update"))


def refusal(s: MachineState, wanted: ClassSnapshot) -> str | None:
    """Why a machine that exists cannot take this class."""
    now = s.machine_class
    if now is None:
        return None
    if wanted.provider != now.provider:
        return (
            f"machineClass.provider: a machine cannot move from {now.provider} to {wanted.provider}; delete it and "
            "apply it anew"
        )
    if wanted.name == now.name and wanted.generation < now.generation:
        return f"machineClass.generation: {wanted.generation} is older than {now.generation}, which the machine has"
    applied = s.status.last_applied_provider_spec
    if applied is None:
        return None
    return "; ".join(compare(now.provider, applied.provider_spec, wanted.provider_spec).refused) or None


def take(m: MachineEntity, wanted: ClassSnapshot) -> str:
    """A changed class starts afresh: a former failure says nothing of it. In words, what it will do to the machine."""
    m.s.machine_class = wanted
    m.deadlines.pop("update", None)
    m.status.update_trouble = None
    m.drop_condition("Outdated")
    generation = f"class {wanted.name}, generation {wanted.generation}"
    applied = m.status.last_applied_provider_spec
    if applied is None:
        m.note("Applied", generation)
        return "configured"
    found = compare(wanted.provider, applied.provider_spec, wanted.provider_spec)
    if not found.hot:
        m.status.applied_generation = wanted.generation
    words = [f"hot update of {fields_of(found.hot)}"] if found.hot else []
    if found.rolls:
        outdated = f"the VM was made with other values of {fields_of(found.rolls)}"
        m.condition("Outdated", "Outdated", outdated)
        m.note("Outdated", outdated)
        words.append(outdated)
    m.note("Applied", "; ".join([generation, *words]))
    return "; ".join(["configured", *words])


async def update(m: MachineEntity) -> None:
    """One call. A class that changes meanwhile is the next one's: the newest wins."""
    applied, wanted = m.status.last_applied_provider_spec, m.snapshot
    assert applied is not None
    m.deadlines.pop("update", None)
    desired = applied_after(wanted.provider, applied.provider_spec, wanted.provider_spec)
    fields = fields_of(compare(wanted.provider, applied.provider_spec, desired).hot)
    m.operation(OperationType.UPDATE, OperationState.PROCESSING, f"hot update of {fields}")
    handle = m.start(
        MachineActivities.update_machine,
        UpdateInput(
            target=m.target().model_copy(update={"provider_spec": desired}), last_applied=applied.provider_spec
        ),
        queue=m.cloud,
        summary=f"hot update to generation {wanted.generation} of {wanted.name}",
    )
    report(m)
    await m.until(lambda: handle.done() or m.s.deletion is not None, NEVER)
    if not handle.done():
        m.drop(handle)  # what is deleted needs no tags; a call under way still does no harm
        return
    try:
        _done(m, await handle, wanted.generation, AppliedSpec(hash=spec_hash(desired), provider_spec=desired), fields)
    except ActivityError as e:
        if m.snapshot == wanted:
            _failed(m, failure_of(e), fields)
    report(m)


def _done(m: MachineEntity, output: UpdateOutput, generation: int, applied: AppliedSpec, fields: str) -> None:
    if not output.supported:
        words = f"{m.snapshot.provider} has no update of a VM that runs: {fields} would need a new VM"
        _trouble(m, "UpdateNotSupported", words, None)
        m.condition("UpdateNotSupported", "UpdateNotSupported", words)
        m.note_news("UpdateNotSupported", words)
        return
    m.status.last_applied_provider_spec, m.status.applied_generation = applied, generation
    m.status.update_trouble = None
    m.drop_condition("UpdateNotSupported")
    m.drop_condition("UpdateFailed")
    if m.status.waiting_for and m.status.phase == Phase.RUNNING:
        m.status.waiting_for = None
    changed = "; ".join(output.changed) or "all was so already"
    words = f"generation {generation}, {fields}: {changed}"
    m.operation(OperationType.UPDATE, OperationState.SUCCESSFUL, words)
    m.note("Updated", words)
    m.tell()


def _failed(m: MachineEntity, failure: Failure, fields: str) -> None:
    former = m.status.update_trouble
    m.s.update_failures = m.s.update_failures + 1 if former else 1
    wait = wait_after_update(failure.info, m.s.update_failures, m.s.timings)
    next_try = workflow.now() + wait
    resources = [ResourceUpdate.model_validate(r) for r in (failure.details[0] if failure.details else ())]
    words = f"hot update of {fields}: {m.words_of_cloud(failure)}"
    if resources:
        words += f" ({sum(r.error is None for r in resources)} of {len(resources)} resources updated)"
    reason = reason_of(failure)
    _trouble(m, reason, words, next_try, resources)
    m.deadlines["update"] = next_try
    m.operation(OperationType.UPDATE, OperationState.FAILED, words, failure.info.code)
    m.condition("UpdateFailed", reason, words)
    news = former is None or (former.reason, former.message) != (reason, words)
    m.note_news("UpdateFailed", words)
    if news:
        m.tell()


def _trouble(
    m: MachineEntity,
    reason: str,
    message: str,
    next_try: datetime | None,
    resources: Iterable[ResourceUpdate] = (),
) -> None:
    m.status.update_trouble = UpdateTrouble(
        reason=reason, message=message, time=workflow.now(), next_try=next_try, resources=list(resources)
    )

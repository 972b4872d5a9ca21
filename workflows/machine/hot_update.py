"""The hot update: a changed class reaches the running VM, and nothing is replaced (seed 002; seed 000, stage B).

What the VM carries changes only when every resource was updated. A failing update never fails the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Failure, failure_of
from workflows.machine.entity import HotUpdate, MachineEntity
from workflows.machine.report import NO_VM, differs, fields_of

with workflow.unsafe.imports_passed_through():
    from activities.cloud.machine import MachineActivities
    from planners.machine.domain import taken
    from planners.machine.hot_update import Difference, applied_after, compare, may_carry, with_updatable
    from planners.provider_spec import spec_hash
    from planners.waits import wait_after_update
    from resources.calls.cloud import ResourceUpdate, UpdateInput, UpdateOutput
    from resources.errors import Code, ErrorClass
    from resources.machine.state import (
        AppliedSpec,
        ClassSnapshot,
        MachineState,
        OperationState,
        OperationType,
        Phase,
        UpdateTrouble,
    )
    from resources.orders import is_older


UPDATES_RENEW = "updates-renew"


def keep_up(machine: MachineEntity, renews: bool = False) -> None:
    """Takes the answer of the update that is over, and begins the one that is due, without waiting for either: the
    machine is judged meanwhile as always.

    `renews`: the caller ends a run whose end is wanted, and that comes before the next update: where each is followed
    by another one, it would never come.
    """
    if machine.updating is not None and machine.updating.handle.done():
        now, machine.updating = machine.updating, None
        _end(machine, now)
    if machine.updating is not None:
        return
    if _due(machine):
        if not _next_runs(machine, renews):
            _begin(machine)
    elif machine.status.update_trouble and machine.status.update_trouble.next_try and machine.s.deletion is None:
        machine.deadlines["update"] = machine.status.update_trouble.next_try  # a phase that ends clears the table


def calls(m: MachineEntity, renews: bool = False) -> bool:
    """Whether `keep_up` has something to do."""
    return _due(m) and not _next_runs(m, renews) if m.updating is None else m.updating.handle.done()


def _next_runs(m: MachineEntity, renews: bool) -> bool:
    """Whether an update that is due is left to the next run."""
    return renews and m.wants_renewal(m.s.messages) and workflow.patched(UPDATES_RENEW)


def give_up(m: MachineEntity) -> None:
    """Drops the update: what is deleted needs no tags. A call still under way does no harm."""
    if m.updating is not None:
        m.drop(m.updating.handle)
        m.updating = None


def hurry(m: MachineEntity) -> None:
    """Brings the next try forward to now, because an operator wants it."""
    trouble = m.status.update_trouble
    if trouble is not None and trouble.next_try is not None:
        m.status.update_trouble = trouble.model_copy(update={"next_try": workflow.now()})


def _due(m: MachineEntity) -> bool:
    """Whether the VM carries other values of updatable fields than its class has, and it is time to try."""
    set_up = m.s.post_start_done or m.status.phase == Phase.FAILED  # a Failed machine never will be
    if m.s.deletion is not None or not set_up or not differs(m):
        return False
    trouble = m.status.update_trouble
    return trouble is None or (trouble.next_try is not None and trouble.next_try <= workflow.now())


def refusal(state: MachineState, wanted: ClassSnapshot) -> str | None:
    """Why an existing machine cannot take this class."""
    now = state.machine_class
    if now is None:
        return None
    if wanted.provider != now.provider:
        return (
            f"machineClass.provider: a machine cannot move from {now.provider} to {wanted.provider}; delete it, then "
            "apply it again"
        )
    if wanted.name == now.name and is_older(wanted.generation, now.generation, workflow.now()):
        return f"machineClass.generation: {wanted.generation} is older than {now.generation}, which the machine has"
    applied = state.status.last_applied_provider_spec
    if applied is None:
        return None
    return "; ".join(compare(now.provider, applied.provider_spec, wanted.provider_spec).refused) or None


def of_pool(s: MachineState, wanted: ClassSnapshot) -> ClassSnapshot:
    """What a machine takes of its changed class. A pool's machine takes only the updatable fields and the credentials:
    what needs a new VM belongs to a new revision, and to the pool. A repeated create call must not make its VM from
    another image than its revision's either."""
    own, wanted = s.machine_class, taken(s, wanted)
    if s.owner is None or own is None or own.provider != wanted.provider:
        return wanted
    return with_updatable(own, wanted)


def take(machine: MachineEntity, wanted: ClassSnapshot) -> str:
    """Takes a changed class, which starts afresh: a former failure says nothing of it. Returns words for what it will
    do to the machine."""
    if machine.s.machine_class is not None and machine.s.machine_class.name != wanted.name:
        machine.status.applied_generation = 0  # it was the other class's
    former, machine.s.machine_class = machine.s.machine_class, wanted
    if former is not None and machine.credentials != (former.credentials_secret_ref or former.secret_ref):
        machine.drop_condition("WrongAccount")  # it was said of the other Secret
    machine.deadlines.pop("update", None)
    _no_trouble(machine)
    for condition in ("Outdated", "UpdateNotSupported"):
        machine.drop_condition(condition)
    generation = f"class {wanted.words}"
    applied = machine.status.last_applied_provider_spec
    if applied is None:
        machine.note("Applied", generation)
        return "configured"
    found = compare(wanted.provider, _carried(machine, applied), wanted.provider_spec)
    words = [f"hot update of {fields_of(found.hot)}"] if found.hot else []
    machine.note("Applied", "; ".join([generation, *words]))
    return "; ".join(["configured", *words, *_outdated(machine, found)])


def look_anew(m: MachineEntity) -> None:
    """Compares a VM whose class has changed while it was being made or found."""
    applied = m.status.last_applied_provider_spec
    assert applied is not None
    _outdated(m, compare(m.snapshot.provider, applied.provider_spec, m.snapshot.provider_spec))


def _outdated(m: MachineEntity, found: Difference) -> list[str]:
    """Says what only a new VM can have; nobody replaces the machine for it here. Returns words for whoever changed
    it."""
    if not differs(m):
        m.status.applied_generation = m.snapshot.generation
    if not found.rolls:
        return []
    words = f"the VM was created with other values of {fields_of(found.rolls)}"
    m.condition("Outdated", "Outdated", words)
    m.note("Outdated", words)
    return [words]


def _carried(m: MachineEntity, applied: AppliedSpec) -> dict[str, Any]:
    """What the VM carries; after updates that failed half-way, what it may carry."""
    now = m.snapshot
    return may_carry(now.provider, applied.provider_spec, m.s.attempted_specs, now.provider_spec)


def _begin(machine: MachineEntity) -> None:
    """Makes one call. The next one takes a class that changes meanwhile: the newest wins."""
    applied, wanted = machine.status.last_applied_provider_spec, machine.snapshot
    assert applied is not None
    machine.deadlines.pop("update", None)
    last = _carried(machine, applied)
    desired = applied_after(wanted.provider, applied.provider_spec, wanted.provider_spec)
    fields = fields_of(compare(wanted.provider, last, desired).hot)
    if not (fields or machine.s.attempted_specs):  # this call would change nothing, and so be made without end
        missed = fields_of(compare(wanted.provider, desired, wanted.provider_spec).hot)
        raise RuntimeError(f"no update reaches {missed} of class {wanted.name}")
    machine.attempted(desired)  # intent before effect: what half a call has done must be known later
    _operation(machine, OperationState.PROCESSING, f"hot update of {fields}")
    handle = machine.start(
        MachineActivities.update_machine,
        UpdateInput(target=machine.target().model_copy(update={"provider_spec": desired}), last_applied=last),
        queue=machine.cloud,
        summary=f"hot update to generation {wanted.generation} of {wanted.name}",
    )
    machine.updating = HotUpdate(handle, wanted, AppliedSpec(hash=spec_hash(desired), provider_spec=desired), fields)


def _end(machine: MachineEntity, now: HotUpdate) -> None:
    try:
        output = now.handle.result()
    except ActivityError as e:
        if machine.snapshot == now.machine_class:
            _failed(machine, failure_of(e), now.fields)
        return
    if output.supported:
        _done(machine, output, now)
        return
    machine.s.attempted_specs = [a for a in machine.s.attempted_specs if a != now.applied.provider_spec]
    machine.drop_condition("UpdateFailed")
    if machine.snapshot == now.machine_class:
        words = f"{machine.snapshot.provider} cannot update a running VM: {now.fields} would need a new VM"
        _trouble(machine, "UpdateNotSupported", words, None)
        machine.condition("UpdateNotSupported", "UpdateNotSupported", words)
        machine.note_news("UpdateNotSupported", words)


def _done(machine: MachineEntity, output: UpdateOutput, now: HotUpdate) -> None:
    machine.status.last_applied_provider_spec = now.applied
    machine.s.attempted_specs = []
    if not differs(machine):  # of the class as it is now, which may have changed meanwhile
        machine.status.applied_generation = machine.snapshot.generation
    elif now.machine_class.name == machine.snapshot.name:
        machine.status.applied_generation = now.machine_class.generation
    _no_trouble(machine)
    what = "; ".join(output.changed) or f"{now.fields}: nothing had to be changed"
    words = f"class {now.machine_class.name}, generation {now.machine_class.generation}: {what}"
    _operation(machine, OperationState.SUCCESSFUL, words)
    machine.note("Updated", words)
    machine.tell()


def _failed(machine: MachineEntity, failure: Failure, fields: str) -> None:
    if machine.status.phase == Phase.FAILED and failure.kind == ErrorClass.NOT_FOUND:
        machine.s.attempted_specs = []
        machine.drop_condition("UpdateFailed")
        _trouble(machine, NO_VM, f"there is no VM to update: {failure.words}", None)
        return
    former = machine.status.update_trouble
    machine.s.update_failures = machine.s.update_failures + 1 if former else 1
    tries = replace(machine.tries(), failures=machine.s.update_failures)  # this growth is older than the patch
    next_try = workflow.now() + wait_after_update(failure.info, machine.s.timings, tries)
    resources = [ResourceUpdate.model_validate(r) for r in (failure.details[0] if failure.details else ())]
    words = f"hot update of {fields}: {machine.words_of_cloud(failure)}"
    if resources:
        words += f" ({sum(r.error is None for r in resources)} of {len(resources)} resources updated)"
    reason = failure.reason
    _trouble(machine, reason, words, next_try, resources)
    _operation(machine, OperationState.FAILED, words, failure.info.code)
    machine.condition("UpdateFailed", reason, words)
    machine.note_news("UpdateFailed", words)
    if former is None or (former.reason, former.message) != (reason, words):
        machine.tell()


def _no_trouble(m: MachineEntity) -> None:
    m.status.update_trouble = None
    m.drop_condition("UpdateFailed")


def _operation(m: MachineEntity, state: OperationState, words: str, code: Code | None = None) -> None:
    """Sets lastOperation of a Running machine only: otherwise it says why the machine is not Running, and
    cluster-autoscaler reads its code."""
    if m.status.phase == Phase.RUNNING:
        m.operation(OperationType.UPDATE, state, words, code)


def _trouble(
    machine: MachineEntity,
    reason: str,
    message: str,
    next_try: datetime | None,
    resources: Iterable[ResourceUpdate] = (),
) -> None:
    former, now = machine.status.update_trouble, workflow.now()
    machine.status.update_trouble = UpdateTrouble(
        reason=reason,
        message=message,
        since=former.since if former and former.reason == reason else now,
        time=now,
        next_try=next_try,
        resources=list(resources),
    )

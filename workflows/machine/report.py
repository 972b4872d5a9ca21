"""What the class is told of a machine: how far it is with the class's newest generation."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow

from workflows.entity import unheard
from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from activities.classes import ClassActivities
    from planners.hot_update import compare, updatable_hash
    from resources.machine_class import ClassRef, ClassReport, ReportInput, UpdateState
    from resources.names import workflow_queue


def differs(m: MachineEntity) -> bool:
    """Whether the VM carries other values of updatable fields than its class has."""
    applied, wanted = m.status.last_applied_provider_spec, m.snapshot
    if applied is None:
        return False
    of = wanted.provider
    return updatable_hash(of, applied.provider_spec) != updatable_hash(of, wanted.provider_spec)


def fields_of(paths: Iterable[str]) -> str:
    return ", ".join(f"providerSpec.{p}" for p in paths)


def report(m: MachineEntity) -> None:
    """Tell the class how far this machine is with it, when that has changed. Nobody waits for it.

    The create activity has told it the first time: an undisturbed life has nothing to add.
    """
    s, wanted = m.s, m.snapshot
    state, reason, message = _progress(m)
    applied = m.status.applied_generation
    now = [wanted.name, str(wanted.generation), str(applied), str(state), reason]
    if not s.reported:
        first = s.attempt.machine_class if s.attempt else wanted
        s.reported = [first.name, str(first.generation), str(first.generation), str(UpdateState.UPDATED), ""]
        if m.status.provider_id is None:
            return
    if now == s.reported:
        return
    left = s.reported[0] if s.reported[0] != wanted.name else None
    s.reported = now
    handle = m.start(
        ClassActivities.report_to_class,
        ReportInput(
            machine_class=ClassRef(cluster=s.cluster, name=wanted.name),
            left=ClassRef(cluster=s.cluster, name=left) if left else None,
            report=ClassReport(
                user=s.name,
                generation=wanted.generation,
                applied=applied,
                state=state,
                reason=reason,
                message=message,
                next_try=m.status.update_trouble.next_try if m.status.update_trouble else None,
                time=workflow.now(),
            ),
        ),
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell class {wanted.name}: {state}",
    )
    unheard(handle)


def _progress(m: MachineEntity) -> tuple[UpdateState, str, str]:
    applied, wanted, trouble = m.status.last_applied_provider_spec, m.snapshot, m.status.update_trouble
    if applied is None:
        return UpdateState.PENDING, "", ""
    found = compare(wanted.provider, applied.provider_spec, wanted.provider_spec)
    if found.refused:
        return UpdateState.FAILED, "Refused", "; ".join(found.refused)
    if trouble is not None and trouble.next_try is None:
        return UpdateState.NOT_SUPPORTED, trouble.reason, trouble.message
    if trouble is not None:
        return UpdateState.FAILED, trouble.reason, trouble.message
    if differs(m):
        return UpdateState.UPDATING, "", ""
    return (UpdateState.OUTDATED, "Outdated", fields_of(found.rolls)) if found.rolls else (UpdateState.UPDATED, "", "")

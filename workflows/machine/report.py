"""What the class is told of a machine: how far it is with the class's newest generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from temporalio import workflow

from workflows.entity import unheard
from workflows.machine.entity import MachineEntity
from workflows.machine.record import account_of_spec

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from planners.machine.hot_update import compare
    from resources.cluster.accounts import Account, Announcement
    from resources.machine.state import ClassSnapshot
    from resources.machine_class.state import ClassId, ClassReport, ReportInput, UpdateState
    from resources.names import workflow_queue


NO_VM = "VMGone"
"""The reason of an update that will never happen: a Failed machine has lost its VM."""


def differs(machine: MachineEntity) -> bool:
    """Whether the VM carries, or may carry, other values of updatable fields than its class has. Waits ask this, so it
    is computed once for two specs."""
    applied = machine.status.last_applied_provider_spec
    if applied is None or machine.s.attempted_specs:
        return applied is not None
    wanted = machine.snapshot
    if applied.provider_spec == wanted.provider_spec:
        return False
    if machine.compared is None or machine.compared[0] is not applied or machine.compared[1] is not wanted:
        found = compare(wanted.provider, applied.provider_spec, wanted.provider_spec)
        machine.compared = applied, wanted, bool(found.hot)
    return machine.compared[2]


def fields_of(paths: Iterable[str]) -> str:
    """`providerSpec.ami`, `providerSpec.{nicTags, vmTags}`."""
    names = list(paths)
    return f"providerSpec.{names[0]}" if len(names) == 1 else f"providerSpec.{{{', '.join(names)}}}" if names else ""


def report(machine: MachineEntity) -> None:
    """Tells the class how far this machine is with it, when that has changed. Nobody waits for it.

    The create activity has told it the first time: an undisturbed life has nothing to add.
    """
    s = machine.s
    if s.machine_class is None or s.attempt is None:
        return
    if s.deletion is not None and s.reported:
        return  # it is forgotten soon; a class that asks meanwhile has its answer
    wanted = s.machine_class
    state, reason, message = _progress(machine)
    now = said(wanted.generation, machine.status.applied_generation, state, reason)
    announcement = _announcement(machine, wanted)
    if now == s.reported and s.classes == [wanted.name] and announcement is None:
        return
    left = [ClassId(cluster=s.cluster, name=name) for name in s.classes if name != wanted.name]
    s.classes, s.reported = [wanted.name], now
    handle = machine.start(
        ClassActivities.report_to_class,
        ReportInput(
            machine_class=ClassId(cluster=s.cluster, name=wanted.name),
            left=left,
            announcement=announcement,
            report=ClassReport(
                user=s.name,
                generation=wanted.generation,
                applied=machine.status.applied_generation,
                state=state,
                reason=reason,
                message=message,
                next_try=machine.status.update_trouble.next_try if machine.status.update_trouble else None,
                time=workflow.now(),
            ),
        ),
        queue=workflow_queue(s.queue_prefix),
        summary=f"tell class {wanted.name}: {state}",
    )
    unheard(handle)


def account_of(m: MachineEntity, machine_class: ClassSnapshot) -> Account | None:
    """Where the VM is listed, with the class's credentials."""
    assert m.s.attempt is not None
    return account_of_spec(machine_class, m.s.attempt.machine_class.provider_spec)


def _announcement(m: MachineEntity, wanted: ClassSnapshot) -> Announcement | None:
    account, vm = account_of(m, wanted), m.status.provider_id
    if account is None or vm is None or account.key == m.s.account:
        return None
    m.s.account = account.key
    return Announcement(provider_id=vm, machine=m.s.name, account=account, machine_class=wanted.name)


def said(generation: int, applied: int, state: UpdateState, reason: str = "") -> list[str]:
    """What is kept of a report, to see whether there is anything new to say."""
    return [str(generation), str(applied), str(state), reason]


def heard(m: MachineEntity) -> tuple[object, ...]:
    """A value that differs once a class has spoken."""
    return m.s.machine_class, *m.s.classes, *m.s.reported


def class_news(m: MachineEntity) -> Callable[[], bool]:
    """A condition for waits: a class has spoken."""
    former = heard(m)
    return lambda: heard(m) != former


def _progress(machine: MachineEntity) -> tuple[UpdateState, str, str]:
    applied, wanted, trouble = (
        machine.status.last_applied_provider_spec,
        machine.snapshot,
        machine.status.update_trouble,
    )
    if machine.s.deletion is not None:
        return UpdateState.PENDING, "Terminating", "it is being deleted, and is no longer updated"
    if applied is None:
        return UpdateState.PENDING, "", ""
    specs = wanted.provider, applied.provider_spec, wanted.provider_spec
    found, former = compare(*specs), compare(*specs, version=1)
    if bool(found.rolls) != bool(former.rolls) and not workflow.patched("one-spelling"):
        found = former  # a replay must call another spelling Outdated where the run's report did
    if found.refused:
        return UpdateState.FAILED, "Refused", "; ".join(found.refused)
    if trouble is not None and trouble.next_try is None:
        state = UpdateState.PENDING if trouble.reason == NO_VM else UpdateState.NOT_SUPPORTED
        return state, trouble.reason, trouble.message
    if trouble is not None:
        return UpdateState.FAILED, trouble.reason, trouble.message
    if differs(machine):
        return UpdateState.UPDATING, "", ""
    return (UpdateState.OUTDATED, "Outdated", fields_of(found.rolls)) if found.rolls else (UpdateState.UPDATED, "", "")

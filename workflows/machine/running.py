"""Running, Unknown and Failed: until a deletion is wanted."""

from __future__ import annotations

from temporalio import workflow

from workflows.machine import claim, confirm, hot_update, membership, preserve, terminate
from workflows.machine.entity import PRESERVATION_TIMES, MachineEntity
from workflows.machine.join import apply_template, join_again
from workflows.machine.report import heard, report

with workflow.unsafe.imports_passed_through():
    from planners.machine.health import Health, Verdict, fails_at, fall_ill, judge, plan_health
    from resources.base import format_duration, whole_seconds
    from resources.machine.state import OperationState, OperationType, Phase
    from resources.words import utc


async def run(machine: MachineEntity) -> None:
    """Shows a node that is not healthy as Unknown, and as Running again when it has been healthy for a while. A machine
    that is Unknown for too long, and found so by fresh looks, is Failed."""
    state = machine.s
    while not machine.leaving:
        machine.deadlines.pop("settle", None)
        if preserve.step(machine):
            continue
        if await join_again(machine):
            continue
        hot_update.keep_up(machine, renews=True)
        claim.keep_up(machine)
        health = judge(state.node, state.spec.node_conditions, state.vm)
        _show(
            machine,
            health,
            plan_health(machine.status.phase, health, state.healthy_since, workflow.now(), state.timings.settle),
        )
        _set_clock(machine, health)
        if preserve.step(machine):  # again, by the phase as it is now
            continue
        if machine.due("confirm"):
            await confirm.health(machine)
        elif state.node and state.node.exists and state.spec.node_template != machine.status.last_applied_node_template:
            await apply_template(machine, state.node)
        else:
            await _next(machine)


def _show(machine: MachineEntity, health: Health, verdict: Verdict) -> None:
    machine.s.healthy_since = verdict.healthy_since
    if verdict.phase != machine.status.phase:
        _change(machine, verdict.phase, health)
    elif verdict.phase == Phase.UNKNOWN and not health.healthy:
        _another_reason(machine, health)
    if verdict.settles_at:
        machine.deadlines["settle"] = verdict.settles_at
        settle = format_duration(machine.s.timings.settle)
        machine.waiting(
            "Settling", f"{health.message}; when it has been healthy for {settle}, it is Running", verdict.settles_at
        )
    elif verdict.phase == Phase.RUNNING:
        trouble = machine.status.update_trouble
        machine.status.waiting_for = None
        if machine.updating:
            machine.waiting("HotUpdate", f"the VM is being updated: {machine.updating.fields}")
        elif trouble and trouble.next_try:
            machine.waiting("UpdateFailed", trouble.message, trouble.next_try, trouble.since)


def _change(machine: MachineEntity, phase: Phase, health: Health) -> None:
    state = machine.s
    if phase == Phase.UNKNOWN:
        state.illness, state.ill_for = fall_ill(state.illness, workflow.now(), state.spec.health_timeout), health.reason
        machine.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, health.message)
        machine.enter(phase, health.reason, health.message)
        _flapping(machine)
    else:
        if state.illness is not None:
            state.illness = state.illness.model_copy(update={"ended": state.healthy_since})
        membership.withdraw(machine)  # before it tells its pool that it is Running
        machine.operation(OperationType.HEALTH_CHECK, OperationState.SUCCESSFUL, health.message)
        machine.enter(phase, "Recovered", f"{health.message} again")
    machine.tell()


def _another_reason(m: MachineEntity, health: Health) -> None:
    """Says that the reason has changed: where an Unknown machine's VM is later believed gone, readers must not look for
    the trouble at the Node."""
    former, m.s.ill_for = m.s.ill_for, health.reason
    if former in ("", health.reason) or not workflow.patched("another-reason"):  # "": an older worker did not say
        return
    m.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, health.message)
    m.note_news(health.reason, health.message)
    m.waiting(health.reason, health.message, m.deadlines.get("confirm"))
    m.tell()


def _flapping(machine: MachineEntity) -> None:
    illness = machine.s.illness
    if illness is None or illness.spells == 1:
        machine.drop_condition("Flapping")
        return
    spent = format_duration(whole_seconds(illness.spent))
    limit = machine.health_timeout
    words = (
        f"unhealthy {illness.spells} times; the earlier times have used up {spent} of the healthTimeout of {limit}; "
        f"the count restarts when it has been healthy for {limit} without a break"
    )
    machine.condition("Flapping", "Flapping", words)
    if illness.spells == 2:  # only once: a line for each spell would push the story out of the journal
        machine.note("Flapping", words)


def _set_clock(machine: MachineEntity, health: Health) -> None:
    """Sets the health clock until the machine has settled: absolute, by how long it was unhealthy so far, whatever was
    looked at in between."""
    state = machine.s
    settled = machine.status.phase is Phase.RUNNING or (health.healthy and not workflow.patched(confirm.UNSETTLED))
    if settled or state.illness is None or state.spec.disable_health_timeout:
        state.suspicion = None
        membership.withdraw(machine)
        machine.deadlines.pop("health", None)
        machine.deadlines.pop("confirm", None)
        if not health.healthy:
            machine.waiting("HealthTimeoutDisabled", f"{health.message}; spec.disableHealthTimeout keeps it Unknown")
        return
    deadline = fails_at(state.illness, state.spec.health_timeout)
    if machine.deadlines.get("health") != deadline or "confirm" not in machine.deadlines:
        machine.deadlines["health"] = deadline
        confirm.arm(machine, deadline)
        if deadline > workflow.now():
            membership.withdraw(machine)  # it was given more time
    if health.healthy:
        return  # it has been said that it must settle
    if state.asks_permit and not state.permitted and not confirm.undecided(machine):
        membership.wait_for_permit(machine, health.message)
    elif state.suspicion is None and not confirm.undecided(machine):
        end = f"Failed at {utc(deadline)} if two fresh looks confirm it"
        machine.waiting(health.reason, f"{health.message}; {end}", machine.deadlines["confirm"])


async def fail(machine: MachineEntity) -> None:
    """Drains a machine that fails; it stays Failed and says so. Its pool deletes it, or a person where it has none."""
    if machine.s.deletion is not None or machine.status.phase != Phase.FAILED:
        return
    why = machine.status.last_operation
    preserve.failed(machine)
    await terminate.drain(machine)
    if not machine.leaving:
        return
    if machine.s.deletion is None:
        machine.status.last_operation = why  # cluster-autoscaler reads what failed, with its code
    (failed,) = (c for c in machine.status.conditions if c.type == "Failed")
    since = failed.since.replace(microsecond=0)  # the precision in which Kubernetes says when a Node was created
    while machine.leaving and machine.s.deletion is None:
        claim.keep_up(machine)  # first: what is believed of the VM decides whether it is kept
        if preserve.step(machine):
            continue
        if machine.s.repair is not None:
            await confirm.repair(machine)
            continue
        node = machine.s.node
        if node and node.exists and not machine.s.joined and node.created and node.created >= since:
            machine.note_news("JoinedLate", f"node {node.name} joined after the machine had Failed; it gets no pods")
        hot_update.keep_up(machine, renews=True)
        await _next(machine)


async def _next(machine: MachineEntity) -> None:
    """Waits for news. This is the safe point of a machine that lives: no effect is in flight."""
    report(machine)
    seen = _what_counts(machine)
    await machine.until(
        lambda: (
            _what_counts(machine) != seen
            or hot_update.calls(machine, renews=True)
            or claim.calls(machine)
            or preserve.calls(machine)
            or machine.renewal_due
        ),
        *("settle", "confirm", "update", "claim", *PRESERVATION_TIMES),
    )
    if machine.s.deletion is None:
        await machine.renew_if_due()


def _what_counts(m: MachineEntity) -> tuple[object, ...]:
    s = m.s
    asked = s.spec.node_template, s.spec.health_timeout, s.spec.disable_health_timeout, s.deletion
    return s.node, s.vm, s.repair, *asked, *preserve.what_counts(m), *heard(m)

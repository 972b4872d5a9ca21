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


async def run(m: MachineEntity) -> None:
    """Shows a node that is not healthy as Unknown, and as Running again when it has been healthy for a while. A machine
    that is Unknown for too long, and found so by fresh looks, is Failed."""
    s = m.s
    while not m.leaving:
        m.deadlines.pop("settle", None)
        if preserve.step(m):
            continue
        if await join_again(m):
            continue
        hot_update.keep_up(m)
        claim.keep_up(m)
        health = judge(s.node, s.spec.node_conditions, s.vm)
        _show(m, health, plan_health(m.status.phase, health, s.healthy_since, workflow.now(), s.timings.settle))
        _set_clock(m, health)
        if preserve.step(m):  # again, by the phase as it is now
            continue
        if m.due("confirm"):
            await confirm.health(m)
        elif s.node and s.node.exists and s.spec.node_template != m.status.last_applied_node_template:
            await apply_template(m, s.node)
        else:
            await _next(m)


def _show(m: MachineEntity, health: Health, verdict: Verdict) -> None:
    m.s.healthy_since = verdict.healthy_since
    if verdict.phase != m.status.phase:
        _change(m, verdict.phase, health)
    elif verdict.phase == Phase.UNKNOWN and not health.healthy:
        _another_reason(m, health)
    if verdict.settles_at:
        m.deadlines["settle"] = verdict.settles_at
        settle = format_duration(m.s.timings.settle)
        m.waiting(
            "Settling", f"{health.message}; when it has been healthy for {settle}, it is Running", verdict.settles_at
        )
    elif verdict.phase == Phase.RUNNING:
        trouble = m.status.update_trouble
        m.status.waiting_for = None
        if m.updating:
            m.waiting("HotUpdate", f"the VM is being updated: {m.updating.fields}")
        elif trouble and trouble.next_try:
            m.waiting("UpdateFailed", trouble.message, trouble.next_try, trouble.since)


def _change(m: MachineEntity, phase: Phase, health: Health) -> None:
    s = m.s
    if phase == Phase.UNKNOWN:
        s.illness, s.ill_for = fall_ill(s.illness, workflow.now(), s.spec.health_timeout), health.reason
        m.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, health.message)
        m.enter(phase, health.reason, health.message)
        _flapping(m)
    else:
        if s.illness is not None:
            s.illness = s.illness.model_copy(update={"ended": s.healthy_since})
        membership.withdraw(m)  # before it tells its pool that it is Running
        m.operation(OperationType.HEALTH_CHECK, OperationState.SUCCESSFUL, health.message)
        m.enter(phase, "Recovered", f"{health.message} again")
    m.tell()


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


def _flapping(m: MachineEntity) -> None:
    illness = m.s.illness
    if illness is None or illness.spells == 1:
        m.drop_condition("Flapping")
        return
    spent = format_duration(whole_seconds(illness.spent))
    words = (
        f"unhealthy {illness.spells} times; the earlier times have used up {spent} of the healthTimeout of "
        f"{m.health_timeout}; the count restarts when it has been healthy for {m.health_timeout} without a break"
    )
    m.condition("Flapping", "Flapping", words)
    if illness.spells == 2:  # only once: a line for each spell would push the story out of the journal
        m.note("Flapping", words)


def _set_clock(m: MachineEntity, health: Health) -> None:
    """Sets the health clock until the machine has settled: absolute, by how long it was unhealthy so far, whatever was
    looked at in between."""
    s = m.s
    settled = m.status.phase is Phase.RUNNING or (health.healthy and not workflow.patched(confirm.UNSETTLED))
    if settled or s.illness is None or s.spec.disable_health_timeout:
        s.suspicion = None
        membership.withdraw(m)
        m.deadlines.pop("health", None)
        m.deadlines.pop("confirm", None)
        if not health.healthy:
            m.waiting("HealthTimeoutDisabled", f"{health.message}; spec.disableHealthTimeout keeps it Unknown")
        return
    deadline = fails_at(s.illness, s.spec.health_timeout)
    if m.deadlines.get("health") != deadline or "confirm" not in m.deadlines:
        m.deadlines["health"] = deadline
        confirm.arm(m, deadline)
        if deadline > workflow.now():
            membership.withdraw(m)  # it was given more time
    if health.healthy:
        return  # it has been said that it must settle
    if s.asks_permit and not s.permitted and not confirm.undecided(m):
        membership.wait_for_permit(m, health.message)
    elif s.suspicion is None and not confirm.undecided(m):
        end = f"Failed at {deadline:%Y-%m-%d %H:%M:%S} if two fresh looks confirm it"
        m.waiting(health.reason, f"{health.message}; {end}", m.deadlines["confirm"])


async def fail(m: MachineEntity) -> None:
    """Drains a machine that fails; it stays Failed and says so. Its pool deletes it, or a person where it has none."""
    if m.s.deletion is not None or m.status.phase != Phase.FAILED:
        return
    why = m.status.last_operation
    preserve.failed(m)
    await terminate.drain(m)
    if not m.leaving:
        return
    if m.s.deletion is None:
        m.status.last_operation = why  # cluster-autoscaler reads what failed, with its code
    (failed,) = (c for c in m.status.conditions if c.type == "Failed")
    since = failed.since.replace(microsecond=0)  # the precision in which Kubernetes says when a Node was created
    while m.leaving and m.s.deletion is None:
        claim.keep_up(m)  # first: what is believed of the VM decides whether it is kept
        if preserve.step(m):
            continue
        if m.s.repair is not None:
            await confirm.repair(m)
            continue
        node = m.s.node
        if node and node.exists and not m.s.joined and node.created and node.created >= since:
            m.note_news("JoinedLate", f"node {node.name} joined after the machine had Failed; it gets no pods")
        hot_update.keep_up(m)
        await _next(m)


async def _next(m: MachineEntity) -> None:
    """Waits for news. This is the safe point of a machine that lives: no effect is in flight."""
    report(m)
    seen = _what_counts(m)
    await m.until(
        lambda: _what_counts(m) != seen or hot_update.calls(m) or claim.calls(m) or preserve.calls(m) or m.renewal_due,
        *("settle", "confirm", "update", "claim", *PRESERVATION_TIMES),
    )
    if m.s.deletion is None:
        await m.renew_if_due()


def _what_counts(m: MachineEntity) -> tuple[object, ...]:
    s = m.s
    asked = s.spec.node_template, s.spec.health_timeout, s.spec.disable_health_timeout, s.deletion
    return s.node, s.vm, s.repair, *asked, *preserve.what_counts(m), *heard(m)

"""Running and Unknown, and Failed: until a deletion is wanted."""

from __future__ import annotations

from temporalio import workflow

from workflows.machine.entity import MachineEntity
from workflows.machine.join import apply_template

with workflow.unsafe.imports_passed_through():
    from planners.health import Health, judge, plan_health
    from resources.machine import OperationState, OperationType, Phase


async def run(m: MachineEntity) -> None:
    """A node that is not healthy shows as Unknown, and as Running again when it has been healthy for a while."""
    s = m.s
    while not m.leaving:
        m.deadlines.pop("settle", None)
        if s.node and s.node.exists and s.spec.node_template != m.status.last_applied_node_template:
            await apply_template(m, s.node)
            continue
        health = judge(s.node, s.spec.node_conditions, s.vm)
        verdict = plan_health(m.status.phase, health, s.healthy_since, workflow.now(), s.timings.settle)
        s.healthy_since = verdict.healthy_since
        if verdict.settles_at:
            m.deadlines["settle"] = verdict.settles_at
            m.waiting("Settling", f"{health.message}; healthy for {s.timings.settle} it is Running", verdict.settles_at)
        if verdict.phase != m.status.phase:
            _change(m, verdict.phase, health)
        elif verdict.phase == Phase.UNKNOWN and not health.healthy:
            m.waiting(health.reason, health.message)
        await _next(m)


def _change(m: MachineEntity, phase: Phase, health: Health) -> None:
    if phase == Phase.UNKNOWN:
        m.operation(OperationType.HEALTH_CHECK, OperationState.PROCESSING, health.message)
        m.waiting(health.reason, health.message)
        m.enter(phase, health.reason, health.message)
        m.tell()
    else:
        m.operation(OperationType.HEALTH_CHECK, OperationState.SUCCESSFUL, health.message)
        m.status.waiting_for = None
        m.enter(phase, "Recovered", f"{health.message} again")
        m.tell()


async def fail(m: MachineEntity) -> None:
    """A machine of no pool that fails stays Failed and says so."""
    while m.s.deletion is None and m.status.phase == Phase.FAILED:
        operation = m.status.last_operation
        why = operation.description if operation else "failed"
        m.waiting("Failed", f"{why}; what can be done: `hostler delete machine {m.s.name}`, then apply it again")
        await _next(m)


async def _next(m: MachineEntity) -> None:
    """Wait for news. This is the safe point of a machine that lives: no effect is in flight."""
    seen = _what_counts(m)
    await m.until(lambda: _what_counts(m) != seen or _renewal(m))
    if _renewal(m) and m.s.deletion is None:
        await m.renew()


def _what_counts(m: MachineEntity) -> tuple[object, ...]:
    return m.s.node, m.s.vm, m.s.spec.node_template, m.s.deletion


def _renewal(m: MachineEntity) -> bool:
    return m.renewal_wanted or m.should_renew(m.s.messages)

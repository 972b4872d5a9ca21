"""Helpers for lives on stubs: the real workflow, its activities as stubs, hours skipped by explicit fast-forward."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import DEADLINE, eventually
from stubs import NODE, VM, Handle, Machines, phase, reason, state
from temporalio.testing import WorkflowEnvironment

from planners.machine.creation import token_of
from planners.provider_spec import spec_hash
from resources.machine.intents import DeleteIntent
from resources.machine.state import (
    AppliedSpec,
    Attempt,
    LastOperation,
    MachineResult,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    Status,
)
from workflows.machine import MachineWorkflow

LATE = timedelta(seconds=10)
"""How late a deadline may be where the tests' computer is busy: only the hours are skipped, not the work."""
WAY_OUT = ["drain_node", "delete_machine", "forget_machine"]


async def called(machines: Machines, name: str, times: int = 1) -> None:
    async def count() -> int:
        return len(machines.stubs.called(name))

    await eventually(count, lambda n: n >= times, f"{name} called {times} times")


async def running(machines: Machines, name: str = "m-1", **spec: Any) -> Handle:
    handle = await machines.start(machines.new_state(name, **spec))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


async def delete(handle: Handle, **fields: Any) -> None:
    """Asks for the deletion; it is under way when this returns."""
    intent = DeleteIntent(**{"id": str(uuid.uuid4()), "requested_by": "test", **fields})
    await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)


async def ended(handle: Handle) -> MachineResult:
    """What is left of the machine; bounded, so that a machine that never goes is a failed test and not a silent one."""
    result: MachineResult = await asyncio.wait_for(handle.result(), DEADLINE)
    return result


async def pending_failure(handle: Handle) -> str:
    """The last failure of the pending activity: a poller's blocker."""
    pending = (await handle.describe()).raw_description.pending_activities
    return str(pending[0].last_failure.message) if pending else ""


async def past(temporal: WorkflowEnvironment, handle: Handle, deadline: str) -> None:
    """Skips to just after a deadline of its table. Not further: while an activity is pending, time may be skipped to
    the end in one go."""
    at = (await state(handle)).status.deadlines[deadline]
    await temporal.fast_forward(handle, at - await temporal.get_current_time(handle) + timedelta(seconds=1))


async def past_both_looks(temporal: WorkflowEnvironment, handle: Handle) -> None:
    """The first look comes so early that the second is at the deadline."""
    await past(temporal, handle, "confirm")
    await eventually(lambda: state(handle), lambda s: s.suspicion, "the first of the two fresh looks")
    await past(temporal, handle, "confirm")


def operation(s: MachineState) -> tuple[OperationType, OperationState]:
    assert s.status.last_operation is not None
    return s.status.last_operation.type, s.status.last_operation.state


def with_vm(machines: Machines, name: str = "m-1", **fields: Any) -> MachineState:
    """The state with which the next run begins when a VM has been made, for example after a continue-as-new."""
    s, uid, now = machines.new_state(name), str(uuid.uuid4()), datetime.now(UTC)
    assert s.machine_class is not None
    spec = s.machine_class.provider_spec
    status = Status(
        phase=Phase.PENDING,
        last_operation=LastOperation(type=OperationType.CREATE, state=OperationState.PROCESSING, time=now),
        provider_id=VM,
        node_name=NODE,
        last_applied_provider_spec=AppliedSpec(hash=spec_hash(spec), provider_spec=spec),
        deadlines={"creation": (end := now + s.spec.creation_timeout), "confirm": end - s.timings.confirm},
    )
    attempt = Attempt(number=1, token=token_of(uid, 1), started=now, machine_class=s.machine_class)
    usual = {"uid": uid, "created": now, "made": now, "attempt": attempt, "status": status}
    return s.model_copy(update={**usual, **fields})


async def events(handle: Handle, attributes: str) -> int:
    """How many events of a kind its history has, by the name of their attributes."""
    return sum([event.HasField(attributes) async for event in handle.fetch_history_events()])  # type: ignore[arg-type]


def way_out(machines: Machines) -> list[str]:
    """The activities of the way out, in the order in which they were called."""
    return [name for name, _ in machines.stubs.calls if name in WAY_OUT]

"""What each step of a creation makes of the machine, as the design's table has it: phase and lastOperation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from lifekit import eventually
from machine.stubbed import operation, state
from machine.stubs import NODE, VM, Machines, classified

from resources.calls.cloud import CreateOutput, UpdateOutput
from resources.errors import ErrorClass
from resources.machine.state import MachineState, OperationState, OperationType, Phase
from workflows.machine import MachineWorkflow

CREATE, UPDATE = OperationType.CREATE, OperationType.UPDATE
PROCESSING, FAILED, SUCCESSFUL = OperationState.PROCESSING, OperationState.FAILED, OperationState.SUCCESSFUL
NO, REFUSED = classified(ErrorClass.UNKNOWN), classified(ErrorClass.AUTH)
FOUND = CreateOutput(provider_id=VM, node_name=NODE, adopted=True)
STALE = CreateOutput(provider_id=VM, node_name=NODE, stale_node=NODE)
HOLD = object()


@pytest.mark.parametrize(
    ("step", "answer", "expected", "vm"),
    [
        # Seed 000, flow chart of triggerCreationFlow.
        pytest.param(
            "create_machine",
            NO,
            (Phase.CRASH_LOOP_BACK_OFF, CREATE, FAILED),
            None,
            id="chkCreateErr: createFailed",
        ),
        pytest.param("create_machine", STALE, (Phase.FAILED, CREATE, FAILED), VM, id="chkstalenode true: permafail"),
        # Seed 000, Enhancement, 2: the phase is Pending and the operation Create/Processing before UpdateMachine.
        pytest.param("update_machine", HOLD, (Phase.PENDING, CREATE, PROCESSING), VM, id="2: created"),
        pytest.param("create_machine", FOUND, (Phase.PENDING, CREATE, PROCESSING), VM, id="chkstatuserr nil: found"),
        # Seed 000, Enhancement, 3.2 and its note (the state asked for there), 3.3.
        pytest.param("update_machine", None, (Phase.PENDING, UPDATE, SUCCESSFUL), VM, id="3.2: updated"),
        pytest.param(
            "update_machine",
            UpdateOutput(supported=False),
            (Phase.PENDING, UPDATE, SUCCESSFUL),
            VM,
            id="3.2: a driver without UpdateMachine",
        ),
        pytest.param("update_machine", REFUSED, (Phase.PENDING, UPDATE, FAILED), VM, id="3.3: the update failed"),
        # Seed 000, Instance Not Ready Taint: removed once the machine is fully ready.
        pytest.param("remove_ready_taint", None, (Phase.RUNNING, CREATE, SUCCESSFUL), VM, id="Ready, taint removed"),
    ],
)
async def test_the_table_of_creation(
    machines: Machines, step: str, answer: Any, expected: tuple[Phase, OperationType, OperationState], vm: str | None
) -> None:
    if answer is FOUND or answer is HOLD:  # both are seen before the post-start update answers
        machines.stubs.holds["update_machine"] = asyncio.Event()
    if answer not in (None, HOLD):
        machines.stubs.then(step, answer)
    handle = await machines.start(machines.new_state("m-1"))
    if step == "remove_ready_taint":
        await handle.signal(MachineWorkflow.observe, machines.facts())

    def seen(s: MachineState) -> bool:
        asked = bool(machines.stubs.called(step)) and s.status.last_operation is not None
        return asked and (s.status.phase, *operation(s), s.status.provider_id) == (*expected, vm)

    found = await eventually(lambda: state(handle), seen, f"{expected}")
    if step == "update_machine":  # once it is done, hot updates may follow
        assert found.post_start_done is (expected[1:] == (UPDATE, SUCCESSFUL))
    for hold in machines.stubs.holds.values():
        hold.set()


async def test_the_table_s_deadline(machines: Machines) -> None:
    """Seed 000: Failed instead of CrashLoopBackOff when MachineCreationTimeout is over."""
    machines.stubs.then("create_machine", *[NO] * 9)
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(seconds=1)))
    expected = (Phase.FAILED, CREATE, FAILED)
    await eventually(
        lambda: state(handle), lambda s: s.status.last_operation and (s.status.phase, *operation(s)) == expected
    )

"""Deadlines are absolute, even where a machine's workflow goes on in a new run, and when they come too soon for us."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from histories.deadlines import at_once
from lifekit import eventually
from machine.stubs import SICK, Handle, Machines, classified, end_soon, looked, phase, reason, server_time, state, when
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import ApplyIntent, MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

TEN = timedelta(minutes=10)
HOUR = timedelta(hours=1)


async def test_a_node_that_is_ready_at_the_creation_deadline_is_joined_though_that_takes_longer(
    machines: Machines,
) -> None:
    """After an outage all machines ask at once: what is left to do is ours, and no second look may end it (I5)."""
    hold = machines.stubs.holds["join_node"] = asyncio.Event()
    machines.stubs.then("look_at_node", *[looked()] * 99)
    timings = Timings(confirm=timedelta(seconds=0.2), vm_look=HOUR)
    handle = await machines.start(machines.new_state("m-1", timings, creation_timeout=HOUR))
    await reason(handle, "NodeNotSeen")
    await end_soon(handle, timedelta(seconds=0.5))
    joining = await reason(handle, "NodeTemplate")
    passed = joining.status.deadlines["creation"] + 2 * timings.confirm
    await eventually(server_time, lambda now: now > passed, "the time of a second look")
    hold.set()
    joined = await eventually(lambda: state(handle), lambda s: s.status.phase != Phase.PENDING, "decided")
    assert joined.status.phase == Phase.RUNNING, joined.journal[-1]


# -- continue-as-new --------------------------------------------------------------------------------------------------


async def ready(machines: Machines, **spec: Any) -> Handle:
    """Running; the handle is of the newest run."""
    started = await machines.start(machines.new_state("m-1", **{"health_timeout": TEN, **spec}))
    await reason(started, "NodeNotSeen")
    await started.signal(MachineWorkflow.observe, machines.facts())
    await phase(started, Phase.RUNNING)
    return machines.client.get_workflow_handle(started.id)


async def renewed(handle: Handle) -> MachineState:
    """The state that the next run has, when it has begun."""
    run = await _run_id(handle)
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id=run))

    await eventually(lambda: _run_id(handle), lambda r: r != run, "a new run")
    return await state(handle)


async def _run_id(handle: Handle) -> str:
    run: str = (await handle.describe()).run_id
    return run


async def test_the_health_clock_goes_on_in_the_next_run(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The machine is Unknown with four minutes of an earlier spell spent: deadline, spells and time spent stay the
    same."""
    handle = await ready(machines)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    await phase(handle, Phase.UNKNOWN)
    await temporal.fast_forward(handle, timedelta(minutes=4))
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=31))
    await phase(handle, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    before = await phase(handle, Phase.UNKNOWN)
    after = await renewed(handle)
    assert after.illness == before.illness
    assert after.illness is not None
    assert after.illness.spells == 2
    assert after.status.deadlines == before.status.deadlines
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await temporal.fast_forward(handle, timedelta(minutes=5, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    # Once more, between the two looks.
    between = await renewed(handle)
    assert between.suspicion is not None
    assert between.status.deadlines["health"] == before.status.deadlines["health"]
    await temporal.fast_forward(handle, timedelta(seconds=62))
    failed = await phase(handle, Phase.FAILED)
    await at_once(handle, before.status.deadlines["health"], when(failed, "HealthTimeout"))


async def test_a_failed_machine_goes_on_failed_and_is_not_drained_again(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await ready(machines)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    await phase(handle, Phase.UNKNOWN)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await temporal.fast_forward(handle, TEN - timedelta(seconds=58))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, timedelta(seconds=62))
    before = await reason(handle, "HealthTimeout")
    after = await renewed(handle)
    assert after.status.model_dump() == before.status.model_dump()
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert [d.again for d in machines.stubs.called("drain_node")] == [False, True]  # one look before the VM goes
    assert len(machines.stubs.called("delete_machine")) == 1


@pytest.mark.parametrize("end", [Phase.RUNNING, Phase.FAILED])
async def test_a_renewal_waits_until_there_is_a_vm_and_moves_no_creation_deadline(
    temporal: WorkflowEnvironment, machines: Machines, end: Phase
) -> None:
    """Until then, a token is in use whose VM nobody knows; then the renewal is done at once, and joining goes on."""
    machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY, "no m5.large left"))
    started = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=HOUR)))
    handle, run = machines.client.get_workflow_handle(started.id), await _run_id(started)
    before = await reason(handle, "OutOfCapacity")
    answer = await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))
    assert "at the next safe point" in answer.message
    await temporal.fast_forward(handle, timedelta(minutes=9))
    assert await _run_id(handle) == run
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=1))
    next_run = await eventually(lambda: _run_id(handle), lambda r: r != run, "a new run")
    joining = await reason(handle, "NodeNotSeen")
    assert joining.status.deadlines["creation"] == before.status.deadlines["creation"]
    first, second = machines.stubs.called("create_machine")
    assert first == second
    if end == Phase.RUNNING:
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, end)
    else:
        await temporal.fast_forward(handle, timedelta(minutes=9))
        await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
        await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
        late = when(await phase(handle, end), "CreationTimeout")
        await at_once(handle, before.status.deadlines["creation"], late)
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert await _run_id(handle) == next_run  # one renewal is one new run
    assert len(machines.stubs.called("create_machine")) == 2


async def test_a_renewal_while_creating_fails_takes_no_lag_window_away(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The failed call may have made a VM that reads do not show yet: another token too early makes two of them (I1)."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    machines.stubs.then("create_machine", classified(ErrorClass.TRANSIENT, "the reply was lost", last=True))
    started = await machines.start(machines.new_state("m-1"))
    handle = machines.client.get_workflow_handle(started.id)
    seen = await reason(handle, "CreatingVM")
    assert seen.machine_class is not None
    better = seen.machine_class.model_copy(update={"generation": 2})
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="a", spec=seen.spec, machine_class=better))
    hold.set()
    waits = await eventually(lambda: state(handle), lambda s: s.status.phase == Phase.CRASH_LOOP_BACK_OFF, "failed")
    failed = when(waits, "ProviderUnavailable")
    await reason(handle, "ClassChanged")
    await temporal.fast_forward(handle, timedelta(seconds=70))
    await reason(handle, "NodeNotSeen")
    first, second = machines.stubs.called("create_machine")
    assert first.target.token != second.target.token
    assert second.started - failed >= Timings().consistency

"""The cloud says that a VM is gone, and its kubelet lives: the contradiction is reported, and nothing is done (I5).
Stubs; time is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from lifekit import eventually
from machine.stubbed import Pool, listening
from machine.stubs import VM, Handle, Machines, classified, looked, phase, reason, state
from temporalio.testing import WorkflowEnvironment

from resources import attributes as at
from resources.calls.cloud import StatusOutput, VmLook
from resources.calls.cluster import LookInput, NodeLook
from resources.errors import ErrorClass
from resources.fleet.member import Trouble, Vm
from resources.intents import Intent
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

LEASE = Timings().lease + timedelta(seconds=1)
NOT_FOUND = VmLook(state="gone", message=f"{VM} does not exist")


@pytest_asyncio.fixture
async def pool(machines: Machines) -> AsyncIterator[Pool]:
    async with listening(machines) as pool:
        yield pool


class Kubelet:
    """A kubelet as fresh looks find it: each one sees the Lease renewed since the last, for as long as it lives."""

    def __init__(self, machines: Machines) -> None:
        self.machines, self.lives, self.renewed = machines, True, datetime(2026, 1, 1, tzinfo=UTC)
        self.facts: dict[str, Any] = {}
        machines.stubs.always["look_at_node"] = self.look

    def look(self, input: LookInput) -> NodeLook:
        if self.lives:
            self.renewed += timedelta(seconds=10)
        return looked(self.renewed, **self.facts)


def vm(state: str, seq: int = 1) -> VmFacts:
    return VmFacts(epoch=1, seq=seq, provider_id=VM, state=state)


async def lost(machines: Machines, handle: Handle) -> None:
    """The watch of the account does not find it, nor does anybody who asks again."""
    machines.stubs.always["look_at_vm"] = NOT_FOUND
    await handle.signal(MachineWorkflow.observe_vm, vm("gone"))


async def looked_at(handle: Handle, moved: int = 0) -> MachineState:
    def seen(s: MachineState) -> bool:
        return s.claim is not None and s.claim.look is not None and s.claim.moved >= moved

    return await eventually(lambda: state(handle), seen, f"a look, {moved} times moved")


def condition(s: MachineState) -> str:
    return next((c.message for c in s.status.conditions if c.type == "VMContradiction"), "")


async def contradicted(temporal: WorkflowEnvironment, machines: Machines, handle: Handle) -> MachineState:
    await lost(machines, handle)
    await looked_at(handle)
    await temporal.fast_forward(handle, LEASE)
    return await looked_at(handle, moved=1)


# -- a Node that lives -------------------------------------------------------------------------------------------------


async def test_not_found_against_a_ready_node_is_a_contradiction(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """Its Lease moves. It stays Running, lists show it, its pool hears of it and of its end, and it is looked at until
    the cloud finds it."""
    Kubelet(machines)
    handle = await pool.running()
    await pool.told(lambda r: r.phase is Phase.RUNNING)
    before = len(await pool.heard())
    seen = await contradicted(temporal, machines, handle)
    assert condition(seen).startswith(f"the cloud does not find {VM}, but the kubelet of node node-1 is alive")
    assert "nothing is done on the cloud's word" in condition(seen)
    assert [h.reason for h in seen.journal[-2:]] == ["VMNotFound", "VMContradiction"]
    assert machines.stubs.called("tell_node")[-1].story[0].reason == "VMContradiction"
    await temporal.fast_forward(handle, LEASE)
    again = await looked_at(handle, moved=2)
    assert again.status.deadlines["claim"] == again.claim.next
    assert [h.reason for h in again.journal].count("VMContradiction") == 1
    assert (again.status.phase, again.vm) == (Phase.RUNNING, None)
    assert (await handle.describe()).typed_search_attributes.get(at.REASON) == "VMContradiction"
    machines.stubs.always["look_at_vm"] = VmLook(state="running")
    await temporal.fast_forward(handle, timedelta(minutes=5))
    well = await eventually(lambda: state(handle), lambda s: s.claim is None, "the cloud finds it")
    assert (condition(well), well.journal[-1].reason, "claim" in well.status.deadlines) == ("", "VMFound", False)
    said = await eventually(pool.heard, lambda heard: len(heard) > before + 1, "the end of it")
    assert [(r.phase, r.contradicted) for r in said[before:]] == [(Phase.RUNNING, True), (Phase.RUNNING, False)]
    assert (await handle.describe()).typed_search_attributes.get(at.REASON) is None
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))  # so that something happens at all
    await handle.result()
    assert {r.vm for r in (await pool.heard())[before:]} == {Vm.LIVES, Vm.GONE}


async def test_a_lease_that_stands_still_is_a_vm_that_is_gone(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """It is a spot interruption: the Node says Ready for a while longer. Its pool knows 40 s after the cloud."""
    kubelet = Kubelet(machines)
    kubelet.lives = False
    handle = await pool.running()
    await lost(machines, handle)
    waits = await looked_at(handle)
    assert waits.status.phase is Phase.RUNNING
    await temporal.fast_forward(handle, LEASE)
    gone = await pool.told(lambda r: r.vm is Vm.GONE)
    assert (gone.phase, gone.trouble) == (Phase.UNKNOWN, Trouble.GONE)
    seen = await phase(handle, Phase.UNKNOWN)
    assert seen.status.phase_since - waits.claim.look.time < LEASE + timedelta(seconds=2)
    assert [h.reason for h in seen.journal[-2:]] == ["VMNotFound", "VMGone"]


async def test_a_node_that_falls_ill_meanwhile_is_looked_at_at_once(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The contradiction is old, and looks have become rare: the kubelet dies, and 40 s later that is believed."""
    kubelet = Kubelet(machines)
    handle = await machines.start(machines.new_state("m-1", health_timeout=timedelta(hours=9)))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    await contradicted(temporal, machines, handle)
    for moved in (2, 3, 4):
        await temporal.fast_forward(handle, (await state(handle)).claim.next - (await state(handle)).claim.look.time)
        await looked_at(handle, moved)
    kubelet.facts = {"ready": False}  # its Lease has moved since the last look, minutes ago
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    ill = await eventually(lambda: state(handle), lambda s: not s.claim.look.node.node.ready, "a look at once")
    assert (ill.vm, ill.claim.moved) == (None, 1)
    kubelet.lives = False
    await temporal.fast_forward(handle, LEASE)
    gone = await eventually(lambda: state(handle), lambda s: s.vm and s.vm.state == "gone", "believed")
    assert (gone.status.phase, condition(gone)) == (Phase.UNKNOWN, "")


async def test_a_node_that_falls_ill_between_the_looks_does_not_put_them_off(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """A VM that ends takes its kubelet along: the extra look at the ill Node leaves the time of the second one."""
    kubelet = Kubelet(machines)
    kubelet.lives = False
    handle = await pool.running()
    await lost(machines, handle)
    first = await looked_at(handle)
    await temporal.fast_forward(handle, timedelta(seconds=20))
    kubelet.facts = {"ready": False}
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    ill = await eventually(lambda: state(handle), lambda s: not s.claim.look.node.node.ready, "a look at once")
    assert ill.claim.next == first.claim.next
    await temporal.fast_forward(handle, timedelta(seconds=21))
    await pool.told(lambda r: r.vm is Vm.GONE)


async def test_what_cannot_be_read_decides_nothing_and_says_so(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """I5: the two looks begin again when the API server answers again."""
    kubelet = Kubelet(machines)
    kubelet.lives = False
    handle = await pool.running()
    machines.stubs.then("look_at_node", *[classified(ErrorClass.AUTH, "not now")] * 2)
    await lost(machines, handle)
    cannot = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "CannotConfirm")
    assert "nothing is decided on stale information" in cannot.journal[-1].message
    for _ in range(2):
        await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    first = await looked_at(handle)
    assert first.vm is None
    await temporal.fast_forward(handle, LEASE)
    await pool.told(lambda r: r.vm is Vm.GONE)


async def test_a_claim_outlives_a_new_run(temporal: WorkflowEnvironment, machines: Machines, pool: Pool) -> None:
    kubelet = Kubelet(machines)
    kubelet.lives = False
    handle = await pool.running()
    await lost(machines, handle)
    await looked_at(handle)
    first = (await handle.describe()).run_id
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="n"))
    await eventually(handle.describe, lambda d: d.run_id != first, "a new run")
    await temporal.fast_forward(handle, LEASE)
    await pool.told(lambda r: r.vm is Vm.GONE)


async def test_the_looks_at_the_health_deadline_do_not_believe_it_either(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """The Node is ill by its own word: that counts, not the cloud's, so the machine asks its pool."""
    kubelet = Kubelet(machines)
    kubelet.facts = {"ready": False, "status": "False"}
    handle = await pool.running(health_timeout=timedelta(minutes=10))
    machines.stubs.always["look_at_vm"] = NOT_FOUND
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await phase(handle, Phase.UNKNOWN)
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await looked_at(handle)
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    asks = await reason(handle, "RepairPermit")
    assert asks.vm is None
    assert condition(asks)
    assert [r.vm for r in await pool.heard() if r.vm is Vm.GONE] == []


@pytest.mark.parametrize("claimed", ["stopped", pytest.param("terminating", marks=pytest.mark.exhaustive)])
async def test_a_stopped_vm_whose_kubelet_lives_runs(
    temporal: WorkflowEnvironment, machines: Machines, claimed: str
) -> None:
    """It is Unknown at once, for the cloud has seen it stopped; at the deadline two looks find that this cannot be."""
    Kubelet(machines)
    handle = await machines.start(machines.new_state("m-1", health_timeout=timedelta(minutes=10)))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    machines.stubs.always["look_at_vm"] = VmLook(state=claimed)
    await handle.signal(MachineWorkflow.observe_vm, vm(claimed))
    await reason(handle, "VMNotRunning")
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    doubted = await eventually(lambda: state(handle), lambda s: s.claim is not None, "the contradiction")
    assert f"says that {VM} is {claimed}, but the kubelet of node node-1 is alive" in condition(doubted)
    await temporal.fast_forward(handle, timedelta(seconds=31))
    well = await phase(handle, Phase.RUNNING)
    assert "HealthTimeout" not in [h.reason for h in well.journal]


# -- before it is Running ----------------------------------------------------------------------------------------------


async def test_the_status_watch_of_a_node_that_has_joined_is_weighed_too(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """It is not Ready yet. While its kubelet lives the machine is not Failed; when the kubelet is dead it is, as
    VMGone."""
    kubelet = Kubelet(machines)
    kubelet.facts = {"ready": False}
    machines.stubs.always["watch_machine"] = StatusOutput(gone=True, message=f"{VM} does not exist")
    machines.stubs.always["look_at_vm"] = NOT_FOUND
    handle = await pool.start(pool.new_state(timings=Timings(vm_look=timedelta(seconds=30))))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await eventually(lambda: state(handle), lambda s: s.joined, "it has joined")
    await temporal.fast_forward(handle, timedelta(seconds=31))
    await looked_at(handle)
    await temporal.fast_forward(handle, LEASE)
    lives = await looked_at(handle, moved=1)
    assert (lives.status.phase, bool(condition(lives))) == (Phase.PENDING, True)
    kubelet.lives = False
    for _ in range(3):
        await temporal.fast_forward(handle, 2 * LEASE)
    failed = await phase(handle, Phase.FAILED)
    assert "before its node was ready for pods" in next(h.message for h in failed.journal if h.reason == "VMGone")
    assert (await pool.told(lambda r: r.phase is Phase.FAILED)).vm is Vm.GONE


async def test_without_a_node_it_counts_at_once(machines: Machines, pool: Pool) -> None:
    machines.stubs.always["watch_machine"] = StatusOutput(gone=True, message=f"{VM} does not exist")
    await pool.start(pool.new_state(timings=Timings(vm_look=timedelta(0))))
    failed = await pool.told(lambda r: r.phase is Phase.FAILED)
    assert failed.vm is Vm.GONE
    assert machines.stubs.called("look_at_node") == []


async def test_a_post_start_update_that_finds_nothing_asks_the_kubelet(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """What the update names may be missing, rather than the VM."""
    Kubelet(machines)
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    machines.stubs.then("update_machine", classified(ErrorClass.NOT_FOUND, "no such instance"))
    machines.stubs.always["look_at_vm"] = NOT_FOUND
    handle = await pool.start(pool.new_state(timings=Timings(consistency=timedelta(0))))
    await reason(handle, "PostStartUpdate")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await eventually(lambda: state(handle), lambda s: s.node is not None, "its Node")
    hold.set()
    await looked_at(handle)
    await temporal.fast_forward(handle, LEASE)
    waits = await reason(handle, "ReferenceNotFound")
    assert (waits.status.phase, bool(condition(waits))) == (Phase.PENDING, True)
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    await phase(handle, Phase.RUNNING)

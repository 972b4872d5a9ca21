"""Pools with real machines on the simulators: VMs are counted at the cloud, at each of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio
from lifekit import Stack, end_running, eventually, new_stack
from machine.lives import instance, knobs
from pools.lives import OTHER_IMAGE, Crowd, Pool, killing, machine_handle, marks, pool_class, pool_spec, worker_process
from temporalio.testing import WorkflowEnvironment

from resources.fleet.member import Trouble
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.pool.rollout import RolloutOutcome

THIRD_IMAGE = "ami-0a1b2c3d4e5f60004"


@pytest_asyncio.fixture
async def pool(stack: Stack) -> AsyncIterator[Pool]:
    yield Pool(stack)
    await end_running(stack)


async def test_from_nothing_to_many_to_few(pool: Pool) -> None:
    """Six machines come at the slow start's pace; then only as many are deleted as must go, and no VM is made for
    it."""
    crowd = Crowd(pool.stack, pool.name)
    await pool.start(pool_spec(0))
    await pool.rolled_out(0)
    assert await pool.scale(6) == "scaled; replicas 0 → 6"
    await pool.rolled_out(6)
    assert pool.vms() == {"running": 6}
    assert await pool.scale(2) == "scaled; replicas 6 → 2"
    await pool.rolled_out(2)
    assert pool.vms() == {"running": 2}
    assert len(pool.stack.launched()) == 6
    assert (crowd.most, crowd.twins) == (6, set())
    await pool.delete()
    assert pool.vms() == {}


@pytest.mark.core
async def test_a_rollout(pool: Pool) -> None:
    """With a surge of one and nothing unavailable there are never more than four VMs, and each step says why."""
    crowd = Crowd(pool.stack, pool.name)
    await pool.start(pool_spec(3))
    await pool.rolled_out(3)
    answer = await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
    assert answer == "configured; revision 2 replaces 3 machines"
    await pool.rolled_out(3, revision=2)
    result = await pool.result(2)
    assert (result.outcome, result.counts.updated, result.counts.old) == (RolloutOutcome.COMPLETE, 3, 0)
    reasons = [step.reason for step in result.steps]
    assert (reasons.count("RolledOut"), reasons.count("Replaced")) == (3, 3)
    assert (crowd.most, crowd.twins) == (4, set())
    new = [m for m in (await pool.machines()).values() if m.revision == 2]
    assert [m.machine_class.provider_spec["ami"] for m in new if m.machine_class] == [OTHER_IMAGE] * 3
    assert marks(pool) == [(False, False, False)] * 3


async def test_a_bad_image_costs_the_surge_and_is_undone(pool: Pool) -> None:
    """The old machines stay and lose their marks; going back replaces none of them."""
    crowd = Crowd(pool.stack, pool.name)
    await pool.start(pool_spec(3))
    await pool.rolled_out(3)
    old = await pool.machines()
    knobs(pool.stack, f"{pool.name}-*", never_joins=True)
    short = pool_spec(3, progressDeadlineSeconds=4, machine={"creationTimeout": "3s"})
    await pool.apply(short, pool_class(2, ami=OTHER_IMAGE))
    await pool.waits("ProgressDeadlineExceeded")
    stopped = await pool.when(lambda s: any(w.reason == "NewMachinesNeverJoin" for w in s.waits), "it stands")
    assert (stopped.available, stopped.machines, stopped.updated) == (3, 4, 1)
    await eventually(marks_of(pool), lambda found: not any(t for t, _, _ in found), "no marks")
    story = await pool.rollout(2)
    assert story.counts.available == 0
    assert await pool.undo() == "back to revision 1; revision 3 replaces 1 machine; hot update of 4 machines"
    await pool.rolled_out(3, revision=3)
    assert (await pool.result(2)).outcome == RolloutOutcome.UNDONE
    assert (await pool.machines()).keys() == old.keys()
    assert (len(pool.stack.launched()), crowd.most) == (4, 4)


def marks_of(pool: Pool) -> Any:
    async def look() -> list[tuple[bool, bool, bool]]:
        return await asyncio.to_thread(marks, pool)

    return look


@pytest.mark.exhaustive  # of the fault matrix's "pool whose vms die"; a rollout's brake is in unit/test_pool_brakes.py
async def test_a_rollout_whose_new_vms_die_costs_its_surge(pool: Pool) -> None:
    """Somebody terminates each as soon as it can be described. The old machine stays, and the way back is open."""
    await pool.start(pool_spec(1))
    await pool.rolled_out(1)
    async with killing(pool, OTHER_IMAGE):
        await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
        stands = await pool.waits("NewMachinesNeverJoin")
        assert (stands.available, stands.machines, stands.updated) == (1, 1, 1)
        assert len(pool.stack.launched()) == 2
        await pool.undo()
        await pool.rolled_out(1, revision=3)
    assert len(pool.stack.launched()) == 2


async def test_superseded_in_the_middle(pool: Pool) -> None:
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
    await pool.when(lambda s: s.revision == 2 and s.updated >= 1, "a new machine")
    await pool.apply(machine_class=pool_class(3, ami=THIRD_IMAGE))
    await pool.rolled_out(2, revision=3)
    assert (await pool.result(2)).outcome == RolloutOutcome.SUPERSEDED
    assert (await pool.result(3)).outcome == RolloutOutcome.COMPLETE


async def test_what_is_lost_is_replaced(pool: Pool) -> None:
    """A machine that falls ill is replaced by permit, with one VM more while it goes; so are one whose VM somebody
    deletes, and one that a person deletes."""
    await pool.start(pool_spec(3))
    await pool.rolled_out(3)

    async def next_one() -> tuple[str, MachineState, datetime]:
        """A machine, and when the pool has noted something last."""
        return *min((await pool.machines()).items()), (await pool.state()).journal[-1].time

    async def replaced(name: str, noted: datetime) -> list[str]:
        """The reasons that the pool has noted since."""
        await eventually(pool.state, lambda s: name not in s.members and len(s.members) == 3, f"{name} replaced")
        await pool.rolled_out(3)
        return [h.reason for h in (await pool.state()).journal if h.time > noted]

    ill, _, noted = await next_one()
    knobs(pool.stack, ill, unready=True)
    happened = await replaced(ill, noted)
    assert [r for r in happened if r in ("RepairGranted", "Unhealthy")] == ["RepairGranted", "Unhealthy"]

    gone, state, noted = await next_one()
    await asyncio.to_thread(pool.stack.ec2().terminate_instances, InstanceIds=[instance(state)])
    assert "VMGone" in await replaced(gone, noted)

    unwanted, _, noted = await next_one()
    await machine_handle(pool.stack, unwanted).signal("delete", DeleteIntent(id="by-hand", requested_by="test"))
    assert "Unhealthy" not in await replaced(unwanted, noted)
    assert len(pool.stack.launched()) == 6


@pytest.mark.exhaustive  # of the fault matrix's "pool rolled out", where the worker is killed at each activity
async def test_a_rollout_of_six_while_the_worker_is_killed_twice(temporal: WorkflowEnvironment) -> None:
    """Surge is 25 %, none may be unavailable. Every machine has one VM in its life, and there are never more than
    eight."""
    async with new_stack(temporal.client) as stack, worker_process(stack) as kill:
        pool, crowd = Pool(stack), Crowd(stack, "p1")
        try:
            await pool.start(pool_spec(6, surge="25%"))
            await pool.rolled_out(6)
            await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
            for made in (2, 4):
                await pool.when(lambda s, made=made: s.revision == 2 and s.updated >= made, f"{made} new machines")  # type: ignore[misc]
                await kill()
            await pool.rolled_out(6, revision=2)
            assert (await pool.result(2)).outcome == RolloutOutcome.COMPLETE
            assert (crowd.most, crowd.twins) == (8, set())
            assert len(stack.launched()) == 12
            assert pool.vms() == {"running": 6}
        finally:
            await end_running(stack)


async def test_troubles_of_machines_are_known(pool: Pool) -> None:
    """A machine that never joins is reported, and made again."""
    knobs(pool.stack, f"{pool.name}-*", never_joins=True)
    await pool.start(pool_spec(1, machine={"creationTimeout": "3s"}))
    await eventually(pool.state, lambda s: "NeverJoined" in [h.reason for h in s.journal], "made again")
    troubled = [m.trouble for m in (await pool.state()).members.values() if m.phase is Phase.FAILED]
    assert set(troubled) <= {Trouble.JOIN}

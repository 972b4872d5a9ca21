"""MachineDeploymentWorkflow: births, replicas, hibernation, deletion. Its machines are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from lifekit import DEADLINE, eventually
from machine.stubs import classified
from pools.workflow import LINGERS, SLOW, UNBORN, PlayedMachine, Pool, new_pool, snapshot, spec
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from resources import attributes as at
from resources.errors import ErrorClass
from resources.fleet.member import Vm
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.names import pool_id
from resources.pool.intents import ScaleIntent
from resources.pool.manifest import NAME_LENGTH


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


# -- its own birth ----------------------------------------------------------------------------------------------------


def by_hand(pool: Pool, **more: Any) -> dict[str, Any]:
    """A start as a person writes it in the web UI."""
    template = {"spec": {"class": {"kind": "MachineClass", "name": "c1"}}}
    plain = {"cluster": pool.cluster, "name": "p1", "queuePrefix": pool.queue}
    return {**plain, "spec": {"replicas": 2, "template": template}, **more}


async def test_plain_json_is_enough(pool: Pool) -> None:
    await pool.client.start_workflow(
        "MachineDeploymentWorkflow", by_hand(pool), id=pool.handle.id, task_queue=pool.queue
    )
    words = await pool.waits("ClassMissing")
    assert f"MachineClass c1 of cluster {pool.cluster}" in words
    assert pool.started() == []
    pool.calls.classes["c1"] = snapshot(4)
    await pool.rolled_out(2)
    found = await pool.state()
    assert found.machine_class == snapshot(4)
    assert found.journal[0].message == "pool of 2 machines of class c1"
    first: MachineState = await pool.machine(pool.started()[0]).query(PlayedMachine.describe)
    assert first.machine_class == snapshot(4)


async def test_plain_json_may_bring_the_class(pool: Pool) -> None:
    plain = by_hand(pool, machineClass=snapshot().model_dump(mode="json", by_alias=True))
    await pool.client.start_workflow("MachineDeploymentWorkflow", plain, id=pool.handle.id, task_queue=pool.queue)
    await pool.rolled_out(2)
    assert pool.calls.of("ask_class") == []


async def test_an_apply_brings_the_class_that_was_asked_for_in_vain(pool: Pool) -> None:
    await pool.start(spec(1), machine_class=None)
    await pool.waits("ClassMissing")
    assert (
        await pool.apply(spec(2, machine_class="c2"), snapshot(name="c2")) == "configured; replicas 1 → 2; revision 1"
    )
    await pool.rolled_out(2)
    assert [r.machine_class.name for r in (await pool.state()).revisions] == ["c2"]


async def test_another_class_that_comes_with_the_answer_counts(idle: Pool) -> None:
    """Both are there when a worker comes: the answer is about a class that is no longer the pool's."""
    gate = idle.calls.hold("ask_class")
    idle.calls.classes["c1"] = snapshot()
    async with idle.activities_worker():
        async with idle.workflows_worker():
            await idle.start(spec(1), machine_class=None)
            await eventually(lambda: asyncio.sleep(0, idle.calls.of("ask_class")), what="the question")
        await idle.handle.signal("apply", idle.manifest(spec(1, machine_class="c2"), snapshot(name="c2")))
        gate.set()
        await eventually(lambda: _pending(idle), lambda pending: pending == 0, "the answer")
        async with idle.workflows_worker():
            await idle.rolled_out(1)
            assert [r.machine_class.name for r in (await idle.state()).revisions] == ["c2"]


async def _pending(pool: Pool) -> int:
    return len((await pool.handle.describe()).raw_description.pending_activities)


async def test_one_that_waits_for_its_class_can_be_deleted(pool: Pool) -> None:
    await pool.start(spec(1), machine_class=None)
    await pool.waits("ClassMissing")
    await pool.delete()
    await pool.gone()
    assert pool.started() == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "P_1"}, "not a Kubernetes name"),
        ({"name": "p" * (NAME_LENGTH + 1)}, f"at most {NAME_LENGTH}"),
        ({"annotations": {"hostler.io/update-concurrency": "none"}}, "is not a number of machines"),
    ],
    ids=["its name", "the length of it", "an annotation"],
)
async def test_what_cannot_be_a_pool_is_refused_with_words(pool: Pool, wrong: dict[str, Any], words: str) -> None:
    id = pool_id(pool.cluster, wrong.get("name", pool.name))
    handle = await pool.client.start_workflow(
        "MachineDeploymentWorkflow", by_hand(pool, **wrong), id=id, task_queue=pool.queue
    )
    with pytest.raises(WorkflowFailureError) as refused:
        await asyncio.wait_for(handle.result(), DEADLINE)
    assert words in str(refused.value.cause)


async def test_its_cluster_and_its_class_hear_of_it(pool: Pool) -> None:
    await pool.ready(spec(1))
    (registered,) = pool.calls.of("register_pool")
    assert (registered.cluster, registered.name) == (pool.cluster, "p1")
    (told,) = pool.calls.of("report_to_class")
    assert (told.machine_class.name, told.report.user, told.report.generation) == ("c1", "pool/p1", 1)
    await pool.class_changed(snapshot(2, team="b"))
    await eventually(lambda: _generations(pool), lambda g: g == [1, 2])
    await pool.delete()
    await pool.gone()
    (left,) = pool.calls.of("forget_pool")
    assert (left.name, left.classes) == ("p1", ["c1"])


async def test_what_class_and_cluster_cannot_be_told_is_told_later(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """It is not told at once, or the pool would do nothing else. Nor does anything wait for it."""
    for name in ("register_pool", "report_to_class", "forget_pool"):
        pool.calls.fail(name, classified(ErrorClass.UNKNOWN, f"{name} failed"))
    await pool.start(spec(1))
    await eventually(lambda: pool.journal("PoolCallFailed"), lambda said: len(said) == 2, "both failures")
    await temporal.fast_forward(pool.handle, 4 * 60)
    await pool.rolled_out(1)
    await eventually(lambda: _generations(pool), lambda g: g == [1, 1])
    assert len(pool.calls.of("register_pool")) == 2
    await pool.delete()
    await eventually(lambda: pool.journal("PoolCallFailed"), lambda said: len(said) == 3, "the third")
    await temporal.fast_forward(pool.handle, 4 * 60)
    await pool.gone()
    assert len(pool.calls.of("forget_pool")) == 2


async def _generations(pool: Pool) -> list[int]:
    return [input.report.generation for input in pool.calls.of("report_to_class")]


# -- births -----------------------------------------------------------------------------------------------------------


async def test_births_begin_slowly_and_go_on_faster(pool: Pool) -> None:
    """First 1, then one more with each machine that has its VM: each batch is twice the one before."""
    await pool.start(spec(7), machine_class=snapshot(habits=(UNBORN,)))
    await pool.waits("SlowStart")
    for begun in (1, 3, 7):
        unborn = await _unborn(pool, begun)
        await pool.be(*unborn, vm=Vm.LIVES)
    assert [len(i.names) for i in pool.calls.of("start_machines")] != [7]
    await pool.be(*await pool.members(), phase=Phase.RUNNING)
    await pool.rolled_out(7)
    assert len(pool.started()) == 7


async def _unborn(pool: Pool, begun: int) -> list[str]:
    """Machines without a VM, once this many have reported."""
    found = await pool.when(
        lambda s: len(s.members) == begun and all(m.seq for m in s.members.values()), f"{begun} machines"
    )
    return sorted(n for n, m in found.members.items() if m.vm is Vm.UNBORN)


async def test_no_capacity_is_one_wait_of_the_pool(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.start(spec(3), machine_class=snapshot(habits=(UNBORN,)))
    (first,) = await _unborn(pool, 1)
    failure = {"error_class": ErrorClass.CAPACITY, "message": "no m5.large in eu-west-1a"}
    await pool.be(first, phase=Phase.CRASH_LOOP_BACK_OFF, failure=failure, failures=1)
    words = await pool.waits("OutOfCapacity")
    assert words.startswith("2 machines to be created wait until ")
    assert words.endswith(f"{first}: no m5.large in eu-west-1a")
    assert await pool.members() == [first]
    await pool.be(first, phase=Phase.PENDING, vm=Vm.LIVES)  # the cloud has capacity again, and the pool goes on
    assert len(await _unborn(pool, 3)) == 2


async def test_the_wait_for_capacity_ends_by_time(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """The first machine tries again on its own; the pool makes no other one beside it before it has its VM."""
    await pool.start(spec(2), machine_class=snapshot(habits=(UNBORN,)))
    (first,) = await _unborn(pool, 1)
    failure = {"error_class": ErrorClass.CAPACITY, "message": "none"}
    await pool.be(first, phase=Phase.CRASH_LOOP_BACK_OFF, failure=failure, failures=1)
    await pool.waits("OutOfCapacity")
    await temporal.fast_forward(pool.handle, 13 * 60)
    await pool.when(lambda s: "wait for 1 to get a VM; the last try: " in s.waits[0].message)
    assert [w.reason for w in (await pool.state()).waits] == ["OutOfCapacity"]


async def test_a_start_whose_answer_is_lost_starts_nothing_twice(pool: Pool) -> None:
    pool.calls.fail("start_machines", ConnectionError("the reply is lost"), after=True)
    await pool.ready(spec(1))
    await eventually(lambda: asyncio.sleep(0, pool.asked_for()), lambda s: len(s) == 2, "two attempts")
    assert pool.asked_for() == [*await pool.members()] * 2
    await pool.when(lambda s: not s.unstarted)
    first: MachineState = await pool.machine(pool.started()[0]).query(PlayedMachine.describe)
    assert (first.pool, first.revision, first.template) == ("p1", 1, 1)


async def test_a_start_that_fails_for_good_is_begun_again(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """After its attempts, or at once: the machine is a member all the time, so none is made in its place."""
    pool.calls.fail("start_machines", classified(ErrorClass.UNKNOWN, "the server says no"))
    await pool.start(spec(1))
    assert await pool.noted("PoolCallFailed") == "the server says no"
    (name,) = (await pool.state()).unstarted
    await temporal.fast_forward(pool.handle, 4 * 60)
    await pool.rolled_out(1)
    assert pool.asked_for() == [name, name]
    assert (await pool.state()).unstarted == []


async def test_a_name_that_was_used_is_not_used_again(pool: Pool) -> None:
    """The pool picks by chance the name of a machine that is gone."""
    gate = pool.calls.hold("start_machines")
    await pool.start(spec(1))
    await eventually(lambda: asyncio.sleep(0, pool.started()), what="a start")
    (name,) = pool.started()
    former = await pool.machine_there(name, snapshot())
    await former.signal(PlayedMachine.delete, DeleteIntent())
    await asyncio.wait_for(former.result(), DEADLINE)
    gate.set()
    await pool.rolled_out(1)
    assert pool.started()[0] == name
    assert name not in await pool.members()


# -- replicas ---------------------------------------------------------------------------------------------------------


async def test_up_and_down(pool: Pool) -> None:
    await pool.ready(spec(1))
    assert await pool.scale(3) == "scaled; replicas 1 → 3"
    await pool.rolled_out(3)
    oldest = min((await pool.state()).members.items(), key=lambda item: item[1].created)[0]
    assert await pool.scale(2) == "scaled; replicas 3 → 2"
    await pool.rolled_out(2)
    assert oldest not in await pool.members()
    assert (await pool.journal("ScaledDown"))[-1].endswith("3 are more than 2 (replicas 2)")
    assert await pool.scale(2) == "pool p1 already has 2 replicas"
    await pool.scale(0)
    await pool.rolled_out(0)
    assert len(pool.started()) == 3


async def test_scaled_while_machines_are_on_their_way(pool: Pool) -> None:
    await pool.start(spec(3), machine_class=snapshot(habits=(SLOW,)))
    await pool.when(lambda s: len(s.members) == 3)
    await pool.scale(1)
    found = await pool.when(lambda s: len(s.members) == 1, "two are gone")
    await pool.scale(2)
    await pool.when(lambda s: len(s.members) == 2)
    await pool.be(*await pool.members(), phase=Phase.RUNNING)
    await pool.rolled_out(2)
    assert set(found.members) <= set(await pool.members())
    assert len(pool.started()) == 4


async def test_a_vm_counts_until_it_is_gone(pool: Pool) -> None:
    """Scaled down and up again, with maxSurge 0: the new machine waits for the old one's VM."""
    await pool.ready(spec(2, surge=0, unavailable=1))
    await pool.be(*await pool.members(), habits=[LINGERS])
    await pool.scale(1)
    found = await pool.when(lambda s: any(m.phase is Phase.TERMINATING for m in s.members.values()))
    (leaving,) = [n for n, m in found.members.items() if m.phase is Phase.TERMINATING]
    await pool.scale(2)
    assert "1 machine to be created wait for 1 VM to be gone" in await pool.waits("WaitsForVMsToGo")
    assert len(pool.started()) == 2
    await pool.be(leaving, vm=Vm.GONE)
    await pool.when(lambda s: len(s.members) == 3, "the new one comes before the old one is tidied up")
    await pool.be(leaving, ended=True)
    await pool.rolled_out(2)


async def test_only_if_the_replicas_are_still_so_many(pool: Pool) -> None:
    await pool.ready(spec(1))
    words = await pool.refused("scale", ScaleIntent(replicas=3, current=2))
    assert words == "pool p1 has 1 replicas, not 2: nothing was changed"
    assert await pool.scale(2, current=1) == "scaled; replicas 1 → 2"
    await pool.rolled_out(2)


async def test_who_shall_go_first_can_be_said(pool: Pool) -> None:
    await pool.ready(spec(3))
    youngest = max((await pool.state()).members.items(), key=lambda item: item[1].created)[0]
    assert await pool.scale(2, remove=(youngest,)) == f"scaled; replicas 3 → 2; marked for deletion: {youngest}"
    await pool.rolled_out(2)
    left = await pool.members()
    assert youngest not in left
    words = await pool.refused("scale", ScaleIntent(remove=["m-9"]))
    listing = f"`hostler get machines --pool p1 --cluster {pool.cluster}` lists them"
    assert words == f"pool p1 has no machine m-9; {listing}"
    await pool.scale(remove=(left[0],))  # replaced: the replicas are as they were
    await pool.when(lambda s: left[0] not in s.members)
    await pool.rolled_out(2)
    assert len(pool.started()) == 4


async def test_scaled_in_a_paused_rollout_and_while_hibernated(pool: Pool) -> None:
    await pool.ready(spec(2))
    await pool.ask("pause")
    await pool.apply(machine_class=snapshot(2, image=2))
    await pool.waits("RolloutPaused")
    await pool.scale(3)
    await pool.when(lambda s: sorted(m.revision for m in s.members.values()) == [1, 1, 2], "the third is new")
    await pool.ask("hibernate")
    await pool.when(lambda s: not s.members, "nothing is left")
    words = "scaled; replicas 3 → 1; it is hibernated, and this applies once it is woken: "
    assert await pool.scale(1) == f"{words}`hostler wake pool p1 --cluster {pool.cluster}`"
    assert await pool.ask("wake") == "woken: 1 machine to create"
    await pool.rolled_out(1)
    assert [m.revision for m in (await pool.state()).members.values()] == [2]


# -- hibernate, delete ------------------------------------------------------------------------------------------------


async def test_hibernate_and_wake(pool: Pool) -> None:
    await pool.ready(spec(2))
    first = await pool.members()
    words = "hibernated: 2 machines to delete; they come back with "
    assert await pool.ask("hibernate") == f"{words}`hostler wake pool p1 --cluster {pool.cluster}`"
    await pool.rolled_out(0)
    assert (await pool.handle.describe()).typed_search_attributes.get(at.PHASE) == "Hibernated"
    assert await pool.ask("hibernate") == "pool p1 is already hibernated"
    assert await pool.ask("wake") == "woken: 2 machines to create"
    await pool.rolled_out(2)
    assert not set(first) & set(await pool.members())
    assert await pool.ask("wake") == "pool p1 is not hibernated"


async def test_deleted_with_its_machines(pool: Pool) -> None:
    await pool.ready(spec(2))
    names = await pool.members()
    await pool.be(names[0], habits=[LINGERS])
    assert await pool.delete() == "pool p1 is being deleted, with 2 machines"
    await pool.when(lambda s: list(s.members) == [names[0]], "one is left")
    assert await pool.delete() == "pool p1 is already being deleted; 1 machine left"
    assert (await pool.handle.describe()).typed_search_attributes.get(at.PHASE) == "Deleting"
    words = "pool p1 is being deleted; apply it again when it is gone"
    for name in ("pause", "resume", "abort", "restart", "hibernate", "wake"):
        assert await pool.refused(name) == words
    assert await pool.refused("apply", pool.manifest(spec(5))) == words
    await pool.be(names[0], vm=Vm.GONE, ended=True)
    await pool.gone()
    assert len(pool.started()) == 2


async def test_force_reaches_those_on_their_way_out_too(pool: Pool) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.be(name, habits=[LINGERS])
    await pool.delete()
    await pool.when(lambda s: s.members[name].phase is Phase.TERMINATING)
    assert await pool.delete(force=True) == "pool p1 is being deleted with force, with 1 machine"

    async def deletions() -> dict[str, bool]:
        said: list[DeleteIntent] = await pool.machine(name).query(PlayedMachine.deletions)
        return {d.id: d.force for d in said}

    await eventually(deletions, lambda said: sorted(said.values()) == [False, True], "both intents")
    await pool.be(name, vm=Vm.GONE, ended=True)
    await pool.gone()


async def test_deleted_with_force_from_the_beginning(pool: Pool) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.be(name, habits=[LINGERS])
    await pool.delete(force=True)
    await pool.when(lambda s: s.members[name].phase is Phase.TERMINATING)
    said: list[DeleteIntent] = await pool.machine(name).query(PlayedMachine.deletions)
    assert {d.force for d in said} == {True}
    await pool.be(name, vm=Vm.GONE, ended=True)
    await pool.gone()


async def test_deleted_while_its_machines_are_started(pool: Pool) -> None:
    """It is told before the machine is there, and again when it is."""
    gate = pool.calls.hold("start_machines")
    await pool.start(spec(2))
    await eventually(lambda: asyncio.sleep(0, pool.started()), what="a start")
    await pool.delete()
    await eventually(lambda: asyncio.sleep(0, pool.calls.of("tell_members")), what="the first word")
    assert (await pool.state()).members
    gate.set()
    await pool.gone()
    (name,) = pool.started()
    with pytest.raises(RPCError):
        await pool.machine(name).signal("permit", {"reason": "it is over"})


async def test_a_deleted_name_is_a_new_pool(pool: Pool) -> None:
    await pool.ready(spec(1))
    first = await pool.members()
    await pool.delete()
    await pool.gone()
    await pool.ready(spec(1))
    assert await pool.members() != first

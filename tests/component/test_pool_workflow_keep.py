"""MachineDeploymentWorkflow and preservation: slots that are granted and taken back, repairs that machines refuse, what
overrides it, and what is said again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from pools.standins import ASKED_LATE, SLOW, SLOW_TO_KEEP
from pools.workflow import LINGERS, Pool, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.fleet.member import PreserveWish, Released, Trouble, Vm
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.names import TRIGGER_DELETION_ANNOTATION
from resources.pool.intents import PoolQuestion
from workflows.pool import MachineDeploymentWorkflow

AUTO, ASKED = PreservedBy.AUTO, PreservedBy.ASKED
LONG = datetime(2100, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


def limited(replicas: int, most: int, **more: Any) -> Any:
    return spec(replicas, autoPreserveFailedMax=most, **more)


FAILED: dict[str, Any] = {"phase": Phase.FAILED, "trouble": Trouble.HEALTH, "drained": True, "message": "kubelet dead"}


async def fail(pool: Pool, *names: str, keep: PreserveWish = PreserveWish.SLOT) -> None:
    await pool.be(*names, **FAILED, keep=keep)


async def preserved(pool: Pool, *names: str) -> None:
    """The machine says so itself."""
    await pool.when(lambda s: all(s.members[n].preserved_until for n in names), f"preserved: {names}")


async def gone(pool: Pool, *names: str) -> None:
    await pool.when(lambda s: not set(names) & s.members.keys(), f"gone: {names}")


# -- slots ------------------------------------------------------------------------------------------------------------


async def test_a_slot_and_none(pool: Pool) -> None:
    """One is preserved in the slot, the next is not; who is asked for needs none. Pages and a dry run show it."""
    await pool.ready(limited(4, 1))
    one, two, three, _ = await pool.members()
    await fail(pool, one)
    await preserved(pool, one)
    assert await pool.heard(one) == ["preserve_granted"]

    async def details() -> str:
        return str(await pool.handle.query("__temporal_workflow_metadata"))

    words = f"Failed and kept for inspection: {one}; 1 of 1 slots (autoPreserveFailedMax) in use"
    await eventually(details, lambda d: words in d, "its page")
    asked = await pool.handle.query(MachineDeploymentWorkflow.rehearse, PoolQuestion(replicas=1))
    assert [w.reason for w in asked.waits] == ["FailedPreserved"]
    assert one not in str(asked.plans)
    assert await pool.noted("PreservedInSlot") == (
        f"Preserving 1 machine ({one}) that failed and are drained: 0 of 1 (autoPreserveFailedMax) slots were in use"
    )
    await fail(pool, two)
    await gone(pool, two)
    found = await pool.rolled_out(4)
    assert (found.preserved, found.preserved_auto, found.slots_used, found.slots) == (1, 1, 1, 1)
    assert (found.available, found.unhealthy, found.repairs) == (3, 1, 0)
    assert [w.reason for w in found.waits] == ["FailedPreserved"]
    assert await pool.noted("Unhealthy") == (
        f"Deleting 1 machine ({two}) that failed and are drained; no slot is free: 1 of 1 (autoPreserveFailedMax) "
        "in use"
    )
    assert len(pool.started()) == 5
    await fail(pool, three, keep=PreserveWish.ASKED)
    await preserved(pool, three)
    found = await pool.summary()
    assert (found.preserved, found.preserved_auto, found.slots_used, found.slots) == (2, 1, 2, 1)
    assert len(pool.started()) == 5


async def test_two_that_ask_in_one_task_get_one_slot(idle: Pool) -> None:
    async with idle.worker():
        await idle.ready(limited(4, 1))
        one, two, *_ = await idle.members()
    for name in (one, two):
        await idle.report(name, seq=50, **FAILED, keep=PreserveWish.SLOT)
    async with idle.worker():
        found = await idle.when(lambda s: any(m.granted for m in s.members.values()), "one is kept")
        kept = {n: (m.granted, m.deleting, m.repair) for n, m in found.members.items() if n in (one, two)}
        assert sorted(kept.values()) == [(PreservedBy.NOBODY, True, True), (AUTO, False, False)]
        (first,) = [n for n in kept if kept[n][0]]
        await idle.until_heard(first, "preserve_granted")
        await idle.until_heard(({one, two} - {first}).pop(), "repair")
        assert await idle.heard(first) == ["preserve_granted"]


async def test_use_case_4_a_release_frees_the_slot(pool: Pool) -> None:
    await pool.ready(limited(4, 1))
    one, two, *_ = await pool.members()
    await fail(pool, one)
    await preserved(pool, one)
    await pool.be(one, phase=Phase.TERMINATING, preserved_until=None, preserved_by="")
    await fail(pool, two)
    await preserved(pool, two)
    await pool.be(one, ended=True)
    await pool.rolled_out(4)
    assert two in await pool.members()


# -- lowering and raising ---------------------------------------------------------------------------------------------


async def test_lowered_the_oldest_goes_and_is_replaced(pool: Pool) -> None:
    await pool.ready(limited(4, 2))
    state = await pool.state()
    old, *_, young = sorted(state.members, key=lambda n: (state.members[n].created, n))
    await fail(pool, old, young)
    await preserved(pool, old, young)

    # By mistake, in a paused cluster, where nobody is told; and raised again.
    await pool.cluster_news(paused=True)
    await pool.apply(limited(4, 0))
    await pool.waits("ClusterPaused")
    answer = await pool.apply(limited(4, 2))
    assert answer.startswith("configured; autoPreserveFailedMax changed; still preserved: ")
    await pool.cluster_news()
    await pool.when(lambda s: not s.waits or all(w.reason != "ClusterPaused" for w in s.waits), "it goes on")
    assert [await pool.heard(old), await pool.heard(young)] == [["preserve_granted"]] * 2

    words = await pool.apply(limited(4, 1))
    assert words == f"configured; autoPreserveFailedMax changed; no longer preserved: {old}"
    await gone(pool, old)
    found = await pool.rolled_out(4)
    assert (found.slots_used, found.slots, len(pool.started())) == (1, 1, 5)
    assert await pool.heard(young) == ["preserve_granted"]
    assert await pool.noted("SlotsTaken") == f"Taking back 1 slot ({old}): autoPreserveFailedMax was lowered to 1"


async def test_lowered_before_the_machine_has_said_that_it_is_preserved(pool: Pool) -> None:
    """A message that comes before the grant would be about nothing."""
    await pool.ready(limited(3, 1))
    name = (await pool.members())[0]
    await pool.be(name, habits=[SLOW_TO_KEEP])
    await fail(pool, name)
    await pool.until_heard(name, "preserve_granted")
    await pool.apply(limited(3, 0))
    found = await pool.when(lambda s: s.members[name].released, "its slot is taken")
    assert found.members[name].released is Released.TAKEN
    await pool.be(name, preserved_until=LONG, preserved_by=AUTO, keep="")
    await gone(pool, name)
    await pool.rolled_out(3)


async def test_an_undo_leaves_the_pools_timeout_as_it_is(pool: Pool) -> None:
    """It brings the former template back, where machines have the timeout from their pool."""
    await pool.ready(limited(0, 0, machinePreserveTimeout="24h"))
    await pool.apply(limited(0, 0, machinePreserveTimeout="8h"), snapshot(2, image=2))
    await pool.rolled_out(0, revision=2)
    await pool.undo()
    await pool.rolled_out(0, revision=3)
    state = await pool.state()
    machine = state.revisions[-1].template.spec
    assert machine.machine_preserve_timeout == state.spec.machine_preserve_timeout == timedelta(hours=8)


async def test_an_undo_brings_back_a_timeout_of_the_template(pool: Pool) -> None:
    await pool.ready(limited(0, 0, machine={"machinePreserveTimeout": "24h"}))
    await pool.apply(limited(0, 0, machine={"machinePreserveTimeout": "8h"}), snapshot(2, image=2))
    await pool.rolled_out(0, revision=2)
    await pool.undo()
    await pool.rolled_out(0, revision=3)
    found = (await pool.state()).revisions[-1].template.spec.machine_preserve_timeout
    assert found == timedelta(hours=24)


# -- what overrides it ------------------------------------------------------------------------------------------------


async def test_in_a_rollout_none_is_preserved_and_none_may_refuse(pool: Pool) -> None:
    await pool.ready(limited(3, 2))
    name = (await pool.members())[0]
    await pool.class_changed(snapshot(2, image=2, habits=(SLOW,)))
    await pool.waits("NewMachinesNotReady")
    await pool.be(name, habits=[ASKED_LATE, LINGERS])
    await fail(pool, name, keep=PreserveWish.ASKED)
    await pool.until_heard(name, "delete")
    assert await pool.heard(name) == ["delete"]


async def test_while_a_rollout_is_held_they_are_preserved_and_it_replaces_them_then(pool: Pool) -> None:
    await pool.ready(limited(4, 1, paused=True))
    one, two, three, _ = await pool.members()
    await pool.class_changed(snapshot(2, image=2))
    await pool.waits("RolloutPaused")
    await fail(pool, one)
    await preserved(pool, one)
    await fail(pool, two, keep=PreserveWish.ASKED)
    await preserved(pool, two)
    await fail(pool, three)
    await gone(pool, three)
    found = await pool.summary()
    assert (found.preserved, found.slots_used, found.slots) == (2, 2, 1)
    assert [w.reason for w in found.waits] == ["RolloutPaused", "FailedPreserved"], "the first one is shown in lists"
    await pool.ask("resume")
    await gone(pool, one, two)
    assert (await pool.rolled_out(4, revision=2)).preserved == 0
    assert (await pool.result(2)).outcome == "Complete"
    name = (await pool.members())[0]
    await fail(pool, name)
    await preserved(pool, name)


async def test_a_mark_deletes_none_that_is_preserved_and_a_person_does(pool: Pool) -> None:
    await pool.ready(limited(2, 1))
    name = (await pool.members())[0]
    await fail(pool, name)
    await preserved(pool, name)
    await pool.be(name, marked=datetime.now(UTC))
    await pool.when(lambda s: s.members[name].marked, "marked")
    await pool.apply(limited(2, 1), annotations={TRIGGER_DELETION_ANNOTATION: name})
    assert not (await pool.state()).members[name].deleting
    assert await pool.scale(remove=(name,)) == f"scaled; marked for deletion: {name}"
    await gone(pool, name)
    await pool.rolled_out(2)


async def test_hibernated_all_go(pool: Pool) -> None:
    await pool.ready(limited(3, 2))
    one, two, _ = await pool.members()
    await fail(pool, one, keep=PreserveWish.ASKED)
    await preserved(pool, one)
    await pool.be(two, habits=[ASKED_LATE])
    await pool.ask("hibernate")
    await pool.when(lambda s: not s.members, "all are gone")
    await pool.ask("wake")
    await pool.rolled_out(3)
    name = (await pool.members())[0]
    await fail(pool, name, keep=PreserveWish.ASKED)
    await preserved(pool, name)  # requests count again


# -- a repair that is refused -----------------------------------------------------------------------------------------


async def test_what_is_asked_for_in_the_same_instant_is_honoured(pool: Pool) -> None:
    """The pool decides by what it knows; the machine knows better by then, and says so. One of the others goes, because
    the kept machine counts as a replica: as the planner's tests have it, the one made in its place, while it is new."""
    await pool.ready(limited(3, 0))
    name = (await pool.members())[0]
    await pool.be(name, habits=[ASKED_LATE])
    await fail(pool, name)
    await preserved(pool, name)
    assert await pool.heard(name) == ["repair", "preserve_granted"]
    assert await pool.noted("RepairRefused") == f"machine {name} is to be preserved, and is not deleted"
    found = await pool.rolled_out(3)
    assert (found.preserved, found.available) == (1, 2)
    assert len(pool.started()) == 4
    assert name in await pool.members()


async def test_a_refusal_that_was_on_its_way_when_the_pool_decided(pool: Pool) -> None:
    """The machine reports that it is wanted, and has not heard of the repair yet; it refuses the repair when it
    does."""
    await pool.ready(limited(3, 0))
    name = (await pool.members())[0]
    hold = pool.calls.hold("tell_members")
    await fail(pool, name)
    await pool.when(lambda s: s.members[name].repair, "to be deleted")
    await pool.be(name, habits=[ASKED_LATE], keep=PreserveWish.ASKED)
    found = await pool.when(lambda s: s.members[name].granted, "granted")
    assert not found.members[name].deleting
    hold.set()
    await preserved(pool, name)
    await pool.until_heard(name, "repair")
    await pool.rolled_out(3)
    assert name in await pool.members()


async def test_one_without_a_vm_and_one_of_an_older_worker_are_asked_for_nothing(pool: Pool) -> None:
    await pool.ready(limited(4, 0))
    unborn, older, other, _ = await pool.members()
    await pool.be(unborn, older, habits=[LINGERS])
    await pool.be(unborn, **FAILED | {"trouble": Trouble.CREATE}, vm=Vm.UNBORN, keep=PreserveWish.NEVER)
    await pool.be(older, **FAILED)
    await pool.until_heard(unborn, "delete")
    await pool.until_heard(older, "delete")
    await fail(pool, other, keep=PreserveWish.NEVER)
    await gone(pool, other)
    assert [await pool.heard(unborn), await pool.heard(older)] == [["delete"], ["delete"]]


async def test_a_person_s_deletion_is_not_taken_back(pool: Pool) -> None:
    await pool.ready(limited(3, 1))
    name = (await pool.members())[0]
    await pool.be(name, habits=[LINGERS])
    await pool.scale(remove=(name,))
    await pool.until_heard(name, "delete")
    await pool.report(name, seq=50, **FAILED, keep=PreserveWish.ASKED)
    found = await pool.when(lambda s: s.members[name].seq == 50, "heard")
    assert (found.members[name].deleting, found.members[name].granted) == (True, PreservedBy.NOBODY)
    assert await pool.heard(name) == ["delete"]


# -- said again -------------------------------------------------------------------------------------------------------


async def test_a_grant_that_could_not_be_told_is_told_again(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.ready(limited(3, 1))
    name = (await pool.members())[0]
    pool.calls.fail("tell_members", classified(ErrorClass.UNKNOWN, "the server says no"))
    await fail(pool, name)
    await pool.waits("PoolCallFailed")
    assert (await pool.state()).members[name].granted is AUTO, "its slot is taken"
    await temporal.fast_forward(pool.handle, timedelta(minutes=10))
    await preserved(pool, name)
    await pool.rolled_out(3)


async def test_a_new_run_says_again_what_is_not_confirmed(pool: Pool) -> None:
    await pool.ready(limited(4, 1))
    one, two, *_ = await pool.members()
    await pool.be(one, habits=[SLOW_TO_KEEP])
    await fail(pool, one)
    await pool.until_heard(one, "preserve_granted")
    run = await pool.run_id()
    await pool.ask("renew")
    await pool.another_run(run)
    await pool.until_heard(one, "preserve_granted", times=2)
    grants = [input.preserve.reason for input in pool.calls.of("tell_members") if input.preserve]
    assert grants[-1] == "a slot is free", "the machine's journal has it"
    await fail(pool, two)
    await gone(pool, two)  # the slot is taken in the new run too
    await pool.be(one, habits=[], preserved_until=LONG, preserved_by=AUTO, keep="")
    assert (await pool.rolled_out(4)).slots_used == 1


async def test_a_repair_that_could_not_be_told_is_told_again_and_may_be_refused_then(
    pool: Pool, temporal: WorkflowEnvironment
) -> None:
    await pool.ready(limited(3, 0))
    name = (await pool.members())[0]
    await pool.be(name, habits=[ASKED_LATE])
    pool.calls.fail("tell_members", classified(ErrorClass.UNKNOWN, "the server says no"))
    await fail(pool, name)
    await pool.waits("PoolCallFailed")
    await temporal.fast_forward(pool.handle, timedelta(minutes=10))
    await preserved(pool, name)
    heard = await pool.heard(name)
    assert heard[0] == "repair"
    assert "delete" not in heard

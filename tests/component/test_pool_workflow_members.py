"""MachineDeploymentWorkflow and what its machines say: repair, storms, lost workflows, a former pool's machines,
templates that reach machines without replacing them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from pools.workflow import DEAF, LINGERS, MUTE, Pool, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from activities.temporal import workflows
from planners.fleet.pace import COOLDOWN
from resources.cluster.news import ClusterNews
from resources.errors import ErrorClass
from resources.fleet.member import Permit as Given
from resources.fleet.member import Trouble, Vm
from resources.fleet.membership import TellMachinesOutput
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.names import UPDATE_CONCURRENCY_ANNOTATION, machine_id
from workflows.pool import MachineDeploymentWorkflow


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


ONE_AT_A_TIME = {UPDATE_CONCURRENCY_ANNOTATION: "1"}
HOT: dict[str, Any] = {"machine": {"drainTimeout": "5m"}}
"""A template that machines take without being replaced."""


# -- templates --------------------------------------------------------------------------------------------------------


async def test_a_silent_one_holds_up_the_others_for_two_minutes_only(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.ready(spec(2), annotations=ONE_AT_A_TIME)
    first, second = await pool.members()
    await pool.be(first, second, habits=[DEAF])
    await pool.apply(spec(2, **HOT), annotations=ONE_AT_A_TIME)
    await pool.until_heard(first, "template_changed")
    await temporal.fast_forward(pool.handle, timedelta(minutes=1, seconds=50))
    assert await pool.heard(second) == []
    await temporal.fast_forward(pool.handle, timedelta(seconds=11))
    await pool.until_heard(second, "template_changed")
    assert await pool.heard(first) == ["template_changed"]
    await pool.be(second, template=2)
    await pool.until_heard(first, "template_changed", times=2)
    await pool.be(first, template=2)
    await pool.when(lambda s: not s.told, "all have it")


async def test_a_paused_cluster_is_told_nothing_meanwhile(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """It is not, even when the wait of those that were told before is over."""
    await pool.ready(spec(2), annotations=ONE_AT_A_TIME)
    first, second = await pool.members()
    await pool.be(first, second, habits=[DEAF])
    await pool.apply(spec(2, **HOT), annotations=ONE_AT_A_TIME)
    await pool.until_heard(first, "template_changed")
    await pool.cluster_news(paused=True, paused_by="alice")
    await temporal.fast_forward(pool.handle, timedelta(minutes=3))
    assert await pool.heard(second) == []
    await pool.cluster_news()
    await pool.until_heard(second, "template_changed")


async def test_a_newer_template_goes_first_to_the_machine_at_work_on_the_older_one(pool: Pool) -> None:
    await pool.ready(spec(2), annotations=ONE_AT_A_TIME)
    first, second = await pool.members()
    await pool.be(first, second, habits=[DEAF])
    await pool.apply(spec(2, **HOT), annotations=ONE_AT_A_TIME)
    await pool.until_heard(first, "template_changed")
    await pool.be(first, template=2)
    await pool.until_heard(second, "template_changed")
    await pool.apply(spec(2, machine={"drainTimeout": "6m"}), annotations=ONE_AT_A_TIME)
    await pool.until_heard(second, "template_changed", times=2)
    assert await pool.heard(first) == ["template_changed"]
    await pool.be(second, template=3)
    await pool.until_heard(first, "template_changed", times=2)


# -- repair -----------------------------------------------------------------------------------------------------------


async def fall_ill(pool: Pool, *names: str) -> None:
    await pool.be(*names, phase=Phase.UNKNOWN, asks=True)


async def test_a_repair(pool: Pool) -> None:
    """It asks, is permitted, fails and drains; then it is deleted and replaced."""
    await pool.ready(spec(3))
    ill = (await pool.members())[0]
    await pool.be(ill, habits=[LINGERS])
    await fall_ill(pool, ill)
    await pool.when(lambda s: s.members[ill].phase is Phase.FAILED, "Failed by permit")
    assert await pool.noted("RepairGranted") == (
        f"Repairing 1 machine ({ill}): 0 of 1 (repair.maxConcurrent 1) repairs were in progress"
    )
    assert (await pool.summary()).repairs == 1
    assert len(pool.started()) == 3  # it drains, and its replacement waits for that
    await pool.be(ill, drained=True)
    await pool.when(lambda s: sum(m.phase is Phase.RUNNING for m in s.members.values()) == 3, "its replacement")
    assert await pool.noted("Unhealthy") == f"Deleting 1 machine ({ill}) that failed and are drained"
    await pool.be(ill, vm=Vm.GONE, ended=True)
    await pool.rolled_out(3)
    assert ill not in await pool.members()


async def test_one_repair_at_a_time(pool: Pool) -> None:
    await pool.ready(spec(6))
    names = await pool.members()
    await pool.be(*names[:2], habits=[LINGERS])
    await fall_ill(pool, *names[:2])
    assert "Waiting for a repair: 1 machine; in progress, of 1" in await pool.waits("RepairBudget")

    async def heard() -> list[list[str]]:
        return sorted([await pool.heard(n) for n in names[:2]])

    await eventually(heard, lambda h: h == [[], ["permit"]], "one permit")
    (first,) = [n for n in names[:2] if await pool.heard(n)]
    (second,) = {*names[:2]} - {first}
    await pool.be(first, habits=[], drained=True)
    await pool.until_heard(second, "permit")
    await pool.be(second, habits=[], drained=True)
    await pool.rolled_out(6)
    assert len(pool.started()) == 8


async def test_a_question_that_is_taken_back(pool: Pool) -> None:
    await pool.ready(spec(6))
    names = await pool.members()
    await pool.be(*names[:2], habits=[LINGERS])
    await fall_ill(pool, names[0])
    await pool.until_heard(names[0], "permit")
    await fall_ill(pool, names[1])
    await pool.waits("RepairBudget")
    await pool.be(names[1], phase=Phase.RUNNING, asks=False)
    found = await pool.when(lambda s: not s.waits)
    assert found.members[names[1]].permit == ""
    assert await pool.heard(names[1]) == []


async def test_in_a_storm_nothing_is_replaced(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.ready(spec(4))
    names = await pool.members()
    await pool.be(*names, phase=Phase.UNKNOWN)
    await pool.when(lambda s: {m.phase for m in s.members.values()} == {Phase.UNKNOWN})
    await fall_ill(pool, *names)
    assert "4 unhealthy > allowed 2 of 4 machines (repair.pauseAboveUnhealthy 40%)" in await pool.waits(
        "TooManyUnhealthy"
    )
    assert [await pool.heard(n) for n in names] == [[]] * 4
    await pool.be(*names[1:], phase=Phase.RUNNING, asks=False)
    assert "No repair begins before" in await pool.waits("RepairsRest")
    assert await pool.heard(names[0]) == []
    await temporal.fast_forward(pool.handle, COOLDOWN)
    await pool.until_heard(names[0], "permit")
    await pool.rolled_out(4)
    assert len(pool.started()) == 5


async def test_a_vm_that_somebody_else_deleted_is_replaced(pool: Pool) -> None:
    await pool.ready(spec(2))
    name = (await pool.members())[0]
    await pool.be(name, phase=Phase.FAILED, vm=Vm.GONE, trouble=Trouble.GONE)
    await pool.when(lambda s: name not in s.members, "it is tidied up")
    await pool.rolled_out(2)
    assert await pool.noted("VMGone") == (f"Deleting 1 machine ({name}): the cloud has confirmed that the VM is gone")


async def test_of_two_that_are_gone_the_second_waits_until_nothing_is_left_of_the_first(pool: Pool) -> None:
    await pool.ready(spec(6))
    names = await pool.members()
    await pool.be(*names[:2], habits=[LINGERS])
    for name in names[:2]:
        await pool.be(name, phase=Phase.UNKNOWN, vm=Vm.GONE, trouble=Trouble.GONE)
    words = await pool.waits("RepairBudget")

    async def heard() -> list[str]:
        return [n for n in names[:2] if await pool.heard(n)]

    (first,) = await eventually(heard, bool, "one of them is deleted")
    (second,) = {*names[:2]} - {first}
    assert f"Without a VM and waiting to be replaced: 1 machine ({second}); in progress, of 1" in words
    await pool.be(first, phase=Phase.TERMINATING, trouble=Trouble.NONE)
    await pool.when(lambda s: s.members[first].phase is Phase.TERMINATING, "it goes")
    assert await pool.heard(second) == []
    await pool.be(first, ended=True)
    await pool.until_heard(second, "delete")
    await pool.be(second, ended=True)
    await pool.rolled_out(6)


async def test_a_report_that_was_overtaken_changes_nothing(pool: Pool) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.report(name, 9, Phase.UNKNOWN)
    await pool.report(name, 8, Phase.RUNNING)
    await pool.report("stranger", 1)
    await pool.report(name, 10, Phase.UNKNOWN, drained=True)  # what came before it has been processed by now
    found = await pool.when(lambda s: s.members[name].seq == 10)
    assert found.members[name].phase is Phase.UNKNOWN
    assert list(found.members) == [name]


# -- what the cluster says --------------------------------------------------------------------------------------------


async def test_what_cannot_be_seen_is_not_destroyed(pool: Pool) -> None:
    await pool.ready(spec(2))
    newest = datetime.now(UTC)
    await pool.cluster_news(reachable=False, message="connection refused", time=newest)
    await pool.cluster_news(time=newest - timedelta(seconds=1))  # older, and overtaken
    assert await pool.waits("Unreachable") == "connection refused; nothing is replaced on stale information"
    await pool.scale(1)
    assert "1 machine more than 1: the API server or the cloud does not answer" in await pool.waits("Unreachable")
    await fall_ill(pool, *await pool.members())
    await pool.when(lambda s: all(m.permit is Given.ASKED for m in s.members.values()))
    assert [await pool.heard(n) for n in await pool.members()] == [[], []]
    await pool.cluster_news(time=newest + timedelta(seconds=1))
    await pool.rolled_out(1)


async def test_a_paused_cluster_says_what_it_would_do(pool: Pool) -> None:
    pool.calls.first_news = ClusterNews(paused=True, paused_by="alice", time=datetime.now(UTC))
    await pool.start(spec(1))
    words = await pool.waits("ClusterPaused")
    assert words.startswith("The cluster is paused. Otherwise: Created 1 machine of revision 1")
    assert pool.started() == []
    await pool.cluster_news()
    await pool.rolled_out(1)


# -- workflows that were ended from outside ---------------------------------------------------------------------------


async def test_a_lost_machine_counts_until_it_is_back(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.report(name, 5)
    await pool.when(lambda s: s.members[name].seq == 5)
    await pool.machine(name).terminate("by somebody")
    await temporal.fast_forward(pool.handle, timedelta(minutes=31))
    assert await pool.noted("MemberLost") == (
        f"the workflow of machine {name} was ended by somebody (TERMINATED); its VM may still be running, and counts; "
        f"to take it over: hostler adopt machine {name} --cluster {pool.cluster}"
    )
    assert pool.started() == [name]
    await pool.report(name, 1)  # adopted: its numbers may start over
    found = await pool.when(lambda s: not s.lost and s.members[name].seq == 1)
    assert "MemberLost" not in [w.reason for w in found.waits]


async def test_a_lost_machine_is_found_at_once_where_a_worker_has_seen_it(pool: Pool) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.machine(name).terminate("by somebody")
    await pool.handle.signal(MachineDeploymentWorkflow.member_ended, "p-of-old-times")
    await pool.handle.signal(MachineDeploymentWorkflow.member_ended, name)
    assert name in await pool.waits("MemberLost")


async def test_a_lost_machine_that_the_server_has_forgotten_is_not_made_anew(
    pool: Pool, temporal: WorkflowEnvironment
) -> None:
    await pool.ready(spec(1))
    (name,) = await pool.members()
    await pool.machine(name).terminate("by somebody")
    forgotten = TellMachinesOutput(lost={name: ""})  # as after the namespace's retention: no trace is left
    pool.calls.instead["tell_members"] = deque([forgotten])
    await temporal.fast_forward(pool.handle, timedelta(minutes=31))
    assert "(forgotten); its VM may still be running, and counts" in await pool.noted("MemberLost")
    assert pool.started() == [name]
    assert name in await pool.waits("MemberLost")


# -- machines of a former workflow ------------------------------------------------------------------------------------


async def listed(pool: Pool, *names: str) -> None:
    """Waits for the list; visibility is late."""
    machines = workflows.running(workflows.MACHINE, cluster=pool.cluster)

    async def look() -> list[str]:
        return await workflows.listed(pool.client, machines, machine_id(pool.cluster, ""))

    await eventually(look, lambda seen: seen == sorted(names), "visibility")


async def test_a_pool_that_was_ended_from_outside_finds_its_machines(pool: Pool) -> None:
    """One is of the class as it is, the other of a former state of it, and so an old one."""
    await pool.machine_there("alike", snapshot())
    await pool.machine_there("old", snapshot(image=7), template=5)
    await listed(pool, "alike", "old")
    await pool.start(spec(3, paused=True))
    found = await pool.when(lambda s: len(s.members) == 3)
    assert {n: found.members[n].revision for n in ("alike", "old")} == {"alike": 1, "old": 0}
    assert sorted(h.message for h in found.journal if h.reason == "MemberFound") == [
        f"machine {n} existed before this workflow, and belongs to the pool" for n in ("alike", "old")
    ]
    await eventually(lambda: asyncio.sleep(0, pool.started()), lambda s: len(s) == 1, "one is made beside them")
    assert found.template == 6  # above what a machine has: otherwise the machine would drop it as old news
    await pool.when(lambda s: all(m.template == 6 for m in s.members.values()), "all have the template")
    await pool.ask("resume")
    await pool.apply(spec(3))
    await pool.rolled_out(3)
    assert "old" not in await pool.members()
    assert "alike" in await pool.members()


async def test_none_is_made_beside_one_that_is_silent(pool: Pool, temporal: WorkflowEnvironment) -> None:
    machine = await pool.machine_there("old", snapshot(habits=(MUTE,)))
    await listed(pool, "old")
    await pool.start(spec(1))
    assert "old" in await pool.waits("MembersSilent")
    await temporal.fast_forward(pool.handle, timedelta(seconds=61))
    await pool.until_heard("old", "report_again", times=2)
    assert pool.started() == []
    await machine.signal("be", {"habits": [], "vm": Vm.LIVES, "phase": Phase.RUNNING})
    await temporal.fast_forward(pool.handle, timedelta(seconds=31))
    await pool.rolled_out(1)
    assert await pool.members() == ["old"]
    assert pool.started() == []


async def test_they_are_looked_for_until_there_is_an_answer(pool: Pool, temporal: WorkflowEnvironment) -> None:
    await pool.machine_there("old", snapshot())
    await listed(pool, "old")
    pool.calls.fail("find_members", classified(ErrorClass.UNKNOWN, "no visibility"))
    await pool.start(spec(1))
    await pool.noted("PoolCallFailed")
    await temporal.fast_forward(pool.handle, timedelta(minutes=4))
    await pool.rolled_out(1)
    assert pool.started() == []


async def test_one_that_is_gone_meanwhile_is_not_waited_for(pool: Pool) -> None:
    machine = await pool.machine_there("old", snapshot())
    await listed(pool, "old")
    await machine.signal("delete", DeleteIntent())
    await machine.result()
    await pool.ready(spec(1))
    assert "old" not in await pool.members()

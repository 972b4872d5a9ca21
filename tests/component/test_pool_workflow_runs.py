"""MachineDeploymentWorkflow over a long life: bursts, new runs, errors of our own, cancellation, eviction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from lifekit import eventually
from pools.workflow import SLOW, Pool, begin, grown, marks_due, new_pool, snapshot, spec
from temporalio.api.enums.v1 import EventType
from temporalio.testing import WorkflowEnvironment

from planners.pool.plan import ObservedPool, Plan, plan
from resources import attributes as at
from resources.fleet.member import Vm
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import PoolState
from workflows.fleet.entity import REPLAYABLE


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


async def tasks(pool: Pool) -> int:
    """Completed workflow tasks of the newest run."""
    done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    return sum([e.event_type == done async for e in pool.handle.fetch_history_events()])


async def test_500_reports_at_once(idle: Pool) -> None:
    """The burst comes before a worker does, repeated and in the wrong order: each machine is as its newest report says,
    and the pool looks once."""
    await begin(idle, grown(idle, 500))
    names = sorted((grown(idle, 500)).members)
    reports = [(name, seq) for seq in (5, 4) for name in names[:250]]

    async def send(name: str, seq: int) -> None:
        await idle.report(name, seq, Phase.UNKNOWN if seq == 5 else Phase.PENDING)

    for some in range(0, 500, 50):
        await asyncio.gather(*(send(*report) for report in reports[some : some + 50]))
    async with idle.worker():
        found = await idle.when(lambda s: s.messages >= 500)
        ill = {n for n, m in found.members.items() if m.phase is Phase.UNKNOWN}
        assert ill == set(names[:250])
        assert {found.members[n].seq for n in ill} == {5}
        assert [w.reason for w in found.waits] == []
        assert (await idle.summary()).unhealthy == 250
        assert await tasks(idle) <= 10


# -- new runs ---------------------------------------------------------------------------------------------------------


async def test_a_new_run_knows_what_the_former_knew(pool: Pool) -> None:
    await pool.ready(spec(2))
    await pool.apply(machine_class=snapshot(2, image=2, habits=(SLOW,)))
    await pool.until_told(2, lambda s: s.steps, "in a rollout")
    await pool.when(lambda s: sum(m.vm is Vm.LIVES for m in s.members.values()) == 3 and not marks_due(s))
    before, run = await pool.state(), await pool.run_id()
    words = await pool.ask("renew", id="r")
    assert words == "a new run begins once no calls are in progress"
    await pool.another_run(run)
    after = await pool.when(lambda s: s.searched and s.registered)  # each run looks who is there
    different = {f for f in PoolState.model_fields if getattr(before, f) != getattr(after, f)}
    assert different <= {"intents", "messages"}
    assert await pool.ask("renew", id="r") == words
    (new,) = await pool.members(revision=2)
    await pool.be(new, phase=Phase.RUNNING)
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2, "it goes on")
    assert len(pool.calls.of("start_rollout")) == 1


async def test_a_new_run_waits_for_what_is_under_way(pool: Pool) -> None:
    """The answer to a start is missing: the start is neither lost nor begun again."""
    await pool.ready(spec(1))
    gate, run = pool.calls.hold("start_machines"), await pool.run_id()
    await pool.scale(2)
    await eventually(lambda: asyncio.sleep(0, pool.started()), lambda s: len(s) == 2, "a start")
    await pool.ask("renew")
    await pool.scale(3)
    await pool.when(lambda s: s.spec.replicas == 3)
    assert await pool.run_id() == run
    gate.set()
    await pool.another_run(run)
    await pool.rolled_out(3)
    assert len(pool.started()) == 3


async def test_marks_that_nobody_sets_hold_up_no_new_run(idle: Pool) -> None:
    """Nobody polls the cluster's queue: the pool goes on all the same, and repeats the marks that are not confirmed."""
    gate = idle.calls.hold("mark_nodes")
    async with idle.worker():
        await idle.ready(spec(2))
        await idle.apply(machine_class=snapshot(2, image=2, habits=(SLOW,)))
        await eventually(lambda: asyncio.sleep(0, idle.calls.of("mark_nodes")), what="marks")
        run = await idle.run_id()
        await idle.ask("renew")
        await idle.another_run(run)
        gate.set()
        await idle.when(lambda s: not marks_due(s) and s.rollout is not None, "marked by the next run")
        assert [i.on for i in idle.calls.of("mark_nodes")] == [True, True]


async def test_a_large_pool_begins_a_new_run_while_the_former_can_be_replayed(pool: Pool) -> None:
    """Each plan looks at all members, and a worker that has lost the run makes all of its plans again within one
    task."""
    await begin(pool, grown(pool, 5000))
    run = await pool.run_id()
    reports = 0
    while await pool.run_id() == run:
        reports += 1
        await pool.report("p1-aaaaa-00000", 3 + reports, Phase.UNKNOWN if reports % 2 else Phase.RUNNING)
        await pool.summary()  # a query is answered after what came before it, and this answer is small
        assert reports <= REPLAYABLE // 5000
    assert len((await pool.state()).members) == 5000


async def test_many_messages_begin_a_new_run(idle: Pool) -> None:
    await begin(idle, grown(idle, 1, messages=1999))
    run = await idle.run_id()
    await idle.report("p1-aaaaa-00000", 4, Phase.UNKNOWN)
    async with idle.worker():
        await idle.another_run(run)
        found = await idle.state()
        assert (found.messages, found.members["p1-aaaaa-00000"].seq) == (0, 4)


async def test_a_busy_pool_begins_a_new_run_all_the_same(pool: Pool) -> None:
    """There is always something under way, and the next begins before it is over."""
    await pool.ready(spec(1))
    run = await pool.run_id()
    pool.calls.slow["report_to_class"] = 0.4

    async def news() -> None:
        for generation in range(2, 1000):
            await pool.class_changed(snapshot(generation))
            await asyncio.sleep(0.1)

    busy = asyncio.create_task(news())
    try:
        await eventually(lambda: asyncio.sleep(0, pool.calls.of("report_to_class")), lambda r: len(r) > 3, "it is busy")
        await pool.ask("renew")
        await pool.another_run(run)
    finally:
        busy.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await busy


async def test_5000_machines_go_on_in_a_new_run(idle: Pool) -> None:
    before = grown(idle, 5000)
    await begin(idle, before)
    async with idle.worker():
        await idle.state()
        run = await idle.run_id()
        await idle.ask("renew")
        await idle.another_run(run)
        after = await idle.state()
        assert after.members == before_on_the_wire(before).members
        assert (await idle.summary()).rolled_out


def before_on_the_wire(state: PoolState) -> PoolState:
    """Times are in milliseconds there."""
    return PoolState.model_validate_json(state.model_dump_json(by_alias=True))


# -- errors of our own ------------------------------------------------------------------------------------------------


def buggy(when: Callable[[ObservedPool, MachineDeploymentSpec], bool]) -> Callable[..., Plan]:
    """A planner with a bug, but not in what it has planned before: a worker that lost its cache replays that."""

    def planned(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> Plan:
        if when(observed, spec):
            raise ValueError("a bug")
        return plan(observed, spec, now)

    return planned


async def test_an_error_of_our_own_parks_it(idle: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readable, asked, told by its machines; a fixed worker goes on where it stood."""
    idle.replays = False
    async with idle.worker():
        await idle.ready(spec(1))
        with monkeypatch.context() as broken:
            broken.setattr("workflows.pool.entity.plan", buggy(lambda _, spec: spec.replicas == 2))
            await idle.scale(2)
            parked = await idle.when(lambda s: s.parked, "parked")
            assert (parked.parked, parked.journal[-1].reason) == ("ValueError: a bug", "InternalError")
            found = (await idle.handle.describe()).typed_search_attributes
            assert (found.get(at.PHASE), found.get(at.REASON)) == ("Parked", "InternalError")
            (name,) = await idle.members()
            await idle.be(name, phase=Phase.UNKNOWN)
            await idle.when(lambda s: s.members[name].phase is Phase.UNKNOWN, "it hears")
            assert await idle.scale(3) == "scaled; replicas 2 → 3"
            assert len(idle.started()) == 1
        await idle.be(name, phase=Phase.RUNNING)
        assert await idle.ask("renew") == "failed calls are tried again"
        await idle.rolled_out(3)
        assert len(idle.started()) == 3


async def test_a_deletion_of_a_parked_pool_is_carried_out_by_a_fixed_worker(
    idle: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.replays = False
    async with idle.worker():
        await idle.ready(spec(1))
        with monkeypatch.context() as broken:
            broken.setattr("workflows.pool.entity.plan", buggy(lambda _, spec: spec.replicas == 2))
            await idle.scale(2)
            await idle.when(lambda s: s.parked, "parked")
            await idle.delete()
        await idle.ask("renew")
        await idle.gone()


async def test_parked_while_the_story_of_a_rollout_was_begun(idle: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody receives the answer; the next run begins the story again, and so it comes to its end."""
    idle.replays = False
    gate = idle.calls.hold("start_rollout")
    async with idle.worker():
        await idle.ready(spec(1))
        await idle.apply(machine_class=snapshot(2, image=2, habits=(SLOW,)))
        found = await idle.when(lambda s: any(m.revision == 2 and m.vm is Vm.LIVES for m in s.members.values()))
        (new,) = [n for n, m in found.members.items() if m.revision == 2]
        with monkeypatch.context() as broken:
            runs = buggy(lambda o, _: new in o.members and o.members[new].phase is Phase.RUNNING)
            broken.setattr("workflows.pool.entity.plan", runs)
            await idle.be(new, phase=Phase.RUNNING)
            await idle.when(lambda s: s.parked)
            gate.set()
            await idle.when(lambda s: s.parked and s.messages == 0, "a new run")
        await idle.ask("renew")
        await idle.rolled_out(1, revision=2)
        assert (await idle.result(2)).outcome == "Complete"


# -- from outside -----------------------------------------------------------------------------------------------------


async def test_a_cancellation_means_nothing(pool: Pool) -> None:
    await pool.ready(spec(1))
    await pool.handle.cancel()
    assert "use `hostler delete pool" in await pool.noted("CancelIgnored")
    await pool.scale(2)
    await pool.rolled_out(2)


async def test_more_pools_than_the_cache_holds(temporal: WorkflowEnvironment) -> None:
    """Eviction is no cancellation: all answer, and the worker shuts down."""
    async with new_pool(temporal.client) as first, first.worker(max_cached_workflows=2):
        pools = [first, *(Pool(temporal.client, first.queue, f"p{n}") for n in range(2, 7))]
        for pool in pools:
            await pool.start(spec(1))
        for pool in pools:
            await pool.rolled_out(1)
        for pool in pools:
            await pool.scale(2)
        for pool in pools:
            await pool.rolled_out(2)
            assert "CancelIgnored" not in [h.reason for h in (await pool.state()).journal]
            await pool.deps.close()


async def test_an_idle_pool_costs_nothing(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """Apart from a look at visibility every half hour it takes six tasks at most, even where nothing is wrong."""
    await pool.ready(spec(1))
    await eventually(lambda: asyncio.sleep(0, pool.calls.of("report_to_class")), what="its class has heard")
    before = await tasks(pool)
    await temporal.fast_forward(pool.handle, timedelta(minutes=29))
    assert await tasks(pool) - before <= 3
    await temporal.fast_forward(pool.handle, timedelta(minutes=2))
    await eventually(lambda: asyncio.sleep(0, pool.calls.of("find_members")), lambda f: len(f) == 2, "a census")

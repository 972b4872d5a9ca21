"""What a reader found about pools: clocks, canaries and losses that count what is not theirs; and news that does not
arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from unittest.mock import AsyncMock

import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from pools import workflow as kit
from pools.planner import EPOCH, World, member, spec
from temporalio.testing import WorkflowEnvironment

from planners.fleet.steps import Delete
from planners.machine_class import rollout as class_rollout
from planners.pool import progress
from planners.pool.view import ObservedPool, View
from resources.cluster.news import ClusterNews
from resources.errors import ErrorClass
from resources.fleet.member import Trouble, Vm
from resources.fleet.rehearsal import RevisionSummary
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.machine_class.state import UpdateState, User
from resources.owner import Owner
from resources.pool.intents import PoolQuestion, PoolSummary
from resources.pool.state import Gate, PoolState, Rollout
from starter.commands import rollout_history
from starter.commands.kinds import POOL as POOL_KIND
from starter.sdk.pools.results import RolloutListed
from workflows.pool import views

LATER = EPOCH + timedelta(minutes=20)


def stopped_rollout() -> tuple[ObservedPool, World]:
    """Its new machine never came, and the deadline of 600 s is long over."""
    world = World(spec(2, progressDeadlineSeconds=600))
    members = {"a": member(1, age=9000), "b": member(1, age=9000), "n": member(2, Phase.PENDING, vm=Vm.UNBORN)}
    rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2)
    return ObservedPool(members, 2, rollout), world


def test_an_outage_sets_no_stopped_rollout_going_again() -> None:
    observed, world = stopped_rollout()
    assert progress.stopped(View(observed, world.spec, LATER))
    silent = replace(observed, reachable=False)
    during = progress.follow(silent, world.spec, LATER)
    after = progress.follow(replace(observed, rollout=during), world.spec, LATER + timedelta(seconds=1))
    assert progress.stopped(View(replace(observed, rollout=after), world.spec, LATER + timedelta(seconds=1)))


def test_a_short_outage_moves_the_deadline_by_as_long_only() -> None:
    observed, world = stopped_rollout()
    at = EPOCH + timedelta(minutes=9)
    rollout = progress.follow(replace(observed, reachable=False), world.spec, at)
    rollout = progress.follow(replace(observed, rollout=rollout), world.spec, at + timedelta(seconds=1))
    stop = progress.stops_at(View(replace(observed, rollout=rollout), world.spec, at + timedelta(seconds=1)))
    assert stop == EPOCH + timedelta(seconds=601)


def test_resuming_a_pause_does_not_pass_a_canary_that_was_not_reached() -> None:
    world = World(spec(5, pauseAfter=1))
    world.fill()
    world.image(2)
    world.pool()
    world.gate(Gate.PAUSED)
    world.resume()
    for _ in range(60):
        world.turn()
    assert sum(m.revision == 2 for m in world.members.values()) == 1
    world.resume()
    for _ in range(60):
        world.turn()
    assert {m.revision for m in world.members.values()} == {2}


def test_an_old_machine_that_never_joins_is_no_loss_of_the_rollout() -> None:
    joinless = {"trouble": Trouble.JOIN, "drained": True}
    members = {"old": member(1, Phase.FAILED, **joinless), "new": member(2, Phase.FAILED, **joinless)}
    rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=1)
    world = World(spec(2, surge=3))
    world.image(2)
    world.members, world.rollout = members, rollout
    made = world.pool()
    gone = {name for step in made.steps if isinstance(step, Delete) for name in step.names}
    assert gone == {"old", "new"}
    assert world.rollout
    assert world.rollout.lost == 1


def test_a_full_cloud_sets_no_stopped_rollout_going_again() -> None:
    """The machine that it waited for is Failed without a VM. It is for a person to allow another one."""
    observed, world = stopped_rollout()
    unmade = member(2, Phase.FAILED, vm=Vm.UNBORN, trouble=Trouble.CREATE, drained=True)
    world.image(2)
    world.members, world.rollout, world.now = {**observed.members, "n": unmade}, observed.rollout, LATER
    assert [w.reason for w in world.pool().waits].count("ProgressDeadlineExceeded") == 1
    for _ in range(200):
        world.turn()
    assert "ProgressDeadlineExceeded" in [w.reason for w in world.pool().waits]
    assert [n for n, m in world.members.items() if m.revision == 1] == ["a", "b"]
    world.resume()
    for _ in range(200):
        world.turn()
    assert {m.revision for m in world.members.values()} == {2}


def rehearsed(**news: bool) -> list[str]:
    """The reasons of the steps that a pool of two without machines would take, and of what it waits for."""
    world = World(spec(2))
    state = PoolState(name="p1", spec=world.spec, revisions=list(world.revisions))
    state.news = ClusterNews(time=EPOCH, **news)
    found = views.rehearse(state, PoolQuestion(), EPOCH)
    return [step.reason for steps in found.plans for step in steps] + [wait.reason for wait in found.waits]


def test_a_rehearsal_in_a_paused_cluster_says_so() -> None:
    assert rehearsed(paused=True)[0] == "ClusterPaused"
    assert set(rehearsed()) == {"ReplicasMissing"}


def test_a_pool_hears_of_its_class_whoever_is_at_work() -> None:
    """Telling it costs nothing, and what it makes from now on is of the newest."""
    later = EPOCH + timedelta(minutes=5)
    busy = User(generation=1, told=2, tells=1, patience=later)
    users = {
        "m1": busy,
        "m2": User(1, state=UpdateState.UPDATED),
        Owner(name="p1").user: User(1, state=UpdateState.UPDATED),
    }
    assert class_rollout.to_tell(users, 2, 1, EPOCH) == [Owner(name="p1").user]


# -- the workflow -----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def pool(temporal: WorkflowEnvironment) -> AsyncIterator[kit.Pool]:
    async with kit.new_pool(temporal.client) as made, made.worker():
        yield made


async def test_a_new_run_makes_itself_known_to_the_cluster_again(pool: kit.Pool) -> None:
    """The cluster's workflow may have been ended from outside while it was paused: nobody else would start it."""
    await pool.ready(kit.spec(1))
    await pool.cluster_news(paused=True)
    before, run = len(pool.calls.of("register_pool")), await pool.run_id()
    await pool.ask("renew")
    await pool.another_run(run)

    async def known() -> int:
        return len(pool.calls.of("register_pool"))

    await eventually(known, lambda n: n > before, "it registers again")


async def test_a_former_class_hears_that_the_pool_has_left_it_whatever_fails(
    pool: kit.Pool, temporal: WorkflowEnvironment
) -> None:
    await pool.ready(kit.spec(1))
    pool.calls.fail("report_to_class", classified(ErrorClass.UNKNOWN, "the server says no"))
    await pool.apply(kit.spec(1, machine_class="c2"), kit.snapshot(name="c2"))
    assert "the server says no" in await pool.noted("PoolCallFailed")
    await temporal.fast_forward(pool.handle, timedelta(minutes=5))

    async def left() -> list[list[str]]:
        return [[c.name for c in i.left] for i in pool.calls.of("report_to_class") if i.machine_class.name == "c2"]

    await eventually(left, lambda said: said[:2] == [["c1"], ["c1"]], "c1 is told again")


async def listed(pool: kit.Pool) -> None:
    """Visibility knows of a machine of the pool."""

    async def look() -> bool:
        query = f"TaskQueue = '{pool.queue}' AND HostlerPool = 'p1'"
        return bool([found async for found in pool.client.list_workflows(query)])

    await eventually(look, bool, "visibility")


async def test_marks_of_a_former_workflow_are_taken_off(pool: kit.Pool) -> None:
    await pool.machine_there("alike", kit.snapshot())
    await listed(pool)
    await pool.ready(kit.spec(1))

    async def marks() -> list[tuple[list[str], bool]]:
        return [(i.machines, i.on) for i in pool.calls.of("mark_nodes")]

    await eventually(marks, lambda said: (["alike"], False) in said, "its Node is freed of marks")


async def test_going_back_brings_back_what_machines_are_made_from_and_no_old_secret(pool: kit.Pool) -> None:
    """The class has been given other credentials meanwhile: those of then may be gone."""
    await pool.ready(kit.spec(1))
    await pool.class_changed(kit.snapshot(2, image=2))
    await pool.rolled_out(1, revision=2)
    rotated = kit.snapshot(3, image=2, team="b").model_copy(update={"secret_ref": SecretRef(name="rotated")})
    await pool.class_changed(rotated)
    await pool.undo()
    newest = (await pool.state()).revisions[-1]
    assert newest.counter == 3
    assert newest.machine_class.provider_spec["ami"] == "ami-1"
    assert newest.machine_class.secret_ref == SecretRef(name="rotated")
    assert newest.machine_class.provider_spec["vmTags"] == rotated.provider_spec["vmTags"]


# -- the commands -----------------------------------------------------------------------------------------------------


async def test_of_two_stories_of_a_revision_the_history_tells_the_newer() -> None:
    """A pool that is deleted and applied again begins at revision 1 again; Temporal may keep the former stories."""
    hour = timedelta(hours=1)
    revisions = [
        RevisionSummary(revision=n, created=EPOCH, machine_class="c1", generation=n, machines=0) for n in (1, 2, 3)
    ]
    summary = PoolSummary(
        name="p1", cluster="c", created=EPOCH, machine_class="c1", replicas=1, revision=3, revisions=revisions
    )
    stories = [
        RolloutListed("p1", "c", 2, "Complete", EPOCH + hour),
        RolloutListed("p1", "c", 2, "Undone", EPOCH - 2 * hour),
    ]
    client = AsyncMock()
    client.pools.rollouts.return_value, client.pools.summary.return_value = stories, summary
    _, *rows = await rollout_history.table(client, POOL_KIND, "p1", titled=False)
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert ["Complete" in row for row in rows] == [False, True, False]
    assert not any("Undone" in row for row in rows)


async def test_a_pool_without_a_class_is_deleted_with_the_machines_that_were_there(
    pool: kit.Pool, temporal: WorkflowEnvironment
) -> None:
    """It has no revision yet, and so no template that they could be told of."""
    await pool.machine_there("old", kit.snapshot(), template=5)
    await listed(pool)
    pool.calls.first_news = None
    await pool.start(kit.spec(1), machine_class=None)
    await pool.waits("ClassMissing")
    await pool.delete()
    await pool.when(lambda s: "old" in s.members, "it knows the machine")
    await temporal.fast_forward(pool.handle, timedelta(seconds=31))
    await pool.gone()
    assert await pool.journal("InternalError") == []

"""A pool's rollouts and their stories, RolloutWorkflow: steps with their reasons, what holds one up, how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from lifekit import eventually
from machine.stubs import classified
from pools.workflow import LINGERS, NEVER_JOINS, SLOW, Pool, marks_due, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from resources import attributes as at
from resources.errors import ErrorClass
from resources.fleet.member import Vm
from resources.intents import Intent
from resources.machine.state import Phase
from resources.pool.rollout import RolloutOutcome
from resources.pool.state import Gate


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


SLOWLY = snapshot(2, image=2, habits=(SLOW,))


async def rolling(pool: Pool, replicas: int = 2, surge: int = 1, **more: object) -> list[str]:
    """A rollout to revision 2 is under way, whose first machines get a VM and wait. Returns the new ones, by name."""
    await pool.ready(spec(replicas, surge, **more))  # type: ignore[arg-type]
    await pool.apply(machine_class=SLOWLY)
    found = await pool.when(
        lambda s: sum(m.revision == 2 and m.vm is Vm.LIVES for m in s.members.values()) == surge, "new machines"
    )
    return sorted(n for n, m in found.members.items() if m.revision == 2)


async def phase(pool: Pool, wanted: str) -> None:
    async def look() -> str | None:
        return (await pool.handle.describe()).typed_search_attributes.get(at.PHASE)

    await eventually(look, lambda seen: seen == wanted, f"phase {wanted}")


async def marks(pool: Pool) -> list[tuple[bool, int]]:
    """The calls that set or removed marks, and on how many Nodes."""
    return [(i.on, len(i.machines)) for i in pool.calls.of("mark_nodes")]


# -- to the end -------------------------------------------------------------------------------------------------------


async def test_complete(pool: Pool) -> None:
    """Each step is in the journal and in the result, with its numbers."""
    await pool.ready(spec(2))
    first = await pool.members()
    intent = pool.manifest(machine_class=snapshot(2, image=2)).model_copy(
        update={"requested_by": "alice", "reason": "a patch"}
    )
    assert await pool.ask("apply", intent) == "configured; revision 2 replaces 2 machines"
    await pool.rolled_out(2, revision=2)
    assert not set(first) & set(await pool.members())
    result = await pool.result(2)
    assert (result.outcome, result.message) == (
        RolloutOutcome.COMPLETE,
        "2 of 2 machines are of this revision, all available",
    )
    assert (result.counts.replicas, result.counts.updated, result.counts.available, result.counts.old) == (2, 2, 2, 0)
    reasons = [h.reason for h in result.steps]
    assert reasons.count("RolledOut") == 2
    assert reasons.count("Replaced") == 2
    words = next(h.message for h in result.steps if h.reason == "Replaced")
    assert words.endswith("of 2 of older revisions: 3 available, at least 2 (replicas 2 - maxUnavailable 0) needed")
    told = await pool.told(2)
    assert (told.requested_by, told.reason, told.former, told.generation) == ("alice", "a patch", [1], 2)
    journal = await pool.state()
    assert {h.message for h in result.steps} <= {h.message for h in journal.journal}
    assert await pool.noted("RolloutComplete") == (
        "rollout of revision 2: 2 of 2 machines are of this revision, all available"
    )
    assert (journal.rollout, journal.stories) == (None, {})
    assert len(pool.started()) == 4
    story = (await pool.story(2).describe()).typed_search_attributes
    assert (story.get(at.PHASE), story.get(at.POOL)) == ("Complete", "p1")


async def test_nodes_are_marked_and_freed(pool: Pool) -> None:
    """Those to be replaced carry the marks; aborted, those that stay lose them."""
    await rolling(pool, 2)
    await eventually(lambda: marks(pool), lambda m: m == [(True, 2)], "marked")
    await pool.ask("abort")
    await eventually(lambda: marks(pool), lambda m: m == [(True, 2), (False, 2)], "freed")
    assert not any(m.node_marked for m in (await pool.state()).members.values())


async def test_marks_that_failed_are_not_set_after_the_end(pool: Pool, temporal: WorkflowEnvironment) -> None:
    pool.calls.fail("mark_nodes", classified(ErrorClass.CONFLICT, "somebody else writes it"))
    await rolling(pool, 2)
    await pool.when(lambda s: marks_due(s) == 2 and any(h.reason == "PoolCallFailed" for h in s.journal))
    await pool.ask("abort")
    await temporal.fast_forward(pool.handle, timedelta(seconds=10))
    await pool.when(lambda s: not marks_due(s), "confirmed")
    assert [on for on, _ in await marks(pool)][1:] == [False]


async def test_marks_follow_one_another(pool: Pool) -> None:
    """The first call is slow: the second one waits for it, otherwise chance would decide what stays."""
    gate = pool.calls.hold("mark_nodes")
    await rolling(pool, 2)
    await eventually(lambda: marks(pool), lambda m: m == [(True, 2)], "the first call")
    await pool.ask("abort")
    await pool.waits("RolloutAborted")
    assert await marks(pool) == [(True, 2)]
    gate.set()
    await eventually(lambda: marks(pool), lambda m: m == [(True, 2), (False, 2)], "then the second")


# -- other ends -------------------------------------------------------------------------------------------------------


async def test_superseded(pool: Pool) -> None:
    await rolling(pool)
    answer = await pool.apply(machine_class=snapshot(3, image=3))
    assert answer == "configured; revision 3 replaces 3 machines"
    result = await pool.result(2)
    assert (result.outcome, result.message) == (RolloutOutcome.SUPERSEDED, "revision 3 came before it was complete")
    await pool.rolled_out(2, revision=3)
    assert (await pool.result(3)).outcome is RolloutOutcome.COMPLETE
    assert (await pool.told(3)).former == [1, 2]


async def test_undone(pool: Pool) -> None:
    """The machines that it had not reached are not touched."""
    await rolling(pool)
    olds = await pool.members(revision=1)
    assert await pool.undo() == "back to revision 1; revision 3 replaces 1 machine"
    await pool.rolled_out(2, revision=3)
    assert await pool.members() == olds
    result = await pool.result(2)
    assert (result.outcome, result.message) == (RolloutOutcome.UNDONE, "revision 3 goes back to an earlier one")
    assert (await pool.result(3)).outcome is RolloutOutcome.COMPLETE
    await eventually(lambda: marks(pool), lambda m: m[-1] == (False, 2), "their Nodes are free again")


async def test_a_deleted_pool_ends_it_once(pool: Pool) -> None:
    """It does so however long the old machines take to go."""
    await rolling(pool)
    await pool.be(*await pool.members(revision=1), habits=[LINGERS])
    await pool.until_told(2, lambda s: s.steps, "its steps")
    await pool.delete()
    result = await pool.result(2)
    assert (result.outcome, result.message) == (RolloutOutcome.FAILED, "the pool is deleted")
    left = await pool.when(
        lambda s: len(s.members) == 2 and all(m.phase is Phase.TERMINATING for m in s.members.values()), "the old ones"
    )
    for name in left.members:
        await pool.be(name, vm=Vm.GONE, ended=True)
    await pool.gone()
    assert len(pool.calls.of("start_rollout")) == 1


async def test_without_machines_it_cannot_be_completed(pool: Pool) -> None:
    await rolling(pool)
    await pool.ask("hibernate")
    result = await pool.result(2)
    assert (result.outcome, result.message) == (RolloutOutcome.FAILED, "the pool has no machines any longer")


# -- what holds it up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["the pool", pytest.param("the story", marks=pytest.mark.exhaustive)])
async def test_pause_and_resume(pool: Pool, way: str) -> None:
    """The pool is asked, or the rollout's story, which passes it on."""
    (new,) = await rolling(pool)
    asked = pool.handle if way == "the pool" else pool.story(2)
    await pool.until_told(2, lambda s: s.counts.updated == 1, "the story is there")
    intent = Intent(id="one", requested_by="alice")
    await asked.execute_update("pause", intent, id="one")
    assert "The rollout is paused; 2 machines of older revisions are left" in await pool.waits("RolloutPaused")
    await phase(pool, "Paused")
    told = await pool.until_told(2, lambda s: s.gate is Gate.PAUSED, "paused")
    assert [w.reason for w in told.waits] == ["RolloutPaused"]
    await pool.be(new, phase=Phase.RUNNING)
    await pool.until_told(2, lambda s: s.counts.available == 1, "it hears of machines all the same")
    assert len(await pool.members()) == 3
    await asked.execute_update("resume", Intent(id="two"), id="two")
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2, "it goes on")
    await pool.until_told(2, lambda s: s.gate is Gate.OPEN, "open")
    found = await pool.state()
    assert {"one", "two"} <= found.intents.keys()


async def test_the_story_passes_on_once(pool: Pool) -> None:
    await rolling(pool)
    await pool.until_told(2, lambda s: s.steps, "the story is there")
    intent = Intent(id="one")
    answer = await pool.story(2).execute_update("abort", intent, id="one")
    assert answer["message"] == "pool p1 was told to abort its rollout"
    await pool.waits("RolloutAborted")
    await pool.ask("resume")
    await pool.when(lambda s: not any(w.reason == "RolloutAborted" for w in s.waits))
    again = await pool.story(2).execute_update("abort", intent, id="again")
    assert again == answer
    await pool.story(2).signal("pause", Intent(id="two"))
    found = await pool.when(lambda s: s.paused)
    assert found.rollout
    assert found.rollout.gate is Gate.OPEN


async def test_aborted_and_resumed(pool: Pool) -> None:
    (new,) = await rolling(pool)
    assert (await pool.ask("abort")).startswith("aborted; the machines of older revisions stay.")
    await pool.waits("RolloutAborted")
    await phase(pool, "Stopped")
    await pool.be(new, phase=Phase.RUNNING)
    await pool.when(lambda s: s.members[new].phase is Phase.RUNNING)
    assert len(await pool.members(revision=1)) == 2
    assert await pool.ask("resume") == "resumed; the rollout of revision 2 continues"
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2)


async def test_a_canary_waits_for_a_person(pool: Pool) -> None:
    await pool.ready(spec(3, rolling={"pauseAfter": 1}))
    await pool.apply(machine_class=snapshot(2, image=2))
    words = await pool.waits("Canary")
    assert words.startswith(
        "1 of 3 machines are of revision 2 (pauseAfter 1): resume the rollout to continue; 2 machines"
    )
    await phase(pool, "Paused")
    await pool.when(lambda s: sorted(m.revision for m in s.members.values()) == [1, 1, 2], "one of them is new")
    assert await pool.ask("resume") == "resumed; the rollout of revision 2 continues"
    await pool.rolled_out(3, revision=2)
    assert await pool.noted("Applied") == "rollout of revision 2 resumed from Canary"


async def test_the_progress_deadline_stops_it(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """The old machines stay and lose their marks; a late machine lets it continue on its own."""
    (new,) = await rolling(pool, 2, progressDeadlineSeconds=600)
    told = await pool.until_told(2, lambda s: s.stops_at is not None, "its deadline")
    assert told.stops_at
    await temporal.fast_forward(pool.story(2), timedelta(minutes=11))  # it would refuse news of the future
    await temporal.fast_forward(pool.handle, timedelta(minutes=9))
    assert "ProgressDeadlineExceeded" not in [w.reason for w in (await pool.state()).waits]
    await temporal.fast_forward(pool.handle, timedelta(minutes=2))
    words = await pool.waits("ProgressDeadlineExceeded")
    assert f"1 machine of revision 2 did not become available within 600s ({new})" in words
    await phase(pool, "Stopped")
    await pool.until_told(2, lambda s: [w.reason for w in s.waits] == ["ProgressDeadlineExceeded"], "its words")
    await eventually(lambda: marks(pool), lambda m: m == [(True, 2), (False, 2)], "freed")
    assert len(await pool.members(revision=1)) == 2
    await pool.be(new, phase=Phase.RUNNING)
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2, "it goes on")


async def test_a_bad_image_costs_the_surge(pool: Pool) -> None:
    await pool.ready(spec(3))
    await pool.apply(machine_class=snapshot(2, image=2, habits=(NEVER_JOINS,)))
    assert "1 machine of revision 2 that never joined" in await pool.waits("NewMachinesNeverJoin")
    assert len(await pool.members(revision=1)) == 3
    assert len(pool.started()) == 4
    await pool.undo()
    await pool.rolled_out(3, revision=3)
    assert len(pool.started()) == 4
    assert (await pool.result(2)).outcome is RolloutOutcome.UNDONE


async def test_scaled_in_the_midst_of_it(pool: Pool) -> None:
    await rolling(pool, 3)
    await pool.scale(4)
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2, "the new one is of revision 2")
    await pool.scale(2)
    found = await pool.when(lambda s: sum(not m.leaving for m in s.members.values()) == 3, "2 + maxSurge 1")
    assert any(m.revision == 1 for m in found.members.values())
    await pool.class_changed(snapshot(3, image=3))
    await pool.rolled_out(2, revision=3)


# -- the story itself -------------------------------------------------------------------------------------------------


async def test_a_story_that_cannot_be_begun_holds_up_nothing(pool: Pool, temporal: WorkflowEnvironment) -> None:
    """It is begun with the next check, not again and again; then it hears everything."""
    pool.calls.fail("start_rollout", classified(ErrorClass.UNKNOWN, "the server says no"))
    (new,) = await rolling(pool)
    await pool.noted("PoolCallFailed")
    await pool.be(new, phase=Phase.RUNNING)
    await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2, "it goes on")
    assert len(pool.calls.of("start_rollout")) == 1
    await temporal.fast_forward(pool.handle, timedelta(minutes=4))
    told = await pool.until_told(2, lambda s: s.steps, "its steps")
    assert "Replaced" in [h.reason for h in told.steps]
    assert len(pool.calls.of("start_rollout")) == 2


async def test_a_cancelled_story_goes_on(pool: Pool) -> None:
    (new,) = await rolling(pool)
    await pool.until_told(2, lambda s: s.steps, "the story is there")
    await pool.story(2).cancel()
    told = await pool.until_told(2, lambda s: s.journal, "a line")
    assert [h.reason for h in told.journal] == ["CancelIgnored"]
    await pool.story(2).execute_update("renew", Intent(id="r"), id="r")
    await pool.be(new, phase=Phase.RUNNING)
    await pool.until_told(
        2, lambda s: s.counts.available == 1 and s.counts.updated == 2, "a new run hears as the former"
    )
    steps = (await pool.told(2)).steps
    assert len({(h.time, h.message) for h in steps}) == len(steps)


async def test_a_story_that_somebody_ended_holds_up_nothing(pool: Pool) -> None:
    (new,) = await rolling(pool)
    await pool.until_told(2, lambda s: s.steps, "the story is there")
    await pool.story(2).terminate("by somebody")
    await pool.be(new, phase=Phase.RUNNING)
    found = await pool.when(lambda s: sum(m.revision == 2 for m in s.members.values()) == 2)
    (second,) = [n for n, m in found.members.items() if m.revision == 2 and n != new]
    await pool.be(second, phase=Phase.RUNNING)
    await pool.rolled_out(2, revision=2)
    assert (await pool.state()).stories == {}

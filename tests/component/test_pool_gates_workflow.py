"""MachineDeploymentWorkflow and its gates: approval, the pool before, maintenance windows and freezes, on the real
server with the activities that ask. planners/pool/gates.py decides; here it is said, waited for and ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from histories.deadlines import at_once
from lifekit import eventually
from pools.workflow import DEAF, Pool, begin, grown, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from resources.fleet.rehearsal import Rehearsal
from resources.machine_class.state import UpdatesHeld
from resources.maintenance import Calendar, Freeze, FreezeIntent, Opening, Window
from resources.names import UPDATE_CONCURRENCY_ANNOTATION, UPDATES_AFTER_ANNOTATION
from resources.pool.intents import PoolQuestion, ResumeIntent, VerdictIntent
from resources.pool.rollout import RolloutOutcome
from resources.pool.state import Gate, PoolState


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


def shut(**more: Any) -> dict[str, Any]:
    """Windows of which the next one begins in two hours."""
    begin = datetime.now(UTC) + timedelta(hours=2)
    return {"maintenance": {"windows": [{"begin": f"{begin:%H:%M}", "end": f"{begin + timedelta(hours=1):%H:%M}"}]}}


async def rolls(pool: Pool, **given: Any) -> None:
    """Begins a rollout to revision 2 in a pool of two with these gates."""
    await pool.ready(spec(2, **given))
    await pool.apply(machine_class=snapshot(2, image=2))


async def old_ones(pool: Pool) -> int:
    return len(await pool.members(revision=1))


# -- approval ---------------------------------------------------------------------------------------------------------

APPROVAL = {"approval": {"required": True, "timeout": "1h"}}


async def test_a_rollout_waits_for_a_persons_approval(pool: Pool) -> None:
    await rolls(pool, **APPROVAL)
    assert "is aborted at" in await pool.waits("Approval")
    await pool.until_told(2, lambda s: [w.reason for w in s.waits] == ["Approval"])
    assert "revision 2, not 3" in await pool.refused("approve", VerdictIntent(revision=3))
    answer = await pool.ask("approve", VerdictIntent(revision=2, requested_by="ann", reason="looks well"), id="a")
    assert answer == "approved; the rollout of revision 2 continues"
    assert await pool.ask("approve", VerdictIntent(requested_by="ann"), id="a") == answer, "it counts once"
    assert "already approved by ann: looks well" in await pool.refused("approve", VerdictIntent(requested_by="bob"))
    assert "already approved" in await pool.refused("reject", VerdictIntent())
    await pool.rolled_out(2, revision=2)
    assert await pool.journal("Approved") == ["revision 2 is approved by ann: looks well"]
    result = await pool.result(2)
    assert result.outcome is RolloutOutcome.COMPLETE
    assert "Approved" in [step.reason for step in result.steps]
    assert "no rollout that needs approval" in await pool.refused("approve", VerdictIntent())


async def test_nothing_of_a_revision_comes_to_be_before_it_is_approved(pool: Pool) -> None:
    """A machine that is missing is made of the last approved one, whether the approval is asked for or was refused, in
    a new run too; and then of the newest."""
    await pool.ready(spec(1, revisionHistoryLimit=0))
    await pool.apply(spec(1, revisionHistoryLimit=0, **APPROVAL), snapshot(2, image=2))
    await pool.waits("Approval")
    await pool.scale(2)
    await pool.when(lambda s: len(s.members) == 2)
    await pool.ask("reject", VerdictIntent(requested_by="ann"))
    run = await pool.run_id()
    await pool.ask("renew")
    await pool.another_run(run)
    await pool.scale(3)
    found = await pool.when(lambda s: len(s.members) == 3 and not s.unstarted)
    assert {m.revision for m in found.members.values()} == {1}
    await pool.ask("resume", ResumeIntent())
    await pool.ask("approve", VerdictIntent(requested_by="ann"))
    await pool.rolled_out(3, revision=2)
    assert (await pool.state()).approved == 2

    await pool.apply(machine_class=snapshot(3, image=3))
    await pool.waits("Approval")
    await pool.apply(machine_class=snapshot(4, image=2))
    await pool.when(lambda s: s.approved == 4 and not s.waits, "what comes to the approved one needs no approval")
    await pool.scale(4)
    await pool.rolled_out(4, revision=4)


async def test_one_approval_is_for_one_revision(pool: Pool) -> None:
    """A signal, as from the rollout's own workflow, means that revision, and none that came meanwhile."""
    await rolls(pool, **APPROVAL)
    await pool.waits("Approval")
    await pool.until_told(2, lambda s: s.waits)
    await pool.apply(machine_class=snapshot(3, image=3))
    await pool.when(lambda s: s.rollout and s.rollout.revision == 3)
    await pool.handle.signal("approve", VerdictIntent(id="late", revision=2, requested_by="ann"))
    assert "revision 3, not 2" in await pool.noted("Refused")
    assert await old_ones(pool) == 2
    await pool.until_told(3, lambda s: s.waits)
    await pool.story(3).signal("approve", VerdictIntent(id="now", requested_by="ann"))
    await pool.rolled_out(2, revision=3)


async def test_nobody_approves_it_in_time(pool: Pool) -> None:
    """It is aborted, which is said in the pool and in its story; resuming asks anew."""
    await rolls(pool, approval={"required": True, "timeout": "1s"})
    assert "revision 2 was approved by nobody in time" in await pool.waits("RolloutAborted")
    assert "in time" in await pool.noted("ApprovalExpired")
    told = await pool.until_told(2, lambda s: s.gate is Gate.ABORTED)
    assert "ApprovalExpired" in [step.reason for step in told.steps]
    assert "asks anew" in await pool.refused("approve", VerdictIntent())
    assert await old_ones(pool) == 2
    await pool.apply(spec(2, **APPROVAL))
    assert "waits for a person's approval" in await pool.ask("resume", ResumeIntent())
    await pool.waits("Approval")
    await pool.ask("approve", VerdictIntent(requested_by="ann"))
    await pool.rolled_out(2, revision=2)


async def test_a_person_rejects_it(pool: Pool) -> None:
    await rolls(pool, **APPROVAL)
    await pool.waits("Approval")
    words = await pool.ask("reject", VerdictIntent(requested_by="ann", reason="wrong image"))
    assert words.startswith("rejected; the machines of older revisions stay")
    assert "by ann: wrong image" in await pool.noted("Rejected")
    await pool.waits("RolloutAborted")
    assert "is aborted" in await pool.refused("approve", VerdictIntent())
    await pool.undo()
    summary = await pool.rolled_out(2, revision=3)
    assert summary.rollout is None, "going back needs no approval"
    assert len(pool.started()) == 2


# -- the order of pools -----------------------------------------------------------------------------------------------


async def test_a_pool_is_rolled_out_after_another(pool: Pool) -> None:
    """It says how the other stands: at its canary, gone on, done. And one that is gone holds up nobody."""
    second = Pool(pool.client, pool.queue, "p2")
    await pool.ready(spec(2, rolling={"pauseAfter": 1}))
    await second.ready(spec(1, rollsAfter={"pool": "p1", "class": "c2"}))
    other = snapshot(1, image=2, name="c2")
    await second.apply(spec(1, machine_class="c2", rollsAfter={"pool": "p1", "class": "c2"}), other)
    await second.when(lambda s: any("it has class c1" in w.message for w in s.waits), "that it is not there yet")
    await pool.apply(spec(2, machine_class="c2", rolling={"pauseAfter": 1}), other)
    await second.when(lambda s: any("it waits by Canary" in w.message for w in s.waits), "that it waits itself")
    assert len(second.started()) == len(set(second.started()) & set(pool.started()))
    assert [w.reason for w in (await second.state()).waits] == ["AfterPool"]
    assert (await second.summary()).updated == 0
    await pool.ask("resume", ResumeIntent())
    await second.rolled_out(1, revision=2)
    assert (await pool.summary()).rolled_out, "the first one was done before"

    await pool.apply(machine_class=snapshot(2, image=3, name="c2"))
    await pool.waits("Canary")
    await second.apply(second.spec, snapshot(2, image=3, name="c2"))
    await second.waits("AfterPool")
    await pool.delete()
    await second.rolled_out(1, revision=3)
    assert await second.noted("NoPoolBefore") in (
        "pool p1 (it is gone) holds up no rollout",
        "pool p1 (it does not exist) holds up no rollout",
    )
    await second.delete()
    await second.gone()


async def test_a_person_does_not_wait_for_it(pool: Pool) -> None:
    await pool.ready(spec(1, rollsAfter={"pool": "p0"}))
    stuck = Pool(pool.client, pool.queue, "p0")
    await stuck.ready(spec(1, paused=True))
    await stuck.apply(machine_class=snapshot(2, image=2))
    await stuck.waits("RolloutPaused")
    await pool.apply(machine_class=snapshot(2, image=2))
    await pool.when(lambda s: any("RolloutPaused" in w.message for w in s.waits), "why it waits")
    assert "AfterPool" in [w.reason for w in (await pool.state()).waits]
    await pool.ask("resume", ResumeIntent(now=True))
    await pool.rolled_out(1, revision=2)


# -- windows and freezes ----------------------------------------------------------------------------------------------


async def test_outside_its_windows_nothing_voluntary_begins(pool: Pool) -> None:
    await rolls(pool, **shut())
    await pool.when(lambda s: any("next window begins at" in w.message for w in s.waits), "when")
    asked: Rehearsal = await pool.handle.query("rehearse", PoolQuestion(restart=True), result_type=Rehearsal)
    assert "next window begins at" in asked.waits[0].message, "a rehearsal foresees it"
    await pool.scale(3)
    await pool.when(lambda s: len(s.members) == 3, "what a person wants is done")
    assert (await pool.state()).rollout is not None
    assert await old_ones(pool) == 2
    assert "outside the maintenance windows" in (await pool.ask("resume", ResumeIntent())).lower()
    words = await pool.ask("resume", ResumeIntent(now=True, requested_by="ann"))
    assert "may begin until" in words
    await pool.rolled_out(3, revision=2)
    assert (await pool.scheduled()).count("work_out_windows") == 1


async def test_a_window_begins_at_its_time_whoever_is_there(temporal: WorkflowEnvironment, idle: Pool) -> None:
    """The deadline is in the state, and another worker goes on with it."""
    windows = [Window(begin="22:00", end="04:00")]
    begins = datetime.now(UTC) + timedelta(hours=2)
    calendar = Calendar(windows=windows, openings=[Opening(begin=begins, end=begins + timedelta(hours=1))])
    state = grown(idle, 2, calendar=calendar, spec=spec(2, maintenance={"windows": [w.model_dump() for w in windows]}))
    newest = state.revisions[0].model_copy(update={"counter": 2, "machine_class": snapshot(2, image=2)})
    await begin(idle, state.model_copy(update={"revisions": [*state.revisions, newest]}))
    async with idle.worker():
        await idle.waits("MaintenanceWindow")
    async with idle.worker():
        await temporal.fast_forward(idle.handle, timedelta(hours=2))
        found = await idle.when(lambda s: any(m.revision == 2 for m in s.members.values()), "it begins")
        await at_once(idle.handle, begins, min(m.created for m in found.members.values() if m.revision == 2))


async def test_a_frozen_pool(pool: Pool) -> None:
    """It waits for its person, or for the end of the time that they gave; another freeze takes the place of the
    first."""
    await pool.ready(spec(2))
    words = await pool.ask("freeze", FreezeIntent(requested_by="ann", reason="sale"))
    assert "by ann: sale" in words
    await pool.apply(machine_class=snapshot(2, image=2))
    assert "by ann: sale" in await pool.waits("Frozen")
    assert (await pool.until_told(2, lambda s: s.waits)).waits[0].reason == "Frozen"
    await pool.ask("freeze", FreezeIntent(requested_by="bob", span=timedelta(seconds=3)))
    await pool.when(lambda s: any("by bob" in w.message for w in s.waits), "whose")
    assert await old_ones(pool) == 2
    await pool.rolled_out(2, revision=2)
    assert "is not frozen" in await pool.ask("unfreeze")
    await pool.ask("freeze", FreezeIntent())
    assert "no longer frozen" in await pool.ask("unfreeze")


async def test_a_frozen_cluster_and_hot_updates(pool: Pool) -> None:
    """Machines are not told of a changed template, and the class is told that they are not to be."""
    await pool.ready(spec(2))
    freeze = Freeze(time=datetime.now(UTC), requested_by="ann")
    await pool.cluster_news(freeze=freeze)
    await pool.apply(spec(2, machine={"drainTimeout": "7m"}))
    assert "a hot update of 2 machines waits" in await pool.waits("Frozen")
    names = await pool.members()

    async def reported() -> list[Opening] | None:
        return pool.calls.of("report_to_class")[-1].report.openings

    await eventually(reported, lambda found: found == [], "the class knows")
    assert [h for n in names for h in await pool.heard(n) if h == "template_changed"] == []
    await pool.cluster_news()
    for name in names:
        await pool.until_heard(name, "template_changed")
    await eventually(reported, lambda found: found is None, "the class knows that too")


async def test_one_place_for_the_machines_of_two_pools(pool: Pool) -> None:
    """A changed template reaches one machine of both at a time: the second pool tells its own once the first has none
    left. A person may go past that."""
    other = Pool(pool.client, pool.queue, "p2")
    one, hot = {UPDATE_CONCURRENCY_ANNOTATION: "1"}, spec(2, machine={"drainTimeout": "7m"})
    later = {**one, UPDATES_AFTER_ANNOTATION: pool.name}
    for p, marks in ((pool, one), (other, later)):
        await p.ready(spec(2), annotations=marks, machine_class=snapshot(habits=(DEAF,)))
    (first, second), theirs = await pool.members(), await other.members()

    async def told() -> set[str]:
        return {n for n in (first, second, *theirs) if "template_changed" in await pool.heard(n)}

    for p, marks in ((pool, one), (other, later)):
        await p.apply(hot, annotations=marks)
    assert "2 machines wait" in await other.waits("UpdatesAfterPool")
    await pool.until_heard(first, "template_changed")
    await pool.be(first, template=2)
    await pool.until_heard(second, "template_changed")
    await pool.when(lambda s: s.members[first].template == 2, "the first has it")
    assert await told() == {first, second}
    await pool.be(second, template=2)
    await other.until_heard(theirs[0], "template_changed")
    assert await told() == {first, second, theirs[0]}
    assert not (await other.state()).waits

    await pool.apply(spec(2, machine={"drainTimeout": "8m"}), annotations=one)
    await other.apply(spec(2, machine={"drainTimeout": "8m"}), annotations=later)
    await other.waits("UpdatesAfterPool")
    assert "without waiting for those of pool p1" in await other.ask("resume", ResumeIntent(now=True))
    await other.until_heard(theirs[0], "template_changed", times=2)
    await other.delete()
    await other.gone()


async def test_a_hot_update_of_the_class_that_is_held_is_a_wait_of_the_pool(pool: Pool) -> None:
    """The class says how many machines wait; of another class that says nothing."""
    await pool.ready(spec(2, **shut()))
    now = datetime.now(UTC)
    await pool.handle.signal("updates_held", UpdatesHeld(machine_class="c0", machines=9, time=now))
    await pool.handle.signal("updates_held", UpdatesHeld(machine_class="c1", machines=2, time=now))
    assert "a hot update of 2 machines waits: next window begins at" in await pool.waits("MaintenanceWindow")
    await pool.handle.signal("updates_held", UpdatesHeld(machine_class="c1", machines=1, time=now - timedelta(hours=1)))
    await pool.handle.signal("updates_held", UpdatesHeld(machine_class="c1", machines=0, time=now))
    await pool.when(lambda s: not s.waits, "nothing waits")


async def test_gates_are_kept_in_a_new_run(pool: Pool) -> None:
    await rolls(pool, **APPROVAL, **shut())
    await pool.ask("freeze", FreezeIntent(span=timedelta(hours=1)))
    await pool.when(lambda s: {w.reason for w in s.waits} == {"Approval", "Frozen"} and s.calendar is not None)
    before, run = await pool.state(), await pool.run_id()
    await pool.ask("renew")
    await pool.another_run(run)
    after = await pool.when(lambda s: s.searched and s.registered)

    def gates(s: PoolState) -> Any:
        return s.freeze, s.calendar, s.rollout and s.rollout.consent, [(w.reason, w.since) for w in s.waits]

    assert gates(before) == gates(after)

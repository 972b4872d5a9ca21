"""MachineDeploymentWorkflow: what people and the class ask of it, by update and by signal, and what counts once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from lifekit import eventually
from pools.workflow import DEAF, PlayedMachine, Pool, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from planners.pool.plan import ObservedPool
from planners.pool.view import View
from resources.intents import Answer, Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState
from resources.names import TRIGGER_DELETION_ANNOTATION, UPDATE_CONCURRENCY_ANNOTATION
from resources.pool.intents import PoolIntent, ScaleIntent, UndoIntent
from resources.pool.state import Gate, PoolState
from workflows.pool.details import details


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """A pool without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


# -- each by update and by signal, and once ---------------------------------------------------------------------------


def applied() -> PoolIntent:
    return PoolIntent(spec=spec(0, minReadySeconds=7), machine_class=snapshot())


INTENTS: dict[str, tuple[Callable[[], Intent], Callable[[PoolState], object]]] = {
    "apply": (applied, lambda s: s.spec.min_ready_seconds == 7),
    "scale": (lambda: ScaleIntent(replicas=2), lambda s: s.spec.replicas == 2),
    "undo": (UndoIntent, lambda s: s.revision == 3),
    "pause": (lambda: Intent(requested_by="alice"), lambda s: s.paused and s.paused_by == "alice"),
    "resume": (Intent, lambda s: not s.spec.paused),
    "abort": (Intent, lambda s: s.rollout and s.rollout.gate is Gate.ABORTED),
    "restart": (Intent, lambda s: s.revision == 3),
    "hibernate": (Intent, lambda s: s.spec.hibernated),
    "wake": (Intent, lambda s: not s.spec.hibernated),
    "delete": (DeleteIntent, lambda s: s.deleted),
}
"""What is asked, and what it makes of a pool in the midst of a paused rollout to revision 2."""


@pytest_asyncio.fixture
async def rolling(pool: Pool) -> Pool:
    """A pool in a rollout that its manifest pauses."""
    await pool.ready(spec(1, paused=True))
    await pool.apply(machine_class=snapshot(2, image=2))
    await pool.waits("RolloutPaused")
    return pool


WAYS = ("update", "signal")
FIRST = [
    pytest.param(name, way, marks=[] if way == WAYS[n % 2] else [pytest.mark.exhaustive])
    for n, name in enumerate(INTENTS)
    for way in WAYS
]
"""The way by which an intent arrives first: `intent()` makes both alike, and each is tried with every other intent."""


@pytest.mark.parametrize(("name", "way"), FIRST)
async def test_each_intent(rolling: Pool, name: str, way: str) -> None:
    pool, (make, came_about) = rolling, INTENTS[name]
    if name == "wake":
        await pool.ask("hibernate")
    intent = make().model_copy(update={"id": "one"})
    if way == "update":
        answer = await pool.ask(name, intent, id="one")
        assert answer
    else:
        await pool.handle.signal(name, intent)
    found = await pool.when(lambda s: "one" in s.intents and came_about(s), name)

    # A second arrival, by either way, changes nothing and gets the first answer.
    await pool.handle.signal(name, intent)
    again: Answer = await pool.handle.execute_update(name, intent, id="again", result_type=Answer)
    assert again.message == found.intents["one"] != ""
    assert _asked(await pool.state()) == _asked(found)


def _asked(s: PoolState) -> object:
    """What intents leave behind."""
    noted = [h for h in s.journal if h.reason in ("Applied", "Revised", "DeleteAsked", "Refused")]
    return noted, s.spec, s.revision, s.paused, s.deleted, s.intents


REFUSED: dict[str, tuple[Intent, str]] = {
    "apply": (PoolIntent(spec=spec(0), machine_class=snapshot(name="c2")), "the template names class c1, not c2"),
    "scale": (ScaleIntent(replicas=3, current=9), "has 1 replicas, not 9: nothing was changed"),
    "undo": (UndoIntent(to=7), "revision 7 does not exist; the revisions are 1"),
    "abort": (Intent(), "has no rollout to abort"),
}


async def test_what_is_refused(pool: Pool) -> None:
    """An update is refused with a reason, a signal with a line in the journal; and nothing was changed."""
    await pool.ready(spec(1))
    assert await pool.refused("undo", UndoIntent()) == "pool p1: there is no earlier revision to go back to"
    intent = pool.manifest(annotations={UPDATE_CONCURRENCY_ANNOTATION: "0"})
    assert "'0' is not a number of machines; write 1 or more" in await pool.refused("apply", intent)
    assert await pool.apply(annotations={UPDATE_CONCURRENCY_ANNOTATION: "3"}) == "configured"
    await pool.apply(machine_class=snapshot(2, image=2))
    await pool.rolled_out(1, revision=2)
    before = await pool.state()
    for name, (intent, words) in REFUSED.items():
        assert words in await pool.refused(name, intent)
    assert (await pool.state()).journal == before.journal
    for name, (intent, words) in REFUSED.items():
        await pool.handle.signal(name, intent)
        await pool.when(lambda s, w=words: any(h.reason == "Refused" and w in h.message for h in s.journal), words)
    after = await pool.state()
    assert (after.spec, after.revision, after.rollout) == (before.spec, before.revision, before.rollout)

    # A refusal is no answer for a later arrival: the same intent may count then.
    intent = ScaleIntent(id="one", replicas=3, current=2)
    await pool.handle.signal("scale", intent)
    await pool.when(lambda s: sum("replicas, not 2" in h.message for h in s.journal) == 1, "refused")
    await pool.scale(2)
    assert await pool.ask("scale", intent, id="one") == "scaled; replicas 2 → 3"


# -- apply ------------------------------------------------------------------------------------------------------------


async def test_what_an_apply_changes(pool: Pool) -> None:
    await pool.ready(spec(2))
    assert await pool.apply() == "unchanged"
    assert await pool.apply(labels={"team": "a"}) == "configured"
    answer = await pool.apply(spec(3, surge=2, minReadySeconds=1, repair={"maxConcurrent": 2}), labels={"team": "a"})
    assert answer == "configured; replicas 2 → 3; strategy changed; minReadySeconds changed; repair changed"
    assert await pool.apply(spec(3, surge=2, paused=True)) == (
        "configured; rollouts paused; minReadySeconds changed; repair changed"
    )
    found = await pool.state()
    assert (found.labels, found.revision) == ({}, 1)
    await pool.rolled_out(3)
    assert len(pool.started()) == 3


async def test_a_hot_template_replaces_nobody(pool: Pool) -> None:
    await pool.ready(spec(2))
    intent = pool.manifest(spec(2, machine={"drainTimeout": "5m"})).model_copy(update={"requested_by": "alice"})
    assert await pool.ask("apply", intent) == "configured; hot update of 2 machines"
    found = await pool.when(lambda s: all(m.template == 2 for m in s.members.values()), "all have it")
    assert await pool.noted("TemplateChanged") == "generation 2 of the template by alice"
    assert (found.revision, len(pool.started())) == (1, 2)
    await pool.scale(3)
    await pool.rolled_out(3)
    young: MachineState = await pool.machine(pool.started()[-1]).query(PlayedMachine.describe)
    assert (young.template, str(young.spec.drain_timeout)) == (2, "0:05:00")
    assert await pool.heard(pool.started()[-1]) == []


async def test_a_new_revision_with_another_template_reaches_the_old_ones_too(pool: Pool) -> None:
    """They may stay for long, as the rollout is paused."""
    await pool.ready(spec(1, paused=True))
    (old,) = await pool.members()
    answer = await pool.apply(spec(1, paused=True, machine={"drainTimeout": "5m"}), snapshot(2, image=2))
    assert answer.startswith(
        "configured; revision 2 replaces 1 machine; hot update of 1 machine; its rollouts are paused"
    )
    await pool.when(lambda s: s.members[old].template == 2)


async def test_a_class_that_changes_in_tags_only_replaces_nobody(pool: Pool) -> None:
    """The machines hear of it from the class itself; those to come are made with it. Another spelling is no change."""
    await pool.ready(spec(1))
    spelled = {"networkInterfaces": [{"subnetID": "s", "securityGroupIDs": ["g"], "deviceIndex": 0}]}
    changed = snapshot(2, team="b")
    await pool.class_changed(changed.model_copy(update={"provider_spec": changed.provider_spec | spelled}))
    await pool.when(lambda s: s.machine_class and s.machine_class.generation == 2)
    await pool.scale(2)
    found = await pool.rolled_out(2)
    assert (found.revision, found.revisions[0].generation) == (1, 2)
    young: MachineState = await pool.machine(pool.started()[-1]).query(PlayedMachine.describe)
    assert young.machine_class == snapshot(2, team="b")


async def test_a_class_that_rolls_makes_a_revision(pool: Pool) -> None:
    await pool.ready(spec(1))
    await pool.class_changed(snapshot(2, image=2), requested_by="bob", reason="a patch")
    await pool.rolled_out(1, revision=2)
    assert await pool.noted("Revised") == "revision 2 replaces 1 machine by bob: a patch"
    await pool.class_changed(snapshot(1))  # overtaken
    await pool.class_changed(snapshot(3, image=2, team="b"))
    found = await pool.when(lambda s: s.machine_class and s.machine_class.generation == 3)
    assert found.revision == 2


async def test_news_of_a_class_that_is_not_its_own_any_more(pool: Pool) -> None:
    await pool.ready(spec(1))
    answer = await pool.apply(spec(1, machine_class="c2"), snapshot(name="c2"))
    assert answer == "configured; revision 2 replaces 1 machine"
    await pool.rolled_out(1, revision=2)
    left = [(i.machine_class.name, [c.name for c in i.left]) for i in pool.calls.of("report_to_class")]
    assert left == [("c1", []), ("c2", ["c1"])]
    await pool.handle.signal("class_changed", {"machineClass": snapshot(9, image=9).model_dump(by_alias=True)})

    async def told() -> list[tuple[str, list[str]]]:
        return [(i.machine_class.name, [c.name for c in i.left]) for i in pool.calls.of("report_to_class")]

    await eventually(told, lambda t: t[-1] == ("c2", ["c1"]) and len(t) == 3, "the former class hears it once more")
    assert (await pool.state()).revision == 2


async def test_back_to_a_former_class_by_apply(pool: Pool) -> None:
    """Its machines are of a key that was there before: they are the newest revision's again, and stay."""
    await pool.ready(spec(2, paused=True))
    first = await pool.members()
    await pool.apply(spec(2, paused=True, machine_class="c2"), snapshot(name="c2"))
    assert await pool.apply(spec(2, paused=True), snapshot()) == "configured; revision 3"
    await pool.rolled_out(2, revision=3)
    assert await pool.members() == first


async def test_a_corrected_image_needs_no_canary_where_all_machines_have_it(pool: Pool) -> None:
    """The bad one was tried on one machine, which goes. Nobody has to resume anything."""
    await pool.ready(spec(2, rolling={"pauseAfter": 1}))
    first = await pool.members()
    await pool.class_changed(snapshot(2, image=2))
    await pool.when(lambda s: len(s.members) == 3, "the canary")
    await pool.class_changed(snapshot(3))
    await pool.rolled_out(2, revision=3)
    assert await pool.members() == first


# -- undo, restart ----------------------------------------------------------------------------------------------------


async def test_an_undone_edit_of_a_class_stays_undone(pool: Pool) -> None:
    """The class was edited in place. What the class says next changes only tags, which brings nothing back; an edit of
    what rolls does."""
    await pool.ready(spec(1))
    await pool.class_changed(snapshot(2, image=2))
    await pool.rolled_out(1, revision=2)
    assert await pool.undo() == "back to revision 1; revision 3 replaces 1 machine"
    found = await pool.rolled_out(1, revision=3)
    assert [r.generation for r in found.revisions] == [2, 1], "what was undone is nobody's word"
    assert _image(await pool.state()) == ("ami-1", "a")
    await pool.class_changed(snapshot(3, image=2, team="b"))
    await pool.when(lambda s: s.machine_class and s.machine_class.generation == 3)
    assert _image(await pool.state()) == ("ami-1", "b")
    made_from = (await pool.state()).revisions[-1].machine_class
    assert made_from.words == "c1, generation 1, with the updatable fields of 3"
    assert (await pool.state()).revision == 3
    assert await pool.apply() == "unchanged"
    assert (await pool.state()).revision == 3
    await pool.class_changed(snapshot(4, image=3, team="b"))
    found = await pool.rolled_out(1, revision=4)
    assert found.revisions[-1].generation == 4
    assert _image(await pool.state()) == ("ami-3", "b")


def _image(state: PoolState) -> tuple[str, str]:
    made_from = state.revisions[-1].machine_class.provider_spec
    return made_from["ami"], made_from["vmTags"]["team"]


async def test_undone_to_a_class_of_another_name(pool: Pool) -> None:
    """The pool has not heard of that class for long: what has become of it meanwhile does not count either."""
    await pool.ready(spec(1))
    await pool.apply(spec(1, machine_class="c2"), snapshot(5, name="c2", image=5))
    await pool.rolled_out(1, revision=2)
    assert await pool.undo(to=1) == "back to revision 1; revision 3 replaces 1 machine"
    found = await pool.rolled_out(1, revision=3)
    assert found.machine_class == "c1"
    await pool.class_changed(snapshot(8, image=8, team="b"))
    await pool.when(lambda s: s.machine_class and s.machine_class.generation == 8)
    assert _image(await pool.state()) == ("ami-1", "b")
    assert await pool.undo(to=2) == "back to revision 2; revision 4 replaces 1 machine"
    found = await pool.rolled_out(1, revision=4)
    assert [(r.revision, r.machine_class) for r in found.revisions] == [(3, "c1"), (4, "c2")]


async def test_an_undo_takes_its_template_back(pool: Pool) -> None:
    await pool.ready(spec(1, paused=True))
    (name,) = await pool.members()
    default = pool.spec.template.spec.drain_timeout
    await pool.apply(spec(1, paused=True, machine={"drainTimeout": "5m"}), snapshot(2, image=2))
    await pool.when(lambda s: s.members[name].template == 2)
    assert await pool.undo() == "back to revision 1; revision 3; hot update of 1 machine"
    found = await pool.when(lambda s: s.members[name].template == 3)
    assert (found.members[name].revision, found.spec.template.spec.drain_timeout) == (3, default)
    assert len(pool.started()) == 1


async def test_restart_makes_new_machines_of_the_same(pool: Pool) -> None:
    await pool.ready(spec(2))
    first = await pool.members()
    assert await pool.ask("restart") == "restarted; revision 2 replaces 2 machines"
    await pool.rolled_out(2, revision=2)
    assert not set(first) & set(await pool.members())
    assert await pool.apply() == "unchanged"
    assert await pool.ask("restart", Intent(reason="once more")) == "restarted; revision 3 replaces 2 machines"
    found = await pool.rolled_out(2, revision=3)
    assert [r.reason for r in found.revisions] == ["", "restarted", "once more"]


# -- marks for deletion -----------------------------------------------------------------------------------------------


async def test_what_cluster_autoscaler_marks(pool: Pool) -> None:
    """It marks them on the pool, in one write with the replicas: the marked ones go, and no others."""
    await pool.ready(spec(3))
    names = await pool.members()
    marks = f"{names[2]}~2026-01-01T00:00:00Z,{names[0]},gone-long-ago"
    answer = await pool.apply(spec(1), annotations={TRIGGER_DELETION_ANNOTATION: marks})
    assert answer == f"configured; marked for deletion: {names[2]}, {names[0]}; replicas 3 → 1"
    await pool.rolled_out(1)
    assert await pool.members() == [names[1]]


# -- words ------------------------------------------------------------------------------------------------------------


async def test_the_page_in_the_web_ui(pool: Pool) -> None:
    await pool.ready(spec(2, paused=True))
    await pool.be(*await pool.members(), habits=[DEAF])
    await pool.apply(machine_class=snapshot(2, image=2))
    await pool.waits("RolloutPaused")
    shown = details(await pool.state(), await _view(pool))
    for words in (
        "### Pool p1, revision 2",
        "2 of 2 machines, 2 available; 2 VMs of 3 allowed",
        "Rollout of revision 2 since",
        "0 of 2 available, 2 of older revisions left",
        "Revision 1, Running: 2",
        "- **RolloutPaused** since",
        "What can be done:",
        "Created: pool of 2 machines of class c1",
    ):
        assert words in shown


async def _view(pool: Pool) -> Any:
    s = await pool.state()
    return View(ObservedPool(s.members, s.revision, s.rollout, s.pace), s.spec, s.waits[0].since)

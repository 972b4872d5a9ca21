"""ControlPlaneWorkflow on the real server; its machines are stand-ins."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from control_plane.workflow import DOMAINS, NEVER_JOINS, SLOW, ControlPlane, snapshot, wanted
from lifekit import eventually
from temporalio.testing import WorkflowEnvironment

from resources.calls.cluster import ControlPlaneNode
from resources.control_plane.summary import ControlPlaneQuestion
from resources.fleet.member import Vm
from resources.intents import Intent
from resources.machine.state import Phase
from resources.pool.intents import UndoIntent
from workflows.control_plane import ControlPlaneWorkflow
from workflows.control_plane.entity import RENEW_AFTER


@pytest_asyncio.fixture
async def cp(temporal: WorkflowEnvironment) -> AsyncIterator[ControlPlane]:
    it = ControlPlane(temporal.client)
    async with it.worker():
        yield it
        await it.end()


async def test_a_rolling_update_replaces_index_by_index(cp: ControlPlane) -> None:
    """Machines that were made by hand are taken over, keep their indexes, and are replaced one after the other."""
    olds = await cp.ready()
    assert {m.placement.index for m in (await cp.state()).members.values() if m.placement} == {0, 1, 2}
    await cp.class_changed(snapshot(generation=2, team="b"))
    bigger = snapshot(generation=3, type="m5.xlarge")
    assert "revision 2 replaces 3 machines" in await cp.apply(machine_class=bigger)
    done = await cp.done(revision=2)
    assert [h.name[:3] for i in done.indexes for h in i.hosts] == ["cp-"] * 3
    steps = [words.split(":")[0] for words in await cp.journal("IndexFilled", "Replaced", "HoldLifted")]
    assert steps == [
        step
        for index, old in enumerate(olds)
        for step in (f"a machine is created for index {index}", f"{old} is deleted", f"{old} goes")
    ], "a tag alone has replaced nothing"
    assert all(m.phase is Phase.RUNNING for m in (await cp.state()).members.values())


async def test_on_delete_two_at_once(cp: ControlPlane) -> None:
    """Both are replaced at once; they go one after the other, each when its replacement is ready."""
    names = await cp.ready(wanted(strategy="OnDelete"), habits=(SLOW,))
    await cp.delete(names[0], names[1])
    news = await cp.members(prefix="cp-", count=2)
    assert {n[-1] for n in news} == {"0", "1"}
    assert "master-0 is being deleted, and stays" in await cp.waits("WaitsForReplacement")
    assert await cp.journal("HoldLifted") == []
    await cp.be(news[0], phase=Phase.RUNNING)
    await cp.be(news[1], phase=Phase.RUNNING)
    await cp.done(without=names[:2])
    assert sorted(w.split(":")[0] for w in await cp.journal("HoldLifted")) == ["master-0 goes", "master-1 goes"]


async def test_a_persons_deletion_waits_for_its_replacement(cp: ControlPlane) -> None:
    names = await cp.ready(habits=(SLOW,))
    await cp.delete(names[1])
    (new,) = await cp.members(prefix="cp-")
    await cp.waits("WaitsForReplacement")
    summary = await cp.summary()
    assert [(h.held, h.ready) for h in summary.indexes[1].hosts] == [(True, True), (False, False)]
    assert "waits for its replacement" in await cp.refused("delete")
    await cp.delete(names[2], force=True)  # a person who forces it is obeyed, whatever it costs
    await cp.gone(names[2])
    assert names[1] in (await cp.state()).members
    await cp.be(new, phase=Phase.RUNNING)
    await cp.gone(names[1])


async def test_a_template_that_never_joins_is_undone(cp: ControlPlane) -> None:
    """The failed replacement closes the gate; going back removes it, and nothing else."""
    names = await cp.ready()
    await cp.apply(machine_class=snapshot(generation=2, team="b", habits=(NEVER_JOINS,), type="m5.xlarge"))
    assert "cannot become ready: cp-" in await cp.waits("FailedReplacement")
    assert (await cp.phase()) == "Stopped"
    assert "revision 3 replaces 1 machine" in await cp.ask("undo", UndoIntent())
    done = await cp.done(revision=3)
    assert [h.name for i in done.indexes for h in i.hosts] == names


async def test_an_ill_machine_is_replaced(cp: ControlPlane) -> None:
    names = await cp.ready()
    await cp.be(names[0], phase=Phase.UNKNOWN, asks=True)
    await cp.gone(names[0])
    await cp.done()
    assert await cp.journal("Unhealthy") == [f"{names[0]} is deleted: it is unhealthy"]


async def test_a_failed_machine_is_kept_on_request(cp: ControlPlane) -> None:
    """It is not deleted but Failed, replaced, drained when its replacement is ready, and then preserved; and while it
    is kept it holds up no rollout."""
    first, ill, _ = await cp.ready()
    await cp.machine(ill).signal("keep")
    await cp.be(ill, phase=Phase.UNKNOWN, asks=True, place={"node_ready": False})
    await cp.when(lambda s: s.members[ill].preserved_until is not None, "it is preserved")
    told = [word for word in await cp.heard(ill) if word not in ("owned", "template_changed")]
    assert told == ["permit", "hook ControlPlaneReplacement", "preserve_granted"]
    summary = await cp.done()
    assert [w.reason for w in summary.waits] == ["FailedPreserved"]
    assert ill not in [h.name for i in summary.indexes for h in i.hosts]
    assert (len(await cp.members("cp-")), "delete" in await cp.heard(ill)) == (1, False)
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    await cp.done(revision=2, without=[first])
    assert ill in await cp.members()
    await cp.be(ill, phase=Phase.TERMINATING, vm=Vm.GONE, ended=True)
    await cp.gone(ill)


async def test_its_runs_are_short(cp: ControlPlane) -> None:
    """A worker that has lost a run reads all of it again before it decides anything."""
    await cp.ready()
    run = (await cp.handle.describe()).run_id
    for _ in range(RENEW_AFTER):
        await cp.cluster_news()
    await eventually(cp.handle.describe, lambda found: found.run_id != run, "a new run")
    await cp.delete("master-1")
    await cp.done(without=["master-1"])


async def test_nothing_is_replaced_on_old_news(cp: ControlPlane) -> None:
    names = await cp.ready()
    await cp.cluster_news(reachable=False, message="the API server is silent", silent={"": "the API server is silent"})
    await cp.waits("Unreachable")
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    await cp.be(names[0], phase=Phase.UNKNOWN, asks=True)
    await cp.when(lambda s: s.members[names[0]].phase is Phase.UNKNOWN, "one is ill")
    assert await cp.members() == names
    await cp.cluster_news()
    await cp.done(revision=2)


async def test_a_pause_says_what_would_happen(cp: ControlPlane) -> None:
    names = await cp.ready()
    await cp.ask("pause", Intent(requested_by="alice"))
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    assert "alice paused it. Otherwise: a machine is created for index 0" in await cp.waits("RolloutPaused")
    assert await cp.members() == names
    await cp.ask("resume")
    await cp.done(revision=2)


async def test_one_that_is_inactive_only_looks_on(cp: ControlPlane) -> None:
    names = await cp.ready(wanted(state="Inactive"))
    assert await cp.members() == names
    summary = await cp.summary()
    assert [h.outdated for i in summary.indexes for h in i.hosts] == [""] * 3
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    await cp.delete(names[0])
    await cp.gone(names[0])  # nobody holds it
    assert await cp.members() == names[1:]
    assert {w.reason for w in (await cp.state()).waits} == {"Inactive"}
    question = ControlPlaneQuestion(spec=wanted())
    told = await cp.handle.query(ControlPlaneWorkflow.rehearse, question)
    assert [s.message.split(":")[0] for s in told.plans[0]] == ["a machine is created for index 0"]
    assert told.replaced == names[1:]
    await cp.apply(wanted())
    await cp.done(revision=2)


async def test_machines_stay_when_it_is_deleted(cp: ControlPlane) -> None:
    """C-V17."""
    names = await cp.ready()
    await cp.ask("delete")
    await cp.over()
    for name in names:
        assert "released" in await cp.heard(name)
    assert cp.calls.of("forget_pool")
    await cp.start()  # another set takes them over
    cp.nodes = [ControlPlaneNode(name=f"node-{name}", machine=name) for name in names]
    assert [h.name for i in (await cp.done()).indexes for h in i.hosts] == names


async def test_failure_domains_are_kept_and_balanced(cp: ControlPlane) -> None:
    """Machines are recognised where they are; another domain moves as few as it must."""
    names = await cp.ready(wanted(failure_domains=DOMAINS), zones=True)
    assert [i.failure_domain for i in (await cp.summary()).indexes] == list(DOMAINS)
    two = {zone: DOMAINS[zone] for zone in list(DOMAINS)[:2]}
    await cp.apply(wanted(failure_domains=two))
    done = await cp.done(without=names[2:])
    assert [h.name for i in done.indexes[:2] for h in i.hosts] == names[:2]
    (new,) = done.indexes[2].hosts
    assert new.failure_domain in two
    assert (await cp.machine_state(new.name)).domain == two[new.failure_domain]


async def test_a_node_that_nobody_knows_closes_the_gate(cp: ControlPlane) -> None:
    names = await cp.by_hand()
    cp.nodes.append(ControlPlaneNode(name="master-9"))
    await cp.start()
    assert "master-9" in await cp.waits("UnmanagedNodes")
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    assert await cp.members(count=3) == names
    cp.nodes = []
    await cp.ask("renew")  # a new run looks at once
    await cp.done(revision=2, without=names)


async def test_a_life_in_the_strict_sandbox(temporal: WorkflowEnvironment) -> None:
    cp = ControlPlane(temporal.client)
    async with cp.worker(strict=True):
        names = await cp.ready()
        await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
        await cp.done(revision=2, without=names)
        await cp.ask("delete")
        await cp.over()
    await cp.deps.close()

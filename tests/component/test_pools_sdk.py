"""HostlerClient.pools: with the real pool, rollout and class workflows, and machines that are played."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli.place import Place, class_yaml, eventually, impatient, place, text
from paths import ROOT
from pools.behind_cli import Machines, played, pool_yaml

from resources.fleet.rehearsal import Rehearsal, RehearsedStep
from resources.fleet.state import FleetWait
from resources.manifests import AnyManifest, load_manifests
from resources.names import pool_id
from resources.owner import Owner
from resources.pool.intents import PoolQuestion, PoolSummary
from resources.settings import load_settings
from starter.commands import rollout_history
from starter.commands.kinds import POOL as POOL_KIND
from starter.sdk.apply.diff import HOT, POOL, ROLL, _pool_effect
from starter.sdk.client import HostlerClient
from starter.sdk.control_plane.shelf import ControlPlanes
from starter.sdk.errors import HostlerError, NoAnswer, NotFound, Refused, WaitTimeout
from starter.sdk.fleet import rehearsal
from starter.sdk.fleet.waiting import Goal, reached
from starter.sdk.pools import rollout_look
from starter.sdk.pools.results import PoolDescription, PoolListed
from starter.sdk.pools.rollout_status import judge, where
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Verb

__all__ = ["impatient", "place"]  # fixtures
NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
SDK = ROOT / "docs" / "sdk.md"


def client_of(place: Place) -> HostlerClient:
    return HostlerClient(place.client, load_settings(place.settings_file), requested_by="tester")


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


@pytest.fixture
def hostler(place: Place) -> HostlerClient:
    return client_of(place)


def parsed(*documents: dict[str, Any]) -> list[AnyManifest]:
    loaded = load_manifests(text(*documents), "test")
    return [*loaded.classes, *loaded.pools, *loaded.machines]


async def ready(hostler: HostlerClient, *documents: dict[str, Any]) -> None:
    """A pool that is applied, and rolled out; the class knows the pool."""
    await hostler.apply(*parsed(*documents))
    await hostler.pools.wait("p1")

    async def known() -> bool:
        with suppress(NoAnswer):
            return Owner(name="p1").user in (await hostler.classes.get("c1")).users
        return False

    await eventually(known, "pool p1 among the users")


def test_the_documentation_names_every_method() -> None:
    for shelf, attribute in ((Pools, "pools"), (ControlPlanes, "control_planes")):
        told = set(re.findall(rf"`{attribute}\.(\w+)\(", SDK.read_text()))
        found = inspect.getmembers(shelf, inspect.iscoroutinefunction)
        assert told == {name for name, _ in found if not name.startswith("_")} - {"send", "tell", "unknown"}


# -- apply ------------------------------------------------------------------------------------------------------------


async def test_two_who_apply_a_pool_at_once_make_one(hostler: HostlerClient, machines: Machines) -> None:
    await hostler.apply(*parsed(class_yaml()))
    first = await hostler.plan(*parsed(pool_yaml()))
    second = await hostler.plan(*parsed(pool_yaml(replicas=5)))
    assert [str(a) async for a in first.execute()] == ["machinedeployment/p1 created"]
    await hostler.pools.wait("p1")
    assert [str(a) async for a in second.execute()] == ["machinedeployment/p1 configured: replicas 3 → 5"]
    await hostler.pools.wait("p1")
    assert len(machines.there) == 5


async def test_who_made_a_pool_is_said_by_its_first_revision(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    assert [r.requested_by for r in (await hostler.pools.summary("p1")).revisions] == ["tester"]


async def test_who_scales_while_another_applies_keeps_that(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    bare = pool_yaml(minReadySeconds=1)
    del bare["spec"]["replicas"]
    plan = await hostler.plan(*parsed(bare))
    await hostler.pools.scale("p1", 5)
    said = [str(a) async for a in plan.execute()]
    assert said == ["machinedeployment/p1 configured: minReadySeconds changed; replicas kept at 5"]
    assert (await hostler.pools.get("p1")).spec.replicas == 5


async def test_what_is_not_a_change_is_not_sent(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    plan = await hostler.plan(*parsed(class_yaml(), pool_yaml()))
    assert [(s.verb, s.run) for s in plan.steps] == [(Verb.UNCHANGED, None)] * 2
    labelled = pool_yaml()
    labelled["metadata"]["labels"] = {"team": "a"}
    assert [str(a) for a in await hostler.apply(*parsed(labelled))] == ["machinedeployment/p1 configured"]
    assert (await hostler.pools.get("p1")).labels == {"team": "a"}


async def test_a_pool_that_goes_is_not_applied(hostler: HostlerClient, place: Place, impatient: None) -> None:
    await hostler.apply(*parsed(class_yaml(), pool_yaml()))
    assert (await hostler.pools.delete("p1")).recorded  # no worker is there: it stays on its way out
    with pytest.raises(
        Refused, match=r"^pool p1: it is being deleted: wait until it is gone \(hostler wait pool p1 --for="
    ):
        await hostler.apply(*parsed(pool_yaml()))


async def test_one_pool_that_is_refused_does_not_hold_up_the_others(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    plan = await hostler.plan(*parsed(pool_yaml(replicas=1), pool_yaml("p2", replicas=1)))
    await hostler.pools.delete("p1")
    await hostler.pools.wait("p1", "deleted")
    done = []

    async def execute() -> None:
        async for applied in plan.execute():
            done.append(str(applied))

    with pytest.raises(Refused, match=r"^pool p1 is gone$"):
        await execute()
    assert done == ["machinedeployment/p2 created"]


# -- the class --------------------------------------------------------------------------------------------------------


async def test_a_pool_is_not_rolled_out_before_it_has_heard_of_its_class(
    hostler: HostlerClient, machines: Machines
) -> None:
    """The class answers first, and then tells its users."""
    await ready(hostler, class_yaml(), pool_yaml())
    listed = (await hostler.pools.look("p1")).listed
    assert await hostler.pools.unheard(listed) == 0
    await hostler.apply(*parsed(class_yaml(ami="ami-2")))
    found = await hostler.pools.wait("p1")
    assert found.summary is not None
    assert (found.summary.revision, found.summary.revisions[-1].generation) == (2, 2)
    assert await hostler.pools.unheard(found.listed) == 0


async def test_what_a_pool_has_not_heard_of_is_known(hostler: HostlerClient, place: Place, impatient: None) -> None:
    async with played(place):
        await ready(hostler, class_yaml(), pool_yaml())
    assert "recorded" in str((await hostler.apply(*parsed(class_yaml(ami="ami-2"))))[0])  # nobody tells it
    assert await hostler.pools.unheard((await hostler.pools.look("p1")).listed) == 2
    assert await hostler.pools.unheard(PoolListed("p1", place.cluster, NOW)) == 0


# -- read -------------------------------------------------------------------------------------------------------------


async def test_reading(hostler: HostlerClient, place: Place, machines: Machines) -> None:
    assert await hostler.pools.find("p1") is None
    assert await hostler.pools.current("p1") is None
    await ready(hostler, class_yaml(), pool_yaml())

    async def listed() -> list[PoolListed]:
        return await hostler.pools.list()

    (found,) = await eventually(listed, "the pool in a list")
    assert (found.name, found.cluster, found.machine_class) == ("p1", place.cluster, "c1")
    assert found.summary is not None
    assert found.summary.available == 3
    assert place.cluster in {p.cluster for p in await hostler.pools.list(all_clusters=True)}
    assert await hostler.pools.list(cluster="elsewhere") == []
    assert len((await hostler.pools.get("p1")).members) == 3
    told = [event.reason for event in await hostler.pools.events("p1")]
    assert told[:2] == ["Started", "Created"]
    assert await hostler.pools.any_of_class("c1")
    assert not await hostler.pools.any_of_class("c2")
    described = await hostler.pools.describe("p1")
    assert described.state is not None
    assert described.web is not None
    assert described.running
    for call in (hostler.pools.get, hostler.pools.look, hostler.pools.describe, hostler.pools.events):
        with pytest.raises(NotFound, match="did you mean p1"):
            await call("p11")
    with pytest.raises(Refused, match="is not a name"):
        await hostler.pools.get("P 1")


async def test_what_was_asked_for_is_known_without_a_worker(
    hostler: HostlerClient, place: Place, impatient: None
) -> None:
    async with played(place):
        await ready(hostler, class_yaml(), pool_yaml(paused=True))
    pools = hostler.pools
    for sent in (
        await pools.scale("p1", 7, current=3),
        await pools.scale("p1", 9, current=4),  # the pool will refuse it
        await pools.hibernate("p1"),
        await pools.pause("p1"),
        await pools.resume("p1"),
    ):
        assert sent.recorded
    await place.client.get_workflow_handle(pool_id(place.cluster, "p1")).signal("scale", "typed by hand, and wrong")
    state = await pools.current("p1")
    assert state is not None
    assert (state.spec.replicas, state.spec.hibernated, state.spec.paused, state.deleted) == (7, True, False, False)
    assert (await pools.wake("p1")).recorded
    assert (await pools.delete("p1")).recorded
    state = await pools.current("p1")
    assert state is not None
    assert (state.spec.hibernated, state.deleted) == (False, True)
    with pytest.raises(NoAnswer, match="pool p1 cannot be asked: nobody polls"):
        await pools.get("p1")
    with pytest.raises(NoAnswer, match="pool p1 cannot be asked: nobody polls"):
        await pools.summary("p1")
    with pytest.raises(WaitTimeout, match=r"is not deleted, after .*its numbers are not known: nobody polls"):
        await pools.wait("p1", "deleted", timeout=timedelta(seconds=0.1))
    async with played(place):  # what was recorded is done
        assert (await pools.wait("p1", "deleted")).status == "COMPLETED"


# -- rollouts ---------------------------------------------------------------------------------------------------------


async def test_the_stories_of_rollouts(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    with pytest.raises(NotFound, match="pool p1 has no rollout that Temporal knows"):
        await hostler.pools.rollout("p1")
    with pytest.raises(NotFound, match="the rollout of revision 7 of pool p1 is not known"):
        await hostler.pools.rollout("p1", 7)
    machines.slow.add(2)
    await hostler.apply(*parsed(class_yaml(ami="ami-2")))

    async def told() -> bool:
        try:
            state = (await hostler.pools.rollout("p1")).listed.state
        except NotFound:
            return False  # the pool has not heard of its class yet
        return state is not None and bool(state.steps)

    await eventually(told, "the steps of the rollout")
    found = await hostler.pools.rollout("p1")
    assert (found.running, found.failure, found.listed.revision) == (True, "", 2)
    assert found.listed.state is not None
    assert found.listed.state.steps[0].reason == "RolledOut"
    machines.slow.clear()
    await machines.join(2)
    result = await hostler.pools.rollout_result("p1", 2)
    assert (result.outcome, result.counts.updated) == ("Complete", 3)
    await hostler.pools.restart("p1", reason="a new kernel")
    await hostler.pools.wait("p1")
    await hostler.pools.rollout_result("p1", 3)

    async def listed() -> list[tuple[int, str]]:
        rollouts = [(r.revision, r.phase) for r in await hostler.pools.rollouts("p1")]
        return rollouts if {p for _, p in rollouts} == {"Complete"} and len(rollouts) == 2 else []

    assert await eventually(listed, "both rollouts in a list") == [(3, "Complete"), (2, "Complete")]
    assert await hostler.pools.rollouts("p2") == []
    assert (await hostler.pools.rollout("p1")).listed.revision == 3


async def test_rollouts_of_a_former_pool_of_the_name_are_not_its_own(
    hostler: HostlerClient, machines: Machines
) -> None:
    """Each life counts its revisions from 1, and Temporal keeps what has ended."""
    await ready(hostler, class_yaml(), pool_yaml())
    await hostler.pools.restart("p1", reason="the former life")
    await hostler.pools.wait("p1")
    former = await hostler.pools.rollout_result("p1", 2)

    def listed(began: datetime) -> Callable[[], Awaitable[list[int]]]:
        async def found() -> list[int]:
            rollouts = await hostler.pools.rollouts("p1")
            return [r.revision for r in rollouts] if [r.began for r in rollouts if r.ended] == [began] else []

        return found

    await eventually(listed(former.began), "its rollout in a list")
    await hostler.pools.renew("p1")  # a new run is no new life
    await eventually(listed(former.began), "its rollout in a list, after a new run")
    await hostler.pools.delete("p1")
    await hostler.pools.wait("p1", "deleted")
    await eventually(listed(former.began), "its rollout in a list: of a pool that is gone all is told")

    await ready(hostler, pool_yaml())
    assert await hostler.pools.rollouts("p1") == []
    assert [r for r in await hostler.pools.rollouts() if r.pool == "p1"] == []
    with pytest.raises(NotFound, match="the rollout of revision 2 of pool p1 is not known"):
        await hostler.pools.rollout("p1", 2)
    assert await rollout_look.undone(hostler.pools, "p1", 2) is None
    await hostler.pools.pause("p1")
    await hostler.pools.restart("p1", reason="the new life")
    (line,) = [
        row for row in await rollout_history.table(hostler, POOL_KIND, "p1", titled=False) if "the new life" in row
    ]
    assert "Complete" not in line
    await hostler.pools.resume("p1")
    await hostler.pools.wait("p1")
    result = await hostler.pools.rollout_result("p1", 2)
    assert result.began > former.ended
    assert await eventually(listed(result.began), "the new life's rollout, and it alone") == [2]


async def test_a_story_that_was_ended_from_outside(hostler: HostlerClient, place: Place, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    machines.slow.add(2)
    await hostler.pools.restart("p1")

    async def begun() -> bool:
        try:
            return (await hostler.pools.rollout("p1", 2)).running
        except NotFound:
            return False

    await eventually(begun, "the story")
    await place.client.get_workflow_handle(f"rollout/{place.cluster}/p1/2").terminate("by hand")
    found = await hostler.pools.rollout("p1", 2)
    assert (found.running, found.listed.phase) == (False, "TERMINATED")
    assert found.failure == "its workflow was ended otherwise (TERMINATED)"
    with pytest.raises(Refused, match="the rollout of revision 2 of pool p1: its workflow was ended otherwise"):
        await hostler.pools.rollout_result("p1", 2)


# -- what would be done -----------------------------------------------------------------------------------------------


async def test_a_rehearsal_is_the_pools_own(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    found = await hostler.pools.rehearse("p1", PoolQuestion(replicas=1))
    assert [[s.reason for s in steps] for steps in found.plans] == [["ScaledDown"]]
    assert rehearsal.lines(await hostler.pools.rehearse("p1", PoolQuestion())) == [
        "no machine is created, changed or replaced"
    ]
    refused = await hostler.pools.rehearse("p1", PoolQuestion(undo=True))
    assert rehearsal.lines(refused) == ["refused: there is no earlier revision to go back to"]
    assert len(machines.there) == 3
    with pytest.raises(NotFound, match="did you mean p1"):
        await hostler.pools.rehearse("p11", PoolQuestion())


def test_a_rehearsal_in_words() -> None:
    create = RehearsedStep(reason="RolledOut", message="Created 1 machine")
    mark = RehearsedStep(reason="RolloutMarks", message="Marking 2 nodes")
    delete = RehearsedStep(reason="Replaced", message="Deleting 1 machine")
    canary = RehearsedStep(reason="Canary", message="1 of 2 machines")
    told = Rehearsal(revision=4, rolls=2, hot=1, plans=[[create, mark], [delete]], waits=[canary])
    assert rehearsal.lines(told, "  ") == [
        "  rolls 2 machines to revision 4; hot update of 1 machine, none is replaced; 2 steps, if nothing fails:",
        "    1.   RolledOut: Created 1 machine",
        "         RolloutMarks: Marking 2 nodes",
        "    2.   Replaced: Deleting 1 machine",
        "  then waits: Canary: 1 of 2 machines",
    ]


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        ("replicas", POOL),
        ("strategy.rollingUpdate.maxSurge", POOL),
        ("strategy.rollingUpdate", POOL),
        ("repair.maxConcurrent", POOL),
        ("template.spec.class.name", ROLL),
        ("template.spec", ROLL),  # the strongest effect of what is below it
        ("template.spec.drainTimeout", HOT),
        ("template.metadata.labels.app", HOT),
        ('template.spec.nodeTemplate.metadata.labels["a.b/c"]', HOT),
        ("template.spec.nodeTemplate.spec.taints[0].effect", HOT),
    ],
)
def test_what_a_field_of_a_pool_does(path: str, effect: str) -> None:
    assert _pool_effect(path) == effect


# -- wait -------------------------------------------------------------------------------------------------------------


def looked(status: str = "RUNNING", run: str = "r1", **numbers: Any) -> PoolDescription:
    summary = PoolSummary(**{"name": "p1", "cluster": "demo", "machine_class": "c1", "replicas": 3, **numbers})
    listed = PoolListed("p1", "demo", NOW, summary=summary if status == "RUNNING" else None)
    return PoolDescription(listed, status, first_run_id=run, ended=None if status == "RUNNING" else NOW)


@pytest.mark.parametrize(
    ("found", "goal", "expected"),
    [
        (looked(available=2), Goal.READY, False),
        (looked(available=3), Goal.READY, True),
        (looked(available=3), Goal.ROLLED_OUT, False),
        (looked(rolled_out=True), Goal.ROLLED_OUT, True),
        (looked(deleted=True), Goal.DELETED, False),
        (looked("COMPLETED"), Goal.DELETED, True),
        (looked(run="r2"), Goal.DELETED, True),  # a new pool has taken the name
        (looked(deleted=True), Goal.READY, Refused),
        (looked("COMPLETED"), Goal.READY, NotFound),
        (looked(run="r2", available=3), Goal.READY, NotFound),
        (looked("TERMINATED"), Goal.DELETED, Refused),
    ],
)
def test_when_a_wait_is_over(found: PoolDescription, goal: Goal, expected: bool | type[HostlerError]) -> None:
    if isinstance(expected, bool):
        assert reached(found, looked(), goal, "pool") is expected
        return
    with pytest.raises(expected):
        reached(found, looked(), goal, "pool")


class Looks:
    """A client whose pool looks like this, one look after the other; the last one stays. Its class has news this many
    times."""

    def __init__(self, *looks: PoolDescription, news: int = 0) -> None:
        self.pools, self.looks, self.news, self.asked = self, list(looks), news, 0
        self.noun, self.judge, self.where = Pools.noun, judge, where

    async def look(self, name: str, *, cluster: str | None = None) -> PoolDescription:
        self.asked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    async def unheard(self, listed: PoolListed) -> int:
        self.news -= 1
        return max(0, self.news + 1)


async def waited(looks: Looks, until: str = "rolled-out") -> PoolDescription:
    client: Any = looks
    timeout = timedelta(seconds=60)
    return await Pools.wait(client, "p1", until, timeout=timeout)


async def test_what_the_class_has_not_told_yet_is_waited_for() -> None:
    looks = Looks(looked(rolled_out=True), news=2)
    assert await waited(looks) == looked(rolled_out=True)
    assert looks.asked == 3


async def test_a_rollout_stands_only_when_it_does_at_two_looks_in_a_row() -> None:
    """A person may have acted a moment ago, and the pool's plan has not taken that up yet."""
    wait = FleetWait(reason="RolloutPaused", message="The rollout is paused", since=NOW)
    stands, moves, done = looked(waits=[wait]), looked(), looked(rolled_out=True)
    assert await waited(Looks(stands, moves, stands, done)) == done
    looks = Looks(stands, moves, stands, stands, done)
    with pytest.raises(Refused, match="the rollout of pool p1 is blocked: RolloutPaused: The rollout is paused"):
        await waited(looks)
    assert looks.asked == 4
    assert await waited(Looks(stands, stands, looked(available=3)), "ready") == looked(available=3)


async def test_a_wait_ends_where_a_person_must_act(hostler: HostlerClient, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml(rollingUpdate={"pauseAfter": 1}))
    await hostler.pools.restart("p1")
    seen: list[PoolDescription] = []

    async def progress(found: PoolDescription) -> None:
        seen.append(found)

    with pytest.raises(Refused, match=r"the rollout of pool p1 is blocked: Canary: .*\n.*hostler rollout resume p1"):
        await hostler.pools.wait("p1", progress=progress)
    assert seen
    assert all(s.summary is not None and s.summary.revision == 2 for s in seen)
    await hostler.pools.resume("p1")
    found = await hostler.pools.wait("p1")
    assert found.summary is not None
    assert found.summary.rollout is None


async def test_a_new_name_with_an_old_history(hostler: HostlerClient, place: Place, machines: Machines) -> None:
    await ready(hostler, class_yaml(), pool_yaml())
    first = await hostler.pools.look("p1")
    await hostler.pools.delete("p1", reason="not needed")
    gone = await hostler.pools.wait("p1", "deleted")
    assert (gone.status, gone.first_run_id) == ("COMPLETED", first.first_run_id)
    assert (await hostler.pools.delete("p1")).gone
    with pytest.raises(NotFound, match="is gone since"):
        await hostler.pools.scale("p1", 1)
    (applied,) = await hostler.apply(*parsed(pool_yaml(replicas=1)))
    assert (applied.verb, "the earlier pool of this name has been gone since" in applied.note) == (Verb.CREATED, True)
    again = await hostler.pools.wait("p1")
    assert again.first_run_id != first.first_run_id

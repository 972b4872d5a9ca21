"""The control plane on the command line: with its real workflow, and machines that are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from cli.place import Place, impatient
from control_plane.workflow import DOMAINS, SLOW, ControlPlane, snapshot, wanted
from temporalio.testing import WorkflowEnvironment

from activities.temporal.uses import UsesActivities
from resources.cluster.state import LeftInput
from resources.control_plane.manifest import ControlPlaneMachineSet
from resources.machine.state import Phase
from resources.settings import load_settings
from starter.doctor import waiting
from starter.sdk import live, owners
from starter.sdk.client import HostlerClient
from starter.sdk.errors import Refused

__all__ = ["impatient"]  # fixtures
NAME = "controlplanemachineset/cluster"


@pytest.fixture
def cp(temporal: WorkflowEnvironment) -> ControlPlane:
    return ControlPlane(temporal.client)


@pytest.fixture
def place(temporal: WorkflowEnvironment, tmp_path: Path, cp: ControlPlane) -> Place:
    of = Place(temporal, tmp_path, cluster=cp.cluster, queue=cp.cluster)
    of.write_settings(clusters={cp.cluster: {}})
    return of


@pytest.fixture
async def there(cp: ControlPlane, place: Place) -> AsyncIterator[list[str]]:
    """Its three machines; new ones join when the test says so."""
    async with cp.worker():
        yield await cp.ready(habits=(SLOW,))
        await cp.end()


def cells(table: str) -> list[str]:
    """The last line's."""
    return table.splitlines()[-1].split()


async def bigger(cp: ControlPlane) -> str:
    """Its template is changed; the machine that comes first."""
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge", habits=(SLOW,)))
    (new,) = await cp.members(prefix="cp-")
    return new


async def test_it_is_among_all_rollouts(cp: ControlPlane, place: Place) -> None:
    """Without names; one that only looks on has none."""
    async with cp.worker():
        await cp.start(wanted(state="Inactive"))
        await cp.by_hand()
        await cp.when(lambda s: len(s.members) == 3, "its machines")
        await none_found(place, "No pools and no control plane found")
        await cp.apply(wanted())
        await cp.done()
        shown = await place.run("rollout", "status", "--no-watch")
        assert shown.code == 0, shown
        assert "Control plane:" in shown.out
        assert "is rolled out: revision" in (await place.run("rollout", "status")).ok()
        await cp.end()


async def none_found(place: Place, words: str) -> None:
    shown = await place.run("rollout", "status", "--no-watch")
    assert words in shown.err, shown


async def test_a_machine_without_a_workflow_comes_back_to_its_index(cp: ControlPlane, place: Place) -> None:
    """What `hostler adopt` makes of it, where the server keeps nothing of it; and what is said of the set."""
    hostler = HostlerClient(place.client, load_settings(place.settings_file), cluster=cp.cluster)
    async with cp.worker():
        await cp.ready(wanted(failure_domains=DOMAINS), zones=True)
        await cp.delete("master-0")
        (new,) = await cp.members("cp-")
        await cp.done(without=["master-0"])
        of = await owners.owner_of(hostler.connection, new, cp.cluster)
        assert of is not None
        made, begun = owners.made_from(of, new), await cp.machine_state(new)
        assert made is not None
        assert made.domain == begun.domain == DOMAINS["eu-west-1a"]
        assert made.placement == begun.placement
        assert owners.membership(of, new)["domain"] == made.domain
        left = await UsesActivities(cp.deps).find_left(LeftInput(cluster=cp.cluster))
        assert left.words.endswith(" and its controlplane")
        await cp.end()


async def test_an_update_is_seen_steered_and_followed(cp: ControlPlane, place: Place, there: list[str]) -> None:
    old = there[0]
    assert cells((await place.run("get", "controlplanes")).ok())[:7] == ["cluster", "3", "3", "3", "3", "0", "Active"]
    assert (await place.run("get", "cp/cluster", "-o", "name")).ok() == f"{NAME}\n"
    new = await bigger(cp)
    await cp.waits("ReplacementComing")

    shown = await place.run("rollout", "status", "controlplane", "--no-watch")
    assert shown.code == 0, "it continues on its own"
    assert "Rollout:        continues on its own\n" in shown.out
    assert f"Index 0 waits for {new} to become ready\n    {old} differs: " in shown.out
    page = (await place.run("describe", "controlplane")).ok()
    assert "Machines:  3 of 3 ready (quorum 2), 0 up to date, 4 in all\n" in page
    assert "  Progressing   True     NeedsUpdateReplicas " in page
    tree = (await place.run("tree", "controlplane", COLUMNS="200")).ok().splitlines()
    assert tree[1].split()[:3] == ["controlplane/cluster", "Rolling", "3/3"]
    assert sum("machine/" in line for line in tree) == 4

    said = (await place.run("rollout", "pause", "controlplane", "--reason", "lunch")).ok()
    assert said.startswith(f"{NAME} paused; no machine of the control plane is created")
    back = (await place.run("rollout", "undo", "controlplane", "--dry-run")).ok()
    assert back.startswith(f"{NAME} rolled back (dry run)\n")
    assert f"{new} is deleted" in back
    (await place.run("rollout", "resume", "controlplane")).ok()

    follower = asyncio.create_task(place.run("rollout", "status", "controlplane", "--timeout", "10m"))
    await cp.be(new, phase=Phase.RUNNING)
    for count in (2, 3):
        for name in await cp.members(prefix="cp-", count=count):
            await cp.be(name, phase=Phase.RUNNING)
    lines = (await follower).ok().splitlines()
    assert lines[-1] == (f"the control plane of cluster {cp.cluster} is rolled out: revision 2, 3 of 3 machines ready")
    assert not set(there) & set(await cp.members())
    assert (await place.run("wait", "controlplane", "--for", "rolled-out")).ok() == f"{NAME} is rolled-out\n"
    history = (await place.run("rollout", "history", "controlplane")).ok().splitlines()
    assert [line.split()[0] for line in history] == ["REVISION", "1", "2"]
    events = (await place.run("events", "controlplane")).ok()
    assert events.index("Created") < events.index("IndexFilled") < events.index("HoldLifted")


async def test_what_stops_for_a_person_ends_a_wait_and_is_the_doctors(
    cp: ControlPlane, place: Place, there: list[str]
) -> None:
    await place.run("rollout", "pause", "controlplane", "--as", "alice")
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    await cp.waits("RolloutPaused")
    shown = await place.run("rollout", "status", "controlplane")
    assert shown.code == 1
    assert "is blocked: RolloutPaused: alice paused it. Otherwise: a machine is created for index 0" in shown.err
    assert f"hostler rollout resume controlplane --cluster {cp.cluster}" in shown.err
    client = HostlerClient(place.client, load_settings(place.settings_file))
    with pytest.raises(Refused, match="RolloutPaused"):
        await client.control_planes.wait("cluster")
    waits = [w for w in await waiting.look(client, cp.cluster, True) if w.kind == "controlplane"]
    found = waiting.findings(waits, cp.cluster, "waiting", datetime.now(UTC))
    assert [f.message.partition(":")[0] for f in found] == ["RolloutPaused"]
    assert f"`hostler rollout status controlplane --cluster {cp.cluster}`" in found[0].remedy


async def test_its_manifest_is_taken_back_and_its_end_leaves_the_machines(
    cp: ControlPlane, place: Place, there: list[str]
) -> None:
    (made,) = yaml.safe_load_all((await place.run("get", "controlplane", "-o", "yaml")).ok())
    assert made["status"]["readyReplicas"] == 3
    ControlPlaneMachineSet.model_validate({k: v for k, v in made.items() if k != "status"})
    every = await place.run("get", "controlplanes", "-o", "jsonpath={.items[*].metadata.name}")
    assert every.ok() == "cluster"
    ready = await place.run("get", "controlplane", "-o", "jsonpath={.status.conditions[0].reason}")
    assert ready.ok() == "AllReplicasAvailable"
    foretold = (await place.run("delete", "controlplane", "--dry-run")).ok()
    assert foretold.startswith(f"{NAME} deletion (dry run)\n  3 machines of it stay as they are, with VM and Node")
    ended = (await place.run("delete", "controlplane", "--wait")).ok()
    said = "the control plane is deleted; its 3 machines stay, and belong to nobody"
    assert ended == f"{NAME} deletion: {said}\n{NAME} deleted\n"
    gone = (await place.run("describe", "controlplane")).ok()
    assert "Its machines stay, and are replaced by nobody." in gone
    for names in ((), ("cluster",)):
        missing = await place.run("rollout", "pause", "controlplane", *names)
        assert missing.code != 0
    assert "is gone since" in missing.err


async def test_mistakes_are_answered_in_words(place: Place) -> None:
    none = await place.run("describe", "controlplane")
    assert "has no control plane that Hostler knows: apply a ControlPlaneMachineSet" in none.err
    other = await place.run("describe", "controlplane", "prod")
    assert "a cluster has one control plane, whose name is always cluster" in other.err
    assert (await place.run("get", "controlplanes")).err == f"No control planes found in cluster {place.cluster}.\n"
    assert "a cluster has one control plane" in (await place.run("get", "controlplane", "-l", "a=b")).err
    assert "restart is for pools" in (await place.run("rollout", "restart", "controlplane")).err
    assert "for the control plane: delete controlplane" in (await place.run("delete", "cp", "--force")).err


async def test_without_a_worker_what_was_asked_for_is_shown(
    cp: ControlPlane, place: Place, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUERY_TIMEOUT", 0.5)
    await cp.start()
    try:
        paused = await place.run("rollout", "pause", "controlplane", "--as", "alice")
        assert "recorded" in paused.ok()
        page = (await place.run("describe", "controlplane")).ok()
        assert f"No answer: nobody polls {place.queue}" in page
        assert "Paused:    nothing is replaced by alice\n" in page
        (made,) = yaml.safe_load_all((await place.run("get", "controlplane", "cluster", "-o", "yaml")).ok())
        assert made["spec"]["replicas"] == 3
        assert made["status"] == {}
        assert "numbers are missing" in (await place.run("get", "controlplane", "cluster")).err
    finally:
        await cp.handle.terminate()

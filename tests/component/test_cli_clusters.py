"""Clusters on the command line, against the real ClusterWorkflow (whose watch nobody serves here)."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from cli.place import Place, class_yaml, eventually, impatient, machine_yaml, place, text
from cli.standins import PlayedMachine, drain_node
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.worker import Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.members import MemberActivities
from activities.temporal.uses import UsesActivities
from resources import attributes
from resources.cluster.news import Reachability
from resources.journal import Note
from resources.names import cluster_id, pool_id
from resources.settings import Settings
from workflows.cluster import ClusterWorkflow

__all__ = ["impatient", "place"]  # fixtures


@contextlib.asynccontextmanager
async def serving(place: Place) -> AsyncIterator[None]:
    uses = UsesActivities(Deps(Settings(queue_prefix=place.queue), place.client))
    async with Worker(
        place.client,
        task_queue=place.queue,
        workflows=[PlayedMachine, ClusterWorkflow],
        activities=[drain_node, MemberActivities(uses.deps).find_pools, uses.find_uses, uses.find_left],
        interceptors=[Boundary()],
        workflow_runner=worker.sandbox(strict=False),
    ):
        yield


async def begin(place: Place) -> None:
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml("m1")))).ok()


async def test_a_cluster_from_the_first_machine_to_its_end(place: Place) -> None:
    name = place.cluster
    place.write_settings(clusters={name: {}, f"{name}-idle": {}})
    async with serving(place):
        await begin(place)

        async def listed() -> list[str]:
            rows = [r.split() for r in (await place.run("get", "clusters", "-o", "wide")).ok().splitlines()]
            return (
                [r for r in rows if r[0].startswith(name) or r[0] == "NAME"]
                if [name, "Watching", "0", "1", "yes"] in rows
                else []
            )

        assert await eventually(listed, "the cluster in the list") == [
            ["NAME", "PHASE", "POOLS", "MACHINES", "IN-SETTINGS"],
            [name, "Watching", "0", "1", "yes"],
            [f"{name}-idle", "NotWatched", "0", "0", "yes"],
        ]
        found = json.loads((await place.run("get", "cluster", name, "-o", "json")).ok())
        assert found["status"] == {"phase": "Watching", "pools": 0, "machines": 1, "inSettings": True}

        described = (await place.run("describe", "cluster", "--cluster", name)).ok()  # without a name: the default
        for words in ("Phase:        Watching", "API server:   not known yet", "watch_nodes", "Web UI: http"):
            assert words in described
        handle = place.client.get_workflow_handle(cluster_id(name))
        news = Reachability(reachable=False, message="connection refused", time=datetime.now(UTC))
        await handle.signal("reachability", news)
        described = (await place.run("describe", "cluster", name)).ok()
        assert "cannot be reached: connection refused" in described
        assert "APIUnreachable" in described  # the journal
        told = (await place.run("events", "cluster", "--cluster", name)).ok()
        assert re.search(r"Z   Warning   APIUnreachable +connection refused", told)
        told = (await place.run("events", "--cluster", name)).ok()
        assert re.search(rf"Z   Warning   APIUnreachable +cluster/{name} +connection refused", told)
        assert re.search(r"Z   Normal    Started +machine/m1 ", told)

        typed = f"{name[:-1]}x"
        words = f"error: cluster {typed!r} is not known; the known clusters are "
        for asked in (("get", "machines"), ("get", "pools"), ("describe", "machine", "m1"), ("events",)):
            mistyped = await place.run(*asked, "--cluster", typed)
            assert (mistyped.code, mistyped.out) == (1, "")
            assert mistyped.err.startswith(words)
            assert f"did you mean {name}" in mistyped.err
        configured = await place.run("get", "machines", HOSTLER_DEFAULT_CLUSTER=typed)
        assert (configured.code, configured.out) == (1, "")
        assert configured.err.startswith(words.replace("error: ", "error: the settings' defaultCluster: "))
        for asked in (("get", "clusters"), ("get", "machines", "-A"), ("get", "machines", "--cluster", name)):
            assert (await place.run(*asked, HOSTLER_DEFAULT_CLUSTER=typed)).ok()

        refused = await place.run("delete", "cluster", name)
        assert (refused.code, refused.out) == (1, "")
        assert f"cluster {name} still has 1 machine (m1): delete them first" in refused.err
        assert (await place.run("delete", "cluster", name, "--dry-run")).code == 1
        renewed = await place.run("renew", "cluster", name)
        assert renewed.ok() == f"cluster/{name} renewal: a new run begins once the watch has returned\n"

        (await place.run("delete", "machine", "m1", "--wait")).ok()

        async def removable() -> bool:
            return (
                await place.run("delete", "cluster", name, "--dry-run")
            ).out == f"cluster/{name} removal (dry run)\n"

        await eventually(removable, "a list without the machine")
        removed = await place.run("delete", "cluster", name, "--reason", "no longer ours")
        assert removed.ok() == f"cluster/{name} removal: cluster {name} is no longer watched\n"
        await handle.result()
    ended = (await place.run("describe", "cluster", name)).ok()
    assert "NotWatched" in ended
    assert "Ended:" in ended
    again = await place.run("delete", "cluster", name)
    assert (again.code, "is not watched: there is nothing to remove" in again.err) == (1, True)


async def test_a_cluster_that_somebody_terminates_says_so_and_is_begun_again(place: Place) -> None:
    name = place.cluster
    place.write_settings(clusters={name: {}})
    async with serving(place):
        await begin(place)
        (await place.run("pause", "cluster", name)).ok()
        handle = place.client.get_workflow_handle(cluster_id(name))
        await handle.terminate("by mistake")
        described = await eventually(lambda: _lines(place, name, "Machines:     1"), "its machine in the list")
        ended = next(i for i, line in enumerate(described) if line.startswith("Ended:"))
        assert described[ended + 1].strip() == (
            "by somebody (TERMINATED): a worker with the role watch restarts it within a minute; at once: hostler "
            f"renew cluster {name}"
        )
        again = (await place.run("renew", "cluster", name)).ok()
        assert again == f"cluster/{name} renewal: its workflow, which somebody had ended, is started again\n"
        described = await eventually(lambda: _lines(place, name, "Phase:        Paused"), "its pause")
        assert any("BackAgain" in line for line in described)


async def test_a_pause_finds_a_cluster_that_somebody_has_terminated(place: Place) -> None:
    """Its pools go on without it, so that is when somebody may need a pause."""
    name = place.cluster
    place.write_settings(clusters={name: {}})
    async with serving(place):
        await begin(place)
        await place.client.get_workflow_handle(cluster_id(name)).terminate("by mistake")
        (await place.run("pause", "cluster", name)).ok()
        described = await eventually(lambda: _lines(place, name, "Phase:        Paused"), "its pause")
        assert any("BackAgain" in line for line in described)


async def test_who_applies_something_then_does_not_end_its_pause(place: Place) -> None:
    """Nor is a worker needed to know of it."""
    name = place.cluster
    place.write_settings(clusters={name: {}})
    handle = place.client.get_workflow_handle(cluster_id(name))
    async with serving(place):
        await begin(place)
        (await place.run("pause", "cluster", name, "--reason", "a storm")).ok()
    await handle.signal("note", Note(reason="Noted", message="nobody has taken this"))
    await handle.terminate("by mistake")
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml("m2")))).ok()
    async with serving(place):
        described = await eventually(lambda: _lines(place, name, "Phase:        Paused"), "its pause")
        assert any("a storm" in line for line in described)


async def test_a_cluster_is_frozen(place: Place) -> None:
    name = place.cluster
    place.write_settings(clusters={name: {}})
    async with serving(place):
        await begin(place)
        said = (await place.run("freeze", "all", "--for", "4h", "--reason", "sale")).ok()
        assert said.startswith(f"cluster/{name} cluster {name} is frozen since")
        shown = (await place.run("describe", "cluster", name)).ok()
        assert ": sale\n" in shown
        assert f"to end it: hostler unfreeze cluster {name}" in shown
        assert "no longer frozen" in (await place.run("unfreeze", "cluster")).ok()
        assert "Frozen:" not in (await place.run("describe", "cluster", name)).ok()


async def _lines(place: Place, name: str, wanted: str) -> list[str]:
    """What `describe` says, once that is in it."""
    lines = (await place.run("describe", "cluster", name)).ok().splitlines()
    return lines if wanted in lines else []


async def test_a_cluster_is_paused_and_goes_on(place: Place) -> None:
    name = place.cluster
    place.write_settings(clusters={name: {}})
    missing = await place.run("pause", "cluster", name)
    assert (missing.code, "is not watched: there is nothing to pause" in missing.err) == (1, True)
    async with serving(place):
        await begin(place)
        pool = await place.client.start_workflow(
            "MachineDeploymentWorkflow",
            id=pool_id(name, "p1"),
            task_queue=f"{place.queue}-nobody",
            search_attributes=TypedSearchAttributes([SearchAttributePair(attributes.CLUSTER, name)]),
        )
        await place.client.get_workflow_handle(cluster_id(name)).signal("register_pool", "p1")
        goes_on = f"hostler resume cluster {name}"

        paused = await place.run("pause", "cluster", name, "--reason", "a storm", "--as", "alice")
        assert paused.ok() == f"cluster/{name} pause: cluster {name} is paused: its pool does nothing until {goes_on}\n"
        again = (await place.run("pause", f"cluster/{name}")).ok()
        assert "is paused already, since " in again
        assert "UTC by alice: a storm" in again

        async def shown() -> list[list[str]]:
            rows = [r.split() for r in (await place.run("get", "cluster", name)).ok().splitlines()]
            return rows if rows[1][1] == "Paused" and rows[1][2] == "1" else []

        assert (await eventually(shown, "the pause in the list"))[1] == [name, "Paused", "1", "1"]
        described = (await place.run("describe", "cluster", "--cluster", name)).ok()  # without a name: the default
        for words in ("UTC by alice: a storm", f"to resume: {goes_on}", "Tells pools:  p1", "Paused "):
            assert words in described

        refused = await place.run("delete", "cluster", name)
        assert (refused.code, refused.out) == (1, "")
        words = f"cluster {name} still has 1 pool (p1) and 1 machine (m1): delete the pools first (hostler delete pool"
        assert words in refused.err

        # Without a name it is the settings' own cluster, or that of --cluster.
        went_on = await place.run("resume", "cluster")
        assert went_on.ok() == f"cluster/{name} resume: cluster {name} is resumed\n"
        assert (await place.run("resume", "cluster", "--cluster", name)).ok().endswith("is not paused\n")
        await pool.terminate()


async def test_what_is_paused_otherwise_is_said(place: Place) -> None:
    for command in ("pause", "resume"):
        wrong = await place.run(command, "pool", "p1")
        assert (wrong.code, wrong.out) == (2, "")
        assert f"hostler rollout {command} p1" in " ".join(wrong.err.replace("│", " ").split())
    assert (await place.run("pause", "machine", "m1")).code == 2


@pytest.mark.usefixtures("impatient")
async def test_clusters_without_a_worker(place: Place) -> None:
    name = place.cluster
    async with serving(place):
        await begin(place)
        handle = place.client.get_workflow_handle(cluster_id(name))

        async def watching() -> bool:
            return bool((await handle.describe()).raw_description.pending_activities)

        await eventually(watching, "the watch")
    described = (await place.run("describe", "cluster", name)).ok()
    assert "No answer: nobody polls" in described
    assert "In settings:  no" in described
    paused = await place.run("pause", "cluster", name)
    assert paused.ok() == f"cluster/{name} pause: recorded; no worker is polling {place.queue}\n"
    kept = await place.run("renew", "cluster", name)
    assert kept.ok() == f"cluster/{name} renewal: recorded; no worker is polling {place.queue}\n"
    wrong = await place.run("describe", "cluster", f"{name}x")
    assert (wrong.code, wrong.out) == (1, "")
    assert f"did you mean {name}?" in wrong.err

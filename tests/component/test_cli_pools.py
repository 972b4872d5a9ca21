"""Pools on the command line: the real pool, rollout and class workflows, with machines that are played."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from cli.place import DEADLINE, Place, class_yaml, end, eventually, impatient, machine_yaml, place, text
from pools.behind_cli import Machines, played, pool_yaml
from temporalio.client import Client

from resources import starts
from resources.machine.state import MachineState, Phase
from resources.manifests import load_manifests
from resources.names import class_id, pool_id
from resources.owner import Owner
from resources.pool.intents import PoolSummary

__all__ = ["impatient", "place"]  # fixtures
COLUMNS = ["NAME", "REPLICAS", "UPDATED", "AVAILABLE", "UNHEALTHY", "REVISION", "PHASE", "REASON", "AGE"]


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


async def apply(place: Place, *manifests: dict[str, Any]) -> list[str]:
    return (await place.run("apply", "-f", "-", stdin=text(*manifests))).ok().splitlines()


async def diff(place: Place, *manifests: dict[str, Any]) -> tuple[int, list[str]]:
    ran = await place.run("diff", "-f", "-", stdin=text(*manifests))
    assert "error" not in ran.err.lower()
    return ran.code, ran.out.splitlines()


async def ready(place: Place, *manifests: dict[str, Any]) -> None:
    """A pool that is applied, and rolled out; the class knows its users."""
    await apply(place, *manifests)
    pools = [m["metadata"]["name"] for m in manifests if m["kind"] == "MachineDeployment"]
    (await place.run("wait", "pool", *pools)).ok()
    handle = place.client.get_workflow_handle(class_id(place.cluster, "c1"))

    async def known() -> bool:
        users = (await handle.query("describe"))["users"]
        return {Owner(name=p).user for p in pools} <= set(users)

    await eventually(known, f"users {pools}")


async def summary(place: Place, name: str = "p1") -> PoolSummary:
    handle = place.client.get_workflow_handle(pool_id(place.cluster, name))
    found: PoolSummary = await handle.query("summary", result_type=PoolSummary)
    return found


async def when(place: Place, what: str, reached: Any, name: str = "p1") -> PoolSummary:
    async def look() -> PoolSummary | None:
        found = await summary(place, name)
        return found if reached(found) else None

    found: PoolSummary = await eventually(look, what)
    return found


# -- apply, get, scale, delete ----------------------------------------------------------------------------------------


async def test_a_pool_from_the_first_apply_to_its_end(place: Place, machines: Machines) -> None:
    cluster = place.cluster
    assert await apply(place, pool_yaml(), class_yaml()) == [
        f"cluster/{cluster} created",
        "machineclass/c1 created",
        "machinedeployment/p1 created",
    ]
    assert (await place.run("wait", "pool", "p1")).ok() == "machinedeployment/p1 is rolled-out\n"
    assert (await place.run("wait", "pool/p1", "--for=condition=Available")).ok() == "machinedeployment/p1 is ready\n"
    assert len(machines.there) == 3

    listed = await eventually(lambda: _listed(place, "Ready"), "the pool in a list")
    assert listed[0].split() == COLUMNS
    assert listed[1].split()[:8] == ["p1", "3", "3", "3", "0", "1", "Ready", "<none>"]
    wide = (await place.run("get", "mcd", "p1", "-o", "wide")).ok().splitlines()
    assert wide[0].split() == [*COLUMNS, "CLASS", "MACHINES", "LEAVING", "PRESERVED"]
    assert wide[1].split()[9:] == ["c1", "3", "0", "0"]
    everywhere = (await place.run("get", "pools", "-A", "-o", "name")).ok().splitlines()
    assert f"machinedeployment/{cluster}/p1" in everywhere

    tree = (await place.run("tree", "pool", "p1")).ok().splitlines()
    assert [line.split() for line in tree[1:]] == [
        ["pool/p1", "Ready", "3/3"],
        ["└─revision", "1", "(newest)", "3/3"],
        ["└─3", "machines", "Running"],
    ]
    assert (await place.run("tree")).ok().splitlines()[1].split()[:1] == [f"cluster/{cluster}"]

    printed = (await place.run("get", "machinedeployments", "p1", "-o", "yaml")).ok()
    status = yaml.safe_load(printed)["status"]
    assert (status["availableReplicas"], status["revision"], status["rolledOut"]) == (3, 1, True)
    assert status["phase"] == "Ready"  # what the table's column shows, for -o jsonpath too
    assert await apply(place, yaml.safe_load(printed)) == ["machinedeployment/p1 unchanged"]
    many = json.loads((await place.run("get", "pools", "-o", "json")).ok())
    assert [p["metadata"]["name"] for p in many["items"]] == ["p1"]

    assert await apply(place, pool_yaml(replicas=4)) == ["machinedeployment/p1 configured: replicas 3 → 4"]
    (await place.run("wait", "pool", "p1")).ok()
    assert len(machines.there) == 4

    dry = (await place.run("delete", "pool", "p1", "--dry-run")).ok()
    assert dry.startswith("machinedeployment/p1 deletion, with 4 machines (dry run)\n  1 step, if nothing fails:\n")
    assert "1.   PoolDeleted: Deleting 4 machines" in dry
    deleted = await place.run("delete", "pool", "p1", "--wait", "--reason", "no use")
    said, done = deleted.ok().splitlines()
    assert said == "machinedeployment/p1 deletion: pool p1 is being deleted, with 4 machines"
    assert done == "machinedeployment/p1 deleted"
    assert machines.there == {}

    story = (await place.run("events", "pool", "p1")).ok()
    for words in ("Started", "Created", "ReplicasMissing", "Applied", "DeleteAsked", "PoolDeleted"):
        assert words in story, story
    page = (await place.run("describe", "pool", "p1")).ok()
    for words in ("Phase:     (gone)", "Nothing is left.", "with 4 machines by", ": no use"):
        assert words in page, page
    gone = await place.run("get", "pool", "p1")
    assert (gone.code, "pool p1 is gone since" in gone.err) == (1, True)
    assert "is already gone since" in (await place.run("delete", "pool", "p1")).ok()
    assert "is already gone since" in (await place.run("delete", "pool", "p1", "--dry-run")).ok()
    for refused in (("scale", "pool", "p1", "--replicas", "1"), ("wait", "pool", "p1"), ("wake", "pool", "p1")):
        ran = await place.run(*refused)
        assert (ran.code, "is gone since" in ran.err) == (1, True), ran
    (again,) = await apply(place, pool_yaml())
    assert "machinedeployment/p1 created: the earlier pool of this name has been gone since" in again
    assert again.endswith("; this is a new one")


async def _listed(place: Place, phase: str) -> list[str]:
    lines = (await place.run("get", "pools")).ok().splitlines()
    return lines if len(lines) > 1 and phase in lines[1].split() else []


async def test_scaling_as_kubectl_does(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml())
    scaled = [
        (("scale", "pool", "p1", "--replicas", "4"), "scaled; replicas 3 → 4"),
        (("scale", "--replicas=5", "machinedeployment/p1"), "scaled; replicas 4 → 5"),
        (("scale", "--replicas=5", "pool/p1"), "scaling: pool p1 already has 5 replicas"),
        (("scale", "--current-replicas=5", "--replicas=2", "mcd/p1"), "scaled; replicas 5 → 2"),
    ]
    for words, said in scaled:
        assert (await place.run(*words)).ok() == f"machinedeployment/p1 {said}\n"
    (await place.run("wait", "pool", "p1")).ok()
    assert len(machines.there) == 2

    for dry in ((), ("--dry-run",)):
        ran = await place.run("scale", "pool", "p1", "--replicas", "9", "--current-replicas", "3", *dry)
        assert (ran.code, ran.out) == (1, "")
        assert "pool p1 has 2 replicas, not 3: nothing" in ran.err
        ran = await place.run("scale", "pool", "p1", "--remove", "stranger", *dry)
        assert (ran.code, ran.out) == (1, "")
        assert "stranger" in ran.err

    before = sorted(machines.there)
    dry = (await place.run("scale", "pool", "p1", "--replicas", "1", "--remove", before[1], "--dry-run")).ok()
    assert dry.startswith("machinedeployment/p1 scaling (dry run)\n  1 step, if nothing fails:\n")
    assert f"Deleting 1 machine ({before[1]})" in dry
    assert sorted(machines.there) == before  # nothing was changed by asking
    said = (await place.run("scale", "pool", "p1", "--replicas", "1", "--remove", before[1])).ok()
    assert said == f"machinedeployment/p1 scaled; replicas 2 → 1; marked for deletion: {before[1]}\n"
    (await place.run("wait", "pool", "p1")).ok()
    assert sorted(machines.there) == before[:1]


async def test_sleeping_and_waking(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml())
    dry = (await place.run("hibernate", "pool", "p1", "--dry-run")).ok()
    assert "1.   Hibernated: Deleting 3 machines" in dry
    assert len(machines.there) == 3
    slept = (await place.run("hibernate", "pool/p1")).ok()
    assert slept.startswith("machinedeployment/p1 hibernated: 3 machines to delete")
    await when(place, "no machine", lambda s: s.hibernated and s.machines == 0)
    assert machines.there == {}
    assert (await place.run("hibernate", "pool", "p1")).ok().startswith("machinedeployment/p1 hibernation: ")
    page = (await place.run("describe", "pool", "p1")).ok()
    assert "Replicas:  3 wanted, but 0 for now: hibernated" in page
    assert f"hostler wake pool p1 --cluster {place.cluster}" in page

    assert "1.   ReplicasMissing: Created" in (await place.run("wake", "pool", "p1", "--dry-run")).ok()
    assert machines.there == {}
    assert (await place.run("wake", "pool", "p1")).ok() == "machinedeployment/p1 woken: 3 machines to create\n"
    (await place.run("wait", "pool", "p1", "--for", "ready")).ok()
    assert len(machines.there) == 3


async def test_files_with_pools_are_deleted(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml(), pool_yaml("p2", replicas=1))
    files = text(class_yaml(), pool_yaml(), pool_yaml("p2"))
    deleted = await place.run("delete", "-f", "-", "--wait", stdin=files)
    assert "machineclass/c1: not deleted" in deleted.err
    assert [line for line in deleted.ok().splitlines() if line.endswith("deleted")] == [
        "machinedeployment/p1 deleted",
        "machinedeployment/p2 deleted",
    ]
    assert machines.there == {}


async def test_what_a_manifest_does_not_give_stays_as_it_is(place: Place, machines: Machines) -> None:
    """Applying the same files every five minutes neither scales a pool down nor wakes it."""
    bare = pool_yaml()
    del bare["spec"]["replicas"]
    await ready(place, class_yaml(), bare)
    assert machines.there == {}  # of a new pool the default
    (await place.run("scale", "pool", "p1", "--replicas", "2")).ok()
    (await place.run("wait", "pool", "p1")).ok()
    assert await apply(place, bare) == ["machinedeployment/p1 unchanged: replicas kept at 2"]
    assert await diff(place, bare) == (0, [])
    bare["spec"]["minReadySeconds"] = 1
    assert (await diff(place, bare))[1][:2] == [
        "machinedeployment/p1 configured: replicas kept at 2",
        "  spec.minReadySeconds: 0 -> 1: pool: no machine is replaced",
    ]
    (said,) = await apply(place, bare)
    assert said == "machinedeployment/p1 configured: minReadySeconds changed; replicas kept at 2"
    _, shown = await diff(place, class_yaml(ami="ami-2"), bare)
    assert "  rolls pool p1: 2 machines will be replaced" in shown
    (await place.run("wait", "pool", "p1")).ok()
    assert len(machines.there) == 2

    (await place.run("hibernate", "pool", "p1")).ok()
    assert await apply(place, bare) == ["machinedeployment/p1 unchanged: replicas kept at 2; stays hibernated"]
    assert await apply(place, pool_yaml(replicas=1, minReadySeconds=1, hibernated=False, paused=True)) == [
        "machinedeployment/p1 configured: replicas 2 → 1; woken; rollouts paused"
    ]
    assert await apply(place, bare) == [
        "machinedeployment/p1 unchanged: replicas kept at 1; rollouts stay paused",
    ]
    assert (await summary(place)).replicas == 1


# -- what apply and diff say beforehand -------------------------------------------------------------------------------


async def test_everything_is_judged_before_anything_is_sent(place: Place, machines: Machines) -> None:
    ran = await place.run("apply", "-f", "-", stdin=text(pool_yaml(), pool_yaml("p2", machine_class="c2")))
    assert (ran.code, ran.out) == (1, "")
    for pool, name in (("p1", "c1"), ("p2", "c2")):
        words = f"pool {pool}: class '{name}' is in none of the files and was not applied before: add the MachineClass"
        assert words in ran.err
    twice = await place.run("apply", "-f", "-", stdin=text(class_yaml(), pool_yaml(), pool_yaml(replicas=1)))
    assert f"pool p1 of cluster {place.cluster}: given more than once" in twice.err
    assert (await place.run("get", "pools")).err == f"No pools found in cluster {place.cluster}.\n"

    dry = (await place.run("apply", "-f", "-", "--dry-run", stdin=text(class_yaml(), pool_yaml()))).ok()
    assert dry.splitlines()[-1] == "machinedeployment/p1 created (dry run)"
    assert await apply(place, class_yaml(), pool_yaml(), machine_yaml("m1")) == [
        f"cluster/{place.cluster} created",
        "machineclass/c1 created",
        "machinedeployment/p1 created",
        "machine/m1 created",
    ]


async def test_an_edit_of_a_shared_class_says_which_pools_it_rolls(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml(), pool_yaml("p2", replicas=1))
    edit = class_yaml(ami="ami-2", team="b")
    lines = [
        "machineclass/c1 configured: generation 1 -> 2",
        "  providerSpec.ami: ami-1 -> ami-2: needs replacement (pools roll; single machines are Outdated)",
        "  providerSpec.vmTags.team: a -> b: hot update",
        "  rolls pool p1: 3 machines will be replaced",
        "  rolls pool p2: 1 machine will be replaced",
    ]
    assert await diff(place, edit) == (1, lines)
    dry = (await place.run("apply", "-f", "-", "--dry-run", stdin=text(edit))).ok().splitlines()
    assert [line.removesuffix(" (dry run)") for line in dry] == lines
    hot = await diff(place, class_yaml(team="b"))
    assert hot[1][-2:] == ["  pool p1: no machine is replaced", "  pool p2: no machine is replaced"]

    other = pool_yaml("p2", replicas=1, machine_class="c2")
    _, shown = await diff(place, edit, class_yaml("c2"), other)
    assert "  rolls pool p1: 3 machines will be replaced" in shown
    assert "  rolls pool p2: 1 machine will be replaced" not in shown  # it takes another class by the same files

    applied = await apply(place, edit, pool_yaml())
    assert applied[:2] == [
        "machineclass/c1 rolls pool p1: 3 machines will be replaced",
        "machineclass/c1 rolls pool p2: 1 machine will be replaced",
    ]
    assert applied[2].startswith("machineclass/c1 configured: generation 2: ")
    assert applied[3:] == ["machinedeployment/p1 configured: its class tells it"]
    (await place.run("wait", "pool", "p1", "p2")).ok()  # not before they have heard of it
    assert [(await summary(place, p)).revision for p in ("p1", "p2")] == [2, 2]
    assert {m.revision for m in machines.there.values()} == {2}
    assert await apply(place, edit, pool_yaml()) == ["machineclass/c1 unchanged", "machinedeployment/p1 unchanged"]


async def test_a_changed_pool_is_shown_field_by_field_and_step_by_step(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), class_yaml("c2", ami="ami-9"), pool_yaml())
    wanted = pool_yaml(machine_class="c2", minReadySeconds=1)
    template = wanted["spec"]["template"]
    template["spec"]["nodeTemplate"] = {"metadata": {"labels": {"tier": "gold"}}}
    template["spec"]["drainTimeout"] = "1h"
    wanted["metadata"]["labels"] = {"team": "a"}
    code, lines = await diff(place, wanted)
    assert code == 1
    steps = next(i for i, line in enumerate(lines) if line.startswith("  rolls 3 machines"))
    assert lines[:steps] == [
        "machinedeployment/p1 configured",
        "  spec.minReadySeconds: 0 -> 1: pool: no machine is replaced",
        "  spec.template.spec.class.name: c1 -> c2: needs replacement (a rollout)",
        "  spec.template.spec.drainTimeout: 2h -> 1h: hot update",
        "  spec.template.spec.nodeTemplate.metadata.labels.tier: (none) -> gold: hot update",
        "  metadata.labels.team: (none) -> a: pool: no machine is replaced",
        "  providerSpec.ami: ami-1 -> ami-9: needs replacement (a rollout)",
    ]
    assert lines[steps].startswith("  rolls 3 machines to revision 2; ")
    assert lines[steps + 1].startswith("    1.   RolledOut: Created 1 machine of revision 2: 3 of 4 allowed")
    deletions = [line for line in lines if "Replaced: Deleting 1 machine" in line]
    assert len(deletions) == 3
    assert {m.revision for m in machines.there.values()} == {1}  # nothing was changed by asking

    hot = pool_yaml()
    hot["spec"]["template"]["spec"]["drainTimeout"] = "1h"
    assert (await diff(place, hot))[1][-1] == "  hot update of 3 machines, none is replaced"
    paused = pool_yaml(machine_class="c2", paused=True)
    assert (await diff(place, paused))[1][-1].startswith("  then waits: RolloutPaused: The rollout is paused; 3 ")


# -- describe, wait ---------------------------------------------------------------------------------------------------


async def test_a_rollout_that_does_not_get_on_is_described(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml())
    machines.slow.add(2)
    await apply(place, class_yaml(ami="ami-2"))
    await when(place, "a new machine waited for", lambda s: any(w.reason == "NewMachinesNotReady" for w in s.waits))
    late = await place.run("wait", "pool", "p1", "--timeout", "1s")
    assert late.code == 124
    assert "pool p1 is not rolled-out, after 1s: revision 2: 1 of 3 updated, 3 available, 3 old ones left; " in late.err
    assert "NewMachinesNotReady: Waiting for 1 of 1 machines of revision 2" in late.err
    assert (await place.run("wait", "pool", "p1", "--for", "ready")).ok() == "machinedeployment/p1 is ready\n"

    page = (await place.run("describe", "pool", "p1")).ok()
    of = f"p1 --cluster {place.cluster}"
    for words in (
        "Phase:     Rolling\n",
        "Reason:    NewMachinesNotReady\n",
        "Class:     c1, generation 2\n",
        "Machines:  4 VMs, 3 available, 1 of revision 2\n",
        "Strategy:  RollingUpdate: maxSurge 1, maxUnavailable 0\n",
        "Waiting for:\n  Reason:            NewMachinesNotReady\n  Message:           Waiting for 1 of 1 machines of ",
        "  What can be done:  Nothing: it takes as long as a machine needs",
        "Rollout to revision 2:\n  Progress:    [------------------------------] 0 %\n",
        "  2 (newest)   1 Pending\n  1            3 Running\n",
        "  2          c1, generation 2   1 ",
        "  1          c1, generation 1   3 ",
        "RolledOut             Created 1 machine of revision 2",
        f"  hostler rollout status {of} -w ",
        f"  hostler rollout undo {of} ",
        f"  hostler rollout pause {of} ",
        "Web UI: http://127.0.0.1:8233/namespaces/default/workflows/machinedeployment%2F",
    ):
        assert words in page, page

    (await place.run("rollout", "pause", "p1")).ok()
    stands = await place.run("wait", "pool", "p1")
    assert (stands.code, stands.out) == (1, "")
    assert "the rollout of pool p1 is blocked: RolloutPaused: The rollout is paused" in stands.err
    assert f"hostler rollout resume {of}" in (await place.run("describe", "pool", "p1")).ok()
    (await place.run("rollout", "resume", "p1")).ok()
    machines.slow.clear()
    await machines.join(2)
    assert (await place.run("wait", "pool", "p1")).ok() == "machinedeployment/p1 is rolled-out\n"


async def test_watching_pools(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml())
    await eventually(lambda: _listed(place, "Ready"), "the pool in a list")
    process = await place.start("get", "pools", "-w")
    try:
        assert process.stdout is not None
        lines = [await asyncio.wait_for(process.stdout.readline(), DEADLINE) for _ in range(2)]
        assert lines[1].split()[:2] == [b"p1", b"3"]
        (await place.run("scale", "pool", "p1", "--replicas", "2")).ok()
        while lines[-1].split()[1] != b"2":
            lines.append(await asyncio.wait_for(process.stdout.readline(), DEADLINE))
        (await place.run("delete", "pool", "p1")).ok()
        while b"Gone" not in lines[-1]:
            lines.append(await asyncio.wait_for(process.stdout.readline(), DEADLINE))
        assert {line.split()[0] for line in lines[1:]} == {b"p1"}
    finally:
        await end(process)


async def test_waiting_for_what_cannot_come(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml())
    unknown = await place.run("wait", "pool", "p11")
    assert (unknown.code, "did you mean p1?" in unknown.err) == (1, True)
    task = asyncio.create_task(place.hostler("wait", "pool", "p1", "--for", "deleted"))
    (await place.run("delete", "pool", "p1")).ok()
    assert (await task).ok() == "machinedeployment/p1 deleted\n"

    await apply(place, pool_yaml())
    (await place.run("wait", "pool", "p1")).ok()
    await place.client.get_workflow_handle(pool_id(place.cluster, "p1")).terminate("by hand")
    lost = await place.run("wait", "pool", "p1", "--for", "deleted")
    assert (lost.code, "the workflow of pool p1 ended as TERMINATED" in lost.err) == (1, True)
    page = (await place.run("describe", "pool", "p1")).ok()
    assert "Somebody ended its workflow (TERMINATED): its machines continue without it." in page
    assert "What can be done: apply its manifest again, which creates a new pool (hostler apply -f FILE): no" in page


# -- without a worker -------------------------------------------------------------------------------------------------


async def test_without_a_worker_everything_is_recorded_and_said(place: Place, impatient: None) -> None:
    assert (await apply(place, class_yaml(), pool_yaml()))[-1] == "machinedeployment/p1 created"
    listed = await eventually(lambda: _listed(place, "Scaling"), "the pool in a list")
    assert listed[1].split()[:8] == ["p1", *["<none>"] * 5, "Scaling", "<none>"]
    scaled = (await place.run("scale", "pool", "p1", "--replicas", "2")).ok()
    assert scaled.startswith("machinedeployment/p1 scaling: recorded; ")
    assert (await apply(place, pool_yaml(replicas=2))) == ["machinedeployment/p1 unchanged"]
    (said,) = await apply(place, pool_yaml(replicas=1))
    assert said.startswith("machinedeployment/p1 configured: recorded; ")
    page = (await place.run("describe", "pool", "p1")).ok()
    for words in ("Replicas:  1 wanted\n", f"No answer: nobody polls {place.queue}", "Phase:     Scaling\n"):
        assert words in page, page
    printed = await place.run("get", "pool", "p1", "-o", "yaml")
    assert yaml.safe_load(printed.ok())["spec"]["replicas"] == 1
    assert "the spec is what was requested" in printed.err
    warned = (await place.run("get", "pools")).err
    assert warned.startswith("warning: pool p1 does not answer, so numbers are missing"), warned
    assert f"nobody polls {place.queue}" in warned
    dry = await place.run("scale", "pool", "p1", "--replicas", "5", "--dry-run")
    assert (dry.code, "pool p1 cannot be asked: nobody polls" in dry.err) == (1, True), dry
    shown = await diff(place, pool_yaml(replicas=7))
    assert shown[1][1] == "  spec.replicas: 1 -> 7: pool: no machine is replaced"
    assert shown[1][2].startswith("  what it would do is not known: pool p1 cannot be asked: nobody polls")

    waits = asyncio.create_task(place.hostler("wait", "pool", "p1"))
    async with played(place) as machines:
        assert (await waits).ok() == "machinedeployment/p1 is rolled-out\n"
        assert len(machines.there) == 1


# -- machines of a pool -----------------------------------------------------------------------------------------------


async def test_machines_are_listed_by_pool(place: Place, impatient: None) -> None:
    (machine,) = load_manifests(text(machine_yaml()), "test").machines
    for name, pool in (("p1-a", "p1"), ("p2-a", "p2"), ("m1", "")):
        state = MachineState(
            name=name, cluster=place.cluster, spec=machine.spec, pool=pool, revision=4, queue_prefix=place.queue
        )
        await _start(place.client, state)

    async def listed(*words: str) -> list[list[str]]:
        return [line.split() for line in (await place.run("get", "machines", *words)).ok().splitlines()[1:]]

    async def there() -> bool:
        return len(await listed()) == 3

    await eventually(there, "three machines")
    assert [row[0] for row in await listed("--pool", "p1")] == ["p1-a"]
    assert [(row[0], row[6]) for row in await listed("-o", "wide")] == [
        ("m1", "<none>"),
        ("p1-a", "p1"),
        ("p2-a", "p2"),
    ]
    assert "Pool:     p1, revision 4\n" in (await place.run("describe", "machine", "p1-a")).ok()
    nothing = await place.run("get", "machines", "--pool", "p3")
    assert (nothing.out, nothing.err) == ("", f"No machines found in cluster {place.cluster} of pool p3.\n")
    for wrong in (("machines", "m1", "--pool", "p1"), ("pools", "--pool", "p1")):
        assert (await place.run("get", *wrong)).code == 2


async def _start(client: Client, state: MachineState) -> None:
    """Starts it as a pool does; no worker serves it."""
    keywords = starts.of_machine(state, reason="CreatingVM", created=datetime.now(UTC))
    await client.start_workflow("MachineWorkflow", state, **keywords)


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "scale pool p1",
        "scale pool --replicas 3",
        "scale machine m1 --replicas 3",
        "scale pool p1 p2 --remove m1",
        "hibernate pool",
        "wake machine/m1",
        "delete pool --all",
        "delete pool p1 -l a=b",
        "renew pool --all",
        "renew all p1",
        "renew all -l a=b",
        "wait pool p1 --for phase=Running",
        "wait pool --all",
        "get pools -l a=b",
        "get pools p1 -A",
        "get pool p1 -w -o yaml",
    ],
)
async def test_what_is_typed_wrong_is_said(place: Place, words: str) -> None:
    ran = await place.run(*words.split())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("scale p1 --replicas 3", "it takes pool, workerpool; write pool p1 or workerpool p1"),
        ("hibernate p1", "it takes pool; write pool p1"),
        ("renew m1", "mcp, mc, all; write machine m1 or pool m1 or class m1 or cluster m1 or mcp m1 or mc m1"),
        ("resume rollout p1", "the rollouts of a pool: hostler rollout resume p1"),
        ("pause pool/p1", "the rollouts of a pool: hostler rollout pause p1"),
        ("rollout restart deployment/p1", "write pool/p1, controlplane, or mcp/p1"),
    ],
)
async def test_who_types_it_another_way_is_told_how(place: Place, words: str, says: str) -> None:
    ran = await place.run(*words.split())
    assert ran.code == 2
    assert says in re.sub(r"\s*│?\n│?\s*", " ", ran.err), ran.err


async def test_the_help_speaks_of_pools(place: Place) -> None:
    for words, says in (
        (("delete",), "is refused while machines or pools use the class"),
        (("delete",), "that has no pools and machines left"),
        (("pause",), "Default: the settings' default cluster."),
        (("rollout", "resume"), "Resume rollouts: after a pause"),
    ):
        shown = " ".join((await place.run(*words, "--help")).ok().split())
        assert says in shown, shown


async def test_names_of_pools_are_completed(place: Place, machines: Machines) -> None:
    await ready(place, class_yaml(), pool_yaml("web-1", replicas=0), pool_yaml("web-2", replicas=0))

    async def after(*words: str) -> list[str]:
        ran = await place.run("__complete", "--", *words)
        return [line.partition("\t")[0] for line in ran.ok().splitlines()]

    async def both() -> bool:
        return await after("describe", "pool", "we") == ["web-1", "web-2"]

    await eventually(both, "both names")
    assert await after("scale", "pool/") == ["pool/web-1", "pool/web-2"]
    assert await after("get", "machines", "--pool", "web-2") == ["web-2"]
    assert await after("wait", "pool", "web-1", "--for", "") == ["rolled-out", "ready", "deleted"]
    assert f"phase={Phase.RUNNING}" in await after("wait", "machine", "m1", "--for", "")

"""The command line against a real Temporal server: through the real `hostler`, where a process of its own matters (what
it reads and where it writes, its exit code, how it is stopped), else in this process, which spares a second each."""

from __future__ import annotations

import asyncio
import json
import re
import signal

import pytest
import yaml
from cli.place import (
    DEADLINE,
    Place,
    class_yaml,
    end,
    eventually,
    impatient,
    machine_yaml,
    place,
    secret_yaml,
    text,
    working,
)
from cli.standins import BECOMES, BLOCKER, DRAINS, KEEPS, REFUSES
from temporalio.client import WorkflowExecutionStatus

from resources.machine.state import MachineState, Phase
from resources.names import cluster_id, machine_id
from resources.reasons import next_step
from resources.settings import load_settings
from starter import output
from starter.doctor import waiting
from starter.sdk.client import HostlerClient

__all__ = ["impatient", "place", "working"]  # fixtures

CANARY = "hunter2-canary"


async def state_of(place: Place, name: str) -> MachineState:
    handle = place.client.get_workflow_handle(machine_id(place.cluster, name))
    state: MachineState = await handle.query("describe", result_type=MachineState)
    return state


async def listed(place: Place, *names: str) -> None:
    """Waits until visibility, which is behind, shows exactly these machines running with a phase of their own
    making."""

    async def look() -> bool:
        query = f"WorkflowType='MachineWorkflow' AND HostlerCluster='{place.cluster}' AND ExecutionStatus='Running'"
        found = [
            e.id.rsplit("/")[-1] async for e in place.client.list_workflows(f"{query} AND HostlerReason='Playing'")
        ]
        return sorted(found) == sorted(names)

    await eventually(look, f"visibility of {names}")


# -- a whole life -----------------------------------------------------------------------------------------------------


async def test_a_life(working: Place) -> None:
    manifests = text(secret_yaml(CANARY), class_yaml(), machine_yaml())

    dry = await working.run("apply", "-f", "-", "--dry-run", stdin=manifests)
    assert [line.removesuffix(" (dry run)") for line in dry.ok().splitlines()] == [
        "secret/s1 created",
        f"cluster/{working.cluster} created",
        "machineclass/c1 created",
        "machine/m1 created",
    ]
    assert not (working.folder / "secrets").exists()
    assert (await working.run("describe", "machine", "m1")).code == 1  # the dry run started nothing

    applied = await working.hostler("--as", "alice", "apply", "-f", "-", stdin=manifests)
    assert applied.ok() == dry.out.replace(" (dry run)", "")
    assert CANARY not in applied.out + applied.err
    assert (working.folder / "secrets/default/s1/userData").read_text() == CANARY
    cluster = await working.client.get_workflow_handle(cluster_id(working.cluster)).describe()
    assert cluster.status == WorkflowExecutionStatus.RUNNING

    waited = await working.run("wait", "machine/m1", "--for=phase=running")
    assert waited.ok() == "machine/m1 is Running\n"

    row = (await working.run("get", "machine", "m1", "-o", "wide")).ok().splitlines()
    columns = ["NAME", "PHASE", "REASON", "NODE", "AGE", "CLASS", "POOL", "PROVIDER-ID", "DEADLINE", "PRESERVED-UNTIL"]
    assert row[0].split() == [*columns, "MESSAGE"]
    assert row[1].split()[:4] == ["m1", "Running", "Playing", "node-m1"]
    assert row[1].split()[5:] == ["c1", "<none>", "aws:///eu-west-1/i-m1", "in", "29m", "<none>", "plays", "Running"]

    printed = (await working.run("get", "machine", "m1", "-o", "yaml")).ok()
    assert yaml.safe_load(printed)["status"]["phase"] == "Running"
    again = await working.run("apply", "-f", "-", stdin=printed)
    assert (again.ok(), again.err) == ("machine/m1 unchanged\n", "")

    described = (await working.run("describe", "machine", "m1")).ok()
    for words in (
        "Phase:        Running",
        "Class:        c1, generation 1",
        "Provider ID:  aws:///eu-west-1/i-m1",
        "Create Successful",
        "Failed, if two fresh looks agree:  20",
        "(in 29m)",
        "plays Running",
        f"What can be done:  {next_step('Playing', working.cluster, 'm1')}",
        "machine m1 begins",
        f"http://127.0.0.1:8233/namespaces/default/workflows/machine%2F{working.cluster}%2Fm1/",
    ):
        assert words in described
    # As in kubectl, what is there is shown, and what is not makes it an error.
    for asked, shown in (
        (("get", "machine", "nosuch", "m1", "-o", "name"), "machine/m1\n"),
        (("get", "machine", "nosuch", "m1", "-o", "jsonpath={.items[*].metadata.name}"), "m1"),
        (("describe", "machine", "m1", "nosuch"), described[:60]),
    ):
        some = await working.run(*asked)
        assert (some.code, some.out.startswith(shown)) == (1, True), some
        assert some.err.startswith("error: ")
        assert "nosuch" in some.err
    both = (await working.run("describe", "machine/m1", f"cluster/{working.cluster}")).ok()
    assert re.search(rf"^Name: +m1\n(?s:.*)\n\nName: +{working.cluster}\n", both)


async def test_an_end_and_a_new_life(working: Place) -> None:
    manifests = text(class_yaml(), machine_yaml(**{KEEPS: "vol-1"}))
    (await working.run("apply", "-f", "-", stdin=manifests)).ok()
    watching = await working.start("events", "machine", "m1", "-w")
    try:
        deleted = await working.run("delete", "machine", "m1", "--wait", "--reason", "too old", "--as", "alice")
        assert deleted.ok() == "machine/m1 deletion: will drain, then delete\nmachine/m1 deleted\n"
        watched, _ = await asyncio.wait_for(watching.communicate(), DEADLINE)  # it ends with the machine
    finally:
        await end(watching)

    gone = (await working.run("describe", "machine", "m1")).ok()
    assert "(gone)" in gone
    assert "vol-1" in gone
    told = (await working.run("events", "machine", "m1")).ok()
    assert told.count("delete asked by alice: too old") == 1
    reasons = ["Started", "Created", "Running", "DeleteAsked", "Terminating", "Gone"]
    assert [line.split()[3] for line in told.splitlines()[1:]] == reasons
    assert [line.split()[3] for line in watched.decode().splitlines()[1:]] == reasons

    assert (await working.run("delete", "machine", "m1")).ok().startswith("machine/m1 is already gone since")
    missing = await working.run("get", "machine", "m1")
    assert (missing.code, missing.out) == (1, "")
    assert "is gone since" in missing.err
    reborn = (await working.run("apply", "-f", "-", stdin=manifests)).ok()
    assert "machine/m1 created: the earlier machine of this name has been gone since" in reborn
    assert "this is a new one" in reborn


async def test_changes_reach_the_machines_that_use_the_class(working: Place) -> None:
    await apply(working, class_yaml(), machine_yaml("m1"), machine_yaml("m2"))
    await listed(working, "m1", "m2")

    table = (await working.run("get", "machines")).ok().splitlines()
    assert [line.split()[:3] for line in table] == [
        ["NAME", "PHASE", "REASON"],
        ["m1", "Running", "Playing"],
        ["m2", "Running", "Playing"],
    ]
    both = json.loads((await working.run("get", "machines", "-o", "json")).ok())
    assert (both["kind"], [m["metadata"]["name"] for m in both["items"]]) == ("List", ["m1", "m2"])
    assert (await working.run("get", "machines", "-o", "name")).ok() == "machine/m1\nmachine/m2\n"
    template = 'jsonpath={range .items[*]}{.metadata.name} {.metadata.creationTimestamp}{"\\n"}{end}'
    told = (await working.run("get", "machines", "--sort-by", ".metadata.name", "-o", template)).ok()
    assert re.fullmatch(r"m1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\nm2 \S{20}\n", told)
    some = (await working.run("get", "machine/m1", "class/c1", "--show-labels", "--no-headers")).ok().splitlines()
    assert [line.split()[:1] for line in some] == [["machine/m1"], [], ["machineclass/c1"]]
    everything = (await working.run("get", "all", "-o", "name")).ok()
    assert everything.split() == ["machine/m1", "machine/m2", "machineclass/c1"]

    async def users(count: str) -> bool:
        rows = [line.split() for line in (await working.run("get", "classes")).ok().splitlines()]
        return rows[1][:5] == ["c1", "AWS", "1", "1", count]

    await eventually(lambda: users("2"), "word of both machines")

    # A class alone goes to all its users, and the class tells them; the same again goes to nobody.
    changed = await apply(working, class_yaml(ami="ami-2"))
    assert changed == ["machineclass/c1 configured: generation 2: needs replacement: ami; 2 machines to tell"]

    async def taken() -> bool:
        states = [(await state_of(working, name)).machine_class for name in ("m1", "m2")]
        return [s.generation for s in states if s] == [2, 2]

    await eventually(taken, "generation 2 in both")
    assert await apply(working, class_yaml(ami="ami-2")) == ["machineclass/c1 unchanged"]

    # With its machines in the same files, what the class alone changes for them is still the class's to tell.
    assert await apply(working, class_yaml(ami="ami-3"), machine_yaml("m1"), machine_yaml("m2", colour="blue")) == [
        "machineclass/c1 configured: generation 3: needs replacement: ami; 2 machines to tell",
        "machine/m1 configured: its class tells it",
        "machine/m2 configured: takes generation 3",
    ]

    # A machine whose class is in no file takes what the class's workflow has.
    assert await apply(working, machine_yaml("m1", colour="red")) == ["machine/m1 configured: takes generation 3"]
    state = await state_of(working, "m1")
    assert state.labels == {"colour": "red"}
    assert state.machine_class is not None
    assert state.machine_class.provider_spec["ami"] == "ami-3"


async def apply(place: Place, *manifests: dict[str, object]) -> list[str]:
    """Applied machines have been taken up by the worker when it returns."""
    return (await place.run("apply", "-f", "-", stdin=text(*manifests))).ok().splitlines()


async def test_what_is_wrong_is_said_before_anything_is_sent(working: Place) -> None:
    files = working.folder / "manifests"
    files.mkdir()
    (files / "good.yaml").write_text(text(secret_yaml(CANARY), class_yaml(), machine_yaml("good")))
    (files / "orphan.yaml").write_text(text(machine_yaml("orphan", "nowhere")))
    (files / "notes.txt").write_text("not a manifest")
    refused = await working.run("apply", "-f", str(files))
    assert (refused.code, refused.out) == (1, "")
    assert "machine orphan: class 'nowhere' is in none of the files and was not applied before" in refused.err
    assert not (working.folder / "secrets").exists()
    assert (await working.run("describe", "machine", "good")).code == 1

    (files / "orphan.yaml").unlink()  # and without it exactly the rest is done
    done = await working.run("apply", "-f", str(files))
    assert done.ok().splitlines()[-1] == "machine/good created"

    odd = {**machine_yaml("odd"), "spec": {"class": {"name": "c1"}, "drainTimout": "1h"}}
    for manifests, words in (
        (text(class_yaml(), machine_yaml("m1"), machine_yaml("m1")), "given more than once"),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: p}\n", "kind 'Pod' is not known"),
        ("", "contains no manifests"),
        (text({**machine_yaml("bad"), "spec": {"class": {"name": "c1"}, "drainTimeout": "soon"}}), "drainTimeout"),
        (text(machine_yaml("good-too"), odd), "spec.drainTimout: unknown field; did you mean drainTimeout"),
    ):
        refused = await working.run("apply", "-f", "-", stdin=manifests)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("error: ")
        assert words in refused.err
    assert (await working.run("describe", "machine", "good-too")).code == 1
    mistyped = await working.run("apply", "-f", "-", "--validate=warm", stdin=text(odd))
    assert mistyped.code == 2
    assert "not 'warm'; did you mean warn?" in " ".join(mistyped.err.split())
    warned = await working.run("apply", "-f", "-", "--dry-run", "--validate=warn", stdin=text(odd))
    assert warned.ok() == "machine/odd created (dry run)\n"
    assert warned.err.startswith("warning: standard input (document 1): Machine odd: spec.drainTimout: unknown field")
    lost = await working.run("apply", "-f", "nowhere.yaml")
    assert (lost.code, lost.err) == (1, "error: nowhere.yaml: cannot be read: No such file or directory\n")


async def test_refusals_of_the_workflow_are_shown_as_they_are(working: Place) -> None:
    await apply(working, class_yaml(), machine_yaml(**{REFUSES: "yes"}))
    refused = await working.run("delete", "machine", "m1", "ghost")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines() == [
        "error: a hook of alice holds it; use --force",
        f"error: machine 'ghost' of cluster '{working.cluster}' is not known: "
        f"`hostler get machines --cluster {working.cluster}` lists those that are",
    ]
    file = working.folder / "m1.yaml"
    file.write_text(text(class_yaml(), machine_yaml()))
    forced = await working.run("delete", "-f", str(file), "--force")
    assert forced.ok() == "machine/m1 deletion: will drain, then delete\n"
    assert "machineclass/c1: not deleted" in forced.err


# -- without a worker -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker_everything_is_kept(place: Place) -> None:
    manifests = text(class_yaml(), machine_yaml())
    (await place.run("apply", "-f", "-", stdin=manifests)).ok()

    described = (await place.run("describe", "machine", "m1")).ok()
    assert f"nobody polls {place.queue}" in described
    assert "Class:    c1, generation 1" in described
    printed = await place.run("get", "machine", "m1", "-o", "yaml")
    assert yaml.safe_load(printed.ok())["status"] == {"phase": "Pending"}
    assert f"nobody polls {place.queue}" in printed.err

    listed = await place.run("get", "machine", "m1")
    assert listed.err.startswith(f"warning: nobody polls {place.queue}")
    assert "Pending" in listed.ok()

    # Two changes that no worker has seen: the second continues from the first.
    for ami, label in (("ami-2", "red"), ("ami-3", "blue")):
        changed = text(class_yaml(ami=ami), machine_yaml(colour=label))
        kept = (await place.run("apply", "-f", "-", stdin=changed)).ok().splitlines()
        assert kept[-1] == f"machine/m1 configured: recorded; no worker is polling {place.queue}"
    same = (await place.run("apply", "-f", "-", stdin=changed)).ok().splitlines()
    assert same == ["machineclass/c1 unchanged", "machine/m1 unchanged"]

    deleted = await place.run("delete", "machine", "m1")
    assert deleted.ok() == f"machine/m1 deletion: recorded; no worker is polling {place.queue}\n"
    refused = await place.run("apply", "-f", "-", stdin=manifests)
    assert (refused.code, "machine m1: it is being deleted" in refused.err) == (1, True)

    late = await place.run("wait", "machine", "m1", "--for=deleted", "--timeout", "100ms")
    assert late.code == 124
    async with place.worker():
        (await place.run("wait", "machine", "m1", "--for=deleted")).ok()
        handle = place.client.get_workflow_handle(machine_id(place.cluster, "m1"))
        asked = [e.split()[3:] for e in (await place.run("events", "machine", "m1")).ok().splitlines()]
        await handle.result()
    assert [words[0] for words in asked if words[0].endswith("Asked")] == ["ApplyAsked", "ApplyAsked", "DeleteAsked"]
    last_apply = [words for words in asked if words[0] == "ApplyAsked"][-1]
    assert last_apply[-4:] == ["class", "c1", "generation", "3"]


async def test_wait_tells_what_happens(working: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await apply(
        working,
        class_yaml(),
        machine_yaml("slow", **{BECOMES: str(Phase.PENDING), DRAINS: "blocked"}),
        machine_yaml("broken", **{BECOMES: str(Phase.FAILED)}),
    )

    async def blocked() -> bool:
        return BLOCKER in (await working.run("describe", "machine", "slow")).ok()

    await eventually(blocked, "the blocker")
    with monkeypatch.context() as patched:
        patched.setattr(output, "PATIENCE", 1.0)
        late = await working.run("wait", "machine", "slow", "--timeout", "1500ms")
    assert late.code == 124
    progress, error = late.err.splitlines()
    assert progress == f"machine/slow: Pending (Draining); drain_node, attempt 2: {BLOCKER}"
    assert error.startswith("error: machine slow is Pending (Draining), not Running, after 1.5s")

    assert BLOCKER in (await working.run("tree", COLUMNS="200")).ok()
    assert BLOCKER in (await working.run("get", "machine", "slow", "-o", "wide", COLUMNS="300")).ok()
    hostler = HostlerClient(working.client, load_settings(working.settings_file), cluster=working.cluster)
    waits = {w.name: w for w in await waiting.look(hostler, working.cluster, served=True)}
    assert (waits["slow"].reason, waits["slow"].message) == ("DrainBlocked", BLOCKER), "a person may have to act"

    failed = await working.run("wait", "machine", "broken")
    assert (failed.code, "broken is Failed (Playing) and will not become Running" in failed.err) == (1, True)

    await working.client.get_workflow_handle(machine_id(working.cluster, "slow")).terminate(reason="by hand")
    ended = await working.run("wait", "machine", "slow", "--for", "deleted")
    assert ended.code == 1
    described = (await working.run("describe", "machine", "slow")).ok()
    for words in ("its resources may still exist", "Pending, when its workflow ended", "UID: ", "machine slow begins"):
        assert words in described
    assert described.count("hostler adopt machine slow --cluster") == 1
    assert "Waiting for" not in described
    told = (await working.run("events", "machine", "slow")).ok()
    assert [line.split()[3] for line in told.splitlines()[1:]] == ["Started", "Created", "Pending", "Terminated"]
    assert "by hand" in told


async def test_watch_prints_what_changes(working: Place) -> None:
    await apply(working, class_yaml(), machine_yaml())
    await listed(working, "m1")
    process = await working.start("get", "machines", "-w")
    try:
        assert process.stdout is not None
        lines = [await asyncio.wait_for(process.stdout.readline(), DEADLINE) for _ in range(2)]
        assert lines[1].split()[:2] == [b"m1", b"Running"]
        (await working.run("delete", "machine", "m1")).ok()
        while b"Gone" not in lines[-1]:
            lines.append(await asyncio.wait_for(process.stdout.readline(), DEADLINE))
        assert {line.split()[0] for line in lines[2:]} == {b"m1"}
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 130
        assert await process.stdout.read() == b""
    finally:
        await end(process)


# -- usage ------------------------------------------------------------------------------------------------------------


async def test_exit_codes_and_words(place: Place) -> None:
    usage = ("get", "pods"), ("describe", "machine"), ("delete",), ("apply",), ("nonsense",)
    wrong = [("wait", "machine", "m1", "--for=phase=Happy"), ("get", "machines", "-w", "-o", "yaml")]
    wrong += [("delete", "machine", "m1", "--abandon-node"), ("delete", "pool", "p", "--force", "--abandon-node")]
    for args in (*usage, *wrong):
        ran = await place.run(*args)
        assert (ran.code, ran.out) == (2, ""), args
        first, *rest = ran.err.splitlines()
        assert first.startswith("error: "), args
        assert all(line.startswith("See 'hostler") for line in rest), args

    unreachable = await place.hostler("get", "machines", TEMPORAL_ADDRESS="127.0.0.1:1")
    assert unreachable.code == 3
    assert unreachable.err.startswith("error: Temporal at 127.0.0.1:1 cannot be reached (Connection refused): start it")
    lost = await place.run("describe", "machine", "m1", TEMPORAL_NAMESPACE="elsewhere")
    assert (lost.code, "Namespace elsewhere is not found" in lost.err) == (3, True)
    bad = await place.run("--settings", "nowhere.yaml", "get", "machines")
    assert (bad.code, bad.err) == (1, "error: nowhere.yaml: cannot be read: No such file or directory\n")
    assert "Traceback" not in unreachable.err + lost.err + bad.err
    assert "Traceback" in (await place.run("get", "nodes", HOSTLER_DEBUG="1")).err

    assert (await place.run("--version")).ok().startswith("hostler ")
    shown = (await place.run("--help")).ok()
    assert "124 not in time" in " ".join(shown.split())
    for command in (
        "up",
        "apply",
        "get",
        "describe",
        "events",
        "wait",
        "renew",
        "delete",
        "explain",
        "doctor",
        "worker",
        "setup",
        "simulator",
        "completion",
    ):
        assert f"\n  {command} " in shown
    assert "__complete" not in shown


async def test_clusters_of_the_settings(working: Place) -> None:
    here, there = working.cluster, f"{working.cluster}-b"
    working.write_settings(clusters={here: {}, there: {"namespaces": ["shoot--b"]}})
    other = machine_yaml("mb")
    other["metadata"]["namespace"] = "shoot--b"
    other_class = class_yaml()
    other_class["metadata"]["namespace"] = "shoot--b"
    lines = await apply(working, other_class, other)
    assert f"cluster/{there} created" in lines
    printed = (await working.run("get", "machine", "mb", "--cluster", there, "-o", "yaml")).ok()
    assert await apply(working, yaml.safe_load(printed)) == ["machine/mb unchanged"]  # the annotation leads back

    refused = await working.run("apply", "-f", "-", "--cluster", "typo", stdin=text(class_yaml(), machine_yaml()))
    assert (refused.code, refused.out) == (1, "")
    assert f"cluster 'typo' is not in the settings; the known clusters are: {here}, {there}" in refused.err

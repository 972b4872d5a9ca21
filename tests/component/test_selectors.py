"""Label selectors: the language, and the commands that take it."""

from __future__ import annotations

import asyncio
import json

import pytest
from cli.place import (
    DEADLINE,
    NODE,
    Place,
    class_yaml,
    eventually,
    impatient,
    kubectl,
    machine_yaml,
    place,
    text,
    working,
)
from cli.standins import BECOMES

from resources.machine.state import Phase
from resources.settings import load_settings
from simulator.kubelet import Timings as SimulatorTimings
from simulator.server import SimulatorSettings, SimulatorThread
from starter.sdk import live
from starter.sdk.client import HostlerClient
from starter.sdk.errors import Unreachable
from starter.sdk.machines.selectors import SelectorError, parse

__all__ = ["impatient", "place", "working"]  # fixtures

LABELS = {"pool": "demo", "zone": "a", "example.com/tier": "", "gpu": "yes"}


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ("pool=demo", True),
        ("pool==demo", True),
        ("pool = other", False),
        ("pool=demo,zone!=a", False),
        ("pool=demo , zone!=b", True),
        ("missing=", False),
        ("missing!=x", True),  # as at the API server: an object without the label is not equal
        ("example.com/tier=", True),
        ("zone in (a, b)", True),
        ("zone in (b,c),pool=demo", False),
        ("zone notin (b,c)", True),
        ("missing notin (b)", True),
        ("missing in (b)", False),
        ("gpu", True),
        ("!gpu", False),
        ("! missing,gpu", True),
    ],
)
def test_what_a_selector_means(selector: str, holds: bool) -> None:
    assert parse(selector).matches(LABELS) is holds


@pytest.mark.parametrize("selector", ["", "a=b,", "a>1", "a=b=c", "=b", "a in b", "a in (b,/)", "a b", "a=b c", "-a"])
def test_what_is_no_selector(selector: str) -> None:
    with pytest.raises(SelectorError, match="key notin"):
        parse(selector)


# -- machines ---------------------------------------------------------------------------------------------------------


async def fleet(place: Place) -> None:
    """Two pools in this cluster and one machine in another, all in the lists."""
    manifests = [class_yaml()]
    for name, pool in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        manifests.append(machine_yaml(name, pool=pool))
    (await place.run("apply", "-f", "-", stdin=text(*manifests))).ok()
    other = text(class_yaml(), machine_yaml("a1", pool="a"))
    (await place.run("apply", "-f", "-", "--cluster", f"{place.cluster}-x", stdin=other)).ok()

    async def listed() -> bool:
        rows = (await place.run("get", "machines", "-A")).ok().splitlines()
        return len([r for r in rows if place.cluster in r and "Running" in r]) == 4

    await eventually(listed, "four machines in the list")


async def named(place: Place, *args: str) -> list[str]:
    """The names, without those of other tests' clusters."""
    found = (await place.run("get", "machines", "-o", "name", *args)).ok().splitlines()
    return [name for name in found if name.count("/") == 1 or place.cluster in name]


async def test_machines_by_label(working: Place) -> None:
    await fleet(working)
    here, there = working.cluster, f"{working.cluster}-x"
    assert await named(working, "-l", "pool=a") == ["machine/a1", "machine/a2"]
    assert await named(working, "--selector", "pool notin (a)") == ["machine/b1"]
    assert await named(working, "-A", "-l", "pool=a") == [
        f"machine/{here}/a1",
        f"machine/{here}/a2",
        f"machine/{there}/a1",
    ]
    rows = (await working.run("get", "machines", "-A", "-l", "pool=b")).ok().splitlines()
    assert [row.split()[:3] for row in rows] == [["CLUSTER", "NAME", "PHASE"], [here, "b1", "Running"]]
    found = json.loads((await working.run("get", "machines", "-l", "pool=b", "-o", "json")).ok())
    assert [m["metadata"]["labels"] for m in found["items"]] == [{"pool": "b"}]
    none = await working.run("get", "machines", "-l", "pool=c")
    assert (none.ok(), none.err) == ("", f"No machines found in cluster {here} with labels pool=c.\n")

    # A dry run says which; what it says is what is then done, and nothing else.
    dry = await working.run("delete", "machine", "-l", "pool=a", "--dry-run")
    assert dry.ok() == "machine/a1 deletion (dry run)\nmachine/a2 deletion (dry run)\n"
    assert await named(working) == ["machine/a1", "machine/a2", "machine/b1"]
    done = await working.run("delete", "machine", "-l", "pool=a", "--wait")
    assert done.ok().splitlines() == [
        "machine/a1 deletion: will drain, then delete",
        "machine/a2 deletion: will drain, then delete",
        "machine/a1 deleted",
        "machine/a2 deleted",
    ]

    async def left() -> bool:
        return await named(working, "-A") == [f"machine/{here}/b1", f"machine/{there}/a1"]

    await eventually(left, "the others, untouched")
    nobody = await working.run("delete", "machine", "-l", "pool=a")
    assert (nobody.ok(), nobody.err) == ("", f"No machines found in cluster {here} with labels pool=a.\n")
    renewed = await working.run("renew", "machine", "--all")
    assert renewed.ok() == "machine/b1 renewal: continues in a new run\n"
    everything = await working.run("delete", "machine", "--all")
    assert everything.ok() == "machine/b1 deletion: will drain, then delete\n"
    assert (await working.run("get", "machine", "a1", "--cluster", there)).code == 0


async def test_waiting_for_some(working: Place) -> None:
    manifests = [class_yaml(), machine_yaml("good", pool="a"), machine_yaml("fine", pool="a")]
    manifests += [machine_yaml("slow", pool="b", **{BECOMES: str(Phase.PENDING)})]
    manifests += [machine_yaml("slower", pool="b", **{BECOMES: str(Phase.PENDING)})]
    manifests += [machine_yaml("broken", pool="c", **{BECOMES: str(Phase.FAILED)})]
    (await working.run("apply", "-f", "-", stdin=text(*manifests))).ok()

    async def listed() -> bool:
        return len(await named(working)) == 5

    await eventually(listed, "five machines in the list")
    assert (
        await working.run("wait", "machine", "-l", "pool=a")
    ).ok() == "machine/fine is Running\nmachine/good is Running\n"
    late = await working.run("wait", "machine", "-l", "pool in (a,b)", "--timeout", "200ms")
    assert (late.code, late.out) == (124, "machine/fine is Running\nmachine/good is Running\n")
    assert [line.split()[2] for line in late.err.splitlines()] == [
        "slow",
        "slower",
    ]  # all that were late, not the first
    failed = await working.run("wait", "machine", "--all", "--timeout", "200ms")
    assert failed.code == 1
    assert "broken is Failed" in failed.err
    nobody = await working.run("wait", "machine", "-l", "pool=z")
    assert (nobody.code, "No machines found" in nobody.err) == (1, True)


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker_nothing_is_half_selected(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.worker():
        await fleet(place)
    for command in (("get", "machines"), ("delete", "machine"), ("wait", "machine"), ("renew", "machine")):
        ran = await place.run(*command, "-l", "pool=a")
        assert (ran.code, ran.out) == (3, ""), command
        assert "the labels of machine" in ran.err
        assert place.queue in ran.err
    assert await named(place) == ["machine/a1", "machine/a2", "machine/b1"]  # and without labels the list is whole
    async with HostlerClient.connect(load_settings(place.settings_file)) as client:
        with pytest.raises(Unreachable, match="would be incomplete"):
            await client.select("pool=a")
        monkeypatch.setattr(live, "QUERY_TIMEOUT", DEADLINE)  # a worker takes its time
        async with place.worker():
            assert [m.summary.name for m in await client.select("pool=a")] == ["a1", "a2"]


async def test_usage(place: Place) -> None:
    for args, words in (
        (("get", "machines", "-l", "a>1"), "is not a label selector"),
        (("get", "machines", "m1", "-l", "a=b"), "give either names or -l"),
        (("get", "machines", "m1", "-A"), "names need one cluster"),
        (("get", "clusters", "-A"), "clusters cannot be selected"),
        (("delete", "machine"), "give names"),
        (("delete", "machine", "-A"), "give names"),
        (("delete", "machine", "m1", "--all"), "only one of them"),
        (("delete", "machine", "--all", "-l", "a=b"), "give either -l"),
        (("delete", "-f", "x.yaml", "--all"), "give either files"),
        (("delete", "machine", "-l", ""), "is not a label selector"),
        (("delete", "cluster", "--all"), "for a cluster"),
        (("delete", "cluster"), "give one cluster"),
        (("wait", "cluster", "c1"), "'cluster' is not a kind for this command; it takes machine"),
        (("freeze", "al"), "it takes pool, cluster, all; did you mean all?"),
        (("freeze", "pool"), "give the names: pool NAME..."),
        (("get", "mashines"), "did you mean machines"),
        (("renew", "machine"), "give names"),
    ):
        ran = await place.run(*args)
        assert (ran.code, ran.out) == (2, ""), args
        assert words in " ".join(ran.err.replace("│", "").split()), args


async def test_names_typed_wrong(working: Place) -> None:
    (await working.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml("worker-east-1")))).ok()

    async def suggested() -> bool:
        ran = await working.run("describe", "machine", "worker-aest-1")
        assert (ran.code, ran.out) == (1, "")
        return ran.err.endswith("lists those that are; did you mean worker-east-1?\n")

    await eventually(suggested, "a suggestion, once the machine is in the lists")
    far = await working.run("describe", "machine", "zzz")
    assert (far.code, "did you mean" in far.err) == (1, False)


# -- nodes ------------------------------------------------------------------------------------------------------------


async def test_nodes_by_label(place: Place) -> None:
    simulator = SimulatorThread(SimulatorSettings(timings=SimulatorTimings.fast()))
    await asyncio.to_thread(simulator.__enter__)
    try:
        (place.folder / "kubeconfig").write_text(simulator.simulator.kubeconfig)
        other = {**NODE, "metadata": {"name": "n2", "labels": {"zone": "b"}}, "spec": {}}
        await kubectl(place, "create", "-f", "-", stdin=text(NODE, other))
        nowhere = await place.run("get", "nodes", "-A")
        assert (nowhere.code, "the settings name no clusters" in nowhere.err) == (1, True)
        place.write_settings(clusters={"east": {"kubeconfig": "kubeconfig"}, "west": {"kubeconfig": "kubeconfig"}})
        found = await place.run("get", "nodes", "--cluster", "east", "-l", "zone in (b, c)", "-o", "name")
        assert found.ok() == "node/n2\n"
        everywhere = await place.run("get", "nodes", "-A", "-l", "zone", "-o", "name")
        assert everywhere.ok() == "node/east/n2\nnode/west/n2\n"
        none = await place.run("get", "nodes", "--cluster", "east", "-l", "zone=a")
        assert (none.ok(), none.err) == ("", "No nodes found in cluster east with labels zone=a.\n")
        some = await place.run("get", "nodes", "n1", "nosuch", "n2", "--cluster", "east", "-o", "name")
        assert (some.code, some.out) == (1, "node/n1\nnode/n2\n")
        assert some.err == "error: cluster east has no Node nosuch\n"
    finally:
        await asyncio.to_thread(simulator.__exit__)

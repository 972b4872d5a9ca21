"""`hostler preserve`, `release`, `extend`, and what is shown of it, against the stand-in of a machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cli.place import Place, class_yaml, eventually, impatient, machine_yaml, place, text, working
from cli.standins import BECOMES

from resources.machine.preservation import PreserveValue
from resources.machine.state import MachineState, Phase
from resources.names import machine_id
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NotFound, Refused

__all__ = ["impatient", "place", "working"]  # fixtures

HOUR = timedelta(hours=1)


async def state_of(place: Place, name: str = "m1") -> MachineState:
    handle = place.client.get_workflow_handle(machine_id(place.cluster, name))
    state: MachineState = await handle.query("describe", result_type=MachineState)
    return state


async def apply(place: Place, *machines: dict[str, Any]) -> None:
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(), *machines))).ok()


async def rows(place: Place, *args: str) -> list[list[str]]:
    return [line.split() for line in (await place.run("get", "machines", *args)).ok().splitlines()[1:]]


async def seen(place: Place, wanted: list[list[str]], *args: str) -> None:
    """Waits until visibility, which is behind, shows names and phases as wanted."""

    async def look() -> bool:
        return [row[:2] for row in await rows(place, *args)] == wanted

    await eventually(look, f"{wanted} of {args}")


def near(time: datetime | None, wanted: datetime) -> bool:
    """Equal, give or take what a busy test machine takes."""
    return time is not None and abs(time - wanted) < timedelta(minutes=2)


def now() -> datetime:
    return datetime.now(UTC)


# -- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_machine_is_preserved_extended_and_released(working: Place) -> None:
    await apply(working, machine_yaml())
    ran = await working.run("--as", "alice", "preserve", "m1", "--for", "8h", "--reason", "it swaps")
    kept = await state_of(working)
    until = kept.status.preserve.expiry_time
    assert until is not None
    assert near(until, now() + 8 * HOUR)
    assert ran.ok() == f"machine/m1 preservation: preserved until {until:%Y-%m-%d %H:%M:%S} UTC\n"
    own = kept.status.preserve.own
    assert own is not None
    assert (own.value, own.requested_by, own.reason, own.lasts) == (PreserveValue.NOW, "alice", "it swaps", 8 * HOUR)
    assert len(kept.intents) == 1

    later = (now() + 48 * HOUR).replace(microsecond=0)
    extended = await working.run("extend", "machine/m1", "--until", f"{later:%Y-%m-%d %H:%M:%S} UTC")
    assert extended.ok() == f"machine/m1 extension: preserved until {later:%Y-%m-%d %H:%M:%S} UTC\n"
    assert (await state_of(working)).status.preserve.expiry_time == later
    (await working.run("extend", "machine", "m1", "--for", "90m")).ok()
    assert near((await state_of(working)).status.preserve.expiry_time, now() + 1.5 * HOUR)

    assert (await working.run("release", "m1")).ok() == "machine/m1 release: is let go\n"
    assert (await state_of(working)).status.preserve.expiry_time is None
    refused = await working.run("extend", "m1", "--for", "1h")
    assert (refused.code, refused.out, refused.err) == (1, "", "error: machine m1 is not preserved\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [([], PreserveValue.NOW), (["--when-failed"], PreserveValue.WHEN_FAILED), (["--never"], PreserveValue.FALSE)],
    ids=["now", "when-failed", "never"],
)
async def test_each_value(working: Place, option: list[str], value: PreserveValue) -> None:
    await apply(working, machine_yaml())
    (await working.run("preserve", "m1", *option)).ok()
    p = (await state_of(working)).status.preserve
    assert p.own is not None
    assert (p.own.value, p.own.lasts, p.own.until) == (value, None, None)
    assert (p.expiry_time is not None) is (value is PreserveValue.NOW)


async def test_a_machine_is_found_by_its_node(working: Place) -> None:
    """It is, even where a machine has the name of another one's node: a bare name is the machine's first."""
    await apply(working, machine_yaml("m1"), machine_yaml("m2"), machine_yaml("node-m2"))
    await seen(working, [["m1", "Running"], ["m2", "Running"], ["node-m2", "Running"]])
    assert (await working.run("preserve", "node-m1")).ok().startswith("machine/m1 (node node-m1) preservation: ")
    assert (await working.run("preserve", "node-m2", "--when-failed")).ok() == (
        "machine/node-m2 preservation: takes when-failed\n"
    )
    assert (await working.run("preserve", "node/node-m2", "--never")).ok() == (
        "machine/m2 (node node-m2) preservation: takes false\n"
    )
    assert (await working.run("release", "node", "node-m1", "node-m2")).ok().splitlines() == [
        "machine/m1 (node node-m1) release: is let go",
        "machine/m2 (node node-m2) release: is let go",
    ]
    # All of them, even after one that fails; one that is named twice is asked once.
    ran = await working.run("preserve", "node/ghost", "m1", "node-m1", "ghost")
    assert (ran.code, len(ran.out.splitlines())) == (1, 1)
    assert ran.out.startswith("machine/m1 preservation: ")
    assert ran.err.splitlines() == [
        f"error: no machine of cluster {working.cluster!r} has node 'ghost': `hostler get machines --cluster "
        f"{working.cluster}` shows the nodes; a machine has none until its node has joined",
        f"error: machine 'ghost' of cluster {working.cluster!r} is not known: `hostler get machines --cluster "
        f"{working.cluster}` lists those that are",
    ]


async def test_a_node_of_two_machines_is_nobodys(working: Place) -> None:
    from resources import attributes

    await apply(working, machine_yaml("m1"), machine_yaml("m2"))
    await seen(working, [["m1", "Running"], ["m2", "Running"]])
    handle = working.client.get_workflow_handle(machine_id(working.cluster, "m2"))
    await handle.signal("take_node", "node-m1")

    async def both() -> bool:
        query = f"HostlerCluster='{working.cluster}' AND {attributes.NODE.name}='node-m1'"
        return len([e async for e in working.client.list_workflows(query)]) == 2

    await eventually(both, "both machines with one node")
    ran = await working.run("preserve", "node/node-m1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"error: node node-m1 of cluster {working.cluster} belongs to m1 and m2: give the machine's name\n"
    )
    (await working.run("preserve", "m2")).ok()


async def test_a_selection(working: Place) -> None:
    await apply(working, machine_yaml("m1", team="a"), machine_yaml("m2", team="b"), machine_yaml("m3", team="a"))
    await seen(working, [["m1", "Running"], ["m2", "Running"], ["m3", "Running"]])
    told = (await working.run("preserve", "-l", "team=a", "--when-failed")).ok()
    assert told.splitlines() == [f"machine/{m} preservation: takes when-failed" for m in ("m1", "m3")]
    assert (await state_of(working, "m2")).status.preserve.own is None
    # Among all, only those that have something to release, or to extend.
    (await working.run("preserve", "m3")).ok()
    assert (await working.run("extend", "-l", "team", "--for", "8h")).ok().startswith("machine/m3 extension: preserved")
    released = (await working.run("release", "--all")).ok()
    assert released.splitlines() == [f"machine/{m} release: is let go" for m in ("m1", "m3")]
    for again in (("release", "--all"), ("extend", "--all", "--for", "8h")):
        none = await working.run(*again)
        assert (none.ok(), none.err) == ("", f"No preserved machines found in cluster {working.cluster}.\n")
    named = await working.run("release", "m1", "m2")
    assert (named.code, named.out) == (1, "")
    assert named.err.splitlines() == [f"error: machine {m} is not preserved" for m in ("m1", "m2")]
    nothing = await working.run("release", "-l", "team=c")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == f"No machines found in cluster {working.cluster} with labels team=c.\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("preserve",), "give names (MACHINE or NODE...), -l SELECTOR, or --all"),
        (("preserve", "m1", "--all"), "give names, -l or --all, and only one of them"),
        (("preserve", "m1", "--when-failed", "--never"), "give either --when-failed or --never"),
        (("preserve", "m1", "--never", "--for", "8h"), "--never takes no time"),
        (("preserve", "m1", "--for", "8h", "--until", "2036-12-01T18:00:00Z"), "give either --for or --until"),
        (("preserve", "m1", "--for", "soon"), "'soon' is not a duration; write it like 20m, 1h30m or 90s"),
        (("preserve", "m1", "--until", "2036-12-01 18:00"), "has no time zone"),
        (("preserve", "m1", "--until", "tomorrow"), "'tomorrow' is not a time; write it like 2026-12-01T18:00:00Z"),
        (("preserve", "pool/p1"), "'pool (machinedeployment)' is not a kind for this command; it takes machine, node"),
        (("preserve", "machine"), "'machine' has no name; write machine NAME"),
        (("extend", "m1"), "give --for DURATION (from now on), or --until TIME"),
        (("get", "pools", "--preserved"), "--preserved is only for machines, without names"),
        (("get", "machines", "m1", "--preserved"), "--preserved is only for machines, without names"),
    ],
    ids=lambda v: "-".join(v).replace("/", "-").replace(" ", "_") if isinstance(v, tuple) else "",
)
async def test_wrong_usage(place: Place, args: tuple[str, ...], words: str) -> None:
    ran = await place.run(*args)
    assert (ran.code, ran.out) == (2, "")
    assert words in " ".join(ran.err.split())


async def test_a_time_that_has_passed_is_refused(working: Place) -> None:
    await apply(working, machine_yaml())
    for command in ("preserve", "extend"):
        ran = await working.run(command, "m1", "--until", "2001-12-01T18:00:00+01:00")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == ("error: 2001-12-01 17:00:00 UTC is in the past: give a later time, or release it\n")
        assert (await working.run(command, "m1", "--for", "0")).err == (
            "error: the duration must be longer than 0; to end a preservation, release the machine\n"
        )
    assert (await state_of(working)).status.preserve.own is None
    (await working.run("preserve", "m1", "--until", "2101-12-01T18:00+01:00")).ok()
    assert (await state_of(working)).status.preserve.expiry_time == datetime(2101, 12, 1, 17, tzinfo=UTC)


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker_it_is_recorded(place: Place) -> None:
    await apply(place, machine_yaml("m1"), machine_yaml("m2"))
    for args in (("preserve", "m1", "--for", "8h", "--reason", "it swaps"), ("preserve", "m2"), ("release", "m2")):
        ran = await place.run("--as", "alice", *args)
        noun = {"preserve": "preservation", "release": "release"}[args[0]]
        assert ran.ok().startswith(f"machine/{args[1]} {noun}: recorded; ")
    told = (await place.run("events", "machine", "m1")).ok().splitlines()
    assert told[-1].split(maxsplit=3)[3] == "PreserveAsked   preserve asked by alice, for 8h: it swaps"
    async with place.worker():

        async def done() -> bool:
            first, second = await state_of(place, "m1"), await state_of(place, "m2")
            return first.status.preserve.expiry_time is not None and len(second.intents) == 2

        await eventually(done, "both intents")
        assert (await state_of(place, "m2")).status.preserve.expiry_time is None


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker_its_end_is_shown(place: Place) -> None:
    async with place.worker():
        await apply(place, machine_yaml())
        (await place.run("preserve", "m1", "--until", "2101-12-01T18:00Z")).ok()
        await seen(place, [["m1", "Running:Preserved"]])
    page = (await place.run("describe", "machine", "m1")).ok()
    assert "Preserved until:  2101-12-01 18:00:00 UTC (in " in page


# -- waiting ----------------------------------------------------------------------------------------------------------


async def test_a_failed_one_that_is_kept_may_be_well_again(working: Place) -> None:
    """A machine that never was Running may not: that is said at once."""
    await apply(working, machine_yaml("m1"), machine_yaml("m2", **{BECOMES: str(Phase.FAILED)}))
    handle = working.client.get_workflow_handle(machine_id(working.cluster, "m1"))
    for name in ("m1", "m2"):
        (await working.run("preserve", name, "--until", "2101-12-01T18:00Z")).ok()
    await handle.signal("turn", Phase.FAILED)
    await seen(working, [["m1", "Failed:Preserved"], ["m2", "Failed:Preserved"]])
    for phase in ("Running", "Unknown"):
        ran = await working.run("wait", "machine", "m1", f"--for=phase={phase}", "--timeout", "0.1s")
        assert (ran.code, ran.out) == (124, "")
        assert ran.err == (
            f"error: machine m1 is Failed:Preserved (Playing), not {phase}, after 0.1s; it is kept until 2101-12-01 "
            "18:00:00 UTC, and becomes Running if its Node is healthy again by then\n"
        )
    for name, phase in (("m1", "Pending"), ("m2", "Running")):
        ran = await working.run("wait", "machine", name, f"--for=phase={phase}", "--timeout", "60s")
        assert (ran.code, ran.out) == (1, "")
        assert f"machine {name} is Failed:Preserved (Playing) and will not become {phase}" in ran.err
    await handle.signal("turn", Phase.RUNNING)
    assert (await working.run("wait", "machine", "m1", "--timeout", "60s")).ok() == "machine/m1 is Running\n"


# -- what is shown ----------------------------------------------------------------------------------------------------


async def test_the_preserved_are_listed(working: Place) -> None:
    failed = {BECOMES: str(Phase.FAILED)}
    await apply(working, machine_yaml("m1"), machine_yaml("m2", team="a", **failed), machine_yaml("m3", team="a"))
    await seen(working, [["m1", "Running"], ["m2", "Failed"], ["m3", "Running"]])
    none = await working.run("get", "machines", "--preserved")
    assert (none.ok(), none.err) == ("", f"No preserved machines found in cluster {working.cluster}.\n")
    for name in ("m1", "m2"):
        (await working.run("preserve", name, "--for", "8h30m")).ok()
    await seen(working, [["m1", "Running:Preserved"], ["m2", "Failed:Preserved"]], "--preserved")
    await seen(working, [["m1", "Running:Preserved"], ["m2", "Failed:Preserved"], ["m3", "Running"]])
    await seen(working, [["m2", "Failed:Preserved"]], "--preserved", "-l", "team=a")
    header = (await working.run("get", "machines", "-o", "wide")).ok().splitlines()[0].split()
    assert header[-2:] == ["PRESERVED-UNTIL", "MESSAGE"]
    wide = await rows(working, "-o", "wide")
    assert ["in 8h" in " ".join(row) for row in wide] == [True, True, False]
    assert (await working.run("get", "machines", "--preserved", "-o", "name")).ok() == "machine/m1\nmachine/m2\n"
    listed = json.loads((await working.run("get", "machines", "--preserved", "-o", "json")).ok())
    assert [m["status"]["phase"] for m in listed["items"]] == ["Running:Preserved", "Failed:Preserved"]

    (await working.run("release", "m2")).ok()
    await seen(working, [["m1", "Running:Preserved"]], "--preserved")


async def test_a_manifest_tells_of_it_and_is_taken_back(working: Place) -> None:
    await apply(working, machine_yaml())
    plain = yaml.safe_load((await working.run("get", "machine", "m1", "-o", "yaml")).ok())
    assert "preserve" not in plain["status"]
    (await working.run("--as", "alice", "preserve", "m1", "--for", "8h")).ok()
    printed = (await working.run("get", "machine", "m1", "-o", "yaml")).ok()
    preserve = yaml.safe_load(printed)["status"]["preserve"]
    assert (preserve["own"]["value"], preserve["own"]["requestedBy"], preserve["source"]) == ("now", "alice", "asked")
    assert set(preserve) == {"own", "source", "expiryTime", "since"}
    assert (await working.run("apply", "-f", "-", stdin=printed)).ok() == "machine/m1 unchanged\n"
    # A phase is waited for whether the machine is preserved or not.
    assert (await working.run("wait", "machine", "m1", "--for=phase=Running")).ok() == "machine/m1 is Running\n"


async def test_describe_shows_it(working: Place) -> None:
    await apply(working, machine_yaml())
    assert "Preserv" not in (await working.run("describe", "machine", "m1")).ok()
    (await working.run("--as", "alice", "preserve", "m1", "--for", "8h", "--reason", "it swaps")).ok()
    page = (await working.run("describe", "machine", "m1")).ok()
    assert "Phase:        Running:Preserved" in page
    section = page.partition("\nPreserved:\n")[2].partition("\n\n")[0]
    for words in ("(in 7h", "a request to the machine (now)", "by alice, ", ": it swaps"):
        assert words in section
    for command in ("release", "extend"):
        assert f"hostler {command} m1 --cluster {working.cluster}" in section
    # The very commands of the page.
    for command in ("extend", "release"):
        (line,) = [line for line in section.splitlines() if f"To {command}:" in line]
        assert (await working.run(*line.partition("hostler ")[2].split())).ok().startswith("machine/m1 ")
    assert (await state_of(working)).status.preserve.expiry_time is None


# -- SDK --------------------------------------------------------------------------------------------------------------


async def test_the_sdk(working: Place) -> None:
    await apply(working, machine_yaml("m1"), machine_yaml("m2", **{BECOMES: str(Phase.FAILED)}))
    await seen(working, [["m1", "Running"], ["m2", "Failed"]])
    async with HostlerClient.connect(_settings(working), requested_by="alice") as hostler:
        assert await hostler.machine_of("node-m1") == "m1"
        assert await hostler.machine_or_node("m1") == await hostler.machine_or_node("node-m1") == "m1"
        sent = await hostler.preserve("m1", lasts=HOUR)
        assert (sent.recorded, sent.message.startswith("preserved until ")) == (False, True)
        until = now() + 5 * HOUR
        await hostler.extend("m1", until=until)
        assert (await hostler.get("m1")).status.preserve.expiry_time == until

        async def phases() -> bool:
            lists = [await hostler.list(preserved=True), await hostler.list(phase=Phase.RUNNING)]
            return [[m.name for m in found] for found in lists] == [["m1"], ["m1"]]

        await eventually(phases, "m1 as Running, and preserved")
        await hostler.release("m1", reason="seen enough")
        assert (await hostler.get("m1")).status.preserve.expiry_time is None
        for wrong in (
            hostler.preserve("m1", "false", lasts=HOUR),
            hostler.preserve("m1", lasts=HOUR, until=until),
            hostler.preserve("m1", until=datetime(2101, 1, 1)),  # of no zone
            hostler.extend("m1"),
            hostler.extend("m1", lasts=HOUR),
        ):
            with pytest.raises(Refused):
                await wrong
        for lost in (hostler.preserve("ghost"), hostler.release("ghost"), hostler.extend("ghost", lasts=HOUR)):
            with pytest.raises(NotFound):
                await lost
        with pytest.raises(NotFound):
            await hostler.machine_of("ghost")


def _settings(place: Place) -> Any:
    from resources.settings import load_settings

    return load_settings(place.settings_file)

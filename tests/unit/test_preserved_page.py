"""What `hostler describe machine` says of a preservation, for each source and in each state."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from cli.pages import parse
from lifekit import examples

from planners.machine.preservation import effective
from resources.fleet.rehearsal import Rehearsal
from resources.machine.preservation import Preservation, PreservedBy, PreserveRequest, PreserveValue, Release
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.pool.intents import PoolQuestion
from starter.commands import pools, rollout
from starter.commands.kinds import POOL
from starter.commands.preserved import section
from starter.sdk.machines.preservation import value_of
from starter.sdk.results import Sent

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
VALUES = ("", *PreserveValue, "nwo")


def own(value: str = "now", **more: Any) -> PreserveRequest:
    fields = {"requested_by": "alice", "reason": "case 17", "time": NOW - HOUR, **more}
    return PreserveRequest(value=PreserveValue(value), **fields)


def machine(phase: Phase = Phase.RUNNING, *, pool: str = "p", **preserve: Any) -> MachineState:
    loaded = examples("m-1")
    state = MachineState(
        name="m-1",
        cluster="demo",
        pool=pool,
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
    )
    state.status.phase, state.status.node_name = phase, "node-1"
    state.status.preserve = Preservation(**preserve)
    return state


def kept(phase: Phase = Phase.RUNNING, *, pool: str = "p", **more: Any) -> MachineState:
    fields = {"expiry_time": NOW + 8 * HOUR, "since": NOW - HOUR, "source": PreservedBy.ASKED, "why": "words", **more}
    return machine(phase, pool=pool, **fields)


@pytest.mark.parametrize("ask", ["resume", "delete"])
async def test_preserved_machines_are_named_before_they_go(ask: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `apply`, `scale` and the others do it: no dry run is needed for that."""
    asked: list[PoolQuestion] = []

    async def rehearse(_: str, question: PoolQuestion, **__: Any) -> Rehearsal:
        asked.append(question)
        return Rehearsal(preserved=["m-1"])

    async def send(_: str, **__: Any) -> Sent:
        assert asked, "nothing is sent before"
        return Sent("done", recorded=False)

    client: Any = SimpleNamespace(pools=SimpleNamespace(rehearse=rehearse, resume=send, delete=send))
    if ask == "delete":
        await pools.delete(client, ("demo", "p"), force=False, reason="")
    else:
        await rollout._each([(POOL, "p")], "resume", "", resume=True)(client)
    assert getattr(asked[0], ask)
    assert "warning: machinedeployment/p deletes 1 machine that is preserved: m-1" in capsys.readouterr().err


def page(state: MachineState) -> dict[str, str]:
    """The page's labels and values; empty where there is no section."""
    lines = section(state, NOW)
    return {k.strip(): v.strip() for k, _, v in (line.partition(": ") for line in lines[2:])}


def test_one_of_which_nobody_has_said_anything() -> None:
    for phase in Phase:
        assert section(machine(phase), NOW) == []
    assert section(kept(), NOW)[:2] == ["", "Preserved:"]
    assert section(machine(own=own()), NOW)[:2] == ["", "Preservation:"]


def test_preserved_on_request() -> None:
    shown = page(kept(own=own()))
    assert shown["Until"] == "2026-03-01 20:00:00 UTC (in 8h)"
    assert shown["Since"] == "2026-03-01 11:00:00 UTC (60m ago)"
    assert shown["Source"] == "a request to the machine (now)"
    assert shown["Asked"] == "by alice, 2026-03-01 11:00:00 UTC (60m ago): case 17"
    assert shown["Then"] == "it stays Running, and cluster-autoscaler may remove it"
    assert "a rollout, hibernation, hostler scale --remove" in shown["Ends earlier by"]
    assert "taken away" not in shown["Ends earlier by"]
    assert "autoPreserveFailedMax" not in shown["Ends earlier by"]


def test_preserved_by_annotation() -> None:
    """The annotation is stronger: what was asked of the machine is not the reason."""
    shown = page(kept(Phase.FAILED, last_seen_node_value="when-failed", own=own()))
    assert shown["Source"] == "annotation node.machine.sapcloud.io/preserve=when-failed on node node-1"
    assert "Asked" not in shown
    assert shown["Then"] == "its VM is deleted, and pool p creates another one if its replicas require it"
    alone = page(kept(Phase.FAILED, pool="", last_seen_node_value="now"))
    assert alone["Then"] == "its VM is deleted"
    ends = "hostler release, annotation node.machine.sapcloud.io/preserve=false, removal of the annotation"
    assert alone["Ends earlier by"] == f"{ends}, hostler delete"
    assert page(kept(last_seen_node_value="now", own=own("false")))["Ends earlier by"].startswith(f"{ends}, ")
    # What was asked of the machine counts then.
    assert "taken away" not in page(kept(last_seen_node_value="now", own=own("when-failed")))["Ends earlier by"]


def test_preserved_by_a_slot() -> None:
    shown = page(kept(Phase.FAILED, source=PreservedBy.AUTO))
    assert shown["Source"] == "a slot of pool p (autoPreserveFailedMax)"
    assert "a lower autoPreserveFailedMax" in shown["Ends earlier by"]


@pytest.mark.parametrize(
    ("phase", "value", "begins"),
    [
        (Phase.PENDING, "now", "when it is Running or Failed"),
        (Phase.UNKNOWN, "now", "when it is Running or Failed"),
        (Phase.RUNNING, "when-failed", "when it is Failed and drained"),
        (Phase.FAILED, "when-failed", "when it is drained and if pool p grants it"),
        (Phase.FAILED, "now", "when it is drained and if pool p grants it"),
    ],
)
def test_a_request_that_waits(phase: Phase, value: str, begins: str) -> None:
    shown = page(machine(phase, own=own(value, lasts=8 * HOUR)))
    assert (shown["Value"], shown["Begins"], shown["Lasts"]) == (value, begins, "for 8h")
    assert shown["Asked"].startswith("by alice, ")
    by_node = page(machine(phase, last_seen_node_value=value, own=own("false", lasts=8 * HOUR)))
    assert (by_node["Value"], by_node["Begins"]) == (value, begins)
    assert by_node["Lasts"] == "for 72h from then on (machinePreserveTimeout)"
    assert "Asked" not in by_node


def test_one_that_is_barred() -> None:
    shown = page(machine(own=own("false")))
    assert shown["Value"] == "false: it is not preserved when it fails"
    assert shown["To change"].startswith("hostler release m-1 --cluster demo, or hostler preserve m-1 ")
    by_node = page(machine(last_seen_node_value="false"))
    assert by_node["To change"] == "kubectl annotate node node-1 node.machine.sapcloud.io/preserve-"


def test_an_annotation_that_says_nothing_and_a_release_on_its_way() -> None:
    shown = page(machine(last_seen_node_value="nwo"))
    assert shown == {
        "Annotation": "preserve=nwo on its node is not one of now, when-failed, false, so it has no effect"
    }
    released = page(kept(own=own(), release=Release(time=NOW, requested_by="bob", reason="seen enough")))
    assert released["Released"] == "by bob, 2026-03-01 12:00:00 UTC (0s ago): seen enough"


def test_nothing_is_promised_to_one_that_goes() -> None:
    assert page(machine(Phase.TERMINATING, own=own())) == {}


def test_the_commands_of_the_page_are_taken() -> None:
    seen = set()
    for state in (kept(own=own()), machine(own=own()), machine(own=own("false"))):
        for label, value in page(state).items():
            if label.startswith("To "):
                for command in value.split(", or "):
                    program, *words = shlex.split(command)
                    assert program == "hostler"
                    seen.add(parse(words))
    assert seen == {"hostler release", "hostler extend", "hostler preserve"}


def test_the_value_shown_is_the_planners() -> None:
    for node, mine, last, cleared in product(VALUES, ("", *PreserveValue), ("", *PreserveValue), (False, True)):
        p = Preservation(last_seen_node_value=node, own=own(mine) if mine else None, last=last)
        p.cleared = node if cleared else ""
        assert value_of(p) == effective(p.node_value, p.own, p.last), (node, mine, last, cleared)

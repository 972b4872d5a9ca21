"""docs/machine-life.md is true: its diagram shows what machines do, and the code decides by its tables."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from cli.pages import everything, find, parse, typed
from machine.cycles import END, START, Edge, lives
from paths import ROOT
from temporalio.testing import WorkflowEnvironment

from activities.cloud.machine import RAREST
from planners.machine.claims import RAREST as CLAIM_RAREST
from planners.machine.health import KUBELET_REPORTS, fails_at, fall_ill, judge
from planners.waits import REASON, WAIT
from resources.base import format_duration, parse_duration
from resources.errors import ErrorClass
from resources.machine.manifest import MachineSpec
from resources.machine.state import Illness, Phase
from resources.reasons import GROUPS, Kind
from resources.timings import Timings
from workflows.machine.confirm import JOINING_TAKES

PAGE = (ROOT / "docs/machine-life.md").read_text()
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
ARROW = re.compile(r"^ +(\S+) --> (\S+): (.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(runbook\.md#(\w+)\)")
MACHINE = ("Creating", "Joining", "Running, Unknown, Failed", "Preserving", "Deleting")
"""Groups of reasons that only machines have."""


def drawn(page: str) -> set[Edge]:
    """The diagram's arrows, one for each of their reasons."""
    (diagram,) = re.findall(r"^```mermaid\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    found = set()
    for source, target, reasons in ARROW.findall(diagram):
        names = (START if source == "[*]" else Phase(source), END if target == "[*]" else Phase(target))
        found |= {(*names, reason) for reason in reasons.split("<br/>")}
    return found


def table(heading: str) -> list[list[str]]:
    """Cells of the first table below a heading, without its head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    rows = [line.strip("|").split("|") for line in re.findall(r"^\|.*\|$", section, flags=re.MULTILINE)]
    return [[cell.strip() for cell in row] for row in rows[2:]]


# -- the diagram ------------------------------------------------------------------------------------------------------


SILENT = {"APIUnreachable", "APIRefused"}
RETRIED = {*REASON.values(), *SILENT, "CredentialsMissing", "WrongAccount", "AttemptIsOver", "NameTaken"}
BEGINS_AND_ENDS = {(Phase.PENDING, reason) for reason in ("Created", "Adopted", "Recreated")} | {(END, "Gone")}


def enters() -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Every place where the code changes a phase, in its own words, and what that can be. All sources are read for it,
    and not by whoever only collects tests."""
    judged = find({"planners/machine/health.py": inspect.getsource(judge)}).reasons
    failures = {r for r, kind in everything().reasons.items() if kind & Kind.FAILURE}
    return {
        ("Phase.PENDING", "'VMAdopted' if output.adopted else 'VMCreated'"): {
            (Phase.PENDING, "VMAdopted"),
            (Phase.PENDING, "VMCreated"),
        },
        # A failed post-start update is one of a machine that is Pending: no change.
        ("retry.phase", "retry.reason"): {(Phase.CRASH_LOOP_BACK_OFF, reason) for reason in RETRIED},
        ("Phase.RUNNING", "'Running'"): {(Phase.RUNNING, "Running")},
        # A machine that was Running has seen its node.
        ("phase", "health.reason"): {(Phase.UNKNOWN, reason) for reason in judged if reason != "NodeNotSeen"},
        ("phase", "'Recovered'"): {(Phase.RUNNING, "Recovered")},
        ("Phase.RUNNING", "'Recovered'"): {(Phase.RUNNING, "Recovered")},
        ("Phase.FAILED", "reason"): {(Phase.FAILED, reason) for reason in failures},
        ("Phase.TERMINATING", "'Terminating'"): {(Phase.TERMINATING, "Terminating")},
    }


def entered() -> set[tuple[str, str]]:
    return set().union(*enters().values(), BEGINS_AND_ENDS)


@pytest_asyncio.fixture(scope="module")
async def seen(temporal: WorkflowEnvironment) -> set[Edge]:
    """What machines did, by their histories."""
    reasons: dict[str, set[str]] = {}
    for phase, reason in entered():
        reasons.setdefault(phase, set()).add(reason)
    return await lives(temporal.client, reasons)


def differences(page: str, seen: set[Edge]) -> list[str]:
    def words(edges: set[Edge]) -> list[str]:
        return sorted(f"{source} to {target} by {reason}" for source, target, reason in edges)

    missing = [f"not in the diagram: {edge}" for edge in words(seen - drawn(page))]
    return missing + [f"no machine did it: {edge}" for edge in words(drawn(page) - seen)]


async def test_the_diagram_is_what_machines_do(seen: set[Edge]) -> None:
    assert differences(PAGE, seen) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    Unknown --> Running: Recovered\n", ""), "not in the diagram: Unknown to Running by Recovered"),
        (("<br/>StaleNode", ""), "not in the diagram: CrashLoopBackOff to Failed by StaleNode"),
        (("Failed --> Terminating", "Failed --> Running"), "no machine did it: Failed to Running by Terminating"),
    ],
)
async def test_a_wrong_diagram_is_seen(seen: set[Edge], change: tuple[str, str], words: str) -> None:
    assert change[0] in PAGE
    assert words in differences(PAGE.replace(*change), seen)


def changes() -> Iterator[tuple[str, str]]:
    """Places that change a phase: phase and reason as they are written."""
    for file in sorted((ROOT / "workflows/machine").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "enter":
                yield ast.unparse(node.args[0]), ast.unparse(node.args[1])
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("status.phase"):
                assert (file.stem, ast.unparse(node)) == ("record", "self.status.phase = phase")


def test_the_diagram_has_every_phase_and_reason_that_the_code_can_make() -> None:
    assert set(changes()) == enters().keys(), "say in `enters` what a new place can make of a machine, and draw it"
    assert {(target, reason) for _, target, reason in drawn(PAGE)} == entered()


# -- the words --------------------------------------------------------------------------------------------------------


def test_each_phase_says_what_happened_what_it_waits_for_what_ends_it_and_what_can_be_done() -> None:
    for phase in Phase:
        (text,) = re.findall(rf"^### {phase}\n(.*?)(?=^##)", PAGE, flags=re.MULTILINE | re.DOTALL)
        parts = re.findall(r"^\*\*(.+?)\.\*\*", text, flags=re.MULTILINE)
        wanted = ["What happened", "What it waits for", "What ends it", "What you can do"]
        assert parts == [p for p in wanted if phase != Phase.RUNNING or p != "What it waits for"], phase


def test_each_reason_that_a_machine_can_wait_or_fail_by_leads_to_the_runbook() -> None:
    links = LINK.findall(PAGE)
    for words, anchor in links:
        assert re.search(rf"^### {anchor}$", RUNBOOK, flags=re.MULTILINE | re.IGNORECASE), f"{words} leads nowhere"
    told = {anchor for _, anchor in links}
    needed = {
        reason
        for group in MACHINE
        for reason, entry in GROUPS[group].reasons.items()
        if entry.kind & (Kind.WAIT | Kind.FAILURE | Kind.CONDITION)
    }
    assert len(needed) > 30
    assert sorted(reason for reason in needed if reason.lower() not in told) == []


def test_the_command_line_takes_what_the_page_says() -> None:
    inline = [text.split() for text in re.findall(r"`hostler ([a-z]+ [^`]*)`", PAGE)]
    taken = [parse(words) for words in [*typed("docs/machine-life.md"), *inline]]
    assert {"hostler describe", "hostler events", "hostler recreate", "hostler delete"} <= set(taken)


# -- the tables -------------------------------------------------------------------------------------------------------


def test_the_waits_are_the_planners() -> None:
    told = {
        name: (LINK.sub(r"\1", reason), parse_duration(wait)) for name, reason, wait in table("Waits by class of error")
    }
    assert told == {str(c): (REASON[c], WAIT[c]) for c in ErrorClass}


def test_the_deadlines_have_the_manifests_defaults() -> None:
    told = {re.findall(r"`(.+?)`", name)[1]: default for name, default, *_ in table("Deadlines")}
    spec = MachineSpec.model_fields
    kinds = {"creationTimeout": "creation_timeout", "healthTimeout": "health_timeout", "drainTimeout": "drain_timeout"}
    kinds["machinePreserveTimeout"] = "machine_preserve_timeout"
    assert told == {f"spec.{name}": format_duration(spec[field].default) for name, field in kinds.items()}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("Node is not there after 30 s", Timings().vm_look),
        ("then more rarely, in the end every 2 minutes", RAREST * Timings().vm_look),
        ("Health in one piece for 30 s: Running", Timings().settle),
        ("the cloud's lag window (1 minute)", Timings().consistency),
        ("further apart than the lag window (1 minute)", Timings().consistency),
        ("Two fresh looks are taken, 1 minute apart", Timings().confirm),
        ("for 5 minutes after the deadline", KUBELET_REPORTS),
        ("joined, for up to 5 minutes after the first look", JOINING_TAKES),
        ("known 40 s", Timings().lease),
        ("in the end every 5 minutes, and at once", CLAIM_RAREST),
    ],
)
def test_the_figures_are_the_defaults(words: str, value: timedelta) -> None:
    assert words in PAGE
    number, unit = re.findall(r"(\d+) (s|minute)", words)[-1]
    assert timedelta(seconds=int(number) * (60 if unit == "minute" else 1)) == value


def test_the_example_of_the_health_clock_is_what_the_planner_reckons() -> None:
    timeout, illness, used = MachineSpec.model_fields["health_timeout"].default, None, timedelta(0)
    told = [
        (_clock(time), happens, parse_duration(spent), end) for time, happens, spent, end in table("The health clock")
    ]
    deadlines = []
    for time, happens, spent, end in told:
        if happens.startswith("Unknown"):
            illness = fall_ill(illness, time, timeout)
            used = illness.spent
            deadlines.append(end)
            assert _clock(end) == fails_at(illness, timeout)
        elif happens.startswith("healthy"):
            assert illness is not None
            used = illness.spent + time - illness.began
            illness = illness.model_copy(update={"ended": time})
        else:
            assert illness is not None
            assert time == fails_at(illness, timeout)
            used = illness.spent + time - illness.began
        assert spent == used, time
    assert len(deadlines) == 3
    # The sentence below the table.
    well_for_long = fall_ill(Illness(began=_clock("12:09"), ended=_clock("12:12"), spells=2), _clock("12:22"), timeout)
    assert "healthy from 12:12 to 12:22" in PAGE
    assert fails_at(well_for_long, timeout) - well_for_long.began == timedelta(minutes=10)


def _clock(text: str) -> datetime:
    return datetime.strptime(f"2026-01-01 {text} +0000", "%Y-%m-%d %H:%M %z")

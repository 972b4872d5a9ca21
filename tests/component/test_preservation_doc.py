"""docs/preservation.md is true: its table of values is the planner's, its commands are accepted."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli.pages import parse, run, typed
from lifekit import Stack, eventually
from paths import ROOT
from preservation.planner import ASKED, AUTO, kept, machine, own

from planners.machine.preservation import WARN_BEFORE, AskPool, End, ObservedMachine, Preserve, Stay, decide
from resources.base import LONGEST, format_duration
from resources.machine.manifest import MachineSpec
from resources.machine.preservation import ExtendIntent, PreserveIntent, PreserveValue, ReleaseIntent
from resources.machine.state import Phase
from resources.names import PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED
from resources.pool.manifest import MachineDeploymentSpec

PAGE = (ROOT / "docs/preservation.md").read_text()
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
HEAD = "| the machine is | no value | `now` | `when-failed` | `false` |"
NO_VALUE = ""
EXAMPLE = "2026-12-01T18:00:00Z"
INTENTS = {"preserve": PreserveIntent, "extend": ExtendIntent, "release": ReleaseIntent}


def table() -> dict[tuple[str, str], str]:
    """For each cell: what the machine is, and the value, mapped to what happens."""
    (found,) = re.findall(rf"^{re.escape(HEAD)}\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, flags=re.MULTILINE)
    cells = {}
    for line in found.splitlines():
        of, *what = [cell.strip() for cell in line[1:-1].split("|")]
        cells |= {(of, value): word for value, word in zip((NO_VALUE, *PreserveValue), what, strict=True)}
    return cells


CELLS = table()


def observed(of: str, value: str, by_node: bool) -> ObservedMachine:
    """The machine; where it is preserved, it is so on request."""
    phase = Phase(of.partition(":")[0].partition(",")[0])
    wanted: dict[str, Any] = {"node": value if by_node else "", "own": own(value) if value and not by_node else None}
    return kept(phase, warned=True, **wanted) if of.endswith(":Preserved") else machine(phase, **wanted)


def outcome(o: ObservedMachine) -> str:
    """What becomes of it, in the table's words; it is granted what it asks for."""
    failed = replace(o, phase=Phase.FAILED, drained=True, granted=ASKED)
    match decide(replace(o, granted=ASKED if o.phase is Phase.FAILED else o.granted)):
        case Preserve(source=source):
            assert source is ASKED
            return "preserved"
        case End(terminate=terminate):
            return "deleted" if terminate else "ends"
        case AskPool():
            granted = decide(replace(o, granted=AUTO))
            assert isinstance(granted, Preserve)
            assert granted.source is AUTO
            return "if a slot is free"
        case Stay() if o.expiry is not None:
            return "stays"
        case Stay() if o.phase is Phase.FAILED:
            assert isinstance(decide(replace(o, granted=AUTO)), Stay)
            return "deleted"
        case Stay() if o.phase is not Phase.TERMINATING and isinstance(decide(failed), Preserve):
            return "waits"
        case Stay():
            return "nothing"
        case other:
            raise AssertionError(other)


def test_every_phase_and_value_has_a_cell() -> None:
    preserved = {f"{phase}:Preserved" for phase in (Phase.RUNNING, Phase.UNKNOWN, Phase.FAILED)}
    phases = {str(phase) for phase in Phase} - {"Failed"} | {"Failed, drained"} | preserved
    assert set(CELLS) == {(of, value) for of in phases for value in (NO_VALUE, *PreserveValue)}


@pytest.mark.parametrize("by_node", [True, False], ids=["node", "own"])
@pytest.mark.parametrize(("of", "value"), list(CELLS), ids=[f"{of}-{value or 'none'}" for of, value in CELLS])
def test_the_table_is_the_planners(of: str, value: str, by_node: bool) -> None:
    assert outcome(observed(of, value, by_node)) == CELLS[of, value]


def test_of_a_slot_nobody_had_to_ask() -> None:
    """This is the sentence below the table."""
    for of, value in CELLS:
        if of.endswith(":Preserved") and value == NO_VALUE:
            o = replace(observed(of, value, by_node=True), source=AUTO)
            assert outcome(o) == "stays", of
    alone = {"in_pool": False, "granted": AUTO}
    assert decide(replace(observed("Failed, drained", NO_VALUE, by_node=True), **alone)) == Stay()


def test_the_figures_are_the_defaults() -> None:
    timeout = format_duration(MachineSpec.model_fields["machine_preserve_timeout"].default)
    assert f"by default after {timeout.removesuffix('h')} hours" in PAGE
    assert f"machinePreserveTimeout: {timeout} " in PAGE
    assert "# 0, the default: off" in PAGE
    assert MachineDeploymentSpec.model_fields["auto_preserve_failed_max"].default == 0
    assert f"{LONGEST.days} days away at most" in PAGE
    assert "One hour before an Event on the Node says so" in PAGE
    assert timedelta(hours=1) == WARN_BEFORE


def test_the_command_line_takes_what_the_page_says() -> None:
    inline = [text.split() for text in re.findall(r"`hostler ([a-z]+ [^`]*)`", PAGE)]
    taken = [parse(words) for words in [*typed("docs/preservation.md"), *inline]]
    wanted = {"hostler preserve", "hostler extend", "hostler release", "hostler get", "hostler describe"}
    assert wanted <= set(taken)


def test_each_link_leads_somewhere() -> None:
    for file, anchor in re.findall(r"\]\(([\w-]+\.md)#?([\w-]*)\)", PAGE):
        assert (ROOT / "docs" / file).exists()
        if file == "runbook.md":
            assert anchor in {h.lower() for h in re.findall(r"^### (\w+)$", RUNBOOK, flags=re.MULTILINE)}


def commands(program: str) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith(f"{program} ")]


def test_the_annotations_are_those_that_machines_read() -> None:
    told = [words[-1] for words in commands("kubectl")]
    assert told == [*(f"{PRESERVE_ANNOTATION}={value}" for value in PreserveValue), f"{PRESERVE_ANNOTATION}-"]
    assert f"`{SCALE_DOWN_DISABLED}=true`" in PAGE


def test_the_page_names_preserve_now_in_place_of_scale_down_disabled_with_the_seeds_four_reasons() -> None:
    _, _, after = PAGE.partition("## In place of scale-down-disabled\n")
    section, _, _ = after.partition("\n## ")
    assert section.index(f"`{SCALE_DOWN_DISABLED}=true`") < section.index(f"`{PRESERVE_ANNOTATION}=now`")
    reasons = re.findall(r"^\d\. (.+)$", section, flags=re.MULTILINE)
    one_flow, internals, generic, timeout = reasons
    assert "one way" in one_flow
    assert "internals" in internals
    assert "not about cluster-autoscaler alone" in generic
    assert "has an end" in timeout


def test_what_is_signalled_is_what_the_intents_take() -> None:
    for words in commands("temporal"):
        options = dict(zip(words[3::2], words[4::2], strict=True))
        given = json.loads(options["--input"])
        intent = INTENTS[options["--name"]].model_validate(given)
        # No field is dropped as unknown.
        assert intent.model_dump(mode="json", by_alias=True, exclude_unset=True) == given


async def test_the_signals_do_it(stack: Stack) -> None:
    """Temporal's own command line, with the very commands of the page."""
    await stack.create("demo-1")
    await stack.phase(Phase.RUNNING, "demo-1")
    now, when_failed, extend, release = commands("temporal")
    # The page's example of a time is past one day, and refused then.
    later = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    assert EXAMPLE in " ".join(extend)
    extend = [word.replace(EXAMPLE, later.isoformat()) for word in extend]

    async def preserved(wanted: bool) -> Any:
        found = await eventually(
            lambda: stack.state("demo-1"),
            lambda s: (s.status.preserve.expiry_time is not None) is wanted,
            f"preserved: {wanted}",
        )
        return found.status.preserve

    await run(stack, now)
    kept = await preserved(True)
    assert (kept.own.requested_by, kept.own.reason) == ("me", "its pods lose packets")
    assert kept.expiry_time - kept.since == timedelta(hours=8)
    await run(stack, extend)
    await eventually(
        lambda: stack.state("demo-1"), lambda s: s.status.preserve.expiry_time == later, "the end is moved"
    )
    await run(stack, release)
    assert (await preserved(False)).own is None
    await run(stack, when_failed)
    asked = await eventually(lambda: stack.state("demo-1"), lambda s: s.status.preserve.own is not None, "a request")
    assert (asked.status.preserve.own.value, asked.status.preserve.expiry_time) == (PreserveValue.WHEN_FAILED, None)
    await stack.delete("demo-1")

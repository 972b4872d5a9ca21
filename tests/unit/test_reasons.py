"""Every reason has its place: the code, the registry and the runbook have the same ones, and say the same about
them."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
from cli.pages import everything, find, parse
from paths import ROOT
from typer.exceptions import TyperException

from resources.reasons import GROUPS, REASONS, TIMES, Kind, Situation, filled, is_warning, next_step, nothing_to_do

RUNBOOK = (ROOT / "docs/runbook.md").read_text()
TOOL = runpy.run_path(str(ROOT / "tools/runbook.py"))
COMMAND = re.compile(r"`(hostler [^`]*)`")
LONGEST = 330  # characters of a next step: four lines of a terminal, at 3 a.m.


# -- the code ---------------------------------------------------------------------------------------------------------


def test_the_registry_has_every_reason_of_the_code_and_no_other() -> None:
    found = everything()
    assert not found.unread, "a reason is a literal, so that it can be found: " + "; ".join(found.unread)
    assert found.reasons == {name: reason.kind for name, reason in REASONS.items()}


def test_each_reason_stands_in_one_group() -> None:
    assert sum(len(group.reasons) for group in GROUPS.values()) == len(REASONS)


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ('m.waiting("A", "words")', {"A": Kind.WAIT}),
        ('m.fail(op, "A" if gone else "B", "words")', {"A": Kind.FAILURE, "B": Kind.FAILURE}),
        ('reason = "A" if x else "B"\n  m.condition("T", reason, "words")', {"A": Kind.CONDITION, "B": Kind.CONDITION}),
        ('m.note("A", "words")\n  m.waiting("A", "words")', {"A": Kind.WAIT}),
        ('m.fail(op, "A", "words")\n  m.waiting(failed.reason, "words")', {"A": Kind.WAIT | Kind.FAILURE}),
        ('m.fail(op, "A", "words")\n  m.waiting(health.reason, "words")', {"A": Kind.FAILURE}),
        ('m.enter(phase, "A", "words")', {"A": Kind.HAPPENING}),
        ('return Health(False, "A", "words")', {"A": Kind.WAIT}),
        ('return Health(True, "A", "words")', {}),
        ('Retry(phase, reason=reason or "A")', {"A": Kind.WAIT}),
        ('m.note(MISSING_CREDENTIALS, "words")', {"CredentialsMissing": Kind.HAPPENING}),
    ],
)
def test_a_reason_is_found(code: str, reasons: dict[str, Kind]) -> None:
    found = find({"workflows/x.py": f"def f(m, reason):\n  {code}"})
    assert (found.reasons, found.unread) == (reasons, [])


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ('return Wait("A", "words")', {"A": Kind.WAIT}),
        ('draft.wait("A", "words")', {"A": Kind.WAIT}),
        ('return _back_off(pace, "A", "words")', {"A": Kind.WAIT}),
        ('draft.delete(names, "A", "words")', {"A": Kind.HAPPENING}),
        ('draft.do(Create(1, 2, "A", "words"))', {"A": Kind.HAPPENING}),
        ('draft.do(MarkNodes(names, False, "A", "words"))', {"A": Kind.HAPPENING}),
        ('draft.do(Grant(names, reason, "words"))', {}),
    ],
)
def test_a_reason_of_a_pools_plan_is_found(code: str, reasons: dict[str, Kind]) -> None:
    source = f"def f(draft, names, reason):\n  {code}"
    found = find({"planners/pool/x.py": source})
    assert (found.reasons, found.unread) == (reasons, [])
    assert find({"workflows/x.py": source}).reasons == {}, "elsewhere these words mean something else"


@pytest.mark.parametrize("code", ['m.waiting(f"Waits{x}", "words")', "m.note(names[0], 'words')", "m.note(x, 'words')"])
def test_a_reason_that_cannot_be_found_is_seen(code: str) -> None:
    assert len(find({"workflows/x.py": f"def f(m):\n  {code}"}).unread) == 1


def test_each_time_of_a_machine_has_words() -> None:
    machine = "".join(f.read_text() for f in sorted((ROOT / "workflows/machine").glob("*.py")))
    set_there = re.findall(r'deadlines(?:\.pop\(|\.get\(|\[)"([\w-]+)"', machine)
    assert set(set_there) == set(TIMES)


# -- the words --------------------------------------------------------------------------------------------------------


def test_the_words_of_a_reason() -> None:
    for name in REASONS:
        check_words(name)


def check_words(name: str) -> None:
    reason, step = REASONS[name], next_step(name, "prod", "m-1")
    assert re.fullmatch(r"[A-Z][A-Za-z]+", name)
    assert re.fullmatch(r"[A-Z][^.]*(\.\w[^.]*)*\.", reason.meaning), "one sentence"
    assert step.endswith(".")
    assert not re.search("[{}]|NAME|CLUSTER", step)
    assert len(step) <= LONGEST
    if Kind.FAILURE in reason.kind:
        assert "`hostler recreate machine m-1" in step
        assert "`hostler delete machine m-1" in step
    if reason.kind != Kind.HAPPENING:
        assert all([reason.see, reason.by_itself, reason.worry]), "whoever is woken by it finds all"
    for said in (reason.see, reason.by_itself, reason.worry):
        assert not re.search("[{}]|NAME|CLUSTER", filled(said, "prod", "m-1"))
        assert re.fullmatch(r"(?s)[A-Z`*].*[.]", said or "None."), "sentences"
    if Kind.WAIT in reason.kind:
        ends = r"\d+ s|minute|at the time (shown|in the message)|until the time shown"
        assert "`" in step or re.search(ends, step), "what to type, or how long it is normal"
    for command in COMMAND.findall(step):
        words = command.split()
        if words[1] not in ("doctor", "explain"):
            where = "--cluster" if "--cluster" in words else "cluster"
            assert words[words.index(where) + 1] == "prod", "a command that is copied must not hit another cluster"
        if words[1:3] != ["resume", "cluster"] and "controlplane" not in words:  # a cluster has one
            for kind in {"machine", "pool", "status", "resume", "undo"} & set(words):
                assert words[words.index(kind) + 1].removeprefix("mcp/") == "m-1"


def test_what_is_kept_is_not_said_to_be_replaced() -> None:
    """The case is a pool's Failed machine that is preserved for a look; without its VM there is nothing to look at."""
    replaced = "Nothing: pool p replaces it"
    assert step("HealthTimeout", owner="pool p").startswith(replaced)
    kept = "Inspect the VM, which is kept for that. When you are done: `hostler release machine m-1 --cluster prod`."
    assert step("HealthTimeout", owner="pool p", kept=True) == kept
    assert step("VMGone", owner="pool p", kept=True).startswith(replaced)


def step(reason: str, kind: str = "machine", **at: Any) -> str:
    return next_step(reason, "prod", "m-1", kind, at=Situation(**at))


def test_advice_knows_its_situation() -> None:
    replace = "`hostler recreate machine m-1 --cluster prod` replaces it, `hostler delete machine m-1 --cluster prod` "
    assert "Inspect the VM first" in step("CreationTimeout")
    assert "VM" not in step("CreationTimeout", vm=False)
    for reason in ("OutOfCapacity", "ReferenceNotFound", "NodeNotSeen", "StartupTaint", "ProviderUnavailable"):
        failed = step(reason, failed=True, vm=False)
        assert f" Then {replace}only removes it." in failed
        assert not re.search("tried again|Nothing|Inspect|Seen last", failed), "nothing is tried any more"
        assert failed[0].isupper()
    assert step("OutOfCapacity", failed=True, owner="pool p").startswith("Nothing: pool p replaces it")
    refused = step("CredentialsMissing", failed=True, owner="pool p")
    assert refused.startswith("Create what the message names")
    assert refused.endswith("pool p replaces this one on its own.")


def test_one_that_its_pool_does_not_replace_needs_what_holds_that_up() -> None:
    """Not even where its own reason says that the next one will be better."""
    for reason in ("NodeNotSeen", "InvalidSpec"):
        words = step(reason, failed=True, owner="pool p", held="NewMachinesNeverJoin")
        assert words.startswith("pool p does not replace it for now (NewMachinesNeverJoin). ")
        assert "`hostler rollout undo p --cluster prod`" in words
        assert "undo" not in step(reason, failed=True, owner="pool p", held="NewMachinesNeverJoin", page="pool")


def test_the_doctor_sends_nobody_to_itself() -> None:
    """Nor to a time that it does not show."""
    said = {(name, kind): step(name, kind, page="doctor") for name in REASONS for kind in ("machine", "pool")}
    assert [of for of, words in said.items() if re.search("hostler doctor|at the time shown", words)] == []


def test_advice_knows_nothing_of_settings() -> None:
    """How often something is tried is a setting of the machine's: the wait says when the next try comes."""
    for name in REASONS:
        check_advice(name)


def check_advice(name: str) -> None:
    known = REASONS[name]
    if known.kind is not Kind.HAPPENING:
        figures = r"every \d+|[Aa]fter \d+ s\b|(in|within) (the first )?(a|\d+) minutes?\b|(takes|in) \d+ s\b"
        assert not re.search(figures, known.do + known.cure)
        for kind in ("machine", "pool"):
            assert f"hostler describe {kind}" not in step(name, kind, page=kind), "not the command just run"
    assert known.lasting <= bool(known.cure), "what only a person ends says by what"
    assert not known.lasting or not nothing_to_do(name)


def test_a_reason_that_is_not_known_has_a_next_step_too() -> None:
    assert next_step("Odd", "prod", "m-1") == (
        "This version does not know the reason: `hostler events machine m-1 --cluster prod` tells the story."
    )
    assert next_step("Odd", "prod", "p1", "pool") == (
        "This version does not know the reason: `hostler describe pool p1 --cluster prod` tells the story."
    )
    assert (is_warning("Odd"), nothing_to_do("Odd")) == (False, False)
    assert (is_warning("CreationTimeout"), nothing_to_do("Settling")) == (True, True)


def test_a_reason_that_machines_and_pools_share_names_the_one_that_has_it() -> None:
    assert "`hostler renew machine m-1 --cluster prod`" in next_step("InternalError", "prod", "m-1")
    assert "`hostler renew pool p1 --cluster prod`" in next_step("InternalError", "prod", "p1", "pool")


def test_what_makes_a_machine_failed_is_a_warning() -> None:
    failures = {name for name, reason in REASONS.items() if Kind.FAILURE in reason.kind}
    assert failures >= {"CreationTimeout", "HealthTimeout", "StaleNode"}
    assert {name for name in failures if not is_warning(name)} == set()


# -- the runbook ------------------------------------------------------------------------------------------------------


def test_the_runbook_is_what_the_registry_says() -> None:
    assert TOOL["runbook"]() == RUNBOOK, "make runbook"


def test_the_runbook_begins_with_what_wakes_people() -> None:
    woken, _, happened = RUNBOOK.partition("\n## Appendix")
    for text, happens in ((woken, False), (happened, True)):
        entries = re.findall(r"^### (\w+)$", text, flags=re.MULTILINE)
        assert sorted(entries) == sorted(n for n, r in REASONS.items() if (r.kind == Kind.HAPPENING) is happens)
        index = re.findall(r"\[(\w+)\]\(#(\w+)\)", text)
        assert {*entries} <= {name for name, anchor in index if anchor == name.lower()}
    assert not [line for line in RUNBOOK.splitlines() if len(line) > TOOL["WIDTH"]]
    assert RUNBOOK.startswith("# Runbook\n\n## What woke you?\n")
    alerts = re.findall(r"alert: (\w+)", (ROOT / "docs" / "metrics.md").read_text())
    assert sorted(TOOL["ALERTS"]) == sorted(alerts)
    assert {name for names in [*TOOL["ALERTS"].values(), *TOOL["SYMPTOMS"].values()] for name in names} <= {*REASONS}


def test_a_command_is_not_broken_into_lines() -> None:
    """Nor does a line begin like a list item."""
    text = "a `b c` d + e"
    lines = [TOOL["wrapped"](f"{'x' * n} {text}", "  ") for n in range(104, 119)]
    assert all("`b c`" in found and "\n  +" not in found for found in lines)
    assert len({found.count("\n") for found in lines}) > 1


def typed(text: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return sorted({*COMMAND.findall(text), *lines})


def test_the_command_line_takes_what_the_runbook_says() -> None:
    commands = typed(RUNBOOK)
    assert len(commands) > 50
    for command in commands:
        program, *words = command.split()
        assert program == "hostler"
        parse(words)


def test_a_command_that_there_is_not_is_seen() -> None:
    commands = typed("`hostler mend machine m-1`\n\n```sh\nhostler doctor   # all\n```\n")
    assert commands == ["hostler doctor", "hostler mend machine m-1"]
    with pytest.raises(TyperException):
        parse(commands[1].split()[1:])

"""What `hostler get` makes of what it has found: rows, columns, colours, order; without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from starter import outlet
from starter.commands import rows
from starter.commands.common import targets
from starter.commands.forms import Form, Manner, form_of
from starter.commands.nodes import ListedNode
from starter.commands.rows import AGE, Column, Listing, Row, key_of, listed, phase_style, show
from starter.output import age, fitting
from starter.sdk.errors import Refused
from starter.templates import relaxed

BORN = datetime.now(UTC) - timedelta(days=3, hours=1)
UNTIL = datetime.now(UTC) + timedelta(hours=1)


@dataclass
class Thing:
    name: str
    phase: str = "Running"
    node: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    until: datetime | None = None
    cluster: str = "demo"


COLUMNS: tuple[Column[Thing], ...] = (
    Column("NAME", lambda t: t.name),
    Column("PHASE", lambda t: t.phase, style=lambda t: phase_style(t.phase)),
    Column("NODE", lambda t: t.node, drop=2),
    Column(AGE, lambda t: BORN, drop=1),
    Column("UNTIL", lambda t: t.until, wide=True),
)


def listing(things: list[Thing], kind: str = "thing", everywhere: bool = False) -> Listing[Thing]:
    async def find() -> list[Thing]:
        return things

    async def objects(found: list[Thing]) -> list[Any]:
        return [{"metadata": {"name": t.name, "labels": t.labels}, "status": {"phase": t.phase}} for t in found]

    return Listing(listed(COLUMNS, everywhere), find, key_of(kind, everywhere), objects, f"No {kind}s.")


def printed(
    capsys: pytest.CaptureFixture[str], listings: Sequence[Listing[Any]], form: str = "table", **manner: Any
) -> str:
    asyncio.run(show(listings, form_of(form), Manner(**manner), single=manner.pop("single", False)))
    return capsys.readouterr().out


THINGS = [Thing("m-10", labels={"a/zone": "b", "pool": "p"}), Thing("m-9", "Failed", node="ip-1"), Thing("m-1")]


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, [listing(THINGS)]).splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "PHASE", "NODE", "AGE"],
        ["m-10", "Running", "<none>", "3d1h"],
        ["m-9", "Failed", "ip-1", "3d1h"],
        ["m-1", "Running", "<none>", "3d1h"],
    ]
    assert "UNTIL" in printed(capsys, [listing(THINGS)], "wide").splitlines()[0]
    assert printed(capsys, [listing(THINGS)], headers=False).splitlines() == lines[1:]
    assert printed(capsys, [listing(THINGS, everywhere=True)], "name").split()[0] == "thing/demo/m-10"


def test_what_speaks_against_a_table_is_said_once_and_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def doubts(found: list[Thing]) -> str:
        return "nobody polls q" if any(t.phase == "Failed" for t in found) else ""

    def errors(things: list[Thing], **manner: Any) -> str:
        asyncio.run(show([replace(listing(things), doubts=doubts)], form_of("table"), Manner(**manner)))
        return capsys.readouterr().err

    assert errors(THINGS) == "warning: nobody polls q\n"
    assert errors(THINGS[:1]) == ""
    assert errors(THINGS, show_labels=True) == ""  # then each one is asked, and says it


def test_order_is_kubectls(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers within names count; what has no such field comes first."""

    def names(path: str) -> list[str]:
        return printed(capsys, [listing(THINGS)], "name", sort_by=relaxed(path)).split()

    assert names("{.metadata.name}") == ["thing/m-1", "thing/m-9", "thing/m-10"]
    assert names("status.phase") == ["thing/m-9", "thing/m-10", "thing/m-1"]
    assert names(r".metadata.labels.a\/zone") == ["thing/m-9", "thing/m-1", "thing/m-10"]
    with pytest.raises(Refused, match=r"no object has the field '\.spec\.nope'"):
        names(".spec.nope")


def test_labels(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, [listing(THINGS[:2])], label_columns=["a/zone"], show_labels=True).splitlines()
    assert [line.split()[4:] for line in found] == [["ZONE", "LABELS"], ["b", "a/zone=b,pool=p"], ["<none>", "<none>"]]


def test_several_kinds_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    several = [listing(THINGS[:1]), listing([], "nothing"), listing(THINGS[1:2], "other")]
    tables = printed(capsys, several).split("\n\n")
    assert [table.splitlines()[1].split()[0] for table in tables] == ["thing/m-10", "other/m-9"]
    everywhere = printed(capsys, [listing(THINGS[:1], everywhere=True), listing(THINGS[1:2], "other")])
    assert everywhere.splitlines()[1].split()[:2] == ["demo", "thing/m-10"]
    assert [o["metadata"]["name"] for o in json.loads(printed(capsys, several, "json"))["items"]] == ["m-10", "m-9"]


@pytest.mark.parametrize("form", ["table", "yaml"])
def test_kinds_are_asked_at_once(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of these answers only when both are asked."""
    asked = asyncio.Barrier(2)

    async def find() -> list[Thing]:
        await asyncio.wait_for(asked.wait(), 5)
        return THINGS[:1]

    assert "m-10" in printed(capsys, [replace(listing([], kind), find=find) for kind in ("thing", "other")], form)


def test_templates_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, [listing(THINGS)], "jsonpath={.items[*].metadata.name}") == "m-10 m-9 m-1"
    table = printed(capsys, [listing(THINGS[:2])], "custom-columns=N:.metadata.name,Z:.metadata.labels.a/zone")
    assert [line.split() for line in table.splitlines()] == [["N", "Z"], ["m-10", "b"], ["m-9", "<none>"]]


def test_a_value_cannot_pass_for_a_line_of_a_template(capsys: pytest.CaptureFixture[str]) -> None:
    evil = [Thing("m\nmachine/m-2 deleted\x1b[2J")]
    out = printed(capsys, [listing(evil)], 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}')
    assert out == "m\\nmachine/m-2 deleted\\x1b[2J\n"


def test_what_is_news_under_w() -> None:
    """Not the time that passes, but a moved end; tests/component/test_cli.py watches the command itself."""

    def row(**of: Any) -> Row:
        return listing([]).row(Thing("m", **of), {})

    assert row(until=UNTIL) == row(until=UNTIL)
    assert row(until=UNTIL) != row(until=UNTIL + timedelta(minutes=1))
    assert row(phase="Running") != row(phase="Failed")
    assert rows.cell_text("UNTIL", datetime.now(UTC) + timedelta(days=3, hours=1, minutes=9)) == "in 3d1h"


# -- a terminal -------------------------------------------------------------------------------------------------------


def test_columns_that_do_not_fit_are_left_out() -> None:
    header, drop = ["NAME", "PHASE", "NODE", "AGE"], [0, 0, 2, 1]
    row = ["n" * 20, "p" * 10, "x" * 30, "5m"]  # 20 + 3 + 10 + 3 + 30 + 3 + 3
    assert fitting(header, [row], drop, 72) == [0, 1, 2, 3]
    assert fitting(header, [row], drop, 71) == [0, 1, 3]
    assert fitting(header, [row], drop, 38) == [0, 1]
    assert fitting(header, [row], drop, 10) == [0, 1]  # who and how stay, whatever it costs
    assert fitting(header, [row], drop, None) == [0, 1, 2, 3]


def test_a_narrow_terminal_has_no_wrapped_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "width", lambda: 30)
    things = [Thing("m-1", node="ip-10-0-0-1.eu-west-1.compute.internal")]
    assert printed(capsys, [listing(things)]).splitlines()[0].split() == ["NAME", "PHASE", "AGE"]
    assert printed(capsys, [listing(things)], "wide").splitlines()[0].split() == [
        "NAME", "PHASE", "NODE", "AGE", "UNTIL",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("terminal", "environment", "asked", "colours"),
    [
        (True, {}, "auto", True),
        (False, {}, "auto", False),
        (True, {"NO_COLOR": "1"}, "auto", False),
        (True, {"NO_COLOR": ""}, "auto", True),  # no-color.org: set, and not empty
        (True, {"TERM": "dumb"}, "auto", False),
        (True, {"CLICOLOR": "0"}, "auto", False),  # bixense.com/clicolors
        (True, {"CLICOLOR": "1"}, "auto", True),
        (False, {"CLICOLOR": "1"}, "auto", False),
        (False, {"CLICOLOR_FORCE": "1"}, "auto", True),
        (False, {"FORCE_COLOR": "1"}, "auto", True),  # rich's word for it
        (False, {"CLICOLOR_FORCE": "0"}, "auto", False),
        (True, {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, "auto", False),
        (False, {"CLICOLOR_FORCE": "1", "CLICOLOR": "0"}, "auto", True),
        (False, {"CLICOLOR_FORCE": "1"}, "never", False),
        (True, {"CLICOLOR": "0"}, "always", True),
        (True, {"NO_COLOR": "1"}, "always", True),
        (False, {}, "always", True),
        (True, {}, "never", False),
    ],
)
def test_colours(
    terminal: bool,
    environment: dict[str, str],
    asked: str,
    colours: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("NO_COLOR", "TERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(outlet, "on_terminal", lambda: terminal)
    monkeypatch.setattr(outlet, "_colour", outlet.Colour(asked))
    monkeypatch.setattr(rows, "width", lambda: None)
    out = printed(capsys, [listing(THINGS[:2])])
    assert ("\x1b[32mRunning\x1b[0m" in out, "\x1b[31mFailed\x1b[0m" in out) == (colours, colours)
    assert ("\x1b" in out) == colours


@pytest.mark.parametrize(
    ("phase", "style"),
    [
        ("Running", "green"), ("Running:Preserved", "green"), ("Ready", "green"), ("Pending", "yellow"),
        ("Failed:Preserved", "red"), ("Ready,SchedulingDisabled", "yellow"), ("NotReady,SchedulingDisabled", "red"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_colour_of_a_phase(phase: str, style: str) -> None:
    assert phase_style(phase) == style


# -- words of the command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("machine a b", [("machine", ["a", "b"])]),
        ("machine/a machine/b", [("machine", ["a", "b"])]),
        ("machines/a pool/b machine/c", [("machine", ["a", "c"]), ("machinedeployment", ["b"])]),
        ("machines,pools", [("machine", []), ("machinedeployment", [])]),
        ("machine/a b", [("machine", ["a", "b"])]),
    ],
)
def test_kinds_and_names(words: str, found: list[tuple[str, list[str]]]) -> None:
    kind, *names = words.split()
    assert targets(kind, names, ("machine", "machinedeployment")) == found


@pytest.mark.parametrize("words", ["machine/", "machine/a pool/", "machines,pods", "machine/a node/b"])
def test_kinds_that_are_none(words: str) -> None:
    kind, *names = words.split()
    with pytest.raises(typer.BadParameter):
        targets(kind, names, ("machine", "machinedeployment"))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("jsonp={.x}", "did you mean json or jsonpath?"),
        ("jsonpath", "needs its argument"),
        ("jsonpath={.x", "is not closed"),
        ("json=x", "is no output format"),
        ("custom-columns=A", "write HEADER:.path"),
        ("go-template", "needs its argument: -o go-template='{{.metadata.name}}'"),
        ("template={{foo}}", "error parsing template {{foo}}, template: output:1: function 'foo' not defined"),
        ("jsonpath-file=/nowhere/x", "No such file"),
    ],
)
def test_a_wrong_form_says_what_to_write(output: str, words: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        form_of(output)
    assert words in refused.value.message


def test_a_plain_form_loads_no_library() -> None:
    assert form_of("wide") == form_of("=wide") == Form(form_of("wide").shape)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(119, "119s"), (320, "5m20s"), (3600 * 5, "5h"), (86400 * 5 + 3 * 3600, "5d3h"), (86400 * 729, "729d"),
     (86400 * 765, "2y35d"), (86400 * 365 * 9, "9y")],
)  # fmt: skip
def test_ages_are_kubectls(seconds: int, shown: str) -> None:
    assert age(timedelta(seconds=seconds)) == shown


def test_a_nodes_status_is_kubectls() -> None:
    def status(ready: str | None, spec: dict[str, Any]) -> str:
        conditions = [{"type": "Ready", "status": ready}] if ready else []
        return ListedNode(
            "prod", {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}
        ).status

    assert status("True", {}) == "Ready"
    assert status("True", {"unschedulable": True}) == "Ready,SchedulingDisabled"
    assert status("False", {}) == "NotReady"
    assert status("Unknown", {}) == "NotReady"
    assert status(None, {}) == "Unknown"

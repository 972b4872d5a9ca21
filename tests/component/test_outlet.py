"""Nothing that strangers write acts on a terminal, hides, or passes for a line of ours; there is no other way out."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import re
import subprocess
import sys

import pytest
import yaml
from paths import ROOT

from resources.visible import visible, visible_json
from starter import outlet
from starter.commands.doctor import _page as page_of
from starter.doctor.findings import Finding, Level
from starter.outlet import Colour, Formatter, complain, say, say_painted, warn
from starter.output import Table, dump, fields
from worker import configure_logging

EVIL = "\x1b]0;PWNED\x07\x1b[8mhidden\x9b2J\rerror: none\x08\x08\u202egnp.exe\u2066\u200b\ufeff\U000e0041 end"
SAFE = r"\x1b]0;PWNED\x07\x1b[8mhidden\x9b2J\rerror: none\x08\x08\u202egnp.exe\u2066\u200b\ufeff\U000e0041 end"
FAKE = "no\nmachine/m-1 deleted"
"""A message that tries to be two lines."""


# -- what is made visible ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SAFE),
        ("\x00\x7f\x85", r"\x00\x7f\x85"),
        ("a\tb\nc", r"a\tb\nc"),
        ("boot\r\nlogin:\r\n", r"boot\nlogin:\n"),  # a console's line ends are no carriage returns
        ("\u2028\u2029\u061c\u200e\u200f", r"\u2028\u2029\u061c\u200e\u200f"),
        ("a\u00adb\u034fc\u3164d\u2800e\ufe0ff\U000e0100", r"a\xadb\u034fc\u3164d\u2800e\ufe0ff\U000e0100"),
        ("a\u00a0b\u3000c", r"a\xa0b\u3000c"),  # they look like a space, and a command that is copied has none
        ("half \ud83d pair", r"half \ud83d pair"),  # print would fail
        ("größer — 日本語 שלום 🚀 […] `x`", "größer — 日本語 שלום 🚀 […] `x`"),
        (r"C:\new", r"C:\new"),
        ("", ""),
    ],
)
def test_what_acts_or_hides_is_written_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown  # applied twice it is the same


def test_no_character_passes_that_does_not_print() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert visible(everything).isprintable()


# -- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"machine/m-0 deletion: {FAKE}", "second")
    warn(FAKE)
    complain(f"refused: {FAKE}\rerror: all is well")
    out, err = capsys.readouterr()
    assert out == "machine/m-0 deletion: no\\nmachine/m-1 deleted\nsecond\n"
    assert err.splitlines() == [
        "warning: no\\nmachine/m-1 deleted",
        "error: refused: no",
        r"error: machine/m-1 deleted\rerror: all is well",
    ]


def test_layouts_are_as_wide_as_what_is_seen() -> None:
    head, row = Table(("NAME", "MESSAGE", "AGE")).lines([["m-1", f"{EVIL}\nmore", "10s"]])
    assert row == f"m-1    {SAFE} more   10s"
    assert row.index("10s") == head.rindex("AGE")
    assert fields([("Message", f"{EVIL}\nmore"), ("\x1b[2J", "y")]) == [
        f"Message:  {SAFE}",
        "          more",
        r"\x1b[2J:  y",
    ]


VALUES = [
    EVIL,
    FAKE,
    "a\r\nb",
    "\t",
    "\x7f",
    "\u2028",
    "\x85x",
    "a\u00a0b",
    "half \ud83d",
    "plain: text",
    "😀 é",
    " \u200b ",
]


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("value", [*VALUES, f"long {'x' * 100} \u202e {'y ' * 60}"])
def test_objects_hide_nothing_and_parse_to_the_true_value(
    form: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from starter.outlet import say_text

    thing = {"message": value, value: ["x", value], "number": 1}
    say_text(dump([thing], form, single=True))
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert (json.loads(text) if form == "json" else yaml.safe_load(text)) == thing
    assert json.loads(visible_json([value])) == [value]


def test_letters_of_all_languages_stay_readable_in_objects() -> None:
    for form in ("json", "yaml"):
        assert "größer — 日本語" in dump([{"reason": "größer — 日本語"}], form, single=True)


# -- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_line_for_people_is_one_line_and_a_trace_is_indented() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter("%(levelname)s %(message)s"))
    log = logging.Logger("one")
    log.addHandler(handler)
    log.warning("node said %s", f"{EVIL}\nCRITICAL all is lost")
    try:
        raise ValueError("bad\nCRITICAL all is lost\x1b[2J")
    except ValueError:
        log.exception("failed")
    first, second, *trace = stream.getvalue().splitlines()
    assert first == f"WARNING node said {SAFE}\\nCRITICAL all is lost"
    assert second == "ERROR failed"
    assert trace
    assert all(line.startswith("  ") and line.isprintable() for line in trace)


def test_the_workers_log_for_people_is_such_a_one() -> None:
    before = logging.root.handlers[:], logging.root.level
    try:
        configure_logging("human")
        (handler,) = logging.root.handlers
        assert isinstance(handler.formatter, Formatter)
    finally:
        logging.root.handlers[:], logging.root.level = before


# -- a real terminal --------------------------------------------------------------------------------------------------


def on_a_terminal(*command: str) -> tuple[str, int]:
    """What a terminal gets, byte by byte, and the exit code."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "400", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT) as child:
        os.close(theirs)
        got = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux: the last one has closed the other side
                break
            if not chunk:
                break
            got += chunk
    os.close(ours)
    return got.decode(), child.returncode


def test_doctors_colours_are_the_only_escapes_of_its_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Finding("clouds", Level.OK, f"polled{EVIL}"), Finding("clouds", Level.PROBLEM, "no answer", f"ask{EVIL}")]
    for colours, word in ((Colour.ALWAYS, "\x1b[31mproblem\x1b[0m  no answer"), (Colour.NEVER, "problem  no answer")):
        monkeypatch.setattr(outlet, "_colour", colours)
        say_painted(page_of(found))
        shown = capsys.readouterr().out
        assert f"\n  {word}\n" in shown
        assert f"           → ask{SAFE}\n" in shown
        assert_safe(shown)


OF_RICH = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[0-9]*[AK]|2K)")
"""Escapes of rich: colours, the cursor hidden and shown again, up a line and clear it. None of EVIL's."""


def assert_safe(got: str) -> None:
    for sequence in ("\x1b]", "\x1b[8m", "\rerror", "\x9b", "\u202e", "\u200b", "\x07", "\x08"):
        assert sequence not in got, got
    rest = OF_RICH.sub("", got).replace("\r\n", "\n").replace("\r", "" if "\x1b[" in got else "\r")
    assert rest.replace("\n", "").isprintable(), ascii(rest)


def test_the_command_itself_says_what_is_wrong_safely() -> None:
    for wrong, exit_code in (
        (("apply", "-f", f"no-file{EVIL}"), 1),
        (("get", f"things{EVIL}"), 2),
    ):  # typer's own words
        got, code = on_a_terminal(sys.executable, "-m", "starter.main", *wrong)
        assert code == exit_code
        assert SAFE in got
        assert_safe(got)


DRAWN = """
import asyncio
from datetime import UTC, datetime
from rich.console import Group
from rich.live import Live
from rich.table import Table
from resources.machine.state import MachineState, Phase, Status, WaitingFor
from resources.journal import Happening
from starter.local.demo_view import DemoTable, view
from starter.output import Busy
from starter.screen import screen
evil = {evil!r}

async def main():
    now = datetime.now(UTC)
    story = [Happening(time=now, reason="Odd", message="[red]" + evil + "[link=https://evil.example]here[/link]")]
    state = MachineState.model_construct(
        name="m[bold]1", journal=story, status=Status(phase=Phase.PENDING, waiting_for=WaitingFor(
            reason="NodeNotSeen", message=evil, since=now)))
    shown = view(screen())
    assert isinstance(shown, DemoTable)
    with shown.running():
        shown.say(evil)
        shown.show(state)
    rows = Table("[red]" + evil)  # whoever forgets `words` is safe all the same
    rows.add_row("[link=https://evil.example]" + evil)
    screen().print(Group(rows, evil))
    async with Busy("[red]" + evil) as busy:
        await asyncio.sleep(1.3)
        busy.say("spun " + evil)

asyncio.run(main())
"""


def test_what_rich_draws_on_a_terminal_is_safe_and_knows_no_markup() -> None:
    got, code = on_a_terminal(sys.executable, "-c", DRAWN.format(evil=EVIL))
    assert code == 0, got
    assert_safe(got)
    for seen in (SAFE, "m[bold]1", "[red]", "[link=https://evil.example]here[/link]", f"spun {SAFE}"):
        assert seen in got


# -- nothing goes another way -----------------------------------------------------------------------------------------


WAYS_OUT = {"print", "input", "echo", "secho", "confirm", "prompt", "pprint", "print_exc", "print_exception"}
PRINTS = {"starter/outlet.py", "starter/screen.py"}
OUR_SCREEN = {"_console", "screen"}
"""starter/screen.py makes what rich prints on: an attribute of the views."""
CHILDREN = {"starter/local/guardian.py"}


def leaks(source: str) -> list[str]:
    """Code that writes to standard output or standard error directly."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = called.rsplit(".", 1)[-1]
            on_screen = name == "print" and any(called == f"self.{s}.print" for s in OUR_SCREEN)
            if name in WAYS_OUT and not on_screen:
                found.append(called)
            if name == "Console":
                found.append("Console(…) of rich")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr", "sys.__stdout__"):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import typer\ntyper.echo('x')",
        "from click import echo\necho('x')",
        "import sys\nsys.stdout.write('x')",
        "import sys\nout = sys.stderr",
        "from rich import print as show, print\nprint('x')",
        "from rich.console import Console\nConsole().print('x')",
        "console.print('x')",
        "import traceback\ntraceback.print_exc()",
        "import typer\ntyper.confirm('x?')",
    ],
)
def test_the_guard_finds_each_way_out(source: str) -> None:
    assert leaks(source)


def test_nothing_in_the_starter_prints_but_through_the_outlet() -> None:
    files = sorted((ROOT / "starter").rglob("*.py"))
    found = {
        str(file.relative_to(ROOT)): leaks(file.read_text())
        for file in files
        if str(file.relative_to(ROOT)) not in PRINTS | CHILDREN
    }
    assert len(files) > 50
    assert {file: ways for file, ways in found.items() if ways} == {"starter/output.py": ["sys.stderr"]}  # isatty

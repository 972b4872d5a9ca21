"""The command line takes what the documentation tells people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
from paths import ROOT
from typer.exceptions import TyperException
from typer.main import get_command

from starter.main import app

PAGES = ("README.md", "docs/simulator.md")
SYNOPSIS = re.compile(r"[|…\[\]·]")
"""Placeholders: a line with one is a form, not a command."""


def typed(page: str) -> Iterator[list[str]]:
    """The words of every `hostler` line in the page's blocks."""
    for block in re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = line.removeprefix("$ ").split("    #")[0]
            if command.startswith("hostler ") and not SYNOPSIS.search(re.sub(r'"\$\(.*\)"', "i-1", command)):
                yield shlex.split(re.sub(r'"\$\(.*\)"', "i-1", command), comments=True)[1:]


def parse(words: list[str]) -> str:
    """The command that takes them. Raises a usage error; runs nothing."""
    command, name = get_command(app), "hostler"
    ctx = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        ctx = command.make_context(name, rest, parent=ctx)
    return str(ctx.command_path)


@pytest.mark.parametrize("page", PAGES)
def test_the_command_line_takes_what_the_page_says(page: str) -> None:
    taken = [parse(words) for words in typed(page)]
    assert len(taken) >= 4
    assert "hostler simulator faults add" in taken


@pytest.mark.parametrize("line", ["simulator faults ad x", "wait machine m1 --form=deleted", "get", "nonsense"])
def test_what_is_wrong_is_seen(line: str) -> None:
    with pytest.raises(TyperException):
        parse(line.split())

"""The command line takes what the documentation tells people to type."""

from __future__ import annotations

import pytest
from cli.pages import parse, typed
from paths import ROOT
from typer.exceptions import TyperException

PAGES = {
    "README.md": "hostler simulator faults add",
    "docs/simulator.md": "hostler simulator faults add",
    "docs/machine-configs.md": "hostler mc render",
}
"""One of the commands on each page."""


@pytest.mark.parametrize(("page", "one"), PAGES.items(), ids=PAGES)
def test_the_command_line_takes_what_the_page_says(page: str, one: str) -> None:
    taken = [parse(words) for words in typed(page)]
    assert len(taken) >= 4
    assert one in taken


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))])
def test_every_command_of_every_page_is_one(page: str) -> None:
    assert all(parse(words).startswith("hostler ") for words in typed(page))


@pytest.mark.parametrize(
    "line", ["adopt m1 -f m.yaml", "simulator faults ad x", "wait machine m1 --form=deleted", "get", "nonsense"]
)
def test_what_is_wrong_is_seen(line: str) -> None:
    with pytest.raises(TyperException):
        parse(line.split())

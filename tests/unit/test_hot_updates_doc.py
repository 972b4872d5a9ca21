"""docs/hot-updates.md is true: the code decides by its tables and figures, and its commands are accepted."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from cli.pages import parse, typed
from paths import ROOT

from planners.telling import LONGEST
from planners.waits import Tries, wait_after_update
from resources.clouds.aws.spec import AwsProviderSpec
from resources.errors import ErrorClass, ErrorInfo
from resources.machine_class.state import SILENCE, UPDATE_CONCURRENCY, UpdateState, concurrency_of
from resources.names import UPDATE_CONCURRENCY_ANNOTATION
from resources.timings import Timings
from starter.commands.classes import SOME

PAGE = (ROOT / "docs/hot-updates.md").read_text()
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
LEAST = {
    "ami": "ami-1",
    "region": "eu-west-1",
    "machineType": "m5.large",
    "networkInterfaces": [{"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]}],
    "blockDevices": [{"ebs": {"volumeSize": 50}}],
}


def rows(head: str) -> list[list[str]]:
    """Cells of the only table with this head."""
    (table,) = re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, flags=re.MULTILINE)
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()]


def tags(cell: str, between: str) -> dict[str, str] | None:
    """`a: 1` or `a=1`; None where the cell is empty: the field is not there."""
    pairs = [p.split(between) for p in re.findall(r"`([^`]+)`", cell) if between in p]
    return {k.strip(): v.strip() for k, v in pairs} if cell else None


def test_which_tag_field_counts() -> None:
    told = rows("| tags | vmTags | nicTags | diskTags | instance | NICs | volumes |")
    assert len(told) == 4
    for row in told:
        given = dict(zip(("tags", "vmTags", "nicTags", "diskTags"), (tags(c, ":") for c in row[:4]), strict=True))
        spec = AwsProviderSpec.model_validate({**LEAST, **{k: v for k, v in given.items() if v is not None}})
        found = [spec.tags_for(kind) for kind in ("vm", "nic", "disk")]
        assert found == [tags(c, "=") for c in row[4:]], row


def test_the_states_are_the_codes() -> None:
    states = [state for state, _ in rows("| state | |")]
    assert sorted(states) == sorted(UpdateState)


def test_the_waits_are_the_planners() -> None:
    told = {
        name.strip().replace(" ", "_"): words
        for names, words in rows("| error | next try |")
        for name in names.split(",")
    }
    assert set(told) == set(ErrorClass)
    for error_class, words in told.items():
        info = ErrorInfo.of(ErrorClass(error_class), "no")
        waits = [wait_after_update(info, Timings(), Tries(failures)) for failures in (1, 2, 99)]
        if words.startswith("5 s, doubled with each failure up to 3 min"):
            assert waits == [timedelta(seconds=5), timedelta(seconds=10), timedelta(minutes=3)]
        else:
            assert (words.startswith("10 min"), waits) == (True, [timedelta(minutes=10)] * 3)


@pytest.mark.parametrize(
    ("words", "value", "told"),
    [
        ("default 10", UPDATE_CONCURRENCY, 10),
        ("says nothing for two minutes", SILENCE, timedelta(minutes=2)),
        ("at most every hour", LONGEST, timedelta(hours=1)),
        ("the last 10 changes", SOME, 10),
        (f"{UPDATE_CONCURRENCY_ANNOTATION}:", concurrency_of({UPDATE_CONCURRENCY_ANNOTATION: "25"}), 25),
    ],
)
def test_the_figures_are_the_defaults(words: str, value: object, told: object) -> None:
    assert words in PAGE
    assert value == told


def test_each_link_to_the_runbook_leads_somewhere() -> None:
    anchors = re.findall(r"\]\(runbook\.md#(\w+)\)", PAGE)
    assert len(anchors) >= 4
    headings = {h.lower() for h in re.findall(r"^### (\w+)$", RUNBOOK, flags=re.MULTILINE)}
    assert set(anchors) <= headings


def test_the_command_line_takes_what_the_page_says() -> None:
    inline = [text.split() for text in re.findall(r"`hostler ([a-z-]+ [^`]*)`", PAGE)]
    taken = [parse(words) for words in [*typed("docs/hot-updates.md"), *inline]]
    assert {"hostler diff", "hostler apply", "hostler get", "hostler describe", "hostler update-class"} <= set(taken)

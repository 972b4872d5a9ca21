"""docs/drain.md is true: its words are those of the code, and the code decides by its numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from paths import ROOT

from activities.drain import budgets, pods, words
from activities.drain.memory import RefusedEviction
from activities.drain.nodes import ALIVE_WHEN, DEAD_AFTER
from activities.drain.sweep import LONGEST_WAIT
from resources.base import format_duration
from resources.calls.drain import DrainInput
from resources.machine.manifest import MachineSpec
from resources.timings import Timings

PAGE = (ROOT / "docs/drain.md").read_text()
DEADLINE = datetime(2031, 1, 1, 14, 5, tzinfo=UTC)


def at(minutes: int, seconds: int) -> datetime:
    return datetime(2031, 1, 1, 14, minutes, seconds, tzinfo=UTC)


def test_its_examples_are_what_the_code_says() -> None:
    refused = RefusedEviction(
        words="blocked by PDB web (0 disruptions allowed)", wait=timedelta(seconds=5), again=DEADLINE
    )
    detach = words.moving(["pvc-1"], "default/db-0", at(3, 20))
    attach = words.moving(["pvc-1"], "default/db-0", at(4, 50), away=True)
    scenes: list[dict[str, Any]] = [
        {"blocked": [("default/web-1", refused)]},
        {"volumes": [detach]},
        {"volumes": [attach]},
        {"going": [("default/db-0", at(3, 20))], "queued": 2, "before": "default/db-0"},
        {"going": [("default/db-0", DEADLINE - timedelta(minutes=7))]},
    ]
    said = [words.blocker(words.Scene(now=at(0, 0), gone=3, total=7, deadline=DEADLINE, **s)) for s in scenes]
    (block,) = re.findall(r"```\n(3 of 7.*?)\n```", PAGE, flags=re.DOTALL)
    assert block.splitlines() == said


@pytest.mark.parametrize(
    ("status", "message", "names"),
    [
        pytest.param(429, budgets.VIOLATES, ["web"], id="one"),
        pytest.param(500, budgets.SEVERAL, ["one", "two"], id="several"),
        pytest.param(429, "busy", [], id="busy"),
    ],
)
def test_every_refusal_has_a_row(status: int, message: str, names: list[str]) -> None:
    full = {"observedGeneration": 1, "expectedPods": 2, "currentHealthy": 2}
    selecting = [{"metadata": {"name": n, "generation": 1}, "spec": {}, "status": full} for n in names]
    why, advice = budgets.refusal(status, message, selecting)
    assert f"| `{why}` |" in PAGE
    if names == ["web"]:
        assert f"| `{advice.split(';')[0]}` |" in PAGE


def test_its_numbers() -> None:
    bounds = DrainInput.model_fields
    poll = Timings().poll
    for number, sentence in (
        (bounds["detach_timeout"].default, "At most its grace period and {}."),
        (bounds["detach_timeout"].default, "what is still attached has {} to be detached"),
        (bounds["detach_timeout"].default, "until their grace period is over, and {} more"),
        (bounds["detach_timeout"].default, "It is not waited for after {} |"),
        (bounds["reattach_timeout"].default, "At most {}: there may be no room"),
        (MachineSpec.model_fields["drain_timeout"].default, "(`spec.drainTimeout`, {} by default)"),
        (DEAD_AFTER, "for more than {}; or the VM does not run"),
        (timedelta(seconds=pods.SHORT_GRACE), "Evictions with a grace period of {}"),
        (poll, "A pass comes every {}."),
    ):
        assert sentence.format(format_duration(number)) in PAGE
    first, second, last = (f"{w.total_seconds():.0f}s" for w in (poll, poll * 2, poll * LONGEST_WAIT))
    assert f"asked for again after {first}, then {second}, up to {last};" in PAGE
    assert f"`{pods.CORDON}:NoSchedule`" in PAGE
    for condition, well in ALIVE_WHEN.items():
        assert f"`{condition}` not {well}" in PAGE

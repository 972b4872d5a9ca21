"""The arrows of the house: who may import whom. See docs/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOUSE = ("starter", "workflows", "planners", "activities", "drivers", "resources", "simulator")
MAY = {
    "resources": set(),
    "planners": {"resources"},
    "drivers": {"resources", "planners"},  # of the planners only those of PLANS_OF_DRIVERS
    "activities": {"drivers", "resources"},
    "workflows": {"planners", "resources", "activities"},
    "starter": {"resources", "workflows", "activities"},  # of the activities only THE_COMMAND_LINES_TOO
    "simulator": {"resources"},
    "worker": set(HOUSE) - {"simulator"},
}
# The plan of one resource's tags is a decision, the same for every cloud; the driver alone sees what is carried.
PLANS_OF_DRIVERS = {"planners.hot_update"}
# How a cluster is reached is one thing, for the worker and for whoever types a command.
THE_COMMAND_LINES_TOO = {"activities.kubeconfig", "activities.credentialplugin"}
# Planners are pure: they may not even reach for a clock, a network or Temporal.
IMPURE = {"temporalio", "asyncio", "aiohttp", "boto3", "kubernetes", "random", "socket", "time", "os", "subprocess"}

# An activity decides by the server's clock (activities/clock.py); the worker's own is for what people read.
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
MAY_READ_IT = {
    "census.py": "when machines were counted, for metrics",
    "credentialplugin.py": "when the credentials expire that a program on this very machine has given",
}


def imports(source: str) -> set[str]:
    """First parts of every imported module."""
    return {module.partition(".")[0] for module in modules(source)}


def modules(source: str) -> set[str]:
    """Also of imports inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def files(room: str) -> list[Path]:
    return [ROOT / "worker.py"] if room == "worker" else sorted((ROOT / room).rglob("*.py"))


def wrong(room: str, source: str) -> set[str]:
    return (imports(source) & {*HOUSE, "worker"}) - MAY[room] - {room}


@pytest.mark.parametrize("room", sorted(MAY))
def test_arrows(room: str) -> None:
    assert files(room), f"{room} is empty: the test would pass on nothing"
    found = {str(f.relative_to(ROOT)): w for f in files(room) if (w := wrong(room, f.read_text()))}
    assert not found


def test_drivers_use_no_other_plans() -> None:
    used = {m for f in files("drivers") for m in modules(f.read_text()) if m.startswith("planners")}
    assert used == PLANS_OF_DRIVERS


def test_the_command_line_uses_no_other_activities() -> None:
    used = {m for f in files("starter") for m in modules(f.read_text()) if m.startswith("activities")}
    assert used == THE_COMMAND_LINES_TOO


def test_what_all_owners_of_machines_share_knows_no_pool() -> None:
    used = {m for f in files("workflows/fleet") for m in modules(f.read_text())}
    assert "workflows.entity" in used
    assert not {m for m in used if m.startswith(("workflows.pool", "planners.pool", "resources.pool"))}


def test_a_wrong_arrow_is_seen() -> None:
    assert wrong("planners", "def f():\n    from activities.kube import Kube\n") == {"activities"}
    assert wrong("starter", "import drivers.base") == {"drivers"}
    assert wrong("resources", "import worker") == {"worker"}


def test_planners_are_pure() -> None:
    found = {f.name: w for f in files("planners") if (w := imports(f.read_text()) & IMPURE)}
    assert not found
    assert imports("from datetime import datetime\nimport time") & IMPURE == {"time"}


def wall_clocks(source: str) -> set[str]:
    """Readings of the worker's clock, e.g. `datetime.now(UTC)`, `datetime.datetime.now()`, `from time import time`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.add(".".join(ast.unparse(node).split(".")[-2:]))
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found & WALL_CLOCKS


def test_no_activity_decides_by_the_wall_clock_of_its_machine() -> None:
    found = {f.name: w for f in files("activities") if (w := wall_clocks(f.read_text()))}
    assert set(found) == set(MAY_READ_IT), found  # one that needs its exception no more loses it


def test_a_look_at_the_wall_clock_is_seen() -> None:
    assert wall_clocks("import datetime\nx = datetime.datetime.now()") == {"datetime.now"}
    assert wall_clocks("from time import time as t") == {"time.time"}
    assert wall_clocks("x = datetime.now(UTC) - activity.info().started_time") == {"datetime.now"}
    assert not wall_clocks("x = time.monotonic() + datetime.fromisoformat(s).timestamp() + clock.now()")

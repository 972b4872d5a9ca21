"""docs/pools.md, *Using pools*, is true: its tables are the code's, its commands are accepted."""

from __future__ import annotations

import inspect
import re
import shlex

from cli.pages import parse
from paths import ROOT

from planners.fleet.steps import HELD, STOPPED
from resources.effects import Effect, effects
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.rollout import RolloutOutcome
from resources.reasons import REASONS
from workflows.pool.entity import PoolEntity

PAGE = (ROOT / "docs/pools.md").read_text().partition("\n# Using pools\n")[2]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def rows(head: str) -> list[list[str]]:
    """Cells of the only table with this head."""
    (table,) = re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, flags=re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line[1:-1].split("|")] for line in table.splitlines()]


def test_every_field_of_the_manifest_is_there() -> None:
    told = [field for field, *_ in rows("| field | default | a change |")]
    whole = [path for path in told if not path.endswith(", all else")]
    assert len(whole) == len(told) - 1
    for path, _ in effects(MachineDeploymentSpec):
        assert any(path == t or path.startswith((f"{t}.", f"{t}[")) for t in [*whole, "template"]), path
    paths = [path for path, _ in effects(MachineDeploymentSpec)]
    assert [t for t in whole if not any(p == t or p.startswith((f"{t}.", f"{t}[")) for p in paths)] == []


def test_only_a_class_replaces_machines() -> None:
    replaces = {path for path, effect in effects(MachineDeploymentSpec) if effect is Effect.HASH}
    assert replaces
    assert {p.rpartition(".")[0] for p in replaces} == {"template.spec.class"}
    assert [f for f, _, does in rows("| field | default | a change |") if "a new revision" in does] == [
        "template.spec.class"
    ]


def test_the_defaults_are_the_manifests() -> None:
    spec = MachineDeploymentSpec.model_validate({"template": {"spec": {"class": {"name": "c"}}}})
    given = spec.model_dump(mode="json", by_alias=True)
    given["strategy"]["rollingUpdate"] = (
        spec.strategy.rolling.model_dump(by_alias=True) if spec.strategy.rolling else {}
    )
    for field, default, _ in rows("| field | default | a change |"):
        if field.startswith("template"):
            continue
        found = given
        for part in field.split("."):
            found = found[part]
        assert default == ("" if found is None else str(found).lower() if isinstance(found, bool) else str(found)), (
            field
        )


def test_the_phases_are_the_workflows() -> None:
    said = set(re.findall(r'"([A-Z]\w+)"', inspect.getsource(PoolEntity._phase)))
    assert {phase for phase, *_ in rows("| phase | | what to do |")} == said
    assert {"Ready", "Stopped", "Parked"} <= said


def test_the_outcomes_are_the_rollouts() -> None:
    assert [outcome for outcome, _ in rows("| outcome | |")] == list(RolloutOutcome)


def test_what_stops_or_holds_a_pool_is_in_the_runbook() -> None:
    assert {*STOPPED, *HELD} <= REASONS.keys()
    assert set(re.findall(r"runbook\.md#(\w+)", PAGE)) <= {"pools", *(name.lower() for name in REASONS)}


def commands() -> list[str]:
    lines = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    lines += [line[2:] for kind, block in BLOCKS if not kind for line in block.splitlines() if line.startswith("$ ")]
    inline = re.findall(r"`(hostler [^`|…]+)`", PAGE)
    return sorted({shlex.join(shlex.split(line, comments=True)) for line in (*lines, *inline)})


def test_the_command_line_takes_what_the_page_says() -> None:
    for command in commands():
        program, *words = shlex.split(command)
        assert program == "hostler"
        parse(words)


def test_there_are_commands() -> None:
    assert "hostler rollout status demo-pool" in commands()
    assert "hostler scale pool demo-pool --replicas 5 --dry-run" in commands()

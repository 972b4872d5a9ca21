"""docs/control-plane.md and docs/openshift-specs.md are true: the tables are the code's, the commands are accepted."""

from __future__ import annotations

import re
import runpy

from cli.pages import parse, typed
from paths import ROOT

from planners.control_plane import gates
from resources.clouds import PROVIDERS
from resources.control_plane.manifest import PREFIX_MOST, ControlPlaneMachineSetSpec
from resources.control_plane.spec import HOLD
from resources.effects import effects
from resources.reasons import REASONS

PAGE = (ROOT / "docs/control-plane.md").read_text()
TOOL = runpy.run_path(str(ROOT / "tools/translations.py"))


def rows(head: str) -> list[list[str]]:
    """Cells of the only table with this head."""
    (table,) = re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\|\n)+)", PAGE, flags=re.MULTILINE)
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()]


def test_the_tables_of_translations_are_the_models() -> None:
    assert TOOL["page"]() == (ROOT / "docs/openshift-specs.md").read_text(), "make translations"


def test_every_field_of_the_manifest_is_there() -> None:
    told = [field.strip("`") for field, *_ in rows("| field of `spec` | default | |")]
    paths = [path for path, _ in effects(ControlPlaneMachineSetSpec)]
    openshifts = ("template.machineType", "template.machines_v1beta1_machine_openshift_io")
    for path in paths:
        assert path.startswith(openshifts) or any(path == t or path.startswith(f"{t}.") for t in told), path
    assert [t for t in told if not any(p == t or p.startswith(f"{t}.") for p in paths)] == []
    assert f"at most {PREFIX_MOST} characters" in PAGE


def test_every_cloud_has_its_failure_domains() -> None:
    told = rows("| platform | fields | take the place of the class's |")
    assert [platform for platform, *_ in told] == sorted(PROVIDERS)
    for platform, fields, _ in told:
        known = {path.replace("[]", "") for path, _ in effects(PROVIDERS[platform].domain)}
        assert set(re.findall(r"`([\w.]+)`", fields)) <= known


def test_the_gates_are_the_planners() -> None:
    told = [gate.strip("`") for gate, _ in rows("| gate | way out |")]
    source = (ROOT / "planners/control_plane/gates.py").read_text()
    assert told == re.findall(r'return Wait\(\n\s+"(\w+)"', source)
    assert gates.closed
    for reason in (*told, *re.findall(r"\(`([A-Z]\w+)`", PAGE)):
        if reason != HOLD:
            assert reason in REASONS, reason


def test_the_files_are_there() -> None:
    for cell, _ in rows("| file in `planners/control_plane/` | decides |"):
        for file in re.findall(r"`(\w+\.py)`", cell):
            assert (ROOT / "planners/control_plane" / file).is_file()


def test_the_command_line_takes_what_the_page_says() -> None:
    assert "hostler controlplane generate" in [parse(words) for words in typed("docs/control-plane.md")]

"""What a fresh clone needs: a Python that is told plainly when it will not do, and versions that fit together."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

BOOTSTRAP = ROOT / "tools" / "bootstrap.py"
PINS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
)

PRETEND = """
import runpy, subprocess, sys
{pretence}
def never(*command, **_):
    raise AssertionError(command)
subprocess.call = never
sys.argv = ["bootstrap.py", "/nowhere"]
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("pretence", "words"),
    [
        ("sys.version_info = (3, 10, 4, 'final', 0)", ["Hostler needs Python 3.11 or newer", "make PYTHON="]),
        ("sys.version_info = (2, 7, 18, 'final', 0)", ["Hostler needs Python 3.11 or newer", "make PYTHON="]),
        ("sys.modules['ensurepip'] = None", ["has no module ensurepip", "apt install python3", "make PYTHON="]),
        (
            "sys.modules['ensurepip'] = sys.modules['venv'] = None",
            ["has no module venv and no ensurepip", "apt install python3", "make PYTHON="],
        ),
    ],
)
def test_a_python_that_will_not_do_is_told_so_before_anything_is_done(pretence: str, words: list[str]) -> None:
    script = PRETEND.format(pretence=pretence, script=str(BOOTSTRAP))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert [w for w in words if w not in done.stderr] == []
    assert "Traceback" not in done.stderr


def test_the_bootstrap_script_can_be_read_by_old_pythons() -> None:
    # What they lack and we like: annotations (3.0), f-strings (3.6), the walrus (3.8). `print` is a statement in 2.7.
    tree = ast.parse(BOOTSTRAP.read_text())
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.Starred, ast.AsyncFunctionDef)
    assert [node for node in ast.walk(tree) if isinstance(node, new)] == []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    assert all(f.returns is None and not f.args.kwonlyargs for f in functions)
    assert "print" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(r) for r in [*project["dependencies"], *project["optional-dependencies"]["dev"]]]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda r: r.name)
def test_constraints_pin_what_the_project_needs_within_its_bounds(requirement: Requirement) -> None:
    assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_are_pins_only_without_addresses() -> None:
    assert len(PINS) > len(requirements())  # what they need in turn is pinned too
    assert all(name == canonicalize_name(name) and version[0].isdigit() for name, version in PINS.items())

"""docs/conformance.md: every case is there once, with a test that exists and is named after it. docs/requirements.md:
every requirement has a test that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from paths import ROOT

from resources import gardener
from resources.names import INSTANCE_NOT_READY_TAINT

PAGE = ROOT / "docs" / "conformance.md"
REQUIREMENTS = ROOT / "docs" / "requirements.md"
TESTS = ROOT / "tests"

OWN = (
    "crash between create and state write",
    "delete during create with crash",
    "drain deadline inside PV loop",
    "API outage while deletions run",
    "frozen API server",
    "rotated kubeconfig",
    "condition flapping across the deadline",
    "missing class at deletion",
    "changed must tags",
    "token id collision",
    "tag update in the middle of a rollout",
    "one more field",
    "another spelling",
    "request to preserve",
    "preservation set in the same instant as failure",
    "another account",
    "rotated secret",
    "no VM is made where the clusters others are not",
    "busy account",
    "hung account",
    "each new VM terminated at once",
    "fifty of fifty gone",
    "repairs rest when a storm is over",
    "workflow reset",
    "name applied again while its VM lives",
    "two installations",
    "flapping that never settles",
    "not found against a Ready node",
    "intent while tasks fail",
    "parked with many messages",
    "a message that cannot be taken",
    "a start that cannot be",
    "a message that fails all the same",
    "burst of news",
    "thread that never comes back",
    "what a terminated workflow knew is found again",
    "a cluster that somebody terminates is begun again",
    "a pool hears soon of its machine that somebody terminates",
    "an account that its class has left holds up nobody",
    "a node that cannot be written is its machines trouble alone",
    "a mark of the year 9999",
    "ten long values of an annotation",
    "a long duration is refused before it is read",
    "a state with durations that had no limit",
    "any manifest is taken or refused in words",
    "who comes while the watches return keeps it",
)
"""Cases that machine-controller-manager does not test."""
CONTROL_PLANE = (
    *(f"C-D{n:02}" for n in (1, 2, 3, 5, 7, 9, 11, 13, 15, 17, 19)),
    *(f"C-F{n:02}" for n in range(1, 26, 2)),
    *("C-G01", "C-G03", "C-P01", "C-P03", "C-P05", "C-P07", "C-W01", "C-W03", "C-W05", "C-W07"),
    *(f"C-R{n:02}" for n in (1, 2, 3, 5, 6, 7, 9, 11, 13, 15, 17, 19, 21, 22, 23, 25, 26, 27)),
    *("C-S01", "C-S03", "C-S05", "C-S07"),
    *(f"C-V{n:02}" for n in range(1, 18, 2)),
)
"""OpenShift's cases for control planes."""
OF_CONFIGS = {"M": 7, "P": 11, "A": 9, "C": 17, "U": 23, "T": 19, "X": 11, "R": 11, "I": 7, "K": 23}
MACHINE_CONFIGS = (
    *(f"M-{table}{n:02}" for table, most in OF_CONFIGS.items() for n in range(1, most + 1, 2)),
    *(f"M-TC{n}" for n in range(1, 6)),
)
"""OpenShift's cases for machine configs."""
CASES = (
    *(f"C{n}" for n in range(1, 18)),
    *(f"H{n}" for n in range(1, 16)),
    *(f"M{n}" for n in range(1, 10)),
    *(f"F{n}" for n in range(1, 7)),
    *(f"D{n}" for n in range(1, 23)),
    *(f"R{n}" for n in range(1, 12)),
    *(f"V{n}" for n in range(1, 11)),
    *OWN,
    *(f"S{n}" for n in range(1, 13)),
    *(f"U{n}" for n in range(1, 14)),
    *(f"K{n}" for n in range(1, 21)),
    *(f"A{n}" for n in range(1, 7)),
    *(f"T{n}" for n in range(1, 10)),
    *(f"P{n:02}" for n in (*range(1, 42, 2), *range(55, 72, 2)) if n not in (61, 63)),
    *("P45", "P47", "P51", "P53"),
    *CONTROL_PLANE,
    *MACHINE_CONFIGS,
    *(f"P{n}" for n in range(72, 81)),
    "P17b",
)
READ = "\n## What machine-controller-manager reads\n"
NOT_HERE = (
    *("M-A07", "M-A09", "M-C13", "M-U03", "M-U09", "M-U11", "M-U19", "M-U21"),
    *("M-T11", "M-T13", "M-T15", "M-T17", "M-T19", "M-R11", "M-K21", "M-K23"),
    *("C-R03", "C-R07", "C-V15", "C-P07", "C-W07", "C-G03"),
    *("C14", "D1", "D22", "R2", "H15", "S12", "U4", "U5", "U12", "P17", "P59"),
)
SEEDS = {"000": 29, "001": 15, "002": 23, "003": 43, "004": 39}
"""How many requirements of each docs/requirements.md has."""
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]]+)\])?`")
CASE_IN_NAME = re.compile(r"_([acdfhkmprstuv])(\d\d?)(?!\d)(b?)")


@dataclass(frozen=True)
class Row:
    case: str
    tests: tuple[tuple[str, str, str], ...]
    """File, function and parameter id ("" where it has none)."""


def rows(page: str) -> Iterator[Row]:
    """The rows of all tables of cases or requirements, without their heads."""
    head, wanted = True, False
    for line in page.partition(READ)[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            head, wanted = True, False
        elif head:
            head, wanted = False, cells[0] in ("case", "line")
        elif wanted and set(cells[0]) != {"-"}:
            yield Row(cells[0], tuple(NAMED.findall(line)))


@dataclass(frozen=True)
class Function:
    doc: str
    texts: frozenset[str]
    """Texts in its decorators, and in the tables that they name: ids among them."""


@cache
def functions(file: str) -> dict[str, Function]:
    """The test functions of a file."""
    found: dict[str, Function] = {}
    tables: dict[str, set[str]] = {}
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [part for decorator in node.decorator_list for part in ast.walk(decorator)]
            named = [tables.get(p.id, set()) for p in parts if isinstance(p, ast.Name)]
            texts = {p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)}
            found[node.name] = Function(ast.get_docstring(node) or "", frozenset(texts.union(*named)))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            values = (p.value for p in ast.walk(node.value) if isinstance(p, ast.Constant))
            if isinstance(target, ast.Name):
                tables[target.id] = {value for value in values if isinstance(value, str)}
    return found


def named_after(case: str, file: str, name: str, parameter: str) -> bool:
    """Whether the test is named after the case: by its name, by the parameter, or by its docstring."""
    if case in OWN:
        return re.sub(r"\W+", "_", case.lower()) in name
    if case in MACHINE_CONFIGS:  # their tables say it beside a row
        return (ROOT / file).exists() and re.search(rf"\b{case}\b", (ROOT / file).read_text()) is not None
    there = functions(file).get(name) if (ROOT / file).exists() else None
    said = f"{there.doc if there else ''} {parameter}"
    if case in CONTROL_PLANE:
        return re.search(rf"\b{case}\b", said) is not None
    letter, number, suffix = re.fullmatch(r"([A-Z])(\d+)(b?)", case).groups()  # type: ignore[union-attr]
    in_name = {(x, int(n), b) for x, n, b in CASE_IN_NAME.findall(name)}
    return (letter.lower(), int(number), suffix) in in_name or re.search(rf"\b{case}\b", said) is not None


def missing(row: Row) -> list[str]:
    """Tests that the row names and that are not there, in words."""
    words = []
    for file, name, parameter in row.tests:
        there = functions(file).get(name) if (ROOT / file).exists() else None
        if there is None or not name.startswith("test_"):
            words.append(f"{row.case}: {file}::{name} does not exist")
        elif parameter and parameter not in there.texts:
            words.append(f"{row.case}: {file}::{name} has no parameter {parameter!r}")
    return words


def wrong(page: str) -> list[str]:
    """What is not as it should be, in words."""
    found = list(rows(page))
    told = [row.case for row in found]
    words = [f"{case} has {told.count(case)} rows" for case in CASES if told.count(case) != 1]
    words += [f"{case} is no case that this test knows" for case in sorted(set(told) - set(CASES))]
    for row in found:
        if bool(row.tests) == (row.case in NOT_HERE):
            words.append(f"{row.case} has {len(row.tests)} tests")
        words += missing(row)
        if row.tests and not any(named_after(row.case, *test) for test in row.tests):
            words.append(f"{row.case}: no test is named after it")
    return words


def test_every_case_has_its_test() -> None:
    assert wrong(PAGE.read_text()) == []


def test_what_mcm_reads_is_told_with_tests_that_exist() -> None:
    told = PAGE.read_text().partition(READ)[2]
    lines = [line for line in told.splitlines() if line.startswith("| ") and not line.startswith(("| anno", "| field"))]
    assert len(lines) > 25
    for line in lines:
        found = NAMED.findall(line)
        assert found, line
        assert [n for f, n, _ in found if n not in functions(f)] == [], line
    fields = {f for fields in gardener.IGNORED.values() for f, words in fields.items() if words}
    known = {key.rpartition("/")[2] for key in (*gardener.ANNOTATIONS, *gardener.LABELS)}
    own = {"name", "generateName", "namespace"}
    assert sorted(word for word in (fields | known) - own if f"{word}`" not in told) == []


def test_every_test_that_is_named_after_a_case_is_told() -> None:
    told = {(file, name) for row in rows(PAGE.read_text()) for file, name, _ in row.tests}
    files = {str(file.relative_to(ROOT)) for file in TESTS.rglob("conformance/test_*.py")}
    named = {(file, name) for file in files for name in functions(file) if CASE_IN_NAME.search(name)}
    assert len(named) > 50
    assert sorted(named - told) == []


def unproven(page: str) -> list[str]:
    """Requirements of the seeds without a test that is there, in words. They are counted from 1 in each seed."""
    found = list(rows(page))
    counted = [f"{seed}.{n}" for seed, most in SEEDS.items() for n in range(1, most + 1)]
    words = [] if [row.case for row in found] == counted else ["the requirements are not counted from 1 to the last"]
    words += [f"{row.case} has no test" for row in found if not row.tests]
    return words + [word for row in found for word in missing(row)]


def test_every_requirement_has_its_test() -> None:
    page = REQUIREMENTS.read_text()
    assert unproven(page) == []
    assert unproven(page.replace("test_reads_change_nothing", "test_reads")) == [
        "000.2: tests/component/contract/test_driver.py::test_reads does not exist"
    ]
    assert "003.9 has no test" in unproven(re.sub(r"(\| 003\.9 \|.*\|).*\|\n", r"\1 |\n", page))
    assert unproven(page.replace("| 002.7 |", "| 002.77 |")) != []


def test_the_readme_says_what_the_taint_needs() -> None:
    """Seed 000, *Instance Not Ready Taint*: cluster-autoscaler ignores it, and kubelets register with it."""
    needs = (ROOT / "README.md").read_text().partition("## What a cluster needs")[2]
    for flag in ("--register-with-taints={}:NoSchedule", "--startup-taint={}", "--ignore-taint"):
        assert flag.format(INSTANCE_NOT_READY_TAINT) in needs.partition("\n## ")[0]


GOOD = "`tests/component/conformance/test_creation.py::test_c04_c05_c06_a_failed_create[C4]`"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(("| C2 |", "| C1 |"), "C2 has 0 rows", id="a case without a row"),
        pytest.param(("| C2 |", "| C1 |"), "C1 has 2 rows", id="a case with two"),
        pytest.param(("| C2 |", "| C99 |"), "C99 is no case that this test knows", id="a case that is none"),
        pytest.param((GOOD, ""), "C4 has 0 tests", id="a case without a test"),
        pytest.param((GOOD, GOOD.replace("creation.py", "birth.py")), "does not exist", id="a file that is not there"),
        pytest.param((GOOD, GOOD.replace("failed", "lost")), "does not exist", id="a test that is not there"),
        pytest.param((GOOD, GOOD.replace("[C4]", "[C44]")), "has no parameter 'C44'", id="a row that is not there"),
        pytest.param(("| C4 |", "| C3 |"), "C3: no test is named after it", id="a test of another case"),
        pytest.param(("[M3 Failed]", "[M3 Lost]"), "has no parameter 'M3 Lost'", id="a row that is in no table"),
        pytest.param(("| S9 |", "| S10 |"), "S10: no test is named after it", id="a docstring about another case"),
    ],
)
def test_what_is_wrong_is_seen(change: tuple[str, str], words: str) -> None:
    page = PAGE.read_text()
    assert change[0] in page
    assert [w for w in wrong(page.replace(*change)) if words in w]

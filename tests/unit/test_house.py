"""The arrows of the house: which module may import which. See docs/architecture.md."""

from __future__ import annotations

import ast
import functools
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from paths import ROOT

HOUSE = ("starter", "workflows", "planners", "activities", "drivers", "resources", "simulator")
MAY = {
    "resources": set(),
    "planners": {"resources"},
    "drivers": {"resources"},
    "activities": {"drivers", "resources", "planners"},  # of planners only machine_config/
    "workflows": {"planners", "resources", "activities"},
    "starter": {"resources", "workflows", "activities", "planners"},  # of these two only kube/ and worker_pool/
    "simulator": {"resources"},
    "worker": set(HOUSE) - {"simulator"},
}
# What a manifest is made of, where no workflow could be asked: `apply` expands it itself, by the same pure functions.
# `mc render` does so too; and whose a Node is, `describe mcp` finds in the same way as the activity that looks.
EXPANDED_BY_THE_STARTER = ("planners.worker_pool.", "planners.machine_config")
# A rendered config may be over a megabyte, and no workflow sees it: the activity asks the pure functions itself. So it
# does where it makes a short look out of many Nodes.
ASKED_BY_ACTIVITIES = "planners.machine_config"
# A cluster is reached in the same way by the worker and by the command line.
THE_COMMAND_LINES_TOO = "activities.kube."
# Within activities: two libraries, and what stands beside the folders (""); a role's folder knows no other role's.
MAY_WITHIN = {
    "kube": set(),
    "": {"kube"},
    "temporal": {""},
    "cloud": {"", "kube", "temporal"},
    "cluster": {"", "kube", "temporal"},
    "watch": {"", "kube", "temporal"},
    "drain": {"", "kube", "temporal"},
    "census": {"", "temporal"},
}
CAMEL_CASE = re.compile(r"[A-Z]\w*[a-z]\w*")
# Planners are pure: they may not even reach for a clock, a network or Temporal.
IMPURE = {
    "temporalio",
    "asyncio",
    "aiohttp",
    "boto3",
    "google",
    "kubernetes",
    "random",
    "socket",
    "time",
    "os",
    "subprocess",
}

# An activity decides by the server's clock (activities/clock.py); the worker's own is for what people read.
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
MAY_READ_IT = {
    "census.py": "when machines were counted, for metrics",
    "credentialplugin.py": "when the credentials expire that a program on this very machine has given",
}


class Read(NamedTuple):
    """What the tests here ask of a file."""

    modules: frozenset[str]
    """Imported modules, including imports inside functions."""
    members: frozenset[str]
    """The same; but what is imported from a package counts by its own name, which may be a module of it."""
    classes: frozenset[str]
    """Public classes and type aliases; type variables are nobody's."""


@functools.cache  # a file is parsed once, whatever is asked of it
def read(source: str) -> Read:
    tree = ast.parse(source)
    modules, members, classes = set(), set(), set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
            members |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            members |= {f"{node.module}.{alias.name}" for alias in node.names}
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                classes.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.Call):
                classes.add(name)
    return Read(frozenset(modules), frozenset(members), frozenset(n for n in classes if CAMEL_CASE.fullmatch(n)))


def imports(source: str) -> set[str]:
    """The first parts of every imported module's name."""
    return {module.partition(".")[0] for module in modules(source)}


def modules(source: str) -> frozenset[str]:
    return read(source).modules


def statements(block: ast.AST) -> Iterator[ast.stmt]:
    """All statements within it, however deep: no expression has one."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        inner = getattr(block, field, None)
        for node in inner if isinstance(inner, list) else ():  # the body of a lambda is an expression
            if isinstance(node, ast.stmt):
                yield node
            yield from statements(node)


# A cloud's name stands in its own packages and in one registry row: other code that knows one would have to be written
# again for each cloud. This holds for code, and for what people are told; explanations may name any cloud.
CLOUD_NAMES = re.compile(r"aws|ec2|amazon|boto|azure|\bgce\b|\bgcp\b|google", re.IGNORECASE)
NAMED = frozenset({"id", "attr", "arg", "name", "module", "asname"})
"""The fields of a syntax tree that hold an identifier."""
THEIR_OWN = (
    *("drivers/aws/", "resources/clouds/aws/", "simulator/clouds/ec2/"),
    *("drivers/azure/", "resources/clouds/azure/", "simulator/clouds/arm/"),
    *("drivers/gcp/", "resources/clouds/gcp/", "simulator/clouds/gce/"),
)
MAY_NAME_A_CLOUD = {  # room, and the end of the file's path
    ("resources", "clouds/__init__.py"): "the registry",
    ("activities", "volumes.py"): "fields of the Kubernetes API: the in-tree volumes of PersistentVolumes",
    ("resources", "reasons/creating.py"): "an example of a setting, for people",
}


def names_of_clouds(source: str) -> set[str]:
    """Names of clouds in identifiers and in texts, without docstrings and comments."""
    if not CLOUD_NAMES.search(source):  # most files: it takes longer to walk through them
        return set()
    tree = ast.parse(source)
    docs = {
        statement.value
        for statement in statements(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    said = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docs:
            said.add(str(node.value))
        said.update(str(getattr(node, field) or "") for field in NAMED.intersection(node._fields))
    return {words for words in said if CLOUD_NAMES.search(words)}


def exception_of(room: str, file: Path) -> tuple[str, str] | None:
    return next((e for e in MAY_NAME_A_CLOUD if e[0] == room and str(file).endswith(f"/{e[1]}")), None)


def test_a_clouds_name_stands_in_its_own_packages() -> None:
    found = [(room, f) for room in (*HOUSE, "worker") for f in files(room) if names_of_clouds(f.read_text())]
    others = [(room, f) for room, f in found if not str(f.relative_to(ROOT)).startswith(THEIR_OWN)]
    assert len(others) < len(found)
    assert [f for room, f in others if exception_of(room, f) is None] == []
    assert {exception_of(room, f) for room, f in others} == {*MAY_NAME_A_CLOUD}  # one that is no longer needed goes


def test_a_clouds_name_is_seen() -> None:
    assert names_of_clouds('def f(x):\n    return x == "AWS"') == {"AWS"}
    assert names_of_clouds("import drivers.aws.calls as calls") == {"drivers.aws.calls"}
    assert names_of_clouds("from simulator.clouds.ec2 import World") == {"simulator.clouds.ec2"}
    assert names_of_clouds("x.awsElasticBlockStore(ec2=1)") == {"awsElasticBlockStore", "ec2"}
    assert not names_of_clouds('"""AWS has it."""\nx = 1  # as EC2\n"""So has Azure."""')


def files(room: str) -> list[Path]:
    return [ROOT / "worker.py"] if room == "worker" else sorted((ROOT / room).rglob("*.py"))


def wrong(room: str, source: str) -> set[str]:
    return (imports(source) & {*HOUSE, "worker"}) - MAY[room] - {room}


@pytest.mark.parametrize("room", sorted(MAY))
def test_arrows(room: str) -> None:
    assert files(room), f"{room} is empty: the test would pass on nothing"
    found = {str(f.relative_to(ROOT)): w for f in files(room) if (w := wrong(room, f.read_text()))}
    assert not found


def test_the_command_line_uses_no_other_activities() -> None:
    used = {m for f in files("starter") for m in modules(f.read_text()) if m.startswith("activities")}
    assert used
    assert all(m.startswith(THE_COMMAND_LINES_TOO) for m in used), used


def test_the_command_line_uses_no_other_planners() -> None:
    found = {m for f in files("starter") for m in modules(f.read_text()) if m.startswith("planners")}
    assert found, "the test would pass on nothing"
    assert {m for m in found if not m.startswith(EXPANDED_BY_THE_STARTER)} == set()


def test_activities_ask_no_other_planners() -> None:
    found = {m for f in files("activities") for m in modules(f.read_text()) if m.startswith("planners")}
    assert found, "the test would pass on nothing"
    assert {m for m in found if not m.startswith(ASKED_BY_ACTIVITIES)} == set()


def within(source: str, folder: str) -> set[str]:
    """The other folders of activities that a module of one imports; "" is what stands beside them."""
    parts = [m.split(".") for m in modules(source) if m.startswith("activities.")]
    return {p[1] if p[1] in MAY_WITHIN else "" for p in parts} - {folder}


def test_a_role_knows_no_other() -> None:
    wrong, seen = {}, set()
    for file in files("activities"):
        folder = "" if file.parent.name == "activities" else file.parent.name
        seen.add(folder)
        if more := within(file.read_text(), folder) - MAY_WITHIN[folder]:
            wrong[str(file.relative_to(ROOT))] = more
    assert not wrong
    assert seen == set(MAY_WITHIN)
    assert within("from activities.cluster.node import NodeActivities\nimport activities.deps", "cloud") == {
        "cluster",
        "",
    }


def test_what_all_owners_of_machines_share_knows_no_pool() -> None:
    fleets = ("resources/fleet", "planners/fleet", "workflows/fleet")
    used = {m for fleet in fleets for f in files(fleet) for m in modules(f.read_text())}
    assert {"workflows.entity", "planners.telling", "resources.base"} <= used
    assert not {m for m in used if m.startswith(("workflows.pool", "planners.pool", "resources.pool"))}


def test_a_wrong_arrow_is_seen() -> None:
    assert wrong("planners", "def f():\n    from activities.kube.client import Kube\n") == {"activities"}
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
    assert set(found) == set(MAY_READ_IT), found  # one that no longer needs its exception loses it


def test_a_look_at_the_wall_clock_is_seen() -> None:
    assert wall_clocks("import datetime\nx = datetime.datetime.now()") == {"datetime.now"}
    assert wall_clocks("from time import time as t") == {"time.time"}
    assert wall_clocks("x = datetime.now(UTC) - activity.info().started_time") == {"datetime.now"}
    assert not wall_clocks("x = time.monotonic() + datetime.fromisoformat(s).timestamp() + clock.now()")


# -- circles ----------------------------------------------------------------------------------------------------------


def arrows(sources: dict[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports among `sources` (by dotted name), also inside functions and only for type
    checking: a deferred import makes a cycle all the same."""
    return {
        name: {m for named in read(source).members if (m := _nearest(named, sources)) and m != name}
        for name, source in sources.items()
    }


def _nearest(named: str, sources: dict[str, str]) -> str | None:
    """`a.b.C` is of module a.b."""
    while named and named not in sources:
        named = named.rpartition(".")[0]
    return named or None


def circle(of: dict[str, set[str]]) -> list[str]:
    """One cycle, from a module back to itself; empty where there is none."""
    try:
        TopologicalSorter(of).prepare()
    except CycleError as e:
        return list(e.args[1])
    return []


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FRAGMENT = re.compile(r'^\s*"""(?:By|Of) ', re.MULTILINE)


def test_a_docstring_begins_with_its_subject() -> None:
    """A reader who sees one alone, in an editor or in a page, has to know what it is about."""
    rooms = [ROOT / room for room in (*HOUSE, "tests", "tools", "bench")]
    pages = [ROOT / "worker.py", *(page for room in rooms for page in room.rglob("*.py"))]
    assert [str(p.relative_to(ROOT)) for p in pages if FRAGMENT.search(p.read_text())] == []
    assert FRAGMENT.search('    """By node."""')


def test_no_circles() -> None:
    every = {module_of(f): f.read_text() for room in MAY for f in files(room)}
    assert not circle(arrows(every))


def test_a_circle_is_seen() -> None:
    knot = {
        "a": "from b import c",
        "b": "",
        "b.c": "def f():\n    import d.e",
        "d.e": "if TYPE_CHECKING:\n    from a import X",
        "f": "from a import Y",
    }
    assert set(circle(arrows(knot))) == {"a", "b.c", "d.e"}
    assert not circle(arrows({**knot, "d.e": "import b"}))


ROOMS_OF_THE_STARTER: dict[str, set[str]] = {
    "sdk": set(),
    "doctor": {"sdk"},
    "local": {"sdk"},
    "commands": {"sdk", "doctor", "local"},
}


@pytest.mark.parametrize("room", sorted(ROOMS_OF_THE_STARTER))
def test_arrows_within_the_starter(room: str) -> None:
    """The SDK knows none of its users; what stands beside the rooms (the outlet, the screen) is for all."""
    may = ROOMS_OF_THE_STARTER[room] | {room}
    found = {
        (str(f.relative_to(ROOT)), m)
        for f in files(f"starter/{room}")
        for m in modules(f.read_text())
        if m.startswith("starter.")
        and (second := m.split(".")[1]) not in may
        and (room == "sdk" or second in ROOMS_OF_THE_STARTER)
    }
    assert not found


# -- tests ------------------------------------------------------------------------------------------------------------

KITS = ROOT / "tests/kits"


TEST_NAMED = re.compile(r"^\s*(from|import)\b.*\btest_", re.MULTILINE)
"""What a module that imports a test has in it; few are parsed for it."""


def imported_tests(source: str) -> set[str]:
    """Test modules that a module imports: what two tests share belongs to a kit."""
    if not TEST_NAMED.search(source):
        return set()
    return {m for m in modules(source) if m.rpartition(".")[2].startswith("test_")}


def test_no_test_imports_another() -> None:
    every = sorted((ROOT / "tests").rglob("*.py"))
    assert {f.parent.name for f in every} > {"unit", "component", "system", "kits"}
    assert not {str(f.relative_to(ROOT)): found for f in every if (found := imported_tests(f.read_text()))}


def test_an_imported_test_is_seen() -> None:
    assert imported_tests("def f():\n    from test_life import knobs") == {"test_life"}
    assert imported_tests("import tests.system.test_life") == {"tests.system.test_life"}


def test_an_import_of_what_is_not_there_is_seen(tmp_path: Path) -> None:
    sources = {
        "tests/kits/kit.py": "from resources.names import A as B\nif B:\n    C = 1\ndef f():\n    D = 1\n",
        "tests/unit/test_it.py": "import json, kit\nfrom kit import B, C, f\nfrom pools import lives\n",
        "tests/unit/test_wrong.py": "def f():\n    from kit import D, A\n    import resources.nams, pools.no\n",
        "tests/kits/pools/lives.py": "",
        "resources/names.py": "A = 1",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    lines = runpy.run_path(str(ROOT / "tools/imports.py"))["Imports"](tmp_path, "tests").wrong()
    assert [line.removeprefix("tests/unit/test_wrong.py:") for line in lines] == [
        "2: there is no kit.D",
        "2: there is no kit.A",
        "3: there is no resources.nams",
        "3: there is no pools.no",
    ]


def test_each_test_module_has_its_name_for_itself() -> None:
    """pytest imports them by their names alone."""
    names = Counter(f.name for f in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_kits_make_no_circles() -> None:
    kits = {".".join(f.relative_to(KITS).with_suffix("").parts): f.read_text() for f in KITS.rglob("*.py")}
    of = arrows({name.removesuffix(".__init__"): source for name, source in kits.items()})
    assert "lifekit" in of["pools.lives"]
    assert not circle(of)


# -- plugs of one shape -----------------------------------------------------------------------------------------------

SHAPE: dict[str, set[str]] = {
    "belongings": {"delete"},
    "calls": {"Clients"},
    "credentials": {"Credentials", "from_secret"},
    "deletion": {"delete_machine"},
    "driver": set(),
    "failures": {"classify", "scrub", "translate"},
    "hot_update": {"hot_update"},
    "instances": {"describe", "get_status", "list_machines"},
    "launch": set(),
    "poststart": {"post_start"},
    "tags": set(),
}
"""The files of a cloud's driver, and what each has for the others."""


def public(source: str) -> set[str]:
    """The functions and classes of a module that others may use."""
    defined = (n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    return {name for name in defined if not name.startswith("_")}


@pytest.mark.parametrize("cloud", sorted(f.parent.name for f in (ROOT / "drivers").glob("*/__init__.py")))
def test_drivers_are_of_one_shape(cloud: str) -> None:
    """A file beyond the shape has its reason in docs/add-a-cloud.md."""
    found = {f.stem: public(f.read_text()) for f in (ROOT / "drivers" / cloud).glob("*.py")}
    assert found.pop("__init__") == {"driver"}
    missing = {f"{file}.{name}" for file, names in SHAPE.items() for name in names - found.get(file, set())}
    assert not missing
    assert SHAPE.keys() <= found.keys()
    reasons = (ROOT / "docs" / "add-a-cloud.md").read_text()
    own = {f"drivers/{cloud}/{file}.py" for file in found.keys() - SHAPE.keys()}
    assert {file for file in own if f"`{file}`" not in reasons} == set()


# -- one word for one thing -------------------------------------------------------------------------------------------

# The simulator plays other people's programs, a cloud and an API server, and speaks their words; nobody imports it.
# Drivers are of one shape and know nothing of each other, nor do simulated clouds: each is read with what all share.
PLUGS = {"drivers": "the house", "simulator.clouds": "the simulator"}
WORLDS = {
    f"{world} with {plug.parent.name}": f"{folder}.{plug.parent.name}"
    for folder, world in PLUGS.items()
    for plug in sorted((ROOT / folder.replace(".", "/")).glob("*/__init__.py"))
}
MAY_STAND_TWICE = {
    "Obj": "an object of the Kubernetes API as JSON, the same on both sides of the wire",
    "Key": "its namespace and name, likewise",
}


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """The names that several modules define, with these modules."""
    where: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in read(source).classes:
            where.setdefault(name, []).append(module)
    return {name: modules for name, modules in where.items() if len(modules) > 1}


def sources_of(plug: str) -> dict[str, str]:
    """The modules that a plug and what it is plugged into consist of."""
    rooms = ["simulator"] if plug.startswith("simulator") else sorted({*MAY} - {"simulator"})
    others = tuple(f"{other}." for other in WORLDS.values() if other != plug)
    sources = {module_of(f): f.read_text() for room in rooms for f in files(room)}
    return {module: source for module, source in sources.items() if not f"{module}.".startswith(others)}


@pytest.mark.parametrize("world", WORLDS)
def test_a_class_has_its_name_for_itself(world: str) -> None:
    sources = sources_of(WORLDS[world])
    assert WORLDS[world] in sources
    assert not {name: modules for name, modules in defined_twice(sources).items() if name not in MAY_STAND_TWICE}


def test_two_classes_of_one_name_are_seen() -> None:
    sources = {"a": "class Plan: ...\nT = TypeVar('T')", "b": "Plan = Literal['x']", "c": "PLAN = 1\nclass _Plan: ..."}
    assert defined_twice(sources) == {"Plan": ["a", "b"]}

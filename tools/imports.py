"""Names what tests, benchmarks and tools import from modules of this repository and what is not there.

    python tools/imports.py

mypy does not read tests, benchmarks and tools, and to import them all takes long. This reads them, in some seconds: a
name that a kit no longer has is noticed before the tests are run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSE = ("starter", "workflows", "planners", "activities", "drivers", "resources", "simulator")
PATHS = {"tests": ("", "tests", "tests/kits"), "bench": ("", "bench"), "tools": ("", "tools")}
"""Where the imports of a room begin: pytest's own paths, or the folder of a program that is run."""


def modules(root: Path, room: str) -> dict[str, Path]:
    """What a room can import, each module by all its names; a folder with modules is one too."""
    found: dict[str, Path] = {}
    for file in [*root.glob("*.py"), *(f for folder in (*HOUSE, room) for f in (root / folder).rglob("*.py"))]:
        for path in PATHS[room]:
            if not file.is_relative_to(root / path):
                continue
            parts = file.relative_to(root / path).with_suffix("").parts
            for n in range(1, len(parts)):
                found.setdefault(".".join(parts[:n]), file.parents[len(parts) - n - 1])
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def names(tree: ast.Module) -> set[str]:
    """What a module binds anywhere but in functions and classes; "*" where it takes all of another one."""
    found: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        match todo.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=alias):
                found.add(alias or name.partition(".")[0])
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case node:
                todo += ast.iter_child_nodes(node)
    return found


class Imports:
    """Those of a room."""

    def __init__(self, root: Path, room: str) -> None:
        self.root, self.room = root, room
        self.modules = modules(root, room)
        self._trees: dict[Path, ast.Module] = {}
        self._names: dict[Path, set[str]] = {}

    def wrong(self) -> list[str]:
        """A line for each name that is not there."""
        files = sorted((self.root / self.room).rglob("*.py"))
        return [f"{f.relative_to(self.root)}:{n}: there is no {what}" for f in files for n, what in self._missing(f)]

    def _missing(self, file: Path) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self._tree(file)):
            match node:
                case ast.Import(names=aliases):
                    yield from ((node.lineno, a.name) for a in aliases if self._ours(a.name) and not self._is(a.name))
                case ast.ImportFrom(module=str(module), names=aliases, level=0) if self._ours(module):
                    wanted = [f"{module}.{a.name}" for a in aliases]
                    yield from ((node.lineno, w) for w in wanted if not self._is(w) and not self._has(module, w))

    def _ours(self, module: str) -> bool:
        return module.partition(".")[0] in self.modules

    def _is(self, module: str) -> bool:
        return module in self.modules

    def _has(self, module: str, wanted: str) -> bool:
        file = self.modules.get(module)
        if file is None or file.is_dir():
            return False
        if file not in self._names:
            self._names[file] = names(self._tree(file))
        found = self._names[file]
        return not found.isdisjoint({wanted.rpartition(".")[2], "*", "__getattr__"}) or wanted.endswith(".*")

    def _tree(self, file: Path) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse(file.read_text(), str(file))
        return self._trees[file]


def main() -> int:
    wrong = [line for room in PATHS for line in Imports(ROOT, room).wrong()]
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""No regular expression of ours can be made to think for long: steps are counted, not seconds.

A worker has one thread for all its workflows: what backtracks in one of them freezes all. So every pattern takes steps
in proportion to its input, or its input has a limit that somebody checks first.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, TypeGuard

import pytest
from paths import ROOT

SHELVES = ("resources", "planners", "workflows", "activities", "drivers", "starter", "worker.py")
"""Folders left out: the simulator serves only tests."""
CALLS = re.compile(r"\bre\s*\.")
SCANS = {"search", "sub", "findall", "finditer", "split", "subn"}
"""Functions that try a pattern at every place; `match` and `fullmatch` try it at one."""
LIMITS = {
    "resources/base.py:_PART": 100,
    "resources/machine/manifest.py:_HOOK_NAME": 256,
    "activities/kube/credentialplugin.py:_SECRET": 2048,
    "activities/kube/credentialplugin.py:_NAMED": 2048,
    "starter/sdk/machines/selectors.py:_COMMA": 1000,
    "starter/sdk/machines/selectors.py:_COMPARED": 1000,
    "starter/sdk/machines/selectors.py:_SET": 1000,
    "starter/sdk/machines/selectors.py:_PRESENT": 1000,
}
"""Limits on the input in characters; longer texts never reach the patterns."""
MOST = 10_000_000
"""Steps of a pattern that has a limit: some tenths of a second."""
N = 20


# -- what there is ----------------------------------------------------------------------------------------------------


def constants(tree: ast.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = text_of(node.value, found)
            if value is not None:
                found[node.targets[0].id] = value
    return found


def text_of(node: ast.expr, known: dict[str, Any]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [text_of(p.value if isinstance(p, ast.FormattedValue) else p, known) for p in node.values]
        return None if None in parts else "".join(map(str, parts))
    return None


def _is_of_re(function: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"


@functools.cache
def patterns(shelf: str) -> list[tuple[str, str, int, bool]]:
    """Each pattern: where it is, its flags, and whether it is tried at every place."""
    found = []
    for file in [ROOT / shelf] if shelf.endswith(".py") else sorted((ROOT / shelf).rglob("*.py")):
        source = file.read_text()
        if not CALLS.search(source):  # most files
            continue
        tree, where = ast.parse(source), str(file.relative_to(ROOT))
        known = constants(tree)
        names = {
            id(value): node.targets[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            for value in ast.walk(node.value)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and _is_of_re(node.func)):
                continue
            called = node.func.attr
            if called == "escape":
                continue
            text = text_of(node.args[0], known)
            assert text is not None, f"{where}:{node.lineno}: a pattern that is not written out"
            flags = sum(getattr(re, f) for f in ("IGNORECASE", "DOTALL", "VERBOSE") if f"re.{f}" in ast.unparse(node))
            name = names.get(id(node), str(node.lineno))
            scans = called in SCANS or any(re.search(rf"\b{re.escape(name)}\.{s}\(", source) for s in SCANS)
            found.append((f"{where}:{name}", text, flags, scans or name == "_WORDS"))
    return found


# -- a matcher that counts --------------------------------------------------------------------------------------------


class Matcher:
    """Matches as Python does: it takes the first branch first, and goes back where that fails."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.tree = parser.parse(pattern, flags)
        self.steps = 0

    def run(self, text: str, scans: bool) -> int:
        """Steps of a match that fails at its end, from one place or from all."""
        self.steps, start = 0, 0
        while start < len(text):
            ends = self._all(list(self.tree), text, start)
            end = next((e for e in ends if scans or e == len(text)), start)
            if not scans:
                break
            start = max(end, start + 1)
        return self.steps

    def _all(self, items: list[Any], text: str, at: int) -> Iterator[int]:
        if not items:
            yield at
            return
        for middle in self._one(items[0], text, at):
            yield from self._all(items[1:], text, middle)

    def _one(self, item: Any, text: str, at: int) -> Iterator[int]:
        self.steps += 1
        kind, value = item
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            if at < len(text) and _takes(item, text[at]):
                yield at + 1
        elif kind is op.SUBPATTERN:
            yield from self._all(list(value[-1]), text, at)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from self._all(list(branch), text, at)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            yield from self._repeat(*value, text, at, 0)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            behind = value[1].getwidth()[0] if value[0] < 0 else 0
            found = behind <= at and any(not behind or e == at for e in self._all(list(value[1]), text, at - behind))
            if found == (kind is op.ASSERT):
                yield at
        else:
            assert kind is op.AT, kind
            if value in (op.AT_END, op.AT_END_STRING):
                if at == len(text):
                    yield at
            elif value is op.AT_BOUNDARY:
                if _in_word(text, at - 1) != _in_word(text, at):
                    yield at
            elif value not in (op.AT_BEGINNING, op.AT_BEGINNING_STRING) or at == 0:
                yield at

    def _repeat(self, least: int, most: int, what: Any, text: str, at: int, done: int) -> Iterator[int]:
        if len(what) == 1 and what[0][0] in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            end = at
            while end < len(text) and end - at < most and _takes(what[0], text[end]):
                end += 1
                self.steps += 1
            for stop in range(end, at + least - 1, -1):
                self.steps += 1
                yield stop
            return
        if done < most:
            for middle in self._all(list(what), text, at):
                if middle > at:
                    yield from self._repeat(least, most, what, text, middle, done + 1)
        if done >= least:
            yield at


def _in_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def _takes(item: Any, character: str) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.NOT_LITERAL:
        return ord(character) != value
    if kind is op.ANY:
        return True
    negated = value[0][0] is op.NEGATE
    return any(_has(v, character) for v in value) != negated


def _has(part: Any, character: str) -> bool:
    kind, value = part
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    if kind is op.CATEGORY:
        classes: dict[Any, Callable[[str], bool]] = {
            op.CATEGORY_DIGIT: str.isdecimal,
            op.CATEGORY_SPACE: str.isspace,
            op.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
            op.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
        }
        return classes[value](character)
    return False


# -- what could be hard -----------------------------------------------------------------------------------------------


def letters(tree: Any) -> set[str]:
    """A character of each kind that the pattern tells apart."""
    return {c for c in "a0-.:/=, \"'_A(\x00%5" if any(_takes(i, c) for i in singles(tree))} | {"\x00"}


def singles(tree: Any) -> Iterator[Any]:
    for kind, value in tree:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            yield kind, value
        elif kind is op.SUBPATTERN:
            yield from singles(value[-1])
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from singles(branch)
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            yield from singles(value[2])
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            yield from singles(value[1])


def words(tree: Any) -> set[str]:
    """Its literal beginnings, as `token` in `token=…`: repeated, they begin a match at many places."""
    text = "".join(chr(v) if k is op.LITERAL else "\n" for k, v in tree)
    inner = {w for k, v in tree if k is op.SUBPATTERN for w in words(v[-1])}
    branches = {w for k, v in tree if k is op.BRANCH for b in v[1] for w in words(b)}
    return {w for w in text.split("\n") if w} | inner | branches


def hard(pattern: str, flags: int, n: int) -> Iterator[str]:
    """Texts of about n characters that begin with a match, go on in the same way, and fail."""
    tree = parser.parse(pattern, flags)
    some = sorted(letters(tree))
    pieces = {*some, *(a + b for a in some[:6] for b in some[:6] if a != b), *words(tree)}
    for piece in pieces:
        for head in {"", *some[:2], *words(tree)}:
            yield head + (piece * n)[:n] + "\x00"


def worst(pattern: str, flags: int, scans: bool, n: int) -> int:
    matcher = Matcher(pattern, flags)
    return max(matcher.run(text, scans) for text in hard(pattern, flags, n))


def too_many(where: str, pattern: str, flags: int, scans: bool) -> str:
    """The steps that a pattern takes, where they are more than in proportion, or too many at its limit."""
    few, many = (worst(pattern, flags, scans, n) for n in (N, 2 * N))
    if where not in LIMITS:
        return f"{few} for {N} characters, {many} for twice as many" if many > 2.5 * few else ""
    growth = math.log2(many / few)
    steps = many * (LIMITS[where] / (2 * N)) ** growth
    return f"{steps:.0f} at its limit of {LIMITS[where]}: they grow as n^{growth:.1f}" if steps > MOST else ""


@pytest.mark.parametrize("shelf", SHELVES)
def test_patterns_take_steps_in_proportion(shelf: str) -> None:
    assert {where: words for where, *how in patterns(shelf) if (words := too_many(where, *how))} == {}


def test_limits_are_of_patterns_that_are_there() -> None:
    assert LIMITS.keys() <= {where for shelf in SHELVES for where, *_ in patterns(shelf)}


@pytest.mark.parametrize(("pattern", "scans"), [(r"(a+)+b", False), (r"([0-9]*\.?[0-9]+)s", True), (r"\s*x.*", True)])
def test_one_that_backtracks_is_found(pattern: str, scans: bool) -> None:
    few, many = (worst(pattern, 0, scans, n) for n in (7, 14))
    assert many > 2.5 * few

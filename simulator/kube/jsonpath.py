"""The JSONPath of printer columns and scale subresources: fields, indexes and `[?(@.a=="b")]` filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_STEP = re.compile(
    r"""\.(?P<field>(?:[\w$/-]|\\.)+)
      | \[(?P<index>-?\d+|\*)\]
      | \[\?\(\s*@\.(?P<path>[\w.-]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\]
      | \[(?P<quote2>["'])(?P<name>.*?)(?P=quote2)\]""",
    re.VERBOSE,
)


class JsonPathError(ValueError):
    """A path in a form that is not known here."""


def _field(name: str) -> Step:
    return lambda nodes: [n[name] for n in nodes if isinstance(n, dict) and name in n]


def _index(text: str) -> Step:
    if text == "*":
        return lambda nodes: [e for n in nodes for e in (n.values() if isinstance(n, dict) else n or ())]
    at = int(text)
    return lambda nodes: [n[at] for n in nodes if isinstance(n, list) and -len(n) <= at < len(n)]


def _filter(path: str, value: str) -> Step:
    def step(nodes: list[Any]) -> list[Any]:
        entries = [e for n in nodes if isinstance(n, list) for e in n]
        return [e for e in entries if _resolve(e, path) == value]

    return step


def _resolve(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return str(value).lower() if isinstance(value, bool) else value if value is None else str(value)


def compile_path(path: str) -> Step:
    """A function from `[object]` to the values the path finds. Raises JsonPathError."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        m = _STEP.match(text, at)
        if m is None:
            raise JsonPathError(f"the simulator does not know this JSONPath: {path}")
        if m["field"]:
            steps.append(_field(re.sub(r"\\(.)", r"\1", m["field"])))
        elif m["index"]:
            steps.append(_index(m["index"]))
        elif m["path"]:
            steps.append(_filter(m["path"], m["value"]))
        else:
            steps.append(_field(m["name"]))
        at = m.end()
    if not steps:
        raise JsonPathError(f"the JSONPath is empty: {path!r}")

    def run(nodes: list[Any]) -> list[Any]:
        for step in steps:
            nodes = step(nodes)
        return nodes

    return run

"""Merges two Ignition configs of version 3.5, as Ignition itself does: what the later one says overrides, field by
field; the rows of a list are merged by their key (files by path, units and drop-ins by name), new ones are appended.

One thing is different: contents with a new source replace the old contents wholly (`FieldTable.whole_with`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planners.machine_config.ignition_schema import CONFIG, FieldTable, Rows, Shape, TextList


def merged(base: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Both, as `ignition.read` gives them; neither is changed."""
    return _table(CONFIG, base, later)


def _table(shape: FieldTable, base: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    if shape.whole_with and shape.whole_with in later:
        return dict(later)
    found = {k: _value(shape.fields[k], base.get(k), later.get(k)) for k in dict.fromkeys([*base, *later])}
    for together in shape.one_name:
        _taken_over(shape, found, later, together)
    return {k: v for k, v in found.items() if v not in ([], {})}


def _value(shape: Shape, base: Any, later: Any) -> Any:
    if base is None or later is None:
        return later if base is None else base
    if isinstance(shape, FieldTable):
        return _table(shape, base, later)
    if isinstance(shape, TextList):
        return [*base, *(t for t in later if shape.appended or t not in base)]
    return _rows(shape, base, later) if isinstance(shape, Rows) else later


def _rows(shape: Rows, base: Sequence[Any], later: Sequence[Any]) -> list[Any]:
    if shape.appended:
        return [*base, *later]
    place: dict[Any, int] = {}
    found: list[Any] = []
    for row in [*base, *later]:
        key = shape.key(row)
        if key is not None and key in place:
            found[place[key]] = _table(shape.row, found[place[key]], row)
        else:
            place[key] = len(found)
            found.append(row)
    return found


def _taken_over(shape: FieldTable, found: dict[str, Any], later: Mapping[str, Any], lists: tuple[str, ...]) -> None:
    """Takes out of each list what the later config says in another of them."""
    for name in lists:
        below = shape.fields[name]
        others = [o for o in lists if o != name]
        said = {_key(below, row) for o in others for row in later.get(o, ())}
        kept = {_key(below, row) for row in later.get(name, ())}
        if name in found:
            found[name] = [row for row in found[name] if (k := _key(below, row)) in kept or k not in said]


def _key(shape: Shape, row: Any) -> Any:
    return shape.key(row) if isinstance(shape, Rows) else row

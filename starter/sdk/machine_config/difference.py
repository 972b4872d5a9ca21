"""What two MachineConfigs have differently, in words: file by file, unit by unit, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from planners.machine_config.ignition import IgnitionError, content_of

SpecPart = Mapping[str, Any]

_LISTS = {"files": "path", "directories": "path", "links": "path", "units": "name", "users": "name", "groups": "name"}
"""Lists in an Ignition config, and what their entries are known by."""
_TEXT_MOST = 200_000
"""Bytes of a content that is compared line by line."""


def differences(before: SpecPart, after: SpecPart) -> list[str]:
    """Lines about the specs of two MachineConfigs; none where they are the same."""
    found: list[str] = []
    for field in sorted({*before, *after} - {"config"}):
        if _written(before.get(field)) != _written(after.get(field)):  # nothing and an empty list are the same
            found += _values(field, before.get(field), after.get(field))
    return found + list(_ignition(before.get("config") or {}, after.get("config") or {}))


def _ignition(before: SpecPart, after: SpecPart) -> Iterator[str]:
    for section in sorted({*before, *after}):
        old, new = before.get(section) or {}, after.get(section) or {}
        if old == new:
            continue
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            yield from _values(section, old, new)
            continue
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield from _part(section, name, old.get(name), new.get(name))


def _part(section: str, name: str, before: Any, after: Any) -> Iterator[str]:
    key = _LISTS.get(name)
    if key is None:
        yield from _values(f"{section}.{name}", before, after)
        return
    old = {str(entry.get(key)): entry for entry in before or ()}
    new = {str(entry.get(key)): entry for entry in after or ()}
    noun = name.removesuffix("s")
    for known in sorted({*old, *new}):
        if known not in new:
            yield f"{noun} {known}: removed"
        elif known not in old:
            yield f"{noun} {known}: added"
            yield from _entry({}, new[known])
        elif old[known] != new[known]:
            yield f"{noun} {known}: changed"
            yield from _entry(old[known], new[known])


def _entry(before: SpecPart, after: SpecPart) -> Iterator[str]:
    """The fields of an entry; a file's content as what it says, and not as a URL."""
    for field in sorted({*before, *after}):
        old, new = before.get(field), after.get(field)
        if old == new or field in ("path", "name"):
            continue
        if field == "contents":
            yield from _indented(_content(old, new))
        elif field == "mode":
            yield from _indented(_values(field, _octal(old), _octal(new)))
        else:
            yield from _indented(_values(field, old, new))


def _content(before: Any, after: Any) -> list[str]:
    old, new = _text(before), _text(after)
    if old is None or new is None:
        return [f"contents: {_size(before)} -> {_size(after)}"]
    return _lines("contents", old, new) or ["contents: the same, written otherwise"]


def _text(content: Any) -> str | None:
    """What a content says; None where it is no text, or somewhere else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    try:
        data = content_of(content)
    except IgnitionError:
        return None
    if data is None or len(data) > _TEXT_MOST:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _size(content: Any) -> str:
    if not isinstance(content, Mapping):
        return "nothing"
    try:
        data = content_of(content)
    except IgnitionError:
        data = None
    return str(content.get("source") or "nothing") if data is None else f"{len(data)} bytes"


def _values(field: str, before: Any, after: Any) -> list[str]:
    old, new = _written(before), _written(after)
    if "\n" in old or "\n" in new:
        return _lines(field, old, new)
    return [f"{field}: {old or 'nothing'} -> {new or 'nothing'}"]


def _written(value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _octal(mode: Any) -> str:
    return f"{mode:04o}" if isinstance(mode, int) else ""


def _lines(field: str, before: str, after: str) -> list[str]:
    """The lines that changed, with three around them, as `diff -u` has them."""
    found = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    return [f"{field}:", *_indented(found)] if found else []


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]

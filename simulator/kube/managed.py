"""Who manages which field of a custom object: server-side apply, and the `managedFields` that it goes by.

As structured-merge-diff does it, for what custom resources have: maps are merged field by field, unless their schema
says `x-kubernetes-map-type: atomic`; lists and scalars are replaced as a whole. Not emulated: lists with keys
(`x-kubernetes-list-type: map`), which have one owner here, and apply on built-in kinds, which is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.kube.errors import ApiError
from simulator.kube.objects import Obj, now

Path = tuple[str, ...]
Values = dict[Path, Any]
"""The leaves of an object, with their values."""
_TYPE = ("apiVersion", "kind")
_OWNED_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
"""The rest of metadata is the server's, and has no owner."""


@dataclass(frozen=True)
class Manager:
    """Who writes, and how."""

    name: str
    operation: str = "Update"
    subresource: str = ""

    def words(self, entry: Obj) -> str:
        """The name that upstream gives it in a conflict."""
        of = f' with subresource "{self.subresource}"' if self.subresource else ""
        if self.operation == "Apply":
            return f'"{self.name}"{of}'
        return f'"{self.name}"{of} using {entry.get("apiVersion", "")}'


@dataclass
class Managed:
    """The fields of each manager."""

    entries: dict[Manager, Obj]
    paths: dict[Manager, set[Path]]

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Managed:
        entries = {
            Manager(e.get("manager", ""), e.get("operation", ""), e.get("subresource", "")): e
            for e in (obj.get("metadata") or {}).get("managedFields") or ()
        }
        return cls(entries, {m: set(_read(e.get("fieldsV1") or {})) for m, e in entries.items()})

    def written(self, manager: Manager, paths: set[Path], api_version: str) -> None:
        """Gives a manager these fields."""
        self.paths[manager] = paths
        entry = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": api_version,
            "time": now(),
            "fieldsType": "FieldsV1",
        }
        before = self.entries.get(manager)
        if before is not None and set(_read(before.get("fieldsV1") or {})) == paths:
            entry["time"] = before.get("time", entry["time"])
        self.entries[manager] = {**entry, **({"subresource": manager.subresource} if manager.subresource else {})}

    def list(self) -> list[Obj]:
        """The list as metadata has it."""
        return [{**self.entries[m], "fieldsV1": _nested(paths)} for m, paths in self.paths.items() if paths]


def after_update(old: Obj | None, new: Obj, schema: Obj, manager: Manager, api_version: str) -> list[Obj]:
    """The managers after a write that is no apply: whoever changes a field has it alone."""
    managed, before, after = Managed.of(old or {}), leaves(old or {}, schema), leaves(new, schema)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    for other, paths in managed.paths.items():
        managed.paths[other] = {p for p in paths if p not in gone and (other == manager or not _touches(p, changed))}
    if changed:
        managed.written(manager, managed.paths.get(manager, set()) | changed, api_version)
    return managed.list()


def apply(live: Obj, given: Obj, schema: Obj, manager: str, force: bool, api_version: str) -> tuple[Obj, list[Obj]]:
    """The object and its managers after a server-side apply. Raises 409 where others have a field at another value."""
    me = Manager(manager, "Apply")
    managed, wanted, there = Managed.of(live), leaves(given, schema), leaves(live, schema)
    conflicts: list[tuple[Manager, Path]] = []
    for other, paths in managed.paths.items():
        if other != me:
            clashing = sorted(p for p in paths if _clashes(p, wanted, there))
            conflicts += [(other, path) for path in clashing]
    if conflicts and not force:
        raise _conflict([(m.words(managed.entries[m]), path) for m, path in conflicts])
    for other, path in conflicts:
        managed.paths[other].discard(path)
    former = managed.paths.get(me, set())
    managed.written(me, set(wanted), api_version)
    kept = {path for paths in managed.paths.values() for path in paths}
    new = _merged(live, given, schema)
    for path in sorted(former - wanted.keys()):
        if not any(_prefixed(k, path) for k in kept):
            _remove(new, path)
    return new, managed.list()


def leaves(obj: Obj, schema: Obj) -> Values:
    """What has an owner each."""
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k in _OWNED_METADATA}
    found = dict(_leaves(meta, {}, ("metadata",))) if meta else {}
    properties = schema.get("properties") or {}
    for name, value in obj.items():
        if name not in (*_TYPE, "metadata"):
            found |= dict(_leaves(value, properties.get(name) or {}, (name,)))
    return found


def _leaves(value: Any, schema: Obj, path: Path) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, dict) or not value or _is_atomic(schema):
        yield path, value
        return
    for name, below in value.items():
        yield from _leaves(below, _below(schema, name), (*path, name))


def _is_atomic(schema: Obj) -> bool:
    return schema.get("x-kubernetes-map-type") == "atomic"


def _below(schema: Obj, name: str) -> Obj:
    more = schema.get("additionalProperties")
    return (schema.get("properties") or {}).get(name) or (more if isinstance(more, dict) else {})


def _merged(live: Any, given: Any, schema: Obj) -> Any:
    if not isinstance(live, dict) or not isinstance(given, dict) or _is_atomic(schema):
        return given
    return {**live, **{k: _merged(live.get(k), v, _below(schema, k)) for k, v in given.items()}}


def _remove(obj: Any, path: Path) -> None:
    """Takes a field away, and the maps that are empty then."""
    first, *rest = path
    if not isinstance(obj, dict) or first not in obj:
        return
    if rest:
        _remove(obj[first], tuple(rest))
    if not rest or obj[first] == {}:
        del obj[first]


def _prefixed(path: Path, beginning: Path) -> bool:
    return path[: len(beginning)] == beginning


def _touches(path: Path, changed: set[Path]) -> bool:
    return any(path[:n] in changed for n in range(1, len(path) + 1)) or any(_prefixed(c, path) for c in changed)


def _clashes(path: Path, wanted: Values, there: Values) -> bool:
    """Whether what is wanted changes a field of another manager."""
    if path in wanted:
        return bool(there.get(path) != wanted[path])
    above = any(path[:n] in wanted and wanted[path[:n]] != {} for n in range(1, len(path)))
    below = there.get(path) != {} and any(_prefixed(w, path) for w in wanted)
    return above or below


def _read(fields: Obj, path: Path = ()) -> Iterator[Path]:
    for key, below in fields.items():
        if key.startswith("f:"):
            here = (*path, key[2:])
            if below:
                yield from _read(below, here)
            else:
                yield here


def _nested(paths: set[Path]) -> Obj:
    found: Obj = {}
    for path in sorted(paths):
        here = found
        for name in path:
            here = here.setdefault(f"f:{name}", {})
    return found


def _conflict(found: list[tuple[str, Path]]) -> ApiError:
    fields = [("." + ".".join(path), who) for who, path in found]
    if len(found) == 1:
        said = f"conflict with {fields[0][1]}: {fields[0][0]}"
        message = f"Apply failed with 1 conflict: {said}"
    else:
        lines = []
        for who in dict.fromkeys(who for _, who in fields):
            lines += [f"conflicts with {who}:", *(f"- {field}" for field, of in fields if of == who)]
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for field, who in fields
    ]
    return ApiError(409, "Conflict", message, {"causes": causes})

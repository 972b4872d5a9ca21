"""The three patch types: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

Every function returns a new object and leaves the old one as it was; parts that do not change are shared with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from simulator.kube.errors import ApiError, bad_request, unsupported_media_type
from simulator.kube.objects import Obj

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""`patchMergeKey` of k8s.io/api by field name. Lists not named here are replaced as a whole (taints, for example)."""
_MERGED_SETS = {"finalizers", "podCIDRs", "volumesInUse"}
"""Lists of primitives with `patchStrategy: merge`."""
_DIRECTIVES = ("$patch", "$retainKeys")


def patched(old: Obj, body: Any, content_type: str, custom: bool) -> Any:
    """The object after the patch. `custom`: it is of a custom kind, which has no strategic merge patch."""
    known: dict[str, Callable[[Any, Any], Any]] = {JSON_PATCH: json_patch, MERGE_PATCH: merge}
    if not custom:
        known[STRATEGIC_PATCH] = strategic_merge
    if content_type in known:
        return known[content_type](old, body)
    if content_type in (APPLY_PATCH, "application/apply-patch+cbor"):
        raise unsupported_media_type(
            "the simulator emulates server-side apply of custom resources only, as YAML; use a JSON, merge or "
            "strategic merge patch"
        )
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
    )


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any, field: str = "") -> Any:
    """Kubernetes' merge patch: lists of named things merge by their key, `$patch` and its kin direct the rest."""
    if isinstance(patch, list):
        return _merge_list(target, patch, field)
    if not isinstance(patch, dict):
        return patch
    match patch.get("$patch"):
        case "replace":
            return {k: v for k, v in patch.items() if k != "$patch"}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise bad_request(f"Unknown patch type found: {other}")
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        merged = {k: v for k, v in merged.items() if k in patch["$retainKeys"]}
    orders: dict[str, list[Any]] = {}
    for name, value in patch.items():
        directive, _, subject = name.partition("/")
        if directive == "$deleteFromPrimitiveList":
            merged[subject] = [v for v in merged.get(subject) or () if v not in value]
        elif directive == "$setElementOrder":
            orders[subject] = value
        elif name in _DIRECTIVES:
            continue
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = strategic_merge(merged.get(name), value, name)
    for subject, order in orders.items():
        if isinstance(merged.get(subject), list):
            merged[subject] = _ordered(merged[subject], order, _MERGE_KEYS.get(subject))
    return merged


def _merge_list(target: Any, patch: list[Any], field: str) -> list[Any]:
    current = target if isinstance(target, list) else []
    if field in _MERGED_SETS:
        return current + [v for v in patch if v not in current]
    key = _MERGE_KEYS.get(field)
    if key is None or not all(isinstance(entry, dict) for entry in patch):
        return patch
    if any(set(entry) == {"$patch"} and entry["$patch"] == "replace" for entry in patch):
        return [strategic_merge({}, e) for e in patch if set(e) != {"$patch"}]
    merged = list(current)
    for entry in patch:
        if key not in entry:
            raise bad_request(f"map: {entry} does not contain declared merge key: {key}")
        at = next((i for i, e in enumerate(merged) if e.get(key) == entry[key]), None)
        if entry.get("$patch") == "delete":
            if at is not None:
                merged.pop(at)
        elif at is None:
            merged.append(strategic_merge({}, entry))
        else:
            merged[at] = strategic_merge(merged[at], entry)
    return merged


def _ordered(entries: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """`$setElementOrder`: entries it names come in its order, the server's own ones stay behind them."""
    wanted = [o.get(key) if key and isinstance(o, dict) else o for o in order]

    def position(entry: Any) -> int:
        value = entry.get(key) if key and isinstance(entry, dict) else entry
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(entries, key=position)


def json_patch(target: Obj, operations: Any) -> Obj:
    """RFC 6902. An operation that does not fit is 422, as the API server answers it; a malformed one 400."""
    if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
        raise bad_request("a JSON patch must be a list of operations")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        kind, path = operation.get("op"), operation.get("path")
        if kind not in ("add", "remove", "replace", "move", "copy", "test") or not isinstance(path, str):
            raise bad_request(f"Unexpected kind or path of a JSON patch operation: {kind} {path}")
        try:
            document = _apply(document, kind, _pointer(path), operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as e:
            message = "the server rejected our request due to an error in our request"
            cause = {"reason": "FieldValueInvalid", "field": path, "message": f"{kind} {path}: {e}"}
            raise ApiError(422, "Invalid", message, {"causes": [cause]}) from None
    if not isinstance(document, dict):
        raise bad_request("a JSON patch must leave an object")
    return document


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise bad_request(f"a JSON pointer must start with a slash: {path}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _lookup(document: Any, pointer: list[str]) -> Any:
    for part in pointer:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _apply(document: Any, kind: str, pointer: list[str], operation: Obj) -> Any:
    if kind == "test":
        if _lookup(document, pointer) != operation["value"]:
            raise ValueError("testing value failed")
        return document
    if kind in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(_lookup(document, source))
        if kind == "move":
            _remove(document, source)
    elif kind != "remove":
        value = operation["value"]
    if not pointer:
        return value if kind != "remove" else None
    if kind == "remove":
        _remove(document, pointer)
    else:
        _place(document, pointer, value, replace=kind == "replace")
    return document


def _remove(document: Any, pointer: list[str]) -> None:
    parent, last = _lookup(document, pointer[:-1]), pointer[-1]
    parent.pop(int(last) if isinstance(parent, list) else last)


def _place(document: Any, pointer: list[str], value: Any, *, replace: bool) -> None:
    parent, last = _lookup(document, pointer[:-1]), pointer[-1]
    if isinstance(parent, list):
        if replace:
            parent[int(last)] = value
            return
        at = len(parent) if last == "-" else int(last)
        if not 0 <= at <= len(parent):
            raise IndexError("index out of range")
        parent.insert(at, value)
    else:
        if replace and last not in parent:
            raise KeyError(last)
        parent[last] = value

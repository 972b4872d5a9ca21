"""Objects as the API stores and serves them: plain JSON, with the few helpers every module needs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from resources.words import kube_time

Obj = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


def now() -> str:
    """The current time as `metav1.Time` is written: RFC 3339, UTC, whole seconds."""
    return kube_time(datetime.now(UTC))


def parse_time(text: str) -> datetime:
    """An RFC 3339 time with its zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def key_of(obj: Obj) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace") or "", meta["name"]


def dig(obj: Any, path: str) -> Any:
    """The value at a dotted path such as `spec.nodeName`; None where there is none."""
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def condition(obj: Obj, kind: str) -> Obj | None:
    """The status condition of that type."""
    for entry in dig(obj, "status.conditions") or ():
        if isinstance(entry, dict) and entry.get("type") == kind:
            return entry
    return None


def set_condition(obj: Obj, kind: str, status: str, reason: str, message: str) -> None:
    """Write a condition of `obj.status` in place; the transition time moves only when the status changes."""
    old = condition(obj, kind)
    changed = old is None or old.get("status") != status
    entry = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now() if old is None or changed else old.get("lastTransitionTime"),
    }
    status_part = obj.setdefault("status", {})
    others = [c for c in status_part.get("conditions") or () if c.get("type") != kind]
    status_part["conditions"] = [*others, entry]

"""What the journal keeps of a request: enough to assert on, never a secret, and little of what repeats all the time."""

from __future__ import annotations

import json
from typing import Any

from simulator.kube.objects import Obj
from simulator.kube.requests import RequestInfo

_BODY_LIMIT = 2000  # characters
_HEARTBEATS = {("leases", ""), ("nodes", "status"), ("pods", "status")}
REDACTED = "<redacted>"


def request_entry(info: RequestInfo, raw: bytes) -> Obj:
    entry: Obj = {"path": info.path}
    if info.query:
        entry["query"] = dict(info.query)
    if raw:
        entry["body"] = _body(info, raw)
    return entry


def _body(info: RequestInfo, raw: bytes) -> Any:
    if (info.plural, info.subresource) in _HEARTBEATS or len(raw) > 4 * _BODY_LIMIT:
        return {"bytes": len(raw)}
    try:
        body = json.loads(raw)
    except ValueError:
        return {"bytes": len(raw)}
    if info.plural == "secrets":
        return _without_secrets(body)
    return body if len(raw) <= _BODY_LIMIT else {"bytes": len(raw)}


def _without_secrets(body: Any) -> Any:
    """Name, labels and the names of the keys. Annotations go too: kubectl keeps the last applied object in one."""
    if not isinstance(body, dict):
        return REDACTED
    kept: Obj = {k: body[k] for k in ("apiVersion", "kind", "type") if k in body}
    meta = body.get("metadata")
    if isinstance(meta, dict):
        kept["metadata"] = {k: meta[k] for k in ("name", "namespace", "labels") if k in meta}
    for part in ("data", "stringData"):
        if isinstance(body.get(part), dict):
            kept[part] = dict.fromkeys(body[part], REDACTED)
    return kept

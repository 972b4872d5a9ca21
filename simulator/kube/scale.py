"""The scale subresource of deployments, replica sets and custom resources (autoscaling/v1 Scale)."""

from __future__ import annotations

from typing import Any

from simulator.kube.errors import FieldErrors, bad_request
from simulator.kube.jsonpath import compile_path
from simulator.kube.objects import Obj
from simulator.kube.resources import Resource
from simulator.kube.store import Item

_BUILT_IN = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def _paths(resource: Resource) -> Obj:
    return (resource.custom.scale or {}) if resource.custom else _BUILT_IN


def _read(obj: Obj, path: str | None) -> Any:
    found = compile_path(path)([obj]) if path else []
    return found[0] if found else None


def scale_of(resource: Resource, item: Item) -> Obj:
    paths, meta = _paths(resource), item.obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Obj = {"replicas": _read(item.obj, paths.get("statusReplicasPath")) or 0}
    if resource.custom is None:
        labels = item.obj["spec"]["selector"].get("matchLabels") or {}
        status["selector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
    elif selector := _read(item.obj, paths.get("labelSelectorPath")):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: meta[k] for k in kept if k in meta},
        "spec": {"replicas": _read(item.obj, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def scaled(resource: Resource, item: Item, scale: Any) -> Obj:
    """A copy of the object with the replicas a Scale asks for, and the version it was read at. Raises 400 and 422."""
    if not isinstance(scale, dict) or not isinstance(scale.get("spec", {}), dict):
        raise bad_request("the body is not a Scale of autoscaling/v1")
    replicas = scale.get("spec", {}).get("replicas", 0)
    errors = FieldErrors()
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
    errors.check(resource, item.name)
    obj = item.copy()
    meta = scale.get("metadata") or {}
    obj["metadata"]["resourceVersion"] = meta.get("resourceVersion") or item.version
    parent = obj
    *parts, last = str(_paths(resource)["specReplicasPath"]).strip(".").split(".")
    for part in parts:
        parent = parent.setdefault(part, {})
    parent[last] = replicas
    return obj

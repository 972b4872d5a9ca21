"""Questions about Kubernetes objects that several controllers ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from simulator.client import Obj


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector: None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        expression_holds(expression, labels) for expression in expressions
    )


def expression_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement of a label selector or of a node selector term."""
    key, values = expression["key"], expression.get("values") or []
    value = labels.get(key)
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdigit() and int(value) < int(values[0])
        case operator:
            raise ValueError(f"unknown selector operator {operator!r}")


def labels_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def condition(obj: Obj, type_: str) -> Obj | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type_), None)


def is_true(obj: Obj, type_: str) -> bool:
    found = condition(obj, type_)
    return found is not None and found["status"] == "True"


def is_deleting(obj: Obj) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def node_of(pod: Obj) -> str | None:
    return pod["spec"].get("nodeName") or None


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference that controls the object."""
    return next((r for r in obj["metadata"].get("ownerReferences") or () if r.get("controller")), None)


def is_controlled_by(obj: Obj, owner: Obj) -> bool:
    reference = controller_of(obj)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def controller_reference(api_version: str, kind: str, owner: Obj) -> Obj:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def status_differs(obj: Obj, wanted: Obj) -> bool:
    """Whether a field of `wanted` is not yet in the object's status; a number that is absent there counts as zero."""
    status = obj.get("status") or {}
    return any(status.get(key, 0 if isinstance(value, int) else None) != value for key, value in wanted.items())


def template_hash(owner: Obj) -> str:
    """Names one version of a workload's pod template."""
    template = json.dumps(owner["spec"]["template"], sort_keys=True)
    return hashlib.sha256(template.encode()).hexdigest()[:10]


def pod_from_template(owner: Obj, api_version: str, kind: str) -> Obj:
    """A pod of a ReplicaSet or DaemonSet, to be created in the owner's namespace."""
    template = owner["spec"]["template"]
    meta = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": owner["metadata"]["name"] + "-",
            "namespace": owner["metadata"]["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [controller_reference(api_version, kind, owner)],
        },
        "spec": dict(template["spec"]),
    }

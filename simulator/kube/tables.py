"""Tables: what `kubectl get` prints, and PartialObjectMetadata, the other form a client may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from simulator.kube.jsonpath import Step, compile_path
from simulator.kube.objects import Obj, condition, dig, parse_time
from simulator.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SIGNING_REQUESTS,
    Resource,
    ResourceId,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_NONE = "<none>"


@dataclass(frozen=True)
class Column:
    name: str
    value: Callable[[Obj], Any]
    wide: bool = False
    """Shown by `-o wide` only."""
    type: str = "string"

    def definition(self) -> Obj:
        form = "name" if self.name == "Name" else ""
        priority = int(self.wide)
        return {"name": self.name, "type": self.type, "format": form, "description": "", "priority": priority}


def human_duration(seconds: float) -> str:
    """An age as kubectl prints it (k8s.io/apimachinery/pkg/util/duration.HumanDuration)."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    if s < 120:
        return f"{max(s, 0)}s"
    minutes, hours, days = s // 60, s // 3600, s // 86400
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def age_of(text: Any) -> str:
    if not isinstance(text, str):
        return "<unknown>"
    try:
        return human_duration((datetime.now(UTC) - parse_time(text)).total_seconds())
    except ValueError:
        return "<invalid>"


def _at(path: str, default: Any = _NONE) -> Callable[[Obj], Any]:
    def value(obj: Obj) -> Any:
        found = dig(obj, path)
        return default if found in (None, "") else found

    return value


def _node_status(node: Obj) -> str:
    ready = condition(node, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return status + (",SchedulingDisabled" if dig(node, "spec.unschedulable") else "")


def _node_roles(node: Obj) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX}
    if role := labels.get("kubernetes.io/role"):
        roles.add(role)
    return ",".join(sorted(roles)) or _NONE


def _address(kind: str) -> Callable[[Obj], str]:
    def value(node: Obj) -> str:
        addresses = dig(node, "status.addresses") or ()
        return next((str(a.get("address")) for a in addresses if a.get("type") == kind), _NONE)

    return value


def _pod_ready(pod: Obj) -> str:
    ready = sum(1 for c in dig(pod, "status.containerStatuses") or () if c.get("ready"))
    return f"{ready}/{len(dig(pod, 'spec.containers') or ())}"


def _pod_status(pod: Obj) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if dig(pod, "status.reason") == "NodeLost" else "Terminating"
    for status in dig(pod, "status.containerStatuses") or ():
        state = status.get("state") or {}
        reason = dig(state, "waiting.reason") or dig(state, "terminated.reason")
        if reason:
            return str(reason)
    return str(dig(pod, "status.reason") or dig(pod, "status.phase") or "Unknown")


def _pod_restarts(pod: Obj) -> str:
    return str(sum(int(c.get("restartCount", 0)) for c in dig(pod, "status.containerStatuses") or ()))


def _replicas(pod_count: str, wanted: str) -> Callable[[Obj], str]:
    return lambda obj: f"{dig(obj, pod_count) or 0}/{dig(obj, wanted) or 0}"


def _of_containers(field: str) -> Callable[[Obj], str]:
    return lambda obj: ",".join(str(c.get(field, "")) for c in dig(obj, "spec.template.spec.containers") or ())


def _labels(path: str) -> Callable[[Obj], str]:
    def value(obj: Obj) -> str:
        return ",".join(f"{key}={text}" for key, text in sorted((dig(obj, path) or {}).items())) or _NONE

    return value


def _csr_duration(csr: Obj) -> str:
    seconds = dig(csr, "spec.expirationSeconds")
    return _NONE if seconds is None else human_duration(seconds)


def _event_first_seen(event: Obj) -> str:
    return age_of(event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _csr_condition(csr: Obj) -> str:
    shown = [kind for kind in ("Approved", "Denied", "Failed") if condition(csr, kind) is not None]
    if dig(csr, "status.certificate"):
        shown.append("Issued")
    return ",".join(shown) or "Pending"


def _event_seen(event: Obj) -> str:
    seen = dig(event, "series.lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return age_of(seen or event["metadata"].get("creationTimestamp"))


def _event_subject(event: Obj) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


NAME = Column("Name", lambda obj: obj["metadata"]["name"])
AGE = Column("Age", lambda obj: age_of(obj["metadata"].get("creationTimestamp")))
_TEMPLATE = (
    Column("Containers", _of_containers("name"), wide=True),
    Column("Images", _of_containers("image"), wide=True),
    Column("Selector", _labels("spec.selector.matchLabels"), wide=True),
)

_COLUMNS: dict[ResourceId, tuple[Column, ...]] = {
    NODES.id: (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _at("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _address("InternalIP"), wide=True),
        Column("External-IP", _address("ExternalIP"), wide=True),
        Column("OS-Image", _at("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", _at("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column("Container-Runtime", _at("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
    ),
    PODS.id: (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", _at("status.podIP"), wide=True),
        Column("Node", _at("spec.nodeName"), wide=True),
        Column("Nominated Node", _at("status.nominatedNodeName"), wide=True),
        Column("Readiness Gates", lambda obj: "<none>", wide=True),
    ),
    NAMESPACES.id: (NAME, Column("Status", _at("status.phase")), AGE),
    CONFIG_MAPS.id: (NAME, Column("Data", lambda obj: len(obj.get("data") or {})), AGE),
    DEFINITIONS.id: (NAME, Column("Created At", _at("metadata.creationTimestamp"))),
    SECRETS.id: (NAME, Column("Type", _at("type")), Column("Data", lambda obj: len(obj.get("data") or {})), AGE),
    LEASES.id: (NAME, Column("Holder", _at("spec.holderIdentity")), AGE),
    EVENTS.id: (
        Column("Last Seen", _event_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _event_subject),
        Column("Subobject", _at("involvedObject.fieldPath", ""), wide=True),
        Column("Source", _at("source.component", ""), wide=True),
        Column("Message", lambda obj: str(obj.get("message", "")).strip()),
        Column("First Seen", _event_first_seen, wide=True),
        Column("Count", _at("count", 1), wide=True),
        Column("Name", NAME.value, wide=True),
    ),
    SIGNING_REQUESTS.id: (
        NAME,
        AGE,
        Column("SignerName", _at("spec.signerName")),
        Column("Requestor", _at("spec.username")),
        Column("RequestedDuration", _csr_duration),
        Column("Condition", _csr_condition),
    ),
    DISRUPTION_BUDGETS.id: (
        NAME,
        Column("Min Available", _at("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _at("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _at("status.disruptionsAllowed", 0)),
        AGE,
    ),
    DAEMON_SETS.id: (
        NAME,
        Column("Desired", _at("status.desiredNumberScheduled", 0)),
        Column("Current", _at("status.currentNumberScheduled", 0)),
        Column("Ready", _at("status.numberReady", 0)),
        Column("Up-to-date", _at("status.updatedNumberScheduled", 0)),
        Column("Available", _at("status.numberAvailable", 0)),
        Column("Node Selector", _labels("spec.template.spec.nodeSelector")),
        AGE,
        *_TEMPLATE,
    ),
    DEPLOYMENTS.id: (
        NAME,
        Column("Ready", _replicas("status.readyReplicas", "spec.replicas")),
        Column("Up-to-date", _at("status.updatedReplicas", 0)),
        Column("Available", _at("status.availableReplicas", 0)),
        AGE,
        *_TEMPLATE,
    ),
    REPLICA_SETS.id: (
        NAME,
        Column("Desired", _at("spec.replicas", 0)),
        Column("Current", _at("status.replicas", 0)),
        Column("Ready", _at("status.readyReplicas", 0)),
        AGE,
        *_TEMPLATE,
    ),
}


@lru_cache(maxsize=256)
def _path(text: str) -> Step:
    return compile_path(text)


def _custom_column(spec: Obj) -> Column:
    kind = spec.get("type", "string")

    def value(obj: Obj) -> Any:
        found = _path(spec["jsonPath"])([obj])
        if not found:
            return ""
        return age_of(found[0]) if kind == "date" else found[0]

    return Column(spec["name"], value, wide=spec.get("priority", 0) > 0, type=kind)


def columns_of(resource: Resource) -> tuple[Column, ...]:
    if resource.custom is not None and resource.custom.columns:
        return (NAME, *(_custom_column(c) for c in resource.custom.columns))
    return _COLUMNS.get(resource.id, (NAME, AGE))


def partial_metadata(obj: Obj) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(resource: Resource, objects: Iterable[Obj], metadata: Obj, include: str = "Metadata") -> Obj:
    """A Table of `objects`; `include` is the includeObject parameter: Metadata, Object or None."""
    columns = columns_of(resource)
    rows: list[Obj] = []
    for obj in objects:
        row: Obj = {"cells": [column.value(obj) for column in columns]}
        if include != "None":
            row["object"] = obj if include == "Object" else partial_metadata(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns],
        "rows": rows,
    }

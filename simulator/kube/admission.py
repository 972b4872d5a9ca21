"""Defaults and rules per kind, applied to an object before it is stored.

A rule gets the new object (which it may complete in place) and the stored one, None on creation. Sources: the
strategies under pkg/registry and pkg/apis/*/validation of Kubernetes, and the admission plugins that are on by default.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from simulator.kube import crds, csr, pods, priority, storage
from simulator.kube.errors import FieldErrors, bad_request
from simulator.kube.objects import Obj
from simulator.kube.resources import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    SECRETS,
    SIGNING_REQUESTS,
    VOLUME_ATTACHMENTS,
    Resource,
    ResourceId,
)
from simulator.kube.selectors import matches_label_selector
from simulator.kube.validation import label_value_problem, qualified_name_problem

Rule = Callable[[Obj, Obj | None, FieldErrors], None]

_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NO_INFO = dict.fromkeys(
    (
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ),
    "",
)
"""nodeInfo has no optional field: a server sends each one, even before the kubelet has reported."""
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def admit(resource: Resource, obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    rule = _RULES.get(resource.id)
    if rule is not None:
        rule(obj, old, errors)


def _namespace(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    if old is None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}
    else:
        obj["spec"] = old["spec"]
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _node(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status["nodeInfo"] = _NO_INFO | status.get("nodeInfo", {})
    if old is None:
        # The TaintNodesByCondition admission plugin: nothing is scheduled on a node before its controller has seen it.
        taints = spec.setdefault("taints", [])
        if not any(t.get("key") == _NOT_READY["key"] and t.get("effect") == _NOT_READY["effect"] for t in taints):
            taints.append(dict(_NOT_READY))
    else:
        for name in ("providerID", "podCIDR"):
            before = old["spec"].get(name)
            if before and spec.get(name) != before:
                why = f'node updates may not change {name} except from "" to valid'
                errors.forbidden(f"spec.{name}", why)
    _check_taints(spec.get("taints") or [], errors)


def _check_taints(taints: list[Obj], errors: FieldErrors) -> None:
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        field = f"spec.taints[{i}]"
        key, effect, value = taint.get("key") or "", taint.get("effect") or "", taint.get("value") or ""
        if problem := qualified_name_problem(key):
            errors.invalid(f"{field}.key", key, problem)
        if problem := label_value_problem(value):
            errors.invalid(f"{field}.value", value, problem)
        if not effect:
            errors.required(f"{field}.effect")
        elif effect not in _TAINT_EFFECTS:
            errors.unsupported(f"{field}.effect", effect, _TAINT_EFFECTS)
        if (key, effect) in seen:
            errors.duplicate(field, {"key": key, "effect": effect})
        seen.add((key, effect))


def _secret(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    obj.setdefault("type", "Opaque")
    data = obj.get("data") or {}
    for name, text in (obj.pop("stringData", None) or {}).items():
        data[name] = base64.b64encode(text.encode()).decode()
    if data:
        obj["data"] = data
    for name, value in data.items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            # The value stays out of the message: it may be the secret itself, which somebody forgot to encode.
            raise bad_request(
                f'Secret in version "v1" cannot be handled as a Secret: illegal base64 data in data.{name}'
            ) from None
    if old is None:
        return
    if obj["type"] != old["type"]:
        errors.invalid("type", obj["type"], "field is immutable")
    _check_immutable(obj, old, errors)


def _check_immutable(obj: Obj, old: Obj, errors: FieldErrors) -> None:
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        errors.forbidden("immutable", "field is immutable when `immutable` is set")
    if obj.get("data") != old.get("data"):
        errors.forbidden("data", "field is immutable when `immutable` is set")


def _event(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    """An Event lies in the namespace of what it is about; of a cluster-scoped object in `default` or `kube-system`."""
    namespace = obj["metadata"].get("namespace")
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    if (about and about != namespace) or (not about and namespace not in ("default", "kube-system")):
        errors.invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not obj.get("eventTime"):
        return
    for field in ("reportingComponent", "reportingInstance", "action", "reason"):
        if not obj.get(field):
            errors.required("reportingController" if field == "reportingComponent" else field)
    if len((obj.get("message") or "").encode()) > 1024:
        errors.invalid("message", "", "can have at most 1024 bytes")


def _lease(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        errors.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _disruption_budget(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    for name in ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"):
        status.setdefault(name, 0)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
            errors.invalid(f"spec.{name}", value, "a valid percent string must be a number followed by %")
        elif isinstance(value, int) and value < 0:
            errors.invalid(f"spec.{name}", value, "must be greater than or equal to 0")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        errors.unsupported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def _workload(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    """Deployment, ReplicaSet and DaemonSet: the selector must choose the template's pods and never changes."""
    spec = obj.setdefault("spec", {})
    obj.setdefault("status", {})
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        errors.required("spec.selector")
    elif not matches_label_selector(selector, labels):
        errors.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    if not (template.get("spec") or {}).get("containers"):
        errors.required("spec.template.spec.containers")
    if old is not None and selector != old["spec"].get("selector"):
        errors.invalid("spec.selector", selector, "field is immutable")


def _daemon_set(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    _workload(obj, old, errors)
    for name in ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"):
        obj["status"].setdefault(name, 0)


def _replicated(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    _workload(obj, old, errors)
    replicas = obj["spec"].setdefault("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")


def _replica_set(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    _replicated(obj, old, errors)
    obj["status"].setdefault("replicas", 0)


_RULES: dict[ResourceId, Rule] = {
    NAMESPACES.id: _namespace,
    NODES.id: _node,
    PODS.id: pods.prepare,
    SECRETS.id: _secret,
    EVENTS.id: _event,
    LEASES.id: _lease,
    DISRUPTION_BUDGETS.id: _disruption_budget,
    DAEMON_SETS.id: _daemon_set,
    DEPLOYMENTS.id: _replicated,
    REPLICA_SETS.id: _replica_set,
    PERSISTENT_VOLUMES.id: storage.volume,
    PERSISTENT_VOLUME_CLAIMS.id: storage.claim,
    VOLUME_ATTACHMENTS.id: storage.attachment,
    PRIORITY_CLASSES.id: priority.prepare,
    SIGNING_REQUESTS.id: csr.prepare,
    DEFINITIONS.id: crds.prepare,
}

"""Pods: defaults, what may change after creation, and the binding subresource (pkg/registry/core/pod upstream)."""

from __future__ import annotations

import copy

from simulator.kube.errors import FieldErrors, bad_request, conflict
from simulator.kube.objects import Obj, set_condition
from simulator.kube.resources import PODS

_UPDATE_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_TOLERATION_SECONDS = 300
_CONTAINER_LISTS = ("containers", "initContainers")


def prepare(pod: Obj, old: Obj | None, errors: FieldErrors) -> None:
    """Defaults and validates a pod in place; on an update it also checks what must stay."""
    spec = pod.setdefault("spec", {})
    _default(spec)
    if old is None:
        _default_tolerations(spec)
        pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    else:
        # The admission plugin Priority wrote them on creation: an update that leaves them out keeps them.
        for name in ("priority", "preemptionPolicy"):
            if name in old["spec"]:
                spec.setdefault(name, old["spec"][name])
    _validate(spec, errors)
    if old is not None and not errors:
        _check_update(spec, old["spec"], errors)


def _default(spec: Obj) -> None:
    for name, value in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("terminationGracePeriodSeconds", 30),
        ("enableServiceLinks", True),
    ):
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    for containers in _CONTAINER_LISTS:
        for container in spec.get(containers) or ():
            image = str(container.get("image", ""))
            latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
            container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
            container.setdefault("terminationMessagePath", "/dev/termination-log")
            container.setdefault("terminationMessagePolicy", "File")
            container.setdefault("resources", {})


def _default_tolerations(spec: Obj) -> None:
    """The DefaultTolerationSeconds admission plugin: five minutes on a node that is not ready or unreachable."""
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if any(t.get("key") in (None, key) and t.get("effect") in (None, "NoExecute") for t in tolerations):
            continue
        tolerations.append(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
        )
    spec["tolerations"] = tolerations


def _qos_class(spec: Obj) -> str:
    resources = [c.get("resources") or {} for lists in _CONTAINER_LISTS for c in spec.get(lists) or ()]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    for part in resources:
        limits, requests = part.get("limits") or {}, part.get("requests") or {}
        if any(r not in limits or requests.get(r, limits[r]) != limits[r] for r in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def _validate(spec: Obj, errors: FieldErrors) -> None:
    if not spec.get("containers"):
        errors.required("spec.containers")
    for containers in _CONTAINER_LISTS:
        names: set[str] = set()
        for i, container in enumerate(spec.get(containers) or ()):
            field = f"spec.{containers}[{i}]"
            name = container.get("name")
            if not name:
                errors.required(f"{field}.name")
            elif name in names:
                errors.duplicate(f"{field}.name", name)
            else:
                names.add(name)
            if not container.get("image"):
                errors.required(f"{field}.image")
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        errors.unsupported("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1


def _fixed_part(spec: Obj) -> Obj:
    fixed = copy.deepcopy(spec)
    for name in ("activeDeadlineSeconds", "tolerations"):
        fixed.pop(name, None)
    for containers in _CONTAINER_LISTS:
        for container in fixed.get(containers) or ():
            container.pop("image", None)
            container.pop("imagePullPolicy", None)
    return fixed


def _check_update(spec: Obj, old: Obj, errors: FieldErrors) -> None:
    if _fixed_part(spec) != _fixed_part(old):
        errors.forbidden("spec", _UPDATE_RULE)
    kept = spec.get("tolerations") or []
    if any(t not in kept for t in old.get("tolerations") or ()):
        errors.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def bind(pod: Obj, binding: Obj) -> None:
    """Assign a pod to a node in place. Raises 409 when it is already assigned or being deleted."""
    name = pod["metadata"]["name"]
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
        raise bad_request("a Binding needs target.kind Node and target.name")
    # Two schedulers may race for one pod: the second binding must fail, not move the pod.
    if assigned := pod["spec"].get("nodeName"):
        raise conflict(PODS, name, f'pod {name} is already assigned to node "{assigned}"', "binding")
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(PODS, name, f"pod {name} is being deleted, cannot be assigned to a host", "binding")
    pod["spec"]["nodeName"] = target["name"]
    set_condition(pod, "PodScheduled", "True", "", "")
    pod["status"]["conditions"][-1] = {k: v for k, v in pod["status"]["conditions"][-1].items() if v != ""}


def grace_period(pod: Obj, asked: int | None) -> int:
    """Seconds a deletion waits for the kubelet; 0 removes the pod at once (CheckGracefulDelete upstream)."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    period = pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
    return int(period) if period >= 0 else 1

"""Whether a pod may run on a node: selectors, taints, room. Pure functions, for the controllers that place pods."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.client import Obj
from simulator.controllers.objects import condition, expression_holds, labels_of

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_SUFFIXES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")


def effective_taints(node: Obj) -> list[Obj]:
    """The node's taints, and those that it is about to get from the state that can be seen.

    A real API server gives every new node the not-ready taint at admission (TaintNodesByCondition), so that no pod
    gets in before node lifecycle has looked at it; a cordon counts before its taint is written.
    """
    spec = node["spec"]
    taints = list(spec.get("taints") or ())
    ready = condition(node, "Ready")
    if ready is None or ready["status"] == "False":
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    elif ready["status"] == "Unknown":
        taints.append({"key": UNREACHABLE, "effect": "NoSchedule"})
    if spec.get("unschedulable"):
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    return taints


def tolerates(toleration: Obj, taint: Obj) -> bool:
    """The rule of k8s.io/api/core/v1 Toleration.ToleratesTaint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    # Without a key only Exists is valid; an empty key with Equal therefore tolerates nothing.
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(taints: Iterable[Obj], tolerations: Iterable[Obj], *effects: str) -> Obj | None:
    """The first taint with one of these effects that no toleration tolerates."""
    tolerations = list(tolerations)
    for taint in taints:
        if taint["effect"] in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def selects_node(spec: Obj, node: Obj) -> bool:
    """Whether nodeSelector and the required node affinity of a pod spec select the node; terms are alternatives, and
    within one all parts must hold."""
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(expression_holds(e, labels) for e in term.get("matchExpressions") or ())
        and all(expression_holds(e, fields) for e in term.get("matchFields") or ())
        for term in required["nodeSelectorTerms"]
        if term.get("matchExpressions") or term.get("matchFields")
    )


def not_emulated(spec: Obj) -> str | None:
    """The first hard placement rule of a pod spec that is not emulated here; a pod with one is never placed."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            return kind
    if any(c.get("whenUnsatisfiable") == "DoNotSchedule" for c in spec.get("topologySpreadConstraints") or ()):
        return "topologySpreadConstraints with DoNotSchedule"
    if spec.get("resourceClaims"):
        return "resourceClaims"
    return None


@dataclass(frozen=True)
class Room:
    """CPUs, bytes of memory, number of pods: what a node has, or what pods ask for."""

    cpus: float = 0.0
    memory: float = 0.0
    pods: float = 0.0

    def __add__(self, other: Room) -> Room:
        return Room(self.cpus + other.cpus, self.memory + other.memory, self.pods + other.pods)

    def lacking(self, wanted: Room) -> str | None:
        """The first resource of which there is not enough, in the scheduler's words."""
        slack = 1e-9  # sums of tenths of a CPU
        if wanted.pods > self.pods:
            return "Too many pods"
        if wanted.cpus > self.cpus + slack:
            return "Insufficient cpu"
        if wanted.memory > self.memory:
            return "Insufficient memory"
        return None


def allocatable(node: Obj) -> Room:
    given = (node.get("status") or {}).get("allocatable") or {}
    return Room(quantity(given.get("cpu", "0")), quantity(given.get("memory", "0")), quantity(given.get("pods", "110")))


def requested(pod: Obj) -> Room:
    """What the pod's containers request, init containers and overhead left out."""
    total = Room(pods=1)
    for container in pod["spec"]["containers"]:
        asked = (container.get("resources") or {}).get("requests") or {}
        total += Room(quantity(asked.get("cpu", "0")), quantity(asked.get("memory", "0")))
    return total


def quantity(text: str | int | float) -> float:
    """A Kubernetes resource quantity as a number. Raises ValueError for anything else."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError(f"not a resource quantity: {text!r}")
    return float(match[1]) * _SUFFIXES[match[2]]

"""What machine-controller-manager (MCM) and the API server know of a manifest and Hostler has no use for, or reads in
another place: said at `apply`, and never taken for a misspelling. docs/conformance.md has all that MCM reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resources.clouds import PROVIDERS
from resources.machine.priority import DEFAULT_PRIORITY, priority_in
from resources.names import (
    MARKED_ANNOTATION,
    PRESERVE_ANNOTATION,
    PRIORITY_ANNOTATION,
    SCALE_DOWN_DISABLED,
    TRIGGER_DELETION_ANNOTATION,
)

_QUIET = ""
"""Set by an API server or a controller: nobody has asked for anything with it."""
_SERVERS = (
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generation managedFields "
    "ownerReferences resourceVersion selfLink uid"
)
_METADATA = dict.fromkeys(_SERVERS.split(), _QUIET)
_NODES_OWN = "a node template gives labels, annotations and taints; the kubelet or the cloud sets this"

_IN_PLACE = "machines are not updated in place by an agent on the node"
_ON_THE_NODE = "the user data sets up what runs on the node"
_AUTOSCALER = "an autoscaler has options of its own"

IGNORED: Mapping[str, Mapping[str, str]] = {
    "ObjectMeta": _METADATA,
    "TemplateMeta": {
        **_METADATA,
        "name": "each machine gets a name of its own, and its Node has the VM's",
        "generateName": "each machine gets a name of its own, and its Node has the VM's",
        "namespace": "it is the manifest's own",
    },
    "ClassRef": {"namespace": "a class is known by its name and cluster"},
    "MachineSpec": {
        "maxEvictRetries": "pods are evicted until drainTimeout is over, however often that is",
        "inPlaceUpdateTimeout": _IN_PLACE,
    },
    "TemplateSpec": dict.fromkeys(
        ("configSource", "externalID", "podCIDR", "podCIDRs", "providerID", "unschedulable"), _NODES_OWN
    ),
    "Strategy": {"inPlaceUpdate": _IN_PLACE},
    "MachineControllerManager": {
        "maxEvictRetries": "pods are evicted until machineDrainTimeout is over, however often that is",
        "machineInPlaceUpdateTimeout": _IN_PLACE,
    },
    "WorkerPoolSpec": {
        **dict.fromkeys(("caBundle", "cri", "kubernetes", "kubeletDataVolumeName", "sysctls"), _ON_THE_NODE),
        "clusterAutoscaler": _AUTOSCALER,
        "priority": _AUTOSCALER,
        "controlPlane": "the machines of a control plane are a manifest of their own: ControlPlaneMachineSet",
        "systemComponents": "",
    },
    "Secret": {"immutable": "`hostler apply` writes the Secret without it, so that it can be changed"},
}
"""Fields by model, and why each does nothing; "" where that is not worth a word."""


def kind_elsewhere(kind: str) -> str:
    """What to write instead of a kind of MCM's that Hostler has not; "" for one that is not MCM's."""
    if kind == "MachineSet":
        return "a pool keeps its revisions itself: apply the MachineDeployment"
    if kind.endswith("MachineClass"):  # one for each cloud, until 2021
        cloud = next((p for p in PROVIDERS if kind.lower() == f"{p}machineclass".lower()), "CLOUD")
        return f"write a MachineClass with `provider: {cloud}`, and what stands under `spec` as `providerSpec`"
    return ""


MACHINE, POOL, TEMPLATE, NODE = "Machine", "MachineDeployment", "template", "nodeTemplate"
"""Places of labels and annotations: a manifest's own by its kind, a pool's template, a node template."""

_DELETION = "it counts on a machine's Node; for a pool's machine: `hostler scale pool POOL --remove MACHINE`"
_FREEZE = "pools are not frozen; `hostler pause cluster` stops what is voluntary"

ANNOTATIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    PRESERVE_ANNOTATION: (
        (MACHINE, TEMPLATE, NODE),
        "it counts on a Machine, a pool's template, a node template and a Node",
    ),
    PRIORITY_ANNOTATION: ((TEMPLATE, NODE), "it counts in a pool's template, and on a Node"),
    TRIGGER_DELETION_ANNOTATION: ((POOL,), "it counts on a MachineDeployment"),
    SCALE_DOWN_DISABLED: ((NODE,), "it counts on a Node; `hostler preserve` sets it there"),
    MARKED_ANNOTATION: ((NODE,), _DELETION),
    **{key: ((NODE,), "it counts in a node template") for p in PROVIDERS.values() for key in p.annotations},
    "node.machine.sapcloud.io/effective-creation-timeout": ((), "write spec.creationTimeout"),
    "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time": ((), "there are no machine sets"),
    "node.machine.sapcloud.io/not-managed-by-mcm": ((), "a Node that has no machine is left alone"),
    "safety.machine.sapcloud.io/unfreeze": ((), _FREEZE),
}
"""The annotations that MCM reads, or Hostler: where they count here, and what to do elsewhere."""

LABELS: Mapping[str, str] = {
    "force-deletion": "`hostler delete machine NAME --force`",
    "force-drain": "`hostler delete machine NAME --force`",
    "freeze": _FREEZE,
    "node.machine.sapcloud.io/scale-up-disabled": "there are no machine sets; `hostler rollout pause` holds a rollout",
    "node.machine.sapcloud.io/candidate-for-update": _IN_PLACE,
    "node.machine.sapcloud.io/selected-for-update": _IN_PLACE,
    "node.machine.sapcloud.io/update-result": _IN_PLACE,
}
"""The labels by which MCM is told something, none of which tells Hostler anything."""


AUTO_PRESERVED = "auto-preserved"
"""MCM's own value of the annotation `preserve`, for what a slot preserves."""


def without_effect(kind: str, annotations: Mapping[str, str], labels: Mapping[str, str], path: str) -> Iterator[str]:
    """`PATH: words` for what MCM would act on and Hostler does not, in this place of a manifest."""
    if annotations.get(PRESERVE_ANNOTATION) == AUTO_PRESERVED:
        yield f"{path}.annotations.{PRESERVE_ANNOTATION}: {AUTO_PRESERVED} is MCM's own mark, no wish: ignored"
    if PRIORITY_ANNOTATION in annotations and priority_in(annotations) is None:
        yield f"{path}.annotations.{PRIORITY_ANNOTATION}: not a number, so it counts as {DEFAULT_PRIORITY}"
    for key in annotations:
        places, words = ANNOTATIONS.get(key, ((kind,), ""))
        if kind not in places:
            yield f"{path}.annotations.{key}: without effect here: {words}"
    for key in labels:
        if words := LABELS.get(key, ""):
            yield f"{path}.labels.{key}: without effect: {words}"

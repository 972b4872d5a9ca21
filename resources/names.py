"""Names that more than one side must spell alike: workflow ids, task queues, label and annotation keys."""

from __future__ import annotations

import re

API_VERSION = "machine.sapcloud.io/v1alpha1"
OWN_API_VERSION = "hostler.io/v1alpha1"
"""The version of kinds that are neither Gardener's nor OpenShift's."""

# Gardener's keys (machine-controller-manager, pkg/util/provider/machineutils/utils.go), so that its users find them.
INSTANCE_NOT_READY_TAINT = "node.machine.sapcloud.io/instance-not-ready"
MACHINE_NAME_LABEL = "node.gardener.cloud/machine-name"
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels of the Nodes of a control plane: kubeadm's, and OpenShift's older one."""
TRIGGER_DELETION_ANNOTATION = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
"""On a pool, by cluster-autoscaler: `MACHINE~TIME,…`, the machines that are to go when it lowers the replicas."""
MARKED_ANNOTATION = "machine.sapcloud.io/marked-for-deletion-time"
"""On a machine's Node: it goes, whether the replicas change or not. An RFC 3339 time."""
ROLLOUT_TAINT = "deployment.machine.sapcloud.io/prefer-no-schedule"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SCALE_DOWN_DISABLED_BY = "hostler.io/scale-down-disabled-by-rollout"
"""Accompanies the one above where we have set it: one that a person has set stays."""
PRESERVE_ANNOTATION = "node.machine.sapcloud.io/preserve"
"""On a machine's Node: `now`, `when-failed` or `false` (seed 003, point 3)."""
PRIORITY_ANNOTATION = "machinepriority.machine.sapcloud.io"
"""On a machine, or on a pool's template: the lower, the earlier it is deleted when its pool shrinks."""
STARTUP_TAINTS = (
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.gardener.cloud/critical-components-not-ready",
)
"""Taints of a new node that others remove: the cloud-controller-manager (k8s.io/cloud-provider), Gardener's resource
manager (machine-controller-manager's essential taint). Until then the node takes no work and its machine is Pending."""

CLUSTER_PREFIX = "kubernetes.io/cluster/"
ROLE_PREFIX = "kubernetes.io/role/"
MUST_PREFIXES = (CLUSTER_PREFIX, ROLE_PREFIX)
"""Prefixes of the tags by which Gardener's tools find whose a resource is (seed 002, must-tags)."""

# Our own keys.
CLUSTER_ANNOTATION = "hostler.io/cluster"
"""On a manifest: the cluster it belongs to, when not the default and not given by --cluster."""
SCALE_DOWN_DISABLED_BY_PRESERVATION = "hostler.io/scale-down-disabled-by-preservation"
"""On a preserved machine's Node: its name, and after `=` what a person had set, which is restored when it ends."""
CORDON_ANNOTATION = "hostler.io/cordoned-by"
"""On a node that our drain cordoned: the machine's name. A cordon without it is a person's."""

UPDATE_CONCURRENCY_ANNOTATION = "hostler.io/update-concurrency"
"""On a MachineClass, for its changes, and on a pool, for those of its template: how many of its machines may be told of
a change and not have finished it."""
UPDATES_AFTER_ANNOTATION = "hostler.io/updates-after"
"""On a MachineClass the class, on a pool the pool, whose machines are updated before its own, as both share one
budget."""

WORKER_POOL_LABEL = "hostler.io/worker-pool"
"""On what a WorkerPool is made of, in each zone a MachineDeployment and its MachineClass: the worker pool's name."""
GARDENER_POOL_LABEL = "worker.gardener.cloud/pool"
"""The same for Gardener's users; also on the Nodes."""
ZONE_LABEL = "topology.kubernetes.io/zone"
WORKER_POOL_ANNOTATION = "hostler.io/worker-pool-spec"
"""On each zone's MachineDeployment: the WorkerPool as it was applied, as JSON. No workflow keeps it."""

TAG_OWNER = "hostler.io/owner"
TAG_CLUSTER = "hostler.io/cluster"
TAG_MACHINE = "hostler.io/machine"
TAG_UID = "hostler.io/uid"
TAG_INSTALLATION = "hostler.io/installation"
"""Which Hostler made it: two may have a cluster of the same name in one account. VMs older than this tag have none."""
TAG_RELEASED = "hostler.io/released-by"
"""On a volume or NIC that outlives its machine because the spec says so; replaces the five above."""
OWNER = "hostler"

DEFAULT_CLUSTER = "default"
DEFAULT_QUEUE = "hostler"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Whether it is a lowercase RFC 1123 subdomain, as Kubernetes wants names."""
    return _NAME.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether it may also be a label's value on a Node, as a machine's name is (63 characters)."""
    return is_name(text) and len(text) <= 63


def is_segment(text: str) -> bool:
    """Whether an object of the Kubernetes API may have this name, as a part of a URL's path (apimachinery,
    ValidatePathSegmentName). Clients remove `..`, quoted or not, together with what stands before it."""
    return text not in ("", ".", "..") and "/" not in text and "%" not in text


def machine_id(cluster: str, name: str) -> str:
    return f"machine/{cluster}/{name}"


def cluster_id(cluster: str) -> str:
    return f"cluster/{cluster}"


def class_id(cluster: str, name: str) -> str:
    return f"machineclass/{cluster}/{name}"


def pool_id(cluster: str, name: str) -> str:
    return f"machinedeployment/{cluster}/{name}"


def rollout_id(cluster: str, pool: str, revision: int) -> str:
    return f"rollout/{cluster}/{pool}/{revision}"


def machine_configs_id(cluster: str) -> str:
    return f"machineconfigs/{cluster}"


def config_pool_id(cluster: str, name: str) -> str:
    return f"machineconfigpool/{cluster}/{name}"


def config_pool_listed(name: str) -> str:
    """A config pool's name in HostlerPool, beside those of pools of machines."""
    return f"mcp/{name}"


def config_pool_of(listed: str) -> str:
    """The config pool that is listed so; "" where it is none."""
    return listed.removeprefix("mcp/") if listed.startswith("mcp/") else ""


def config_rollout_id(cluster: str, pool: str, config: str) -> str:
    return f"configrollout/{cluster}/{pool}/{config}"


def id_parts(workflow_id: str, count: int) -> list[str]:
    """What a workflow's id says after its kind, such as cluster and name. If somebody has started it under an id of
    another form, the last part is the whole id."""
    parts = workflow_id.split("/", count)[1:]
    return parts if len(parts) == count else [""] * (count - 1) + [workflow_id]


def sweep_id(cluster: str, sweep: str) -> str:
    return f"orphans/{cluster}/{sweep}"


def workflow_queue(prefix: str = DEFAULT_QUEUE) -> str:
    """The queue of workflows, and of activities that only use Temporal's client."""
    return prefix


def cluster_queue(cluster: str, prefix: str = DEFAULT_QUEUE) -> str:
    """The queue of activities that use the Kubernetes API of a cluster."""
    return f"{prefix}-cluster-{cluster}"


def watch_queue(cluster: str, prefix: str = DEFAULT_QUEUE) -> str:
    """The queue of watches alone: each holds its slot forever."""
    return f"{prefix}-watch-{cluster}"


def drain_queue(cluster: str, prefix: str = DEFAULT_QUEUE) -> str:
    return f"{prefix}-drain-{cluster}"


def cloud_queue(provider: str, prefix: str = DEFAULT_QUEUE, own: str = "") -> str:
    """The queue of driver calls. `own`: of those accounts to whom the settings give this one of their own."""
    return f"{prefix}-cloud-{provider.lower()}" + (f"-{own}" if own else "")

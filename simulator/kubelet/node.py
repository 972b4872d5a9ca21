"""The Node object of a simulated kubelet: registration, status and Lease, in the words of the real kubelet."""

from __future__ import annotations

import uuid
from typing import Any

from simulator.client import Obj, micro_timestamp, timestamp
from simulator.kubelet.machine import Registration, Vm

KUBELET_VERSION = "v1.36.3"
LEASE_NAMESPACE = "kube-node-lease"

_READY = ("KubeletReady", "kubelet is posting ready status")
_NOT_READY = (
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized",
)
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


def node_object(vm: Vm, registration: Registration) -> Obj:
    """The Node as it is created: with its status, Ready=False, like the real kubelet's initialNode."""
    spec: Obj = {}
    if registration.provider_id is not None:
        spec["providerID"] = registration.provider_id
    if registration.taints:
        spec["taints"] = [dict(taint) for taint in registration.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": registration.node_name,
            "labels": {**registration.labels, **default_labels(vm, registration.node_name)},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": spec,
        "status": {**node_facts(vm), "conditions": node_conditions(None, ready=False)},
    }


def default_labels(vm: Vm, node_name: str) -> dict[str, str]:
    """The labels that kubelet itself keeps right on its Node, even on one that existed before (updateDefaultLabels)."""
    arch = vm.size.architecture
    labels = {
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/instance-type": vm.instance_type,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": vm.region,
        "failure-domain.beta.kubernetes.io/zone": vm.zone,
        "kubernetes.io/arch": arch,
        "kubernetes.io/hostname": node_name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": vm.instance_type,
        "topology.kubernetes.io/region": vm.region,
        "topology.kubernetes.io/zone": vm.zone,
    }
    return {key: value for key, value in labels.items() if value}


def node_facts(vm: Vm) -> Obj:
    """The part of the status that stays the same from boot to boot: addresses, capacity, nodeInfo."""
    resources = {
        "cpu": str(vm.size.cpus),
        "memory": f"{vm.size.memory_mib * 1024}Ki",
        "pods": str(vm.size.pods),
        "ephemeral-storage": f"{20 * 1024 * 1024}Ki",
    }
    unique = uuid.uuid5(uuid.NAMESPACE_DNS, vm.provider_id)
    return {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": vm.private_ip},
            {"type": "InternalDNS", "address": vm.private_dns_name},
            {"type": "Hostname", "address": vm.private_dns_name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": vm.size.architecture,
            "bootID": str(uuid.uuid4()),
            "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.0-simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": unique.hex,
            "operatingSystem": "linux",
            "osImage": "Simulated Linux",
            "systemUUID": str(unique),
        },
    }


def node_conditions(node: Obj | None, *, ready: bool) -> list[Obj]:
    """The conditions that kubelet owns, as a strategic merge patch takes them.

    `node` is the Node as the API server has it now: a condition that says the same there keeps its
    lastTransitionTime, one that node lifecycle made Unknown meanwhile gets a new one.
    """
    now = timestamp()
    posted = {c["type"]: c for c in ((node or {}).get("status") or {}).get("conditions", ())}

    def condition(type_: str, status: str, reason: str, message: str) -> Obj:
        old = posted.get(type_, {})
        return {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == status else now,
        }

    return [
        *(condition(type_, "False", *words) for type_, words in _PRESSURES.items()),
        condition("Ready", str(ready), *(_READY if ready else _NOT_READY)),
    ]


def lease_object(node: Obj, seconds: float) -> Obj:
    """The Lease of a Node, renewed now. It belongs to its Node, so that it is collected with it."""
    meta = node["metadata"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": meta["name"],
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}],
        },
        "spec": {
            "holderIdentity": meta["name"],
            "leaseDurationSeconds": max(1, round(seconds)),
            "renewTime": micro_timestamp(),
        },
    }


def renewal() -> dict[str, Any]:
    """A merge patch that renews a Lease: one small write, without a read and without a conflict."""
    return {"spec": {"renewTime": micro_timestamp()}}

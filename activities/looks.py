"""Fresh reads of a machine's Node and its kubelet's Lease: a plain GET is answered by etcd's quorum, from no cache.

A Node is a machine's by its providerID alone: names are given again (machine-controller-manager #633), and a kubelet
may register under another one than the cloud promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from activities.kube import Kube, node_path
from resources.names import MACHINE_NAME_LABEL, provider_key

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass(frozen=True)
class Found:
    node: dict[str, Any] | None = None
    """The Node of the VM, as JSON."""
    namesake: dict[str, Any] | None = None
    """The Node of the expected name, where it is not, or not yet, known to be the VM's."""


async def find_node(kube: Kube, machine: str, node_name: str | None, provider_id: str) -> Found:
    """By name, else by label; either way the providerID decides. Raises KubeError."""
    named = await kube.find(node_path(node_name)) if node_name else None
    if named is not None and is_of(named, provider_id):
        return Found(node=named)
    return Found(node=await labelled_node(kube, machine, provider_id), namesake=named)


async def labelled_nodes(kube: Kube, machine: str, provider_id: str) -> list[dict[str, Any]]:
    """The VM's Nodes that the watch has labelled with the machine's name: one, or twins. Raises KubeError."""
    labelled = await kube.get("/api/v1/nodes", labelSelector=f"{MACHINE_NAME_LABEL}={machine}")
    return [n for n in labelled["items"] if is_of(n, provider_id)]


async def labelled_node(kube: Kube, machine: str, provider_id: str) -> dict[str, Any] | None:
    """The Node that counts. Raises KubeError."""
    mine = await labelled_nodes(kube, machine, provider_id)
    # Of two the newer one counts, as the watch has it; times are whole seconds, so the name decides a tie.
    return max(mine, key=lambda n: (n["metadata"]["creationTimestamp"], n["metadata"]["name"]), default=None)


async def lease_renewed(kube: Kube, node_name: str) -> datetime | None:
    """renewTime, by the kubelet's own clock; None when there is no Lease or nobody renewed it. Raises KubeError."""
    lease = await kube.find(f"{LEASES}/{quote(node_name)}")
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return datetime.fromisoformat(renewed) if renewed else None


def ready_status(node: dict[str, Any]) -> str:
    """Status of the condition Ready as it is: True, False, Unknown; "" when nobody has set it."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def transitions(node: dict[str, Any]) -> dict[str, datetime]:
    """When each condition became what it is. One that says no time is left out."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {
        c["type"]: datetime.fromisoformat(c["lastTransitionTime"]) for c in conditions if c.get("lastTransitionTime")
    }


def provider_id_of(node: dict[str, Any]) -> str:
    return str((node.get("spec") or {}).get("providerID") or "")


def is_of(node: dict[str, Any], provider_id: str) -> bool:
    theirs = provider_id_of(node)
    return bool(theirs) and provider_key(theirs) == provider_key(provider_id)


def another_vm(node: dict[str, Any], provider_id: str | None) -> bool:
    """A Node that another VM has registered under the name: names are given again."""
    if not provider_id or not provider_id_of(node):
        return False
    return not is_of(node, provider_id)

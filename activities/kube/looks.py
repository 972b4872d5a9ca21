"""Fresh reads of a machine's Nodes and their kubelets' Leases: a plain GET is answered by etcd's quorum, not by a
cache.

`activities.kube.whose` decides which Node is a machine's, and which counts where there are several.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.kube.client import Kube, KubeError, node_path, segment
from activities.kube.whose import Rival, Whose, is_of, provider_id_of, ready_status, the_one, whose
from resources.base import read_time
from resources.calls.machine import AtNode
from resources.clouds import provider_key
from resources.names import MACHINE_NAME_LABEL

NODES = "/api/v1/nodes"
PAGE = "500"
"""Nodes in one answer where all are read: those of a large cluster are not held at once."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass(frozen=True)
class Found:
    node: dict[str, Any] | None = None
    """The VM's Node, as JSON; where there are several, the one that counts."""
    namesake: dict[str, Any] | None = None
    """The Node of the expected name, where it is not, or not yet, known to be the VM's."""


async def find_node(kube: Kube, machine: str, node_name: str | None, provider_id: str, uid: str = "") -> Found:
    """Finds the Node by name and by label. `uid`: of the Node object that the machine knows. Raises KubeError."""
    named = await kube.find(node_path(node_name)) if node_name else None
    ours = named is not None and whose(named, provider_id, uid) is Whose.OURS
    if ours and named is not None and ready_status(named) == "True":
        return Found(node=named)  # no other could displace it
    nodes = {n["metadata"]["name"]: n for n in await labelled_nodes(kube, machine, provider_id)}
    if ours and named is not None:
        nodes[named["metadata"]["name"]] = named
    return Found(node=counting(list(nodes.values()), uid), namesake=None if ours else named)


async def labelled_nodes(kube: Kube, machine: str, provider_id: str) -> list[dict[str, Any]]:
    """The VM's Nodes that the watch has labelled with the machine's name: one, or twins. Raises KubeError."""
    return [n for n in await labelled(kube, machine) if is_of(n, provider_id)]


async def labelled(kube: Kube, machine: str) -> list[dict[str, Any]]:
    """Every Node that has the machine's name as its label, which proves nothing. Raises KubeError."""
    items: list[dict[str, Any]] = (await kube.get(NODES, labelSelector=f"{MACHINE_NAME_LABEL}={machine}"))["items"]
    return items


async def nodes_of(kube: Kube, vms: Collection[str]) -> list[dict[str, Any]]:
    """The Nodes of VMs, by their provider_key, among all of the cluster: no selector knows spec.providerID. Without any
    VM nothing is read. Raises KubeError."""
    return [n async for n in every_node(kube) if provider_key(provider_id_of(n)) in vms] if vms else []


async def every_node(kube: Kube, **query: str) -> AsyncIterator[dict[str, Any]]:
    """Every Node, or those of a query, page by page. Raises KubeError."""
    async for page in pages(kube, NODES, PAGE, **query):
        for node in page["items"]:
            yield node


async def pages(kube: Kube, path: str, limit: str, **query: str) -> AsyncIterator[dict[str, Any]]:
    """A list, page by page; all pages show one moment. Raises KubeError."""
    query["limit"] = limit
    while True:
        page = await kube.get(path, **query)
        yield page
        if not (more := page["metadata"].get("continue")):
            return
        query["continue"] = more


async def labelled_node(kube: Kube, machine: str, provider_id: str) -> dict[str, Any] | None:
    """The labelled Node that counts. Raises KubeError."""
    return counting(await labelled_nodes(kube, machine, provider_id))


def counting(nodes: list[dict[str, Any]], uid: str = "") -> dict[str, Any] | None:
    """The one that counts among a VM's Nodes. One look cannot see whether a Lease moves: a Ready Node is taken at its
    word."""
    if not nodes:
        return None
    one = the_one(map(Rival.of, nodes), {uid})
    return next(n for n in nodes if n["metadata"]["name"] == one.name)


async def our_node(kube: Kube, input: AtNode) -> dict[str, Any] | None:
    """The Node; None when it is gone, or when its name is no longer, or not surely, our VM's. Raises KubeError."""
    node = await kube.find(node_path(input.node_name))
    return node if node is not None and whose(node, input.provider_id, input.node_uid) is Whose.OURS else None


async def the_node(kube: Kube, input: AtNode) -> dict[str, Any]:
    """Like `our_node`. Raises KubeError, 404 where that is None."""
    node = await our_node(kube, input)
    if node is None:
        words = f"node {input.node_name} is gone, or is no longer known to belong to {input.provider_id}"
        raise KubeError(404, "NotFound", words)
    return node


async def lease_renewed(kube: Kube, node_name: str) -> datetime | None:
    """renewTime, by the kubelet's own clock; None when there is no Lease or it was never renewed. Raises KubeError."""
    lease = await kube.find(f"{LEASES}/{segment(node_name)}")
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return read_time(renewed)


def transitions(node: dict[str, Any]) -> dict[str, datetime]:
    """When each condition changed to its present status. A condition without a time, or without a readable one, is left
    out."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {c["type"]: time for c in conditions if (time := read_time(c.get("lastTransitionTime")))}

"""The Nodes of a cluster's control plane, and whose they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity

from activities.base import Activities
from activities.clock import ServerClock
from activities.kube.looks import NODES
from activities.kube.whose import provider_id_of
from activities.temporal.vm_owners import machines_of
from resources.base import read_time
from resources.calls.cluster import ControlPlaneNode, ControlPlaneNodes, ControlPlaneNodesInput
from resources.clouds import provider_key
from resources.names import CONTROL_PLANE_LABELS, MACHINE_NAME_LABEL

YOUNG = timedelta(minutes=1)
"""A Node this young may have a machine of which nothing is listed yet: it is left out until it has one."""


class ControlPlaneActivities(Activities):
    role = "cluster"

    @activity.defn
    async def find_control_plane_nodes(self, input: ControlPlaneNodesInput) -> ControlPlaneNodes:
        """Every Node with a control plane's role. Its machine is the one that has its VM, as Temporal lists it; the
        label, which anybody may write, serves where the list is late."""
        kube = await self.deps.clusters.get(input.cluster)
        found: dict[str, dict[str, Any]] = {}
        for label in CONTROL_PLANE_LABELS:
            items = (await kube.get(NODES, labelSelector=label))["items"]
            found |= {node["metadata"]["name"]: node for node in items}
        vms = {name: vm for name, node in found.items() if (vm := provider_id_of(node))}
        machines = await machines_of(self.deps.client, input.cluster, vms.values())
        now = ServerClock().now()
        nodes = []
        for name, node in sorted(found.items()):
            labels = node["metadata"].get("labels") or {}
            machine = machines.get(provider_key(vms.get(name, "")), "") or labels.get(MACHINE_NAME_LABEL, "")
            made = read_time(node["metadata"].get("creationTimestamp"))
            if machine or made is None or now - made >= YOUNG:
                nodes.append(ControlPlaneNode(name=name, machine=machine))
        return ControlPlaneNodes(nodes=nodes)

"""The DaemonSet controller: one pod on every node that it is meant for, bound when it is created.

It follows pkg/controller/daemon of Kubernetes; there the scheduler binds the pod, by an affinity to that one node. A
changed pod template takes effect as with the update strategy OnDelete: pods that run stay as they are, and count as not
updated.
"""

from __future__ import annotations

from simulator.client import KubeClient, Obj
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import (
    is_controlled_by,
    is_deleting,
    is_true,
    labels_of,
    node_of,
    pod_from_template,
    status_differs,
    template_hash,
)
from simulator.controllers.scheduling import effective_taints, selects_node, untolerated

HASH_LABEL = "controller-revision-hash"

# util.AddOrUpdateDaemonPodTolerations: a daemon stays on a sick node, and starts on a cordoned one. It does not start
# on a node with the not-ready:NoSchedule taint unless its own tolerations say so, as those of network plugins do.
_TOLERATIONS = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
]


class DaemonSets(Controller):
    def __init__(
        self, client: KubeClient, daemonsets: Informer, nodes: Informer, pods: Informer, *, resync: float
    ) -> None:
        super().__init__(client, (daemonsets, nodes, pods), resync)
        self._daemonsets = daemonsets
        self._nodes = nodes
        self._pods = pods

    async def sync(self) -> float | None:
        for daemonset in self._daemonsets:
            if not is_deleting(daemonset):
                await self._reconcile(daemonset)
        return None

    async def _reconcile(self, daemonset: Obj) -> None:
        template = _template(daemonset)
        running: dict[str, list[Obj]] = {}
        for pod in self._pods:
            if is_controlled_by(pod, daemonset):
                running.setdefault(node_of(pod) or "", []).append(pod)
        desired, misscheduled, here = 0, 0, []
        for node in self._nodes:
            name = node["metadata"]["name"]
            pods = running.get(name, [])
            should_run, may_stay = _judge(template["spec"], node)
            desired += should_run
            if should_run and not pods:  # one that is still being deleted holds the place
                pods = await self._create(template, name)
            for pod in pods:
                failed = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
                if (failed or not may_stay) and not is_deleting(pod):
                    await self._delete(pod)
            if should_run:
                here += pods[:1]
            else:
                misscheduled += bool(pods)
        await self._report(daemonset, desired, misscheduled, here)

    async def _create(self, template: Obj, node_name: str) -> list[Obj]:
        body = {**template, "spec": {**template["spec"], "nodeName": node_name}}
        created = await self.attempt(self.client.create("pods", body, body["metadata"]["namespace"]))
        if created is None:
            return []
        self._pods.remember(created)
        return [created]

    async def _delete(self, pod: Obj) -> None:
        meta = pod["metadata"]
        await self.attempt(self.client.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"]))

    async def _report(self, daemonset: Obj, desired: int, misscheduled: int, pods: list[Obj]) -> None:
        meta = daemonset["metadata"]
        ready = sum(1 for pod in pods if is_true(pod, "Ready") and not is_deleting(pod))
        current = template_hash(daemonset)
        status = {
            "observedGeneration": meta["generation"],
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": len(pods),
            "updatedNumberScheduled": sum(1 for pod in pods if labels_of(pod).get(HASH_LABEL) == current),
            "numberMisscheduled": misscheduled,
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": desired - ready,
        }
        if status_differs(daemonset, status):
            written = await self.attempt(
                self.client.patch("daemonsets", meta["name"], {"status": status}, meta["namespace"], sub="status")
            )
            if written is not None:
                self._daemonsets.remember(written)


def _template(daemonset: Obj) -> Obj:
    """The DaemonSet's pod, except for the node that it goes to."""
    pod = pod_from_template(daemonset, "apps/v1", "DaemonSet")
    pod["metadata"]["labels"][HASH_LABEL] = template_hash(daemonset)
    pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or ()), *_TOLERATIONS]
    return pod


def _judge(spec: Obj, node: Obj) -> tuple[bool, bool]:
    """(should run, may stay): NodeShouldRunDaemonPod. A NoSchedule taint keeps a new daemon out only."""
    if is_deleting(node) or not selects_node(spec, node):
        return False, False
    taints, tolerations = effective_taints(node), spec["tolerations"]
    should_run = untolerated(taints, tolerations, "NoSchedule", "NoExecute") is None
    return should_run, untolerated(taints, tolerations, "NoExecute") is None

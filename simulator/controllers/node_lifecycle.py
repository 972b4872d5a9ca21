"""Node lifecycle: silent nodes become Unknown, conditions become taints, and both are taken back on recovery.

It follows pkg/controller/nodelifecycle of Kubernetes, including its wording.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from simulator.client import KubeClient, Obj, PatchType, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import condition, is_true, node_of
from simulator.controllers.scheduling import NOT_READY, UNREACHABLE, UNSCHEDULABLE

LEASE_NAMESPACE = "kube-node-lease"

_WATCHED_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_MANAGED = {
    *((key, "NoSchedule") for key in (NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURE_TAINTS.values())),
    (NOT_READY, "NoExecute"),
    (UNREACHABLE, "NoExecute"),
}


@dataclass(frozen=True)
class _Pulse:
    """The last sign of life that was seen from a node, and when, by our own clock: the kubelet's clock may be wrong."""

    sign: tuple[str | None, str | None]
    seen_at: float


class OwnTime:
    """A clock that stands still while its process does.

    Kubelets are beside us, and a grace period may be two seconds: where the whole computer stands still for longer,
    nobody was silent.
    """

    TICK = 0.1

    def __init__(self) -> None:
        self.now = 0.0

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        before = clock()
        while True:
            await asyncio.sleep(self.TICK)
            now = clock()
            self.now += min(now - before, 2 * self.TICK)
            before = now


class NodeLifecycle(Controller):
    """`grace` is kube-controller-manager's --node-monitor-grace-period, in seconds of our own time.

    The period begins again when this controller starts: what happened before is not known (the real one does the same).
    """

    def __init__(
        self, client: KubeClient, nodes: Informer, leases: Informer, pods: Informer, *, grace: float, resync: float
    ) -> None:
        super().__init__(client, (nodes, leases, pods), resync)
        self._nodes = nodes
        self._leases = leases
        self._pods = pods
        self._grace = grace
        self._pulses: dict[str, _Pulse] = {}
        self._time = OwnTime()

    async def run(self) -> None:
        ticking = asyncio.create_task(self._time.run())
        try:
            await super().run()
        finally:
            ticking.cancel()

    async def sync(self) -> float | None:
        next_due: float | None = None
        present = self._nodes.uids()
        self._pulses = {uid: pulse for uid, pulse in self._pulses.items() if uid in present}
        for node in self._nodes:
            remaining = self._grace - self._silence(node)
            if remaining > 0:
                next_due = remaining if next_due is None else min(next_due, remaining)
            else:
                node = await self._mark_unknown(node)
            node = await self._taint(node)
            if _is_unknown(node):
                await self._mark_pods(node)
        return next_due

    def _silence(self, node: Obj) -> float:
        """Seconds since the node's Lease or its Ready condition last moved."""
        meta = node["metadata"]
        lease = self._leases.get(meta["name"], LEASE_NAMESPACE)
        ready = condition(node, "Ready")
        sign = (
            (lease["spec"] or {}).get("renewTime") if lease is not None else None,
            ready.get("lastHeartbeatTime") if ready is not None else None,
        )
        pulse = self._pulses.get(meta["uid"])
        if pulse is None or pulse.sign != sign:
            pulse = self._pulses[meta["uid"]] = _Pulse(sign, self._time.now)
        return self._time.now - pulse.seen_at

    async def _mark_unknown(self, node: Obj) -> Obj:
        now = timestamp()
        changed = []
        for type_ in _WATCHED_CONDITIONS:
            current = condition(node, type_)
            if current is None:
                changed.append(
                    {
                        "type": type_,
                        "status": "Unknown",
                        "reason": "NodeStatusNeverUpdated",
                        "message": "Kubelet never posted node status.",
                        "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                        "lastTransitionTime": now,
                    }
                )
            elif current["status"] != "Unknown":
                changed.append(
                    {
                        **current,
                        "status": "Unknown",
                        "reason": "NodeStatusUnknown",
                        "message": "Kubelet stopped posting node status.",
                        "lastTransitionTime": now,
                    }
                )
        if not changed:
            return node
        # With the version that was judged: a kubelet that has just posted must win.
        body = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "status": {"conditions": changed},
        }
        return await self._write(node, body, sub="status")

    async def _taint(self, node: Obj) -> Obj:
        """Writes the taint. Read-modify-write of the whole list, as it is atomic; others' taints keep their places."""
        taints: list[Obj] = node["spec"].get("taints") or []
        wanted = _wanted_taints(node)
        kept = [t for t in taints if (t["key"], t["effect"]) not in _MANAGED - wanted]
        there = {(t["key"], t["effect"]) for t in kept}
        now = timestamp()
        added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in sorted(wanted - there)]
        if not added and len(kept) == len(taints):
            return node
        version = node["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": kept + added or None}}
        return await self._write(node, body, sub=None)

    async def _write(self, node: Obj, body: Obj, sub: str | None) -> Obj:
        name = node["metadata"]["name"]
        # Conditions merge by type, the taints are replaced as a whole.
        kind: PatchType = "strategic" if sub else "merge"
        written = await self.attempt(self.client.patch("nodes", name, body, sub=sub, kind=kind))
        if written is None:
            return node
        self._nodes.remember(written)
        return written

    async def _mark_pods(self, node: Obj) -> None:
        """Marks the pods of a silent node as no longer ready; its kubelet corrects that if it comes back. (A kubelet
        that is alive and says Ready=False would correct it at once: nothing is done then.)"""
        for pod in self._pods:
            if node_of(pod) != node["metadata"]["name"] or not is_true(pod, "Ready"):
                continue
            meta = pod["metadata"]
            ready = {"type": "Ready", "status": "False", "lastTransitionTime": timestamp()}
            body = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [ready]}}
            written = await self.attempt(
                self.client.patch("pods", meta["name"], body, meta["namespace"], sub="status", kind="strategic")
            )
            if written is not None:
                self._pods.remember(written)


def _is_unknown(node: Obj) -> bool:
    ready = condition(node, "Ready")
    return ready is not None and ready["status"] == "Unknown"


def _wanted_taints(node: Obj) -> set[tuple[str, str]]:
    wanted = {(key, "NoSchedule") for type_, key in _PRESSURE_TAINTS.items() if is_true(node, type_)}
    if node["spec"].get("unschedulable"):
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    ready = condition(node, "Ready")
    if ready is not None and ready["status"] != "True":
        key = NOT_READY if ready["status"] == "False" else UNREACHABLE
        wanted |= {(key, "NoSchedule"), (key, "NoExecute")}
    return wanted

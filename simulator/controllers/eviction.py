"""Taint eviction: pods leave a node with a NoExecute taint that they do not tolerate, or no longer tolerate.

It follows pkg/controller/tainteviction of Kubernetes: it deletes, and asks no disruption budget.
"""

from __future__ import annotations

import asyncio
import math

from simulator.client import KubeClient, Obj, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import is_deleting, is_finished, node_of
from simulator.controllers.scheduling import NOT_READY, UNREACHABLE, tolerates

# What the admission plugin DefaultTolerationSeconds gives to every pod that says nothing about these two taints.
DEFAULT_SECONDS = 300.0


class TaintEviction(Controller):
    def __init__(self, client: KubeClient, pods: Informer, nodes: Informer, *, resync: float) -> None:
        super().__init__(client, (pods, nodes), resync)
        self._pods = pods
        self._nodes = nodes
        self._since: dict[tuple[str, str], float] = {}  # (pod uid, taint key) -> first seen by our clock
        self._clock = asyncio.get_running_loop().time

    async def sync(self) -> float | None:
        now = self._clock()
        since, next_due = self._since, math.inf
        self._since = {}
        for pod in self._pods:
            node = self._nodes.get(node_of(pod) or "")
            if node is None or is_deleting(pod) or is_finished(pod):
                continue
            for taint in node["spec"].get("taints") or ():
                if taint["effect"] != "NoExecute":
                    continue
                mark = (pod["metadata"]["uid"], taint["key"])
                self._since[mark] = since.get(mark, now)
                remaining = self._since[mark] + _tolerated_for(pod, taint) - now
                if remaining <= 0:
                    await self._evict(pod)
                    break
                next_due = min(next_due, remaining)
        return None if math.isinf(next_due) else next_due

    async def _evict(self, pod: Obj) -> None:
        meta = pod["metadata"]
        why = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": timestamp(),
        }
        body = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [why]}}
        patch = self.client.patch("pods", meta["name"], body, meta["namespace"], sub="status", kind="strategic")
        if await self.attempt(patch) is not None:
            await self.attempt(self.client.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"]))


def _tolerated_for(pod: Obj, taint: Obj) -> float:
    """Seconds for which the pod tolerates the taint; infinite without a limit, 0 when not at all."""
    matching = [t for t in pod["spec"].get("tolerations") or () if tolerates(t, taint)]
    if not matching:
        return DEFAULT_SECONDS if taint["key"] in (NOT_READY, UNREACHABLE) else 0.0
    limits = [float(t["tolerationSeconds"]) for t in matching if t.get("tolerationSeconds") is not None]
    return max(0.0, min(limits, default=math.inf))

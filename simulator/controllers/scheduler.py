"""The scheduler: binds pending pods to the node with the fewest pods among those that will take them.

It honours nodeSelector, required node affinity, cordons, taints, and the room for CPU, memory and pods. A pod with
another hard placement rule stays Pending, and its PodScheduled condition names the rule.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from simulator.client import KubeClient, Obj, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import condition, is_deleting, is_finished, node_of
from simulator.controllers.scheduling import (
    UNSCHEDULABLE,
    Room,
    allocatable,
    effective_taints,
    not_emulated,
    requested,
    selects_node,
    untolerated,
)


class Scheduler(Controller):
    def __init__(self, client: KubeClient, pods: Informer, nodes: Informer, *, resync: float) -> None:
        super().__init__(client, (pods, nodes), resync)
        self._pods = pods
        self._nodes = nodes
        self._assumed: dict[str, str] = {}  # pod uid -> node: bound, but the cache does not show it yet

    async def sync(self) -> float | None:
        pods = list(self._pods)
        unbound = {pod["metadata"]["uid"] for pod in pods if node_of(pod) is None}
        self._assumed = {uid: node for uid, node in self._assumed.items() if uid in unbound}
        used: dict[str, Room] = {}
        for pod in pods:
            node = node_of(pod) or self._assumed.get(pod["metadata"]["uid"])
            if node is not None and not is_finished(pod):
                used[node] = used.get(node, Room()) + requested(pod)
        waiting = sorted(filter(self._is_waiting, pods), key=lambda p: p["metadata"]["creationTimestamp"])
        candidates = [_Candidate(node) for node in self._nodes]
        # Decisions are made one after the other, each with the room that the ones before it leave, and written all at
        # once.
        await asyncio.gather(*[self._place(pod, candidates, used) for pod in waiting])
        return None

    def _is_waiting(self, pod: Obj) -> bool:
        spec = pod["spec"]
        return (
            node_of(pod) is None
            and pod["metadata"]["uid"] not in self._assumed
            and not is_deleting(pod)
            and not is_finished(pod)
            and not spec.get("schedulingGates")
            and spec.get("schedulerName", "default-scheduler") == "default-scheduler"
        )

    def _place(self, pod: Obj, candidates: list[_Candidate], used: dict[str, Room]) -> Coroutine[Any, Any, None]:
        """Decides now; the returned coroutine writes the decision."""
        rule = not_emulated(pod["spec"])
        if rule is not None:
            return self._say(pod, f"the simulated scheduler does not emulate {rule}")
        wanted = requested(pod)
        refusals: Counter[str] = Counter()
        fitting: list[str] = []
        for candidate in candidates:
            why = candidate.refusal(pod["spec"], wanted, used.get(candidate.name, Room()))
            if why is None:
                fitting.append(candidate.name)
            else:
                refusals[why] += 1
        if not fitting:
            reasons = ", ".join(f"{count} {why}" for why, count in sorted(refusals.items())) or "no nodes"
            return self._say(pod, f"0/{len(candidates)} nodes are available: {reasons}.")
        name = min(fitting, key=lambda n: (used.get(n, Room()).pods, n))
        used[name] = used.get(name, Room()) + wanted
        return self._bind(pod, name)

    async def _bind(self, pod: Obj, node: str) -> None:
        if await self.attempt(self.client.bind(pod, node)) is not None:
            self._assumed[pod["metadata"]["uid"]] = node

    async def _say(self, pod: Obj, message: str) -> None:
        current = condition(pod, "PodScheduled")
        if current is not None and current["status"] == "False" and current.get("message") == message:
            return
        meta = pod["metadata"]
        wanted = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": timestamp(),
        }
        body = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [wanted]}}
        written = await self.attempt(
            self.client.patch("pods", meta["name"], body, meta["namespace"], sub="status", kind="strategic")
        )
        if written is not None:
            self._pods.remember(written)


class _Candidate:
    """A node, with what is the same for all pods of a pass computed once."""

    def __init__(self, node: Obj) -> None:
        self.name: str = node["metadata"]["name"]
        self._node = node
        self._taints = effective_taints(node)
        self._room = allocatable(node)

    def refusal(self, spec: Obj, wanted: Room, used: Room) -> str | None:
        """Why the node does not take the pod, in the scheduler's words; None when it does."""
        if is_deleting(self._node):
            return "node(s) were being deleted"
        if not selects_node(spec, self._node):
            return "node(s) didn't match Pod's node affinity/selector"
        taint = untolerated(self._taints, spec.get("tolerations") or (), "NoSchedule", "NoExecute")
        if taint is not None:
            if taint["key"] == UNSCHEDULABLE:
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"
        room = self._room
        return Room(room.cpus - used.cpus, room.memory - used.memory, room.pods - used.pods).lacking(wanted)

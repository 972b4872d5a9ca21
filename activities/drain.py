"""Draining a Node: one short pass per attempt, until the pods are gone and their volumes are detached.

Which pods are left alone is kubectl's rule (kubectl drain, pkg/drain/filters.go): mirror pods, DaemonSet pods, and
those that have finished. A pod is evicted, never deleted, while a disruption budget can be honoured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from temporalio import activity

from activities.boundary import NotYet, last_progress, progress
from activities.clock import Clock
from activities.deps import Deps
from activities.events import tell
from activities.kube import Kube, KubeError, node_path
from resources.messages import DrainInput, DrainOutput
from resources.names import CORDON_ANNOTATION, provider_key

MIRROR = "kubernetes.io/config.mirror"
DEAD_AFTER = timedelta(minutes=5)
"""MCM: a node NotReady for so long has a dead kubelet; nobody will confirm that its pods have stopped."""
BLOCKERS_SHOWN = 3


@dataclass
class Pass:
    """What one look at the node found."""

    moving: list[str] = field(default_factory=list)
    """Pods that are going."""
    blocked: list[str] = field(default_factory=list)
    """Pods that an eviction was refused for, with the words of the refusal."""
    abandoned: list[str] = field(default_factory=list)
    """Pods that nobody will ever confirm gone."""


class DrainActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def drain_node(self, input: DrainInput) -> DrainOutput:
        clock = Clock()
        kube = await self.deps.clusters.get(input.machine.cluster)
        node = await kube.find(node_path(input.node_name))
        if node is None or _another_vm(node, input.provider_id):
            return DrainOutput()
        if activity.info().attempt == 1:
            await tell(kube, node, input.machine, input.story)
        await _cordon(kube, node, input.machine.name)
        pods = [p for p in await _pods(kube, input.node_name) if not _left_alone(p)]
        total = max(last_progress().get("pods", 0), len(pods))
        progress(message=f"{total - len(pods)} of {total} pods gone", pods=total)
        dead = input.dead or _kubelet_is_dead(node, clock.now())
        seen = await self._pass(kube, input, pods, dead, clock)
        volumes = sorted(v["name"] for v in (node.get("status") or {}).get("volumesAttached") or ())
        waiting = seen.moving + seen.blocked
        if not waiting and (not volumes or dead or input.force):
            return DrainOutput(pods=total, left=seen.abandoned + [f"volume {v} still attached" for v in volumes])
        raise NotYet(_words(seen, total, len(waiting), volumes, input.deadline), input.poll)

    async def _pass(self, kube: Kube, input: DrainInput, pods: list[dict[str, Any]], dead: bool, clock: Clock) -> Pass:
        seen = Pass()
        for pod in pods:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            overdue = _overdue(pod, clock.now())
            if overdue and (dead or input.force):
                if input.force:
                    await _kill(kube, pod)
                seen.abandoned.append(f"{name}: still terminating after its grace period")
            elif pod["metadata"].get("deletionTimestamp") and not input.force:
                seen.moving.append(name)
            else:
                refused = None if pod["metadata"].get("deletionTimestamp") else await _evict(kube, pod)
                if input.force:
                    # I12: the eviction came first; the deadline has passed or an operator insists.
                    await _kill(kube, pod)
                    seen.moving.append(name)
                elif refused:
                    seen.blocked.append(f"{name} {refused}")
                else:
                    seen.moving.append(name)
        return seen


def _words(seen: Pass, total: int, waiting: int, volumes: list[str], deadline: datetime | None) -> str:
    words = [f"{total - waiting} of {total} pods gone"]
    words += seen.blocked[:BLOCKERS_SHOWN]
    if len(seen.blocked) > BLOCKERS_SHOWN:
        words.append(f"{len(seen.blocked) - BLOCKERS_SHOWN} more blocked")
    if not waiting and volumes:
        words.append(f"waiting for {len(volumes)} volumes to detach ({volumes[0]})")
    text = "; ".join(words)
    return f"{text}, force at {deadline:%H:%M:%S}" if deadline else text


def _another_vm(node: dict[str, Any], provider_id: str | None) -> bool:
    theirs = (node.get("spec") or {}).get("providerID")
    return bool(theirs and provider_id and provider_key(theirs) != provider_key(provider_id))


async def _cordon(kube: Kube, node: dict[str, Any], machine: str) -> None:
    """A cordon of ours is marked, so that it can be told from a person's (I10)."""
    if not (node.get("spec") or {}).get("unschedulable"):
        patch = {"metadata": {"annotations": {CORDON_ANNOTATION: machine}}, "spec": {"unschedulable": True}}
        await kube.merge_patch(node_path(node["metadata"]["name"]), patch)


async def _pods(kube: Kube, node: str) -> list[dict[str, Any]]:
    answer = await kube.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    items: list[dict[str, Any]] = answer.get("items") or []
    return items


def _left_alone(pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    if MIRROR in (metadata.get("annotations") or {}):
        return True
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    owners = metadata.get("ownerReferences") or ()
    return any(o.get("controller") and o.get("kind") == "DaemonSet" for o in owners)


def _kubelet_is_dead(node: dict[str, Any], now: datetime) -> bool:
    """Or its file system is read-only, so that it cannot end a pod either (MCM D7, D8)."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        well, since = ALIVE_WHEN.get(condition.get("type")), condition.get("lastTransitionTime")
        if well and condition.get("status") != well and since and now - datetime.fromisoformat(since) > DEAD_AFTER:
            return True
    return False


def _overdue(pod: dict[str, Any], now: datetime) -> bool:
    """deletionTimestamp is when the grace period ends (API conventions, graceful deletion)."""
    end = pod["metadata"].get("deletionTimestamp")
    return bool(end) and now > datetime.fromisoformat(end)


async def _evict(kube: Kube, pod: dict[str, Any]) -> str | None:
    """None when it is going; else why it is refused."""
    metadata = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        # The pod that we saw, not one of the same name that has come since.
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    try:
        await kube.create(f"{_pod_path(pod)}/eviction", body)
    except KubeError as e:
        if e.status in (0, 401):
            raise
        if e.status in (404, 409):
            return None
        if e.status == 429:
            return f"blocked by {await _budget(kube, pod)}"
        if e.status == 500 and "more than one PodDisruptionBudget" in e.message:
            return "blocked: it has more than one PodDisruptionBudget, which the eviction API does not support"
        # One pod's trouble (a broken webhook, a namespace that is being deleted) must not hold up the others.
        return f"blocked: {e.message}"
    return None


async def _budget(kube: Kube, pod: dict[str, Any]) -> str:
    """The budget that stands in the way, by name: the refusal's own words do not say it reliably."""
    namespace = pod["metadata"]["namespace"]
    labels = pod["metadata"].get("labels") or {}
    budgets = await kube.get(f"/apis/policy/v1/namespaces/{quote(namespace)}/poddisruptionbudgets")
    for budget in budgets.get("items") or ():
        if _selects(budget["spec"].get("selector"), labels):
            allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
            return f"PDB {budget['metadata']['name']} ({allowed} disruptions allowed)"
    return "a PodDisruptionBudget, or the API server asks to try again later"


def _selects(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """A label selector of policy/v1: none selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(k) == v for k, v in wanted.items()) and all(
        _holds(e["operator"], labels.get(e["key"]), e.get("values") or ())
        for e in selector.get("matchExpressions") or ()
    )


def _holds(operator: str, value: str | None, values: Sequence[str]) -> bool:
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "NotIn":
            return value not in values
        case _:
            return value in values


async def _kill(kube: Kube, pod: dict[str, Any]) -> None:
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    try:
        await kube.delete(_pod_path(pod), body)
    except KubeError as e:
        if e.status != 409:  # a pod of the same name that has come since
            raise


def _pod_path(pod: dict[str, Any]) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"


ALIVE_WHEN = {"Ready": "True", "ReadonlyFilesystem": "False"}

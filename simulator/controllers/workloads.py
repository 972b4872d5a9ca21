"""ReplicaSets and Deployments, as simple as drains and disruption budgets need them.

A Deployment owns one ReplicaSet. A change of its pod template is not rolled out: the Deployment says so in its
Progressing condition, and its pods stay as they are.
"""

from __future__ import annotations

import asyncio

from simulator.client import KubeClient, Obj, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import (
    condition,
    controller_reference,
    is_controlled_by,
    is_deleting,
    is_finished,
    is_true,
    node_of,
    pod_from_template,
    status_differs,
    template_hash,
)

HASH_LABEL = "pod-template-hash"


class ReplicaSets(Controller):
    """Keeps `replicas` pods of each ReplicaSet that are neither finished nor being deleted."""

    def __init__(self, client: KubeClient, replicasets: Informer, pods: Informer, *, resync: float) -> None:
        super().__init__(client, (replicasets, pods), resync)
        self._replicasets = replicasets
        self._pods = pods

    async def sync(self) -> float | None:
        owned: dict[str, list[Obj]] = {}
        for pod in self._pods:
            for reference in pod["metadata"].get("ownerReferences") or ():
                if reference.get("controller") and not is_finished(pod) and not is_deleting(pod):
                    owned.setdefault(reference["uid"], []).append(pod)
        for replicaset in self._replicasets:
            if not is_deleting(replicaset):
                await self._reconcile(replicaset, owned.get(replicaset["metadata"]["uid"], []))
        return None

    async def _reconcile(self, replicaset: Obj, pods: list[Obj]) -> None:
        wanted = int(replicaset["spec"].get("replicas", 1))
        if len(pods) < wanted:
            pods = pods + await self._create(replicaset, wanted - len(pods))
        elif len(pods) > wanted:
            surplus = sorted(pods, key=_deletion_rank)[: len(pods) - wanted]
            gone = await self._delete(surplus)
            pods = [pod for pod in pods if pod["metadata"]["uid"] not in gone]
        await self._report(replicaset, pods)

    async def _create(self, replicaset: Obj, count: int) -> list[Obj]:
        body = pod_from_template(replicaset, "apps/v1", "ReplicaSet")
        namespace = body["metadata"]["namespace"]
        made = await asyncio.gather(*(self.attempt(self.client.create("pods", body, namespace)) for _ in range(count)))
        created = [pod for pod in made if pod is not None]
        for pod in created:
            self._pods.remember(pod)
        return created

    async def _delete(self, pods: list[Obj]) -> set[str]:
        """Deletes pods; returns the uids of those that are on their way out now."""
        metas = [pod["metadata"] for pod in pods]
        answers = await asyncio.gather(
            *(self.attempt(self.client.delete("pods", m["name"], m["namespace"], uid=m["uid"])) for m in metas)
        )
        deleted = [pod for pod, answer in zip(pods, answers, strict=True) if answer is not None]
        for pod in deleted:
            self._pods.forget(pod)
        return {pod["metadata"]["uid"] for pod in deleted}

    async def _report(self, replicaset: Obj, pods: list[Obj]) -> None:
        meta = replicaset["metadata"]
        ready = sum(1 for pod in pods if is_true(pod, "Ready"))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": meta["generation"],
        }
        if status_differs(replicaset, status):
            written = await self.attempt(
                self.client.patch("replicasets", meta["name"], {"status": status}, meta["namespace"], sub="status")
            )
            if written is not None:
                self._replicasets.remember(written)


class Deployments(Controller):
    def __init__(self, client: KubeClient, deployments: Informer, replicasets: Informer, *, resync: float) -> None:
        super().__init__(client, (deployments, replicasets), resync)
        self._deployments = deployments
        self._replicasets = replicasets

    async def sync(self) -> float | None:
        for deployment in self._deployments:
            if not is_deleting(deployment):
                await self._reconcile(deployment)
        return None

    async def _reconcile(self, deployment: Obj) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        wanted = int(spec.get("replicas", 1))
        replicaset = next((r for r in self._replicasets if is_controlled_by(r, deployment)), None)
        if replicaset is None:
            body = _replicaset_for(deployment, wanted)
            replicaset = await self.attempt(self.client.create("replicasets", body, meta["namespace"]))
        elif replicaset["spec"].get("replicas", 1) != wanted:
            replicaset = await self.attempt(
                self.client.patch(
                    "replicasets", replicaset["metadata"]["name"], {"spec": {"replicas": wanted}}, meta["namespace"]
                )
            )
        if replicaset is None:
            return
        self._replicasets.remember(replicaset)
        status = _deployment_status(deployment, replicaset, wanted)
        if status_differs(deployment, status):
            written = await self.attempt(
                self.client.patch("deployments", meta["name"], {"status": status}, meta["namespace"], sub="status")
            )
            if written is not None:
                self._deployments.remember(written)


def _deletion_rank(pod: Obj) -> tuple[bool, bool, float]:
    """Which pods go first when there are too many: unbound, then not ready, then the youngest."""
    age = pod["metadata"]["creationTimestamp"]
    return node_of(pod) is not None, is_true(pod, "Ready"), -float("".join(c for c in age if c.isdigit()))


def _replicaset_for(deployment: Obj, replicas: int) -> Obj:
    meta, spec = deployment["metadata"], deployment["spec"]
    label = {HASH_LABEL: template_hash(deployment)}
    template = dict(spec["template"])
    template_meta = dict(template.get("metadata") or {})
    template["metadata"] = {**template_meta, "labels": {**(template_meta.get("labels") or {}), **label}}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **label}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{label[HASH_LABEL]}",
            "namespace": meta["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [controller_reference("apps/v1", "Deployment", deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def _deployment_status(deployment: Obj, replicaset: Obj, wanted: int) -> Obj:
    counted = replicaset.get("status") or {}
    total, ready = int(counted.get("replicas", 0)), int(counted.get("readyReplicas", 0))
    current = replicaset["metadata"].get("labels", {}).get(HASH_LABEL) == template_hash(deployment)
    available = _condition(
        deployment,
        "Available",
        *(
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
            if ready >= wanted - wanted // 4  # maxUnavailable 25 %, the default, rounded down
            else ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        ),
    )
    progressing = _condition(
        deployment,
        "Progressing",
        *(
            ("True", "NewReplicaSetAvailable", "")
            if current
            else ("False", "RolloutNotEmulated", "This simulation does not roll out a changed pod template.")
        ),
    )
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": total,
        "updatedReplicas": total if current else 0,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, wanted - ready),
        "conditions": [available, progressing],
    }


def _condition(deployment: Obj, type_: str, status: str, reason: str, message: str) -> Obj:
    old = condition(deployment, type_)
    if old is not None and (old["status"], old["reason"]) == (status, reason):
        return old
    now = timestamp()
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }

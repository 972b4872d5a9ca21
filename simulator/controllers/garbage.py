"""Garbage collection: it removes what is left when a Node, an owner or a bootstrap token's time is gone."""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections.abc import Mapping
from datetime import UTC, datetime

from simulator.client import CallError, KubeClient, Obj, timestamp
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import is_deleting, is_finished, node_of

TOKEN_TYPE = "bootstrap.kubernetes.io/token"


class OwnerCollector(Controller):
    """Deletes pods, ReplicaSets and Leases all of whose owners are gone (background deletion).

    An owner of a kind that is not in `owners` counts as present: nothing is known of it here.
    """

    def __init__(
        self, client: KubeClient, dependents: tuple[Informer, ...], owners: Mapping[str, Informer], *, resync: float
    ) -> None:
        super().__init__(client, (*dependents, *owners.values()), resync)
        self._dependents = dependents
        self._owners = owners

    async def sync(self) -> float | None:
        for informer in self._dependents:
            for obj in informer:
                references = obj["metadata"].get("ownerReferences")
                if not references or is_deleting(obj):
                    continue
                namespace = obj["metadata"].get("namespace", "")
                if all([await self._is_gone(reference, namespace) for reference in references]):
                    await self._collect(informer, obj)
        return None

    async def _is_gone(self, reference: Obj, namespace: str) -> bool:
        owners = self._owners.get(reference["kind"])
        if owners is None:
            return False
        where = "" if reference["kind"] == "Node" else namespace
        known = owners.get(reference["name"], where)
        if known is not None and known["metadata"]["uid"] == reference["uid"]:
            return False
        # The caches of owner and dependent are filled by different watches: the server decides.
        try:
            live = await self.client.get(owners.resource, reference["name"], where or None)
        except CallError as e:
            return e.not_found
        return bool(live["metadata"]["uid"] != reference["uid"])

    async def _collect(self, informer: Informer, obj: Obj) -> None:
        meta = obj["metadata"]
        deleted = self.client.delete(informer.resource, meta["name"], meta.get("namespace"), uid=meta["uid"])
        await self.attempt(deleted)


class PodCollector(Controller):
    """Deletes the pods of nodes that are gone, after a quarantine (pkg/controller/podgc; 40 s there)."""

    def __init__(
        self, client: KubeClient, pods: Informer, nodes: Informer, *, quarantine: float, resync: float
    ) -> None:
        super().__init__(client, (pods, nodes), resync)
        self._pods = pods
        self._nodes = nodes
        self._quarantine = quarantine
        self._missing: dict[str, float] = {}  # node name -> since when it has been missing, by our clock
        self._clock = asyncio.get_running_loop().time

    async def sync(self) -> float | None:
        now, missing = self._clock(), self._missing
        orphans = [pod for pod in self._pods if node_of(pod) and self._nodes.get(node_of(pod) or "") is None]
        self._missing = {name: missing.get(name, now) for pod in orphans if (name := node_of(pod))}
        for pod in orphans:
            name = node_of(pod) or ""
            if now - self._missing[name] >= self._quarantine and await self._node_is_gone(name):
                await self._collect(pod)
        waits = [since + self._quarantine - now for since in self._missing.values()]
        return min((w for w in waits if w > 0), default=None)

    async def _node_is_gone(self, name: str) -> bool:
        try:
            await self.client.get("nodes", name)
        except CallError as e:
            return e.not_found
        return False

    async def _collect(self, pod: Obj) -> None:
        meta = pod["metadata"]
        if not is_finished(pod):
            why = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": timestamp(),
            }
            body = {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Failed", "conditions": [why]}}
            patch = self.client.patch("pods", meta["name"], body, meta["namespace"], sub="status", kind="strategic")
            if await self.attempt(patch) is None:
                return
        await self.attempt(self.client.delete("pods", meta["name"], meta["namespace"], uid=meta["uid"], grace=0))


class TokenCleaner(Controller):
    """Deletes bootstrap tokens whose expiration has passed (pkg/controller/bootstrap tokencleaner)."""

    def __init__(self, client: KubeClient, secrets: Informer, *, resync: float) -> None:
        super().__init__(client, (secrets,), resync)
        self._secrets = secrets

    async def sync(self) -> float | None:
        next_due = math.inf
        for secret in self._secrets:
            meta = secret["metadata"]
            if secret.get("type") != TOKEN_TYPE or meta["namespace"] != "kube-system":
                continue
            remaining = _remaining(secret)
            if remaining <= 0:
                await self.attempt(self.client.delete("secrets", meta["name"], "kube-system", uid=meta["uid"]))
            else:
                next_due = min(next_due, remaining)
        return None if math.isinf(next_due) else next_due


def _remaining(secret: Obj) -> float:
    """Seconds until the token expires; infinite when it does not say, 0 when what it says cannot be read (as
    upstream)."""
    text = (secret.get("data") or {}).get("expiration")
    if not text:
        return math.inf
    try:
        expires = datetime.fromisoformat(base64.b64decode(text, validate=True).decode())
        return (expires - datetime.now(UTC)).total_seconds()
    except (binascii.Error, ValueError, TypeError):
        return 0.0

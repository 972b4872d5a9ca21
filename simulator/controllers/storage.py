"""Volumes on their way to nodes and off them, and the protection of what is in use.

It follows pkg/controller/volume/attachdetach and pvcprotection, pvprotection of Kubernetes; the CSI driver's attacher
is in here as well. Nothing is provisioned or bound: a claim names its volume, and the volume its claim.

An annotation on a PersistentVolume, meant for tests and demonstrations, makes it unusual:

- `simulator.hostler/detach-seconds: "12.5"`: it takes this long to detach it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

from simulator.client import KubeClient, Obj
from simulator.controllers.informer import Controller, Informer
from simulator.controllers.objects import is_deleting, is_finished, is_true, node_of

DETACH_ANNOTATION = "simulator.hostler/detach-seconds"
UNMOUNT_TIMEOUT = 360.0
"""Seconds after which a volume is detached from a node whose kubelet does not say that it is unmounted."""
_PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}


def claim_names(pod: Obj) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}"


class AttachDetach(Controller):
    """Keeps VolumeAttachments and node.status.volumesAttached as the pods on the nodes want them."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer,
        nodes: Informer,
        claims: Informer,
        volumes: Informer,
        attachments: Informer,
        *,
        resync: float,
    ) -> None:
        super().__init__(client, (pods, nodes, claims, volumes, attachments), resync)
        self._pods = pods
        self._nodes = nodes
        self._claims = claims
        self._volumes = volumes
        self._attachments = attachments
        self._unwanted: dict[str, float] = {}  # name of an attachment -> since when no pod wants it, by our clock
        self._clock = asyncio.get_running_loop().time

    async def sync(self) -> float | None:
        wanted = self._wanted()
        waits = [await self._leave(attachment, wanted) for attachment in self._attachments]
        for volume, node in sorted(wanted):
            await self._attach(volume, node)
        for node_object in self._nodes:
            await self._list_on(node_object)
        return min((w for w in waits if w is not None), default=None)

    def _wanted(self) -> set[tuple[str, str]]:
        """Volumes with the nodes that they must be attached to."""
        wanted = set()
        for pod in self._pods:
            node = node_of(pod)
            if node is None or is_finished(pod) or self._nodes.get(node) is None:
                continue
            for name in claim_names(pod):
                claim = self._claims.get(name, pod["metadata"]["namespace"])
                volume = self._volumes.get(claim["spec"].get("volumeName", "")) if claim else None
                if volume is not None and "csi" in volume["spec"]:
                    wanted.add((volume["metadata"]["name"], node))
        return wanted

    async def _attach(self, volume: str, node: str) -> None:
        on = [a for a in self._attachments if _volume_of(a) == volume]
        mine = next((a for a in on if a["spec"]["nodeName"] == node), None)
        if mine is None:
            modes = self._spec(volume)["accessModes"]
            if on and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
                return  # the Multi-Attach error: not before it is detached there
            made = await self.attempt(self.client.create("volumeattachments", self._attachment(volume, node)))
            if made is None:
                return
            self._attachments.remember(made)
            mine = made
        if not mine["status"]["attached"] and not is_deleting(mine):
            name, body = mine["metadata"]["name"], {"status": {"attached": True}}
            if written := await self.attempt(self.client.patch("volumeattachments", name, body, sub="status")):
                self._attachments.remember(written)

    def _attachment(self, volume: str, node: str) -> Obj:
        driver = self._spec(volume)["csi"]["driver"]
        name = "csi-" + hashlib.sha256(f"{volume}{driver}{node}".encode()).hexdigest()
        spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": spec,
        }

    async def _leave(self, attachment: Obj, wanted: set[tuple[str, str]]) -> float | None:
        """Detach what no pod wants. Returns the seconds until it can be done; None when there is nothing to do."""
        volume, name = _volume_of(attachment), attachment["metadata"]["name"]
        if volume is None or (volume, attachment["spec"]["nodeName"]) in wanted:
            self._unwanted.pop(name, None)
            return None
        since = self._unwanted.setdefault(name, self._clock())
        rest = since + self._detach_seconds(volume, attachment["spec"]["nodeName"]) - self._clock()
        if rest > 0:
            return rest
        uid = attachment["metadata"]["uid"]
        if await self.attempt(self.client.delete("volumeattachments", name, uid=uid)) is not None:
            self._attachments.forget(attachment)
            self._unwanted.pop(name, None)
        return None

    def _detach_seconds(self, volume: str, node: str) -> float:
        known, on = self._volumes.get(volume), self._nodes.get(node)
        if on is not None and not is_true(on, "Ready"):
            return UNMOUNT_TIMEOUT
        annotations = (known["metadata"].get("annotations") or {}) if known else {}
        return float(annotations.get(DETACH_ANNOTATION, 0.0))

    async def _list_on(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        here = [v for a in self._attachments if a["spec"]["nodeName"] == name and (v := _volume_of(a))]
        disks = sorted(f"{csi['driver']}^{csi['volumeHandle']}" for v in here if (csi := self._spec(v).get("csi")))
        listed = [{"name": f"kubernetes.io/csi/{disk}", "devicePath": ""} for disk in disks]
        if listed != ((node.get("status") or {}).get("volumesAttached") or []):
            body = {"status": {"volumesAttached": listed or None}}
            if written := await self.attempt(self.client.patch("nodes", name, body, sub="status")):
                self._nodes.remember(written)

    def _spec(self, volume: str) -> Obj:
        known = self._volumes.get(volume)
        return dict(known["spec"]) if known else {}


def _volume_of(attachment: Obj) -> str | None:
    source: Obj = attachment["spec"]["source"]
    return source.get("persistentVolumeName")


class Protection(Controller):
    """Lets claims and volumes that are being deleted go when nobody uses them any longer."""

    def __init__(
        self, client: KubeClient, pods: Informer, claims: Informer, volumes: Informer, *, resync: float
    ) -> None:
        super().__init__(client, (pods, claims, volumes), resync)
        self._pods = pods
        self._claims = claims
        self._volumes = volumes

    async def sync(self) -> float | None:
        used = {(p["metadata"]["namespace"], name) for p in self._pods if not is_finished(p) for name in claim_names(p)}
        for claim in self._claims:
            meta = claim["metadata"]
            if is_deleting(claim) and (meta["namespace"], meta["name"]) not in used:
                await self._release(self._claims, claim)
        for volume in self._volumes:
            bound = volume["spec"].get("claimRef") or {}
            if is_deleting(volume) and self._claims.get(bound.get("name", ""), bound.get("namespace", "")) is None:
                await self._release(self._volumes, volume)
        return None

    async def _release(self, informer: Informer, obj: Obj) -> None:
        meta, finalizer = obj["metadata"], _PROTECTION[informer.resource]
        if finalizer not in (meta.get("finalizers") or ()):
            return
        left = [f for f in meta["finalizers"] if f != finalizer]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": left or None}}
        if await self.attempt(self.client.patch(informer.resource, meta["name"], body, meta.get("namespace"))):
            informer.forget(obj)

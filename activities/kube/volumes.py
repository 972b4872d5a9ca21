"""Which volumes are attached where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from activities.kube.client import Kube, segment

VOLUME_ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
_IN_TREE = {"awsElasticBlockStore": "volumeID", "gcePersistentDisk": "pdName", "azureDisk": "diskURI"}
"""Sources that the API server keeps for old PersistentVolumes; their CSI drivers attach them."""


@dataclass(frozen=True)
class AttachedVolumes:
    """Volumes as the VolumeAttachments and the node's status have them, by the names of their PersistentVolumes."""

    here: dict[str, dict[str, Any]]
    """On the VM's nodes, or on the way to or off them, each with its VolumeAttachment."""
    elsewhere: frozenset[str]
    """On another node, and ready there."""
    listed: tuple[str, ...]
    """node.status.volumesAttached, e.g. `kubernetes.io/csi/ebs.csi.aws.com^vol-1`."""

    def holds(self, volume: str, disk: str) -> bool:
        return volume in self.here or any(_is(name, disk) for name in self.listed)

    def left(self, staying: dict[str, str]) -> list[str]:
        """What is attached here, except for the volumes (name to disk) of pods that stay."""
        names = sorted(v for v in self.here if v not in staying)
        listed = sorted(n for n in self.listed if not any(_is(n, disk) for disk in staying.values()))
        return names or listed  # a volume is in both, under two names


def _is(listed: str, disk: str) -> bool:
    return listed.endswith((f"/{disk}", f"^{disk}"))


def attachments(found: Iterable[dict[str, Any]], nodes: Sequence[dict[str, Any]]) -> AttachedVolumes:
    here, elsewhere, names = {}, set(), {n["metadata"]["name"] for n in nodes}
    for attachment in found:
        spec = attachment["spec"]
        volume = spec["source"].get("persistentVolumeName")
        if not volume:
            continue  # a pod's inline volume, which is gone with the pod
        if spec["nodeName"] in names:
            here[volume] = attachment
        elif (attachment.get("status") or {}).get("attached"):
            elsewhere.add(volume)
    listed = tuple(v["name"] for n in nodes for v in (n.get("status") or {}).get("volumesAttached") or ())
    return AttachedVolumes(here, frozenset(elsewhere), listed)


async def read_attachments(kube: Kube, nodes: Sequence[dict[str, Any]]) -> AttachedVolumes:
    """Reads the attachments as the API server has them now. Raises KubeError."""
    answer = await kube.get(VOLUME_ATTACHMENTS)
    return attachments(answer.get("items") or (), nodes)


async def detach(kube: Kube, found: AttachedVolumes) -> None:
    """Deletes the nodes' VolumeAttachments: the volumes are detached whatever their kubelets say. Never while their VM
    may still write (Kubernetes, non-graceful node shutdown). Raises KubeError."""
    for attachment in found.here.values():
        await kube.delete_this(f"{VOLUME_ATTACHMENTS}/{segment(attachment['metadata']['name'])}", attachment)


def disk_of(volume: dict[str, Any]) -> str | None:
    """How a PersistentVolume ends in node.status.volumesAttached; None when it is of a kind that is never attached."""
    spec = volume["spec"]
    if csi := spec.get("csi"):
        return f"{csi['driver']}^{csi['volumeHandle']}"
    for source, field in _IN_TREE.items():
        if source in spec:
            return str(spec[source][field]).rsplit("/", 1)[-1]
    return None


def claim_of(volume: dict[str, Any]) -> str:
    claim = volume["spec"].get("claimRef") or {}
    return f"{claim.get('namespace')}/{claim.get('name')}"

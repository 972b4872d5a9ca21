"""A drain's calls to the Kubernetes API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from activities.drain.pods import Pod
from activities.kube.client import Kube, KubeError, segment
from activities.kube.rewrite import rewrite
from activities.kube.volumes import disk_of
from resources.machine_config.keys import DRAINED_BY_CONFIG
from resources.names import CORDON_ANNOTATION

_GONE = (404, 409)  # 409: another pod of that name has come since


async def cordon(kube: Kube, node: dict[str, Any], machine: str) -> None:
    """Cordons the Node, marked as ours, so that it can be told from a person's cordon (I10). Raises KubeError, 404 when
    the Node is gone."""
    await rewrite(kube, node, lambda found: _cordon(found, machine))


def _cordon(node: dict[str, Any], machine: str) -> dict[str, Any]:
    """The merge patch. It carries the resourceVersion: by now the name may be another VM's. A cordon for a config is
    lifted when the config is there, unless it is ours too."""
    metadata = node["metadata"]
    there = metadata.get("annotations") or {}
    if is_cordoned(node) and (DRAINED_BY_CONFIG not in there or CORDON_ANNOTATION in there):
        return {}
    return {
        "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {CORDON_ANNOTATION: machine}},
        "spec": {"unschedulable": True},
    }


def is_cordoned(node: dict[str, Any]) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


async def pods_of(kube: Kube, nodes: Iterable[dict[str, Any]]) -> list[Pod]:
    found: list[Pod] = []
    for node in nodes:
        answer = await kube.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node['metadata']['name']}")
        found += answer.get("items") or []
    return found


async def evict(kube: Kube, pod: Pod, grace: int | None) -> KubeError | None:
    """Evicts the pod: None when it is going, else the refusal. Raises what is no answer about this one pod."""
    metadata = pod["metadata"]
    # The uid: the pod that we saw, not one of the same name that has come since.
    options: dict[str, Any] = {"preconditions": {"uid": metadata["uid"]}}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "deleteOptions": options,
    }
    try:
        await kube.create(f"{_path(pod)}/eviction", body)
    except KubeError as e:
        if e.status in (0, 401):
            raise
        return None if e.status in _GONE else e
    return None


async def kill(kube: Kube, pod: Pod) -> None:
    await kube.delete_this(_path(pod), pod, gracePeriodSeconds=0)


async def budgets_of(kube: Kube, namespace: str) -> list[dict[str, Any]]:
    answer = await kube.get(f"/apis/policy/v1/namespaces/{segment(namespace)}/poddisruptionbudgets")
    return answer.get("items") or []


async def claimed(kube: Kube, claims: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Maps each claim to the names of its PersistentVolume and its disk; without those that are missing, or never
    attached."""
    found = {}
    for claim in claims:
        namespace, name = claim.split("/")
        path = f"/api/v1/namespaces/{segment(namespace)}/persistentvolumeclaims/{segment(name)}"
        bound = ((await kube.find(path)) or {}).get("spec", {}).get("volumeName")
        volume = await volume_of(kube, bound) if bound else None
        if volume and (disk := disk_of(volume)):
            found[claim] = (bound, disk)
    return found


async def volume_of(kube: Kube, name: str) -> dict[str, Any] | None:
    return await kube.find(f"/api/v1/persistentvolumes/{segment(name)}")


def _path(pod: Pod) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{segment(metadata['namespace'])}/pods/{segment(metadata['name'])}"

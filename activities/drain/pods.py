"""What a drain reads from a pod. Pure: no calls, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from resources.base import later, read_time, seconds

Pod = dict[str, Any]

MIRROR = "kubernetes.io/config.mirror"
CORDON = "node.kubernetes.io/unschedulable"
"""Key of the taint that the scheduler sees for a cordon; its effect is NoSchedule."""
SHORT_GRACE = 1
"""Seconds of grace that a pod gets on a node whose kubelet is dead: nobody there would use more (field case P47)."""
_GRACE = 30  # seconds, the API's default


def name_of(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def uid_of(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def left_alone(pod: Pod) -> bool:
    """Whether a drain leaves the pod alone: mirror pods and DaemonSet pods, as in kubectl (pkg/drain/filters.go), and
    those that have finished, which kubectl deletes: they run nothing and hold no volume."""
    owner = _controller(pod)
    return MIRROR in (pod["metadata"].get("annotations") or {}) or finished(pod) or owner.get("kind") == "DaemonSet"


def finished(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def came_back(pod: Pod, since: datetime) -> bool:
    """Whether the pod was made after `since` and its own tolerations let it onto a cordoned node: evicted, it would
    come again.

    The API's times have whole seconds, so one made in that very second counts as older, and is evicted.
    """
    made = pod["metadata"].get("creationTimestamp")
    return (read_time(made) or since) > since and any(map(_lifts_cordon, _tolerations(pod)))


def _tolerations(pod: Pod) -> list[dict[str, str]]:
    return pod["spec"].get("tolerations") or []


def _lifts_cordon(toleration: dict[str, str]) -> bool:
    """Whether a toleration lifts the cordon's taint, which has no value: the rule of k8s.io/api/core/v1
    Toleration.ToleratesTaint."""
    if toleration.get("effect") not in (None, "", "NoSchedule"):
        return False
    key, exists = toleration.get("key"), toleration.get("operator") == "Exists"
    if not key:
        return exists  # it tolerates all taints
    return key == CORDON and (exists or not toleration.get("value"))


def comes_again(pod: Pod) -> bool:
    """Whether somebody makes another pod in its place."""
    return bool(_controller(pod))


def _controller(pod: Pod) -> dict[str, Any]:
    return next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), {})


def is_going(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def grace_ends(pod: Pod, now: datetime) -> datetime:
    """When the grace period ends of a pod that is going, or would go now. deletionTimestamp is that end (API
    conventions, graceful deletion)."""
    if is_going(pod):
        return read_time(pod["metadata"]["deletionTimestamp"]) or now
    return later(now, seconds(pod["spec"].get("terminationGracePeriodSeconds", _GRACE)))


def overdue(pod: Pod, now: datetime, dead: bool) -> bool:
    """Whether the pod should have gone by now. From a dead kubelet no more is expected in a long grace period than in a
    short one."""
    if not is_going(pod):
        return False
    end = grace_ends(pod, now)
    if dead:
        given = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        end = later(end, -seconds(given - SHORT_GRACE))
    return now > end


def first(pod: Pod) -> tuple[int, str]:
    """The sort key of pods with volumes: the highest priority first (MCM)."""
    return -(pod["spec"].get("priority") or 0), name_of(pod)


def claims(pod: Pod) -> dict[str, bool]:
    """`namespace/name` of each claim that the pod uses, and whether the claim outlives it: a generic ephemeral volume's
    claim does not, and is named after pod and volume."""
    metadata = pod["metadata"]
    found = {}
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found[f"{metadata['namespace']}/{claim['claimName']}"] = True
        elif "ephemeral" in volume:
            found[f"{metadata['namespace']}/{metadata['name']}-{volume['name']}"] = False
    return found


def in_use(pods: Iterable[Pod]) -> Counter[str]:
    """Claims, with how many of the pods use each. A pod that has finished no longer holds a volume."""
    return Counter(c for pod in pods if not finished(pod) for c in claims(pod))

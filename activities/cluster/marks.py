"""A rollout's marks on the Nodes that it will replace: the scheduler avoids them, cluster-autoscaler leaves them alone.

They follow machine-controller-manager (deployment_rollout.go: the taint, and the annotation beside a marker of its
own), so that what a person set before is still there afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity

from activities.base import Activities
from activities.batch import each
from activities.cluster.protection import protection, protection_patch
from activities.kube.client import Object
from activities.kube.rewrite import rewrite_if_there
from resources.fleet.membership import MarkNodesInput
from resources.names import MACHINE_NAME_LABEL, ROLLOUT_TAINT

LISTED = 50
"""Machines whose Nodes are looked up in one call: their names stand in its URL."""
TAINT = {"key": ROLLOUT_TAINT, "value": "True", "effect": "PreferNoSchedule"}


class MarkActivities(Activities):
    role = "cluster"

    @activity.defn
    async def mark_nodes(self, input: MarkNodesInput) -> None:
        """Marks the Nodes, including those of a machine whose Node has a twin. A machine without a Node has nothing to
        mark."""
        kube = await self.deps.clusters.get(input.cluster)
        nodes: list[Object] = []
        for start in range(0, len(input.machines), LISTED):
            some = ",".join(input.machines[start : start + LISTED])
            found = await kube.get("/api/v1/nodes", labelSelector=f"{MACHINE_NAME_LABEL} in ({some})")
            nodes += found["items"]
        patch_of = lambda node: marks_patch(node, input.pool, on=input.on)  # noqa: E731
        await each(
            nodes, lambda node: rewrite_if_there(kube, node, patch_of), lambda n: f"{n} of {len(nodes)} Nodes done"
        )


def marks_patch(node: Object, pool: str, *, on: bool) -> Object:
    """The merge patch that puts the marks on a Node, or takes them off; empty when the Node is as it should be. It
    carries the resourceVersion: the list of taints is atomic, and a person may set the annotation at the same time."""
    metadata = node["metadata"]
    patch: Object = {}
    taints = (node.get("spec") or {}).get("taints") or []
    rest = [t for t in taints if not _is_ours(t)]
    if on and len(rest) == len(taints):
        patch["spec"] = {"taints": [*taints, TAINT]}
    if not on and len(rest) < len(taints):
        patch["spec"] = {"taints": rest}
    annotations = _annotations(metadata.get("annotations") or {}, pool, on)
    if patch or annotations:
        patch["metadata"] = {"resourceVersion": metadata["resourceVersion"]}
    if annotations:
        patch["metadata"]["annotations"] = annotations
    return patch


def _is_ours(taint: Object) -> bool:
    return all(taint.get(key) == TAINT[key] for key in ("key", "effect"))


def _annotations(there: dict[str, str], pool: str, on: bool) -> dict[str, str | None]:
    """The annotations to write. What a person has set or removed stays; a preservation goes on without the rollout, and
    the other way round."""
    now = protection(there)
    if on and now.person is None and not now.pool:
        return protection_patch(there, replace(now, pool=pool))
    if not on and now.pool == pool:
        return protection_patch(there, replace(now, pool=""))
    return {}

"""A rollout's marks on the Nodes that it will replace: the scheduler avoids them, cluster-autoscaler leaves them alone.

As machine-controller-manager has it (deployment_rollout.go: the taint, and the annotation beside a marker of its own),
so that what a person has set before stays after.
"""

from __future__ import annotations

from typing import Any

from temporalio import activity

from activities.batch import each
from activities.deps import Deps
from activities.kube import Kube, KubeError, node_path
from resources.membership import MarkNodesInput
from resources.names import MACHINE_NAME_LABEL, ROLLOUT_TAINT, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY

CONFLICTS = 5  # reads again so often when somebody else writes the same Node at the same time
LISTED = 50
"""Machines whose Nodes are looked for in one call: their names stand in its URL."""
TAINT = {"key": ROLLOUT_TAINT, "value": "True", "effect": "PreferNoSchedule"}

Object = dict[str, Any]


class MarkActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def mark_nodes(self, input: MarkNodesInput) -> None:
        """Also of a machine whose Node has a twin. One without a Node has nothing to mark."""
        kube = await self.deps.clusters.get(input.cluster)
        nodes: list[Object] = []
        for start in range(0, len(input.machines), LISTED):
            some = ",".join(input.machines[start : start + LISTED])
            found = await kube.get("/api/v1/nodes", labelSelector=f"{MACHINE_NAME_LABEL} in ({some})")
            nodes += found["items"]
        await each(nodes, lambda node: _mark(kube, node, input), lambda n: f"{n} of {len(nodes)} Nodes done")


async def _mark(kube: Kube, listed: Object, input: MarkNodesInput) -> None:
    """The first try is with the Node as it was listed. One that is gone meanwhile has nothing to mark."""
    path = node_path(listed["metadata"]["name"])
    node: Object | None = listed
    for left in reversed(range(CONFLICTS)):
        patch = marks_patch(node, input.pool, on=input.on) if node else {}
        if not patch:
            return
        try:
            await kube.merge_patch(path, patch)
            return
        except KubeError as e:
            if e.status != 404 and (e.status != 409 or not left):
                raise
        node = await kube.find(path)


def marks_patch(node: Object, pool: str, *, on: bool) -> Object:
    """The merge patch that brings the marks on a Node, or takes them off; empty when it is as it should be. It carries
    the resourceVersion: the list of taints is atomic, and a person may set the annotation at the same time."""
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
    """The marker tells ours from a person's, also of one who took it away or changed it since."""
    if on:
        theirs = SCALE_DOWN_DISABLED in there or SCALE_DOWN_DISABLED_BY in there
        return {} if theirs else {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY: pool}
    if there.get(SCALE_DOWN_DISABLED_BY) != pool:
        return {}
    off: dict[str, str | None] = {SCALE_DOWN_DISABLED_BY: None}
    if there.get(SCALE_DOWN_DISABLED) == "true":
        off[SCALE_DOWN_DISABLED] = None
    return off

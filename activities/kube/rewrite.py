"""Reads a Node, writes what is to change, and reads it again where somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable

from activities.kube.client import Kube, KubeError, Object, node_path

CONFLICTS = 5
"""Further reads when somebody else writes the same Node at the same time."""


async def rewrite(kube: Kube, node: Object, patch_of: Callable[[Object], Object]) -> Object:
    """Returns the Node as it is afterwards. The first try uses the Node as the caller has read it.

    `patch_of` makes a merge patch, an empty one where nothing is to be done; it carries the resourceVersion where what
    it changes depends on what is there. Raises KubeError: 404 when the Node is gone, even where another has its name.
    """
    path, uid = node_path(node["metadata"]["name"]), node["metadata"].get("uid")
    for left in reversed(range(CONFLICTS)):
        patch = patch_of(node)
        if not patch:
            return node
        try:
            return await kube.merge_patch(path, patch)
        except KubeError as e:
            if e.status != 409 or not left:
                raise
        node = await kube.get(path)
        if node["metadata"].get("uid") != uid:
            raise KubeError(404, "NotFound", f"node {node['metadata']['name']} has been replaced by another object")
    raise AssertionError("unreachable: the last try raises")


async def rewrite_if_there(kube: Kube, node: Object | None, patch_of: Callable[[Object], Object]) -> Object | None:
    """Like `rewrite`, but None when the Node is gone."""
    if node is None:
        return None
    try:
        return await rewrite(kube, node, patch_of)
    except KubeError as e:
        if e.status != 404:
            raise
        return None

"""Read a Node, write what is to change of it, and read it again where somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.kube import Kube, KubeError, node_path

Object = dict[str, Any]

CONFLICTS = 5
"""Reads again so often when somebody else writes the same Node at the same time."""


async def rewrite(kube: Kube, node: Object | None, patch_of: Callable[[Object], Object]) -> Object | None:
    """The Node as it is after it; None when it is gone. The first try is with the Node as the caller has read it.

    `patch_of` makes a merge patch that carries the resourceVersion, or an empty one where nothing is to be done.
    """
    path = node_path(node["metadata"]["name"]) if node else ""
    for left in reversed(range(CONFLICTS)):
        patch = patch_of(node) if node else {}
        if not patch:
            return node
        try:
            return await kube.merge_patch(path, patch)
        except KubeError as e:
            if e.status != 404 and (e.status != 409 or not left):
                raise
        node = await kube.find(path)
    return node

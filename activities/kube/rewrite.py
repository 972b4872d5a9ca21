"""Reads an object, writes what is to change, and reads it again where somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable

from activities.kube.client import Kube, KubeError, Object, node_path

CONFLICTS = 5
"""Further reads when somebody else writes the same object at the same time."""


async def rewrite_at(
    kube: Kube, path: str, found: Object, patch_of: Callable[[Object], Object], subresource: str = ""
) -> Object:
    """Returns the object as it is afterwards. The first try uses it as the caller has read it.

    `patch_of` makes a merge patch, an empty one where nothing is to be done; it carries the resourceVersion where what
    it changes depends on what is there. Raises KubeError: 404 when the object is gone, even where another has its name.
    """
    uid = found["metadata"].get("uid")
    for left in reversed(range(CONFLICTS)):
        patch = patch_of(found)
        if not patch:
            return found
        try:
            return await kube.merge_patch(path + subresource, patch)
        except KubeError as e:
            if e.status != 409 or not left:
                raise
        found = await kube.get(path)
        if found["metadata"].get("uid") != uid:
            words = f"{found.get('kind', '').lower() or 'the object'} {found['metadata']['name']}"
            raise KubeError(404, "NotFound", f"{words} has been replaced by another object")
    raise AssertionError("unreachable: the last try raises")


async def rewrite(kube: Kube, node: Object, patch_of: Callable[[Object], Object]) -> Object:
    """The same for a Node."""
    return await rewrite_at(kube, node_path(node["metadata"]["name"]), node, patch_of)


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

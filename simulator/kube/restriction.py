"""What a kubelet may not write, although it may write the object (the NodeRestriction admission plugin).

On its own Node that is taints, owners and foreign labels: somebody who takes over one machine could otherwise draw
other machines' workloads onto it. It may also make no signing request for another node.
"""

from __future__ import annotations

from simulator.kube import csr
from simulator.kube.auth import User
from simulator.kube.errors import forbidden
from simulator.kube.objects import Obj
from simulator.kube.resources import NODES, SIGNING_REQUESTS, Resource
from simulator.node_labels import kubelet_may_set


def check(resource: Resource, obj: Obj, old: Obj | None, user: User) -> None:
    """Checks a write. `old` is None on creation. Raises 403."""
    if user.node is None:
        return
    if resource.id == NODES.id:
        _check_node(resource, obj, old, user.node)
    elif resource.id == SIGNING_REQUESTS.id and old is None and csr.node_of(obj) not in (None, user.node):
        why = f"can only create a node CSR with CN={csr.NODE_PREFIX}{user.node}"
        raise forbidden(resource, obj["metadata"]["name"], why)


def _check_node(resource: Resource, obj: Obj, old: Obj | None, node: str) -> None:
    name = obj["metadata"]["name"]
    if name != node:
        raise forbidden(resource, name, f'node "{node}" is not allowed to modify node "{name}"')
    foreign = ", ".join(sorted(key for key in _changed_labels(obj, old) if not kubelet_may_set(key)))
    if old is None:
        if foreign:
            raise forbidden(resource, name, f'node "{name}" is not allowed to set the following labels: {foreign}')
        return
    if (obj.get("spec") or {}).get("taints") != old["spec"].get("taints"):
        raise forbidden(resource, name, f'node "{name}" is not allowed to modify taints')
    if obj["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
        raise forbidden(resource, name, f'node "{name}" is not allowed to modify ownerReferences')
    if foreign:
        raise forbidden(resource, name, f"is not allowed to modify labels: {foreign}")


def _changed_labels(obj: Obj, old: Obj | None) -> set[str]:
    after = obj["metadata"].get("labels") or {}
    before = ((old or {}).get("metadata") or {}).get("labels") or {}
    return {key for key in after.keys() | before.keys() if after.get(key) != before.get(key)}

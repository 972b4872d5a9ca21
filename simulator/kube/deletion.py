"""Deletion: preconditions, graceful deletion of pods, finalizers, and what goes with a namespace or a definition.

Upstream: k8s.io/apiserver pkg/registry/rest/delete.go and the namespace controller, whose part is done here at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from resources.words import kube_time
from simulator.kube import crds, pods
from simulator.kube.errors import bad_request, conflict, forbidden
from simulator.kube.objects import Obj, parse_time
from simulator.kube.resources import DEFINITIONS, NAMESPACES, PODS, Resource, Resources
from simulator.kube.store import Item, Store

_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
_KNOWN_OPTIONS = {
    "apiVersion",
    "dryRun",
    "gracePeriodSeconds",
    "kind",
    "orphanDependents",
    "preconditions",
    "propagationPolicy",
}


def is_due(resource: Resource, obj: Obj) -> bool:
    """Whether an object is being deleted and nothing holds it any longer."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return resource.id != NAMESPACES.id or not (obj.get("spec") or {}).get("finalizers")


class Kept(Protocol):
    """What deletion needs of the registry."""

    resources: Resources
    store: Store


def delete(registry: Kept, resource: Resource, item: Item, body: Obj, *, dry_run: bool) -> tuple[Item, bool]:
    if unknown := set(body) - _KNOWN_OPTIONS:
        raise bad_request(f"the simulator does not know these DeleteOptions: {', '.join(sorted(unknown))}")
    if body.get("propagationPolicy") not in (None, "", "Background") or body.get("orphanDependents"):
        raise bad_request("the simulator emulates only propagationPolicy Background")
    _check_preconditions(resource, item, body.get("preconditions") or {})
    if resource.id == NAMESPACES.id and item.name in _PROTECTED_NAMESPACES:
        raise forbidden(resource, item.name, "this namespace may not be deleted")
    asked = body.get("gracePeriodSeconds")
    if asked is not None:
        asked = int(asked)
    grace = pods.grace_period(item.obj, asked) if resource.id == PODS.id else 0
    if dry_run:
        return item, True
    marked = _mark(registry, resource, item, grace)
    if is_due(resource, marked.obj):
        return remove(registry, resource, marked), True
    if resource.id == NAMESPACES.id:
        return _empty_namespace(registry, marked)
    if resource.id == DEFINITIONS.id:
        return _empty_definition(registry, marked)
    return marked, False


def _check_preconditions(resource: Resource, item: Item, preconditions: Obj) -> None:
    meta = item.obj["metadata"]
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, item.name, why)
    if version and version != item.version:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({item.version}). The object might have been modified"
        )
        raise conflict(resource, item.name, why)


def _mark(registry: Kept, resource: Resource, item: Item, grace: int) -> Item:
    """Set the deletion timestamp. A second deletion only ever shortens the grace period."""
    meta = item.obj["metadata"]
    held = bool(meta.get("finalizers")) or grace > 0 or resource.id == NAMESPACES.id
    before = meta.get("deletionGracePeriodSeconds") if meta.get("deletionTimestamp") else None
    if before is not None and grace >= before:
        return item
    obj = item.copy()
    if before is None:
        start = datetime.now(UTC)
        if "generation" in obj["metadata"]:
            obj["metadata"]["generation"] += 1
    else:
        start = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=before)
    obj["metadata"]["deletionTimestamp"] = kube_time(start + timedelta(seconds=grace))
    obj["metadata"]["deletionGracePeriodSeconds"] = grace
    if resource.id == NAMESPACES.id:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    # An object that nothing holds goes in one step: watchers see one DELETED, no MODIFIED before it.
    return registry.store.put(resource, obj) if held else Item(obj)


def remove(registry: Kept, resource: Resource, item: Item) -> Item:
    """Takes the object out of the store, with whatever only waited for it."""
    last = registry.store.remove(resource, item)
    if resource.id == DEFINITIONS.id:
        registry.store.drop(crds.resource_of(item.obj))
        registry.resources.remove(crds.resource_of(item.obj).id)
    if resource.namespaced:
        namespace = registry.store.get(NAMESPACES, "", item.obj["metadata"]["namespace"])
        if namespace is not None and namespace.obj["metadata"].get("deletionTimestamp"):
            _finish_namespace(registry, namespace)
    if resource.custom is not None:
        definition = registry.store.get(DEFINITIONS, "", resource.qualified)
        if definition is not None and definition.obj["metadata"].get("deletionTimestamp"):
            _finish_definition(registry, definition)
    return last


def _empty_namespace(registry: Kept, namespace: Item) -> tuple[Item, bool]:
    for resource in list(registry.resources):
        for item in registry.store[resource].in_namespace(namespace.name) if resource.namespaced else ():
            _delete_content(registry, resource, item)
    return _finish_namespace(registry, namespace)


def _delete_content(registry: Kept, resource: Resource, item: Item) -> None:
    grace = pods.grace_period(item.obj, None) if resource.id == PODS.id else 0
    marked = _mark(registry, resource, item, grace)
    if is_due(resource, marked.obj):
        remove(registry, resource, marked)


def _finish_namespace(registry: Kept, namespace: Item) -> tuple[Item, bool]:
    """The namespace goes when the last of its content has gone."""
    current = registry.store.get(NAMESPACES, "", namespace.name)
    if current is None:
        return namespace, True
    name = namespace.name
    if any(r.namespaced and registry.store[r].in_namespace(name) for r in registry.resources):
        return current, False
    obj = current.copy()
    obj["spec"] = {}
    if not is_due(NAMESPACES, obj):
        return current, False
    return remove(registry, NAMESPACES, registry.store.put(NAMESPACES, obj)), True


def _empty_definition(registry: Kept, definition: Item) -> tuple[Item, bool]:
    resource = crds.resource_of(definition.obj)
    for item in list(registry.store[resource].items.values()):
        _delete_content(registry, resource, item)
    return _finish_definition(registry, definition)


def _finish_definition(registry: Kept, definition: Item) -> tuple[Item, bool]:
    """The definition goes when the last of its objects has gone, as its cleanup finalizer promises."""
    current = registry.store.get(DEFINITIONS, "", definition.name)
    if current is None:
        return definition, True
    if registry.store[crds.resource_of(current.obj)].items:
        return current, False
    obj = current.copy()
    obj["metadata"]["finalizers"] = [f for f in obj["metadata"].get("finalizers") or () if f != crds.CLEANUP_FINALIZER]
    written = registry.store.put(DEFINITIONS, obj)
    if not is_due(DEFINITIONS, written.obj):
        return written, False
    return remove(registry, DEFINITIONS, written), True

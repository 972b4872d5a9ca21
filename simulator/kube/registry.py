"""The verbs on objects: create, update, patch, delete, list. No HTTP here, and nothing waits: each verb is one step of
the event loop, so that no other caller can come between a read and the write that depends on it.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.kube import admission, codec, crds, deletion, managed, patches, priority, restriction, schema
from simulator.kube.auth import User
from simulator.kube.errors import (
    FieldErrors,
    already_exists,
    bad_request,
    conflict,
    expired,
    forbidden,
    modified,
    not_found,
    version_too_large,
)
from simulator.kube.objects import Obj, key_of, now
from simulator.kube.resources import DEFINITIONS, NAMESPACES, NODES, PODS, SIGNING_REQUESTS, Resource, Resources
from simulator.kube.selectors import Selector
from simulator.kube.store import Item, Store
from simulator.kube.validation import check_metadata, check_shape

_SYSTEM_FIELDS = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "namespace",
    "uid",
)
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no lookalikes (k8s.io/apimachinery/pkg/util/rand)
_NAME_LIMIT = 63 - 5
_GENERATE_ATTEMPTS = 8
_SNAPSHOTS = 64
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_KEEPS_STATUS_ON_CREATE = {NODES.id}
_STATUS_WRITES_METADATA = {NODES.id, PODS.id}


@dataclass
class Options:
    """How one request wants its write done."""

    user: User
    dry_run: bool = False
    strict: bool = False
    """fieldValidation=Strict: unknown fields of a custom object are an error, not a warning."""
    warnings: list[str] = field(default_factory=list)
    manager: str = ""
    """Who writes, for managedFields of custom objects."""
    applier: str = ""
    """Who applies: there it must be said."""
    force: bool = False
    """Server-side apply takes fields over from other managers."""
    managers: list[Obj] | None = None
    """managedFields, once an apply has decided them."""


@dataclass(frozen=True)
class Page:
    """One answer to a list."""

    items: list[Item]
    version: int
    next_page: str = ""
    remaining: int | None = None


class Registry:
    def __init__(self, history: int) -> None:
        self.resources = Resources()
        self.store = Store(history)
        # Pages of a list show one moment: objects are values, so a snapshot is a list of references.
        self._snapshots: OrderedDict[str, tuple[int, list[Item]]] = OrderedDict()

    def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        item = self.store.get(resource, namespace if resource.namespaced else "", name)
        return item.obj if item else None

    def get(self, resource: Resource, namespace: str, name: str) -> Item:
        item = self.store.get(resource, namespace, name)
        if item is None:
            raise not_found(resource, name)
        return item

    # -- list ---------------------------------------------------------------------------------------------------------

    def page(self, resource: Resource, selector: Selector, limit: int, token: str, version: int, exact: bool) -> Page:
        """One page of a list; `token` is the continue token of the one before. Raises 400 or 410 for a useless one."""
        if token:
            at, rest = self._continued(token)
        else:
            at = self.store.version
            if version > at:
                raise version_too_large(version, at)
            if exact and version != at:
                # Old versions are kept as history for watches, not as lists.
                raise expired(f"The resourceVersion for the provided list is too old: {version}")
            rest = self.store[resource].select(selector)
        if not limit or len(rest) <= limit:
            return Page(rest, at)
        page, rest = rest[:limit], rest[limit:]
        next_page = self._keep(at, rest)
        return Page(page, at, next_page, len(rest) if selector.everything else None)

    def _keep(self, version: int, rest: list[Item]) -> str:
        snapshot = uuid.uuid4().hex
        self._snapshots[snapshot] = (version, rest)
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        token = {"v": "meta.k8s.io/v1", "rv": version, "start": snapshot}
        return base64.urlsafe_b64encode(json.dumps(token).encode()).decode()

    def _continued(self, token: str) -> tuple[int, list[Item]]:
        try:
            start = str(json.loads(base64.urlsafe_b64decode(token))["start"])
        except (ValueError, KeyError, TypeError) as e:
            raise bad_request(f"continue key is not valid: {e}") from None
        kept = self._snapshots.get(start)
        if kept is None:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new "
                "list without the continue parameter."
            )
        return kept

    # -- create -------------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, body: Any, options: Options) -> Item:
        check_shape(resource, body)
        obj: Obj = body
        meta = obj["metadata"]
        if resource.namespaced:
            if (meta.get("namespace") or namespace) != namespace:
                raise bad_request(_OTHER_NAMESPACE)
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)
        self._name(resource, obj)
        for name in ("deletionGracePeriodSeconds", "deletionTimestamp", "managedFields", "resourceVersion", "selfLink"):
            meta.pop(name, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now()
        if resource.has_status() and resource.id not in _KEEPS_STATUS_ON_CREATE:
            obj.pop("status", None)
        if resource.id == SIGNING_REQUESTS.id and isinstance(obj.get("spec"), dict):
            obj["spec"]["username"] = options.user.name
            obj["spec"]["groups"] = list(options.user.groups)
        if resource.generation:
            meta["generation"] = 1
        if resource.id == PODS.id:
            priority.assign(self.find, obj)
        obj = self._admitted(resource, obj, None, options)
        self._check_namespace(resource, obj)
        if key_of(obj) in self.store[resource].items:
            raise already_exists(resource, meta["name"])
        self._managed(resource, obj, None, options)
        return self._write(resource, obj, options)

    def _name(self, resource: Resource, obj: Obj) -> None:
        meta = obj["metadata"]
        if meta.get("name"):
            return
        prefix = meta.get("generateName")
        if not prefix:
            errors = FieldErrors()
            errors.required("metadata.name", "name or generateName is required")
            errors.check(resource, "")
        for _ in range(_GENERATE_ATTEMPTS):
            meta["name"] = prefix[:_NAME_LIMIT] + "".join(random.choices(_NAME_ALPHABET, k=5))
            if key_of(obj) not in self.store[resource].items:
                return

    def _check_namespace(self, resource: Resource, obj: Obj) -> None:
        if not resource.namespaced:
            return
        name = obj["metadata"]["namespace"]
        namespace = self.get(NAMESPACES, "", name).obj
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            causes = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise forbidden(resource, obj["metadata"]["name"], why, causes)

    # -- update -------------------------------------------------------------------------------------------------------

    def replace(
        self, resource: Resource, namespace: str, name: str, body: Any, options: Options, subresource: str = ""
    ) -> tuple[Item, bool]:
        """PUT. The second value says whether the object was created (kinds that allow it)."""
        check_shape(resource, body)
        old = self.store.get(resource, namespace, name)
        if old is None:
            if resource.create_on_update and not subresource:
                body["metadata"].setdefault("name", name)
                return self.create(resource, namespace, body, options), True
            raise not_found(resource, name)
        if not body["metadata"].get("resourceVersion") and not resource.unconditional_update:
            errors = FieldErrors()
            errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            errors.check(resource, name)
        return self._update(resource, old, body, options, subresource), False

    def patch(
        self,
        resource: Resource,
        item: Item,
        body: Any,
        content_type: str,
        options: Options,
        subresource: str = "",
    ) -> Item:
        custom = resource.custom is not None
        if content_type == patches.APPLY_PATCH and custom and not subresource:
            return self._apply(resource, item, body, options)
        new = patches.patched(item.obj, body, content_type, custom)
        check_shape(resource, new)
        # Patches share what they do not touch with the stored object; what follows changes in place.
        return self._update(resource, item, Item(new).copy(), options, subresource)

    def _apply(self, resource: Resource, item: Item, body: Any, options: Options) -> Item:
        """Server-side apply of a custom object, which is made where there is none."""
        assert resource.custom is not None
        check_shape(resource, body)
        if not options.applier:
            raise bad_request("fieldManager: Required value: is required for apply patch")
        if body["metadata"].get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        live = item.copy() if "uid" in item.obj["metadata"] else {}
        given = {k: v for k, v in body.items() if k != "status"}  # nobody applies it here
        shape, force = resource.custom.schema, options.force
        new, options.managers = managed.apply(live, given, shape, options.applier, force, resource.api_version)
        if not live:
            new["metadata"]["name"] = item.obj["metadata"]["name"]
            return self.create(resource, body["metadata"].get("namespace", ""), new, options)
        return self._update(resource, item, new, options, "")

    def _managed(self, resource: Resource, obj: Obj, old: Obj | None, options: Options, subresource: str = "") -> None:
        """Records who has which field of a custom object."""
        if resource.custom is None:
            return
        manager = managed.Manager(options.manager or "unknown", subresource=subresource)
        found = options.managers
        if found is None:
            found = managed.after_update(old, obj, resource.custom.schema, manager, resource.api_version)
        obj["metadata"].pop("managedFields", None)
        if found:
            obj["metadata"]["managedFields"] = found

    def modify(self, resource: Resource, item: Item, change: Callable[[Obj], None], options: Options) -> Item:
        """A write of the server itself (binding, issued token, eviction): the kind's rules do not apply."""
        obj = item.copy()
        change(obj)
        return self._finish(resource, item, obj, options)

    def _update(self, resource: Resource, item: Item, obj: Obj, options: Options, subresource: str) -> Item:
        old, name = item.obj, item.name
        meta = obj["metadata"]
        self._check_identity(resource, item, meta)
        meta["name"] = name
        meta.pop("managedFields", None)
        for system in _SYSTEM_FIELDS:
            if system in old["metadata"]:
                meta[system] = old["metadata"][system]
            else:
                meta.pop(system, None)
        if resource.has_status():
            obj = _split_status(resource, obj, old, subresource)
        obj = self._admitted(resource, obj, old, options)
        if resource.generation and _counted(obj) != _counted(old):
            obj["metadata"]["generation"] = old["metadata"]["generation"] + 1
        self._managed(resource, obj, old, options, subresource)
        return self._finish(resource, item, obj, options)

    def _check_identity(self, resource: Resource, item: Item, meta: Obj) -> None:
        name, old = item.name, item.obj["metadata"]
        if meta.get("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        if (meta.get("namespace") or old.get("namespace")) != old.get("namespace"):
            raise bad_request(_OTHER_NAMESPACE)
        if meta.get("uid") and meta["uid"] != old["uid"]:
            why = f"UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
            raise conflict(resource, name, f"StorageError: invalid object, Code: 4, Precondition failed: {why}")
        if meta.get("resourceVersion") not in (None, "", item.version):
            raise modified(resource, name)

    def _finish(self, resource: Resource, item: Item, obj: Obj, options: Options) -> Item:
        """Write what changed; an object that is being deleted goes with its last finalizer."""
        obj["metadata"]["resourceVersion"] = item.version
        obj = {**obj, "kind": resource.kind, "apiVersion": resource.api_version}
        if obj == item.obj:
            return item
        if deletion.is_due(resource, obj) and not options.dry_run:
            written = self.store.put(resource, obj)
            return deletion.remove(self, resource, written)
        return self._write(resource, obj, options)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _admitted(self, resource: Resource, obj: Obj, old: Obj | None, options: Options) -> Obj:
        name = obj["metadata"]["name"]
        errors = FieldErrors()
        try:
            obj = codec.decode(resource, obj)
            check_metadata(resource, obj, old, errors)
            if resource.custom is not None:
                self._fit(resource, obj, options, errors)
            restriction.check(resource, obj, old, options.user)
            admission.admit(resource, obj, old, errors)
        except (AttributeError, KeyError, TypeError) as e:
            # Built-in kinds have no schema here: a field of another type than its rule expects raises one of these. The
            # value stays out of the message, it may be a secret.
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"json: cannot unmarshal a field into its Go type ({type(e).__name__})"
            ) from e
        errors.check(resource, name)
        return obj

    def _fit(self, resource: Resource, obj: Obj, options: Options, errors: FieldErrors) -> None:
        """Prune, default and validate a custom object in place."""
        assert resource.custom is not None
        content = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
        unknown = schema.prune(content, resource.custom.schema)
        for path in unknown:
            if options.strict:
                raise bad_request(
                    f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                    f'strict decoding error: unknown field "{path}"'
                )
            options.warnings.append(f'unknown field "{path}"')
        schema.apply_defaults(content, resource.custom.schema)
        for name in [k for k in obj if k not in ("apiVersion", "kind", "metadata")]:
            del obj[name]
        obj.update(content)
        schema.validate(obj, resource.custom.schema, "", errors)

    def _write(self, resource: Resource, obj: Obj, options: Options) -> Item:
        if options.dry_run:
            return Item({"kind": resource.kind, "apiVersion": resource.api_version, **obj})
        item = self.store.put(resource, obj)
        if resource.id == DEFINITIONS.id:
            self.resources.add(crds.resource_of(item.obj))
        return item

    def delete(self, resource: Resource, item: Item, body: Obj, options: Options) -> tuple[Item, bool]:
        """DELETE. Answers the object as it is now (or was last) and whether it is gone."""
        try:
            return deletion.delete(self, resource, item, body, dry_run=options.dry_run)
        except (TypeError, ValueError, AttributeError) as e:
            raise bad_request(f"the DeleteOptions cannot be read: {e}") from e


def _counted(obj: Obj) -> Obj:
    """What `metadata.generation` counts the changes of."""
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata", "status")}


def _split_status(resource: Resource, obj: Obj, old: Obj, subresource: str) -> Obj:
    """Main writes leave the status as it was, status writes leave the rest."""
    if subresource in ("status", "approval"):
        kept = {k: v for k, v in old.items() if k != "status"}
        meta = obj["metadata"] if resource.id in _STATUS_WRITES_METADATA else old["metadata"]
        return Item({**kept, "metadata": meta, "status": obj.get("status") or {}}).copy()
    obj = {k: v for k, v in obj.items() if k != "status"}
    if "status" in old:
        obj["status"] = Item(old).copy()["status"]
    return obj

"""Requests on resources: from what was asked for to the verb that does it, and back to bytes."""

from __future__ import annotations

import json
from typing import Any

import yaml
from aiohttp import web

from simulator.kube import csr, eviction, patches, pods, reviews, scale
from simulator.kube.auth import Authenticator, Authorizer, User
from simulator.kube.encoding import Encoder, dumps, json_response
from simulator.kube.errors import bad_request, method_not_allowed, no_such_resource, unsupported_media_type
from simulator.kube.objects import Obj
from simulator.kube.registry import Options, Registry
from simulator.kube.requests import RequestInfo
from simulator.kube.resources import PODS, SIGNING_REQUESTS, Resource
from simulator.kube.selectors import Selector
from simulator.kube.store import Item

_SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_JSON_TYPES = ("", "application/json", "application/octet-stream")


class Reply:
    """An answer, with what the journal keeps of it."""

    def __init__(self, body: bytes, status: int = 200, item: Item | None = None, result: Obj | None = None) -> None:
        self.body = body
        self.status = status
        self.result = result or {}
        self.headers: dict[str, str] = {}
        if item is not None:
            self.result = {"name": item.name, "resourceVersion": item.version}

    def response(self) -> web.Response:
        return json_response(self.body, self.status, self.headers)


def options_of(info: RequestInfo, user: User, agent: str) -> Options:
    """`agent`: the header User-Agent, whose beginning names who writes where nobody says it, as upstream."""
    dry_run = info.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    strict, applier = info.query.get("fieldValidation") == "Strict", info.query.get("fieldManager", "")
    manager = applier or agent.partition("/")[0]
    return Options(user, dry_run == "All", strict, manager=manager, applier=applier, force=info.flag("force"))


def decode_body(info: RequestInfo, content_type: str, raw: bytes) -> Any:
    """The JSON of a write. Raises 415 for another encoding, 400 for broken JSON."""
    media = content_type.partition(";")[0].strip()
    if info.verb == "patch":
        if media == patches.APPLY_PATCH:
            return _yaml(raw)
        if media.endswith("+yaml") or media.endswith("+cbor"):
            return {}  # refused by its type, in `Registry.patch`
    elif media not in _JSON_TYPES:
        raise unsupported_media_type(
            f"the body of the request was in an unknown format ({media}) - the simulator reads application/json only"
        )
    if not raw:
        return {} if info.verb in ("delete", "deletecollection") else None
    try:
        return json.loads(raw)
    except ValueError as e:
        raise bad_request(
            f"the object provided is unrecognized: couldn't get version/kind; json parse error: {e}"
        ) from None


def _yaml(raw: bytes) -> Any:
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as e:
        raise bad_request(f"error decoding YAML: {e}") from None


class Handlers:
    def __init__(self, registry: Registry, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._authorizer = authorizer

    def handle(
        self,
        info: RequestInfo,
        resource: Resource,
        selector: Selector,
        options: Options,
        encoder: Encoder,
        content_type: str,
        body: Any,
    ) -> Reply:
        if info.subresource and info.subresource not in resource.subresources:
            raise no_such_resource()
        if resource.virtual:
            if info.verb != "create":
                raise method_not_allowed()
            review = reviews.answer(resource, body, options.user, self._authorizer, self._registry.resources)
            return Reply(dumps(review), 201)
        if info.subresource == "scale":
            return self._scale(info, resource, options, content_type, body)
        match info.verb, info.subresource:
            case "list", "":
                return self._list(info, resource, selector, encoder)
            case "get", "" | "status" | "approval":
                item = self._registry.get(resource, info.namespace, info.name)
                return Reply(encoder.one(item), item=item)
            case "create", _ if info.name:
                return self._create_on(info, options, body)
            case "create", "":
                return self._create(info, resource, options, encoder, body)
            case "update", _:
                return self._update(info, resource, options, encoder, body)
            case "patch", _:
                return self._patch(info, resource, options, encoder, content_type, body)
            case "delete", "":
                return self._delete(info, resource, options, encoder, body)
            case "deletecollection", "":
                return self._delete_collection(info, resource, selector, options, encoder, body)
        raise method_not_allowed()

    def _list(self, info: RequestInfo, resource: Resource, selector: Selector, encoder: Encoder) -> Reply:
        exact = info.query.get("resourceVersionMatch") == "Exact"
        version = info.number("resourceVersion")
        token = info.query.get("continue", "")
        page = self._registry.page(resource, selector, info.number("limit"), token, version, exact)
        metadata: Obj = {"resourceVersion": str(page.version)}
        if page.next_page:
            metadata["continue"] = page.next_page
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        result = {"items": len(page.items), "resourceVersion": str(page.version)}
        return Reply(encoder.list(page.items, metadata), result=result)

    def _create(self, info: RequestInfo, resource: Resource, options: Options, encoder: Encoder, body: Any) -> Reply:
        if resource.namespaced and not info.namespace:
            raise method_not_allowed()
        item = self._registry.create(resource, info.namespace, body, options)
        reply = Reply(encoder.one(item), 201, item)
        if resource.id == SIGNING_REQUESTS.id and not options.dry_run:
            self._settle(item, options)
        return reply

    def _create_on(self, info: RequestInfo, options: Options, body: Any) -> Reply:
        """POST on a pod: eviction and binding."""
        if info.subresource not in ("eviction", "binding"):
            raise method_not_allowed()
        pod = self._registry.get(PODS, info.namespace, info.name)
        if info.subresource == "eviction":
            eviction.evict(self._registry, pod, body, options)
        elif not isinstance(body, dict):
            raise bad_request("the body is not a Binding")
        else:
            self._registry.modify(PODS, pod, lambda obj: pods.bind(obj, body), options)
        return Reply(dumps({**_SUCCESS, "code": 201}), 201, pod)

    def _update(self, info: RequestInfo, resource: Resource, options: Options, encoder: Encoder, body: Any) -> Reply:
        item, created = self._registry.replace(resource, info.namespace, info.name, body, options, info.subresource)
        reply = Reply(encoder.one(item), 201 if created else 200, item)
        if info.subresource == "approval" and not options.dry_run:
            self._settle(item, options)
        return reply

    def _patch(
        self, info: RequestInfo, resource: Resource, options: Options, encoder: Encoder, content_type: str, body: Any
    ) -> Reply:
        media = content_type.partition(";")[0].strip()
        old = self._registry.store.get(resource, info.namespace, info.name)
        if old is None and not media.startswith("application/apply-patch"):
            self._registry.get(resource, info.namespace, info.name)
        item = self._registry.patch(
            resource, old or Item({"metadata": {"name": info.name}}), body, media, options, info.subresource
        )
        reply = Reply(encoder.one(item), 200 if old is not None else 201, item)
        if info.subresource == "approval" and not options.dry_run:
            self._settle(item, options)
        return reply

    def _delete(self, info: RequestInfo, resource: Resource, options: Options, encoder: Encoder, body: Any) -> Reply:
        item = self._registry.get(resource, info.namespace, info.name)
        last, gone = self._registry.delete(resource, item, _delete_options(info, options, body), options)
        if not gone or resource.returns_deleted:
            return Reply(encoder.one(last), item=last)
        details: Obj = {"name": item.name, "kind": resource.plural, "uid": item.obj["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return Reply(dumps({**_SUCCESS, "details": details}), item=last)

    def _delete_collection(
        self,
        info: RequestInfo,
        resource: Resource,
        selector: Selector,
        options: Options,
        encoder: Encoder,
        body: Any,
    ) -> Reply:
        if resource.namespaced and not info.namespace:
            raise method_not_allowed()
        wanted = _delete_options(info, options, body)
        gone = [
            self._registry.delete(resource, item, wanted, options)[0]
            for item in self._registry.store[resource].select(selector)
        ]
        version = str(self._registry.store.version)
        result = {"items": len(gone), "resourceVersion": version}
        return Reply(encoder.list(gone, {"resourceVersion": version}), result=result)

    def _scale(self, info: RequestInfo, resource: Resource, options: Options, content_type: str, body: Any) -> Reply:
        item = self._registry.get(resource, info.namespace, info.name)
        if info.verb == "patch":
            if content_type.partition(";")[0].strip() not in (
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ):
                raise unsupported_media_type("the simulator emulates only merge patches of a Scale")
            body = {"spec": (body or {}).get("spec") or {}, "metadata": (body or {}).get("metadata") or {}}
        elif info.verb not in ("get", "update"):
            raise method_not_allowed()
        if info.verb != "get":
            new = scale.scaled(resource, item, body)
            item, _ = self._registry.replace(resource, info.namespace, info.name, new, options)
        return Reply(dumps(scale.scale_of(resource, item)), item=item)

    def _settle(self, item: Item, options: Options) -> None:
        """Does the part of the approving and signing controllers, right after the request that calls for it."""
        if csr.may_be_approved(item.obj) and not item.obj["status"].get("conditions"):
            item = self._registry.modify(SIGNING_REQUESTS, item, csr.approve, options)
        if not csr.awaits_signing(item.obj):
            return
        node = csr.node_of(item.obj)
        if node is None:
            self._registry.modify(SIGNING_REQUESTS, item, csr.fail, options)
        else:
            token = self._authenticator.issue(node)
            self._registry.modify(SIGNING_REQUESTS, item, lambda obj: csr.issue(obj, token), options)


def _delete_options(info: RequestInfo, options: Options, body: Any) -> Obj:
    """DeleteOptions come in the body or as query parameters."""
    if not isinstance(body, dict):
        raise bad_request("DeleteOptions must be an object")
    wanted = {k: v for k, v in body.items() if v is not None}
    for name in ("gracePeriodSeconds", "propagationPolicy"):
        if name in info.query and name not in wanted:
            wanted[name] = info.query[name]
    match wanted.get("dryRun") or []:
        case []:
            pass
        case ["All"]:
            options.dry_run = True
        case other:
            raise bad_request(f"dryRun: Unsupported value: {other}")
    return wanted

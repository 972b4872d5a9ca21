"""The API server: HTTP in, HTTP out, with authentication, faults and the journal around every request."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from typing import Any

import yaml
from aiohttp import web

from simulator.frame import FaultRule, Frame
from simulator.kube import crds, discovery, openapi, priority
from simulator.kube.auth import ADMIN, ANONYMOUS, Attributes, Authenticator, Authorizer, User
from simulator.kube.encoding import Encoder, dumps, error_response, json_response
from simulator.kube.errors import STATUS_OF_REASON, ApiError, method_not_allowed, no_such_resource
from simulator.kube.handlers import Handlers, Reply, decode_body, options_of
from simulator.kube.journal import request_entry
from simulator.kube.objects import Obj, dig
from simulator.kube.pki import Pki
from simulator.kube.registry import Options, Registry
from simulator.kube.requests import RequestInfo, parse
from simulator.kube.resources import DEFINITIONS, NAMESPACES, PRIORITY_CLASSES, SECRETS, Resource
from simulator.kube.selectors import Selector
from simulator.kube.selectors import parse as parse_selector
from simulator.kube.watch import Outcome, Watch, check_parameters

_log = logging.getLogger(__name__)
_BODY_LIMIT = 8 << 20
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_HEALTH = ("/healthz", "/livez", "/readyz")
_OPEN = (*_HEALTH, "/version")
_SERVICE = "kubernetes"


class KubeApi:
    """A Kubernetes API server in one event loop.

    `admin_token` is the bearer token of the user `admin`, who may do everything. `history` is the number of events
    kept per kind for watches to resume from. Serve `app` over TLS with `ssl_context()`: kubectl sends no token without.
    """

    def __init__(self, frame: Frame, *, admin_token: str, history: int = 4000) -> None:
        self._frame = frame
        frame.join(_SERVICE)
        self._admin_token = admin_token
        self._pki = Pki()
        self._registry = Registry(history)
        self._authenticator = Authenticator(admin_token, lambda name: self._registry.find(SECRETS, "kube-system", name))
        self._authorizer = Authorizer(self._registry.find)
        self._handlers = Handlers(self._registry, self._authenticator, self._authorizer)
        self._make_what_is_always_there()
        self.app = web.Application(client_max_size=_BODY_LIMIT)
        self.app.router.add_route("*", "/{path:.*}", self._serve)
        self.app.on_shutdown.append(self._end_watches)

    # -- what the simulator around it uses ----------------------------------------------------------------------------

    @property
    def ca_pem(self) -> str:
        return self._pki.ca_pem

    def ssl_context(self) -> ssl.SSLContext:
        """A server context with a fresh certificate of the CA; call it after `load`."""
        return self._pki.ssl_context()

    def kubeconfig(self, server: str, *, cluster: str = "demo") -> str:
        """A kubeconfig for `server` (a URL) as the admin, ready for kubectl."""
        authority = base64.b64encode(self.ca_pem.encode()).decode()
        user = f"{cluster}-admin"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": self._admin_token}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
            "current-context": cluster,
        }
        return str(yaml.safe_dump(config, sort_keys=False))

    def admit_token(self, token: str) -> None:
        """One more token of the user `admin`; it is not part of a dump."""
        self._authenticator.admit(token)

    def revoke_token(self, token: str) -> None:
        """Refuse a token, be it the first one or one that was admitted."""
        self._authenticator.revoke(token)

    def dump(self) -> Obj:
        """All that must outlive the process, as JSON. It holds the CA's key and Secrets: keep the file private."""
        objects = [
            {"group": group, "plural": plural, "items": items}
            for (group, plural), items in self._registry.store.objects()
        ]
        return {
            "resourceVersion": self._registry.store.version,
            "objects": objects,
            "tokens": dict(self._authenticator.issued),
            "pki": self._pki.dump(),
        }

    def load(self, state: Obj) -> None:
        """Take over a dump. Watches from before it get 410; an empty dump changes nothing."""
        if not state:
            return
        self._pki.load(state["pki"])
        self._authenticator.issued = dict(state["tokens"])
        store = self._registry.store
        store.restore(int(state["resourceVersion"]))
        # Definitions first: they say what the other objects are.
        groups = sorted(state["objects"], key=lambda g: g["plural"] != DEFINITIONS.plural)
        for group in groups:
            for obj in group["items"]:
                resource = self._registry.resources.by_id((group["group"], group["plural"]))
                if resource is None:
                    raise ValueError(f"the dump has {group['plural']}.{group['group']}, which no definition serves")
                store.place(resource, obj)
                if resource.id == DEFINITIONS.id:
                    self._registry.resources.add(crds.resource_of(obj))

    def _make_what_is_always_there(self) -> None:
        for name in _NAMESPACES:
            self._registry.create(NAMESPACES, "", {"metadata": {"name": name}}, Options(ADMIN))
        for body in priority.classes():
            self._registry.create(PRIORITY_CLASSES, "", body, Options(ADMIN))

    async def _end_watches(self, app: web.Application) -> None:
        """Ends the watches. A watch would otherwise hold up the shutdown for as long as the runner waits."""
        for collection in self._registry.store.collections():
            for subscription in collection.subscriptions():
                subscription.end()

    # -- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            message = f"the request is larger than {_BODY_LIMIT} bytes"
            return error_response(ApiError(413, "RequestEntityTooLarge", message))
        info = parse(request.method, request.path, request.query)
        text = f"{request.path_qs} {raw.decode(errors='replace')}"
        rule = self._frame.intercept(_SERVICE, info.operation, text)
        if rule is not None and rule.delay:
            await asyncio.sleep(rule.delay)
        user = ANONYMOUS
        try:
            user = self._authenticator.authenticate(request.headers.get("Authorization"))
            if rule is not None and rule.code:
                raise _fault(rule)
            if info.verb == "watch":
                return await self._watch(request, info, user, raw, cut=rule is not None and rule.drop)
            reply = self._answer(request, info, user, raw)
        except Exception as caught:
            e = _as_answer(caught, info)
            self._record(info, user, raw, status=e.status, error=e.reason or str(e.status), dropped=_drops(rule))
            return _cut(request) if _drops(rule) else error_response(e)
        self._record(info, user, raw, status=reply.status, result=reply.result, dropped=_drops(rule))
        return _cut(request) if _drops(rule) else reply.response()

    def _record(self, info: RequestInfo, user: User, raw: bytes, **outcome: Any) -> None:
        self._frame.record(
            _SERVICE,
            info.operation,
            caller=user.name,
            request=request_entry(info, raw),
            mutating=info.mutating,
            **outcome,
        )

    def _answer(self, request: web.Request, info: RequestInfo, user: User, raw: bytes) -> Reply:
        if not info.is_resource:
            # Health and version are open to everybody, so that a supervisor needs no token.
            if user is ANONYMOUS and info.path.rstrip("/") not in _OPEN:
                why = f'User "{user.name}" cannot {info.verb} path "{info.path}"'
                raise ApiError(403, "Forbidden", f"forbidden: {why}")
            return self._page(info)
        resource, selector = self._target(info)
        body = decode_body(info, request.content_type if raw else "", raw) if info.mutating else None
        self._authorize(info, user, resource, selector, body)
        options = options_of(info, user, request.headers.get("User-Agent", ""))
        encoder = Encoder(resource, request.headers.get("Accept", ""), info)
        reply = self._handlers.handle(info, resource, selector, options, encoder, request.content_type, body)
        if options.warnings:
            reply.headers["Warning"] = ", ".join(f'299 - "{_quoted(w)}"' for w in options.warnings)
        return reply

    def _target(self, info: RequestInfo) -> tuple[Resource, Selector]:
        resource = self._registry.resources.find(info.group, info.version, info.plural)
        if resource is None or (info.namespace and not resource.namespaced):
            raise no_such_resource()
        if resource.namespaced and info.name and not info.namespace:
            raise no_such_resource()
        labels, fields = info.query.get("labelSelector", ""), info.query.get("fieldSelector", "")
        return resource, parse_selector(
            resource, namespace=info.namespace, name=info.name, labels=labels, fields=fields
        )

    def _authorize(self, info: RequestInfo, user: User, resource: Resource, selector: Selector, body: Any) -> None:
        name = info.name
        if not name and info.verb == "create" and isinstance(body, dict):
            # The path of a create has no name, yet a kubelet may only create its own Node and Lease.
            name = str(dig(body, "metadata.name") or "")
        asked = Attributes(user, info.verb, resource, info.subresource, info.namespace, name)
        self._authorizer.check(asked, selector)

    async def _watch(
        self, request: web.Request, info: RequestInfo, user: User, raw: bytes, *, cut: bool
    ) -> web.StreamResponse:
        resource, selector = self._target(info)
        self._authorize(info, user, resource, selector, None)
        if info.subresource or resource.virtual:
            raise method_not_allowed()
        check_parameters(resource, info)
        encoder = Encoder(resource, request.headers.get("Accept", ""), info)
        watch = Watch(self._registry, resource, info, selector, encoder.one, cut)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await watch.run(request, response)
            if not watch.outcome.dropped:
                await response.write_eof()
        except ConnectionError:
            pass  # the caller went away, which is how most watches end
        finally:
            self._record_watch(info, user, watch.outcome)
        return response

    def _record_watch(self, info: RequestInfo, user: User, outcome: Outcome) -> None:
        result = {"events": outcome.events, "resourceVersion": str(outcome.version)}
        self._record(info, user, b"", result=result, dropped=outcome.dropped)

    def _page(self, info: RequestInfo) -> Reply:
        """Everything that is no resource: health, version, discovery, OpenAPI."""
        if info.verb != "get":
            raise method_not_allowed()
        resources = self._registry.resources
        path = info.path.rstrip("/")
        if path in _HEALTH:
            return _Other(b"ok", "text/plain")
        if path == "/openapi/v2":
            return _Other(openapi.document_v2(), openapi.V2_PROTOBUF)
        match path.strip("/").split("/"):
            case ["version"]:
                page = discovery.version_info()
            case ["api"]:
                page = discovery.api_versions()
            case ["apis"]:
                page = discovery.group_list(resources)
            case ["api", version]:
                page = discovery.resource_list(resources, "", version)
            case ["apis", group]:
                page = discovery.group(resources, group)
            case ["apis", group, version]:
                page = discovery.resource_list(resources, group, version)
            case ["openapi", "v3"]:
                page = openapi.index(resources)
            case ["openapi", "v3", "api", version]:
                page = openapi.document(resources, "", version)
            case ["openapi", "v3", "apis", group, version]:
                page = openapi.document(resources, group, version)
            case _:
                raise no_such_resource()
        return Reply(dumps(page))


class _Other(Reply):
    """An answer that is not JSON."""

    def __init__(self, body: bytes, content_type: str) -> None:
        super().__init__(body)
        self._content_type = content_type

    def response(self) -> web.Response:
        return web.Response(body=self.body, content_type=self._content_type)


def _as_answer(error: Exception, info: RequestInfo) -> ApiError:
    """A mistake of ours is a Status too, as clients expect, and is logged."""
    if isinstance(error, ApiError):
        return error
    _log.error("%s %s failed", info.operation, info.path, exc_info=error)
    return ApiError(500, "InternalError", f"Internal error occurred: {type(error).__name__}")


def _drops(rule: FaultRule | None) -> bool:
    return rule is not None and rule.drop


def _cut(request: web.Request) -> web.Response:
    """The lost reply: the work is done and recorded, the connection ends without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return json_response(b"")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _fault(rule: FaultRule) -> ApiError:
    """The Status error a fault rule asks for."""
    reason = str(rule.code)
    status = rule.status or STATUS_OF_REASON.get(reason, 500)
    details: Obj = {}
    retry_after = rule.headers.get("Retry-After", "")
    if retry_after.isdigit():
        details["retryAfterSeconds"] = int(retry_after)
    return ApiError(status, reason, rule.message or f"{reason} (a fault rule of the simulator)", details, rule.headers)

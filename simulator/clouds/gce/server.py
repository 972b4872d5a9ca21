"""The HTTP side of the simulated Compute Engine.

`/compute/v1/…` is the REST API (any Google SDK with `api_endpoint`); `/token`, `/v1/…` and `/computeMetadata/…` give
the tokens for it (oauth.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from simulator.clouds.gce import methods, oauth
from simulator.clouds.gce.cloud import SERVICE, USER_DATA, GceCloud
from simulator.clouds.gce.context import Row
from simulator.clouds.gce.errors import OPERATION_STATUS, GceError
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.operations import Error, Operation, operation_row
from simulator.clouds.gce.world import World
from simulator.frame import FaultRule, Frame

log = logging.getLogger(__name__)

LONGEST_WAIT = 120.0
"""Seconds that a `wait` of an operation takes at most (Compute Engine API, *zoneOperations.wait*)."""
LOOK = 0.05
LATE = {
    "QUOTA_EXCEEDED": "Quota 'CPUS' exceeded.  Limit: 24.0 in region {region}.",
    "ZONE_RESOURCE_POOL_EXHAUSTED": "The zone '{scope}' does not have enough resources available to fulfill the "
    "request.  Try a different zone, or try again later.",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": "The zone '{scope}' does not have enough resources available to "
    "fulfill the request.  '(resource type:compute)'.",
}
"""What operations say that a fault rule lets fail, where the rule says nothing."""


@dataclass
class Exchange:
    """One call on its way through."""

    method: str = ""
    caller: str = ""
    request: Row = field(default_factory=dict)
    """Without secrets, unlike what the operation gets."""
    result: Row = field(default_factory=dict)
    error: str | None = None
    status: int = 200
    rule: FaultRule | None = None
    mutating: bool = False


Answer = Callable[[Exchange, web.Request], Awaitable[Any]]


class Gce(GceCloud):
    """The simulated Compute Engine: `app` is its HTTP side, the rest (see `Cloud`) is for tests and the hypervisor."""

    def __init__(
        self,
        frame: Frame,
        *,
        world: World | None = None,
        insert_delay: float = 0.0,
        boot_delay: float = 0.0,
        terminate_delay: float = 0.0,
        change_delay: float = 0.0,
        gone_visible: float = 3600.0,
    ) -> None:
        """Delays are in seconds: of an insert or start, from its end until the VM runs, of a deletion or stop, of any
        other operation, and how long an instance that is gone is remembered behind the curtain."""
        super().__init__(
            frame,
            world=world,
            insert_delay=insert_delay,
            boot_delay=boot_delay,
            terminate_delay=terminate_delay,
            change_delay=change_delay,
            gone_visible=gone_visible,
        )
        self.app = web.Application(client_max_size=4 * 1024 * 1024)
        self.app.router.add_route("*", "/compute/v1/{path:.*}", self._serve(self._compute))
        for path in oauth.TOKENS:
            self.app.router.add_post(f"/{path}", self._serve(self._token))
        impersonation = "/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
        self.app.router.add_post(impersonation, self._serve(self._impersonate))
        self.app.router.add_get("/", self._metadata)
        self.app.router.add_get(f"/{oauth.METADATA}{{path:.*}}", self._metadata)

    def _serve(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            exchange = Exchange()
            body: Any
            try:
                body = await answer(exchange, request)
            except GceError as e:
                exchange.error, exchange.status, body = e.reason, e.status, e.body()
            except oauth.OAuthError as e:
                exchange.error, exchange.status, body = e.body["error"], 400, e.body
            except Exception:
                log.exception("%s %s failed", request.method, request.path)
                failed = GceError("internalError", "The simulator failed; its log has the traceback.")
                exchange.error, exchange.status, body = failed.reason, failed.status, failed.body()
            self._record(exchange, request)
            if exchange.rule is not None and exchange.rule.drop:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            headers = exchange.rule.headers if exchange.rule is not None else None
            return web.json_response(body, status=exchange.status, headers=headers)

        return serve

    # -- the API

    async def _compute(self, exchange: Exchange, request: web.Request) -> Row:
        caller = self.authenticator.caller(request.headers)
        exchange.caller = caller.email
        method, params = methods.find(request.method, request.match_info["path"])
        exchange.method, exchange.mutating = method.id, method.mutating
        body, query = await request.read(), dict(request.query)
        call = MethodCall(method, params, query, _read(body))
        exchange.request = _without_secrets(call.text)
        methods.check(method, query, body)
        late = await self._strike(exchange, call)
        if call.project in self.world.projects or not method.id.startswith("images."):
            self.authenticator.may(caller, call.project, f"compute.{method.id}")
        self._check_place(call)
        self.settle()
        if method.id.endswith(".wait"):
            return operation_row(await self._wait(call))
        if method.id in self.reads:
            return self.reads[method.id](call)
        operation = self._change(call, caller.email, late)
        exchange.result = {
            "operation": operation.name,
            "target": operation.target,
            "targetId": operation.target_id,
        }
        return operation_row(operation)

    def _change(self, call: MethodCall, user: str, late: Error | None) -> Operation:
        repeated = self._operations.repeated(call.project, call.query)
        if repeated is not None:
            return repeated
        with self._operations.acting(user, late):
            operation = self.changes[call.method.id](call)
        self.settle()  # what takes no time is over
        return operation

    async def _wait(self, call: MethodCall) -> Operation:
        end = time.monotonic() + LONGEST_WAIT
        while (operation := self.operation(call)).status != "DONE" and time.monotonic() < end:
            await asyncio.sleep(LOOK)
            self.settle()
        return operation

    def _check_place(self, call: MethodCall) -> None:
        if call.method.id not in ("zones.get", "regions.get"):
            if "zone" in call.params:
                self._images.check_zone(call.params["zone"])
            if "region" in call.params:
                self._images.check_region(call.params["region"])

    async def _strike(self, exchange: Exchange, call: MethodCall) -> Error | None:
        """Lets a fault rule do to the call what it says. A code in capitals is an operation's: the call is accepted,
        and the answer is how its operation will end."""
        rule = exchange.rule = self.frame.intercept(SERVICE, exchange.method, json.dumps(exchange.request))
        if rule is None:
            return None
        if rule.delay:
            await asyncio.sleep(rule.delay)
        if not rule.code:
            return None
        message = rule.message or f"{rule.code} by fault rule {rule.id}"
        if not (rule.code.isupper() and call.method.mutating):
            raise GceError(rule.code, message, rule.status or OPERATION_STATUS.get(rule.code))
        said = LATE.get(rule.code, message).format(scope=call.scope, region=self.world.region)
        status = rule.status or OPERATION_STATUS.get(rule.code, 400)
        return Error(code=rule.code, message=rule.message or said, status=status)

    # -- tokens

    async def _token(self, exchange: Exchange, request: web.Request) -> Row:
        path = request.path.strip("/")
        exchange.method = oauth.TOKENS[path]
        await self._strike_token(exchange)
        return oauth.token(self.authenticator, path, await _form(request))

    async def _impersonate(self, exchange: Exchange, request: web.Request) -> Row:
        exchange.method, email = "iamcredentials.generateAccessToken", request.match_info["email"]
        exchange.request = {"email": email}
        await self._strike_token(exchange)
        return oauth.impersonated(self.authenticator, request.headers, email)

    async def _strike_token(self, exchange: Exchange) -> None:
        rule = exchange.rule = self.frame.intercept(SERVICE, exchange.method, json.dumps(exchange.request))
        if rule is not None:
            await asyncio.sleep(rule.delay)
            if rule.code:
                raise GceError(rule.code, rule.message or f"{rule.code} by fault rule {rule.id}", rule.status)

    async def _metadata(self, request: web.Request) -> web.Response:
        """The metadata server of a machine that runs as the first service account."""
        flavor = {"Metadata-Flavor": "Google"}
        if request.path != "/" and request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403, text="Missing Metadata-Flavor:Google header.")
        path = request.match_info.get("path", "")
        text = oauth.metadata(self.authenticator, self.world, path, request.query.get("recursive") == "true")
        if text is None:
            return web.Response(status=404, headers=flavor)
        kind = "application/json" if text.startswith("{") else "application/text"
        return web.Response(text=text, headers=flavor, content_type=kind)

    # -- the journal

    def _record(self, exchange: Exchange, request: web.Request) -> None:
        self.frame.record(
            SERVICE,
            exchange.method or f"{request.method} {request.path}",
            caller=exchange.caller,
            request=exchange.request,
            result=exchange.result,
            error=exchange.error,
            status=exchange.status,
            dropped=exchange.rule is not None and exchange.rule.drop,
            mutating=exchange.mutating,
        )


def _read(body: bytes) -> Any:
    try:
        found = json.loads(body) if body.strip() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise GceError("parseError", "Parse Error")
    return found


async def _form(request: web.Request) -> Mapping[str, str]:
    """The fields of a form, or of a JSON object: the SDK sends either."""
    if request.content_type == "application/json":
        return {key: str(value) for key, value in _read(await request.read()).items()}
    return {key: str(value) for key, value in (await request.post()).items()}


def _without_secrets(request: Row) -> Row:
    """The request with digests in place of what a VM configures itself by."""
    found: Row = json.loads(json.dumps(request))
    body = found.get("body", {})
    for holder in (body, body.get("metadata")):
        items = holder.get("items") if isinstance(holder, dict) else None
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict) and item.get("key") in USER_DATA:
                item["value"] = f"sha256:{hashlib.sha256(str(item.get('value', '')).encode()).hexdigest()}"
    return found

"""The HTTP side of the simulated Azure.

The paths of Azure Resource Manager and of Resource Graph are as everywhere (any SDK of Azure with a base URL).
`/<tenant>/oauth2/…` is Microsoft Entra's token endpoint, `/metadata/identity/…` a machine's own metadata service,
`/_console/…` the store of its serial console's log; `/_world/<verb>` does what no API of a cloud does, for a hypervisor
in another process.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from simulator.clouds.arm import entra
from simulator.clouds.arm.auth import EntraError
from simulator.clouds.arm.cloud import SERVICE, ArmCloud
from simulator.clouds.arm.errors import LATE, ArmError
from simulator.clouds.arm.fields import check_body, check_query
from simulator.clouds.arm.power import CONSOLE_BYTES, CONSOLE_PATH
from simulator.clouds.arm.wire import MUTATING, Answer, ArmCall, check_version, route
from simulator.frame import FaultRule

log = logging.getLogger(__name__)

CREATE = "VirtualMachines_CreateOrUpdate"
TOKEN = "Token_Get"
"""The operation of Entra, and of the metadata service."""


@dataclass
class Exchange:
    """One call on its way through."""

    operation: str = ""
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    caller: str = ""
    request: dict[str, Any] = field(default_factory=dict)
    """Without secrets, unlike what the operation gets."""
    answer: Answer = field(default_factory=Answer)
    error: str | None = None
    rule: FaultRule | None = None

    def refuse(self, error: ArmError) -> None:
        self.error = error.code
        self.answer = Answer(error.status, {"error": error.body}, error.headers)


class Arm(ArmCloud):
    """The simulated Azure: `app` is its HTTP side, the rest (see `Cloud`) is for tests and the hypervisor."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.app = web.Application(client_max_size=4 * 2**20)
        self._serve_world(self.app, ArmError, evict=self.evict)
        self.app.router.add_get(CONSOLE_PATH + "{vm}.log", self._handle_console)
        self.app.router.add_get("/metadata/identity/oauth2/token", self._handle_machine_token)
        self.app.router.add_post("/{tenant}/oauth2/v2.0/token", self._handle_token)
        self.app.router.add_get("/{tenant}/v2.0/.well-known/openid-configuration", self._handle_configuration)
        self.app.router.add_route("*", "/{path:.*}", self._handle)

    # -------------------------------------------------------------------------------------- resource manager

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange()
        try:
            exchange.answer = await self._arm(exchange, request)
        except ArmError as e:
            exchange.refuse(e)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            exchange.refuse(ArmError("InternalServerError", "The simulator failed; its log has the traceback."))
        return self._respond(exchange, request)

    async def _arm(self, exchange: Exchange, request: web.Request) -> Answer:
        exchange.operation = f"{request.method} {request.path}"  # until it is known
        exchange.operation, path = route(request.method, request.path)
        exchange.caller = self.authenticator.caller(request.headers)
        call = ArmCall(
            exchange.operation,
            path,
            query=dict(request.query),
            body=await _body(request),
            headers=request.headers,
            base=f"{request.scheme}://{request.host}",
        )
        exchange.request = _without_secrets(request.path, call)
        check_version(call.query)
        check_query(call.operation, call.query)
        check_body(call.operation, call.body)
        await self._strike(exchange, call)
        call.path["client"] = exchange.caller
        return self.handle(call, exchange.caller)

    async def _strike(self, exchange: Exchange, call: ArmCall | None = None) -> None:
        """Lets a fault rule do to the call what it says. A code that Azure never answers at once, or one with the
        status 200, is that of the operation which the call begins."""
        text = json.dumps(exchange.request)
        rule = exchange.rule = self.frame.intercept(SERVICE, exchange.operation, text)
        if rule is None:
            return
        if rule.delay:
            await asyncio.sleep(rule.delay)
        if rule.code is None:
            return
        error = ArmError(rule.code, rule.message or f"{rule.code} by fault rule {rule.id}", status=rule.status)
        if call is not None and (rule.status == 200 or (rule.status is None and rule.code in LATE)):
            call.fails = error
            return
        if call is not None and call.operation == CREATE:
            self.launch_failed(call)
        raise error

    def _respond(self, exchange: Exchange, request: web.Request) -> web.StreamResponse:
        rule, answer = exchange.rule, exchange.answer
        dropped = rule is not None and rule.drop
        if exchange.operation:
            self.frame.record(
                SERVICE,
                exchange.operation,
                caller=exchange.caller,
                request=exchange.request,
                result={"ids": answer.changed} if answer.changed else {},
                error=exchange.error,
                status=answer.status,
                dropped=dropped,
                mutating=exchange.operation in MUTATING,
            )
        if dropped:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        headers = {
            "x-ms-request-id": exchange.request_id,
            "x-ms-correlation-request-id": exchange.request_id,
            **answer.headers,
            **(rule.headers if rule is not None else {}),
        }
        if answer.body is None:
            return web.Response(status=answer.status, headers=headers)
        return web.json_response(answer.body, status=answer.status, headers=headers)

    # ------------------------------------------------------------------------------------------------- Entra

    async def _handle_token(self, request: web.Request) -> web.StreamResponse:
        form = {k: str(v) for k, v in (await request.post()).items()}
        tenant = request.match_info["tenant"]
        exchange = Exchange(TOKEN, caller=form.get("client_id", ""))
        exchange.request = {"tenant": tenant, **{k: v for k, v in form.items() if k not in entra.SECRETS}}
        return await self._login(exchange, request, lambda: entra.token(form, tenant, self.authenticator))

    async def _handle_machine_token(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(TOKEN, caller=request.query.get("client_id", ""), request=dict(request.query))
        answer = lambda: entra.machine_token(request.query, request.headers, self.authenticator)  # noqa: E731
        return await self._login(exchange, request, answer)

    async def _login(self, exchange: Exchange, request: web.Request, answer: Any) -> web.StreamResponse:
        try:
            await self._strike(exchange)
            exchange.answer = Answer(body=answer())
        except EntraError as e:
            exchange.error, exchange.answer = e.error, Answer(e.status, entra.failure(e))
        except ArmError as e:
            failure = entra.failure(EntraError(e.code, e.message))
            exchange.error, exchange.answer = e.code, Answer(e.status, failure, e.headers)
        return self._respond(exchange, request)

    async def _handle_configuration(self, request: web.Request) -> web.StreamResponse:
        base = f"https://{request.host}"  # MSAL takes no other; a client without TLS sends to http all the same
        return web.json_response(entra.configuration(base, request.match_info["tenant"]))

    # ------------------------------------------------------------------------------------- behind the curtain

    async def _handle_console(self, request: web.Request) -> web.Response:
        try:
            text = self.console(request.match_info["vm"])
        except ArmError as e:
            return web.Response(text=e.message, status=e.status)
        return web.Response(body=text.encode()[-CONSOLE_BYTES:], content_type="text/plain")


async def _body(request: web.Request) -> Any:
    text = await request.read()
    if not text:
        return {}
    try:
        return json.loads(text)
    except ValueError as e:
        raise ArmError(
            "InvalidRequestContent", f"The request content was invalid and could not be deserialized: '{e}'."
        ) from None


def _without_secrets(path: str, call: ArmCall) -> dict[str, Any]:
    body = call.body
    profile = (body.get("properties") or {}).get("osProfile") if isinstance(body, dict) else None
    if isinstance(profile, dict) and profile.keys() & {"customData", "adminPassword"}:
        body = copy.deepcopy(body)
        for name in {"customData", "adminPassword"} & profile.keys():
            digest = hashlib.sha256(str(profile[name]).encode()).hexdigest()
            body["properties"]["osProfile"][name] = f"sha256:{digest}"
    query = {k: v for k, v in call.query.items() if k != "api-version"}
    return {"path": path, **({"query": query} if query else {}), **({"body": body} if body else {})}

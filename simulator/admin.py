"""The simulator's own HTTP API: faults, lag, the journal of calls, knobs, and what happens to a VM behind everyone's
back.

JSON in and out, on a loopback port of its own and without authentication. A request with an unknown field is refused
with 422 and the field's name: a misspelt fault rule that strikes nothing would make a test pass for no reason.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.clouds import Cloud, clouds_of
from simulator.frame import FaultRule, Frame, Lag
from simulator.kubelet import KnobRule, Kubelets

ANY = "*"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CallsQuery(BaseModel):
    """What part of the journal is asked for: calls after number `since` whose operation fits a shell pattern."""

    model_config = ConfigDict(extra="forbid")

    service: str | None = None
    operation: str | None = None
    since: int = 0
    mutating: bool | None = None


class _OfInstance(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str = Field(alias="instanceId")


class _Console(_OfInstance):
    text: str


class _Impair(_OfInstance):
    impaired: bool = True


class Admin:
    """Serves `app`. `changed` is called after everything that the saved state should show."""

    def __init__(self, frame: Frame, clouds: Iterable[Cloud], kubelets: Kubelets, changed: Callable[[], None]) -> None:
        self._frame = frame
        self._kubelets = kubelets
        self._changed = changed
        self.app = web.Application(middlewares=[_errors])
        self.app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/faults", self._get_faults),
                web.post("/faults", self._post_faults),
                web.delete("/faults", self._delete_faults),
                web.delete("/faults/{id}", self._delete_fault),
                web.get("/lag", self._get_lag),
                web.post("/lag", self._post_lag),
                web.get("/calls", self._get_calls),
                web.get("/knobs", self._get_knobs),
                web.post("/knobs", self._post_knobs),
                web.delete("/knobs", self._delete_knobs),
                web.post("/reset", self._reset),
            ]
        )
        clouds = list(clouds)
        self._add_vms("vms", clouds)
        for cloud in clouds:
            self._add_vms(cloud.service, [cloud])

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    # -- faults and lag

    async def _get_faults(self, request: web.Request) -> web.Response:
        return _dumped(self._frame.faults)

    async def _post_faults(self, request: web.Request) -> web.Response:
        """Adds one rule, or a list of them; answers with their ids."""
        rules = [FaultRule.model_validate(item) for item in await _items(request)]
        for rule in rules:
            self._check_service(rule.service)
        self._frame.faults.extend(rules)
        self._changed()
        return _dumped(rules, status=201)

    async def _delete_faults(self, request: web.Request) -> web.Response:
        self._frame.clear_faults()
        self._changed()
        return _dumped(self._frame.faults)

    async def _delete_fault(self, request: web.Request) -> web.Response:
        """Deletes a rule. 404 when there is no such rule: it may have struck for the last time."""
        kept = [rule for rule in self._frame.faults if rule.id != request.match_info["id"]]
        if len(kept) == len(self._frame.faults):
            return _error(404, f"no fault rule {request.match_info['id']!r}")
        self._frame.faults[:] = kept
        self._changed()
        return _dumped(self._frame.faults)

    async def _get_lag(self, request: web.Request) -> web.Response:
        return web.json_response(self._frame.lag.model_dump())

    async def _post_lag(self, request: web.Request) -> web.Response:
        """Sets the fields that are given and leaves the others."""
        given = Lag.model_validate(await _body(request)).model_dump(exclude_unset=True)
        self._frame.lag = self._frame.lag.model_copy(update=given)
        self._changed()
        return await self._get_lag(request)

    # -- journal

    async def _get_calls(self, request: web.Request) -> web.Response:
        """Answers with the calls. `last` is the number to ask from next time, even when nothing fits."""
        query = CallsQuery.model_validate(dict(request.query))
        self._check_service(query.service or ANY)
        later = self._frame.calls(since=query.since)
        calls = self._frame.calls(query.service, query.operation, query.since)
        if query.mutating is not None:
            calls = [call for call in calls if call.mutating == query.mutating]
        last = later[-1].n if later else query.since
        return web.json_response({"calls": [call.model_dump(mode="json") for call in calls], "last": last})

    def _check_service(self, name: str) -> None:
        """Raises HTTPUnprocessableEntity for an unknown service: its rule would strike nothing."""
        known = [*self._frame.services, ANY]
        if name not in known:
            message = f"there is no service {name!r}; there are {', '.join(known)}"
            error = {"error": f"service: {message}", "fields": [{"field": "service", "message": message}]}
            raise web.HTTPUnprocessableEntity(text=json.dumps(error), content_type="application/json")

    # -- knobs

    async def _get_knobs(self, request: web.Request) -> web.Response:
        return _dumped(self._kubelets.knobs, exclude_unset=True)

    async def _post_knobs(self, request: web.Request) -> web.Response:
        """Adds one rule or a list of them; a rule replaces one with the same `match`."""
        rules = [KnobRule.model_validate(item) for item in await _items(request)]
        replaced = {rule.match for rule in rules}
        self._kubelets.set_knobs([*(r for r in self._kubelets.knobs if r.match not in replaced), *rules])
        self._changed()
        return _dumped(self._kubelets.knobs, exclude_unset=True)

    async def _delete_knobs(self, request: web.Request) -> web.Response:
        self._kubelets.set_knobs(())
        self._changed()
        return _dumped(self._kubelets.knobs)

    async def _reset(self, request: web.Request) -> web.Response:
        """Resets faults, journal, lag and knobs to their initial state; the cloud and the cluster stay as they are."""
        self._frame.clear_faults()
        self._frame.reset_journal()
        self._frame.lag = Lag()
        self._kubelets.set_knobs(())
        self._changed()
        return web.json_response({"status": "reset"})

    # -- VMs

    def _add_vms(self, whose: str, clouds: list[Cloud]) -> None:
        """Adds `/<whose>/resources`, what was made in these clouds, and `/console`, `/impair` and `/kill`: what happens
        to their VMs behind everyone's back."""

        async def resources(request: web.Request) -> web.Response:
            return web.json_response([asdict(resource) for cloud in clouds for resource in cloud.resources()])

        async def console(request: web.Request) -> web.Response:
            asked = _Console.model_validate(await _body(request))
            return self._on_instance(clouds, asked, lambda cloud, vm: cloud.set_console(vm, asked.text))

        async def impair(request: web.Request) -> web.Response:
            asked = _Impair.model_validate(await _body(request))
            return self._on_instance(clouds, asked, lambda cloud, vm: cloud.impair(vm, asked.impaired))

        async def kill(request: web.Request) -> web.Response:
            asked = _OfInstance.model_validate(await _body(request))
            return self._on_instance(clouds, asked, lambda cloud, vm: cloud.kill(vm))

        self.app.router.add_get(f"/{whose}/resources", resources)
        for handler in (console, impair, kill):
            self.app.router.add_post(f"/{whose}/{handler.__name__}", handler)

    def _on_instance(self, clouds: list[Cloud], body: _OfInstance, act: Callable[[Cloud, str], None]) -> web.Response:
        found = clouds_of(clouds, body.instance_id)
        if not found:
            return _error(404, f"there is no VM {body.instance_id!r}")
        if len(found) > 1:
            paths = " or ".join(f"/{cloud.service}/…" for cloud in found)
            return _error(409, f"several clouds have a VM {body.instance_id!r}: use {paths}, not /vms/…")
        act(found[0], body.instance_id)
        self._changed()
        return web.json_response({"instanceId": body.instance_id})


async def _body(request: web.Request) -> Any:
    text = await request.text()
    try:
        return json.loads(text) if text else {}
    except ValueError as e:
        raise web.HTTPBadRequest(text=json.dumps({"error": f"the body is not JSON: {e}"})) from None


async def _items(request: web.Request) -> list[Any]:
    body = await _body(request)
    return body if isinstance(body, list) else [body]


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as e:
        fields = [
            {"field": ".".join(map(str, error["loc"])), "message": error["msg"]}
            for error in e.errors(include_url=False, include_context=False, include_input=False)
        ]
        named = "; ".join(f"{f['field'] or 'body'}: {f['message']}" for f in fields)
        return web.json_response({"error": named, "fields": fields}, status=422)


def _dumped(models: list[Any], *, status: int = 200, exclude_unset: bool = False) -> web.Response:
    body = [model.model_dump(mode="json", exclude_unset=exclude_unset) for model in models]
    return web.json_response(body, status=status)


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)

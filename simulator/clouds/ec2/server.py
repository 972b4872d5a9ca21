"""The HTTP side of the simulated EC2.

`/` speaks EC2's query protocol (any AWS SDK with an endpoint URL) and three operations of STS;
`/_world/<verb>` does what no API of a cloud does, for a hypervisor in another process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from simulator.clouds.ec2 import sts
from simulator.clouds.ec2.auth import claimed_key
from simulator.clouds.ec2.cloud import Ec2Cloud
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.fields import MUTATING, check_action, check_fields
from simulator.clouds.ec2.wire import Params, Row, answer, decode, error_answer
from simulator.clouds.ec2.world import World
from simulator.frame import FaultRule, Frame

log = logging.getLogger(__name__)

_IDS = {
    "InstanceIds": "instanceIds",
    "InstanceId": "instanceIds",
    "NetworkInterfaceId": "networkInterfaceIds",
    "VolumeId": "volumeIds",
    "Resources": "resources",
}
"""Parameters of changing calls that name what they change, and how the journal calls it."""


@dataclass
class Exchange:
    """One call on its way through."""

    action: str
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    caller: str = ""
    params: Params = field(default_factory=dict)
    """Without secrets, unlike what the operation gets."""
    result: dict[str, Any] = field(default_factory=dict)
    error: Ec2Error | None = None
    rule: FaultRule | None = None

    @property
    def status(self) -> int:
        return self.error.status if self.error else 200


class Ec2(Ec2Cloud):
    """The simulated EC2: `app` is its HTTP side, the rest (see `Cloud`) is for tests and the hypervisor."""

    def __init__(
        self,
        frame: Frame,
        *,
        world: World | None = None,
        boot_delay: float = 0.0,
        terminate_delay: float = 0.0,
        terminated_visible: float = 3600.0,
    ) -> None:
        """Delays are in seconds: boot, terminate (and stop), and how long a terminated instance is still described."""
        super().__init__(
            frame,
            world=world,
            boot_delay=boot_delay,
            terminate_delay=terminate_delay,
            terminated_visible=terminated_visible,
        )
        self.app = web.Application()
        self.app.router.add_post("/", self._handle)
        self._serve_world(self.app, Ec2Error)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        form = parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
        exchange = Exchange(action=dict(form).get("Action", ""))
        of_sts = exchange.action in sts.ACTIONS
        try:
            if of_sts:
                text = await self._sts(exchange, request, body, dict(form))
            else:
                text = await self._ec2(exchange, request, body, form)
        except Ec2Error as e:
            exchange.error = e
        except Exception:
            log.exception("%s failed", exchange.action)
            exchange.error = Ec2Error("InternalError", "The simulator failed; its log has the traceback.")
        self._record(exchange)
        if exchange.rule is not None and exchange.rule.drop:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if exchange.error is not None:
            text = (sts.error_answer if of_sts else error_answer)(exchange.error, exchange.request_id)
        headers = exchange.rule.headers if exchange.rule is not None else None
        return web.Response(text=text, status=exchange.status, content_type="text/xml", headers=headers)

    async def _ec2(self, exchange: Exchange, request: web.Request, body: bytes, form: list[tuple[str, str]]) -> str:
        action = exchange.action
        exchange.caller = claimed_key(request.headers)
        caller = self.authenticator.caller(request.method, str(request.url), request.headers, body)
        check_action(action)
        params = decode(action, form)
        exchange.params = _without_secrets(params)
        check_fields(action, params)
        await self._strike(exchange, params, caller.account)
        self.settle()
        if params.get("DryRun") and action != "RunInstances":
            raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        with self.settings.acting(caller.account):
            result = self.operations[action](params)
        exchange.result = _changed(action, params, result)
        return answer(action, result, exchange.request_id)

    async def _sts(self, exchange: Exchange, request: web.Request, body: bytes, form: dict[str, str]) -> str:
        caller = None
        if exchange.action != sts.WEB_IDENTITY:
            exchange.caller = claimed_key(request.headers)
            try:
                caller = self.authenticator.caller(request.method, str(request.url), request.headers, body, "sts")
            except Ec2Error as e:
                raise sts.refusal(e) from None
        exchange.params = {"RoleArn": form["RoleArn"]} if "RoleArn" in form else {}
        await self._strike(exchange, exchange.params)
        return sts.answer(exchange.action, form, caller, self.authenticator, exchange.request_id)

    async def _strike(self, exchange: Exchange, params: Params, account: str = "") -> None:
        """Lets a fault rule do to the call what it says."""
        rule = exchange.rule = self.frame.intercept("ec2", exchange.action, json.dumps(params))
        if rule is None:
            return
        if rule.delay:
            await asyncio.sleep(rule.delay)
        if rule.code:
            if exchange.action == "RunInstances":
                with self.settings.acting(account):
                    self.launch_failed(params)
            raise Ec2Error(rule.code, rule.message or f"{rule.code} by fault rule {rule.id}", rule.status)

    def _record(self, exchange: Exchange) -> None:
        self.frame.record(
            "ec2",
            exchange.action,
            caller=exchange.caller,
            request=exchange.params,
            result=exchange.result,
            error=exchange.error.code if exchange.error else None,
            status=exchange.status,
            dropped=exchange.rule is not None and exchange.rule.drop,
            mutating=exchange.action in MUTATING and not exchange.params.get("DryRun"),
        )


def _without_secrets(params: Params) -> Params:
    if "UserData" not in params:
        return params
    return {**params, "UserData": f"sha256:{hashlib.sha256(params['UserData'].encode()).hexdigest()}"}


def _changed(action: str, params: Params, result: Row) -> dict[str, Any]:
    """Ids of what a call made or changed, for the journal."""
    if action not in MUTATING:
        return {}
    if action == "RunInstances":
        instances = result["Instances"]
        return {
            "instanceIds": [i["InstanceId"] for i in instances],
            "volumeIds": [b["Ebs"]["VolumeId"] for i in instances for b in i["BlockDeviceMappings"]],
            "networkInterfaceIds": [n["NetworkInterfaceId"] for i in instances for n in i["NetworkInterfaces"]],
        }
    return {name: params[p] if isinstance(params[p], list) else [params[p]] for p, name in _IDS.items() if p in params}

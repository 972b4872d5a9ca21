"""The simulated Azure on a port, with the stock clients of Azure's SDK."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from aiohttp import web
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

from simulator.clouds.arm import Arm, Delays, World
from simulator.frame import FaultRule, Frame

T = TypeVar("T")
DEADLINE = 20.0
"""Seconds until something that must happen counts as not happening."""
WORLD = World()
SUBSCRIPTION, OTHER = WORLD.subscriptions
GROUP = WORLD.groups[0]
LOCATION = WORLD.location
NETWORK = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
SUBNET = f"{NETWORK}/virtualNetworks/shoot--demo/subnets/nodes"
UBUNTU = {
    "publisher": "Canonical",
    "offer": "0001-com-ubuntu-server-jammy",
    "sku": "22_04-lts-gen2",
    "version": "latest",
}
KEY = {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}
VERSION = "2024-07-01"


class Bearer(SansIOHTTPPolicy[Any, Any]):
    """The SDK's own policy refuses to send a token over plain HTTP, also on the loopback."""

    def __init__(self, token: str) -> None:
        self.token = token

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = f"Bearer {self.token}"


class NoCredential:
    """The clients want one, and never ask it."""

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        raise AssertionError("nobody asks for a token")


class Served:
    """An Arm on a port, with clients. Its operations take no time unless `delays` says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, world: World | None = None, **delays: float) -> None:
        self.loop = loop
        self.frame = Frame()
        self.arm = Arm(self.frame, world=world, delays=Delays(**delays))
        self.delays = self.arm.settings.delays
        self.run(self._start())
        self.token = self.login()
        self.compute, self.network = self.clients(self.token)

    async def _start(self) -> None:
        await self.arm.start()
        self.runner = web.AppRunner(self.arm.app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self.runner.cleanup()
        await self.arm.stop()

    def close(self) -> None:
        self.compute.close()
        self.network.close()
        self.run(self._stop())

    def run(self, awaitable: Awaitable[T]) -> T:
        async def run() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE)

    def call(self, do: Callable[[], T]) -> T:
        """Runs something in the simulator's own event loop."""

        async def run() -> T:
            return do()

        return self.run(run())

    # -- who asks

    def login(self, of: int = 0, **form: str) -> str:
        """A token of one of the world's applications."""
        principal = self.arm.world.principals[of]
        plain = {
            "grant_type": "client_credentials",
            "client_id": principal.client_id,
            "client_secret": principal.secret,
            "scope": "https://management.azure.com/.default",
        }
        body = urllib.parse.urlencode({k: v for k, v in {**plain, **form}.items() if v})
        status, answer = self.http("POST", f"/{principal.tenant}/oauth2/v2.0/token", raw=body.encode(), token="")
        assert status == 200, answer
        return str(answer["access_token"])

    def settings(self, token: str) -> dict[str, Any]:
        """What every client is made with."""
        return {
            "base_url": self.url,
            "credential_scopes": [f"{self.url}/.default"],
            "authentication_policy": Bearer(token),
            "retry_total": 0,
            "polling_interval": 0.02,
        }

    def clients(self, token: str, subscription: str = SUBSCRIPTION) -> tuple[Any, Any]:
        settings = self.settings(token)
        return (
            ComputeManagementClient(NoCredential(), subscription, **settings),
            NetworkManagementClient(NoCredential(), subscription, **settings),
        )

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        token: str | None = None,
        **headers: str,
    ) -> tuple[int, Any]:
        """A plain call: status, and the body's JSON."""
        if path.startswith("/subscriptions") and "api-version" not in path:
            path += f"{'&' if '?' in path else '?'}api-version={VERSION}"
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        kind = "application/x-www-form-urlencoded" if raw is not None else "application/json"
        heads = {"Content-Type": kind, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if token != "":
            heads["Authorization"] = f"Bearer {self.token if token is None else token}"
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=heads)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    # -- what goes wrong

    def fault(self, operation: str, code: str | None = None, **rule: Any) -> None:
        struck = FaultRule(service="arm", operation=operation, code=code, **rule)
        self.call(lambda: self.frame.faults.append(struck))

    def journal(self, operation: str = "*") -> list[Any]:
        return self.frame.calls("arm", operation)

    # -- what is made

    def nic(self, name: str, subnet: str = SUBNET, **properties: Any) -> Any:
        configuration = {"name": "v4", "properties": {"subnet": {"id": subnet}}}
        body = {"location": LOCATION, "properties": {"ipConfigurations": [configuration], **properties}}
        return self.network.network_interfaces.begin_create_or_update(GROUP, name, body).result(DEADLINE)

    def vm_body(self, name: str, nic: str, **properties: Any) -> dict[str, Any]:
        """A VM with an OS disk and a data disk, which go with it, as does its NIC."""
        plain: dict[str, Any] = {
            "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
            "storageProfile": {
                "imageReference": UBUNTU,
                "osDisk": {
                    "name": f"{name}-os-disk",
                    "createOption": "FromImage",
                    "diskSizeGB": 64,
                    "managedDisk": {"storageAccountType": "Premium_LRS"},
                    "deleteOption": "Delete",
                },
                "dataDisks": [
                    {
                        "lun": 0,
                        "name": f"{name}-0-data-disk",
                        "createOption": "Empty",
                        "diskSizeGB": 16,
                        "deleteOption": "Delete",
                    }
                ],
            },
            "osProfile": {
                "computerName": name,
                "adminUsername": "core",
                "customData": "I2Nsb3Vk",
                "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [KEY]}},
            },
            "networkProfile": {
                "networkInterfaces": [{"id": nic, "properties": {"primary": True, "deleteOption": "Delete"}}]
            },
        }
        of = {k: v for k, v in {**plain, **properties}.items() if v is not None}
        return {"location": LOCATION, "zones": ["1"], "tags": {"cluster": "c1"}, "properties": of}

    def vm(self, name: str, **properties: Any) -> Any:
        """A VM that is made, with a NIC of its own."""
        return self.create(name, self.vm_body(name, self.nic(f"{name}-nic").id, **properties))

    def create(self, name: str, body: dict[str, Any]) -> Any:
        return self.compute.virtual_machines.begin_create_or_update(GROUP, name, body).result(DEADLINE)

    def power(self, name: str) -> list[str]:
        return [s.code for s in self.compute.virtual_machines.instance_view(GROUP, name).statuses]


def refusal(do: Callable[[], Any]) -> tuple[int, str]:
    """Status and code with which a call of the SDK, or its operation, ends: 200 for one that failed late."""
    with pytest.raises(HttpResponseError) as caught:
        do()
    assert caught.value.error is not None
    return int(caught.value.status_code or 0), str(caught.value.error.code)


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own: the SDK blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()

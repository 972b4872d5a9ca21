"""The made-up cloud as one of the simulator's: its server, and its VMs as their kubelets see them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from fakecloud.api import SERVICE, FakeApi, FakeError, NoAnswer, Thing
from fakecloud.wire import decoded, encoded
from simulator.clouds import CloudResource, Power, Size
from simulator.frame import Frame
from simulator.kubelet import Timings

LOOK = 0.02
"""Seconds between two looks at the VMs, whose state follows from the time."""
LONGEST_CALL = 600.0
POWERS = {"running": Power.ON, "terminated": Power.GONE}


@dataclass(frozen=True)
class Vm:
    instance_id: str
    name: str
    power: Power
    private_dns_name: str
    private_ip: str
    provider_id: str
    user_data: bytes
    instance_type: str = "small"
    size: Size = Size(cpus=3)  # noqa: RUF009  # frozen
    zone: str = ""
    region: str = ""


def vm_of(thing: Thing) -> Vm:
    return Vm(
        instance_id=thing.id,
        name=thing.name,
        power=POWERS.get(thing.state, Power.OFF),
        private_dns_name=thing.name,
        private_ip=f"10.0.0.{thing.id.removeprefix('vm-')}",
        provider_id=f"fake:///{thing.id}",
        user_data=thing.user_data.encode(),
    )


class FakeCloud:
    """See `simulator.clouds.Cloud`. The world is the accounts by credentials."""

    service = SERVICE

    def __init__(self, frame: Frame, timings: Timings, accounts: dict[str, str]) -> None:
        self.api = FakeApi(frame, accounts)
        self.api.boot, self.api.terminate = timings.launch, timings.terminate
        self.app = web.Application()
        self.app.router.add_post("/{operation}", self._handle)
        self._subscribers: list[Callable[[Vm], None]] = []
        self._told: dict[str, Power] = {}
        self._clock: asyncio.Task[None] | None = None

    async def _handle(self, request: web.Request) -> web.Response:
        parameters, credentials = await request.json(), request.headers.get("Authorization", "")
        operation = request.match_info["operation"]
        try:
            result = await asyncio.to_thread(self.api.call, operation, credentials, LONGEST_CALL, **parameters)
        except FakeError as e:
            return web.json_response({"code": e.code, "message": str(e)}, status=400)
        except NoAnswer:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(text=encoded(result))

    async def start(self) -> None:
        self._clock = asyncio.create_task(self._run())

    async def stop(self) -> None:
        assert self._clock is not None
        self._clock.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._clock

    async def _run(self) -> None:
        while True:
            for vm in self._vms():
                if self._told.get(vm.instance_id) is not vm.power:
                    self._told[vm.instance_id] = vm.power
                    for tell in self._subscribers:
                        tell(vm)
            await asyncio.sleep(LOOK)

    def _vms(self) -> list[Vm]:
        return [vm_of(thing) for thing in list(self.api.things.values()) if thing.kind == "vm"]

    # -- behind the curtain

    def subscribe(self, callback: Callable[[Vm], None]) -> None:
        self._subscribers.append(callback)
        for vm in self._vms():
            if vm.power is not Power.GONE:
                callback(vm)

    def has_vm(self, instance_id: str) -> bool:
        return instance_id in self.api.things

    def resources(self) -> list[CloudResource]:
        return [
            CloudResource(t.id, f"{t.kind}s", dict(t.labels), vm=t.kind == "vm", gone=t.state == "terminated")
            for t in list(self.api.things.values())
        ]

    def set_console(self, instance_id: str, text: str) -> None:
        self.api.things[instance_id].output += text

    def impair(self, instance_id: str, impaired: bool) -> None:
        """This cloud has no health check of its own."""

    def kill(self, instance_id: str) -> None:
        self.api.kill(instance_id)

    def dump(self) -> dict[str, Any]:
        return {"things": [asdict(thing) for thing in self.api.things.values()], "count": self.api.count}

    def load(self, state: dict[str, Any]) -> None:
        self.api.things = {thing.id: thing for thing in decoded(encoded(state["things"]))}
        self.api.count = state["count"]


def simulated(frame: Frame, timings: Timings, world: Any = None) -> FakeCloud:
    return FakeCloud(frame, timings, {"token-of-the-one": "one"} if world is None else dict(world))

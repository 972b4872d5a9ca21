"""What simulated clouds have in common: a clock, whoever hears of their VMs, and the way to a hypervisor's verbs.

A cloud need not stand on it (`simulator.clouds.Cloud` is the contract); one that works on calls in the event loop, and
whose changes come due at a time, does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.frame import Frame
from simulator.kubelet.machine import Vm

log = logging.getLogger(__name__)

V = TypeVar("V", bound=Vm)


class _OfVm(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str = Field(alias="instanceId")


class _SetConsole(_OfVm):
    text: str


class _Impair(_OfVm):
    impaired: bool


class SimulatedCloud(Generic[V]):
    """All state of a simulated cloud's accounts; what lies behind the API covers all of them.

    Every method belongs to the event loop that serves it; nothing is locked.
    """

    service: ClassVar[str]

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        frame.join(self.service)
        self._wake = asyncio.Event()
        """Set when something may come due earlier than was thought."""
        self._task: asyncio.Task[None] | None = None
        self._subscribers: list[Callable[[V], None]] = []

    # -- what a subclass says

    def settle(self) -> None:
        """Makes every change whose time has come. Calls do it first; the background task does it when there are
        none."""
        raise NotImplementedError

    def _due(self) -> Iterable[float | None]:
        """When something comes due next, by kind; None: nothing of that kind does."""
        raise NotImplementedError

    def _living(self) -> Iterable[V]:
        raise NotImplementedError

    def set_console(self, instance_id: str, text: str) -> None:
        raise NotImplementedError

    def impair(self, instance_id: str, impaired: bool) -> None:
        raise NotImplementedError

    def kill(self, instance_id: str) -> None:
        raise NotImplementedError

    # -- time

    async def start(self) -> None:
        """Starts the background task; once is enough, twice does no harm."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"{self.service}-clock")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            # Cleared before looking: a change that comes in between sets it again and is not slept over.
            self._wake.clear()
            self.settle()
            due = min(filter(None, self._due()), default=None)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: on Python 3.11 it swallows a cancellation that meets the event (gh-86296).
                async with asyncio.timeout(None if due is None else max(0.0, due - time.time())):
                    await self._wake.wait()

    # -- behind the curtain

    def subscribe(self, callback: Callable[[V], None]) -> None:
        """Calls back at each change of a VM's power, and at once for every living VM."""
        self._subscribers.append(callback)
        for vm in self._living():
            _call(callback, vm)

    def _tell(self, vm: V) -> None:
        for callback in tuple(self._subscribers):
            _call(callback, vm)

    def _serve_world(self, app: web.Application, refusal: type[Exception], **more: Callable[[str], None]) -> None:
        """Serves `/_world/<verb>`: what no API of a cloud does, for a hypervisor in another process. `refusal`: what is
        raised where there is no such VM; `more`: verbs that only this cloud has."""
        verbs = ("set_console", "impair", "kill", *more)

        def do(verb: str, body: bytes) -> None:
            match verb:
                case "set_console":
                    console = _SetConsole.model_validate_json(body)
                    self.set_console(console.instance_id, console.text)
                case "impair":
                    impair = _Impair.model_validate_json(body)
                    self.impair(impair.instance_id, impair.impaired)
                case _:
                    {"kill": self.kill, **more}[verb](_OfVm.model_validate_json(body).instance_id)

        async def handle(request: web.Request) -> web.Response:
            verb, body = request.match_info["verb"], await request.read()
            if verb not in verbs:
                return web.json_response({"error": f"no verb '{verb}': {', '.join(verbs)}"}, status=404)
            try:
                do(verb, body)
            except ValidationError as e:
                return web.json_response({"error": json.loads(e.json(include_url=False))}, status=400)
            except refusal as e:
                return web.json_response({"error": str(e)}, status=404)
            return web.json_response({})

        app.router.add_post("/_world/{verb}", handle)


def _call(callback: Callable[[V], None], vm: V) -> None:
    try:
        callback(vm)
    except Exception:  # a listener's mistake must not turn into a failed call of somebody else
        log.exception("a subscriber failed on %s (%s)", vm.instance_id, vm.power)


def dumped(records: Mapping[str, BaseModel]) -> dict[str, Any]:
    """Records by key, fit for JSON."""
    return {key: record.model_dump(mode="json") for key, record in records.items()}

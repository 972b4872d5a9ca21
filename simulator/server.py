"""The whole simulator: clouds, a cluster, its kubelets and controllers, on 127.0.0.1, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import inspect
import logging
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, overload

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import BaseModel, ConfigDict, Field, field_validator

from resources.clouds import simulations
from simulator.admin import Admin
from simulator.client import server_of
from simulator.clouds import Cloud, Vm, make_cloud
from simulator.controllers import Controllers, DaemonSettings
from simulator.frame import FaultRule, Frame, Lag
from simulator.kube import KubeApi
from simulator.kubelet import KnobRule, Kubelets, Timings

HOST = "127.0.0.1"
STATE_FILE = "simulator.json"
SAVE_EVERY = 1.0  # seconds between two saves, when something has changed
JOURNAL_KEPT = 2_000  # calls of the journal that are saved
SHUTDOWN_TIMEOUT = 0.5  # seconds that open watches are given at the end

log = logging.getLogger(__name__)

T = TypeVar("T")


class PortTakenError(RuntimeError):
    """A port of the settings cannot be listened on; the message names both."""


class CloudSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    port: int = Field(default=0, ge=0, le=65535)
    world: Any = None
    """What its accounts hold from the start, as the cloud's own package says it; None: its example."""


def every_cloud() -> dict[str, CloudSettings]:
    return {name: CloudSettings() for name in simulations()}


class SimulatorSettings(BaseModel):
    """`state_dir` None: nothing is kept. A port of 0: any free one, and after a restart the same one if it still is."""

    model_config = ConfigDict(extra="forbid")

    kube_port: int = Field(default=0, ge=0, le=65535)
    admin_port: int = Field(default=0, ge=0, le=65535)
    clouds: dict[str, CloudSettings] = Field(default_factory=every_cloud)
    """Those that are served, by their names in Hostler's settings, such as aws; each on a port of its own."""
    api_server_kubeconfig: str | None = Field(default=None, repr=False)
    """YAML of an administrator's kubeconfig, everything inline: kubelets join this cluster, whose controllers are its
    own. The simulator then has no Kubernetes API and no controllers."""
    state_dir: Path | None = None
    cluster: str = "demo"
    timings: Timings = Field(default_factory=Timings.demo)
    config_daemons: bool = False
    """Serve the kinds of machine configs, with a daemon on each Node of a pool."""
    knobs: list[KnobRule] = Field(default_factory=list)
    """Knobs for a fresh state; a saved state brings its own."""

    @field_validator("clouds")
    @classmethod
    def simulated_ones(cls, clouds: dict[str, CloudSettings]) -> dict[str, CloudSettings]:
        if unknown := clouds.keys() - simulations().keys():
            known = ", ".join(simulations())
            raise ValueError(f"{', '.join(sorted(unknown))} cannot be simulated; there are {known}")
        return clouds


class Simulator:
    """An asynchronous context manager; see `SimulatorThread` for synchronous callers.

    It reads the saved state when it is made. Raises ValueError for a state that cannot be read.
    """

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        folder = self.settings.state_dir
        self.frame = Frame(None if folder is None else folder / STATE_FILE)
        self._saved = self.frame.load()
        own = self._saved.get("simulator", {})
        self._admin_token: str = own.get("adminToken") or secrets.token_urlsafe(24)
        self._ports: dict[str, int] = dict(own.get("ports", {}))
        self.frame.faults.extend(FaultRule.model_validate(rule) for rule in own.get("faults", ()))
        self.frame.lag = Lag.model_validate(own.get("lag", {}))
        self.kube = self._own_cluster()
        """None beside another API server."""
        self.clouds: dict[str, Cloud] = {
            name: make_cloud(name, self.frame, self.settings.timings, cloud.world)
            for name, cloud in self.settings.clouds.items()
        }
        """Clouds by name, e.g. aws; each is served on a port of its own."""
        self._cloud_of: dict[str, Cloud] = {}
        """The cloud of each Node, by the providerID of its VM."""
        for cloud in self.clouds.values():
            if cloud.service in self._saved:
                cloud.load(self._saved.pop(cloud.service))
        self.kubelets: Kubelets
        self.kubeconfig = ""
        """YAML of an administrator's kubeconfig; empty before `start`."""
        self.kube_url = self.admin_url = ""
        self.cloud_urls = dict.fromkeys(self.clouds, "")
        self._changed = True
        self._saved_call = 0
        self._stopping = asyncio.Event()
        self._saver: asyncio.Task[None] | None = None
        self._save_now = asyncio.Event()
        self._unsaved: list[asyncio.Future[None]] = []
        """Calls that are answered when they have been saved."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve, and bring kubelets and controllers to life. Raises `PortTakenError`; then nothing is left running."""
        async with contextlib.AsyncExitStack() as stack:
            self.kubeconfig = self.settings.api_server_kubeconfig or ""
            if self.kube is not None:
                port, tls = self.settings.kube_port, self.kube.ssl_context()
                url = await self._serve(stack, self.kube.app, "kube_port", port, tls)
                self.kubeconfig = self.kube.kubeconfig(url, cluster=self.settings.cluster)
            self.kube_url, authority = server_of(self.kubeconfig)
            for name, cloud in self.clouds.items():
                port = self.settings.clouds[name].port
                cloud.app.middlewares.append(self._never_forgets)
                self.cloud_urls[name] = await self._serve(stack, cloud.app, f"{cloud.service}_port", port)
                await cloud.start()
                stack.push_async_callback(cloud.stop)
            await self._start_kubelets(stack, authority)
            admin = Admin(self.frame, self.clouds.values(), self.kubelets, self._note_change)
            self.admin_url = await self._serve(stack, admin.app, "admin_port", self.settings.admin_port)
            if self.kube is not None:
                await self._start_controllers(stack)
            self._stack = stack.pop_all()
        if self.frame.state_file is not None:
            self._saver = asyncio.create_task(self._save_in_time(), name="saver")

    async def stop(self) -> None:
        """Silence everything, then save. A second call does nothing."""
        await self._stack.aclose()
        saver, self._saver = self._saver, None
        if saver is not None:
            self._stopping.set()
            self._save_now.set()
            await saver

    # -- parts

    def _own_cluster(self) -> KubeApi | None:
        external = self.settings.api_server_kubeconfig is not None
        if self._saved and external == bool(self._saved.get("kubernetes")):
            # The kubelets' identities are of one cluster.
            theirs, asked = ("a simulated", "another") if external else ("another", "a simulated")
            raise ValueError(
                f"the saved state is for machines of {theirs} cluster: to use {asked} one, start with an empty folder"
            )
        if external:
            return None
        kube = KubeApi(self.frame, admin_token=self._admin_token)
        kube.load(self._saved.get("kubernetes", {}))
        return kube

    async def _start_controllers(self, stack: contextlib.AsyncExitStack) -> None:
        grace = self.settings.timings.grace
        daemons = DaemonSettings(self.settings.timings.boot, self.kubelets.knobs_of, self.kubelets.reboot)
        of_configs = daemons if self.settings.config_daemons else None
        controllers = Controllers(self.kubeconfig, grace=grace, resync=grace, config_daemons=of_configs)
        await controllers.start()
        stack.push_async_callback(controllers.stop)

    async def _start_kubelets(self, stack: contextlib.AsyncExitStack, authority: str | None) -> None:
        own = self._saved.get("simulator", {})
        rules = [KnobRule.model_validate(rule) for rule in own["knobs"]] if "knobs" in own else self.settings.knobs
        self.kubelets = Kubelets(
            self.kube_url,
            authority,
            rules,
            self.settings.timings,
            console=self._console,
            changed=self._note_change,
        )
        self.kubelets.load(self._saved.get("kubelets", {}))
        await self.kubelets.start()
        stack.push_async_callback(self.kubelets.stop)
        for cloud in self.clouds.values():
            cloud.subscribe(partial(self._observe, cloud))

    def _console(self, vm: Vm, text: str) -> None:
        self._cloud_of[vm.provider_id].set_console(vm.instance_id, text)

    def _observe(self, cloud: Cloud, vm: Vm) -> None:
        self._cloud_of[vm.provider_id] = cloud
        self._note_change()
        self.kubelets.observe(vm)

    async def _serve(
        self,
        stack: contextlib.AsyncExitStack,
        app: web.Application,
        setting: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> str:
        """Serves on this port (0: any, and after a restart the same), which the option `setting` names."""
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        sock = self._listen(setting, port)
        await web.SockSite(runner, sock, ssl_context=tls, backlog=1024).start()
        return f"{'https' if tls else 'http'}://{HOST}:{self._ports[setting]}"

    def _listen(self, setting: str, wanted: int) -> socket.socket:
        before = self._ports.get(setting, 0)
        if wanted == 0 and before:
            # Kubeconfigs that were handed out lead to this port; if somebody else has it now, they are lost.
            with contextlib.suppress(OSError):
                return socket.create_server((HOST, before))
        try:
            sock = socket.create_server((HOST, wanted))
        except OSError as e:
            why = "is taken" if e.errno == errno.EADDRINUSE else f"cannot be listened on ({e.strerror})"
            raise PortTakenError(
                f"port {wanted} on {HOST} {why}: choose another {setting}, or 0 for any free port"
            ) from e
        self._ports[setting] = sock.getsockname()[1]
        return sock

    # -- state

    def _note_change(self) -> None:
        self._changed = True

    @web.middleware
    async def _never_forgets(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A cloud answers a call that changes something when it is saved: a kill must not undo what somebody was told.

        The cluster goes back by up to a second or two there, as if its last writes had come later.
        """
        before = self.frame.changes
        response = await handler(request)
        if self._saver is not None and self.frame.changes != before:
            saved = asyncio.get_running_loop().create_future()
            self._unsaved.append(saved)
            self._save_now.set()
            await saved
        return response

    def _take_changed(self) -> bool:
        later = self.frame.calls(since=self._saved_call)
        changed = self._changed or any(call.mutating for call in later)
        self._changed = False
        self._saved_call = later[-1].n if later else self._saved_call
        return changed

    async def _save_in_time(self) -> None:
        """Saves while there are changes, and once more at the end, when everything else has stopped.

        It is never cancelled: a write that goes on in its thread would put an old picture over the last one.
        """
        pause = 0.0
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(SAVE_EVERY, pause)):
                    await self._save_now.wait()
            self._save_now.clear()
            waiting, self._unsaved = self._unsaved, []
            if not (self._take_changed() or waiting):
                continue
            started = time.monotonic()
            try:
                await asyncio.to_thread(self._picture())
            except OSError:
                log.exception("the simulator's state could not be saved")
                self._note_change()
            for saved in waiting:
                if not saved.done():
                    saved.set_result(None)
            # A large cluster spends at most a tenth of its time on saving.
            pause = 9 * (time.monotonic() - started)

    def _picture(self) -> Callable[[], None]:
        """Takes a picture now; the returned function writes it, in any thread: nothing in it changes later."""
        services: dict[str, Any] = {
            **self._saved,  # including clouds that are not served this time
            "kubernetes": {} if self.kube is None else self.kube.dump(),
            **{cloud.service: cloud.dump() for cloud in self.clouds.values()},
            "kubelets": self.kubelets.dump(),
            "simulator": {
                "adminToken": self._admin_token,
                "ports": dict(self._ports),
                "faults": [rule.model_dump(mode="json") for rule in self.frame.faults],
                "lag": self.frame.lag.model_dump(),
                "knobs": [rule.model_dump(mode="json", exclude_unset=True) for rule in self.kubelets.knobs],
            },
        }
        journal = self.frame.calls()[-JOURNAL_KEPT:]
        return lambda: self.frame.save(services, journal)


class SimulatorThread:
    """The simulator in a thread with a loop of its own, as a context manager: for synchronous tests, and for boto3.

    `simulator` belongs to that loop: reach into it with `call` only. The addresses never change and are read here.
    """

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="simulator", daemon=True)
        self.simulator: Simulator

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.simulator = self.call(lambda: Simulator(self._settings))
            self.call(self.simulator.start)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call(self.simulator.stop)
        finally:
            self._end()

    @property
    def kubeconfig(self) -> str:
        return self.simulator.kubeconfig

    @property
    def kube_url(self) -> str:
        return self.simulator.kube_url

    @property
    def cloud_urls(self) -> dict[str, str]:
        return self.simulator.cloud_urls

    @property
    def admin_url(self) -> str:
        return self.simulator.admin_url

    @overload
    def call(self, fn: Callable[[], Coroutine[Any, Any, T]]) -> T: ...
    @overload
    def call(self, fn: Callable[[], T]) -> T: ...
    def call(self, fn: Callable[[], Any]) -> Any:
        """Runs a function, or a coroutine function, inside the simulator's loop and returns its result."""

        async def inside() -> Any:
            result = fn()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

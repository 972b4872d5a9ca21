"""What the tests of the simulator share: a served API server, VMs made of nothing, waiting with a deadline."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from aiohttp import web

from drivers.base import CreateMachineRequest, Driver, MachineStatus, Making
from simulator.client import CallError, ConnectionPool, KubeClient, Obj, from_kubeconfig
from simulator.clouds import CloudResource
from simulator.frame import Frame
from simulator.kube import KubeApi
from simulator.kubelet import Power, Size
from simulator.kubelet.machine import Vm

T = TypeVar("T")

TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
TOKEN = f"{TOKEN_ID}.{TOKEN_SECRET}"
NOT_READY_TAINT = "node.machine.sapcloud.io/instance-not-ready"
DEADLINE = 20.0  # seconds; generous, as the machine may be busy: a passing test never waits for it


async def eventually(look: Callable[[], Awaitable[T]], until: Callable[[T], object] = bool, what: str = "") -> T:
    """Looks again and again until it is as wanted; a missing object only counts as not there yet."""
    deadline = time.monotonic() + DEADLINE
    seen: Any = None
    while True:
        try:
            seen = await look()
            if until(seen):
                return seen
        except CallError as e:
            if not e.not_found:
                raise
            seen = e.message
        assert time.monotonic() < deadline, f"{what or 'it'} did not come about; last seen: {json.dumps(seen)[:2000]}"
        await asyncio.sleep(0.02)


def leftovers(resources: Iterable[CloudResource], key: str, value: str) -> dict[str, list[str]]:
    """Ids of what is there and carries the tag, by kind; an empty answer means that nothing is left."""
    left: dict[str, list[str]] = {}
    for resource in resources:
        if not resource.gone and resource.tags.get(key) == value:
            left.setdefault(resource.kind, []).append(resource.id)
    return left


class App(Protocol):
    """A simulated cloud: what serves it over HTTP."""

    app: web.Application


A = TypeVar("A", bound=App)


@contextlib.contextmanager
def served(make: Callable[[], A]) -> Iterator[tuple[A, asyncio.AbstractEventLoop, str]]:
    """A simulated cloud on a free port of the loopback, in a thread, as drivers block: the cloud, the loop that it
    belongs to, and its address."""
    loop = asyncio.new_event_loop()
    runners: list[web.AppRunner] = []

    async def start() -> tuple[A, str]:
        cloud = make()
        runner = web.AppRunner(cloud.app, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return cloud, f"http://127.0.0.1:{runner.addresses[0][1]}"

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        cloud, endpoint = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        yield cloud, loop, endpoint
    finally:
        for runner in runners:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class InALoop:
    """What a simulator in a thread is reached by."""

    loop: asyncio.AbstractEventLoop

    def do(self, work: Callable[[], T]) -> T:
        """Runs it where the simulator runs."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)


class Patient:
    """A driver whose creations are repeated, as the activity repeats them, until they answer with the VM."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus:
        while isinstance(made := self.driver.create_machine(request), Making):
            time.sleep(0.01)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)


@dataclass(frozen=True)
class FakeVm:
    """A VM that no cloud knows of."""

    instance_id: str = "i-0000000000000001"
    name: str = "m-1"
    state: str = "running"
    private_dns_name: str = "ip-10-0-0-1.eu-west-1.compute.internal"
    private_ip: str = "10.0.0.1"
    zone: str = "eu-west-1a"
    region: str = "eu-west-1"
    instance_type: str = "m5.large"
    size: Size = field(default_factory=Size)
    user_data: bytes = b""
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def power(self) -> Power:
        return {"running": Power.ON, "terminated": Power.GONE}.get(self.state, Power.OFF)

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.region}/{self.instance_id}"

    def in_state(self, state: str) -> FakeVm:
        return replace(self, state=state)


def fake_vm(n: int = 1, **fields: Any) -> FakeVm:
    return FakeVm(
        **{
            "instance_id": f"i-{n:016x}",
            "name": f"m-{n}",
            "private_dns_name": f"ip-10-0-0-{n}.eu-west-1.compute.internal",
            "private_ip": f"10.0.0.{n}",
            "user_data": user_data(),
            **fields,
        }
    )


def user_data(token: str = TOKEN, args: str = f"--register-with-taints={NOT_READY_TAINT}:NoSchedule") -> bytes:
    kubeconfig = f"""\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://api.cluster.internal"}}}}]
users: [{{name: kubelet-bootstrap, user: {{token: {token}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: kubelet-bootstrap}}}}]
current-context: c
"""
    encoded = base64.b64encode(kubeconfig.encode()).decode()
    return f"""\
#cloud-config
write_files:
- path: /var/lib/kubelet/bootstrap-kubeconfig
  permissions: "0600"
  encoding: b64
  content: {encoded}
- path: /etc/default/kubelet
  content: |
    KUBELET_EXTRA_ARGS={args}
runcmd:
- systemctl enable --now kubelet
""".encode()


def token_secret(**data: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{TOKEN_ID}", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": TOKEN_ID,
            "token-secret": TOKEN_SECRET,
            "usage-bootstrap-authentication": "true",
            **data,
        },
    }


def pod(name: str, node: str | None = None, *, labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    body: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }
    if node is not None:
        body["spec"]["nodeName"] = node
    return body


class Cluster:
    """A simulated API server on a port of its own, and an administrator's client of it."""

    def __init__(self, frame: Frame, api: KubeApi, url: str, client: KubeClient) -> None:
        self.frame = frame
        self.api = api
        self.url = url
        self.client = client
        self.consoles: dict[str, str] = {}

    @property
    def kubeconfig(self) -> str:
        return self.api.kubeconfig(self.url)

    def console(self, vm: Vm, text: str) -> None:
        self.consoles[vm.instance_id] = self.consoles.get(vm.instance_id, "") + text

    async def node(self, name: str) -> Obj:
        return await self.client.get("nodes", name)

    async def pods(self, **params: str) -> list[Obj]:
        return list((await self.client.list("pods", "default", **params))["items"])

    async def says(self, instance_id: str, text: str) -> str:
        async def look() -> str:
            return self.consoles.get(instance_id, "")

        return await eventually(look, lambda seen: text in seen, f"console output {text!r}")


@contextlib.asynccontextmanager
async def served_cluster() -> AsyncIterator[Cluster]:
    frame = Frame()
    api = KubeApi(frame, admin_token="admin-token-for-tests")
    runner = web.AppRunner(api.app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    pool = ConnectionPool()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=api.ssl_context())
        await site.start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        client = from_kubeconfig(pool, api.kubeconfig(url), user_agent="test")
        yield Cluster(frame, api, url, client)
    finally:
        await pool.close()
        await runner.cleanup()


def condition(obj: Obj, type_: str) -> Obj:
    return next((c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == type_), {})


def is_ready(obj: Obj) -> bool:
    return condition(obj, "Ready").get("status") == "True"


def taint_keys(node: Obj) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in node["spec"].get("taints") or ()}

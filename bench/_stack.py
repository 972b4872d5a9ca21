"""What one round runs on: Temporal, the simulator and one worker, each in a process of its own.

Temporal is its dev server, or its own server on PostgreSQL as docker-compose.yml has them (run by tests/stack).

Everything is on 127.0.0.1 and in a temporary folder; leaving the stack ends every process, and so does the death of
this one. Processor time and memory are read from /proc, so Linux is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml
from temporalio.client import Client
from temporalio.service import RPCError

from activities.kube.client import ApiServers, secret_path
from resources.clouds import Simulation, simulations
from resources.converter import data_converter
from resources.manifests import Loaded, load_manifests
from resources.settings import Settings, load_settings
from starter.local import stack
from starter.local.processes import Child, Command, Processes
from starter.sdk.setup import create_namespace, setup

HERE = Path(__file__).parent
CLOUD = next(iter(simulations()))
"""The cloud that machines are in, unless told otherwise."""
EXAMPLES = HERE.parent / "examples" / CLOUD
HOST = "127.0.0.1"
CLUSTER = "bench"
FULL_NAME = "shoot--hostler--demo"  # the examples' class has it among its tags
KNOBS = {  # as in tests/conftest.py; also one partition, as five pollers serve four badly
    **stack.KNOBS,
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
}

Side = Literal["hostler", "bare"]
SIDES: tuple[Side, ...] = ("hostler", "bare")


class BenchError(Exception):
    """The numbers would be wrong, or there are none; the message says why."""


@dataclass(frozen=True)
class Times:
    """What a machine takes, in seconds; and the time between two signs of life of its kubelet."""

    launch: float = 0.0
    boot: float = 0.0
    join: float = 0.0
    terminate: float = 0.0
    heartbeat: float = 10.0
    status: float = 30.0


@dataclass
class Stack:
    client: Client
    settings: Settings
    cloud: Simulation
    manifests: Loaded
    admin: str
    """The address of the simulator's admin API."""
    pids: dict[str, int]
    """The server (and its database, where that is a process), the simulator and the worker."""
    worker: Child
    troubles: list[str]
    """What the processes' supervisor reported: a process that died spoils the numbers."""

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of every process with its children so far; `client` is this one alone."""
        of_children = _children()
        spent = {name: _cpu_seconds(pid, of_children) for name, pid in self.pids.items()}
        return {**spent, "client": _cpu_seconds(os.getpid(), {})}

    def rss_kb(self, child: str = "worker") -> int:
        """The memory of one of the processes."""
        status = Path(f"/proc/{self.pids[child]}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    async def calls(self, since: int, service: str, operation: str = "*") -> tuple[list[dict[str, Any]], int]:
        """The simulator's journal after call number `since`, and the number to ask from next time."""
        query = {"since": str(since), "service": service, "operation": operation}
        async with aiohttp.ClientSession() as session, session.get(f"{self.admin}/calls", params=query) as answer:
            answer.raise_for_status()
            body = await answer.json()
        return body["calls"], body["last"]

    def check(self) -> None:
        """Raises BenchError when a process has not survived."""
        gone = [f"{name} has ended" for name, pid in self.pids.items() if not Path(f"/proc/{pid}").exists()]
        if troubles := [*self.troubles, *gone]:
            raise BenchError("; ".join(troubles))


@contextlib.asynccontextmanager
async def running(
    side: Side,
    cached: int,
    calls_per_second: float | None = None,
    times: Times | None = None,
    server: Server = "dev",
    cloud: str = CLOUD,
) -> AsyncIterator[Stack]:
    """A fresh stack, whose machines are as in the cloud's examples; its worker keeps up to `cached` workflows in
    memory. `calls_per_second`: as in the settings."""
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as folder:
        root, troubles = Path(folder), list[str]()
        async with Processes(troubles.append) as processes, SERVERS[server](root, processes) as (address, servers):
            client = await _client(address)
            await setup(client)
            program = [str(HERE / "_simulator.py"), "--kubeconfig", str(root / "kubeconfig"), "--cloud", cloud]
            for name, seconds in dataclasses.asdict(times or Times()).items():
                program += [f"--{name}", str(seconds)]
            simulator = await processes.start(_python(root, "simulator", program))
            urls = json.loads(await simulator.line(lambda line: line.startswith("{")))
            account = {"endpoint": urls["cloud"], "callsPerSecond": calls_per_second}
            file = _write_settings(root, address, {cloud: account}, cached)
            settings = load_settings(file)
            files = sorted((EXAMPLES.parent / cloud).glob("*.yaml"))
            manifests = load_manifests("---\n".join(file.read_text() for file in files), "examples")
            await _plant_secret(settings, manifests)
            program = ["-P", "-m", "worker"] if side == "hostler" else [str(HERE / "_bare_worker.py")]
            worker = await processes.start(_python(root, "worker", [*program, "--settings", str(file)]))
            pids = {**servers, "simulator": simulator.pid, "worker": worker.pid}
            yield Stack(client, settings, simulations()[cloud], manifests, urls["admin"], pids, worker, troubles)


@contextlib.asynccontextmanager
async def _dev_server(root: Path, processes: Processes) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """Temporal's dev server: SQLite in memory. Its address and its processes by name."""
    address = f"{HOST}:{_free_port()}"
    server = await processes.start(_server(root, address))
    yield address, {"server": server.pid}


@contextlib.asynccontextmanager
async def _compose(root: Path, processes: Processes) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """The Temporal of docker-compose.yml, from nothing. Needs what `make stack` needs."""
    tests = HERE.parent / "tests"
    sys.path[:0] = [str(tests), str(tests / "kits")]
    from stack.engine import Engine, StackError
    from stack.needs import free_ports, missing

    if words := missing():
        raise BenchError(words)
    try:
        async with Engine(root / "stack", environment=free_ports(), services=("temporal",)) as engine:
            await engine.ready()
            pids = {"server": engine.services["temporal"].pid, "database": engine.services["postgresql"].pid}
            yield engine.published("temporal", 7233), {name: pid for name, pid in pids.items() if pid is not None}
    except StackError as e:
        raise BenchError(str(e)) from None


Server = Literal["dev", "compose"]
SERVERS: dict[Server, Callable[[Path, Processes], AbstractAsyncContextManager[tuple[str, dict[str, int]]]]] = {
    "dev": _dev_server,
    "compose": _compose,
}


async def _client(address: str) -> Client:
    """A client, once the server serves and has its namespace."""
    while True:
        try:
            client = await Client.connect(address, data_converter=data_converter)
            await create_namespace(client, timedelta(days=1))
            return client
        except (RuntimeError, RPCError):  # it does not serve yet
            await asyncio.sleep(0.1)


def _server(root: Path, address: str) -> Command:
    argv = [str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless", "--ip", HOST]
    argv += ["--port", address.rpartition(":")[2], "--log-level", "error"]
    argv += stack.dynamic_config(KNOBS)

    async def ready(_: Child) -> None:
        await _client(address)

    return Command("Temporal", argv, root / "temporal.log", ready, environment=_environment())


def _python(root: Path, name: str, arguments: list[str]) -> Command:
    async def ready(child: Child) -> None:
        await child.line(lambda line: line.startswith(("{", "worker ready")))

    return Command(name, [sys.executable, *arguments], root / f"{name}.log", ready, environment=_environment())


def _environment() -> dict[str, str]:
    """The environment of the children: without any other server, cloud or proxy that this shell may name."""
    others = ("TEMPORAL_", "HOSTLER_", "AWS_", "AZURE_", "GOOGLE_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    return {**kept, "TEMPORAL_CONFIG_FILE": os.devnull, "NO_PROXY": HOST, "no_proxy": HOST}


def _write_settings(root: Path, address: str, clouds: dict[str, Any], cached: int) -> Path:
    """Writes a production worker's settings: no timings, so the workflows' defaults count, and the loose sandbox."""
    content = {
        "temporal": {"address": address},
        "queuePrefix": "bench",
        "defaultCluster": CLUSTER,
        "clusters": {CLUSTER: {"kubeconfig": "kubeconfig", "fullName": FULL_NAME}},
        "secrets": {"source": "kubernetes", "cluster": CLUSTER},
        "clouds": clouds,
        "worker": {"health": None, "metrics": None, "gracefulShutdown": "1s", "maxCachedWorkflows": cached},
    }
    file = root / "settings.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


async def _plant_secret(settings: Settings, manifests: Loaded) -> None:
    (secret,) = manifests.secrets
    values = {key: value.decode() for key, value in secret.plain().items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret.metadata.name}, "stringData": values}
    clusters = ApiServers(settings)
    try:
        await (await clusters.get(CLUSTER)).create(secret_path(secret.metadata.namespace), body)
    finally:
        await clusters.close()


def _children() -> dict[int, list[int]]:
    """The processes that run, by their parents."""
    found: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(file.parent.name))
    return found


def _cpu_seconds(pid: int, children: dict[int, list[int]]) -> float:
    """Processor seconds of a process with its children: those that run, and those that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_cpu_seconds(child, children) for child in children.get(pid, ()))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])

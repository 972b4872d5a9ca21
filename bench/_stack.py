"""What one round runs on: Temporal's dev server, the simulator and one worker, each in a process of its own.

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
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml
from temporalio.client import Client
from temporalio.service import RPCError

from activities.kube.client import ApiServers, secret_path
from resources.converter import data_converter
from resources.manifests import Loaded, load_manifests
from resources.settings import Settings, load_settings
from starter.local import stack
from starter.local.processes import Child, Command, Processes
from starter.sdk.setup import SetupError, check_namespace, setup

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples" / "aws"
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

    boot: float = 0.0
    join: float = 0.0
    terminate: float = 0.0
    heartbeat: float = 10.0
    status: float = 30.0


@dataclass
class Stack:
    client: Client
    settings: Settings
    manifests: Loaded
    admin: str
    """The address of the simulator's admin API."""
    children: dict[str, Child]
    """The server, the simulator and the worker."""
    troubles: list[str]
    """What the processes' supervisor reported: a process that died spoils the numbers."""

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of every process so far; `client` is this one."""
        pids = {name: child.pid for name, child in self.children.items()}
        return {name: _cpu_seconds(pid) for name, pid in {**pids, "client": os.getpid()}.items()}

    def rss_kb(self, child: str = "worker") -> int:
        """The memory of one of the children."""
        status = Path(f"/proc/{self.children[child].pid}/status").read_text()
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
        if self.troubles:
            raise BenchError("; ".join(self.troubles))


@contextlib.asynccontextmanager
async def running(
    side: Side, cached: int, calls_per_second: float | None = None, times: Times | None = None
) -> AsyncIterator[Stack]:
    """A fresh stack; its worker keeps up to `cached` workflows in memory. `calls_per_second`: as in the settings."""
    with tempfile.TemporaryDirectory(prefix="hostler-bench-") as folder:
        root, troubles = Path(folder), list[str]()
        address = f"{HOST}:{_free_port()}"
        async with Processes(troubles.append) as processes:
            server = await processes.start(_server(root, address))
            client = await Client.connect(address, data_converter=data_converter)
            await setup(client)
            program = [str(HERE / "_simulator.py"), "--kubeconfig", str(root / "kubeconfig")]
            for name, seconds in dataclasses.asdict(times or Times()).items():
                program += [f"--{name}", str(seconds)]
            simulator = await processes.start(_python(root, "simulator", program))
            urls = json.loads(await simulator.line(lambda line: line.startswith("{")))
            aws = {"endpoint": urls["ec2"], "callsPerSecond": calls_per_second}
            file = _write_settings(root, address, aws, cached)
            settings = load_settings(file)
            manifests = load_manifests("---\n".join(p.read_text() for p in sorted(EXAMPLES.glob("*.yaml"))), "examples")
            await _plant_secret(settings, manifests)
            program = ["-P", "-m", "worker"] if side == "hostler" else [str(HERE / "_bare_worker.py")]
            worker = await processes.start(_python(root, "worker", [*program, "--settings", str(file)]))
            children = {"server": server, "simulator": simulator, "worker": worker}
            yield Stack(client, settings, manifests, urls["admin"], children, troubles)


def _server(root: Path, address: str) -> Command:
    argv = [str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless", "--ip", HOST]
    argv += ["--port", address.rpartition(":")[2], "--log-level", "error"]
    for key, value in KNOBS.items():
        argv += ["--dynamic-config-value", f"{key}={value}"]

    async def ready(_: Child) -> None:
        while True:
            try:
                return await check_namespace(await Client.connect(address))
            except (RuntimeError, RPCError, SetupError):  # it does not serve yet, or has not made its namespace
                await asyncio.sleep(0.1)

    return Command("Temporal", argv, root / "temporal.log", ready, environment=_environment())


def _python(root: Path, name: str, arguments: list[str]) -> Command:
    async def ready(child: Child) -> None:
        await child.line(lambda line: line.startswith(("{", "worker ready")))

    return Command(name, [sys.executable, *arguments], root / f"{name}.log", ready, environment=_environment())


def _environment() -> dict[str, str]:
    """The environment of the children: without any other server, cloud or proxy that this shell may name."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HOSTLER_", "AWS_"))}
    return {**kept, "TEMPORAL_CONFIG_FILE": os.devnull, "NO_PROXY": HOST, "no_proxy": HOST}


def _write_settings(root: Path, address: str, aws: dict[str, Any], cached: int) -> Path:
    """Writes a production worker's settings: no timings, so the workflows' defaults count, and the loose sandbox."""
    content = {
        "temporal": {"address": address},
        "queuePrefix": "bench",
        "defaultCluster": CLUSTER,
        "clusters": {CLUSTER: {"kubeconfig": "kubeconfig", "fullName": FULL_NAME}},
        "secrets": {"source": "kubernetes", "cluster": CLUSTER},
        "clouds": {"aws": aws},
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


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])

"""Processes that tests start: a Temporal dev server on a file, which can be killed and started again where it was; a
worker; what is seen of them from outside; and ports for them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import yaml
from lifekit import Stack
from paths import KITS, ROOT
from temporalio.client import Client

from resources.attributes import ALL, DATETIMES
from resources.converter import data_converter
from starter.local.stack import KNOBS, dynamic_config

BINARY = Path(sys.executable).parent / "temporal"
HOST = "127.0.0.1"
DEADLINE = 60.0  # seconds; a server that starts never needs it


class OwnServer:
    """`await kill()` is SIGKILL: nothing is written that was not written before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"{HOST}:{free_port()}"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        host, _, port = self.address.partition(":")
        argv = [str(BINARY), "server", "start-dev", "--headless", "--ip", host, "--port", port, "--log-level", "error"]
        argv += ["--db-filename", str(self.folder / "temporal.db"), "--sqlite-pragma", "journal_mode=WAL"]
        argv += dynamic_config(KNOBS)
        argv += [
            word
            for key in ALL
            for word in ("--search-attribute", f"{key.name}={'Datetime' if key in DATETIMES else 'Keyword'}")
        ]
        with (self.folder / "temporal.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*argv, stdout=log, stderr=log)
        await self.client()

    async def client(self) -> Client:
        """A client, once the server answers."""
        give_up = time.monotonic() + DEADLINE
        while True:
            try:
                client = await Client.connect(self.address, data_converter=data_converter)
                await client.count_workflows()
                return client
            except Exception:  # it does not serve yet: connection refused, no namespace, no visibility
                if time.monotonic() > give_up:
                    raise AssertionError((self.folder / "temporal.log").read_text()[-3000:]) from None
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()


@contextlib.asynccontextmanager
async def own_server(folder: Path) -> AsyncIterator[OwnServer]:
    server = OwnServer(folder)
    try:
        await server.start()
        yield server
        await asyncio.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)
    finally:
        await server.kill()


def change_settings(stack: Stack, **worker_settings: object) -> None:
    content = yaml.safe_load(stack.settings_file.read_text())
    content["worker"].update(worker_settings)
    stack.settings_file.write_text(yaml.safe_dump(content))


@contextlib.asynccontextmanager
async def worker_process(
    stack: Stack, address: str | None = None, program: tuple[str, ...] = ("-m", "worker")
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker in a process of its own. `address`: a Temporal server other than the stack's."""
    address = address or stack.client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        "--settings",
        str(stack.settings_file),
        cwd=ROOT,
        env={**os.environ, "TEMPORAL_ADDRESS": address, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, KITS)))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


# -- processes from outside, and ports ---------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits for init to reap it does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return not Path("/proc/self").exists()


def locked(path: Path) -> bool:
    """Whether anybody holds the lock of this file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def children(parent: int) -> list[int]:
    known = Path(f"/proc/{parent}/task/{parent}/children")
    if known.exists():
        return [int(pid) for pid in known.read_text().split()]
    listing = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listing.splitlines()]
    return [pid for pid, of in pairs if of == parent]


# -- ports for processes that tests start -----------------------------------------------------------------------------

QUIET = range(20_000, 32_000)
"""Ports below those that the kernel gives to anybody who asks for any, as the tests beside this one do all the time."""


def free_port() -> int:
    """A free port, which is still free when the process that it is for binds it."""
    while True:
        port = random.choice(QUIET)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

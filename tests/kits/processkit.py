"""Processes: free ports, who lives and whose child it is, and a worker in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import yaml
from lifekit import Stack
from paths import ROOT


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


# -- a worker in a process of its own ---------------------------------------------------------------------------------


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
        env={**os.environ, "TEMPORAL_ADDRESS": address, "PYTHONPATH": str(ROOT)},
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

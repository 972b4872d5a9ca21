"""Processes from outside: whether they live, whose children they are; and ports for those that tests start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


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

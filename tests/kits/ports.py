"""Ports for processes that tests start."""

from __future__ import annotations

import contextlib
import random
import socket

QUIET = range(20_000, 32_000)
"""Ports below those that the kernel gives to anybody who asks for any, as the tests beside this one do all the time."""


def free_port() -> int:
    """A free port, which is still free when the process that it is for binds it."""
    while True:
        port = random.choice(QUIET)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

"""Ports for processes that tests start."""

from __future__ import annotations

import contextlib
import random
import socket

QUIET = range(20_000, 32_000)
"""Below those that the kernel gives to whoever asks for any, as the tests beside this one do all the time."""


def free_port() -> int:
    """It is still free when the process that it is for binds it."""
    while True:
        port = random.choice(QUIET)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

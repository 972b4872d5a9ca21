"""What the stack needs of this machine: programs, PostgreSQL, root; and free ports."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

PORTS = ("TEMPORAL_PORT", "TEMPORAL_UI_PORT", "METRICS_WORKFLOWS_PORT", "METRICS_CLUSTER_PORT", "METRICS_CLOUD_PORT")


def missing() -> str:
    """What is not here, in words; empty: nothing."""
    needed = [x for x in ("go", "debootstrap", "nsenter", "ip") if shutil.which(x) is None]
    needed += ["root"] if os.geteuid() else []
    needed += [] if list(Path("/usr/lib/postgresql").glob("*/bin/postgres")) else ["PostgreSQL"]
    return f"the stack of docker-compose.yml needs {', '.join(needed)}" if needed else ""


def free_ports() -> dict[str, str]:
    """Variables of docker-compose.yml that publish everything on ports that nobody has."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORTS]
        return {name: str(s.getsockname()[1]) for name, s in zip(PORTS, sockets, strict=True)}

"""The ports on 127.0.0.1 that `hostler up` and the demo serve on."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace

from resources.clouds import simulations
from starter.sdk.errors import HostlerError

HOST = "127.0.0.1"
QUIET_PORTS = range(20_000, 32_000)


class UpError(HostlerError):
    """The stack cannot run like this; the message says why and what to do."""


def the_first() -> str:
    """The cloud that is simulated where none is named."""
    return next(iter(simulations()))


@dataclass(frozen=True)
class Ports:
    """Ports on 127.0.0.1; 0: any free one."""

    temporal: int = field(default=7233, metadata={"flag": "--port", "serves": "Temporal"})
    ui: int = field(default=8233, metadata={"flag": "--ui-port", "serves": "Temporal's web UI"})
    kube: int = field(default=7643, metadata={"flag": "--kube-port", "serves": "the simulated Kubernetes API"})
    admin: int = field(default=7645, metadata={"flag": "--admin-port", "serves": "the simulator's admin API"})
    health: int = field(default=8081, metadata={"flag": "--health-port", "serves": "the worker's health"})
    metrics: int = field(default=9464, metadata={"flag": "--metrics-port", "serves": "the worker's metrics"})
    clouds: Mapping[str, int] = field(default_factory=lambda: {the_first(): simulations()[the_first()].port})
    """Ports of the clouds that are simulated, by the clouds' names in the settings."""

    @staticmethod
    def any(*clouds: str) -> Ports:
        """Free ones, for these clouds; none: the first of the registry."""
        numbers = {port.name: 0 for port in fields(Ports) if port.metadata}
        return Ports(**numbers, clouds=dict.fromkeys(clouds or (the_first(),), 0))

    def settled(self, unused: frozenset[str]) -> Ports:
        """The ports with a free one for each 0. Raises UpError for a port that is taken, unless it is of `unused`."""
        settled: dict[str, int] = {}
        clouds = dict(self.clouds)
        with ExitStack() as held:  # all at once, so that no two get the same free one
            for port in fields(self):
                if port.metadata and port.name not in unused:
                    number = getattr(self, port.name)
                    settled[port.name] = _bind(held, number, port.metadata["serves"], port.metadata["flag"])
            for name, number in () if "clouds" in unused else self.clouds.items():
                service = simulations()[name].service
                clouds[name] = _bind(held, number, f"the simulated {service.upper()}", f"--{service}-port")
        return replace(self, **settled, clouds=clouds)


def _bind(held: ExitStack, number: int, serves: str, flag: str) -> int:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, number or _quiet_port()))
    except OSError as e:
        taken = e.errno == errno.EADDRINUSE
        why = "is taken; stop what listens there, or" if taken else f"cannot be used ({e.strerror});"
        raise UpError(f"port {number} for {serves} {why} give another one with {flag}") from None
    port: int = listener.getsockname()[1]
    return port


def _quiet_port() -> int:
    """A free port below those that the kernel gives to anybody who asks for any: it must still be free when its child
    binds it."""
    for port in random.sample(QUIET_PORTS, 20):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    return 0

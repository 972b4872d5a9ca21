"""The simulated clouds: what kubelets, the admin API and the server ask of one, whichever it is.

A cloud is a package with a function `simulated(frame, timings, world)`, and a `Simulation` in the cloud's row of the
registry (resources/clouds), which names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from aiohttp import web

from resources.clouds import simulations
from simulator.frame import Frame
from simulator.kubelet.knobs import Timings
from simulator.kubelet.machine import Power, Size, Vm

__all__ = ["Cloud", "CloudResource", "Power", "Size", "Vm", "clouds_of", "make_cloud"]


@dataclass(frozen=True)
class CloudResource:
    """A VM, or what was made for one."""

    id: str
    kind: str
    """In the cloud's own words, in the plural."""
    tags: dict[str, str]
    """As they are, whatever reads show."""
    vm: bool = False
    gone: bool = False


class Cloud(Protocol):
    """One simulated cloud: its API on the wire protocol of the real one, and what lies behind the curtain.

    It joins the frame under the name of its service (`Frame.join`), and asks it before each call.
    """

    @property
    def service(self) -> str:
        """The service's name in fault rules, the journal, the saved state and the admin API's paths."""

    @property
    def app(self) -> web.Application:
        """The application that serves its API."""

    async def start(self) -> None:
        """Starts what takes time: boots, shutdowns."""

    async def stop(self) -> None: ...

    def subscribe(self, callback: Callable[[Vm], None]) -> None:
        """Calls back with a VM at each change of its power, and at once for every living one."""

    def has_vm(self, instance_id: str) -> bool:
        """Whether it knows the VM, even one that is gone."""

    def resources(self) -> list[CloudResource]:
        """Everything that was made in its accounts, without any lag: also VMs that are gone."""

    def set_console(self, instance_id: str, text: str) -> None:
        """Appends to what the console shows."""

    def impair(self, instance_id: str, impaired: bool) -> None:
        """Makes the cloud's own health check of a VM fail, or pass again."""

    def kill(self, instance_id: str) -> None:
        """The VM dies behind everyone's back."""

    def tag(self, resource_id: str, tags: dict[str, str]) -> None:
        """Somebody sets these tags on what `resources` has shown, and leaves its others."""

    def dump(self) -> dict[str, Any]:
        """Everything that calls have made, fit for JSON."""

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `dump` gave, also in an earlier version."""


def make_cloud(name: str, frame: Frame, timings: Timings, world: Any = None) -> Cloud:
    """The cloud of this name in the settings. `world` says what its accounts hold from the start, in the cloud's own
    words; None: its example. Raises KeyError for one that is not simulated, ValueError for a world that is not its."""
    cloud: Cloud = import_module(simulations()[name].module).simulated(frame, timings, world)
    return cloud


def clouds_of(clouds: Iterable[Cloud], instance_id: str) -> list[Cloud]:
    """The clouds that know this id: several may have given it."""
    return [cloud for cloud in clouds if cloud.has_vm(instance_id)]

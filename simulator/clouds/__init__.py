"""The simulated clouds: what kubelets, the admin API and the server ask of one, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from simulator.kubelet.machine import Size, Vm

__all__ = ["Cloud", "Vm"]


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

    def subscribe(self, callback: Callable[[Any], None]) -> None:
        """Calls back with a Vm at each change of one's state, and at once for every living one."""

    def has_vm(self, instance_id: str) -> bool:
        """Whether it knows the VM, even one that is gone."""

    def sizes(self) -> Mapping[str, Size]:
        """What each type of VM gives to its node."""

    def set_console(self, instance_id: str, text: str) -> None:
        """Appends to what the console shows."""

    def impair(self, instance_id: str, impaired: bool) -> None:
        """Makes the cloud's own health check of a VM fail, or pass again."""

    def kill(self, instance_id: str) -> None:
        """The VM dies behind everyone's back."""

    def dump(self) -> dict[str, Any]:
        """Everything that calls have made, fit for JSON."""

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `dump` gave."""

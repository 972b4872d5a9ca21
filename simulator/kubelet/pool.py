"""All simulated kubelets of one process."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from simulator.client import ConnectionPool, KubeClient, present_certificate, server_trust
from simulator.kubelet.identity import Identity
from simulator.kubelet.knobs import KnobRule, Knobs, Timings, knobs_for
from simulator.kubelet.kubelet import Kubelet, Surroundings
from simulator.kubelet.machine import Power, Vm

log = logging.getLogger(__name__)


class _Disk(BaseModel):
    """What outlives a reboot of the VM, and a restart of the simulator."""

    model_config = ConfigDict(extra="forbid")

    number: int
    """The number of its pod range: 10.128.0.0/24, 10.128.1.0/24, …"""
    identity: Identity | None = None
    ended: bool = False
    """The kubelet of this boot has ended on its own: it cannot join, or its knobs made it die."""


@dataclass
class _Running:
    kubelet: Kubelet
    task: asyncio.Task[None]


class Kubelets:
    """A kubelet for every running VM: fed with VM states by `observe`, it joins them to one API server.

    `ca` is the API server's CA in PEM (None: the system's). `console` gets (VM, text) for the VM's console;
    `changed` is called when `dump` has something new that no VM's state tells.
    """

    def __init__(
        self,
        api_server: str,
        ca: str | None,
        knobs: Iterable[KnobRule] = (),
        timings: Timings | None = None,
        *,
        console: Callable[[Vm, str], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.timings = timings or Timings.demo()
        self._server = api_server
        self._ca = ca
        self._knobs = list(knobs)
        self._running: dict[str, _Running] = {}
        self._disks: dict[str, _Disk] = {}
        """Disks by providerID, which names the cloud: two clouds may give the same instance id."""
        self._rebooting: set[str] = set()
        """ProviderIDs of machines that reboot: their Nodes are not Ready meanwhile."""
        self._resumable: set[str] = set()
        self._numbers = 0
        self._pool: ConnectionPool | None = None
        self._changed = changed or (lambda: None)
        self._tls = server_trust(ca) if api_server.startswith("https:") else None
        self._surroundings = Surroundings(
            timings=self.timings,
            bootstrap_client=lambda token: self._client(token=token, user_agent="kubelet-bootstrap"),
            node_client=self._node_client,
            knobs=self._knobs_of,
            console=console or (lambda _vm, _text: None),
            keep=self._keep,
            pod_address=self._pod_address,
        )

    async def start(self) -> None:
        """Starts it; to be called before `observe`, in the loop that runs the kubelets."""
        self._pool = ConnectionPool()

    async def stop(self) -> None:
        """All of them fall silent. Their identities remain for `dump`."""
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        if self._pool is not None:
            await self._pool.close()

    @property
    def knobs(self) -> list[KnobRule]:
        return list(self._knobs)

    def set_knobs(self, rules: Iterable[KnobRule]) -> None:
        """Replace all rules; machines that live obey the new ones at once."""
        self._knobs = list(rules)
        for running in self._running.values():
            running.kubelet.wake.set()

    def knobs_of(self, provider_id: str) -> Knobs:
        """What is unusual about a machine; nothing is about one without a kubelet."""
        running = self._running.get(provider_id)
        return Knobs() if running is None else self._knobs_of(running.kubelet.vm)

    def _knobs_of(self, vm: Vm) -> Knobs:
        knobs = knobs_for(self._knobs, vm.name, vm.instance_id)
        return knobs.model_copy(update={"unready": True}) if vm.provider_id in self._rebooting else knobs

    def reboot(self, provider_id: str, on: bool) -> None:
        """Begins or ends the time in which a machine that reboots is not Ready."""
        (self._rebooting.add if on else self._rebooting.discard)(provider_id)
        if (running := self._running.get(provider_id)) is not None:
            running.kubelet.wake.set()

    def observe(self, vm: Vm) -> None:
        """A VM's state has changed, or is told for the first time."""
        match vm.power:
            case Power.ON:
                self._boot(vm)
            case Power.OFF:
                self._silence(vm.provider_id)
                if vm.provider_id in self._disks:
                    self._disks[vm.provider_id].ended = False  # the next boot is a new chance
            case Power.GONE:
                self._silence(vm.provider_id)
                self._disks.pop(vm.provider_id, None)
                self._rebooting.discard(vm.provider_id)

    def dump(self) -> dict[str, Any]:
        """JSON-able state, for `load` in a later process before the first `observe`."""
        return {"disks": {key: disk.model_dump(mode="json") for key, disk in self._disks.items()}}

    def load(self, state: dict[str, Any]) -> None:
        self._disks = {key: _Disk.model_validate(disk) for key, disk in state.get("disks", {}).items()}
        self._resumable = set(self._disks)
        self._numbers = max((disk.number + 1 for disk in self._disks.values()), default=0)

    def _boot(self, vm: Vm) -> None:
        running = self._running.get(vm.provider_id)
        if running is not None:
            running.kubelet.vm = vm  # its tags may have changed
            return
        if (before := self._disks.pop(vm.instance_id, None)) is not None:  # as an earlier version saved it
            self._disks[vm.provider_id] = before
            self._resumable = {vm.provider_id if known == vm.instance_id else known for known in self._resumable}
        disk = self._disks.get(vm.provider_id) or self._new_disk(vm.provider_id)
        resumed = vm.provider_id in self._resumable
        self._resumable.discard(vm.provider_id)
        if disk.ended:
            return
        kubelet = Kubelet(vm, self._surroundings, disk.identity, resumed=resumed)
        task = asyncio.create_task(self._live(kubelet, disk), name=f"kubelet {vm.provider_id}")
        self._running[vm.provider_id] = _Running(kubelet, task)

    async def _live(self, kubelet: Kubelet, disk: _Disk) -> None:
        try:
            await kubelet.run()
            disk.ended = True
        except Exception:
            log.exception("the simulated kubelet of %s stopped because of an error in its code", kubelet.vm.provider_id)

    def _silence(self, provider_id: str) -> None:
        self._resumable.discard(provider_id)
        running = self._running.pop(provider_id, None)
        if running is not None:
            running.task.cancel()

    def _new_disk(self, provider_id: str) -> _Disk:
        disk = self._disks[provider_id] = _Disk(number=self._numbers)
        self._numbers += 1
        return disk

    # -- for its kubelets

    def _keep(self, provider_id: str, identity: Identity) -> None:
        self._disks[provider_id].identity = identity
        self._changed()  # lost with a crash, it could not be had again: its bootstrap token may be revoked

    def _pod_address(self, provider_id: str, n: int) -> str:
        number = self._disks[provider_id].number % (64 * 256)
        return f"10.{128 + number // 256}.{number % 256}.{n}"

    def _node_client(self, identity: Identity) -> KubeClient:
        tls = self._tls
        if identity.certificate is not None and identity.key is not None:
            tls = server_trust(self._ca)
            present_certificate(tls, identity.certificate, identity.key)
        return self._client(token=identity.token, user_agent="kubelet", tls=tls)

    def _client(self, *, token: str | None, user_agent: str, tls: ssl.SSLContext | None = None) -> KubeClient:
        if self._pool is None:
            raise RuntimeError("Kubelets.start() must come before observe()")
        return KubeClient(self._pool, self._server, token=token, tls=tls or self._tls, user_agent=user_agent)

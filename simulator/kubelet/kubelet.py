"""One simulated kubelet, from the boot of its VM to the moment it falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from simulator.client import CallError, KubeClient, Obj
from simulator.kubelet import node as nodes
from simulator.kubelet.identity import Identity, bootstrap
from simulator.kubelet.knobs import Knobs, Timings
from simulator.kubelet.machine import Registration, Vm
from simulator.kubelet.pods import Pods
from simulator.kubelet.userdata import NodeConfig, UserDataError, parse_user_data

LEASE_PERIODS = 4  # a Lease lasts four heartbeats, as the real kubelet's: 40 s, renewed every 10

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """What the pool gives each of its kubelets."""

    timings: Timings
    bootstrap_client: Callable[[str], KubeClient]
    """Makes a client from a bootstrap token."""
    node_client: Callable[[Identity], KubeClient]
    knobs: Callable[[Vm], Knobs]
    console: Callable[[Vm, str], None]
    """(VM, line): append to its console output."""
    keep: Callable[[str, Identity], None]
    """(providerID, identity): write it to the VM's disk."""
    pod_address: Callable[[str, int], str]
    """(providerID, n): the n-th address of the node's pod range."""


class Wake:
    """A notice that something has changed. Unlike a plain event, a busy waiter cannot miss it, nor can another waiter
    take it away: each names the count that it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def set(self) -> None:
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, seen: int, seconds: float | None = None) -> None:
        """Waits until the count is no longer `seen`, at most this many seconds.

        It does not use wait_for: on Python 3.11 it swallows a cancellation that meets the event (gh-86296).
        """
        if self.count == seen:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._event.wait()


class Kubelet:
    """The kubelet of one VM. `run` is its life; cancelled, it is silent at once.

    With `resumed` the VM was up all the time and only the simulator was not: no boot, no wait before Ready.
    """

    def __init__(
        self, vm: Vm, surroundings: Surroundings, identity: Identity | None = None, *, resumed: bool = False
    ) -> None:
        self.vm = vm
        self.wake = Wake()
        """To be set when knobs have changed: everything that waits looks again."""
        self._around = surroundings
        self._timings = surroundings.timings
        self._identity = identity
        self._resumed = resumed and identity is not None
        self._node: Obj = {}
        self._ready_at = 0.0
        self._ready_since: float | None = None
        self._lease_is_current = False
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Boot, join, serve. Returns only when the machine can never join, with the reason on its console."""
        if not self._resumed:
            await asyncio.sleep(self._timings.boot)
            self._say("systemd[1]: Started kubelet.service - kubelet: The Kubernetes Node Agent.")
        await self._until(lambda: not self._knobs.never_joins)
        try:
            config = parse_user_data(self.vm.user_data)
        except UserDataError as e:
            self._say(f"kubelet[812]: failed to run Kubelet: {e}")
            return
        if self._identity is None:
            await self._until_after(self._clock(), lambda: self._knobs.join_delay)
            self._identity = await self._bootstrap(config)
            self._around.keep(self.vm.provider_id, self._identity)
        client = self._around.node_client(self._identity)
        await self._register(client, config, ready_after=0.0 if self._resumed else self._timings.join)
        pods = Pods(
            client,
            self._identity.node_name,
            self.vm.private_ip,
            lambda n: self._around.pod_address(self.vm.provider_id, n),
            self._timings,
        )
        await self._serve(client, config, pods)

    # -- joining

    async def _bootstrap(self, config: NodeConfig) -> Identity:
        client = self._around.bootstrap_client(config.token)
        node_name = self._knobs.node_name or self.vm.private_dns_name
        for pause in _back_off(self._timings.heartbeat):
            try:
                return await bootstrap(client, node_name, poll=min(self._timings.heartbeat, 0.5))
            except CallError as e:
                why = e.reason or e.message
                self._say(f"kubelet[812]: failed to run Kubelet: cannot create certificate signing request: {why}")
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the back-off never ends")

    async def _register(self, client: KubeClient, config: NodeConfig, ready_after: float) -> None:
        registration = self._registration(config)
        for pause in _back_off(self._timings.heartbeat):
            try:
                self._node = await self._create_or_take_over(client, registration)
                break
            except CallError as e:
                self._say(f'kubelet[812]: "Unable to register node with API server" err="{e.message}"')
            await asyncio.sleep(pause)
        self._ready_at = self._clock() + ready_after
        self._lease_is_current = False

    async def _create_or_take_over(self, client: KubeClient, registration: Registration) -> Obj:
        try:
            created = await client.create("nodes", nodes.node_object(self.vm, registration))
        except CallError as e:
            if not e.conflict:
                raise
            return await self._take_over(client, registration)
        self._say(f'kubelet[812]: "Successfully registered node" node="{registration.node_name}"')
        return created

    async def _take_over(self, client: KubeClient, registration: Registration) -> Obj:
        """Takes over an existing Node of this name, as kubelet does. It corrects its own labels, never taints.

        spec.providerID is set when it is missing and cannot be changed once it is set: with another machine's id in
        it this is the stale-node case, and nothing here can resolve it.
        """
        existing = await client.get("nodes", registration.node_name)
        patch: Obj = {"metadata": {"labels": nodes.default_labels(self.vm, registration.node_name)}}
        other = existing["spec"].get("providerID")
        if not other and registration.provider_id is not None:
            patch["spec"] = {"providerID": registration.provider_id}
        if other and registration.provider_id is not None and other != registration.provider_id:
            self._say(
                f'kubelet[812]: "Node was previously registered" node="{registration.node_name}" with providerID '
                f"{other}, this machine is {registration.provider_id}"
            )
        return await client.patch("nodes", registration.node_name, patch)

    def _registration(self, config: NodeConfig) -> Registration:
        assert self._identity is not None
        knobs = self._knobs
        return Registration(
            node_name=self._identity.node_name,
            provider_id=None if knobs.no_provider_id else self.vm.provider_id,
            labels=config.labels,
            taints=() if knobs.no_taint else config.taints,
        )

    # -- living

    async def _serve(self, client: KubeClient, config: NodeConfig, pods: Pods) -> None:
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._renew_lease(client)),
                group.create_task(self._post_status(client, config)),
                group.create_task(pods.run()),
            ]
            await self._until_dead()
            for task in running:
                task.cancel()

    async def _until_dead(self) -> None:
        """Wait for the knob `dies_after`, counted from the first Ready=True."""
        await self._until(lambda: self._ready_since is not None)
        assert self._ready_since is not None
        await self._until_after(self._ready_since, lambda: self._knobs.dies_after)
        log.info("%s: its kubelet dies now, as its knobs say", self.vm.instance_id)

    async def _renew_lease(self, client: KubeClient) -> None:
        while True:
            try:
                await self._renew_once(client)
            except CallError as e:
                log.debug("%s: lease: %s", self.vm.instance_id, e.message)
            await asyncio.sleep(_jitter(self._timings.heartbeat))

    async def _renew_once(self, client: KubeClient) -> None:
        lease = nodes.lease_object(self._node, LEASE_PERIODS * self._timings.heartbeat)
        # After a registration the whole Lease is written: the old one may still belong to the Node that was deleted.
        patch = nodes.renewal() if self._lease_is_current else lease
        try:
            await client.patch("leases", lease["metadata"]["name"], patch, nodes.LEASE_NAMESPACE)
        except CallError as e:
            if not e.not_found:
                raise
            await client.create("leases", lease, nodes.LEASE_NAMESPACE)
        self._lease_is_current = True

    async def _post_status(self, client: KubeClient, config: NodeConfig) -> None:
        while True:
            seen = self.wake.count
            ready, pause = self._readiness()
            try:
                await self._post_once(client, ready)
            except CallError as e:
                log.debug("%s: status: %s", self.vm.instance_id, e.message)
                if e.not_found:  # somebody deleted the Node of a living machine
                    await asyncio.sleep(self._timings.join)
                    await self._register(client, config, ready_after=self._timings.join)
                    continue
                pause = self._timings.heartbeat
            else:
                if ready and self._ready_since is None:
                    self._ready_since = self._clock()
                    self.wake.set()
            await self.wake.wait(seen, min(pause, _jitter(self._timings.status)))

    async def _post_once(self, client: KubeClient, ready: bool) -> None:
        """Reads the Node, then patches its status: kubelet does both, so that it corrects what others wrote there."""
        name = self._node["metadata"]["name"]
        self._node = await client.get("nodes", name)
        status = {**self._facts, "conditions": nodes.node_conditions(self._node, ready=ready)}
        await client.patch("nodes", name, {"status": status}, sub="status", kind="strategic")

    def _readiness(self) -> tuple[bool, float]:
        """Whether the node is Ready now, and for how many seconds this answer holds at most."""
        knobs, age = self._knobs, self._clock() - self._ready_at
        if age < 0:
            return False, -age
        if knobs.unready:
            return False, math.inf
        if knobs.flaps is not None:
            half = knobs.flaps / 2
            turns, within = divmod(age, half)
            return turns % 2 == 0, half - within
        return True, math.inf

    # -- waiting

    @property
    def _knobs(self) -> Knobs:
        return self._around.knobs(self.vm)

    @cached_property
    def _facts(self) -> Obj:
        return nodes.node_facts(self.vm)

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self.wake.wait(self.wake.count)

    async def _until_after(self, start: float, seconds: Callable[[], float | None]) -> None:
        """Waits until this many seconds after `start`; the knob behind it may change meanwhile (None: no end)."""
        while True:
            wanted = seconds()
            pause = None if wanted is None else start + wanted - self._clock()
            if pause is not None and pause <= 0:
                return
            await self.wake.wait(self.wake.count, pause)

    def _say(self, line: str) -> None:
        self._around.console(self.vm, line + "\n")


def _jitter(seconds: float) -> float:
    """Spreads by a tenth what hundreds of kubelets do at the same pace."""
    return seconds * random.uniform(0.95, 1.05)


def _back_off(first: float) -> Iterator[float]:
    """Pauses in seconds, without end: doubled up to sixteen times the first."""
    for n in itertools.count():
        yield _jitter(first * min(2**n, 16))

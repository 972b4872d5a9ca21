"""The watch of one cluster's nodes: it turns what the API server tells into signals to machines, for changes only.

It lists once, then follows; the digests of what each machine was told last are its argument, its heartbeat and its
result, so that neither a crash nor a new run tells anybody the same again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.boundary import last_progress, progress
from activities.clock import ServerClock
from activities.kube.client import Kube, KubeError, node_path
from activities.kube.facts import digest, project
from activities.kube.looks import NODES
from activities.kube.whose import Rival, provider_id_of, the_one
from activities.temporal.vm_owners import all_machines, machines_of
from activities.watch.follow import Follow, run_for
from activities.watch.labels import LabelWriter
from activities.watch.liveness import Liveness
from activities.watch.told import Position
from activities.watch.twins import LEASES_EVERY, Leases
from resources.base import explained
from resources.calls.watch import Cursor, WatchInput
from resources.clouds import provider_key
from resources.journal import Note
from resources.machine.facts import NodeFacts
from resources.names import machine_id

ASK_EVERY = 2.0  # seconds, for a node of whose VM no machine is known
ASK_SOON = 0.5  # in its first second: visibility hears of a VM a moment after its machine, and some nodes boot fast
ASK_SELDOM = 60.0
SELDOM_AFTER = 120.0
SIGNALS_AT_ONCE = 50
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)
"""What reading a Node object raises that is not as the API's schema has it."""
REFUSED = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.RESOURCE_EXHAUSTED)
"""What the server says of a workflow that takes no signal: it is full (10,000 in one run), or too busy."""
DUPLICATE = "DuplicateNode"
"""In place of a digest in `Cursor.told`: another Node of its machine counts."""

FORGOTTEN = "?"
"""In place of a digest: what its machine was told last is no longer known."""


@dataclass
class UnknownNode:
    """A node whose VM belongs to no known machine."""

    node: dict[str, Any]
    first: float
    ask_at: float


class WatchActivities(Activities):
    role = "watch"

    @activity.defn
    async def watch_nodes(self, input: WatchInput) -> Cursor:
        """Follows the nodes of a cluster for `input.duration`; it returns early when cancelled, and at worker shutdown.

        An API server that cannot be reached is reported to the cluster, and tried again: it is not the activity's
        failure.
        """
        kube = await self.deps.clusters.get(input.cluster)
        former = last_progress()
        watch = NodeWatch(kube, self.deps.client, input, Position(input.cursor, former))
        if not (former or input.cursor.resource_version):
            await watch.remember()
        await run_for(input.duration, watch.run())
        return watch.cursor.cursor()


class NodeWatch:
    def __init__(self, kube: Kube, client: Client, input: WatchInput, cursor: Position) -> None:
        self.kube = kube
        self.client = client
        self.cluster = input.cluster
        self.handle = client.get_workflow_handle(input.workflow_id)
        self.cursor = cursor
        self.clock = ServerClock()
        self.epoch = int(self.clock.started.timestamp() * 1000)
        self.seq = 0
        self.machines: dict[str, str] = {}
        """provider_key to machine, as far as is known."""
        self.nodes: dict[str, set[str]] = {}
        """VM, by its provider_key, to the names of its Nodes: one, or several that have its providerID."""
        self.vms: dict[str, str] = {}
        """Name of a Node to its VM. Several VMs may be known for one machine's name, including those of its former
        lives."""
        self.leases = Leases(kube)
        self.unknown: dict[str, UnknownNode] = {}
        self.unreadable: set[str] = set()
        """Uids of Node objects that nobody can make sense of."""
        self.deaf: set[str] = set()
        """Machines that take no signals."""
        self.asking = asyncio.Event()
        self.liveness = Liveness(kube, self.handle, self.clock, lambda: self.follow.begin_anew())
        self.say = self.liveness.tell
        self.follow = Follow(kube, NODES, self.liveness, self, cursor.resource_version)
        self.turn = self.follow.turn
        self.slots = asyncio.Semaphore(SIGNALS_AT_ONCE)
        self.labels = LabelWriter(kube, self._unwritable)

    async def remember(self) -> None:
        """Begins with what a lost watch knew: every machine that has a Node will be told of it whatever its state, or
        that it is gone. Raises RPCError."""
        async for machine in all_machines(self.client, self.cluster):
            key = provider_key(machine.provider_id)
            self.machines[key] = machine.name
            if machine.node:
                self.vms[machine.node] = key
                self._told(machine.node, f"{FORGOTTEN} {machine.name}")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follow.run())
            group.create_task(self._ask())
            group.create_task(self._contests())
            group.create_task(self.labels.run())
            group.create_task(self.liveness.probe())

    # -- what the API server tells ------------------------------------------------------------------------------------

    async def listed(self, objects: list[dict[str, Any]]) -> None:
        names = {n["metadata"]["name"] for n in objects}
        self.unknown = {n: u for n, u in self.unknown.items() if n in names}
        await self._resolve(objects)
        self.nodes = {}
        for node in objects:
            with contextlib.suppress(*MALFORMED):
                self._claim(node)
        # One for each VM: where it has several, the others are looked at with it.
        each = {k: n for n in objects if (k := _key(n)) in self.machines}
        told = await asyncio.gather(*map(self._seen, each.values()), return_exceptions=True)
        for failure in filter(None, told):  # only now, when no other node's telling is still running
            raise failure
        for name in [n for n in self.cursor.told if n not in names]:
            await self._gone(name)

    async def changed(self, kind: str, found: dict[str, Any]) -> None:
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self.unknown.pop(name, None)
            self.labels.forget(name)
            self.nodes.get(self.vms.get(name, ""), set()).discard(name)
            await self._gone(name)
        else:
            with contextlib.suppress(*MALFORMED):
                self._claim(found)
            await self._seen(found)

    def moved(self, resource_version: str) -> None:
        self.cursor.resource_version = resource_version
        progress(message=f"at resourceVersion {resource_version}", **self.cursor.details())

    # -- whose node is it -------------------------------------------------------------------------------------------

    def _claim(self, node: dict[str, Any]) -> None:
        """Remembers which of a machine's Nodes counts, or that a Node's VM is unknown."""
        name = node["metadata"]["name"]
        key = _key(node)
        if not key:
            return
        machine = self.machines.get(key)
        if machine is None:
            now = time.monotonic()
            known = self.unknown.get(name)
            self.unknown[name] = UnknownNode(node, known.first if known else now, known.ask_at if known else now)
            self.asking.set()
            return
        self.unknown.pop(name, None)
        self.nodes.setdefault(key, set()).add(name)
        self.vms[name] = key

    async def _contests(self) -> None:
        """Settles contests again and again: that a Lease has stopped is no event."""
        while True:
            await asyncio.sleep(LEASES_EVERY)
            for vm in [vm for vm, names in self.nodes.items() if len(names) > 1]:
                async with self.turn:
                    with contextlib.suppress(KubeError, *MALFORMED):  # the next event, or the next time, tells
                        await self._settle(vm)

    async def _settle(self, vm: str) -> None:
        """Decides which of the Nodes that have a VM's providerID counts: its machine is told of that one, with the
        others' names. All carry its label, by which a drain finds them."""
        machine = self.machines[vm]
        read = [await self.kube.find(node_path(name)) for name in sorted(self.nodes[vm])]
        nodes = {n["metadata"]["name"]: n for n in read if n and _key(n) == vm}
        self.nodes[vm] = set(nodes)
        if not nodes:
            return  # the events of their end are on their way
        rivals = [Rival.of(n, await self.leases.silent(n)) for n in nodes.values()] if len(nodes) > 1 else []
        known = {r.uid for r in rivals if self.cursor.told.get(r.name, DUPLICATE).partition(" ")[0] != DUPLICATE}
        name = the_one(rivals, known).name if rivals else next(iter(nodes))
        twins = sorted(nodes.keys() - {name})
        await self._tell(machine, nodes[name], twins)
        for twin in twins:
            await self._take(nodes[twin], machine)
            self._told(twin, f"{DUPLICATE} {machine}")

    async def _ask(self) -> None:
        """Asks whose the unknown nodes are, all in one query: it leaves no history."""
        while True:
            due = min((u.ask_at for u in self.unknown.values()), default=None)
            self.asking.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                    await self.asking.wait()
            now = time.monotonic()
            if not any(u.ask_at <= now for u in self.unknown.values()):
                continue
            # Those that are asked about often are included, so that they stay in step.
            asked = {n: u for n, u in self.unknown.items() if u.ask_at <= now or now - u.first <= SELDOM_AFTER}
            for u in asked.values():
                age = now - u.first
                u.ask_at = now + (ASK_SELDOM if age > SELDOM_AFTER else ASK_EVERY if age > 1 else ASK_SOON)
            await self._resolve(u.node for u in asked.values())
            async with self.turn:
                # As they are now: while the answer was on its way a node may have changed, or gone.
                for name, u in [(name, self.unknown[name]) for name in asked if name in self.unknown]:
                    if _key(u.node) in self.machines:
                        with contextlib.suppress(*MALFORMED):
                            self._claim(u.node)
                        try:
                            await self._seen(u.node)
                        except KubeError:  # its twins cannot be read: nobody else would tell of it in time
                            self.unknown[name] = u

    async def _resolve(self, nodes: Iterable[dict[str, Any]]) -> None:
        asked = {p for p in map(provider_id_of, nodes) if p and provider_key(p) not in self.machines}
        self.machines.update(await machines_of(self.client, self.cluster, asked))

    # -- telling ----------------------------------------------------------------------------------------------------

    async def _seen(self, node: dict[str, Any]) -> None:
        """Tells the machine of this node, if there is one and it does not know yet. A Node that nobody can make sense
        of is passed over, and reported once: it must not stop the watch of all the others."""
        try:
            vm = _key(node) or ""
            machine = self.machines.get(vm)
            if machine is None:
                return
            if len(self.nodes[vm]) > 1:
                await self._settle(vm)
            else:
                await self._tell(machine, node)
        except MALFORMED as e:
            metadata = node["metadata"]
            if metadata.get("uid") not in self.unreadable:
                self.unreadable.add(metadata.get("uid"))
                why = explained(e) if isinstance(e, ValidationError) else f"{type(e).__name__}: {e}"
                words = f"node {metadata['name']} cannot be read, so its machine gets no news of it: {why}"
                await self._note("NodeUnreadable", words)

    async def _tell(self, machine: str, node: dict[str, Any], twins: Iterable[str] = ()) -> None:
        name = node["metadata"]["name"]
        await self._take(node, machine)
        facts = project(node, self.epoch, self._next(), twins)
        if trouble := self.labels.trouble(name):
            facts = facts.model_copy(update={"unwritable": trouble})
        mark = f"{digest(facts)} {machine}"
        if self.cursor.told.get(name) == mark:
            return
        if await self._signal(machine, facts):
            self._told(name, mark)
        elif machine in self.deaf:
            now = time.monotonic()
            self.unknown[name] = UnknownNode(node, now - SELDOM_AFTER, now + ASK_SELDOM)  # told again then

    async def _take(self, node: dict[str, Any], machine: str) -> None:
        """The VM is this machine's from now on."""
        name = node["metadata"]["name"]
        self.labels.want(node, machine)
        former = self.cursor.told.get(name, "").partition(" ")[2]
        if former and former != machine:  # a dead VM's address was reused, and its Node's end went unseen
            await self._tell_end(former, name)

    async def _gone(self, name: str) -> None:
        """Tells its machine that the Node is gone; a machine that has another Node is told of that."""
        mark, vm = self.cursor.told.get(name), self.vms.pop(name, "")
        if mark is None:
            return
        others = self.nodes.get(vm, set())
        others.discard(name)
        if others:
            await self._settle(vm)
            self._told(name, None)
        else:
            await self._tell_end(mark.partition(" ")[2], name, vm)

    async def _tell_end(self, machine: str, name: str, vm: str = "") -> None:
        """Tells that a Node is gone. `vm`: whose Node it was, where that is known: a machine may have had another VM in
        a former life."""
        gone = NodeFacts(epoch=self.epoch, seq=self._next(), exists=False, name=name, provider_id=vm)
        await self._signal(machine, gone)
        self._told(name, None)

    def _told(self, name: str, mark: str | None) -> None:
        self.cursor.tell(name, mark)

    async def _signal(self, machine: str, facts: NodeFacts) -> bool:
        """Signals a machine. False when it did not take the signal. A machine that has ended is no error, and its VM is
        no longer known; one whose workflow takes nothing more for now is told again later, and is in trouble alone."""
        async with self.slots:
            try:
                await self.client.get_workflow_handle(machine_id(self.cluster, machine)).signal("observe", facts)
            except RPCError as e:
                if e.status == RPCStatusCode.NOT_FOUND:
                    self.machines = {k: m for k, m in self.machines.items() if m != machine}
                elif e.status not in REFUSED:
                    raise
                elif machine not in self.deaf:
                    self.deaf.add(machine)
                    await self._note("MachineDeaf", f"machine {machine} cannot be told of its node: {e.message}")
                return False
        self.deaf.discard(machine)
        return True

    async def _unwritable(self, node: dict[str, Any], why: str) -> bool:
        """A Node that cannot be written is its machine's trouble alone; where the whole server is in trouble, that is
        said instead."""
        if why and (not self.liveness.well or self.follow.failures):
            return False
        if why:
            words = f"node {node['metadata']['name']} cannot be written; it is tried again: {why}"
            await self._note("NodeUnwritable", words)
        async with self.turn:
            await self._seen(node)
        return True

    async def _note(self, reason: str, message: str) -> None:
        activity.logger.warning("%s: %s", reason, message)
        await self.handle.signal("note", Note(reason=reason, message=message))

    def _next(self) -> int:
        self.seq += 1
        return self.seq


def _key(node: dict[str, Any]) -> str | None:
    """The Node's VM, by providerID only: AWS, Azure and GCP set it; a name alone may be a dead VM's."""
    provider_id = provider_id_of(node)
    return provider_key(provider_id) if provider_id else None

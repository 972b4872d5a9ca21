"""What a simulated cloud itself knows of the machines that it has, kept at each of its changes, whatever the cloud:
invariants ask this, and neither the driver nor the cloud's API."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from lifekit import Stack

from resources.names import TAG_MACHINE, TAG_RELEASED, TAG_UID
from simulator.clouds import CloudResource, Power, Vm
from simulator.frame import Call
from simulator.server import SimulatorThread

FOREIGN_TAG = ("somebody", "elses")
"""A person's tag, which every cloud takes as it is."""


@dataclass
class Entry:
    """A resource that carries a machine's uid."""

    kind: str
    vm: bool
    uid: str
    machine: str
    must: dict[str, str]
    """The must-tags with which it was first seen."""
    foreign: bool = False
    """It has carried FOREIGN_TAG."""
    ran: bool = False
    ended: float | None = None
    """When a VM that had run stopped running for the first time; seconds since the epoch."""
    gone: float | None = None


class Books:
    """The books of one cloud, for all clusters on it."""

    def __init__(self, stack: Stack) -> None:
        self.cloud, self.rules, self._call = stack.cloud, stack.tag_rules, stack.simulator.call
        self.entries: dict[str, Entry] = {}
        """Entries by the resource's id, also of what is gone."""
        self.retagged: list[tuple[str, str]] = []
        """The uid and, in words, each change of a must-tag or of somebody's own."""
        self.most: Counter[str] = Counter()
        """The most VMs of each machine at the same time: those that are going count until they are gone."""
        self._power: dict[str, Power] = {}
        frame = stack.simulator.simulator.frame
        record = frame.record

        def recorded(service: str, operation: str, **fields: Any) -> Call:
            call = record(service, operation, **fields)
            if service == self.cloud.service and call.mutating:
                self._look()
            return call

        def follow() -> None:
            frame.record = recorded  # type: ignore[method-assign]
            self.cloud.subscribe(self._hear)
            self._look()

        stack.simulator.call(follow)

    def _hear(self, vm: Vm) -> None:
        self._power[vm.instance_id] = vm.power
        entry = self.entries.get(vm.instance_id)
        if entry is None:
            asyncio.get_running_loop().call_soon(self._look)  # not now: the cloud is in the middle of its change
        else:
            self._note(entry, vm.power)

    def _note(self, entry: Entry, power: Power) -> None:
        now = time.time()
        entry.ran = entry.ran or power is Power.ON
        if power is Power.GONE:
            entry.gone = entry.gone or now
        if power is not Power.ON and entry.ran:
            entry.ended = entry.ended or now

    def _look(self) -> None:
        key_uid, key_machine = self.rules.key(TAG_UID), self.rules.key(TAG_MACHINE)
        for found in self.cloud.resources():
            entry = self.entries.get(found.id)
            if entry is None:
                if key_uid not in found.tags:
                    continue
                uid, machine = found.tags[key_uid], found.tags.get(key_machine, "")
                entry = self.entries[found.id] = Entry(found.kind, found.vm, uid, machine, self.must(found.tags))
                self._note(entry, self._power.get(found.id, Power.OFF))
            if found.gone:
                entry.gone = entry.gone or time.time()
            else:
                self._compare(entry, found)
        alive = Counter(e.machine for e in self.entries.values() if e.vm and e.gone is None)
        self.most |= alive

    def _compare(self, entry: Entry, found: CloudResource) -> None:
        must = self.must(found.tags)
        key, value = FOREIGN_TAG
        changed = sorted(k for k in {*must, *entry.must} if must.get(k) != entry.must.get(k))
        entry.foreign = entry.foreign or found.tags.get(key) == value
        if entry.foreign and found.tags.get(key) != value:
            changed.append(key)
        if changed:
            self.retagged.append((entry.uid, f"{', '.join(changed)} of {entry.kind} {found.id}"))

    def must(self, tags: dict[str, str]) -> dict[str, str]:
        """Those that never change: of the cluster and role (seed 002), and our own."""
        released = self.rules.key(TAG_RELEASED)
        return {k: v for k, v in tags.items() if self.rules.is_protected(k) and k != released}

    def own(self, tags: dict[str, str]) -> dict[str, str]:
        """Those of the class."""
        theirs, names = (*self.rules.must_prefixes, self.rules.key("hostler.io/")), (FOREIGN_TAG[0], self.rules.name)
        return {k: v for k, v in tags.items() if not k.startswith(theirs) and k not in names}

    def vms(self, wanted: Callable[[Entry], bool]) -> dict[str, Entry]:
        """The VMs that were ever made, of these machines."""
        return self._call(lambda: {id: e for id, e in self.entries.items() if e.vm and wanted(e)})


_kept: WeakKeyDictionary[SimulatorThread, Books] = WeakKeyDictionary()


def books_of(stack: Stack) -> Books:
    """The books of the stack's simulator; they begin when they are first asked for."""
    if stack.simulator not in _kept:
        _kept[stack.simulator] = Books(stack)
    return _kept[stack.simulator]

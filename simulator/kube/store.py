"""Objects, their versions and their history.

Stored objects are values: a write makes a new one, nobody changes one in place. So lists, watches and snapshots share
them, and each is encoded to JSON once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from simulator.kube.objects import Key, Obj, key_of
from simulator.kube.resources import Resource, ResourceId
from simulator.kube.selectors import Selector

FIRST_VERSION = 1000  # so that "1" is a version too old for every watch, as after a compaction
RESTART_GAP = 1_000_000  # writes after the last dump are lost in a crash; no version may be given out twice
QUEUE_LIMIT = 20_000  # events a slow watcher may lag behind before it is cut off
INDEXED_FIELDS = ("metadata.name", "spec.nodeName")

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Item:
    """One version of one object, with its JSON."""

    __slots__ = ("_raw", "obj")

    def __init__(self, obj: Obj) -> None:
        self.obj = obj
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = json.dumps(self.obj, separators=(",", ":"), ensure_ascii=False).encode()
        return self._raw

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def version(self) -> str:
        return str(self.obj["metadata"].get("resourceVersion", ""))

    def copy(self) -> Obj:
        """A copy that may be changed."""
        copied: Obj = json.loads(self.raw)
        return copied

    def at_version(self, version: int) -> Item:
        return Item({**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(version)}})


@dataclass(frozen=True, slots=True)
class Event:
    """One write: the new object (for DELETED the last one, at the version of its deletion) and the one before."""

    version: int
    type: EventType
    item: Item
    old: Item | None

    def seen_by(self, selector: Selector) -> tuple[EventType, Item] | None:
        """What a watcher with that selector is told: an object that leaves it is DELETED, one that enters ADDED."""
        before = self.old is not None and selector.matches(self.old.obj)
        after = self.type != "DELETED" and selector.matches(self.item.obj)
        if after:
            return ("MODIFIED" if before else "ADDED"), self.item
        if before and self.old is not None:
            return "DELETED", (self.item if self.type == "DELETED" else self.old.at_version(self.version))
        return None


class Subscription:
    """A watcher's queue. `ended` is set when the watcher must go: too slow, or the server shuts down."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.queue: deque[tuple[EventType, Item]] = deque()
        self.ended = False
        self._wake = asyncio.Event()

    def offer(self, event: Event) -> None:
        seen = event.seen_by(self.selector)
        if seen is None:
            return
        self.queue.append(seen)
        if len(self.queue) > QUEUE_LIMIT:
            self.ended = True
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def wait(self, seconds: float) -> None:
        """Waits until there is something to send or the time is over."""
        if self.queue or self.ended:
            return
        self._wake.clear()
        try:
            # Not wait_for: on Python 3.11 it swallows a cancellation that meets the event (gh-86296).
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return


class Collection:
    """All objects of one kind, the last `history` events on them, and who watches them."""

    def __init__(self, history: int, floor: int) -> None:
        self.items: dict[Key, Item] = {}
        self.floor = floor
        """The oldest version a watch may resume from."""
        self.events: deque[Event] = deque(maxlen=history)
        # A watcher of one node's pods or of one object is looked up by that value: with 2,000 kubelets a write of one
        # pod must not test 2,000 selectors.
        self._watchers: dict[tuple[str, str], dict[Subscription, None]] = {}

    def publish(self, event: Event) -> None:
        if len(self.events) == self.events.maxlen:
            self.floor = self.events[0].version
        self.events.append(event)
        slots = {("", "")} | _slots_of(event.item.obj)
        if event.old is not None:
            slots |= _slots_of(event.old.obj)
        for slot in slots:
            for subscription in self._watchers.get(slot, ()):
                subscription.offer(event)

    def subscribe(self, selector: Selector, since: int) -> Subscription:
        """A subscription that first gets what happened after version `since`."""
        subscription = Subscription(selector)
        missed: list[Event] = []
        for event in reversed(self.events):
            if event.version <= since:
                break
            missed.append(event)
        for event in reversed(missed):
            subscription.offer(event)
        self._watchers.setdefault(_slot_of(selector), {})[subscription] = None
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        slot = _slot_of(subscription.selector)
        watchers = self._watchers.get(slot, {})
        watchers.pop(subscription, None)
        if not watchers:
            self._watchers.pop(slot, None)

    def subscriptions(self) -> list[Subscription]:
        return [s for watchers in self._watchers.values() for s in watchers]

    def select(self, selector: Selector) -> list[Item]:
        """The chosen objects in the order of their keys, as etcd keeps them."""
        chosen = [(key, item) for key, item in self.items.items() if selector.matches(item.obj)]
        return [item for _, item in sorted(chosen, key=lambda pair: pair[0])]

    def in_namespace(self, namespace: str) -> list[Item]:
        return [item for (ns, _), item in self.items.items() if ns == namespace]


def _slot_of(selector: Selector) -> tuple[str, str]:
    return next(((f, selector.exact[f]) for f in INDEXED_FIELDS if f in selector.exact), ("", ""))


def _slots_of(obj: Obj) -> set[tuple[str, str]]:
    slots = {("metadata.name", str(obj["metadata"]["name"]))}
    spec = obj.get("spec")
    if isinstance(spec, dict):
        slots.add(("spec.nodeName", str(spec.get("nodeName") or "")))
    return slots


class Store:
    """Every collection, under one global version counter."""

    def __init__(self, history: int) -> None:
        self.version = FIRST_VERSION
        self._history = history
        self._floor = FIRST_VERSION
        self._collections: dict[ResourceId, Collection] = {}

    def __getitem__(self, resource: Resource) -> Collection:
        found = self._collections.get(resource.id)
        if found is None:
            found = self._collections[resource.id] = Collection(self._history, self._floor)
        return found

    def collections(self) -> Iterable[Collection]:
        return self._collections.values()

    def get(self, resource: Resource, namespace: str, name: str) -> Item | None:
        return self[resource].items.get((namespace, name))

    def put(self, resource: Resource, obj: Obj) -> Item:
        """Write an object; it must not be changed afterwards."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        # kind and apiVersion lead, so that a list can cut them off (`server`: items of built-in lists have none).
        item = Item({"kind": resource.kind, "apiVersion": resource.api_version, **obj})
        collection = self[resource]
        key = key_of(obj)
        old = collection.items.get(key)
        collection.items[key] = item
        collection.publish(Event(self.version, "MODIFIED" if old else "ADDED", item, old))
        return item

    def remove(self, resource: Resource, item: Item) -> Item:
        """Remove an object; answers it as the DELETED event shows it."""
        self.version += 1
        last = item.at_version(self.version)
        collection = self[resource]
        del collection.items[key_of(item.obj)]
        collection.publish(Event(self.version, "DELETED", last, item))
        return last

    def drop(self, resource: Resource) -> None:
        """Forget a kind that is no longer served; its watchers go."""
        collection = self._collections.pop(resource.id, None)
        for subscription in collection.subscriptions() if collection else ():
            subscription.end()

    def objects(self) -> Iterator[tuple[ResourceId, list[Obj]]]:
        for resource_id, collection in self._collections.items():
            if collection.items:
                yield resource_id, [item.obj for item in collection.items.values()]

    def restore(self, version: int) -> None:
        """Starts again after a dump: every older watch has to list again (410)."""
        for collection in self._collections.values():
            for subscription in collection.subscriptions():
                subscription.end()
        self._collections.clear()
        self.version = self._floor = version + RESTART_GAP

    def place(self, resource: Resource, obj: Obj) -> None:
        """Put a dumped object back at the version it had."""
        self[resource].items[key_of(obj)] = Item(obj)

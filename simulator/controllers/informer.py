"""Local caches of one resource each, kept by list and watch, and the loop that controllers run on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Iterator, Sequence

from simulator.client import CallError, KubeClient, Obj

RETRY = 0.2  # seconds before a broken list or watch, or a pass that met an error, is tried again
GATHER = 0.02  # seconds in which a burst of events becomes one pass
GATHER_AT_MOST = 2.0
SHARE = 30  # in a large cluster the pause is this many passes long: ten controllers together take a third of a core

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for what has none."""


def key_of(obj: Obj) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace") or "", meta["name"]


class Informer:
    """All objects of one resource as last seen. Callers read them and never change them in place."""

    def __init__(self, client: KubeClient, resource: str) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._items: dict[Key, Obj] = {}
        self._seen = 0  # the newest resourceVersion that list or watch have told
        self._listeners: list[asyncio.Event] = []

    def __iter__(self) -> Iterator[Obj]:
        return iter(list(self._items.values()))

    def get(self, name: str, namespace: str = "") -> Obj | None:
        return self._items.get((namespace, name))

    def uids(self) -> set[str]:
        return {obj["metadata"]["uid"] for obj in self._items.values()}

    def listen(self, changed: asyncio.Event) -> None:
        """Set `changed` at every change from now on."""
        self._listeners.append(changed)

    def remember(self, obj: Obj) -> None:
        """Takes over the answer of the caller's own write, so that the next pass does not act on the state before it.

        An answer older than what the watch has told is ignored: the object may be gone since.
        """
        if _version(obj) > self._seen:
            self._items[key_of(obj)] = obj

    def forget(self, obj: Obj) -> None:
        """The object has just been deleted by the caller."""
        known = self._items.get(key_of(obj))
        if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
            del self._items[key_of(obj)]

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                await self._follow()
            except CallError as e:
                log.debug("%s: %s", self.resource, e.message)
                await asyncio.sleep(RETRY)

    async def _follow(self) -> None:
        listed = await self._client.list(self.resource)
        version = listed["metadata"]["resourceVersion"]
        self._seen = int(version)
        fresh = {key_of(obj): obj for obj in listed.get("items", ())}
        own = {key: obj for key, obj in self._items.items() if _version(obj) > self._seen}
        self._items = {**fresh, **own}
        self.synced.set()
        self._tell()
        while True:
            async for event in self._client.watch(self.resource, version):
                version = event.object["metadata"]["resourceVersion"]
                self._seen = max(self._seen, int(version))
                if event.type == "BOOKMARK":
                    continue
                self._apply(event.type, event.object)
                self._tell()

    def _apply(self, type_: str, obj: Obj) -> None:
        key = key_of(obj)
        known = self._items.get(key)
        if known is not None and _version(known) > _version(obj):
            return  # already remembered from an answer that overtook this event
        if type_ == "DELETED":
            self._items.pop(key, None)
        else:
            self._items[key] = obj

    def _tell(self) -> None:
        for changed in self._listeners:
            changed.set()


class Controller:
    """One control loop: whenever its informers change, and every `resync` seconds, one pass over what they hold.

    A pass is level-triggered: it compares what is with what should be, and only clocks are remembered between passes.
    So an error in a pass costs only time: the pass is run again.
    """

    def __init__(self, client: KubeClient, informers: Sequence[Informer], resync: float) -> None:
        self.client = client
        self.resync = resync
        self._informers = informers
        self._changed = asyncio.Event()
        self._failed = False
        for informer in informers:
            informer.listen(self._changed)

    async def sync(self) -> float | None:
        """Makes one pass. Returns the seconds after which the next is due without any change; None: `resync`."""
        raise NotImplementedError

    async def run(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        while True:
            self._changed.clear()
            self._failed = False
            started = time.thread_time()
            try:
                due = await self.sync()
            except Exception:
                log.exception("%s: a pass failed because of an error in its code", type(self).__name__)
                self._failed, due = True, None
            took = time.thread_time() - started
            pause = self.resync if due is None else min(self.resync, max(0.0, due))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY if self._failed else pause):
                    await self._changed.wait()
            await asyncio.sleep(min(GATHER_AT_MOST, max(GATHER, SHARE * took)))

    async def attempt(self, call: Awaitable[Obj]) -> Obj | None:
        """The answer of a write; None when it failed, and then another pass follows soon.

        A conflict or a missing object is no trouble: the cache was behind, and the next pass sees it.
        """
        try:
            return await call
        except CallError as e:
            self._failed = True
            log.log(
                logging.DEBUG if e.not_found or e.conflict else logging.INFO, "%s: %s", type(self).__name__, e.message
            )
            return None


def _version(obj: Obj) -> int:
    """Resource versions are ordered numbers, for our server and for every real one on etcd."""
    return int(obj["metadata"]["resourceVersion"])

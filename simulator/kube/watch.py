"""Watches: a stream of events, one line of JSON each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from simulator.kube.encoding import dumps
from simulator.kube.errors import FieldErrors, expired
from simulator.kube.objects import Obj
from simulator.kube.registry import Registry
from simulator.kube.requests import RequestInfo
from simulator.kube.resources import Resource
from simulator.kube.selectors import Selector
from simulator.kube.store import Collection, Item, Subscription

_SHORTEST, _LONGEST = 1800, 3600  # seconds a watch without timeoutSeconds lasts (min-request-timeout upstream)
_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_CHECK_CONNECTION_EVERY = 10.0  # when nothing happens, a caller that went away is noticed this late
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Encode = Callable[[Item], bytes]


@dataclass
class Outcome:
    """What the journal says of a watch."""

    events: int = 0
    version: int = 0
    dropped: bool = False


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


def check_parameters(resource: Resource, info: RequestInfo) -> None:
    """sendInitialEvents wants resourceVersionMatch=NotOlderThan, and nothing else does. Raises 422."""
    match, initial = info.query.get("resourceVersionMatch", ""), "sendInitialEvents" in info.query
    errors = FieldErrors()
    if initial and match != "NotOlderThan":
        errors.forbidden(
            "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    if match and not initial:
        errors.forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        )
    errors.check(resource, "")


class Watch:
    """One watch, from its first byte to its last."""

    def __init__(
        self, registry: Registry, resource: Resource, info: RequestInfo, selector: Selector, encode: Encode, cut: bool
    ) -> None:
        self._registry = registry
        self._resource = resource
        self._selector = selector
        self._encode = encode
        self._cut = cut
        self._bookmarks = info.flag("allowWatchBookmarks")
        self._initial = info.flag("sendInitialEvents")
        self._since = info.number("resourceVersion")
        self._seconds = info.number("timeoutSeconds") or random.randint(_SHORTEST, _LONGEST)
        self.outcome = Outcome()

    async def run(self, request: web.Request, response: web.StreamResponse) -> None:
        collection = self._registry.store[self._resource]
        current = self._registry.store.version
        if self._since and self._since < collection.floor and not self._initial:
            await self._refuse(
                response, expired(f"too old resource version: {self._since} ({collection.floor})").body()
            )
            return
        subscription = self._subscribe(collection, current)
        try:
            await self._stream(request, response, subscription)
        finally:
            collection.unsubscribe(subscription)

    def _subscribe(self, collection: Collection, current: int) -> Subscription:
        """Existing objects first where they are asked for, then what follows; no write can come between."""
        if self._since and not self._initial:
            self.outcome.version = self._since
            return collection.subscribe(self._selector, self._since)
        self.outcome.version = current
        subscription = collection.subscribe(self._selector, current)
        subscription.queue.extend(("ADDED", item) for item in collection.select(self._selector))
        return subscription

    async def _refuse(self, response: web.StreamResponse, status: Obj) -> None:
        """A watch that cannot start is HTTP 200 with one ERROR event, as a real server answers it."""
        await response.write(_line("ERROR", dumps(status)))

    async def _stream(self, request: web.Request, response: web.StreamResponse, subscription: Subscription) -> None:
        start = time.monotonic()
        end = start + self._seconds
        bookmark = self._next_bookmark(start, end)
        initial = self._initial
        # A version in the future is no error to a real server: it tells what comes after it, and nothing until then.
        future = 0 if initial else self._since
        while True:
            while subscription.queue:
                kind, item = subscription.queue.popleft()
                if int(item.version) <= future:
                    continue
                line = _line(kind, self._encode(item))
                if self._cut:
                    await self._cut_in(request, response, line)
                    return
                await response.write(line)
                self.outcome.events += 1
                self.outcome.version = max(self.outcome.version, int(item.version))
            if initial:
                initial = False
                if self._bookmarks:
                    await self._bookmark(response, {INITIAL_EVENTS_END: "true"})
                continue
            moment = time.monotonic()
            transport = request.transport
            if subscription.ended or moment >= end or transport is None or transport.is_closing():
                return
            if self._bookmarks and moment >= bookmark:
                await self._bookmark(response)
                bookmark = self._next_bookmark(moment, end)
                continue
            await subscription.wait(min(end, bookmark, moment + _CHECK_CONNECTION_EVERY) - moment)

    def _next_bookmark(self, moment: float, end: float) -> float:
        """When the next bookmark is due: once a minute, and shortly before the end, so that the next watch starts from
        a recent version."""
        last = end - _BOOKMARK_BEFORE_END
        return min(moment + _BOOKMARK_EVERY, last) if moment < last else max(end, moment + _BOOKMARK_EVERY)

    async def _bookmark(self, response: web.StreamResponse, annotations: Obj | None = None) -> None:
        # Nothing is queued and nothing can happen in between: the watcher has seen all up to the store's version.
        self.outcome.version = self._registry.store.version
        meta: Obj = {"resourceVersion": str(self.outcome.version)}
        if annotations:
            meta["annotations"] = annotations
        obj = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": meta}
        await response.write(_line("BOOKMARK", dumps(obj)))

    async def _cut_in(self, request: web.Request, response: web.StreamResponse, line: bytes) -> None:
        """The fault of a connection that breaks in the middle of an event."""
        await response.write(line[: len(line) // 2])
        self.outcome.dropped = True
        if request.transport is not None:
            request.transport.close()

"""Following one list of the Kubernetes API: what every watch must get right, whatever it looks at.

It lists, watches from there, takes bookmarks, resumes where it was, lists again where the server no longer knows that
place (410), and gives up connections that are half-open. An API server that cannot be reached is said, and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from temporalio import activity

from activities.kube.client import Kube, KubeError, Object
from activities.watch.liveness import Liveness

SERVER_TIMEOUT = 290  # seconds that the API server is asked to keep one watch open
READ_TIMEOUT = 100.0  # seconds without even a bookmark (about one a minute): the connection is half-open
BACK_OFF = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)
BUSY_FOR = 30.0  # seconds that a server may refuse the list for being busy, until what is known counts as old


async def run_for(duration: timedelta, watch: Coroutine[Any, Any, None]) -> None:
    """Runs a watch for so long. Returns early when the activity is cancelled, and when its worker shuts down: another
    one takes the next watch, and none waits for this one. Raises the first error of its tasks."""
    watching = asyncio.create_task(watch)
    leaving = asyncio.create_task(activity.wait_for_worker_shutdown())
    try:
        with contextlib.suppress(asyncio.CancelledError):
            seconds = duration.total_seconds()
            await asyncio.wait({watching, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (watching, leaving):
            task.cancel()
        ended, _ = await asyncio.gather(watching, leaving, return_exceptions=True)
    if isinstance(ended, ExceptionGroup):
        raise ended.exceptions[0] from None  # the group's own message says nothing
    if isinstance(ended, Exception):
        raise ended


class Follower(Protocol):
    """Whoever is told what the list holds. Its methods may raise KubeError, which counts as the server's trouble."""

    async def listed(self, objects: list[Object]) -> None:
        """All there is, at the beginning and wherever events may have been missed. `Follow.turn` is held."""

    async def changed(self, kind: str, found: Object) -> None:
        """One event: ADDED, MODIFIED or DELETED. `Follow.turn` is held."""

    def moved(self, resource_version: str) -> None:
        """What has been told is behind this version."""

    async def say(self, trouble: str = "", refused: bool = False) -> None:
        """The list can be followed, or why it cannot; as Liveness.tell."""


class Follow:
    def __init__(self, kube: Kube, path: str, liveness: Liveness, follower: Follower, resource_version: str) -> None:
        self.kube = kube
        self.path = path
        self.liveness = liveness
        self.follower = follower
        self.resource_version = resource_version
        self.turn = asyncio.Lock()
        """The lock of all who tell of the list's objects: what was seen earlier must not be told later."""
        self.current = False
        """Whether what is known is as new as the watch."""
        self.blind_since: float | None = None
        """When the first list of the present row of failed lists failed."""
        self.absent = False
        """The server does not know such objects: their CustomResourceDefinition is missing."""
        self.failures = 0
        """Failures of the API server since it last said something."""
        self.waiting: asyncio.Timeout | None = None
        """The timeout of the wait for the next event."""

    async def run(self) -> None:
        while True:
            try:
                if not self.current:
                    async with self.turn:
                        await self._list()
                    self.current, self.blind_since = True, None
                await self.follower.say()
                await self._events()
                self.failures = 0
            except KubeError as e:
                # A broken or half-open watch is no news yet, nor is one that a busy server refuses: the watch goes on
                # where it was. When that fails too, or the version is too old (410), the list decides, and a list that
                # fails is news.
                self.absent = e.status == 404
                if not self.current:
                    await self._blind(e)
                self.current = self.current and (e.status == 0 or e.busy) and not self.failures
                pause = max(BACK_OFF[min(self.failures, len(BACK_OFF) - 1)], e.retry_after or 0.0)
                await (asyncio.sleep(pause) if e.status else self.liveness.answer(pause))
                self.failures += 1

    async def _blind(self, e: KubeError) -> None:
        """The list failed. A busy server answers, and may put us off for a while."""
        now = time.monotonic()
        self.blind_since = self.blind_since or now
        if not e.busy or now - self.blind_since > BUSY_FOR:
            await self.follower.say(e.message, e.refused)

    def begin_anew(self) -> None:
        """The server is silent: the wait for the next event ends, and everything must be listed again."""
        self.current = False
        if self.waiting is not None:
            self.waiting.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> None:
        found = await self.kube.get(self.path)
        self.liveness.heard()
        await self.follower.listed(found["items"])
        self._move_to(found["metadata"]["resourceVersion"])

    async def _events(self) -> None:
        stream = self.kube.watch(
            self.path,
            READ_TIMEOUT,
            resourceVersion=self.resource_version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(SERVER_TIMEOUT),
        )
        async with contextlib.aclosing(stream) as events:  # type: ignore[type-var]
            while event := await self._next_event(events):
                self.liveness.heard()
                kind, found = event["type"], event["object"]
                if kind != "BOOKMARK":  # it has a version and nothing else, not even a name
                    async with self.turn:
                        await self.follower.changed(kind, found)
                # Only now: what has been told is behind the cursor, what has not is before it; and an event that cannot
                # be told must not come again and again without a pause.
                self.failures = 0
                self._move_to(found["metadata"]["resourceVersion"])

    async def _next_event(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The next event; None when the server has ended the watch."""
        try:
            async with asyncio.timeout(None if self.current else 0.0) as self.waiting:
                return await anext(events, None)
        except TimeoutError:
            raise KubeError(0, "Unreachable", f"the API server of {self.kube.name} is silent") from None
        finally:
            self.waiting = None

    def _move_to(self, resource_version: str) -> None:
        self.resource_version = resource_version
        self.follower.moved(resource_version)

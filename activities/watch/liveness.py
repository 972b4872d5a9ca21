"""Whether a cluster's API server answers: a read with a deadline beside the watch, and one place that tells what is
found.

A watch alone does not show it. A frozen server keeps its connections open, and so does a lost route; such a watch is
given up only after minutes without a bookmark.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle

from activities.clock import ServerClock
from activities.kube.client import LIVEZ, Kube, KubeError
from resources.cluster.news import Reachability
from resources.journal import Note

PROBE_EVERY = 10.0  # seconds between two reads
PROBE_PATIENCE = 7.0  # seconds for an answer; with the second read, a silent server is known after 25
PROBE_AGAIN = 1.0  # seconds before the second read, which decides
ONE_NODE = "/api/v1/nodes?limit=1"


class Liveness:
    """The liveness of one API server, told to its cluster's workflow when it changes.

    `silent` is called when nothing was heard for two reads: what is known of nodes is old.
    """

    def __init__(
        self, kube: Kube, cluster: WorkflowHandle[Any, Any], clock: ServerClock, silent: Callable[[], None]
    ) -> None:
        self._kube = kube
        self._cluster = cluster
        self._clock = clock
        self._silent = silent
        self._heard: datetime | None = None
        self._told: tuple[bool, bool] | None = None
        self._telling = asyncio.Lock()  # the watch and the probe tell: the last word must arrive last
        self._answered = asyncio.Event()

    @property
    def well(self) -> bool:
        """Whether nodes can be seen, as far as was told."""
        return self._told == (True, False)

    def heard(self) -> None:
        """The server has answered just now."""
        self._heard = self._clock.now()
        self._answered.set()

    async def answer(self, within: float) -> None:
        """Returns when something is heard, at the latest after this many seconds."""
        self._answered.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._answered.wait()

    async def tell(self, trouble: str = "", refused: bool = False) -> None:
        """Tells that nodes can be seen, or why they cannot. `refused`: the server answers, and does not let us in."""
        async with self._telling:
            reachable = not trouble
            if self._told == (reachable, refused):
                return
            self._told = (reachable, refused)
            since = None if reachable else self._heard
            news = Reachability(
                reachable=reachable, message=trouble, time=self._clock.now(), since=since, refused=refused
            )
            await self._cluster.signal("reachability", news)

    async def probe(self) -> None:
        """Probes for ever. Only silence counts: a server that refuses us or is busy answers, and so does one whose
        watch has told something meanwhile. A server that says it is not well is asked for a Node before it is believed.
        """
        failed: KubeError | None = None
        last_heard, refused = self._heard, False
        while True:
            await asyncio.sleep(PROBE_AGAIN if failed else PROBE_EVERY)
            if failed is None:
                last_heard = self._heard
            try:
                await self._kube.alive(PROBE_PATIENCE, ONE_NODE if failed and failed.status else LIVEZ)
                refused = False
            except KubeError as e:
                if e.silent:
                    if failed and self._heard == last_heard:
                        self._silent()
                        await self.tell(e.message)
                    failed = e if failed is None else None
                    continue
                if e.status == 401 and not refused:
                    refused = True
                    await self._note("APIRefused", f"{e.message}: the open watch continues until it ends")
            failed = None
            self.heard()

    async def _note(self, reason: str, message: str) -> None:
        activity.logger.warning("%s: %s", reason, message)
        await self._cluster.signal("note", Note(reason=reason, message=message))

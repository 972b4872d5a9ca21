"""The machine's name as a label on its Node, written beside the watch: a Node that cannot be written, for example
because a webhook refuses it, holds up neither the other Nodes nor what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from activities.kube.client import Kube, KubeError, node_path
from resources.names import MACHINE_NAME_LABEL

AT_ONCE = 20
"""Writes at the same time: the first list of a large cluster must not open a connection for every node."""
BACK_OFF = 2.0  # seconds after a first refusal; doubled with each
LONGEST = 300.0
SAID_AFTER = 2
"""Refusals in a row before it is said: a single one may come from a server that has just lost its leader."""


@dataclass
class WantedLabel:
    node: dict[str, Any]
    """The Node as it was last seen."""
    machine: str
    at: float
    """When it is tried, on the monotonic clock."""
    refused: int = 0
    writing: bool = False

    @property
    def uid(self) -> str:
        return str(self.node["metadata"]["uid"])


class LabelWriter:
    def __init__(self, kube: Kube, say: Callable[[dict[str, Any], str], Awaitable[bool]]) -> None:
        """`say` is called with the Node, and with why it cannot be written, or "" once it could. It answers False when
        it did not say so, because the whole server is in trouble."""
        self._kube, self._say = kube, say
        self._wanted: dict[str, WantedLabel] = {}
        self._written: dict[str, str] = {}
        """Node uid to machine: our own change may come back after the next event."""
        self._troubles: dict[str, str] = {}
        """What has been said, by node name."""
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._news = asyncio.Event()

    def want(self, node: dict[str, Any], machine: str) -> None:
        metadata = node["metadata"]
        there = (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL)
        if machine in (there, self._written.get(metadata["uid"])):
            return
        former = self._wanted.get(metadata["name"])
        if former is not None and (former.uid, former.machine) == (metadata["uid"], machine):
            former.node = node
            return
        self._wanted[metadata["name"]] = WantedLabel(node, machine, time.monotonic())
        self._news.set()

    def forget(self, name: str) -> None:
        """The Node is gone."""
        self._wanted.pop(name, None)
        self._troubles.pop(name, None)

    def trouble(self, name: str) -> str:
        """Why the Node cannot be written, as far as that has been said; else ""."""
        return self._troubles.get(name, "")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                now = time.monotonic()
                waiting = [w for w in self._wanted.values() if not w.writing]
                for wanted in [w for w in waiting if w.at <= now]:
                    wanted.writing = True
                    group.create_task(self._write(wanted))
                next_at = min((w.at for w in waiting if not w.writing), default=None)
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if next_at is None else max(0.0, next_at - now)):
                        await self._news.wait()

    async def _write(self, wanted: WantedLabel) -> None:
        name = wanted.node["metadata"]["name"]
        refusal = None
        async with self._slots:
            if self._wanted.get(name) is not wanted:
                return
            try:
                patch = {"metadata": {"labels": {MACHINE_NAME_LABEL: wanted.machine}}}
                await self._kube.merge_patch(node_path(name), patch)
            except KubeError as e:
                if e.status not in (403, 404):  # one that we may not label, or that has vanished
                    refusal = e
        if self._wanted.get(name) is not wanted:
            return  # another Node has the name, or the VM belongs to another machine
        if refusal is None:
            del self._wanted[name]
            self._written[wanted.uid] = wanted.machine
            if self._troubles.pop(name, None):
                await self._say(wanted.node, "")
            return
        wanted.refused += 1
        delay = min(BACK_OFF * 2 ** (wanted.refused - 1), LONGEST)
        wanted.at = time.monotonic() + max(delay, refusal.retry_after or 0.0)
        wanted.writing = False
        self._news.set()
        busy = refusal.status == 429
        if not busy and wanted.refused >= SAID_AFTER and name not in self._troubles:
            self._troubles[name] = refusal.message
            if not await self._say(wanted.node, refusal.message):
                self._troubles.pop(name, None)

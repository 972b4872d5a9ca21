"""A reference daemon for machine configs: what runs on each Node and obeys the protocol of annotations, as upstream's
machine-config-daemon does (pkg/daemon), with knobs for what goes wrong.

It speaks to an API server, simulated or real, and changes nothing but its Nodes. Where a test has no kubelets it is one
too: a Node that reboots is not Ready meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from apiserver.simulated import NODES, STRATEGIC, KubeTarget, Obj

from resources.machine_config.keys import SEED, Dialect

DONE, WORKING, DEGRADED = "done", "working", "degraded"


@dataclass
class Knobs:
    """How the daemon of one Node behaves; they may change while it lives."""

    degrades: set[str] = field(default_factory=set)
    """Configs that it cannot apply."""
    slow: float = 0.0
    """Seconds that applying a config takes."""
    reboots: float = 0.0
    """Seconds that its Node is not Ready while a config is applied; 0: it does not reboot."""
    silent: bool = False
    """It does nothing at all."""
    drains: bool = False
    """It asks for a drain before it changes anything, and for the end of the cordon after that."""


@dataclass
class Seen:
    """A Node as its daemon sees it."""

    uid: str
    annotations: dict[str, str]


class Daemon:
    """The daemon of one Node object; another one of that name has another daemon."""

    def __init__(self, kube: KubeTarget, name: str, uid: str, knobs: Knobs, first: str, keys: Dialect) -> None:
        self.kube, self.name, self.uid, self.knobs, self.first, self.keys = kube, name, uid, knobs, first, keys
        self.seen: dict[str, str] = {}
        """Its Node's annotations, as of the last event."""
        self.news = asyncio.Event()
        self.applied: list[str] = []
        """Configs in the order in which it has applied them."""

    def hears(self, annotations: dict[str, str]) -> None:
        self.seen = annotations
        self.news.set()

    async def run(self) -> None:
        await self._until(lambda: not self.knobs.silent)
        if self.keys.current not in self.seen:
            await self._write(current=self.first, desired=self.first, state=DONE)
        while True:
            await self._until(lambda: not self.knobs.silent and self._wanted() not in ("", self._current()))
            await self._change()

    async def _change(self) -> None:
        config = self._wanted()
        await self._write(state=WORKING)
        if self.knobs.drains:
            await self._ask(f"drain-{config}")
        if config in self.knobs.degrades:
            await self._write(state=DEGRADED, reason=f"cannot apply {config}: the test says so")
            await self._until(lambda: self._wanted() != config or config not in self.knobs.degrades)
            if self._wanted() == self._current():  # rolled back: there is nothing to undo
                await self._finish(self._current())
            return
        await asyncio.sleep(self.knobs.slow)
        if self.knobs.reboots:
            await self._ready(False)
            await asyncio.sleep(self.knobs.reboots)
            await self._ready(True)
        self.applied.append(config)
        await self._write(current=config)
        if self._wanted() == config:  # else it goes straight on to the newest, and stays drained
            await self._finish(config)

    async def _finish(self, config: str) -> None:
        if self.knobs.drains:
            await self._ask(f"uncordon-{config}")
        await self._write(state=DONE, reason=None)

    async def _ask(self, request: str) -> None:
        if self.seen.get(self.keys.last_drain) != request:
            await self._write(desired_drain=request)
        await self._until(lambda: self.seen.get(self.keys.last_drain) == request)

    # -- the Node

    def _wanted(self) -> str:
        return self.seen.get(self.keys.desired, "")

    def _current(self) -> str:
        return self.seen.get(self.keys.current, "")

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()

    async def _write(self, **fields: str | None) -> None:
        """Writes annotations; it has heard of them when this returns."""
        annotations = {getattr(self.keys, name): value for name, value in fields.items()}
        answer = await self.kube.patch(f"{NODES}/{self.name}", {"metadata": {"annotations": annotations}})
        self.seen = answer["metadata"].get("annotations") or {}

    async def _ready(self, ready: bool) -> None:
        conditions = [{"type": "Ready", "status": str(ready), "reason": "KubeletReady" if ready else "Rebooting"}]
        await self.kube.patch(f"{NODES}/{self.name}/status", {"status": {"conditions": conditions}}, STRATEGIC)


class Daemons:
    """The daemons of all Nodes of an API server."""

    def __init__(self, kube: KubeTarget, first: str, keys: Dialect = SEED) -> None:
        self.kube, self.first, self.keys = kube, first, keys
        self.knobs: dict[str, Knobs] = {}
        """Knobs by Node; `usual` for the others."""
        self.usual = Knobs()
        self.of: dict[str, Daemon] = {}
        """Daemons by the Node's uid."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.failed: list[BaseException] = []

    def knob(self, *nodes: str, **fields: Any) -> None:
        """Turns knobs of these Nodes, and wakes their daemons."""
        for node in nodes:
            knobs = self.knobs.setdefault(node, Knobs(**vars(self.usual)))
            for name, value in fields.items():
                setattr(knobs, name, value)
        for daemon in self.of.values():
            if daemon.name in nodes:
                daemon.knobs = self.knobs[daemon.name]
                daemon.news.set()

    def named(self, node: str) -> Daemon:
        return next(d for d in reversed(list(self.of.values())) if d.name == node)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, AssertionError):
                await self._follow()
            await asyncio.sleep(0.1)

    async def _follow(self) -> None:
        found = await self.kube.get(NODES)
        for node in found["items"]:
            self._hear(node)
        there = {n["metadata"]["uid"] for n in found["items"]}
        for uid in self._tasks.keys() - there:
            self._end(uid)
        version = found["metadata"]["resourceVersion"]
        async for event in self.kube.watch(NODES, resourceVersion=version):
            if event["type"] == "ERROR":
                return
            if event["type"] == "DELETED":
                self._end(event["object"]["metadata"]["uid"])
            else:
                self._hear(event["object"])

    def _hear(self, node: Obj) -> None:
        metadata = node["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        if uid not in self.of:
            knobs = self.knobs.get(name, self.usual)
            self.of[uid] = Daemon(self.kube, name, uid, knobs, self.first, self.keys)
            self.of[uid].hears(metadata.get("annotations") or {})
            self._tasks[uid] = asyncio.create_task(self._live(self.of[uid]))
        else:
            self.of[uid].hears(metadata.get("annotations") or {})

    async def _live(self, daemon: Daemon) -> None:
        """A daemon that meets an error begins again where its Node's annotations say it was."""
        while True:
            try:
                await daemon.run()
            except (aiohttp.ClientError, TimeoutError, AssertionError):
                await asyncio.sleep(0.2)
            except Exception as e:
                self.failed.append(e)
                raise

    def _end(self, uid: str) -> None:
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


@contextlib.asynccontextmanager
async def daemons(kube: KubeTarget, first: str, keys: Dialect = SEED) -> AsyncIterator[Daemons]:
    """Daemons that run while the context lasts. `first`: the config that each Node has been installed with."""
    running = Daemons(kube, first, keys)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await running.close()
    assert running.failed == []


# -- I13 --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """One Node after one event of the API server."""

    ready: bool
    unschedulable: bool
    current: str
    desired: str
    state: str

    @classmethod
    def of(cls, node: Obj, keys: Dialect) -> Moment:
        annotations = node["metadata"].get("annotations") or {}
        conditions = {c["type"]: c["status"] for c in (node.get("status") or {}).get("conditions") or ()}
        return cls(
            ready=conditions.get("Ready") == "True",
            unschedulable=bool((node.get("spec") or {}).get("unschedulable")),
            current=annotations.get(keys.current, ""),
            desired=annotations.get(keys.desired, ""),
            state=annotations.get(keys.state, "").lower(),
        )

    @property
    def failing(self) -> bool:
        return self.current != self.desired and self.state in (DEGRADED, "unreconcilable")

    @property
    def unavailable(self) -> bool:
        """As upstream counts (openshift.md §5.2): not able to take work, or neither done nor failing."""
        done = self.current == self.desired != "" and self.state == DONE
        return not self.ready or self.unschedulable or not (done or self.failing)


@dataclass
class Breach:
    version: str
    node: str
    unavailable: list[str]
    allowed: int


class Referee:
    """Watches every event of the API server's log of Nodes, and judges each that gives a Node another config (I13):
    with it, no more of its pool's Nodes are unavailable than are allowed at that moment.

    What somebody else has made unavailable is no breach on its own, but it leaves less room: nobody may be targeted
    where the room is spent. A Node that was unavailable before it was targeted takes no further room.
    """

    def __init__(self, kube: KubeTarget, allowed: Callable[[str, int], int], keys: Dialect = SEED) -> None:
        """`allowed`: of a pool (by the Node's label `pool`) with so many Nodes."""
        self.kube, self.allowed, self.keys = kube, allowed, keys
        self.nodes: dict[str, tuple[str, Moment]] = {}
        """Name to pool, and how it is."""
        self.breaches: list[Breach] = []
        self.targeted = 0
        self.most: dict[str, int] = {}
        """The most of each pool that were unavailable at once when a Node was targeted."""
        self.version = ""
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        found = await self.kube.get(NODES)
        for node in found["items"]:
            self._take(node)
        self.version = found["metadata"]["resourceVersion"]
        self.caught_up.set()
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async for event in self.kube.watch(NODES, resourceVersion=self.version):
                    assert event["type"] != "ERROR", event  # nothing may be missed
                    self._judge(event["type"], event["object"])
                    self.version = event["object"]["metadata"]["resourceVersion"]
            await asyncio.sleep(0.05)

    def _take(self, node: Obj) -> Moment:
        metadata = node["metadata"]
        moment = Moment.of(node, self.keys)
        self.nodes[metadata["name"]] = ((metadata.get("labels") or {}).get("pool", ""), moment)
        return moment

    def _judge(self, kind: str, node: Obj) -> None:
        name = node["metadata"]["name"]
        if kind == "DELETED":
            self.nodes.pop(name, None)
            return
        pool, before = self.nodes.get(name, ("", None))
        now = self._take(node)
        if before is None or now.desired == before.desired or before.desired == "":
            return
        self.targeted += 1
        pool = self.nodes[name][0]
        mine = {n: m for n, (p, m) in self.nodes.items() if p == pool}
        unavailable = sorted(n for n, m in mine.items() if m.unavailable)
        self.most[pool] = max(self.most.get(pool, 0), len(unavailable))
        allowed = self.allowed(pool, len(mine))
        if len(unavailable) > allowed and not before.unavailable:
            version = node["metadata"]["resourceVersion"]
            self.breaches.append(Breach(version, name, unavailable, allowed))

    def fair(self) -> None:
        assert self.breaches == [], f"I13: {self.breaches}"
        assert self.targeted


@contextlib.asynccontextmanager
async def referee(kube: KubeTarget, allowed: Callable[[str, int], int], keys: Dialect = SEED) -> AsyncIterator[Referee]:
    """A referee for as long as the context lasts, and no breach at its end."""
    judge = Referee(kube, allowed, keys)
    task = asyncio.create_task(judge.run())
    await judge.caught_up.wait()
    try:
        yield judge
        await asyncio.sleep(0.2)  # what is on its way
        assert not task.done(), task
        judge.fair()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def nodes(kube: KubeTarget, names: Iterable[str], pool: str, **metadata: Any) -> None:
    """Nodes of a pool that are Ready, without kubelets."""
    for name in names:
        labels = {"pool": pool, f"node-role.kubernetes.io/{pool}": ""}
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
        await kube.create(NODES, {"metadata": {"name": name, "labels": labels, **metadata}, "status": status})

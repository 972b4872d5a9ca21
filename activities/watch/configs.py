"""The watch of one cluster's machine configs: what the API server tells of four kinds and of Nodes becomes signals that
say "look again", for changes only.

Whoever is told reads afresh, so the signals carry no facts. What was told last are digests, by kind: its argument, its
heartbeat and its result. A change counts as told when its signals have been taken.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.base import Activities
from activities.boundary import last_progress, progress
from activities.clock import ServerClock
from activities.kube.client import Kube, Object
from activities.kube.looks import NODES
from activities.temporal.workflows import tell
from activities.watch.follow import Follow, run_for
from activities.watch.liveness import Liveness
from activities.watch.told import Position
from planners.machine_config.membership import refusal, surely_in_one
from resources.calls.machine_config import ConfigNews, ConfigsCursor, NodesNews, WatchConfigsInput
from resources.calls.watch import Cursor
from resources.journal import Note
from resources.machine_config.keys import (
    API,
    CONFIG_KINDS,
    DIALECTS,
    MACHINE_CONFIG_POOL,
    ConfigKind,
    Dialect,
)
from resources.machine_config.node import ConfigNode, config_node
from resources.machine_config.objects import MachineConfigPool
from resources.names import MACHINE_NAME_LABEL, config_pool_id
from resources.selectors import LabelSelector

GATHER = 0.5  # seconds in which changes are gathered into one signal: a Node that reboots changes many times
AGAIN = 10.0  # seconds until a workflow that takes no signals is told again
REFUSED = (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.RESOURCE_EXHAUSTED)
"""What the server says of a workflow that takes no signal: it is full (10,000 in one run), or too busy."""
FEW = 20
"""The most names in one signal."""
ASKING, STRAY = "!", "?"
"""In place of pools, in the mark of a Node that asks for a drain: that it does, and that it may belong to no pool, so
that the cluster's workflow is told."""
NODE = "nodes"
"""Beside the plurals of the kinds: a key of the cursor."""


class ConfigWatchActivities(Activities):
    role = "watch"

    @activity.defn
    async def watch_configs(self, input: WatchConfigsInput) -> ConfigsCursor:
        """Follows the machine configs and Nodes of a cluster for `input.duration`; it returns early when cancelled, and
        at worker shutdown.

        An API server that cannot be reached, or that does not know the kinds, is reported to the workflow, and tried
        again: it is not the activity's failure.
        """
        kube = await self.deps.clusters.get(input.cluster)
        dialect = DIALECTS[self.deps.machine_configs(input.cluster).annotations]
        watch = ConfigsWatch(kube, self.deps.client, input, dialect, last_progress())
        await run_for(input.duration, watch.run())
        return watch.cursor()


class ConfigsWatch:
    def __init__(
        self, kube: Kube, client: Client, input: WatchConfigsInput, dialect: Dialect, former: dict[str, Any]
    ) -> None:
        self.client = client
        self.cluster = input.cluster
        self.workflow_id = input.workflow_id
        self.dialect = dialect
        self.clock = ServerClock()
        self.epoch = int(self.clock.started.timestamp() * 1000)
        self.seq = 0
        handle = client.get_workflow_handle(input.workflow_id)
        self.liveness = Liveness(kube, handle, self.clock, self._begin_anew)
        self.troubles: dict[str, tuple[str, bool]] = {}
        """Why a list cannot be followed, by its key: one that is well again does not speak for the others."""
        told: dict[str, Any] = former.get("of", {})

        def start(key: str) -> Position:
            return Position(input.cursor.of.get(key, Cursor()), told.get(key, {}))

        self.kinds = {k.plural: KindFollower(self, kube, k, start(k.plural)) for k in CONFIG_KINDS}
        self.nodes = NodesFollower(self, kube, start(NODE))
        self.parts: list[ConfigFollower] = [*self.kinds.values(), self.nodes]
        self.pools: dict[str, NodeSelection] = {}
        """Whom each pool that there is selects."""
        self.pools_known = asyncio.Event()
        self.due = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in self.kinds.values():
                group.create_task(part.follow.run())
            group.create_task(self._follow_nodes())
            group.create_task(self._tell())
            group.create_task(self.liveness.probe())

    async def _follow_nodes(self) -> None:
        """Only once the pools are known: else nobody could be told of the Nodes of the first list."""
        await self.pools_known.wait()
        await self.nodes.follow.run()

    def cursor(self) -> ConfigsCursor:
        return ConfigsCursor(of={part.key: part.position.cursor() for part in self.parts})

    def beat(self) -> None:
        progress(
            message=f"{len(self.pools)} pools, {len(self.nodes.position.told)} nodes",
            of={part.key: part.position.details() for part in self.parts},
        )

    def _begin_anew(self) -> None:
        for part in self.parts:
            part.follow.begin_anew()

    async def say(self, key: str, trouble: str, refused: bool) -> None:
        if trouble:
            self.troubles[key] = (trouble, refused)
        else:
            self.troubles.pop(key, None)
        await self.liveness.tell(*next(iter(self.troubles.values()), ("", False)))

    async def note(self, reason: str, message: str) -> None:
        activity.logger.warning("%s: %s", reason, message)
        await tell(self.client, self.workflow_id, "note", Note(reason=reason, message=message))

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Tells what has gathered. It counts as told, and is behind the cursor, only when all have taken it."""
        while True:
            await self.due.wait()
            await asyncio.sleep(GATHER)
            self.due.clear()
            taken = [(part, part.take()) for part in self.parts]
            kinds = sorted(part.key for part, changes in taken if changes and part is not self.nodes)
            if not await self._signal(kinds, self._concerned(dict(taken))):
                for part, changes in taken:
                    part.give_back(changes)
                self.due.set()
                await asyncio.sleep(AGAIN)
                continue
            for part, changes in taken:
                part.told(changes)
            self.beat()

    def _concerned(self, taken: dict[ConfigFollower, dict[str, Sighting]]) -> dict[str, list[str]]:
        """The pools that are to look again, each with names of its Nodes that have changed. A pool that was made,
        changed or deleted concerns all others too: it may take Nodes from them, or leave some to them."""
        pools = taken[self.kinds[MACHINE_CONFIG_POOL.plural]]
        concerned: dict[str, list[str]] = {name: [] for name in (*pools, *self.pools)} if pools else {}
        if pools and self.nodes.anyone_asks:
            concerned[STRAY] = []
        for node, change in taken[self.nodes].items():
            for pool in change.pools - {ASKING}:
                concerned.setdefault(pool, []).append(node)
        return concerned

    def may_be_a_stray(self, node: ConfigNode, labels: dict[str, str]) -> bool:
        """Whether a Node may belong to no pool, as far as it can be told from here."""
        selecting = [name for name, of in self.pools.items() if of.has(labels)]
        perhaps = [name for name, of in self.pools.items() if of.may_have(labels)]
        return node.windows or not surely_in_one(selecting, perhaps)

    async def _signal(self, kinds: list[str], pools: dict[str, list[str]]) -> bool:
        """False where somebody takes no signals now. A pool without a workflow is no error: it is begun by the
        workflow of the cluster's machine configs, which learns of it here."""
        try:
            if kinds:
                news = ConfigNews(epoch=self.epoch, seq=self._next(), kinds=kinds, pools=sorted(self.pools))
                await tell(self.client, self.workflow_id, "configs_changed", news)
            for pool, nodes in sorted(pools.items()):
                about = NodesNews(epoch=self.epoch, seq=self._next(), nodes=sorted(nodes)[:FEW])
                if pool == STRAY:
                    await tell(self.client, self.workflow_id, "drains_asked", about)
                else:
                    await tell(self.client, config_pool_id(self.cluster, pool), "nodes_changed", about)
        except RPCError as e:
            if e.status not in REFUSED:
                raise
            activity.logger.warning("a workflow of the machine configs of %s takes no signals: %s", self.cluster, e)
            return False
        return True

    def _next(self) -> int:
        self.seq += 1
        return self.seq


class Sighting:
    """An object that has changed: what it is now, and which pools it concerns."""

    def __init__(self, mark: str | None, pools: Iterable[str] = ()) -> None:
        self.mark = mark
        """`<digest> <pool>,…`; None: it is gone."""
        self.pools = set(pools)


class ConfigFollower:
    """The objects of one list. It follows them, and gathers what has changed since it was told."""

    def __init__(self, watch: ConfigsWatch, kube: Kube, key: str, path: str, position: Position) -> None:
        self.watch = watch
        self.key = key
        self.position = position
        self.follow = Follow(kube, path, watch.liveness, self, position.resource_version)
        self.changes: dict[str, Sighting] = {}
        """What has changed and is not told yet, by name."""
        self.telling: dict[str, Sighting] = {}
        """What is being told."""
        self.unreadable: set[str] = set()
        """Uids of objects that nobody can make sense of."""

    # -- what the API server tells

    async def listed(self, objects: list[Object]) -> None:
        for found in objects:
            await self._see(found)
        there = {found["metadata"]["name"] for found in objects}
        for name in [n for n in {**self.position.told, **self.changes, **self.telling} if n not in there]:
            self._gone(name)

    async def changed(self, kind: str, found: Object) -> None:
        if kind == "DELETED":
            self._gone(found["metadata"]["name"])
        else:
            await self._see(found)

    def moved(self, resource_version: str) -> None:
        """A version counts when all before it has been told."""
        if not self.changes and not self.telling:
            self.position.resource_version = resource_version
            self.watch.beat()

    async def say(self, trouble: str = "", refused: bool = False) -> None:
        await self.watch.say(self.key, trouble, refused)

    async def _see(self, found: Object) -> None:
        name = found["metadata"]["name"]
        try:
            mark = self.mark(found)
        except (LookupError, TypeError, ValueError, AttributeError) as e:
            uid = found["metadata"].get("uid")
            if uid not in self.unreadable:
                self.unreadable.add(uid)
                await self.watch.note("ObjectUnreadable", f"{self.key}/{name} cannot be read: {type(e).__name__}: {e}")
            return
        if mark != self._last(name):
            self._change(name, mark)

    def mark(self, found: Object) -> str:
        """What a change of it changes. Raises what reading an object raises that is not as its schema has it."""
        raise NotImplementedError

    def _gone(self, name: str) -> None:
        if self._last(name) is not None:
            self._change(name, None)

    def _last(self, name: str) -> str | None:
        for of in (self.changes, self.telling):
            if name in of:
                return of[name].mark
        return self.position.told.get(name)

    def _change(self, name: str, mark: str | None) -> None:
        before = {*_pools(self._last(name)), *_pools(self.position.told.get(name))}
        former = self.changes.get(name)
        self.changes[name] = Sighting(mark, {*before, *_pools(mark), *(former.pools if former else ())})
        self.watch.due.set()

    # -- what is told

    def take(self) -> dict[str, Sighting]:
        self.telling, self.changes = self.changes, {}
        return self.telling

    def give_back(self, changes: dict[str, Sighting]) -> None:
        """They could not be told."""
        for name, change in changes.items():
            if name in self.changes:
                self.changes[name].pools |= change.pools
            else:
                self.changes[name] = change
        self.telling = {}

    def told(self, changes: dict[str, Sighting]) -> None:
        for name, change in changes.items():
            self.position.tell(name, change.mark)
        self.telling = {}
        self.moved(self.follow.resource_version)


class KindFollower(ConfigFollower):
    """The objects of one of the four kinds."""

    def __init__(self, watch: ConfigsWatch, kube: Kube, kind: ConfigKind, position: Position) -> None:
        super().__init__(watch, kube, kind.plural, f"/apis/{API}/{kind.plural}", position)
        self.kind = kind

    async def listed(self, objects: list[Object]) -> None:
        if self.kind is MACHINE_CONFIG_POOL:
            self.watch.pools = {p["metadata"]["name"]: NodeSelection.of(p) for p in objects}
            self.watch.pools_known.set()
        await super().listed(objects)

    async def changed(self, kind: str, found: Object) -> None:
        if self.kind is MACHINE_CONFIG_POOL:
            name = found["metadata"]["name"]
            self.watch.pools.pop(name, None)
            if kind != "DELETED":
                self.watch.pools[name] = NodeSelection.of(found)
        await super().changed(kind, found)

    def mark(self, found: Object) -> str:
        """Without the status, which is ours."""
        unread = {"managedFields", "resourceVersion", "generation", "selfLink"}
        metadata = {k: v for k, v in found["metadata"].items() if k not in unread}
        return _digest({**{k: v for k, v in found.items() if k != "status"}, "metadata": metadata})

    async def say(self, trouble: str = "", refused: bool = False) -> None:
        missing = trouble and not refused and self.follow.absent
        if missing:
            trouble = f"it does not know {self.kind.crd}: its CustomResourceDefinition is not installed (deploy/crds)"
        await super().say(trouble, refused or bool(missing))


class NodesFollower(ConfigFollower):
    def __init__(self, watch: ConfigsWatch, kube: Kube, position: Position) -> None:
        super().__init__(watch, kube, NODE, NODES, position)

    def mark(self, found: Object) -> str:
        """What decides about its config, and the pools that may have it. Numbers in the daemon's words may move with
        every report."""
        labels = found["metadata"].get("labels") or {}
        node = config_node(found, self.watch.dialect, labels)
        node = node._replace(reason=re.sub(r"[\d.]+", "", node.reason))
        pools = [name for name, selection in sorted(self.watch.pools.items()) if selection.may_have(labels)]
        if node.asks[0]:
            pools += [ASKING, *([STRAY] if self.watch.may_be_a_stray(node, labels) else [])]
        return f"{_digest(node)} {','.join(pools)}"

    @property
    def anyone_asks(self) -> bool:
        """Whether a Node asks for a drain: a pool that was made or has gone may leave it without one."""
        return any(ASKING in _pools(mark) for mark in self.position.told.values())


class NodeSelection:
    """Which Nodes a pool may have, as far as their labels tell."""

    def __init__(self, selector: LabelSelector | None, refused: bool = False) -> None:
        self.selector = selector
        """None: it selects machines, or cannot be read."""
        self.refused = refused
        """Whether its selectors are refused, so that it has no Nodes."""

    @classmethod
    def of(cls, pool: Object) -> NodeSelection:
        found = (pool.get("spec") or {}).get("nodeSelector")
        try:
            read = None if found is None else LabelSelector.model_validate(found)
            return cls(read, bool(refusal(MachineConfigPool.of_dict(pool))))
        except ValueError:
            return cls(None)

    def has(self, labels: dict[str, str]) -> bool:
        """Whether it selects a Node with these labels, whatever its machine."""
        return self.selector is not None and not self.refused and self.selector.matches(labels)

    def may_have(self, labels: dict[str, str]) -> bool:
        return MACHINE_NAME_LABEL in labels if self.selector is None else self.selector.matches(labels)


def _pools(mark: str | None) -> list[str]:
    return [pool for pool in (mark or "").partition(" ")[2].split(",") if pool]


def _digest(of: Any) -> str:
    """8 bytes in base64."""
    plain = json.dumps(of, sort_keys=True, separators=(",", ":"), default=str)
    return base64.b64encode(hashlib.sha256(plain.encode()).digest()[:8]).decode()

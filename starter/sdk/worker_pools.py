"""Worker pools as HostlerClient sees them: the pools of their zones, which are found by their labels. No workflow of
its own keeps a worker pool.

for found in await hostler.worker_pools.list():
    print(found.name, [zone.zone for zone in found.zones])
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from pydantic import ValidationError

from planners.worker_pool.expand import pool_name
from planners.worker_pool.shares import evenly
from resources.machine_class.state import ClassState
from resources.names import CLUSTER_ANNOTATION, WORKER_POOL_ANNOTATION, WORKER_POOL_LABEL, ZONE_LABEL
from resources.pool.state import PoolState
from resources.worker_pool.manifest import WorkerPool
from starter.sdk import parallel
from starter.sdk.classes import Classes
from starter.sdk.errors import NotFound, Refused
from starter.sdk.pools.results import PoolListed
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Json, Sent
from starter.sdk.spelling import did_you_mean


@dataclass(frozen=True)
class ZoneListed:
    """A zone's pool in a list."""

    zone: str
    pool: PoolListed


@dataclass(frozen=True)
class WorkerPoolListed:
    name: str
    cluster: str
    zones: tuple[ZoneListed, ...]

    def total(self, number: str) -> int | None:
        """A number of the zones' summaries, in all zones together; None where a zone does not answer."""
        summaries = [zone.pool.summary for zone in self.zones]
        return None if None in summaries else sum(getattr(s, number) for s in summaries)


@dataclass(frozen=True)
class ZoneFound:
    """A zone's pool as it is; without a worker, as it was asked for."""

    zone: str
    state: PoolState

    @property
    def name(self) -> str:
        """The name of the pool."""
        return self.state.name


@dataclass(frozen=True)
class WorkerPoolFound:
    name: str
    cluster: str
    zones: tuple[ZoneFound, ...] = ()
    classes: tuple[ClassState, ...] = ()
    """Its classes, including those of former revisions."""

    @property
    def manifest(self) -> WorkerPool | None:
        """The worker pool as it was applied last; None where no zone has it recorded. A zone that goes has it as it was
        before."""
        zones = sorted(self.zones, key=lambda zone: zone.state.deleted)
        return next((found for zone in zones if (found := recorded(zone.state)) is not None), None)

    @property
    def unused(self) -> tuple[ClassState, ...]:
        """Classes of former revisions that nobody uses any longer."""
        wanted = {zone.state.spec.template.spec.class_.name for zone in self.zones}
        return tuple(c for c in self.classes if not c.users and not c.deleted and c.name not in wanted)


class WorkerPools:
    """`HostlerClient.worker_pools`. Where `cluster` is not given, it is the client's own; `HostlerClient.apply` takes a
    worker pool's manifest."""

    def __init__(self, pools: Pools, classes: Classes) -> None:
        self.pools = pools
        self._classes = classes

    async def list(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[WorkerPoolListed]:
        """Worker pools that exist, by cluster and name. From visibility, about a second behind."""
        listed = await self.pools.list(cluster=cluster, all_clusters=all_clusters)
        marks = await parallel.each(partial(self._mark, pool) for pool in listed)
        found: dict[tuple[str, str], list[ZoneListed]] = defaultdict(builtins.list)
        for pool, (name, zone) in zip(listed, marks, strict=True):
            if name:
                found[pool.cluster, name].append(ZoneListed(zone, pool))
        return [WorkerPoolListed(name, where, tuple(zones)) for (where, name), zones in sorted(found.items())]

    async def find(self, name: str, zones: Iterable[str] = (), *, cluster: str | None = None) -> WorkerPoolFound:
        """What there is of a worker pool, which may be nothing. `zones`: those that are looked for by name, for
        visibility is behind; so are those that any of its pools has recorded."""
        where = self.pools.connection.where(cluster)
        listed = [w for w in await self.list(cluster=where) if w.name == name]
        names = {pool_name(name, zone) for zone in zones} | {z.pool.name for w in listed for z in w.zones}
        found = await self._states(names, name, where)
        recordings = [r for state in found.values() if (r := recorded(state)) is not None]
        more = {pool_name(name, zone) for r in recordings for zone in r.spec.zones or [""]}
        found |= await self._states(more - names, name, where)
        parts = sorted(found.values(), key=lambda state: state.name)
        classes = [s.state for s in await self._classes.list(cluster=where) if s.state is not None]
        mine = tuple(c for c in classes if c.labels.get(WORKER_POOL_LABEL) == name)
        return WorkerPoolFound(name, where, tuple(ZoneFound(s.labels.get(ZONE_LABEL, ""), s) for s in parts), mine)

    async def get(self, name: str, *, cluster: str | None = None) -> WorkerPoolFound:
        """The worker pool. Raises NotFound, with the names that exist."""
        found = await self.find(name, cluster=cluster)
        if not found.zones:
            known = [w.name for w in await self.list(cluster=cluster)]
            raise NotFound(
                f"worker pool {name!r} of cluster {found.cluster!r} is not known: `hostler get workerpools --cluster "
                f"{found.cluster}` lists those that are{did_you_mean(name, known)}"
            )
        return found

    async def shares(
        self, name: str, replicas: int, *, current: int | None = None, cluster: str | None = None
    ) -> builtins.list[tuple[str, int]]:
        """How many machines the pool of each zone has when the worker pool is to have so many: evenly, the first zones
        first. `current`: only if this is the number now. Raises NotFound, and Refused beyond minimum and maximum."""
        found = await self.get(name, cluster=cluster)
        manifest, again = found.manifest, f"worker pool {name}: apply its manifest again (hostler apply -f FILE)"
        if manifest is None:
            raise Refused(f"{again}: none of its zones has recorded it")
        least, most = manifest.spec.minimum, manifest.spec.maximum
        if not least <= replicas <= most:
            raise Refused(
                f"worker pool {name}: {replicas} is not within its minimum {least} and maximum {most}: change these in "
                f"its manifest and apply it; `hostler get workerpool {name} -o yaml --cluster {found.cluster}` prints "
                "it"
            )
        there = {zone.name: zone.state.spec.replicas for zone in found.zones if not zone.state.deleted}
        pools = [pool_name(name, zone) for zone in manifest.spec.zones or [""]]
        if missing := [pool for pool in pools if pool not in there]:
            raise Refused(f"{again}: its pool {missing[0]} is not there, or is being deleted")
        if current is not None and current != (now := sum(there[pool] for pool in pools)):
            raise Refused(f"worker pool {name} has {now} replicas in all zones, not {current}: nothing was changed")
        return builtins.list(zip(pools, evenly(replicas, len(pools)), strict=True))

    async def delete(
        self, name: str, *, force: bool = False, reason: str = "", cluster: str | None = None
    ) -> builtins.list[tuple[str, Sent]]:
        """Asks for the end of each zone's pool, with all its machines, and of the classes that nobody uses; each answer
        by what it is of. A class that machines still have goes when the worker pool is deleted again. Raises
        NotFound."""
        found = await self.find(name, cluster=cluster)
        if not found.zones and not found.classes:
            await self.get(name, cluster=cluster)
        told = [
            (
                f"pool {zone.name}",
                await self.pools.delete(zone.name, force=force, reason=reason, cluster=found.cluster),
            )
            for zone in found.zones
        ]
        classes = found.unused if found.zones else [c for c in found.classes if not c.users]
        return told + [
            (f"class {c.name}", await self._classes.delete(c.name, reason=reason, cluster=found.cluster))
            for c in classes
        ]

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _mark(self, listed: PoolListed) -> tuple[str, str]:
        """Worker pool and zone; "" for a pool that stands alone."""
        if listed.summary is not None:
            return listed.summary.worker_pool, listed.summary.zone
        state = await self.pools.current(listed.name, cluster=listed.cluster)
        return _labels(state) if state is not None else ("", "")

    async def _states(self, pools: Iterable[str], name: str, cluster: str) -> dict[str, PoolState]:
        """The pools that run, by name. Raises Refused for one that is not the worker pool's."""
        found = await parallel.each(partial(self.pools.current, pool, cluster=cluster) for pool in sorted(pools))
        states = {state.name: state for state in found if state is not None}
        if foreign := sorted(n for n, state in states.items() if _labels(state)[0] != name):
            raise Refused(
                f"pool {foreign[0]} is there and is not of worker pool {name} (no label {WORKER_POOL_LABEL}: {name}): "
                "delete it, set the label, or give the worker pool another name"
            )
        return states


def _labels(state: PoolState) -> tuple[str, str]:
    return state.labels.get(WORKER_POOL_LABEL, ""), state.labels.get(ZONE_LABEL, "")


def recorded(state: PoolState) -> WorkerPool | None:
    """The worker pool as it was when this pool was applied."""
    try:
        return WorkerPool.model_validate_json(state.annotations.get(WORKER_POOL_ANNOTATION, ""))
    except ValidationError:
        return None


def worker_pool_manifest(found: WorkerPoolFound) -> Json | None:
    """What `hostler get -o yaml` prints and `hostler apply` takes back."""
    manifest = found.manifest
    if manifest is None:
        return None
    meta = manifest.metadata
    named = meta.model_copy(update={"annotations": {**meta.annotations, CLUSTER_ANNOTATION: found.cluster}})
    return {
        "apiVersion": manifest.api_version,
        "kind": manifest.kind,
        "metadata": named.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "spec": manifest.spec.model_dump(mode="json", by_alias=True, exclude_unset=True),
    }

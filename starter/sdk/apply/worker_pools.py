"""The worker pools of one run of `apply`: expanded into pools and classes, and what goes with a zone that is taken
out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ValidationError

from planners.worker_pool.expand import Expansion, ZonePlan, expand, plug_of, record
from resources.base import explained
from resources.clouds import UnknownProvider
from resources.clouds.workers import Unfit
from resources.effects import Effect, effects
from resources.manifests import Infrastructure, Loaded, complaints
from resources.worker_pool.manifest import WorkerPool, WorkerPoolSpec
from starter.sdk.entity import EntityKey
from starter.sdk.errors import Refused
from starter.sdk.results import Verb
from starter.sdk.spelling import counted, did_you_mean
from starter.sdk.worker_pools import WorkerPoolFound, WorkerPools, ZoneFound

WORKER_POOL_KIND = "workerpool"


@dataclass(frozen=True)
class WorkerPoolPlan:
    """A worker pool that a manifest of the run describes."""

    name: str
    cluster: str
    manifest: WorkerPool
    """With the infrastructure in it."""
    found: WorkerPoolFound
    """What there is of it."""
    expansion: Expansion

    @property
    def former(self) -> WorkerPool | None:
        """The manifest as it was applied last."""
        return self.found.manifest

    @property
    def removed(self) -> tuple[ZoneFound, ...]:
        """Pools of zones that it no longer has."""
        names = {zone.name for zone in self.expansion.zones}
        return tuple(zone for zone in self.found.zones if zone.name not in names and not zone.state.deleted)

    @property
    def unused(self) -> list[str]:
        """Classes of former revisions that nobody uses any longer, by name."""
        made = {zone.machine_class.metadata.name for zone in self.expansion.zones}
        return [c.name for c in self.found.unused if c.name not in made]

    def has(self, zone: ZonePlan) -> ZoneFound | None:
        """The zone's pool as it is; None for a new zone, also where a former one of it still goes."""
        return next((f for f in self.found.zones if f.name == zone.name and not f.state.deleted), None)

    @property
    def rolls(self) -> bool:
        """Whether any zone gets another class."""
        pairs = [(self.has(zone), zone.machine_class.metadata.name) for zone in self.expansion.zones]
        return any(has and has.state.spec.template.spec.class_.name != name for has, name in pairs)

    @property
    def verb(self) -> Verb:
        if not self.found.zones:
            return Verb.CREATED
        same = self.former is not None and record(self.former) == record(self.manifest)
        return Verb.UNCHANGED if same and not self.removed else Verb.CONFIGURED


@dataclass
class WorkerPoolPlanner:
    """Reads worker pools and expands their manifests."""

    shelf: WorkerPools

    async def plan(self, key: EntityKey, manifest: WorkerPool) -> WorkerPoolPlan:
        """Plans a worker pool, whose infrastructure is in it. Raises Refused in its name."""
        cluster, name = key
        try:
            found = await self.shelf.find(name, manifest.spec.zones or [""], cluster=cluster)
            now = {zone.zone: zone.state.spec.replicas for zone in found.zones if not zone.state.deleted}
            expansion = expand(manifest, now)
        except ValidationError as e:
            raise Refused(f"workerpool {name}: {explained(e)}") from None
        except UnknownProvider as e:
            raise Refused(f"workerpool {name}: {e}") from None
        except Unfit as e:
            raise Refused(f"workerpool {name}: spec.{e}") from None
        except (Refused, ValueError) as e:
            raise Refused(f"workerpool {name}: {e}") from None
        made = [m for zone in expansion.zones for m in (zone.machine_class, zone.deployment)]
        if wrong := [f"workerpool {name}: {line}" for m in made for line in complaints(m)]:
            raise Refused("\n".join(wrong))
        return WorkerPoolPlan(name, cluster, manifest, found, expansion)


def resolved(loaded: Loaded) -> list[WorkerPool]:
    """The worker pools, each with its infrastructure in it. Raises Refused for every one whose Infrastructure is in
    none of the files, or is another cloud's."""
    known = {i.metadata.name: i for i in loaded.infrastructures}
    wrong: list[str] = []
    found = []
    for pool in loaded.worker_pools:
        try:
            found.append(_resolved(pool, known))
        except Refused as e:
            wrong.append(str(e))
    if wrong:
        raise Refused("\n".join(wrong))
    return found


def _resolved(pool: WorkerPool, known: Mapping[str, Infrastructure]) -> WorkerPool:
    spec, ref = pool.spec, pool.spec.infrastructure_ref
    if spec.infrastructure is not None or ref is None:
        return pool
    where = f"workerpool {pool.metadata.name}: spec.infrastructureRef"
    if ref.name not in known:
        raise Refused(
            f"{where}: no Infrastructure {ref.name!r} is in the files{did_you_mean(ref.name, known)}: add it (-f), or "
            "write it under spec.infrastructure"
        )
    of = known[ref.name]
    if of.provider != spec.provider:
        raise Refused(f"{where}: Infrastructure {ref.name} is of {of.provider}, the worker pool of {spec.provider}")
    given = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"infrastructure_ref"})
    resolved = WorkerPoolSpec.model_validate({**given, "infrastructure": of.spec})
    return pool.model_copy(update={"spec": resolved})


def expanded(loaded: Loaded, plans: Sequence[WorkerPoolPlan]) -> Loaded:
    """All manifests, with what the worker pools are made of."""
    zones = [zone for plan in plans for zone in plan.expansion.zones]
    return replace(
        loaded,
        classes=[*loaded.classes, *(zone.machine_class for zone in zones)],
        pools=[*loaded.pools, *(zone.deployment for zone in zones)],
    )


# -- the effect of each field ------------------------------------------------------------------------------------------


def field_effects(provider: str) -> dict[str, Effect]:
    """The effect of every field of a worker pool's spec on this cloud, by path; items of lists are written `[]`."""
    plug = plug_of(provider)
    parts: dict[str, type[BaseModel]] = {"providerConfig": plug.config, "infrastructure": plug.infrastructure}
    own = dict(effects(WorkerPoolSpec))
    below = [(f"{name}.{path}", e) for name, model in parts.items() for path, e in effects(model)]
    return {path: effect for path, effect in own.items() if path not in parts} | dict(below)


def effect_of(path: str, known: Mapping[str, Effect]) -> Effect:
    """The effect of a change at a path as `changes` writes it: of the field there, or of the one above it; of several
    below it the strongest."""
    plain = re.sub(r"\[\d+\]", "[]", path)
    above = [field for field in known if f"{plain}.".startswith((f"{field}.", f"{field}["))]
    if above:
        return known[max(above, key=len)]
    below = {effect for field, effect in known.items() if field.startswith((f"{plain}.", f"{plain}["))}
    order = (Effect.HASH, Effect.POST_START, Effect.HOT, Effect.POOL)
    return next((effect for effect in order if effect in below), Effect.NONE)


def leaving(plan: WorkerPoolPlan, zone: ZoneFound) -> str:
    """What goes with a zone that was taken out."""
    count = len(zone.state.members)
    return f"zone {zone.zone or zone.name} is taken out of worker pool {plan.name}, with {counted(count)}"

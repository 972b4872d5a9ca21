"""What `apply` would do to a worker pool as a whole: its own fields with what each does, and what happens in each
zone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from planners.worker_pool.expand import ZonePlan
from resources.effects import Effect
from resources.fleet.rehearsal import Rehearsal
from resources.pool.intents import PoolQuestion
from starter.sdk import parallel
from starter.sdk.apply.pools import PoolPlan
from starter.sdk.apply.steps import ApplyPlan
from starter.sdk.apply.worker_pools import WorkerPoolPlan, effect_of, field_effects, leaving
from starter.sdk.errors import HostlerError
from starter.sdk.fleet.rehearsal import deletes
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Verb
from starter.sdk.spelling import counted


def spec_of(plan: WorkerPoolPlan) -> tuple[Any, Any]:
    """The spec as it is and as it will be."""
    former = plan.former
    before = former.spec.model_dump(mode="json", by_alias=True) if former is not None else None
    return before, plan.manifest.spec.model_dump(mode="json", by_alias=True)


def effect(plan: WorkerPoolPlan, path: str, known: Mapping[str, Effect] | None = None) -> Effect:
    """What a change of a field does: its own effect; but one that would roll does nothing where no zone gets another
    class, as with an image that no worker asks for."""
    found = effect_of(path, known or field_effects(plan.manifest.spec.provider))
    rolls = found in (Effect.HASH, Effect.POST_START)
    return Effect.NONE if rolls and not plan.rolls else found


async def zone_lines(plan: WorkerPoolPlan, pools: Pools, run: ApplyPlan) -> list[str]:
    """A line for each zone that something happens in, and how many machines it is in all. `run`: all that is applied
    together."""
    mine = (step.pool for step in run.pools if step.pool is not None and step.verb is not Verb.UNCHANGED)
    planned = {of.name: of for of in mine if of.cluster == plan.cluster}
    calls = [partial(_zone, plan, zone, pools, planned.get(zone.name)) for zone in plan.expansion.zones]
    found = await parallel.each(calls)
    gone = await parallel.each(partial(_gone, plan, zone.name, pools) for zone in plan.removed)
    lines = [line for line, _, _ in found if line] + gone
    rolls, hot = sum(n for _, n, _ in found), sum(n for _, _, n in found)
    if len(lines) > 1 and (rolls or hot):
        parts = [f"{counted(rolls)} replaced"] if rolls else []
        parts += [f"{counted(hot)} updated in place"] if hot else []
        lines.append(f"in all zones: {', '.join(parts)}")
    return lines


def _label(zone: str, pool: str) -> str:
    return f"zone {zone}" if zone else f"pool {pool}"


async def _zone(plan: WorkerPoolPlan, zone: ZonePlan, pools: Pools, planned: PoolPlan | None) -> tuple[str, int, int]:
    """The line, and how many machines are replaced and updated in place."""
    has, label, wanted = plan.has(zone), _label(zone.zone, zone.name), zone.replicas
    bounds = f"of {zone.minimum} to {zone.maximum}"
    if has is None:
        return f"{label}: new, pool {zone.name} with {counted(wanted)} {bounds}", 0, 0
    parts = []
    if has.state.spec.replicas != wanted:
        parts.append(f"replicas {has.state.spec.replicas} -> {wanted}, {bounds}")
    rolls = hot = 0
    if planned is not None:
        try:
            found = await pools.rehearse(zone.name, planned.question, cluster=plan.cluster)
        except HostlerError as e:
            return f"{label}: what happens there is not known: {e}", 0, 0
        rolls, hot = found.rolls, _hot(found, planned)
        parts += [f"rolls {counted(rolls)}"] if rolls else []
        parts += [f"hot update of {counted(hot)}"] if hot else []
        parts += deletes(found)
        parts += [found.refused] if found.refused else []
    return (f"{label}: {'; '.join(parts)}" if parts else ""), rolls, hot


def _hot(found: Rehearsal, planned: PoolPlan) -> int:
    """Machines that are changed and stay: by the pool's own template, or by its class."""
    if found.rolls or planned.state is None or not planned.of.new_content:
        return found.hot
    return sum(1 for member in planned.state.members.values() if not member.leaving)


async def _gone(plan: WorkerPoolPlan, pool: str, pools: Pools) -> str:
    (zone,) = (z for z in plan.removed if z.name == pool)
    line = leaving(plan, zone)
    try:
        found = await pools.rehearse(pool, PoolQuestion(delete=True), cluster=plan.cluster)
    except HostlerError:
        return line
    return "; ".join([line, *deletes(found)])

"""Worker pools on the command line: hostler get|describe|delete workerpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from starter.commands import pools
from starter.commands.kinds import WORKER_POOL
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import Json, Sent
    from starter.sdk.worker_pools import WorkerPoolFound, WorkerPoolListed, ZoneFound

UNWELL = ("Stopped", "Parked", "Deleting", "Rolling", "Paused", "Scaling", "Hibernated")
"""Phases of pools, the most urgent first: a worker pool is as its worst zone."""

# -- get --------------------------------------------------------------------------------------------------------------


def phase_of(of: WorkerPoolListed) -> str:
    """The phase of the zone that most needs a look."""
    phases = [zone.pool.phase for zone in of.zones]
    return next((phase for phase in UNWELL if phase in phases), phases[0] if phases else "")


def _total(number: str) -> Callable[[WorkerPoolListed], int | None]:
    return lambda of: of.total(number)


COLUMNS: tuple[Column[WorkerPoolListed], ...] = (
    Column("NAME", lambda w: w.name),
    Column("ZONES", lambda w: len(w.zones)),
    Column("REPLICAS", _total("replicas")),
    Column("UPDATED", _total("updated"), drop=3),
    Column("AVAILABLE", _total("available")),
    Column("UNHEALTHY", _total("unhealthy"), drop=2),
    Column("PHASE", phase_of, style=lambda w: phase_style(phase_of(w))),
    Column("REASON", lambda w: next((z.pool.reason for z in w.zones if z.pool.phase == phase_of(w)), ""), drop=1),
    Column(AGE, lambda w: min((zone.pool.created for zone in w.zones), default=None), drop=4),
    Column("PRESERVED", _total("preserved"), wide=True),
)


def listing(client: HostlerClient, names: Sequence[str], all_clusters: bool) -> Listing[WorkerPoolListed]:
    async def found() -> list[WorkerPoolListed]:
        every = await client.worker_pools.list(all_clusters=all_clusters)
        if not names:
            return every
        return await those_named(names, partial(_one, client, every), missing)

    missing: list[str] = []
    where = "any cluster" if all_clusters else f"cluster {client.cluster}"
    return Listing(
        listed(COLUMNS, all_clusters),
        find=found,
        key=key_of(WORKER_POOL, all_clusters),
        objects=partial(_manifests, client),
        nothing=f"No worker pools found in {where}.",
        missing=missing,
    )


async def _one(client: HostlerClient, every: Sequence[WorkerPoolListed], name: str) -> WorkerPoolListed:
    for one in every:
        if one.name == name:
            return one
    await client.worker_pools.get(name)  # raises NotFound with what is known
    return next(w for w in await client.worker_pools.list() if w.name == name)


async def _manifests(client: HostlerClient, found: Sequence[WorkerPoolListed]) -> list[Json | None]:
    from starter.sdk import parallel
    from starter.sdk.worker_pools import worker_pool_manifest

    every = await parallel.each(partial(client.worker_pools.find, w.name, cluster=w.cluster) for w in found)
    made = [worker_pool_manifest(one) for one in every]
    return [m and m | {"status": _status(of)} for m, of in zip(made, found, strict=True)]


def _status(of: WorkerPoolListed) -> Json:
    """Its phase, and the numbers of all zones together, by the names that they have in a pool."""
    numbers = {
        f"{n}Replicas": total for n in ("updated", "available", "unhealthy") if (total := of.total(n)) is not None
    }
    return {"phase": phase_of(of), **numbers}


# -- describe ---------------------------------------------------------------------------------------------------------


async def page(client: HostlerClient, name: str, now: datetime) -> list[str]:
    """Everything about a worker pool, zone by zone."""
    from starter.output import Table, age, fields

    found = await client.worker_pools.get(name)
    listed = next((w for w in await client.worker_pools.list() if w.name == name), None)
    manifest, numbers = found.manifest, {z.pool.name: z.pool for z in listed.zones} if listed else {}
    pairs = [("Name", name), ("Cluster", found.cluster)]
    if manifest is not None:
        spec = manifest.spec
        image = spec.machine.image
        pairs += [
            ("Provider", spec.provider),
            ("Machine", f"{spec.machine.type}, {image.name} {image.version}, {spec.machine.architecture}"),
            ("Machines", f"{spec.minimum} to {spec.maximum}, over {len(found.zones)} zones"),
            ("Replaced", f"maxSurge {spec.max_surge}, maxUnavailable {spec.max_unavailable}, {spec.zone_strategy}"),
            ("Preserved", f"at most {spec.machine_controller_manager.auto_preserve_failed_machine_max} that fail"),
        ]
    rows = []
    for zone in found.zones:
        state, pool = zone.state, numbers.get(zone.name)
        summary = pool.summary if pool else None
        counts = f"{summary.available} of {summary.replicas}" if summary else f"? of {state.spec.replicas}"
        reason = f"{pool.phase} {pool.reason}".strip() if pool else ""
        rows.append((zone.zone or "(none)", zone.name, counts, reason, state.spec.template.spec.class_.name))
    header = ("ZONE", "POOL", "AVAILABLE", "PHASE", "CLASS")
    lines = fields(pairs)
    lines += ["", "Zones:", *(f"  {line}" for line in Table(header).lines(rows))]
    waiting = next((zone for zone in found.zones if zone.state.waits), None)
    if waiting is not None:
        lines += await _first_machine(client, waiting, found.cluster, now)
    waits = [
        (zone.zone or zone.name, age(now - wait.since), wait.reason, wait.message)
        for zone in found.zones
        for wait in zone.state.waits
    ]
    if waits:
        shown = Table(("ZONE", "SINCE", "REASON", "MESSAGE")).lines(waits)
        lines += ["", "Waits:", *(f"  {line}" for line in shown), *advice(found)]
    if unused := found.unused:
        names = ", ".join(c.name for c in unused)
        lines += ["", f"Classes that nobody uses any longer, deleted by the next apply: {names}"]
    more = waiting or found.zones[0]
    return [*lines, "", f"More of a zone: hostler describe pool {more.name} --cluster {found.cluster}"]


async def _first_machine(client: HostlerClient, zone: ZoneFound, cluster: str, now: datetime) -> list[str]:
    """The machine of a zone that a person should look at first, where something is wrong with it: the reason why its
    pool waits is there."""
    from starter.commands.fleet_page import trouble

    pool = await client.pools.describe(zone.name, cluster=cluster)
    if pool.trouble is None or pool.summary is None or not pool.trouble.grave:
        return []
    return trouble(pool.trouble, now, pool.summary)


def advice(found: WorkerPoolFound) -> list[str]:
    """What can be done about each reason, for the first zone that has it: its pool is named in the command."""
    from resources.reasons import next_step

    zones: dict[str, list[ZoneFound]] = {}
    for zone in found.zones:
        for wait in zone.state.waits:
            zones.setdefault(wait.reason, []).append(zone)
    lines = []
    for reason, having in zones.items():
        first, *others = having
        also = f" (and so for {', '.join(z.name for z in others)})" if others else ""
        todo = next_step(reason, found.cluster, first.name, "pool")
        lines.append(f"  What can be done about {reason}: {todo}{also}")
    return lines


# -- delete -----------------------------------------------------------------------------------------------------------


async def deletion_foretold(client: HostlerClient, key: EntityKey) -> str | list[str]:
    """What --dry-run says, zone by zone."""
    cluster, name = key
    found = await client.worker_pools.get(name, cluster=cluster)
    lines = [f"deletion, with {len(found.zones)} zones (dry run)"]
    for zone in found.zones:
        said = await pools.deletion_foretold(client, (cluster, zone.name))
        head, *steps = [said] if isinstance(said, str) else said
        lines += [f"  {zone.zone or zone.name}: pool {zone.name}: {head}", *(f"  {step}" for step in steps)]
    return lines


async def delete(client: HostlerClient, key: EntityKey, *, force: bool, reason: str) -> Sent:
    """Deletes a worker pool, and says before which preserved machines go with it."""
    from resources.pool.intents import PoolQuestion
    from starter.sdk.results import Sent

    cluster, name = key
    for zone in (await client.worker_pools.find(name, cluster=cluster)).zones:
        await pools.warn_of_preserved(client, zone.name, PoolQuestion(delete=True), cluster)
    told = await client.worker_pools.delete(name, force=force, reason=reason, cluster=cluster)
    message = "; ".join(f"{what}: {sent.message}" for what, sent in told) or "nothing is left to delete"
    return Sent(message, recorded=any(sent.recorded for _, sent in told), gone=all(sent.gone for _, sent in told))


async def zones_of(client: HostlerClient, keys: Sequence[EntityKey]) -> list[EntityKey]:
    """The pools of all zones."""
    found = [await client.worker_pools.find(name, cluster=cluster) for cluster, name in keys]
    return [(of.cluster, zone.name) for of in found for zone in of.zones]

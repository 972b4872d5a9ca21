"""Machines in hostler get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from resources.words import utc
from starter.commands.kinds import MACHINE
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named
from starter.commands.selection import PRESERVED, Selection

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Json, MachineSummary

COLUMNS: tuple[Column[MachineSummary], ...] = (
    Column("NAME", lambda m: m.name),
    Column("PHASE", lambda m: m.phase, style=lambda m: phase_style(m.phase)),
    Column("REASON", lambda m: m.reason, drop=1),
    Column("NODE", lambda m: m.node, drop=3),
    Column(AGE, lambda m: m.created, drop=2),
    Column("CLASS", lambda m: m.machine_class, wide=True),
    Column("POOL", lambda m: m.pool, wide=True),
    Column("PROVIDER-ID", lambda m: m.provider_id, wide=True),
    Column("DEADLINE", lambda m: m.deadline, wide=True),
    Column("PRESERVED-UNTIL", lambda m: m.preserved_until, wide=True),
    Column("MESSAGE", lambda m: m.message, wide=True),
)


@dataclass(frozen=True)
class MachineFilter:
    """Which machines are shown."""

    chosen: Selection
    pool: str | None = None
    preserved: bool = False
    """Only preserved machines."""

    def nothing(self, client: HostlerClient) -> str:
        words = self.chosen.nothing(client, PRESERVED if self.preserved else "machines")
        return f"{words.rstrip('.')} of pool {self.pool}." if self.pool else words

    def has(self, m: MachineSummary) -> bool:
        return self.pool in (None, m.pool) and (not self.preserved or m.preserved_until is not None)


def listing(client: HostlerClient, wanted: MachineFilter) -> Listing[MachineSummary]:
    everywhere, missing = wanted.chosen.all_clusters, list[str]()
    return Listing(
        listed(COLUMNS, everywhere),
        find=partial(_summaries, client, wanted, missing),
        key=key_of(MACHINE, everywhere),
        objects=partial(_manifests, client),
        nothing=wanted.nothing(client),
        widened=client.widened,
        doubts=partial(_doubts, client),
        missing=missing,
    )


async def _doubts(client: HostlerClient, found: list[MachineSummary]) -> str:
    """Whether what the list shows can still be so. One of them is asked: a worker that is frozen counts as there, and
    would not notice that a machine which Runs no longer does."""
    from resources.names import machine_id
    from starter.sdk.live import nobody, stuck

    if not found:
        return ""
    queue, first = client.connection.queue, found[0]
    handle = client.temporal.get_workflow_handle(machine_id(first.cluster, first.name))
    why = await nobody(client.temporal, queue) or await stuck(handle, queue, client.temporal)
    return f"{why}: no machine is looked after, and this is what was last known; see hostler doctor" if why else ""


async def _summaries(client: HostlerClient, wanted: MachineFilter, missing: list[str]) -> list[MachineSummary]:
    """The chosen machines; those named must exist: they are read from the server's records, without visibility's
    delay."""
    chosen = wanted.chosen
    if chosen.selector is not None:
        selected = await client.select(chosen.selector, all_clusters=chosen.all_clusters)
        return [m.summary for m in selected if wanted.has(m.summary)]
    if not chosen.names:
        return await client.list(all_clusters=chosen.all_clusters, pool=wanted.pool, preserved=wanted.preserved)
    return await those_named(chosen.names, partial(_one, client), missing)


async def _one(client: HostlerClient, name: str) -> MachineSummary:
    from starter.sdk.errors import NotFound

    life = await client.life(name)
    if not life.running:
        since = f" since {utc(life.closed)}" if life.closed else ""
        raise NotFound(f"machine {name} is gone{since}: hostler describe machine {name} shows what is left of it")
    return life.summary


async def _manifests(client: HostlerClient, found: Sequence[MachineSummary]) -> list[Json | None]:
    from starter.sdk import parallel

    return await parallel.each(partial(_manifest, client, m) for m in found)


async def _manifest(client: HostlerClient, m: MachineSummary) -> Json | None:
    from starter.outlet import warn
    from starter.sdk.results import machine_manifest

    found = await client.describe(m.name, cluster=m.cluster)
    if found.state is None or not found.life.running:
        return None  # gone since it was listed
    manifest = machine_manifest(found.state)
    if found.no_answer:
        warn(f"machine {m.name}: {found.no_answer}: the spec is what was requested, the status the last known one")
        known = {"phase": m.phase, "providerID": m.provider_id, "nodeName": m.node}
        manifest["status"] = {k: v for k, v in known.items() if v}
    return manifest

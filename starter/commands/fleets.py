"""What commands do alike for every kind of owner of machines: list it, and wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from starter.commands.kinds import CONTROL_PLANE, ONLY, POOL
from starter.commands.rows import Column, Listing, key_of, listed, those_named

if TYPE_CHECKING:
    from datetime import timedelta

    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.fleet.results import FleetDescription, FleetListed
    from starter.sdk.fleet.shelf import FleetShelf
    from starter.sdk.fleet.waiting import Goal
    from starter.sdk.results import Json

    Shelf = FleetShelf[Any, Any, Any]
    Found = FleetDescription[Any, Any]

KINDS = (POOL, CONTROL_PLANE)
"""Owners of machines."""


def shelf_of(client: HostlerClient, kind: str) -> Shelf:
    return client.control_planes if kind == CONTROL_PLANE else client.pools


def label(kind: str, name: str) -> str:
    """Its name in what the commands print."""
    return f"{kind}/{name}"


# -- get --------------------------------------------------------------------------------------------------------------


def listing(
    client: HostlerClient,
    kind: str,
    columns: Sequence[Column[Any]],
    manifest: Callable[[Any, Any], Json],
    names: Sequence[str],
    all_clusters: bool,
) -> Listing[Any]:
    """`manifest`: makes one of a state and of numbers, which may be None."""
    shelf, missing = shelf_of(client, kind), list[str]()

    async def found() -> list[FleetListed[Any]]:
        if names:
            return await those_named(names, partial(_one, shelf), missing)
        return await shelf.list(all_clusters=all_clusters)

    async def objects(found: Sequence[FleetListed[Any]]) -> list[Json | None]:
        from starter.sdk import parallel

        return await parallel.each(partial(_manifest, shelf, manifest, each) for each in found)

    where = "any cluster" if all_clusters else f"cluster {client.cluster}"
    plural = "control planes" if kind in ONLY else shelf.plural
    return Listing(
        listed(columns, all_clusters),
        find=found,
        key=key_of(kind, all_clusters),
        objects=objects,
        nothing=f"No {plural} found in {where}.",
        missing=missing,
        doubts=partial(_doubts, client, shelf),
    )


async def _doubts(client: HostlerClient, shelf: Shelf, found: Sequence[FleetListed[Any]]) -> str:
    """Why numbers are missing."""
    from datetime import UTC, datetime

    from starter.sdk.errors import translated
    from starter.sdk.live import absence

    silent = [p.name for p in found if p.summary is None]
    if not silent:
        return ""
    with translated():
        why = await absence(client.temporal, client.connection.queue, datetime.now(UTC))
    who = f"{shelf.noun} {silent[0]} does" if len(silent) == 1 else f"{len(silent)} {shelf.plural} do"
    return f"{who} not answer, so numbers are missing and the phase is the last known one: {why}; see hostler doctor"


async def _one(shelf: Shelf, name: str) -> FleetListed[Any]:
    return (await running(shelf, name)).listed


async def running(shelf: Shelf, name: str, cluster: str | None = None) -> Found:
    """A look at one that runs. Raises NotFound, with where to read more."""
    from starter.sdk.errors import NotFound
    from starter.sdk.results import since

    found = await shelf.look(name, cluster=cluster)
    if not found.running:
        raise NotFound(
            f"{shelf.noun} {name} is gone{since(found.ended)}: hostler describe {shelf.noun} {name} shows what is left "
            "of it"
        )
    return found


async def _manifest(shelf: Shelf, manifest: Callable[[Any, Any], Json], of: FleetListed[Any]) -> Json | None:
    from starter.outlet import warn

    found = await shelf.describe(of.name, cluster=of.cluster)
    if found.state is None or not found.running:
        return None  # gone since it was listed
    if found.no_answer:
        warn(f"{shelf.noun} {of.name}: {found.no_answer}: the spec is what was requested; the status is not known")
    made = manifest(found.state, found.summary)
    phase = {"phase": found.listed.phase} if found.listed.phase else {}
    return made | {"status": {**phase, **made["status"]}}


# -- wait -------------------------------------------------------------------------------------------------------------


def parse_goal(text: str, noun: str = "pool") -> Goal:
    """Parses the goal of a wait. Raises a usage error."""
    from starter.sdk.fleet.waiting import Goal

    words = {"delete": Goal.DELETED, "rolledout": Goal.ROLLED_OUT, "condition=available": Goal.READY}
    goals = {**words, **{str(goal): goal for goal in Goal}}
    if text.lower() not in goals:
        raise typer.BadParameter(f"--for={text}: for a {noun}, write one of {', '.join(Goal)}")
    return goals[text.lower()]


async def wait_for_one(client: HostlerClient, kind: str, key: EntityKey, goal: Goal, limit: timedelta | None) -> None:
    from starter.output import Busy
    from starter.sdk.fleet.waiting import Goal

    (cluster, name), shelf = key, shelf_of(client, kind)
    async with Busy(f"{label(kind, name)}: waiting") as busy:

        async def progress(found: Found) -> None:
            busy.text = f"{label(kind, name)}: {shelf.where(found)}"

        await shelf.wait(name, goal, timeout=limit, progress=progress, cluster=cluster)
        busy.say(f"{label(kind, name)} {goal if goal is Goal.DELETED else f'is {goal}'}")

"""hostler tree"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates, fleets
from starter.commands.blocks import command
from starter.commands.common import NameArgument, Reading, one
from starter.commands.forms import ColourOption, coloured
from starter.commands.kinds import ALIASES, CLUSTER, CONTROL_PLANE, ONLY, POOL, WORKER_POOL
from starter.commands.tree_view import CONTROL_PLANE as OWNER
from starter.commands.tree_view import (
    Ailment,
    ControlPlaneFacts,
    PoolFacts,
    TreeFacts,
    ailment_of,
    lines,
    named,
    well,
)
from starter.commands.tree_view import tree as grown
from starter.outlet import Piece, on_terminal, say, say_painted, width

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.machine_config.results import ConfigPoolShown
    from starter.sdk.results import ClusterDescription, MachineSummary


class Shown(StrEnum):
    ILL = "ill"
    ALL = "all"


INTERVAL = 2.0
"""Seconds between two looks of `-w`."""
ASKED = 50
"""Machines that one look asks what they wait for."""


@command
def tree(
    *,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="cluster, controlplane, pool or workerpool; default: the settings' default cluster.",
            show_default=False,
            autocompletion=candidates.kinds(CLUSTER, "controlplane", "pool", WORKER_POOL),
        ),
    ] = None,
    name: NameArgument = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep it up to date, until Ctrl-C.")] = False,
    show: Annotated[
        Shown,
        typer.Option("--show", help="all: a line for each machine; ill: those that are well are counted."),
    ] = Shown.ILL,
    colour: ColourOption = None,
    here: Reading,
) -> None:
    """Show a cluster as a tree: its control plane by index, its pools, their revisions and machines, each with its
    phase and the first thing that is wrong with it.

    A pool's machines that are well are counted in one line, and so are those beyond the tenth that are not. Lists come
    from Temporal, about a second behind; what a machine waits for, it says itself. Without a worker it shows what
    Temporal knows.
    """
    coloured(colour)
    everything = show is Shown.ALL
    default = kind is None or (ALIASES.get(kind) == CLUSTER and name is None)
    which, asked = (CLUSTER, "") if default else one(kind or "", name, (POOL, WORKER_POOL, CONTROL_PLANE, CLUSTER))

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        only = asked if which == POOL else OWNER if which == CONTROL_PLANE else ""
        worker_pool = asked if which == WORKER_POOL else ""
        where = asked if which == CLUSTER and asked else client.cluster
        look = partial(_look, client, only, worker_pool, where, everything)
        async with Busy("looking"):
            seen = await look()
        if not watch:
            say_painted(lines(grown(seen, everything), datetime.now(UTC), width()))
        elif on_terminal():
            await _live(look, seen, everything)
        else:
            await _again(look, seen, everything)

    here.run(body)


async def _live(look: Callable[[], Awaitable[TreeFacts]], seen: TreeFacts, everything: bool) -> None:
    """Draws it in place, and anew only when a line of it has changed."""
    from rich.console import Group
    from rich.live import Live

    from starter.screen import screen, words
    from starter.sdk.patience import patiently

    drawn: list[list[Piece]] = []
    with Live(console=screen(), auto_refresh=False) as live:
        while True:
            now = lines(grown(seen, everything), datetime.now(UTC), width())
            if now != drawn:
                live.update(Group(*(words(*line) for line in now)), refresh=True)
                drawn = now
            await asyncio.sleep(INTERVAL)
            seen = await patiently(look)


async def _again(look: Callable[[], Awaitable[TreeFacts]], seen: TreeFacts, everything: bool) -> None:
    """Prints all of it whenever more than an age has changed."""
    from starter.sdk.patience import patiently

    printed = None
    while True:
        now = grown(seen, everything)
        if now != printed:
            say(*([""] if printed else []))
            say_painted(lines(now, datetime.now(UTC), width()))
            printed = now
        await asyncio.sleep(INTERVAL)
        seen = await patiently(look)


# -- reading ----------------------------------------------------------------------------------------------------------


async def _look(client: HostlerClient, only: str, worker_pool: str, cluster: str, everything: bool) -> TreeFacts:
    """Reads everything, or only that of one owner of machines, or of a worker pool. Raises NotFound for what is not
    there."""
    pool = "" if only == OWNER else only
    found, listed, control_plane, machines, configs = await asyncio.gather(
        client.clusters.describe(cluster),
        _zones(client, worker_pool, cluster)
        if worker_pool
        else _one_pool(client, pool, cluster)
        if pool
        else _pools(client, cluster, only),
        _control_plane(client, cluster, worker_pool or only),
        client.list(cluster=cluster, pool=only or None),
        _config_pools(client, cluster, only or worker_pool),
    )
    if worker_pool:
        names = {facts.listed.name for facts in listed}
        machines = [m for m in machines if m.pool in names]
    pools = await asyncio.gather(*(_with_members(client, each) for each in listed))
    ailments = await _ailments(client, machines, pools, found, everything)
    return TreeFacts(found, pools, machines, ailments, only, control_plane, worker_pool, configs)


async def _config_pools(client: HostlerClient, cluster: str, only: str) -> Sequence[ConfigPoolShown]:
    return [] if only else await client.config_pools.states(cluster=cluster)


async def _pools(client: HostlerClient, cluster: str, only: str) -> list[PoolFacts]:
    return [] if only else [PoolFacts(listed) for listed in await client.pools.list(cluster=cluster)]


async def _zones(client: HostlerClient, name: str, cluster: str) -> list[PoolFacts]:
    of = await client.worker_pools.get(name, cluster=cluster)
    return [facts for zone in of.zones for facts in await _one_pool(client, zone.name, cluster)]


async def _one_pool(client: HostlerClient, name: str, cluster: str) -> list[PoolFacts]:
    found = await fleets.running(client.pools, name, cluster)
    return [PoolFacts(found.listed, no_answer=found.no_answer)]


async def _control_plane(client: HostlerClient, cluster: str, only: str) -> ControlPlaneFacts | None:
    """The cluster's control plane; where it alone is asked for, NotFound is raised when there is none."""
    if only not in ("", OWNER):
        return None
    if only:
        found = await fleets.running(client.control_planes, ONLY[CONTROL_PLANE], cluster)
        return ControlPlaneFacts(found.listed, no_answer=found.no_answer)
    listed = await client.control_planes.list(cluster=cluster)
    return ControlPlaneFacts(listed[0]) if listed else None


async def _with_members(client: HostlerClient, pool: PoolFacts) -> PoolFacts:
    """The pool with its members. One without numbers has no worker that could be asked for them."""
    from starter.sdk.errors import NoAnswer, NotFound

    if pool.listed.summary is None:
        return pool
    try:
        return replace(pool, members=(await client.pools.get(pool.listed.name, cluster=pool.listed.cluster)).members)
    except (NoAnswer, NotFound):
        return pool


async def _ailments(
    client: HostlerClient,
    machines: Sequence[MachineSummary],
    pools: Sequence[PoolFacts],
    cluster: ClusterDescription,
    everything: bool,
) -> dict[str, Ailment]:
    """What the machines that will be named say themselves; nobody is asked where nobody answers."""
    from starter.sdk import parallel
    from starter.sdk.errors import NoAnswer, NotFound

    revision = {name: (p.listed.name, m.revision) for p in pools for name, m in p.members.items()}
    groups: dict[tuple[str, int], list[MachineSummary]] = defaultdict(list)
    for machine in machines:
        groups[revision.get(machine.name, (machine.pool, 0))].append(machine)
    ill = [m for group in groups.values() for m in named(group, everything) if not well(m)][:ASKED]
    if cluster.no_answer or any(p.listed.summary is None for p in pools):
        return {}

    async def ask(m: MachineSummary) -> Ailment | None:
        try:
            return ailment_of(await client.get(m.name, cluster=m.cluster))
        except (NoAnswer, NotFound):
            return None  # it has gone since, or is too busy: its reason is known all the same

    found = await parallel.each(partial(ask, m) for m in ill)
    return {m.name: ailment for m, ailment in zip(ill, found, strict=True) if ailment}

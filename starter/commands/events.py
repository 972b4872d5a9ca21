"""hostler events"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import NameArgument, Reading
from starter.commands.describe import described
from starter.commands.kinds import CLASS, CLUSTER, CONFIG_POOL, CONTROL_PLANE, MACHINE, POOL
from starter.outlet import say, warn

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityClient
    from starter.sdk.results import ClusterStory, Event

INTERVAL = 1.0
"""Seconds between two looks of `events -w`."""


@command
def events(
    *,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="machine, pool, controlplane, class, cluster or mcp; also machine/NAME. Default: everything of the "
            "cluster.",
            show_default=False,
            autocompletion=candidates.kinds(MACHINE, "pool", "controlplane", "class", CLUSTER, "mcp"),
        ),
    ] = None,
    name: NameArgument = None,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Continue until what is watched is gone, or until Ctrl-C.")
    ] = False,
    here: Reading,
) -> None:
    """Show the events of a machine, pool, control plane, class, config pool (mcp) or cluster, in time order; without
    KIND, of a cluster and all that is in it.

    They come from the journals, and from the histories that Temporal still has: also of what has ended.
    """
    if kind is None:
        here.run(lambda client: _follow(lambda first: _everything(client, first), ("OBJECT",), watch))
        return
    which, asked = described(here, kind, name)

    async def look(client: HostlerClient) -> tuple[bool, Sequence[tuple[str, Event]]]:
        """Whether it is gone is asked before the story: so the story has its end."""
        shelves: dict[str, EntityClient[Any]] = {
            POOL: client.pools,
            CONTROL_PLANE: client.control_planes,
            CLASS: client.classes,
            CLUSTER: client.clusters,
            CONFIG_POOL: client.config_pools,
        }
        shelf = shelves.get(which, client)
        gone = await shelf.is_gone(asked)
        return gone, [("", e) for e in await shelf.events(asked)]

    here.run(lambda client: _follow(lambda first: look(client), (), watch))


async def _everything(client: HostlerClient, first: bool) -> tuple[bool, Sequence[tuple[str, Event]]]:
    from starter.sdk.story import everything

    told: ClusterStory = await everything(client)
    if told.left_out and first:
        warn(f"{told.left_out} older machines are left out: hostler events machine NAME shows each")
    return False, [(f"{kind}/{name}", e) for kind, name, e in told.events]


async def _follow(
    look: Callable[[bool], Awaitable[tuple[bool, Sequence[tuple[str, Event]]]]], columns: tuple[str, ...], watch: bool
) -> None:
    from functools import partial

    from resources.reasons import is_warning
    from starter.output import Table
    from starter.sdk.patience import patiently

    table = Table(("TIME", "TYPE", "REASON", *columns, "MESSAGE"))
    told: set[tuple[str, Event]] = set()
    while True:
        gone, found = await patiently(partial(look, not told))
        news = [(of, e) for of, e in found if (of, e) not in told]
        rows = [
            (
                f"{e.time:%Y-%m-%d %H:%M:%S}Z",
                "Warning" if is_warning(e.reason) else "Normal",
                e.reason,
                *([of] if columns else []),
                str(e),
            )
            for of, e in news
        ]
        say(*(table.lines(rows, header=not told) if news else []))
        told.update(news)
        if gone or not watch:
            return
        await asyncio.sleep(INTERVAL)

"""hostler freeze, hostler unfreeze: nothing voluntary for a while, in a pool, a cluster or all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking, NamesArgument, ReasonOption, Session, named, span, target, tell_each
from starter.commands.kinds import ALL, CLUSTER, POOL

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Sent

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="pool (with names), cluster (default: the settings' default cluster), or all: every cluster.",
        autocompletion=candidates.kinds(POOL, CLUSTER, ALL),
    ),
]
Ask = Callable[["HostlerClient", str, str], "Awaitable[Sent]"]
"""Asks for it, of a kind and a name."""


@command
def freeze(
    *,
    kind: WhatArgument,
    names: NamesArgument = None,
    lasting: Annotated[
        str | None,
        typer.Option("--for", help="For how long (4h, 90m).", show_default="until hostler unfreeze"),
    ] = None,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Let no rollout and no hot update begin or continue: freeze pool NAME, freeze cluster [NAME], freeze all.

    Replicas are kept up, failed machines are replaced, and what people ask for is done: `hostler pause cluster` stops
    that too. What has already begun is finished. Each pool that has something to do says so.
    """
    length = span(lasting)

    def ask(client: HostlerClient, of: str, name: str) -> Awaitable[Sent]:
        if of == POOL:
            return client.pools.freeze(name, length, reason=reason)
        return client.clusters.freeze(name, length, reason=reason)

    _each(here, kind, names, ask)


@command
def unfreeze(*, kind: WhatArgument, names: NamesArgument = None, reason: ReasonOption = "", here: Asking) -> None:
    """End a freeze: unfreeze pool NAME, unfreeze cluster [NAME], unfreeze all. A frozen cluster's pools stay frozen."""

    def ask(client: HostlerClient, of: str, name: str) -> Awaitable[Sent]:
        if of == POOL:
            return client.pools.unfreeze(name, reason=reason)
        return client.clusters.unfreeze(name, reason=reason)

    _each(here, kind, names, ask)


def _each(here: Session, kind: str, names: list[str] | None, ask: Ask) -> None:
    every = kind == ALL
    if every and names:
        raise typer.BadParameter("all takes no names; write cluster NAME or pool NAME")
    of, given = (CLUSTER, []) if every else target(kind, names or [], (POOL, CLUSTER), also=(ALL,))
    if of == POOL:
        given = named(of, given)

    async def body(client: HostlerClient) -> None:
        if every:
            found = [c.name for c in await client.clusters.list() if await client.clusters.is_watched(c.name)]
        else:
            found = given or [client.cluster]

        async def one(name: str) -> str:
            return (await ask(client, of, name)).message

        await tell_each({name: f"{of}/{name}" for name in found}, one)

    here.run(body)

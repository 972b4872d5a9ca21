"""hostler pause cluster, hostler resume cluster"""

from __future__ import annotations

from typing import Annotated

import typer

from starter import completion
from starter.commands.common import (
    ALIASES,
    CLUSTER,
    POOL,
    AsOption,
    ClusterOption,
    NameArgument,
    ReasonOption,
    Session,
    SettingsOption,
    session,
    target,
)

ClusterArgument = Annotated[
    str,
    typer.Argument(metavar="KIND", help="cluster; also cluster/NAME.", autocompletion=completion.kinds(CLUSTER)),
]


def pause(
    ctx: typer.Context,
    kind: ClusterArgument,
    name: NameArgument = None,
    reason: ReasonOption = "",
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
    requested_by: AsOption = None,
) -> None:
    """Stop everything voluntary in a cluster: its pools make, delete and replace no machines until it is resumed.

    Without NAME it is the settings' own cluster. Machines live on; what was begun already is finished: a machine that
    is being deleted goes. `get clusters` and `describe cluster` show the pause, each pool says what it would do.
    """
    here = session(ctx, cluster, settings, requested_by)
    _tell(here, _which(here, "pause", kind, name), "pause", reason)


def resume(
    ctx: typer.Context,
    kind: ClusterArgument,
    name: NameArgument = None,
    reason: ReasonOption = "",
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
    requested_by: AsOption = None,
) -> None:
    """Let a paused cluster go on. Without NAME it is the settings' own."""
    here = session(ctx, cluster, settings, requested_by)
    _tell(here, _which(here, "resume", kind, name), "resume", reason)


def _which(here: Session, command: str, kind: str, name: str | None) -> str:
    """The cluster's name. Raises a usage error."""
    if ALIASES.get(kind.partition("/")[0]) == POOL:
        pool = kind.partition("/")[2] or name or "NAME"
        raise typer.BadParameter(f"the rollouts of a pool: hostler rollout {command} {pool}")
    _, given = target(kind, [name], (CLUSTER,))
    if len(given) > 1:
        raise typer.BadParameter(f"one cluster: {command} cluster [NAME]")
    return given[0] if given else here.cluster or here.settings.default_cluster


def _tell(here: Session, name: str, intent: str, reason: str) -> None:
    from starter.client import HostlerClient
    from starter.output import Busy

    async def body(client: HostlerClient) -> None:
        ask = client.clusters.pause if intent == "pause" else client.clusters.resume
        async with Busy("waiting for a worker's answer") as busy:
            busy.echo(f"cluster/{name} {intent}: {(await ask(name, reason=reason)).message}")

    here.run(body)

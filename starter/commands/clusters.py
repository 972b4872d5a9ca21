"""hostler pause cluster, hostler resume cluster; and clusters in hostler get and describe"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking, ReasonOption, Session, target
from starter.commands.kinds import ALIASES, CLUSTER, POOL, ROLLOUT
from starter.commands.rows import Column, Listing, phase_style

if TYPE_CHECKING:
    from resources.cluster.news import Reachability
    from resources.cluster.state import ClusterState
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import ClusterDescription, ClusterSummary, Json

ClusterArgument = Annotated[
    str,
    typer.Argument(metavar="KIND", help="cluster; also cluster/NAME.", autocompletion=candidates.kinds(CLUSTER)),
]
ClusterNameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="Default: the settings' default cluster.",
        show_default=False,
        autocompletion=candidates.names,
    ),
]


# -- get --------------------------------------------------------------------------------------------------------------


COLUMNS: tuple[Column[ClusterSummary], ...] = (
    Column("NAME", lambda c: c.name),
    Column("PHASE", lambda c: c.phase, style=lambda c: phase_style(c.phase)),
    Column("POOLS", lambda c: c.pools),
    Column("MACHINES", lambda c: c.machines),
    Column("IN-SETTINGS", lambda c: "yes" if c.configured else "no", wide=True),
)


def listing(client: HostlerClient, names: Sequence[str]) -> Listing[ClusterSummary]:
    async def found() -> list[ClusterSummary]:
        if names:
            return [(await client.clusters.describe(name)).summary for name in names]
        return await client.clusters.list()

    return Listing(
        COLUMNS,
        find=found,
        key=lambda c: (CLUSTER, c.name),
        objects=_objects,
        nothing="No clusters found: the settings name none, and none is watched.",
    )


async def _objects(found: Sequence[ClusterSummary]) -> list[Json | None]:
    return [_object(c) for c in found]


def _object(c: ClusterSummary) -> Json:
    """The cluster in Kubernetes' form, for programs; it is no manifest: clusters are in the settings."""
    status = {"phase": c.phase, "pools": c.pools, "machines": c.machines, "inSettings": c.configured}
    return {"apiVersion": "hostler.io/v1", "kind": "Cluster", "metadata": {"name": c.name}, "status": status}


# -- pause, resume ----------------------------------------------------------------------------------------------------


def _asks(intent: str, help: str) -> Callable[..., None]:
    """Makes the command of that name."""

    @command
    def asks(
        *,
        kind: ClusterArgument,
        name: ClusterNameArgument = None,
        reason: ReasonOption = "",
        here: Asking,
    ) -> None:
        _tell(here, _which(here, intent, kind, name), intent, reason)

    asks.__name__, asks.__doc__ = intent, help
    return asks


pause = _asks(
    "pause",
    """Stop everything in a cluster, repairs too: its pools create, delete and replace no machines until it is resumed.

    Without NAME: the settings' default cluster. Machines keep running; what has already begun is finished, and requests
    to delete a machine or pool are carried out. Hot updates of classes continue. `hostler freeze cluster` stops
    rollouts and hot updates only. `get clusters` and `describe cluster`
    show the pause, and each pool says what it would do otherwise.
    """,
)
resume = _asks("resume", "Resume a paused cluster. Without NAME: the settings' default cluster.")


def _which(here: Session, command: str, kind: str, name: str | None) -> str:
    """The cluster's name. Raises a usage error."""
    if ALIASES.get(kind.partition("/")[0]) in (POOL, ROLLOUT):
        pool = kind.partition("/")[2] or name or "NAME"
        raise typer.BadParameter(f"the rollouts of a pool: hostler rollout {command} {pool}")
    _, given = target(kind, [name], (CLUSTER,))
    if len(given) > 1:
        raise typer.BadParameter(f"one cluster: {command} cluster [NAME]")
    return given[0] if given else here.cluster or here.settings.default_cluster


def _tell(here: Session, name: str, intent: str, reason: str) -> None:
    from starter.output import Busy

    async def body(client: HostlerClient) -> None:
        ask = client.clusters.pause if intent == "pause" else client.clusters.resume
        async with Busy("waiting for a worker's answer") as busy:
            busy.say(f"cluster/{name} {intent}: {(await ask(name, reason=reason)).message}")

    here.run(body)


# -- delete -----------------------------------------------------------------------------------------------------------


async def removal_foretold(client: HostlerClient, key: EntityKey) -> str:
    """What --dry-run says. Raises Refused while the cluster has pools or machines."""
    await client.clusters.removable(key[1])
    return "removal (dry run)"


# -- describe ---------------------------------------------------------------------------------------------------------


def about(found: ClusterDescription, now: datetime) -> list[str]:
    """The lines that only a cluster has."""
    from starter.output import fields, moment, unanswered

    summary, state = found.summary, found.state
    pairs = [
        ("Name", summary.name),
        ("Phase", summary.phase),
        ("Paused", _pause(state, summary.name) if state else ""),
        ("Frozen", _freeze(state, summary.name) if state else ""),
        ("Pools", str(summary.pools)),
        ("Machines", str(summary.machines)),
        ("In settings", "yes" if summary.configured else "no: the settings do not say how to reach its API"),
        ("Ended", f"{moment(found.ended, now)}{_lost(found)}" if found.ended else ""),
    ]
    if state is not None:
        pairs += [
            ("API server", _reachability(state.api, _api_reason(state.api), summary.name, now)),
            *(
                (f"Cloud {account}", _reachability(cloud, cloud.cloud_reason, summary.name, now))
                for account, cloud in sorted(state.clouds.items())
            ),
            ("Tells pools", ", ".join(sorted(state.pools))),
        ]
    lines = fields(pairs)
    if found.no_answer:
        lines += unanswered(found.no_answer, "The above is what Temporal knows without a worker.")
    if found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows the failure."]
    if state is not None and state.parked:
        renew = f"Once a fixed worker runs: hostler renew cluster {summary.name}"
        lines += ["", f"Parked: {state.parked}", renew]
    return lines


def _lost(found: ClusterDescription) -> str:
    """What begins its lost workflow again, where that is to be expected."""
    if not found.lost:
        return ""
    s = found.summary
    if s.machines or s.pools:
        then = "a worker with the role watch restarts it within a minute"
    else:
        then = "its first machine or pool restarts it"
    return f"\nby somebody ({found.lost}): {then}; at once: hostler renew cluster {s.name}"


def _pause(state: ClusterState, cluster: str) -> str:
    return f"{state.pause.words}\nto resume: hostler resume cluster {cluster}" if state.pause else ""


def _freeze(state: ClusterState, cluster: str) -> str:
    return f"{state.freeze.words}\nto end it: hostler unfreeze cluster {cluster}" if state.freeze else ""


def _api_reason(news: Reachability | None) -> str:
    return "APIRefused" if news and news.refused else "APIUnreachable"


def _reachability(news: Reachability | None, reason: str, cluster: str, now: datetime) -> str:
    """`reason`: the reason of a cluster that cannot be reached."""
    from resources.reasons import next_step
    from starter.output import moment

    if news is None:
        return "not known yet"
    if news.reachable:
        return f"answers\nsince {moment(news.time, now)}"
    words = f"{news.words}\nsince {moment(news.began, now)}"
    return f"{words}\nwhat can be done: {next_step(reason, cluster)}"

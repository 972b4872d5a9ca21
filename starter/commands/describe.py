"""hostler describe"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import (
    candidates,
    classes,
    clusters,
    config_pool_page,
    config_pools,
    control_plane_page,
    machine_configs,
    pool_page,
    worker_pools,
)
from starter.commands.blocks import command
from starter.commands.common import NamesArgument, Reading, Session, named, one, target, targets
from starter.commands.kinds import (
    CLASS,
    CLUSTER,
    CONFIG_OBJECTS,
    CONFIG_POOL,
    CONTROL_PLANE,
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE,
    POOL,
    WORKER_POOL,
)
from starter.commands.machine_page import page
from starter.commands.page import journal_lines, pending_lines

if TYPE_CHECKING:
    from resources.journal import Happening
    from starter.sdk.client import HostlerClient
    from starter.sdk.control_plane.results import ControlPlaneDescription
    from starter.sdk.machine_config.results import ConfigPoolDescription
    from starter.sdk.pools.results import PoolDescription
    from starter.sdk.results import ClassDescription, ClusterDescription

    Answer = PoolDescription | ControlPlaneDescription | ConfigPoolDescription | ClassDescription | ClusterDescription

KINDS = (MACHINE, POOL, WORKER_POOL, CONTROL_PLANE, CLASS, CLUSTER, CONFIG_POOL, *CONFIG_OBJECTS)


@command
def describe(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="machine, pool, workerpool, controlplane, class, cluster, mcp, mc, kubeletconfig or controllerconfig; "
            "also machine/NAME.",
            autocompletion=candidates.kinds(
                *(MACHINE, "pool", WORKER_POOL, "controlplane", "class", CLUSTER, "mcp", "mc"),
                *(KUBELET_CONFIG, CONTROLLER_CONFIG),
            ),
        ),
    ],
    names: NamesArgument = None,
    here: Reading,
) -> None:
    """Show everything about machines, pools, worker pools, the control plane, classes, config pools (mcp), machine
    configs (mc, kubeletconfig, controllerconfig) or a cluster: what each is, what it waits for and why, and what
    happened to it.

    Without a worker it says so and shows what Temporal knows; for a machine that is gone, what is left of it. `describe
    cluster` without NAME shows the default cluster.
    """
    wanted = [described(here, kind, None)] if not names and "/" not in kind else _each(kind, names or [])

    async def body(client: HostlerClient | None) -> None:
        from starter.output import Busy
        from starter.sdk.errors import NotFound

        missing, shown = [], False
        for which, asked in wanted:
            async with Busy(f"asking {which} {asked}") as busy:
                try:
                    lines = await _page(here, client, which, asked)
                except NotFound as e:
                    missing.append(str(e))
                    continue
                busy.say(*([""] if shown else []), *lines)
                shown = True
        if missing:
            raise NotFound("\n".join(missing))

    if {which for which, _ in wanted} <= {*CONFIG_OBJECTS}:  # the cluster's API alone is asked, as by `get`
        asyncio.run(body(None))
    else:
        here.run(body)


def _each(kind: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Kind and name of each. Raises a usage error."""
    kinds = targets(kind, names, KINDS)
    return [(which, name) for which, of in kinds for name in named(which, of)]


async def _page(here: Session, client: HostlerClient | None, which: str, asked: str) -> list[str]:
    if client is None or which in CONFIG_OBJECTS:
        return await machine_configs.page_of(which, here, asked, datetime.now(UTC))
    if which == CLUSTER:
        return cluster_page(await client.clusters.describe(asked), datetime.now(UTC))
    if which == POOL:
        return pool_lines(await client.pools.describe(asked), datetime.now(UTC))
    if which == WORKER_POOL:
        return await worker_pools.page(client, asked, datetime.now(UTC))
    if which == CONTROL_PLANE:
        return control_plane_lines(await client.control_planes.describe(asked), datetime.now(UTC))
    if which == CONFIG_POOL:
        return config_pool_lines(await config_pools.described(client, asked), datetime.now(UTC))
    if which == CLASS:
        of = await client.classes.describe(asked)
        return class_page(of, datetime.now(UTC), await classes.secrets(client.connection.settings, of))
    return page(await client.describe(asked), datetime.now(UTC))


def described(here: Session, kind: str, name: str | None) -> tuple[str, str]:
    """Kind and name; the default cluster needs no name."""
    if target(kind, [name], KINDS) == (CLUSTER, []):
        return CLUSTER, here.cluster or here.settings.default_cluster
    return one(kind, name, KINDS)


def pool_lines(found: PoolDescription, now: datetime) -> list[str]:
    """The whole answer for a pool, as lines."""
    journal = found.state.journal if found.state and not found.no_answer else []
    return _whole(pool_page.about(found, now), found, journal, now, pool_page.commands(found))


def control_plane_lines(found: ControlPlaneDescription, now: datetime) -> list[str]:
    """The whole answer for a control plane, as lines."""
    journal = found.state.journal if found.state and not found.no_answer else []
    return _whole(control_plane_page.about(found, now), found, journal, now, control_plane_page.commands(found))


def config_pool_lines(found: ConfigPoolDescription, now: datetime) -> list[str]:
    """The whole answer for a config pool, as lines."""
    journal = found.state.journal if found.state else []
    return _whole(config_pool_page.about(found, now), found, journal, now, config_pool_page.commands(found))


def class_page(found: ClassDescription, now: datetime, secrets: Sequence[str] = ()) -> list[str]:
    """The whole answer for a class, as lines. `secrets`: what is wrong with those that it names."""
    return _whole([*classes.about(found, now), *secrets], found, found.state.journal if found.state else [], now)


def cluster_page(found: ClusterDescription, now: datetime) -> list[str]:
    """The whole answer for a cluster, as lines."""
    return _whole(clusters.about(found, now), found, found.state.journal if found.state else [], now)


def _whole(
    about: Sequence[str], found: Answer, journal: Sequence[Happening], now: datetime, commands: Sequence[str] = ()
) -> list[str]:
    """What all pages but a machine's have after what is special about each."""
    lines = [*about, *pending_lines(found.pending, now), *journal_lines(journal, now), *commands]
    return [*lines, "", f"Web UI: {found.web}"] if found.web else lines

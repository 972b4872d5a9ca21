"""hostler get"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import AllClustersOption, NamesArgument, Reading, SelectorOption, Session, targets
from starter.commands.forms import ColourOption, OutputOption, Shape, ShownOption, coloured, form_of
from starter.commands.kinds import (
    ALL,
    CLASS,
    CLUSTER,
    CONFIG_OBJECTS,
    CONFIG_POOL,
    CONTROL_PLANE,
    MACHINE,
    NODE,
    ONLY,
    ORPHAN,
    POOL,
    ROLLOUT,
    WORKER_POOL,
    is_plural,
)
from starter.commands.machines import MachineFilter
from starter.commands.rows import show
from starter.commands.selection import listing

if TYPE_CHECKING:
    from starter.commands.rows import Listing
    from starter.sdk.client import HostlerClient

EVERYTHING = (CONTROL_PLANE, WORKER_POOL, POOL, ROLLOUT, MACHINE, CLASS, CONFIG_POOL)
"""What `get all` shows."""
OF_THE_API = (NODE, *CONFIG_OBJECTS)
"""Kinds that the cluster's API alone is asked for."""
KINDS = (MACHINE, POOL, WORKER_POOL, CONTROL_PLANE, ROLLOUT, CLASS, NODE, CLUSTER, ORPHAN, CONFIG_POOL, *CONFIG_OBJECTS)


@command
def get(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="machines (machine), pools (pool, mcd), workerpools (wp), controlplanes (controlplane, cp), rollouts, "
            "classes (class, mcc), nodes (node, no), clusters or orphans; machineconfigpools (mcp), machineconfigs "
            "(mc), kubeletconfigs or controllerconfigs; several with commas; or all: control plane, worker "
            "pools, pools, rollouts, machines, classes and config pools.",
            autocompletion=candidates.kinds(
                *("machines", "pools", "workerpools", "controlplanes", "rollouts", "classes", "nodes", "clusters"),
                *("orphans", "mcp", "mc", "kubeletconfigs", "controllerconfigs", ALL),
            ),
        ),
    ],
    names: NamesArgument = None,
    output: OutputOption = Shape.TABLE,
    manner: ShownOption,
    selector: SelectorOption = None,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool",
            help="machines: only those of this pool.",
            show_default=False,
            autocompletion=candidates.pool_names,
        ),
    ] = None,
    preserved: Annotated[bool, typer.Option("--preserved", help="machines: only those that are preserved.")] = False,
    all_clusters: AllClustersOption = False,
    files: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", help="orphans: search the accounts of these MachineClasses too; repeatable."),
    ] = None,
    colour: ColourOption = None,
    here: Reading,
) -> None:
    """List machines, pools, worker pools, control planes, rollouts, classes, nodes, clusters, machine configs and their
    pools, or orphans: VMs of a cluster that no machine's workflow owns.

    Machines come from Temporal (a list is about a second behind, a named machine is not), nodes and machine configs
    from the cluster's API.
    With -l, -L, --show-labels and --sort-by each one is asked, which needs a worker. On a terminal that is too narrow,
    the least important columns are left out; -o wide shows all. `-o yaml` prints manifests that `hostler apply -f -`
    accepts. Orphans are found in the cloud by their owner tags; `hostler adopt` takes one over.
    """
    coloured(colour)
    form, among = form_of(output), _targets(kind, names or [])
    kinds, given = [which for which, _ in among], sum(len(of) for _, of in among)
    if manner.watch and not form.rows:
        raise typer.BadParameter("-w needs -o table, wide or name")
    if manner.watch and len(among) > 1:
        raise typer.BadParameter("-w takes one kind")
    if pool is not None and (kinds != [MACHINE] or given):
        raise typer.BadParameter("--pool is only for machines, without names: get machines --pool POOL")
    if preserved and (kinds != [MACHINE] or given):
        raise typer.BadParameter("--preserved is only for machines, without names: get machines --preserved")
    if files and ORPHAN not in kinds:
        raise typer.BadParameter("-f is only for orphans; to apply manifests: hostler apply -f")
    if ORPHAN in kinds:
        from starter.commands.orphans import orphans

        if len(among) > 1 or selector is not None or all_clusters or manner.watch:
            raise typer.BadParameter(
                "orphans are listed for one cluster, alone and without -w: get orphans [NAME...] [-f FILE] "
                "[--cluster C]"
            )
        here.run(lambda client: orphans(client, among[0][1], files or [], form, manner), anywhere=bool(files))
        return
    for which, of in among:
        if kind != ALL or which != CONFIG_POOL:
            _judge(kind, which, of, selector, all_clusters)
    wanted = [(which, MachineFilter(listing(of, selector, all_clusters), pool, preserved)) for which, of in among]

    async def body(client: HostlerClient | None) -> None:
        async with AsyncExitStack() as stack:
            listings = [await _listing(which, each, here, client, stack, kind == ALL) for which, each in wanted]
            alone = not given and len(kinds) == 1 and kinds[0] in ONLY and not is_plural(kind) and not all_clusters
            one = given == 1 or alone
            await show(listings, form, manner, single=one and kinds != [ROLLOUT])

    if set(kinds) <= {*OF_THE_API}:  # the cluster's API alone is asked, even while Temporal does not answer
        asyncio.run(body(None))
    else:
        here.run(body, everywhere=all_clusters or kinds == [CLUSTER])


def _targets(kind: str, names: list[str]) -> list[tuple[str, list[str]]]:
    """Kinds and their names. Raises a usage error."""
    if kind != ALL:
        return targets(kind, names, KINDS, also=(ALL,))
    if names:
        raise typer.BadParameter("all takes no names: get all, or get machine/NAME pool/NAME")
    return [(which, []) for which in EVERYTHING]


def _judge(word: str, which: str, names: list[str], selector: str | None, all_clusters: bool) -> None:
    """Raises a usage error where this kind is not selected so."""
    if which == CLUSTER and (selector is not None or all_clusters):
        raise typer.BadParameter("clusters cannot be selected with -l or -A: get clusters [NAME...]")
    if which in ONLY and (selector is not None or (names and all_clusters)):
        raise typer.BadParameter(f"a cluster has one control plane: get {word} [--cluster C], or -A")
    if which in (POOL, WORKER_POOL, ROLLOUT) and (selector is not None or (names and all_clusters)):
        raise typer.BadParameter(f"select them by the pool's name: get {word} [NAME...] [--cluster C], or -A")
    if which in (CONFIG_POOL, *CONFIG_OBJECTS) and all_clusters:
        raise typer.BadParameter(f"they are listed for one cluster: get {word} [NAME...] [--cluster C]")
    if which == CLASS and (selector is not None or (names and all_clusters)):
        raise typer.BadParameter("select classes by name: get classes [NAME...] [--cluster C], or -A")


async def _listing(
    which: str,
    wanted: MachineFilter,
    here: Session,
    client: HostlerClient | None,
    stack: AsyncExitStack,
    among_all: bool,
) -> Listing[Any]:
    """What is to be shown of a kind; only those of the cluster's API can do without a client. `among_all`: it is one of
    all kinds, which shall not wait for the API of a cluster."""
    from starter.commands import (
        classes,
        clusters,
        config_pools,
        control_planes,
        machine_configs,
        machines,
        nodes,
        pools,
        rollout_rows,
        worker_pools,
    )

    names, everywhere = wanted.chosen.names, wanted.chosen.all_clusters
    if which in CONFIG_OBJECTS:
        return await machine_configs.listing(which, here, wanted.chosen, stack)
    if client is None or which == NODE:
        return await nodes.listing(here, wanted.chosen, stack)
    if which == CONFIG_POOL and among_all:
        return config_pools.known(client, everywhere)
    if which == CONFIG_POOL:
        return config_pools.listing(client, names, str(wanted.chosen.selector or ""))
    if which == CLUSTER:
        return clusters.listing(client, names)
    if which == POOL:
        return pools.listing(client, names, everywhere)
    if which == WORKER_POOL:
        return worker_pools.listing(client, names, everywhere)
    if which == CONTROL_PLANE:
        return control_planes.listing(client, names, everywhere)
    if which == ROLLOUT:
        return rollout_rows.listing(client, names, everywhere)
    if which == CLASS:
        return classes.listing(client, names, everywhere)
    return machines.listing(client, wanted)

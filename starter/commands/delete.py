"""hostler delete, hostler renew"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates, classes, pools
from starter.commands.blocks import command
from starter.commands.common import (
    Asking,
    ForceOption,
    KindArgument,
    NamesArgument,
    ReasonOption,
    Session,
    TimeoutOption,
    one,
    span,
    target,
    tell_each,
)
from starter.commands.kinds import CLASS, CLUSTER, MACHINE, POOL
from starter.commands.selection import Key, Others, Selection
from starter.outlet import say

if TYPE_CHECKING:
    from datetime import timedelta

    from starter.sdk.client import HostlerClient

KINDS = (MACHINE, POOL, CLASS, CLUSTER)


@command
def delete(
    *,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="machine, pool, class or cluster.",
            show_default=False,
            autocompletion=candidates.kinds(MACHINE, "pool", "class", CLUSTER),
        ),
    ] = None,
    names: NamesArgument = None,
    files: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", help="Delete the pools and Machines of these manifests; repeatable."),
    ] = None,
    among: Others,
    force: ForceOption = False,
    abandon_node: Annotated[
        bool,
        typer.Option(
            "--abandon-node",
            help=(
                "With --force, for a cluster that will never answer again: once the VM is gone, leave its Node "
                "behind and say so."
            ),
        ),
    ] = False,
    reason: ReasonOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are gone.")] = False,
    timeout: TimeoutOption = None,
    here: Asking,
) -> None:
    """Delete machines: drain, then the VM, its disks and its Node; or pools with all their machines. Classes and
    Secrets of a file are left alone. A deleted machine of a pool is replaced: `hostler scale` makes a pool smaller.

    `delete class NAME` is refused while machines or pools use the class. `delete cluster NAME` stops watching a cluster
    that has no pools and machines left; the cluster itself is not touched.
    """
    limit = span(timeout)
    which, given = target(kind, names or [], KINDS) if kind else (MACHINE, [])
    if abandon_node and (not force or which != MACHINE or files):
        raise typer.BadParameter("--abandon-node is for machines only: delete machine NAME... --force --abandon-node")
    if which == CLUSTER:
        if among or force or files or wait:
            raise typer.BadParameter("for a cluster: delete cluster NAME [--reason TEXT] [--dry-run]")
        _remove_cluster(here, one(kind or "", given[0] if len(given) == 1 else None, KINDS)[1], reason, dry_run)
        return
    if which == CLASS:
        if among or force or files or wait:
            raise typer.BadParameter("for classes: delete class NAME... [--reason TEXT] [--dry-run]")
        classes.delete_classes(here, classes.named(given), reason, dry_run)
        return
    if which == POOL:
        if among or files:
            raise typer.BadParameter("for pools: delete pool NAME... [--force] [--wait] [--reason TEXT] [--dry-run]")
        keys = pools.named(given)
        here.run(lambda c: _pools(c, [(c.cluster, name) for name in keys], force, reason, dry_run, wait, limit))
        return
    if files and (given or among.some):
        raise typer.BadParameter("give either files (-f) or machines")
    chosen = Selection() if files else among.choice(given)

    async def body(client: HostlerClient) -> None:
        in_files, machines = _of_files(client, here.cluster, files) if files else ([], await chosen.keys(client))
        if in_files:
            await _pools(client, in_files, force, reason, dry_run, wait, limit)
        if not machines and not in_files:
            say(chosen.nothing(client), err=True)
        if not machines:
            return
        if dry_run:
            for its_cluster, machine in machines:
                await client.life(machine, cluster=its_cluster)  # a mistyped name is reported here too
            say(*(f"{chosen.label(key)} deletion (dry run)" for key in machines))
            return

        async def ask(key: Key) -> str:
            sent = await client.delete(key[1], force=force, abandon_node=abandon_node, reason=reason, cluster=key[0])
            return sent.message if sent.gone else f"deletion: {sent.message}"

        await tell_all(machines, chosen, ask)
        if wait:
            from starter.commands.wait import wait_for_all

            await wait_for_all(client, machines, chosen, "deleted", limit)

    here.run(body)


async def _pools(
    client: HostlerClient,
    keys: list[Key],
    force: bool,
    reason: str,
    dry_run: bool,
    wait: bool,
    limit: timedelta | None,
) -> None:
    await pools.delete_pools(client, keys, force, reason, dry_run)
    if wait and not dry_run:
        from starter.commands.wait import wait_for_pools
        from starter.sdk.pools.waiting import Goal

        await wait_for_pools(client, keys, Goal.DELETED, limit)


def _of_files(client: HostlerClient, cluster: str | None, files: list[str]) -> tuple[list[Key], list[Key]]:
    """Cluster and name of every pool, and of every Machine, in the files."""
    from starter.commands import files as manifests
    from starter.outlet import warn

    loaded = manifests.read(files)
    left = [f"secret/{s.metadata.name}" for s in loaded.secrets]
    left += [f"machineclass/{c.metadata.name}" for c in loaded.classes]
    if left:
        warn(f"{', '.join(left)}: not deleted; machines that are being deleted still need them")
    in_files = [(client.cluster_of(p, cluster), p.metadata.name) for p in loaded.pools]
    return in_files, [(client.cluster_of(m, cluster), m.metadata.name) for m in loaded.machines]


async def tell_all(machines: list[Key], chosen: Selection, ask: Callable[[Key], Awaitable[str]]) -> None:
    """Tells all of them, even after one that fails, and raises what failed at the end."""
    await tell_each({key: chosen.label(key) for key in machines}, ask)


@command
def renew(
    *,
    kind: KindArgument,
    names: NamesArgument = None,
    among: Others,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Let machines, pools, classes or a cluster's watch continue with the newest code, and retry what is parked."""
    which, given = target(kind, names or [], KINDS)
    if which == CLUSTER:
        if among:
            raise typer.BadParameter("for a cluster: renew cluster NAME [--reason TEXT]")
        _renew_cluster(here, one(kind, given[0] if len(given) == 1 else None, KINDS)[1], reason)
        return
    if which == CLASS:
        if among:
            raise typer.BadParameter("for classes: renew class NAME... [--reason TEXT]")
        classes.renew_classes(here, classes.named(given), reason)
        return
    if which == POOL:
        if among:
            raise typer.BadParameter("for pools: renew pool NAME... [--reason TEXT]")
        pools.renew_pools(here, pools.named(given), reason)
        return
    chosen = among.choice(given)

    async def body(client: HostlerClient) -> None:
        machines = await chosen.keys(client)
        if not machines:
            say(chosen.nothing(client), err=True)

        async def ask(key: Key) -> str:
            return f"renewal: {(await client.renew(key[1], reason=reason, cluster=key[0])).message}"

        await tell_all(machines, chosen, ask)

    here.run(body)


# -- clusters ---------------------------------------------------------------------------------------------------------


def _remove_cluster(here: Session, name: str, reason: str, dry_run: bool) -> None:
    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy("waiting for a worker's answer") as busy:
            if dry_run:
                await client.clusters.removable(name)
                busy.say(f"cluster/{name} removal (dry run)")
                return
            busy.say(f"cluster/{name} removal: {(await client.clusters.remove(name, reason=reason)).message}")

    here.run(body)


def _renew_cluster(here: Session, name: str, reason: str) -> None:
    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy("waiting for a worker's answer") as busy:
            busy.say(f"cluster/{name} renewal: {(await client.clusters.renew(name, reason=reason)).message}")

    here.run(body)

"""hostler delete, hostler renew"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands import (
    candidates,
    classes,
    clusters,
    control_planes,
    fleets,
    machine_configs,
    pools,
    worker_pools,
)
from starter.commands.blocks import command
from starter.commands.common import (
    Asking,
    ForceOption,
    KindArgument,
    NamesArgument,
    ReasonOption,
    TimeoutOption,
    named,
    span,
    target,
    tell_each,
)
from starter.commands.kinds import (
    ALL,
    CLASS,
    CLUSTER,
    CONFIG_POOL,
    CONTROL_PLANE,
    KUBELET_CONFIG,
    MACHINE,
    MACHINE_CONFIG,
    POOL,
    RENDERING,
    WORKER_POOL,
)
from starter.commands.selection import Among, Others, Selection
from starter.outlet import say

if TYPE_CHECKING:
    from datetime import timedelta

    from resources.machine_config.objects import ConfigObject
    from resources.manifests import ClusterManifest
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityClient, EntityKey
    from starter.sdk.results import Sent

KINDS = (MACHINE, POOL, CONTROL_PLANE, CLASS, CLUSTER)
CONFIGS = (CONFIG_POOL, MACHINE_CONFIG, KUBELET_CONFIG)
"""Objects of the cluster's own API."""
DELETED = (*KINDS, WORKER_POOL, *CONFIGS)
RENEWED = (*KINDS, CONFIG_POOL, MACHINE_CONFIG)
USAGE = {
    POOL: "for pools: {} pool NAME...",
    WORKER_POOL: "for worker pools: {} workerpool NAME...",
    CONTROL_PLANE: "for the control plane: {} controlplane",
    CLASS: "for classes: {} class NAME...",
    CLUSTER: "for a cluster: {} cluster NAME",
    CONFIG_POOL: "for config pools: {} mcp NAME...",
    MACHINE_CONFIG: "for MachineConfigs: {} mc NAME...",
    KUBELET_CONFIG: "for KubeletConfigs: {} kubeletconfig NAME...",
    RENDERING: "for what renders a cluster's machine configs: {} machineconfigs/CLUSTER",
}


@command
def delete(
    *,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="machine, pool, workerpool, controlplane, class, cluster, mcp, mc or kubeletconfig.",
            show_default=False,
            autocompletion=candidates.kinds(
                *(MACHINE, "pool", WORKER_POOL, "controlplane", "class", CLUSTER, "mcp", "mc", KUBELET_CONFIG)
            ),
        ),
    ] = None,
    names: NamesArgument = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--filename",
            help="Delete what these manifests describe, but for classes, Secrets and ControllerConfigs; repeatable.",
        ),
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
    """Delete machines: drain, then the VM, its disks and its Node; or pools with all their machines; a worker pool with
    its zones. Classes and Secrets of a file are left alone. A deleted machine of a pool is replaced: `hostler scale`
    makes a pool smaller.

    `delete controlplane` ends only the set: its machines stay, without an owner.
    `delete class NAME` is refused while machines or pools use the class. `delete cluster NAME` stops watching a cluster
    that has no pools and machines left; the cluster itself is not touched.
    `delete mcp|mc|kubeletconfig NAME` deletes the object in the cluster's own API, and says how many nodes are updated
    because of it; --dry-run says it beforehand.
    """
    which, given = target(kind, names or [], DELETED) if kind else (MACHINE, [])
    how = DeleteOptions(force, abandon_node, reason, dry_run, wait, span(timeout))
    if abandon_node and (not force or which != MACHINE or files):
        raise typer.BadParameter("--abandon-node is for machines only: delete machine NAME... --force --abandon-node")
    forced, awaited = which in (POOL, WORKER_POOL), which == WORKER_POOL or which in fleets.KINDS
    unfit = files or (force and not forced) or (wait and not awaited) or (reason and which in CONFIGS)
    options = f"{'[--force] ' * forced}{'[--wait] ' * awaited}{'[--reason TEXT] ' * (which not in CONFIGS)}[--dry-run]"
    if files and which == MACHINE and (given or among.some):
        raise typer.BadParameter("give either files (-f) or machines")
    chosen = Selection() if files and which == MACHINE else _chosen("delete", which, given, among, unfit, options)

    async def body(client: HostlerClient) -> None:
        found = _of_files(client, here.cluster, files) if files else {which: await chosen.keys(client)}
        if not any(found.values()):
            say(chosen.nothing(client), err=True)
        for of, keys in found.items():
            if keys:
                await _delete(client, replace(chosen, kind=of), keys, how)

    here.run(body)


def _chosen(verb: str, which: str, names: list[str], among: Among, unfit: object, options: str) -> Selection:
    """What a command is about. Only machines are chosen otherwise than by name. Raises a usage error; `unfit`: options
    were given that are not for this kind."""
    if which == MACHINE:
        return among.choice(names)
    if among or unfit:
        raise typer.BadParameter(f"{USAGE[which].format(verb)} {options}")
    if which == CLUSTER and len(names) != 1:
        raise typer.BadParameter("give one cluster: cluster NAME")
    return Selection(tuple(named(which, names)), kind=which)


# -- delete -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeleteOptions:
    """How things are deleted."""

    force: bool
    abandon_node: bool
    reason: str
    dry_run: bool
    wait: bool
    limit: timedelta | None


async def _machine_foretold(client: HostlerClient, key: EntityKey) -> str:
    await client.life(key[1], cluster=key[0])  # a mistyped name is reported here too
    return "deletion (dry run)"


def _end_machine(client: HostlerClient, key: EntityKey, how: DeleteOptions) -> Awaitable[Sent]:
    cluster, name = key
    return client.delete(name, force=how.force, abandon_node=how.abandon_node, reason=how.reason, cluster=cluster)


async def _end_config(which: str, client: HostlerClient, key: EntityKey, _: DeleteOptions) -> list[str]:
    return await machine_configs.delete(which, client, key)


FORETOLD: dict[str, Callable[[HostlerClient, EntityKey], Awaitable[str | list[str]]]] = {
    MACHINE: _machine_foretold,
    POOL: pools.deletion_foretold,
    WORKER_POOL: worker_pools.deletion_foretold,
    CONTROL_PLANE: control_planes.deletion_foretold,
    CLASS: classes.deletion_foretold,
    CLUSTER: clusters.removal_foretold,
    **{which: partial(machine_configs.deletion_foretold, which) for which in CONFIGS},
}
"""What --dry-run says. Each raises what the deletion would be refused with."""
ENDED: dict[str, Callable[[HostlerClient, EntityKey, DeleteOptions], Awaitable[Sent | list[str]]]] = {
    MACHINE: _end_machine,
    POOL: lambda client, key, o: pools.delete(client, key, force=o.force, reason=o.reason),
    WORKER_POOL: lambda client, key, o: worker_pools.delete(client, key, force=o.force, reason=o.reason),
    CONTROL_PLANE: lambda client, key, o: client.control_planes.delete(key[1], reason=o.reason, cluster=key[0]),
    CLASS: lambda client, key, o: client.classes.delete(key[1], reason=o.reason, cluster=key[0]),
    CLUSTER: lambda client, key, o: client.clusters.remove(key[1], reason=o.reason),
    **{which: partial(_end_config, which) for which in CONFIGS},
}


async def _delete(client: HostlerClient, chosen: Selection, keys: Sequence[EntityKey], how: DeleteOptions) -> None:
    """Tells all of them, even after one that fails, and waits for their ends where that is asked for."""

    async def ask(key: EntityKey) -> str | list[str]:
        if how.dry_run:
            return await FORETOLD[chosen.kind](client, key)
        sent = await ENDED[chosen.kind](client, key, how)
        if isinstance(sent, list):
            return sent
        return sent.message if sent.gone else f"{'removal' if chosen.kind == CLUSTER else 'deletion'}: {sent.message}"

    zones = await worker_pools.zones_of(client, keys) if chosen.kind == WORKER_POOL else []
    await tell_each(chosen.labelled(keys), ask)
    if how.wait and not how.dry_run:
        from starter.commands.wait import wait_for_all, wait_for_fleets
        from starter.sdk.fleet.waiting import Goal

        if chosen.kind in fleets.KINDS:
            await wait_for_fleets(client, chosen.kind, keys, Goal.DELETED, how.limit)
        elif chosen.kind == WORKER_POOL:
            await wait_for_fleets(client, POOL, zones, Goal.DELETED, how.limit)
            await tell_each(chosen.labelled(keys), ask)  # the classes, which machines had until now
        else:
            await wait_for_all(client, keys, chosen, "deleted", how.limit)


def _of_files(client: HostlerClient, cluster: str | None, files: list[str]) -> dict[str, list[EntityKey]]:
    """Cluster and name of all in the files that has a life of its own; what owns machines is deleted first."""
    from resources.validation import Validate
    from starter.commands.files import read
    from starter.outlet import warn

    loaded = read(files, Validate.IGNORE)  # kubectl delete has no --validate either: only names are used
    left = [f"secret/{s.metadata.name}" for s in loaded.secrets]
    left += [f"machineclass/{c.metadata.name}" for c in loaded.classes]
    if left:
        warn(f"{', '.join(left)}: not deleted; machines that are being deleted still need them")
    configs = {which: [c for c in loaded.configs if c.KIND.singular == which] for which in CONFIGS}
    if kept := [f"controllerconfig/{c.name}" for c in loaded.configs if c.KIND.singular not in CONFIGS]:
        warn(f"{', '.join(kept)}: not deleted; what the templates make of it is on every node")
    found: dict[str, Sequence[ClusterManifest | ConfigObject]] = {
        WORKER_POOL: loaded.worker_pools,
        POOL: loaded.pools,
        CONTROL_PLANE: loaded.control_planes,
        MACHINE: loaded.machines,
        **configs,
    }
    return {of: [(client.cluster_of(m, cluster), m.metadata.name) for m in some] for of, some in found.items()}


# -- renew ------------------------------------------------------------------------------------------------------------


@command
def renew(
    *,
    kind: KindArgument,
    names: NamesArgument = None,
    among: Others,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Let machines, pools, the control plane, classes, config pools (mcp), the rendering of a cluster's machine configs
    (machineconfigs/CLUSTER) or a cluster's watch continue with the newest code, and retry what is parked.

    `renew all` is for all of them in the cluster (-A: in all clusters), after an upgrade of the workers.
    """
    if kind == ALL:
        if names or among.some:
            raise typer.BadParameter("all takes no names, and is for all of a cluster: renew all [-A]")
        chosen = None
    else:
        which, given = target(kind, names or [], RENEWED, also=(ALL,))
        which = RENDERING if which == MACHINE_CONFIG else which
        chosen = _chosen("renew", which, given, among, False, "[--reason TEXT]")

    async def body(client: HostlerClient) -> None:
        shelves: dict[str, EntityClient[Any]] = {
            MACHINE: client,
            POOL: client.pools,
            CONTROL_PLANE: client.control_planes,
            CLASS: client.classes,
            CLUSTER: client.clusters,
            CONFIG_POOL: client.config_pools,
            RENDERING: client.machine_configs,
        }
        found = [(chosen, await chosen.keys(client))] if chosen else await _everything(client, among.all_clusters)
        if not any(keys for _, keys in found):
            say((chosen or Selection(all_clusters=among.all_clusters)).nothing(client), err=True)

        async def ask(key: tuple[str, EntityKey]) -> str:
            of, (cluster, name) = key
            return f"renewal: {(await shelves[of].renew(name, reason=reason, cluster=cluster)).message}"

        await tell_each({(some.kind, key): some.label(key) for some, keys in found for key in keys}, ask)

    here.run(body)


async def _everything(client: HostlerClient, all_clusters: bool) -> list[tuple[Selection, list[EntityKey]]]:
    """All that can be renewed; those who are told things by the others come first."""
    from starter.sdk.clusters import NOT_WATCHED

    watched = [c.name for c in await client.clusters.list() if c.phase != NOT_WATCHED]
    where = watched if all_clusters else [name for name in watched if name == client.cluster]
    classes = [(c.cluster, c.name) for c in await client.classes.list(all_clusters=all_clusters)]
    pools = [(p.cluster, p.name) for p in await client.pools.list(all_clusters=all_clusters)]
    sets = [(c.cluster, c.name) for c in await client.control_planes.list(all_clusters=all_clusters)]
    configs = await client.config_pools.known(all_clusters=all_clusters)
    rendering = [name for name in await client.machine_configs.known() if all_clusters or name == client.cluster]
    machines = [(m.cluster, m.name) for m in await client.list(all_clusters=all_clusters)]
    return [
        (Selection(kind=CLUSTER), [(name, name) for name in where]),
        (Selection(kind=CLASS, all_clusters=all_clusters), classes),
        (Selection(kind=POOL, all_clusters=all_clusters), pools),
        (Selection(kind=CONTROL_PLANE, all_clusters=all_clusters), sets),
        (Selection(kind=RENDERING), [(name, name) for name in rendering]),
        (Selection(kind=CONFIG_POOL, all_clusters=all_clusters), configs),
        (Selection(kind=MACHINE, all_clusters=all_clusters), machines),
    ]

"""hostler delete, hostler renew"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.common import (
    AsOption,
    ClusterOption,
    KindArgument,
    NameArgument,
    SettingsOption,
    one_machine,
    session,
    span,
    target,
)

if TYPE_CHECKING:
    from starter.client import HostlerClient


def delete(
    ctx: typer.Context,
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="machine", show_default=False)] = None,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default=False)] = None,
    files: Annotated[
        list[str] | None, typer.Option("-f", "--filename", help="Delete the Machines of these manifests; repeatable.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Shorten the drain: pods are deleted, not evicted. Clean-up is never skipped."),
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the journal.", show_default=False)] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are gone.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="With --wait: give up after so long.", show_default="no limit")
    ] = None,
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
    requested_by: AsOption = None,
) -> None:
    """Delete machines: drain, then the VM, its disks and its Node. Classes and Secrets of a file are left alone."""
    here = session(ctx, cluster, settings, requested_by)
    limit = span(timeout)
    given = target(kind, names or [])[1] if kind else []
    if not given and not files:
        raise typer.BadParameter("give names (machine NAME...) or files (-f)")

    async def body(client: HostlerClient) -> None:
        machines = [(client.cluster, n) for n in given] + _of_files(client, here.cluster, files or [])
        await _delete_all(client, machines, force, reason)
        if wait:
            from starter.commands.wait import wait_for

            for its_cluster, machine in machines:
                await wait_for(client, machine, "deleted", limit, its_cluster)

    here.run(body)


def _of_files(client: HostlerClient, cluster: str | None, files: list[str]) -> list[tuple[str, str]]:
    """Cluster and name of every Machine of the files."""
    if not files:
        return []
    from starter import files as manifests
    from starter.output import warn

    loaded = manifests.read(files)
    left = [f"secret/{s.metadata.name}" for s in loaded.secrets]
    left += [f"machineclass/{c.metadata.name}" for c in loaded.classes]
    if left:
        warn(f"{', '.join(left)}: left alone; machines that are going still need them")
    return [(client.cluster_of(m, cluster), m.metadata.name) for m in loaded.machines]


async def _delete_all(client: HostlerClient, machines: list[tuple[str, str]], force: bool, reason: str) -> None:
    """All of them, also after one that fails; raises what failed at the end."""
    from starter.errors import HostlerError, Unreachable
    from starter.output import Busy

    failures = []
    async with Busy("waiting for a worker's answer") as busy:
        for cluster, name in machines:
            try:
                sent = await client.delete(name, force=force, reason=reason, cluster=cluster)
                busy.echo(f"machine/{name} {sent.message}" if sent.gone else f"machine/{name} deletion: {sent.message}")
            except Unreachable:
                raise
            except HostlerError as e:
                failures.append(str(e))
    if failures:
        raise HostlerError("\n".join(failures))


def renew(
    ctx: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the journal.", show_default=False)] = "",
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
    requested_by: AsOption = None,
) -> None:
    """Let a machine go on with the newest code, and try again what stands still."""
    machine = one_machine(kind, name)

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy("waiting for a worker's answer") as busy:
            sent = await client.renew(machine, reason=reason)
            busy.echo(f"machine/{machine} renewal: {sent.message}")

    session(ctx, cluster, settings, requested_by).run(body)

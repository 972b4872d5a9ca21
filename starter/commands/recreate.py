"""hostler recreate"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.common import (
    AllClustersOption,
    AllOption,
    AsOption,
    ClusterOption,
    ForceOption,
    MachineArgument,
    NamesArgument,
    ReasonOption,
    SelectorOption,
    SettingsOption,
    TimeoutOption,
    session,
    span,
    target,
)
from starter.commands.delete import tell_all
from starter.commands.selection import Key, choice
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient


def recreate(
    ctx: typer.Context,
    kind: MachineArgument,
    names: NamesArgument = None,
    selector: SelectorOption = None,
    everything: AllOption = False,
    all_clusters: AllClustersOption = False,
    force: ForceOption = False,
    reason: ReasonOption = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new ones are Running.")] = False,
    timeout: TimeoutOption = None,
    cluster: ClusterOption = None,
    settings: SettingsOption = None,
    requested_by: AsOption = None,
) -> None:
    """Replace machines: drain, then the VM, its disks and its Node go; when all is gone a new life of the same name
    begins, with the newest spec and class. `hostler delete` meanwhile cancels the new life.
    """
    here = session(ctx, cluster, settings, requested_by)
    limit = span(timeout)
    chosen = choice(target(kind, names or [])[1], selector, everything, all_clusters)

    async def body(client: HostlerClient) -> None:
        machines = await chosen.keys(client)
        if not machines:
            say(chosen.nothing(client), err=True)
            return
        formers: dict[Key, str] = {}

        async def ask(key: Key) -> str:
            sent = await client.recreate(key[1], force=force, reason=reason, cluster=key[0])
            formers[key] = sent.uid
            return f"{'recreation' if sent.recorded else 'is being recreated'}: {sent.message}"

        await tell_all(machines, chosen, ask)
        if wait:
            from resources.machine import Phase
            from starter.commands.wait import wait_for_all

            await wait_for_all(client, machines, chosen, Phase.RUNNING, limit, unlike=formers)

    here.run(body)

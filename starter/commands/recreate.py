"""hostler recreate"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import (
    Asking,
    ForceOption,
    MachineArgument,
    NamesArgument,
    ReasonOption,
    TimeoutOption,
    span,
    target,
    tell_each,
)
from starter.commands.selection import Others
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey


@command
def recreate(
    *,
    kind: MachineArgument,
    names: NamesArgument = None,
    among: Others,
    force: ForceOption = False,
    reason: ReasonOption = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the new ones are Running.")] = False,
    timeout: TimeoutOption = None,
    here: Asking,
) -> None:
    """Replace machines: drain the Node, delete the VM, its disks and its Node; when all is gone, create a machine of
    the same name again, with the newest spec and class. `hostler delete` in the meantime cancels the re-creation.
    """
    limit = span(timeout)
    chosen = among.choice(target(kind, names or [])[1])

    async def body(client: HostlerClient) -> None:
        machines = await chosen.keys(client)
        if not machines:
            say(chosen.nothing(client), err=True)
            return
        formers: dict[EntityKey, str] = {}

        async def ask(key: EntityKey) -> str:
            sent = await client.recreate(key[1], force=force, reason=reason, cluster=key[0])
            formers[key] = sent.uid
            return f"{'recreation' if sent.recorded else 'is being recreated'}: {sent.message}"

        await tell_each(chosen.labelled(machines), ask)
        if wait:
            from resources.machine.state import Phase
            from starter.commands.wait import wait_for_all

            await wait_for_all(client, machines, chosen, Phase.RUNNING, limit, unlike=formers)

    here.run(body)

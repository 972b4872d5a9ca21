"""hostler update-class"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient


@command
def update_class(
    *,
    machine: Annotated[
        str, typer.Argument(metavar="MACHINE", help="Its name.", autocompletion=candidates.machine_names)
    ],
    machine_class: Annotated[
        str,
        typer.Argument(
            metavar="CLASS", help="Its new class, which must have been applied.", autocompletion=candidates.class_names
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="The reason, for the journal.", show_default=False)] = "",
    here: Asking,
) -> None:
    """Give a machine another class, or its own class's newest generation: what can be updated is updated on the running
    VM; if other fields differ, the machine is Outdated until `hostler recreate`. It is never replaced on its own.
    """

    async def body(client: HostlerClient) -> None:
        from starter.output import Busy

        async with Busy("waiting for a worker's answer") as busy:
            sent = await client.update_class(machine, machine_class, reason=reason)
            busy.say(f"machine/{machine} {'configured: ' if sent.recorded else ''}{sent.message}")

    here.run(body)

"""`hostler controlplane …`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Reading, SelectorOption

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

app = typer.Typer(
    help="Write a control plane's manifest from machines that exist: generate.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """A group of its own, though it has one command."""


@app.command("generate")
@command
def generate(
    *,
    machines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MACHINE...]",
            help="The machines; by default those whose labels or node template say that they are of the control plane.",
            autocompletion=candidates.machine_names,
        ),
    ] = None,
    selector: SelectorOption = None,
    here: Reading,
) -> None:
    """Print a ControlPlaneMachineSet for machines that exist, to be looked at and applied.

    It is Inactive, so that applying it changes nothing: `hostler describe controlplane` then says what it would do, and
    `state: Active` lets it. Its template is the newest machine's, and its failure domains are those that the machines
    are in. A cluster whose control plane is Active has its manifest already.
    """
    from starter.commands.selection import listing
    from starter.outlet import say
    from starter.output import dump

    chosen = listing(machines or [], selector, all_clusters=False)

    async def body(client: HostlerClient) -> None:
        from starter.sdk.control_plane.generating import generate

        named = [name for _, name in await chosen.keys(client)] if chosen.names or chosen.selector else None
        made = await generate(client, named)
        say(*dump([made], "yaml", single=True).split("\n"))

    here.run(body)

"""`hostler hook …`: what holds a machine before its drain, and before its VM is deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from resources.machine.manifest import HookKind
from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.candidates import Candidates
from starter.commands.common import Asking, Reading, ReasonOption, Session, reading, tell_each
from starter.commands.forms import Manner, OutputOption, form_of
from starter.commands.kinds import ALIASES, MACHINE

if TYPE_CHECKING:
    from resources.machine.state import MachineState
    from starter.sdk.client import HostlerClient
    from starter.sdk.machines.hooks import Held
    from starter.sdk.results import Json, Sent

app = typer.Typer(
    help="Hold up a machine's drain (preDrain) or the deletion of its VM (preTerminate): add, remove, list.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def hooks_there(ctx: typer.Context, incomplete: str) -> Candidates:
    """Names of the hooks that the machine on the command line has."""
    import asyncio

    return asyncio.run(asyncio.wait_for(_hooks_there(ctx, incomplete), candidates.PATIENCE))


async def _hooks_there(ctx: typer.Context, incomplete: str) -> Candidates:
    from starter.sdk.client import HostlerClient
    from starter.sdk.machines.hooks import hooks_of

    here = reading(ctx, ctx.params.get("cluster"), ctx.params.get("settings"))
    async with HostlerClient.connect(here.settings, cluster=here.cluster) as client:
        found = hooks_of(await client.get(_machine(ctx.params["machine"])))
    return [(h.name, f"{h.kind}, {h.owner}") for h in found if h.name.startswith(incomplete)]


HEADER = ("KIND", "NAME", "OWNER", "HOLDS", "FROM")
SPEC = "spec"
HookedMachineArgument = Annotated[
    str, typer.Argument(metavar="MACHINE", help="m1 or machine/m1.", autocompletion=candidates.machine_names)
]
NewNameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help=("CamelCase, optionally after a DNS name: EtcdQuorumOperator, example.com/Backup.")
    ),
]
HookArgument = Annotated[str, typer.Argument(metavar="NAME", help="The hook.", autocompletion=hooks_there)]
OwnerOption = Annotated[
    str, typer.Option("--owner", help="Who removes the hook and can be asked about it.", show_default=False)
]


@app.command("add")
@command
def add(
    *,
    machine: HookedMachineArgument,
    hook: NewNameArgument,
    owner: OwnerOption,
    kind: Annotated[HookKind, typer.Option("--kind", help="What the hook holds up.")] = HookKind.PRE_DRAIN,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Hold up a machine's deletion until the hook is removed. Not possible once the machine is being deleted."""

    async def ask(client: HostlerClient, name: str) -> Sent:
        return await client.hooks.add(name, hook, owner=owner, kind=kind, reason=reason)

    _tell(here, machine, ask)


@app.command("remove")
@command
def remove(
    *,
    machine: HookedMachineArgument,
    hook: HookArgument,
    owner: Annotated[
        str, typer.Option("--owner", help="Remove it only if it belongs to this owner.", show_default="whoever's")
    ] = "",
    kind: Annotated[
        HookKind | None, typer.Option("--kind", help="Needed if hooks of both kinds have the name.", show_default=False)
    ] = None,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Remove a hook from a machine, so that it no longer holds up the deletion. Do it when the hook's work is done."""

    async def ask(client: HostlerClient, name: str) -> Sent:
        return await client.hooks.remove(name, hook, owner=owner, kind=kind, reason=reason)

    _tell(here, machine, ask)


@app.command("list")
@command
def show(
    *,
    machine: HookedMachineArgument,
    kind: Annotated[HookKind | None, typer.Option("--kind", help="Only these.", show_default=False)] = None,
    output: OutputOption = "table",
    here: Reading,
) -> None:
    """List the hooks of a machine: those of its spec, and those that were added."""
    from starter.commands.rows import Column, Listing
    from starter.commands.rows import show as show_rows

    name, form = _machine(machine), form_of(output)

    async def objects(found: list[Held]) -> list[Json | None]:
        return [h.plain() for h in found]

    async def body(client: HostlerClient) -> None:
        now = datetime.now(UTC)
        listing = Listing(
            [Column(header, partial(_cell, i, now)) for i, header in enumerate(HEADER)],
            find=partial(client.hooks.list, name, kind),
            key=lambda h: (h.kind, h.name),
            objects=objects,
            nothing=f"Machine {name} has no {f'{kind} ' if kind else ''}hooks.",
        )
        await show_rows([listing], form, Manner())

    here.run(body)


def _cell(column: int, now: datetime, hook: Held) -> str:
    return cells(hook, now)[column]


def _tell(here: Session, machine: str, ask: Callable[[HostlerClient, str], Awaitable[Sent]]) -> None:
    name = _machine(machine)

    async def body(client: HostlerClient) -> None:
        async def told(_: str) -> str:
            return (await ask(client, name)).message

        await tell_each({name: f"machine/{name}:"}, told)

    here.run(body)


def _machine(word: str) -> str:
    """The machine's name, from `m1` or `machine/m1`. Raises a usage error."""
    kind, slash, name = word.rpartition("/")
    if (slash and ALIASES.get(kind) != MACHINE) or not name:
        raise typer.BadParameter(f"{word!r} is not a machine; write NAME or machine/NAME")
    return name


# -- words ------------------------------------------------------------------------------------------------------------


def cells(hook: Held, now: datetime) -> tuple[str, ...]:
    from starter.output import relative

    origin = SPEC
    if hook.added is not None:
        by = f" by {hook.added.requested_by}" if hook.added.requested_by else ""
        why = f": {hook.added.reason}" if hook.added.reason else ""
        origin = f"added {relative(hook.added.time, now)}{by}{why}"
    return (hook.kind, hook.name, hook.owner, "now" if hook.holds else "later", origin)


def hook_lines(state: MachineState, now: datetime) -> list[str]:
    """The hooks' lines on the page of a machine; none where it has no hooks."""
    from starter.output import Table
    from starter.sdk.machines.hooks import hooks_of

    rows = [cells(h, now) for h in hooks_of(state)]
    return ["", "Hooks:", *(f"  {line}" for line in Table(HEADER).lines(rows))] if rows else []

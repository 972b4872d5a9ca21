"""`hostler rollout …`: how a pool comes to a new revision, followed and steered; kubectl's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking, Reading, ReasonOption, span, tell_each
from starter.commands.kinds import ALIASES, POOL
from starter.commands.pools import DryRunOption, label
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Sent

app = typer.Typer(
    help="Follow and control the rollouts of pools: status, history, pause, resume, undo, restart, abort.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

PoolsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="POOL",
        help="p1, pool/p1 or machinedeployment/p1.",
        show_default=False,
        autocompletion=candidates.pool_names,
    ),
]
RevisionOption = Annotated[
    int | None, typer.Option("--revision", help="Show the details of this revision.", show_default=False)
]


def pools(words: list[str] | None) -> list[str]:
    """The names, from `p1 p2`, `pool/p1`, `pool p1`. Raises a usage error."""
    words = list(words or [])
    if len(words) > 1 and ALIASES.get(words[0]) == POOL:
        words = words[1:]
    names = []
    for word in words:
        kind, slash, name = word.rpartition("/")
        if slash and ALIASES.get(kind) != POOL:
            raise typer.BadParameter(f"{word!r}: only pools have rollouts; write pool/{name or 'NAME'}")
        if not name:
            raise typer.BadParameter(f"{word!r} has no name; write pool/NAME or NAME")
        names.append(name)
    return names


def some_pools(words: list[str] | None) -> list[str]:
    if not (names := pools(words)):
        raise typer.BadParameter("give a pool: POOL or pool/POOL")
    return names


# -- read -------------------------------------------------------------------------------------------------------------


@app.command()
@command
def status(
    *,
    names: PoolsArgument = None,
    watch: Annotated[
        bool,
        typer.Option(
            "-w/-W",
            "--watch/--no-watch",
            help="Follow it to its end (the default, as in kubectl), or show it once.",
            show_default=False,
        ),
    ] = True,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="Give up after this time (20m, 1h30m).", show_default="no limit")
    ] = None,
    here: Reading,
) -> None:
    """Show the progress of rollouts, step by step and why; follow them to their end. Without POOL: of all pools.

    Exit code, as kubectl's: 0 when rolled out (with --no-watch also while it continues on its own); 1 when it was
    undone, when it is blocked until a person does something, or when the timeout is over.
    """
    given, limit = pools(names), span(timeout)
    if limit is not None and not watch:
        raise typer.BadParameter("--timeout needs --watch")

    async def body(client: HostlerClient) -> None:

        from starter.commands.rollout_follow import follow
        from starter.commands.rollout_view import view
        from starter.screen import screen

        found = given or [p.name for p in await client.pools.list()]
        if not found:
            say(f"No pools found in cluster {client.cluster}.", err=True)
        elif watch:
            await follow(client, found, view(screen()), limit)
        else:
            await _once(client, found)

    here.run(body)


async def _once(client: HostlerClient, names: list[str]) -> None:
    from starter.commands.rollout_view import page
    from starter.sdk.errors import HostlerError, NoAnswer
    from starter.sdk.pools.rollout_look import look
    from starter.sdk.pools.rollout_status import Stand

    failed = []
    for number, name in enumerate(names):
        found = await look(client.pools, name)
        if found.pool.running and found.pool.summary is None:
            raise NoAnswer(found.verdict.words)
        say(*([""] if number else []), *page(found, datetime.now(UTC)))
        if found.verdict.stand is Stand.STANDS:
            failed.append(found.verdict.words.splitlines()[0])
    if failed:
        raise HostlerError("\n".join(failed))


@app.command()
@command
def history(
    *,
    names: PoolsArgument = None,
    revision: RevisionOption = None,
    here: Reading,
) -> None:
    """List the revisions of a pool, who created them and why, and how their rollouts ended."""
    given = some_pools(names)
    if revision is not None and len(given) > 1:
        raise typer.BadParameter("--revision needs exactly one pool")

    async def body(client: HostlerClient) -> None:
        from starter.commands import rollout_history

        for number, name in enumerate(given):
            if number:
                say("")
            if revision is None:
                lines = await rollout_history.table(client, name, titled=len(given) > 1)
            else:
                lines = await rollout_history.page(client, name, revision)
            say(*lines)

    here.run(body)


# -- steer ------------------------------------------------------------------------------------------------------------


def _asks(intent: str, help: str) -> None:
    """Makes a command of that name, for intents of a pool that need no arguments."""

    @app.command(intent, help=help)
    @command
    def asks(
        *,
        names: PoolsArgument = None,
        reason: ReasonOption = "",
        here: Asking,
    ) -> None:
        here.run(_each(some_pools(names), lambda client, name: getattr(client.pools, intent)(name, reason=reason)))


_asks(
    "pause",
    "Pause rollouts, also new ones, until `resume`. The number of replicas is kept up, and failed machines are "
    "replaced.",
)
_asks("resume", "Resume rollouts: after a pause, a canary (pauseAfter), an abort, the deadline, or lost machines.")
_asks("abort", "Stop rollouts where they are: the remaining old machines stay, and lose the rollout's marks.")


@app.command()
@command
def undo(
    *,
    names: PoolsArgument = None,
    to: Annotated[
        int | None,
        typer.Option("--to-revision", help=("The revision to go back to; default: the one before the newest.")),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Go back to an earlier revision, as a new one. Machines of that revision that still exist are not replaced."""
    given = some_pools(names)
    if to is not None and len(given) > 1:
        raise typer.BadParameter("--to-revision needs exactly one pool")
    if dry_run:
        here.run(lambda client: _rehearse(client, given, "rolled back", undo=True, to=to))
    else:
        here.run(_each(given, lambda client, name: client.pools.undo(name, to, reason=reason)))


@app.command()
@command
def restart(
    *,
    names: PoolsArgument = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Replace all machines by the pool's strategy, although nothing else has changed."""
    given = some_pools(names)
    if dry_run:
        here.run(lambda client: _rehearse(client, given, "restarted", restart=True))
    else:
        here.run(_each(given, lambda client, name: client.pools.restart(name, reason=reason)))


def _each(
    names: list[str], ask: Callable[[HostlerClient, str], Awaitable[Sent]]
) -> Callable[[HostlerClient], Awaitable[None]]:
    async def body(client: HostlerClient) -> None:
        async def one(name: str) -> str:
            return (await ask(client, name)).message

        await tell_each({name: label(name) for name in names}, one)

    return body


async def _rehearse(
    client: HostlerClient,
    names: list[str],
    done: str,
    *,
    undo: bool = False,
    to: int | None = None,
    restart: bool = False,
) -> None:
    """The rehearsal, by the pool's own planner, from its present state."""
    from resources.pool.intents import PoolQuestion
    from starter.sdk.errors import Refused
    from starter.sdk.pools.rehearsal import lines

    refused = []
    for name in names:
        found = await client.pools.rehearse(name, PoolQuestion(undo=undo, to=to, restart=restart))
        if found.refused:
            refused.append(f"{label(name)}: {found.refused}")
        else:
            say(f"{label(name)} {done} (dry run)", *lines(found))
    if refused:
        raise Refused("\n".join(refused))

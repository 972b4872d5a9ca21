"""`hostler rollout …`: how a pool comes to a new revision, followed and steered; kubectl's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands import fleets
from starter.commands.blocks import command
from starter.commands.common import Asking, Reading, ReasonOption, span, tell_each
from starter.commands.kinds import CONFIG_POOL, CONTROL_PLANE, POOL
from starter.commands.pools import DryRunOption, warn_of_preserved
from starter.commands.rollout_owners import (
    OwnersArgument,
    PoolsArgument,
    by_zone,
    label,
    owners,
    some_owners,
    some_pools,
)
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Sent

app = typer.Typer(
    help="Follow and control the rollouts of pools, of the control plane and of config pools (mcp/NAME): status, "
    "history, pause, resume; but for the last undo; for pools also approve, reject, restart, abort.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

RevisionOption = Annotated[
    int | None, typer.Option("--revision", help="Show the details of this revision.", show_default=False)
]


# -- read -------------------------------------------------------------------------------------------------------------


@app.command()
@command
def status(
    *,
    names: OwnersArgument = None,
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
    """Show the progress of rollouts, step by step and why; follow them to their end. Without POOL: of the control
    plane, unless it only looks on, and of all pools, those of worker pools' zones among them. Of a config pool:
    `rollout status mcp/worker`.

    Exit code, as kubectl's: 0 when rolled out (with --no-watch also while it continues on its own); 1 when it was
    undone, when it is blocked until a person does something, or when the timeout is over.
    """
    given, limit = owners(names), span(timeout)
    if limit is not None and not watch:
        raise typer.BadParameter("--timeout needs --watch")

    async def body(client: HostlerClient) -> None:
        from starter.commands import config_pools, control_plane_rollout
        from starter.commands.rollout_follow import follow
        from starter.commands.rollout_view import view
        from starter.screen import screen

        found = await by_zone(client, given) or await _all(client)
        pools = [name for kind, name in found if kind == POOL]
        if not found:
            say(f"No pools and no control plane found in cluster {client.cluster}.", err=True)
        steps: list[Callable[[], Awaitable[None]]] = []
        for name in [name for kind, name in found if kind == CONFIG_POOL]:
            follow_one = partial(config_pools.follow, client, name, limit)
            steps.append(follow_one if watch else partial(config_pools.once, client, name))
        if any(kind == CONTROL_PLANE for kind, _ in found):
            of_set = control_plane_rollout
            steps.append(partial(of_set.follow, client, limit) if watch else partial(of_set.once, client))
        if pools:
            one_view = partial(follow, client, pools, view(screen()), limit)
            steps.append(one_view if watch else partial(_once, client, pools))
        await _each_of(steps)

    here.run(body)


async def _all(client: HostlerClient) -> list[tuple[str, str]]:
    """The control plane, unless it only looks on, and all pools."""
    from resources.control_plane.spec import State

    sets = [s for s in await client.control_planes.list() if s.summary is None or s.summary.state is State.ACTIVE]
    return [*((CONTROL_PLANE, s.name) for s in sets), *((POOL, p.name) for p in await client.pools.list())]


async def _each_of(steps: list[Callable[[], Awaitable[None]]]) -> None:
    """Does each of them, also after one that fails, and raises what failed at the end."""
    from starter.sdk.errors import HostlerError, Unreachable

    failed: list[HostlerError] = []
    for step in steps:
        try:
            await step()
        except Unreachable:
            raise
        except HostlerError as e:
            failed.append(e)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise HostlerError("\n".join(str(e) for e in failed))


async def _once(client: HostlerClient, names: list[str]) -> None:
    from starter.commands.rollout_view import page
    from starter.sdk.errors import HostlerError, NoAnswer
    from starter.sdk.fleet.waiting import Stand
    from starter.sdk.pools.rollout_look import look

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
    names: OwnersArgument = None,
    revision: RevisionOption = None,
    here: Reading,
) -> None:
    """List the revisions of a pool or of the control plane, who created them and why; how the rollouts of a pool ended;
    and the configs that a config pool's nodes were given."""
    given = some_owners(names)
    if revision is not None and len(given) > 1:
        raise typer.BadParameter("--revision needs exactly one of them")
    if revision is not None and given[0][0] == CONFIG_POOL:
        raise typer.BadParameter("--revision: a config pool has rendered configs instead: hostler mc diff A B")

    async def body(client: HostlerClient) -> None:
        from starter.commands import config_pools, rollout_history

        found = await by_zone(client, given)
        for number, (kind, name) in enumerate(found):
            if number:
                say("")
            if kind == CONFIG_POOL:
                lines = await config_pools.history(client, name)
            elif revision is None:
                lines = await rollout_history.table(client, kind, name, titled=len(found) > 1)
            else:
                lines = await rollout_history.page(client, kind, name, revision)
            say(*lines)

    here.run(body)


# -- steer ------------------------------------------------------------------------------------------------------------


def _asks(intent: str, help: str, **question: Any) -> None:
    """Makes a command of that name, for intents without arguments of a pool and of the control plane. `question`: as
    for `_each`."""

    @app.command(intent, help=help)
    @command
    def asks(
        *,
        names: OwnersArgument = None,
        reason: ReasonOption = "",
        here: Asking,
    ) -> None:
        here.run(_each(some_owners(names), intent, reason, **question))


_asks(
    "pause",
    "Pause rollouts, also new ones, until `resume`. The number of replicas is kept up, and failed machines are "
    "replaced; a control plane creates and deletes nothing; for a config pool (mcp/NAME) nothing is rendered, and no "
    "further node is given a config.",
)


@app.command()
@command
def resume(
    *,
    names: OwnersArgument = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait for a maintenance window, nor for the pool that goes first."),
    ] = False,
    lasting: Annotated[
        str | None,
        typer.Option("--for", help="With --now: for how long the pool is open (8h).", show_default="4h"),
    ] = None,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Resume rollouts: after a pause, a canary (pauseAfter), an abort, the deadline, or lost machines."""
    if lasting is not None and not now:
        raise typer.BadParameter("--for needs --now")
    given = some_pools(names, "resume --now") if now else some_owners(names)
    at_once = {"now": True, "span": span(lasting)} if now else {}
    here.run(_each(given, "resume", reason, at_once, resume=True))


def _decides(intent: str, help: str) -> None:
    """Makes a command of that name, for a person's verdict on a new revision."""

    @app.command(intent, help=help)
    @command
    def decides(
        *,
        names: PoolsArgument = None,
        revision: Annotated[
            int | None,
            typer.Option("--revision", help="Only if it is this revision that waits.", show_default=False),
        ] = None,
        reason: ReasonOption = "",
        here: Asking,
    ) -> None:
        given = some_pools(names, intent)
        if revision is not None and len(given) > 1:
            raise typer.BadParameter("--revision needs exactly one pool")
        here.run(_each(given, intent, reason, {"revision": revision}))


_decides("approve", "Approve new revisions of pools whose manifest requires it (approval): their rollouts begin.")
_decides("reject", "Reject new revisions that wait for approval: their rollouts are aborted.")


@app.command()
@command
def abort(
    *,
    names: PoolsArgument = None,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Stop rollouts where they are: the remaining old machines stay, and lose the rollout's marks."""
    here.run(_each(some_pools(names, "abort"), "abort", reason))


@app.command()
@command
def undo(
    *,
    names: OwnersArgument = None,
    to: Annotated[
        int | None,
        typer.Option("--to-revision", help=("The revision to go back to; default: the one before the newest.")),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Go back to an earlier revision, as a new one. Machines of that revision that still exist are not replaced."""
    given = some_owners(names, "undo")
    if to is not None and len(given) > 1:
        raise typer.BadParameter("--to-revision needs exactly one of them")
    if dry_run:
        here.run(lambda client: _rehearse(client, given, "rolled back", undo=True, to=to))
    else:
        here.run(_each(given, "undo", reason, undo=True, to=to))


@app.command()
@command
def restart(
    *,
    names: PoolsArgument = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Replace all machines of pools by their strategy, although nothing else has changed."""
    given = some_pools(names, "restart")
    if dry_run:
        here.run(lambda client: _rehearse(client, given, "restarted", restart=True))
    else:
        here.run(_each(given, "restart", reason, restart=True))


def _each(
    given: list[tuple[str, str]], intent: str, reason: str, more: dict[str, Any] | None = None, **question: Any
) -> Callable[[HostlerClient], Awaitable[None]]:
    """`more`: arguments that the intent takes. `question`: what begins or continues a rollout, as a PoolQuestion; which
    preserved machines that deletes is said before it is done."""
    arguments = {**(more or {}), **({"to": question["to"]} if "to" in question else {})}

    async def body(client: HostlerClient) -> None:
        from resources.pool.intents import PoolQuestion

        async def one(owner: tuple[str, str]) -> str:
            kind, name = owner
            if kind == CONFIG_POOL:
                words: str = await getattr(client.config_pools, intent)(name)
                return words
            if question and kind == POOL:
                await warn_of_preserved(client, name, PoolQuestion(**question))
            sent: Sent = await getattr(fleets.shelf_of(client, kind), intent)(name, reason=reason, **arguments)
            return sent.message

        await tell_each({owner: label(*owner) for owner in await by_zone(client, given)}, one)

    return body


async def _rehearse(client: HostlerClient, given: list[tuple[str, str]], done: str, **question: Any) -> None:
    """The rehearsal, by its own planner, from its present state."""
    from starter.sdk.errors import Refused
    from starter.sdk.fleet.rehearsal import lines

    refused = []
    for kind, name in await by_zone(client, given):
        shelf = fleets.shelf_of(client, kind)
        found = await shelf.rehearse(name, shelf.question(**question))
        if found.refused:
            refused.append(f"{fleets.label(kind, name)}: {found.refused}")
        else:
            say(f"{fleets.label(kind, name)} {done} (dry run)", *lines(found))
    if refused:
        raise Refused("\n".join(refused))

"""hostler hibernate, wake; and pools in hostler get|delete|wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import fleets, pool_page
from starter.commands.blocks import command
from starter.commands.common import Asking, NamesArgument, PoolArgument, ReasonOption, named, target, tell_each
from starter.commands.kinds import POOL
from starter.commands.rows import AGE, Column, Listing, phase_style

if TYPE_CHECKING:
    from resources.pool.intents import PoolQuestion, PoolSummary
    from resources.pool.state import PoolState
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.pools.results import PoolListed
    from starter.sdk.results import Json, Sent

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what the pool would do, step by step; change nothing.")
]


# -- hibernate, wake --------------------------------------------------------------------------------------------------


def _slumbers(intent: str, noun: str, done: str, help: str) -> Callable[..., None]:
    """Makes the command of that name."""

    async def question(client: HostlerClient, pool: str) -> PoolQuestion:
        from resources.pool.intents import PoolQuestion

        spec = (await client.pools.get(pool)).spec.model_copy(update={"hibernated": intent == "hibernate"})
        return PoolQuestion(spec=spec)

    @command
    def slumbers(
        *,
        kind: PoolArgument,
        names: NamesArgument = None,
        dry_run: DryRunOption = False,
        reason: ReasonOption = "",
        here: Asking,
    ) -> None:
        def send(client: HostlerClient, pool: str) -> Awaitable[Sent]:
            ask = client.pools.hibernate if intent == "hibernate" else client.pools.wake
            return ask(pool, reason=reason)

        pools = named(*target(kind, names or [], (POOL,)))
        here.run(lambda client: each(client, pools, noun, done, send, question, dry_run))

    slumbers.__name__, slumbers.__doc__ = intent, help
    return slumbers


hibernate = _slumbers(
    "hibernate",
    "hibernation",
    "hibernated",
    "Delete all machines of pools for now, whatever replicas says; `hostler wake pool NAME` brings them back.",
)
wake = _slumbers("wake", "waking", "woken", "Create the machines of hibernated pools again, as many as replicas says.")


async def _rehearsed(client: HostlerClient, pool: str, question: PoolQuestion, cluster: str | None = None) -> list[str]:
    """The pool's rehearsal. Raises Refused where the pool would not accept the intent."""
    from starter.sdk.errors import Refused
    from starter.sdk.fleet import rehearsal

    found = await client.pools.rehearse(pool, question, cluster=cluster)
    if found.refused:
        raise Refused(f"pool {pool}: {found.refused}")
    return rehearsal.lines(found)


async def each(
    client: HostlerClient,
    pools: Sequence[str],
    noun: str,
    done: str,
    send: Callable[[HostlerClient, str], Awaitable[Sent]],
    question: Callable[[HostlerClient, str], Awaitable[PoolQuestion]],
    dry_run: bool,
) -> None:
    """Prints `machinedeployment/p1 scaled; …` with the pool's own words, and before it is done which preserved machines
    it deletes; or the pool's rehearsal."""

    async def ask(pool: str) -> str | list[str]:
        if dry_run:
            steps = await _rehearsed(client, pool, await question(client, pool))
            return [f"{noun} (dry run)", *(f"  {step}" for step in steps)]
        if done != "woken":
            await warn_of_preserved(client, pool, await question(client, pool))
        message = (await send(client, pool)).message
        return message if message.startswith(done) else f"{noun}: {message}"

    await tell_each({pool: label(pool) for pool in pools}, ask)


async def warn_of_preserved(
    client: HostlerClient, pool: str, question: PoolQuestion, cluster: str | None = None
) -> None:
    """Says before anything is done which preserved machines it deletes."""
    from starter.outlet import warn
    from starter.sdk.pools.rehearsal import warnings

    for line in await warnings(client.pools, pool, question, cluster=cluster):
        warn(f"{label(pool)} {line}")


def label(name: str) -> str:
    """The pool's name in what the commands print."""
    return fleets.label(POOL, name)


# -- get --------------------------------------------------------------------------------------------------------------


def _number(of: Callable[[PoolSummary], int | str]) -> Callable[[PoolListed], int | str | None]:
    """A pool's own number: empty where no worker answers."""
    return lambda p: of(p.summary) if p.summary else None


def _availability(s: PoolSummary | None) -> str:
    return "" if s is None else "green" if s.available >= s.replicas else "yellow" if s.available else "red"


COLUMNS: tuple[Column[PoolListed], ...] = (
    Column("NAME", lambda p: p.name),
    Column("REPLICAS", _number(lambda s: s.replicas)),
    Column("UPDATED", _number(lambda s: s.updated), drop=3),
    Column("AVAILABLE", _number(lambda s: s.available), style=lambda p: _availability(p.summary)),
    Column("UNHEALTHY", _number(lambda s: s.unhealthy), drop=2),
    Column("REVISION", _number(lambda s: s.revision), drop=5),
    Column("PHASE", lambda p: p.phase, style=lambda p: phase_style(p.phase)),
    Column("REASON", lambda p: p.reason, drop=1),
    Column(AGE, lambda p: p.created, drop=4),
    Column("CLASS", lambda p: p.machine_class, wide=True),
    Column("MACHINES", _number(lambda s: s.machines), wide=True),
    Column("LEAVING", _number(lambda s: s.leaving), wide=True),
    Column("PRESERVED", _number(pool_page.preserved), wide=True),
)


def listing(client: HostlerClient, names: Sequence[str], all_clusters: bool) -> Listing[PoolListed]:
    return fleets.listing(client, POOL, COLUMNS, _manifest, names, all_clusters)


def _manifest(state: PoolState, summary: PoolSummary | None) -> Json:
    from starter.sdk.pools.results import pool_manifest

    return pool_manifest(state, summary)


# -- delete -----------------------------------------------------------------------------------------------------------


async def delete(client: HostlerClient, key: EntityKey, *, force: bool, reason: str) -> Sent:
    """Deletes a pool, and says before which preserved machines go with it."""
    from resources.pool.intents import PoolQuestion

    cluster, name = key
    await warn_of_preserved(client, name, PoolQuestion(delete=True), cluster)
    return await client.pools.delete(name, force=force, reason=reason, cluster=cluster)


async def deletion_foretold(client: HostlerClient, key: EntityKey) -> str | list[str]:
    """What --dry-run says."""
    from resources.pool.intents import PoolQuestion
    from starter.sdk.errors import NoAnswer
    from starter.sdk.results import since
    from starter.sdk.spelling import counted

    cluster, name = key
    found = await client.pools.describe(name, cluster=cluster)  # a mistyped name is reported here too
    if not found.running:
        return f"is already gone{since(found.ended)}"
    count = found.summary.machines if found.summary else found.machines
    words = f"deletion, with {counted(count)} (dry run)"
    try:
        steps = await _rehearsed(client, name, PoolQuestion(delete=True), cluster)
    except NoAnswer as e:
        steps = [f"which machines go first is not known: {e}"]
    return [words, *(f"  {step}" for step in steps)]

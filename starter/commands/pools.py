"""hostler scale, hibernate, wake; and pools in hostler get|delete|wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.blocks import command
from starter.commands.common import Asking, NamesArgument, PoolArgument, ReasonOption, Session, named, target, tell_each
from starter.commands.kinds import POOL

if TYPE_CHECKING:
    from datetime import timedelta

    from resources.pool.intents import PoolQuestion
    from resources.pool.state import PoolState
    from starter.commands.rows import Form, Row
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.pools.results import PoolDescription, PoolListed
    from starter.sdk.pools.waiting import Goal
    from starter.sdk.results import Sent

COLUMNS = ("NAME", "REPLICAS", "UPDATED", "AVAILABLE", "UNHEALTHY", "REVISION", "PHASE", "REASON", "AGE")
WIDE = (*COLUMNS, "CLASS", "MACHINES", "LEAVING", "PRESERVED")
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what the pool would do, step by step; change nothing.")
]


# -- scale, hibernate, wake -------------------------------------------------------------------------------------------


@command
def scale(
    *,
    kind: PoolArgument,
    names: NamesArgument = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=0, max=5000, help="The number of machines.", show_default=False)
    ] = None,
    current: Annotated[
        int | None,
        typer.Option("--current-replicas", min=0, help="Only if this is the current number.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="MACHINE", help="This machine goes first; repeatable.", show_default=False),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Change how many machines a pool has: scale pool NAME --replicas N; as kubectl, also scale --replicas=N pool/NAME.

    --remove says which machines go first; without fewer replicas, new ones take their place. A rollout in progress
    continues with the new number.
    """
    pools = named(*target(kind, names or [], (POOL,)))
    if replicas is None and not remove:
        raise typer.BadParameter("give --replicas N, or --remove MACHINE")
    if remove and len(pools) > 1:
        raise typer.BadParameter("--remove needs exactly one pool")

    async def rehearse(client: HostlerClient, pool: str) -> list[str]:
        from resources.pool.intents import PoolQuestion
        from starter.sdk.errors import Refused

        state = await client.pools.get(pool)
        if current not in (None, state.spec.replicas):
            raise Refused(f"pool {pool} has {state.spec.replicas} replicas, not {current}: nothing would be changed")
        return await _rehearsed(client, pool, PoolQuestion(replicas=replicas, remove=remove or []))

    def send(client: HostlerClient, pool: str) -> Awaitable[Sent]:
        return client.pools.scale(pool, replicas, current=current, remove=remove, reason=reason)

    _each(here, pools, "scaling", "scaled", send, rehearse if dry_run else None)


def _slumbers(intent: str, noun: str, done: str, help: str) -> Callable[..., None]:
    """Makes the command of that name."""

    async def rehearse(client: HostlerClient, pool: str) -> list[str]:
        from resources.pool.intents import PoolQuestion

        spec = (await client.pools.get(pool)).spec.model_copy(update={"hibernated": intent == "hibernate"})
        return await _rehearsed(client, pool, PoolQuestion(spec=spec))

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
        _each(here, pools, noun, done, send, rehearse if dry_run else None)

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
    from starter.sdk.pools import rehearsal

    found = await client.pools.rehearse(pool, question, cluster=cluster)
    if found.refused:
        raise Refused(f"pool {pool}: {found.refused}")
    return rehearsal.lines(found)


def _each(
    here: Session,
    pools: Sequence[str],
    noun: str,
    done: str,
    send: Callable[[HostlerClient, str], Awaitable[Sent]],
    rehearse: Callable[[HostlerClient, str], Awaitable[list[str]]] | None,
) -> None:
    """Prints `machinedeployment/p1 scaled; …` with the pool's own words; or its rehearsal."""

    async def body(client: HostlerClient) -> None:
        async def ask(pool: str) -> str | list[str]:
            if rehearse is not None:
                return [f"{noun} (dry run)", *(f"  {step}" for step in await rehearse(client, pool))]
            message = (await send(client, pool)).message
            return message if message.startswith(done) else f"{noun}: {message}"

        await tell_each({pool: label(pool) for pool in pools}, ask)

    here.run(body)


def label(name: str) -> str:
    """The pool's name in what the commands print."""
    return f"{POOL}/{name}"


# -- get --------------------------------------------------------------------------------------------------------------


async def listing(client: HostlerClient, names: list[str], all_clusters: bool, form: Form, watch: bool) -> None:
    from starter.commands.rows import OF, print_objects, print_rows

    async def found() -> list[PoolListed]:
        if names:
            return [await _one(client, name) for name in names]
        return await client.pools.list(all_clusters=all_clusters)

    if form in ("json", "yaml"):
        await print_objects(await _manifests(client, await found()), form, single=len(names) == 1)
        return

    async def rows() -> list[Row]:
        return [_row(p, all_clusters) for p in await found()]

    columns = WIDE if form == "wide" else COLUMNS
    where = "any cluster" if all_clusters else f"cluster {client.cluster}"
    nothing = f"No pools found in {where}."
    await print_rows((OF, *columns) if all_clusters else columns, "PHASE", rows, form, watch, nothing)


async def _one(client: HostlerClient, name: str) -> PoolListed:
    from starter.sdk.errors import NotFound
    from starter.sdk.results import since

    found = await client.pools.look(name)
    if not found.running:
        raise NotFound(
            f"pool {name} is gone{since(found.ended)}: hostler describe pool {name} shows what is left of it"
        )
    return found.listed


def _row(p: PoolListed, all_clusters: bool) -> Row:
    from starter.commands.pool_page import preserved
    from starter.commands.rows import OF, Row
    from starter.output import age

    cells = {OF: p.cluster, "NAME": p.name, "AGE": age(datetime.now(UTC) - p.created), "CLASS": p.machine_class}
    cells |= {"PHASE": p.phase, "REASON": p.reason}
    s = p.summary
    numbers = (s.replicas, s.updated, s.available, s.unhealthy, s.revision) if s else [""] * 5
    cells |= zip(("REPLICAS", "UPDATED", "AVAILABLE", "UNHEALTHY", "REVISION"), map(str, numbers), strict=True)
    more = (s.machines, s.leaving, preserved(s)) if s else [""] * 3
    cells |= zip(("MACHINES", "LEAVING", "PRESERVED"), map(str, more), strict=True)
    return Row((POOL, p.cluster, p.name) if all_clusters else (POOL, p.name), cells)


async def _manifests(client: HostlerClient, found: list[PoolListed]) -> list[dict[str, Any]]:
    from starter.outlet import warn
    from starter.sdk.pools.results import pool_manifest

    objects = []
    for pool in found:
        state: PoolState | None
        described = await client.pools.describe(pool.name, cluster=pool.cluster)
        state = described.state if described.running else None
        if state is None:
            continue  # gone since it was listed
        if described.no_answer:
            warn(f"pool {pool.name}: {described.no_answer}: the spec is what was requested; the status is not known")
        objects.append(pool_manifest(state, described.summary))
    return objects


# -- delete, wait -----------------------------------------------------------------------------------------------------


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


def parse_goal(text: str) -> Goal:
    """Parses the goal of a wait. Raises a usage error."""
    from starter.sdk.pools.waiting import Goal

    words = {"delete": Goal.DELETED, "rolledout": Goal.ROLLED_OUT, "condition=available": Goal.READY}
    goals = {**words, **{str(goal): goal for goal in Goal}}
    if text.lower() not in goals:
        raise typer.BadParameter(f"--for={text}: for a pool, write one of {', '.join(Goal)}")
    return goals[text.lower()]


async def wait_for_pool(client: HostlerClient, key: EntityKey, goal: Goal, limit: timedelta | None) -> None:
    from starter.output import Busy
    from starter.sdk.pools.waiting import Goal, where

    cluster, name = key
    async with Busy(f"{label(name)}: waiting") as busy:

        async def progress(found: PoolDescription) -> None:
            busy.text = f"{label(name)}: {where(found)}"

        await client.pools.wait(name, goal, timeout=limit, progress=progress, cluster=cluster)
        busy.say(f"{label(name)} {goal if goal is Goal.DELETED else f'is {goal}'}")

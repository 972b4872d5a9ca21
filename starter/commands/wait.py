"""hostler wait"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates, fleets
from starter.commands.blocks import command
from starter.commands.common import MachineOrPoolArgument, NamesArgument, Reading, named, span, target
from starter.commands.kinds import CONFIG_POOL, CONTROL_PLANE, MACHINE, POOL, SHORT
from starter.commands.selection import Others, Selection

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.fleet.waiting import Goal
    from starter.sdk.results import Life


@command
def wait(
    *,
    kind: MachineOrPoolArgument,
    names: NamesArgument = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="phase=Running (or another phase), or deleted; for a pool and the control plane rolled-out, ready or "
            "deleted; for a config pool (mcp) updated.",
            show_default="phase=Running; rolled-out; updated",
            autocompletion=candidates.goals,
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", help="Give up after this time in total (20m, 1h30m): exit code 124.")
    ] = "20m",
    among: Others,
    here: Reading,
) -> None:
    """Wait until machines, pools or the control plane are in a phase, or gone; or all nodes of config pools updated. -l
    and --all select machines once, at the beginning.

    A machine that is being recreated can still reach any phase, as the new one. A pool is rolled-out when all its
    machines are of the newest revision and available; ready, when as many as replicas are available. A control plane
    is rolled-out when each of its indexes has one machine, which is ready and as its template says; ready, when each
    has a ready one.

    Exit code 0: reached; 1: one has ended otherwise, can no longer reach it, or waits for a person to resume a rollout;
    124: not in time.
    """
    which, given = target(kind, names or [], (MACHINE, POOL, CONTROL_PLANE, CONFIG_POOL))
    limit = span(timeout)
    if which == CONFIG_POOL:
        here.run(lambda c: _wait_for_config_pools(c, named(which, given), until, bool(among), limit))
        return
    if which in fleets.KINDS:
        if among:
            of = SHORT[which]
            raise typer.BadParameter(f"for a {of}: wait {of} [NAME...] [--for rolled-out|ready|deleted]")
        wanted = fleets.parse_goal(until or "rolled-out", SHORT[which])
        keys = named(which, given)
        here.run(lambda c: wait_for_fleets(c, which, [(c.cluster, name) for name in keys], wanted, limit))
        return
    chosen = among.choice(given)
    goal = parse_goal(until or "phase=Running")

    async def body(client: HostlerClient) -> None:
        from starter.sdk.errors import NotFound

        machines = await chosen.keys(client)
        if not machines:
            raise NotFound(chosen.nothing(client))
        await wait_for_all(client, machines, chosen, goal, limit)

    here.run(body)


async def _wait_for_config_pools(
    client: HostlerClient, names: Sequence[str], until: str | None, among: bool, limit: timedelta | None
) -> None:
    from starter.commands import config_pools

    if among or until not in (None, config_pools.UPDATED):
        raise typer.BadParameter(f"for a config pool: wait mcp NAME... [--for {config_pools.UPDATED}]")
    keys = [(client.cluster, name) for name in names]
    await each_in_time(keys, limit, lambda key, left: config_pools.wait_for_one(client, key[1], left))


def parse_goal(text: str) -> str:
    """`phase=Running` to Running, `deleted` (and kubectl's `delete`) to deleted. Raises a usage error."""
    from resources.machine.state import Phase

    if text in ("delete", "deleted"):
        return "deleted"
    word, _, value = text.partition("=")
    phase = next((p for p in Phase if p.value.lower() == value.lower()), None)
    if word != "phase" or phase is None:
        raise typer.BadParameter(f"--for={text}: write deleted, or phase= with one of {', '.join(Phase)}")
    return phase


async def wait_for_all(
    client: HostlerClient,
    machines: Sequence[EntityKey],
    chosen: Selection,
    goal: str,
    limit: timedelta | None,
    unlike: Mapping[EntityKey, str] | None = None,
) -> None:
    """Waits for one after the other, within `limit` in all, with progress, and prints each end as kubectl does.

    `unlike`: uids of machines that are being recreated; only the new ones count. Raises what `each_in_time` raises.
    """

    async def one(key: EntityKey, left: timedelta | None) -> None:
        await _wait_for(client, key, chosen, goal, left, (unlike or {}).get(key))

    await each_in_time(machines, limit, one)


async def wait_for_fleets(
    client: HostlerClient, kind: str, keys: Sequence[EntityKey], goal: Goal, limit: timedelta | None
) -> None:
    """Like `wait_for_all`, for owners of machines."""
    await each_in_time(keys, limit, lambda key, left: fleets.wait_for_one(client, kind, key, goal, left))


async def each_in_time(
    keys: Sequence[EntityKey], limit: timedelta | None, one: Callable[[EntityKey, timedelta | None], Awaitable[None]]
) -> None:
    """Waits for one after the other, within `limit` in all. Raises at the end what failed; WaitTimeout when nothing
    else did."""
    from starter.sdk.errors import HostlerError, Unreachable, WaitTimeout

    left, end = limit, None if limit is None else time.monotonic() + limit.total_seconds()
    late, failed = [], []
    for key in keys:
        try:
            await one(key, left)
        except WaitTimeout as e:
            late.append(str(e))
        except Unreachable:
            raise
        except HostlerError as e:
            failed.append(str(e))
        if end is not None:
            left = timedelta(seconds=round(max(0.0, end - time.monotonic()), 1))
    if failed:
        raise HostlerError("\n".join(failed + late))
    if late:
        raise WaitTimeout("\n".join(late))


async def _wait_for(
    client: HostlerClient, key: EntityKey, chosen: Selection, goal: str, limit: timedelta | None, unlike: str | None
) -> None:
    from starter.output import Busy

    label = chosen.label(key)
    async with Busy(f"{label}: waiting") as busy:

        async def progress(life: Life) -> None:
            busy.text = f"{label}: {_where(life)}"

        await client.wait(key[1], goal, timeout=limit, progress=progress, cluster=key[0], unlike=unlike)
        busy.say(f"{label} {'deleted' if goal == 'deleted' else f'is {goal}'}")


def _where(life: Life) -> str:
    """Phase, reason, and what the activities that fail say."""
    from starter.sdk.machines.waiting import until_when

    words = life.summary.phase + (f" ({life.summary.reason})" if life.summary.reason else "")
    blocked = [f"{p.type}, attempt {p.attempt}: {p.last_failure}" for p in life.pending if p.last_failure]
    return "; ".join(filter(None, [words, until_when(life), *blocked]))

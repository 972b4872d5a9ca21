"""Config pools on the command line: get, wait and rollout of MachineConfigPools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from starter.commands.kinds import CONFIG_POOL, SHORT
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named
from starter.outlet import say

if TYPE_CHECKING:
    from resources.machine_config.objects import MachineConfigPoolStatus
    from starter.sdk.client import HostlerClient
    from starter.sdk.machine_config.results import ConfigPoolDescription, ConfigPoolListed, ConfigRolloutListed
    from starter.sdk.results import Json

UPDATED = "updated"
"""The only goal of `hostler wait mcp`."""
GRAVE = ("Parked", "Refused", "Degraded")
"""Phases of a workflow that say more than that it is paused."""
HISTORY = ("CONFIG", "ROLLOUT", "BEGAN", "TOOK", "NODES", "MESSAGE")


def label(name: str) -> str:
    return f"{SHORT[CONFIG_POOL]}/{name}"


# -- get --------------------------------------------------------------------------------------------------------------


def phase_of(p: ConfigPoolListed) -> str:
    """Its workflow's word; without one, what the object says. A pause is known from the object before lists show it."""
    if p.pool.spec.paused and p.phase not in GRAVE:
        return "Paused"
    if p.phase:
        return p.phase
    true = [c.type for c in p.pool.status.conditions if c.status == "True"]
    return next((word for word in ("Degraded", "Updating", "Updated") if word in true), "Pending")


def _status(of: Callable[[MachineConfigPoolStatus], int]) -> Callable[[ConfigPoolListed], int | None]:
    return lambda p: of(p.pool.status) if p.counted else None


COLUMNS: tuple[Column[ConfigPoolListed], ...] = (
    Column("NAME", lambda p: p.name),
    Column("CONFIG", lambda p: p.target, drop=4),
    Column("NODES", _status(lambda s: s.machine_count)),
    Column("UPDATED", _status(lambda s: s.updated_machine_count)),
    Column("READY", _status(lambda s: s.ready_machine_count), drop=3),
    Column("UNAVAILABLE", _status(lambda s: s.unavailable_machine_count), drop=5),
    Column("DEGRADED", _status(lambda s: s.degraded_machine_count), drop=2),
    Column("PHASE", phase_of, style=lambda p: phase_style(phase_of(p))),
    Column("REASON", lambda p: p.reason, drop=1),
    Column(AGE, lambda p: p.created, drop=6),
    Column("MAXUNAVAILABLE", lambda p: str(p.pool.spec.max_unavailable or 1), wide=True),
    Column("ALL HAD", lambda p: p.pool.status.configuration.name, wide=True),
)
"""OpenShift's numbers (`oc get mcp`), and what the pool's workflow says."""


def listing(client: HostlerClient, names: Sequence[str], selector: str) -> Listing[ConfigPoolListed]:
    """The MachineConfigPools of a cluster. Where its API does not answer, the rows are what their workflows know, with
    a warning: the night needs them."""
    from starter.sdk.errors import Unreachable

    async def found() -> list[ConfigPoolListed]:
        silent.clear()
        try:
            every = await client.config_pools.list(selector=selector)
        except Unreachable as e:
            if selector or not (every := await _known(client)):
                raise
            silent.append(f"{e}; this is what Hostler knows of them")
        return await those_named(names, partial(_one, client, every), missing) if names else every

    async def doubts(_: list[ConfigPoolListed]) -> str:
        return "".join(silent)

    missing: list[str] = []
    silent: list[str] = []
    labelled = f" with labels {selector}" if selector else ""
    return Listing(
        listed(COLUMNS, False),
        find=found,
        key=key_of(SHORT[CONFIG_POOL], False),
        objects=partial(_objects, client),
        nothing=f"No MachineConfigPools found in cluster {client.cluster}{labelled}.",
        doubts=doubts,
        missing=missing,
    )


def known(client: HostlerClient, everywhere: bool) -> Listing[ConfigPoolListed]:
    """Those that have a workflow, as that says, among other kinds: a cluster without machine configs, or whose API does
    not answer, holds up nothing."""
    where = "any cluster" if everywhere else f"cluster {client.cluster}"
    return Listing(
        listed(COLUMNS, everywhere),
        find=partial(_known, client, everywhere),
        key=key_of(SHORT[CONFIG_POOL], everywhere),
        objects=partial(_objects, client),
        nothing=f"No MachineConfigPools found in {where}.",
    )


async def _known(client: HostlerClient, everywhere: bool = False) -> list[ConfigPoolListed]:
    return [shown.listed() for shown in await client.config_pools.states(all_clusters=everywhere)]


async def described(client: HostlerClient, name: str) -> ConfigPoolDescription:
    """All about one; what its workflow knows, where the cluster's API does not answer."""
    from starter.sdk.errors import Unreachable

    try:
        return await client.config_pools.describe(name)
    except Unreachable as e:
        if (known := await client.config_pools.remembered(name, str(e))) is None:
            raise
        return known


async def _one(client: HostlerClient, every: Sequence[ConfigPoolListed], name: str) -> ConfigPoolListed:
    from resources.machine_config.keys import MACHINE_CONFIG_POOL
    from starter.sdk.machine_config.objects import unknown

    found = next((p for p in every if p.name == name), None)
    if found is None:
        raise unknown(MACHINE_CONFIG_POOL, name, client.cluster, [p.name for p in every])
    return found


async def _objects(client: HostlerClient, found: list[ConfigPoolListed]) -> list[Json | None]:
    """The objects, asked for where that has not been done. Raises Unreachable where one cannot be."""
    wholes = {(p.cluster, p.name): p.whole for p in found}
    for cluster in sorted({p.cluster for p in found if p.whole is None}):
        wholes |= {(cluster, p.name): p.whole for p in await client.config_pools.list(cluster=cluster)}
    return [dict(whole) if (whole := wholes[(p.cluster, p.name)]) is not None else None for p in found]


# -- wait, rollout ----------------------------------------------------------------------------------------------------


async def wait_for_one(client: HostlerClient, name: str, left: timedelta | None) -> None:
    """Waits with progress, and prints the end as kubectl does."""
    from starter.output import Busy
    from starter.sdk.machine_config.results import where

    async with Busy(f"{label(name)}: waiting") as busy:

        async def progress(found: ConfigPoolDescription) -> None:
            busy.text = f"{label(name)}: {where(found)}"

        await client.config_pools.wait(name, timeout=left, progress=progress)
        busy.say(f"{label(name)} is {UPDATED}")


async def follow(client: HostlerClient, name: str, limit: timedelta | None) -> None:
    """Follows a rollout to its end, with a line for each thing that is news. Raises HostlerError where it stops for a
    person, or is not done in time."""
    from starter.sdk.errors import HostlerError, WaitTimeout
    from starter.sdk.machine_config.results import judge

    shown = set[str]()

    async def progress(found: ConfigPoolDescription) -> None:
        lines = now(found)
        say(*[line for line in lines if line not in shown])
        shown.clear()
        shown.update(lines)

    try:
        found = await client.config_pools.wait(name, timeout=limit, progress=progress)
    except WaitTimeout as e:
        raise HostlerError(f"{label(name)}: {e}") from None  # exit code 1, as for a pool and in kubectl
    say(judge(found).words)


def now(found: ConfigPoolDescription) -> list[str]:
    """How it stands, a line for each thing."""
    from starter.sdk.machine_config.results import busy_nodes, numbers

    lines = [f"{label(found.name)}: {numbers(found)}"]
    lines += [f"{label(found.name)}: {found.renders}"] if found.renders else []
    lines += [f"{label(found.name)}: {name} {words}" for name, words in busy_nodes(found)]
    return [*lines, *(f"{label(found.name)}: waits: {w.reason}: {w.message}" for w in found.waits)]


async def once(client: HostlerClient, name: str) -> None:
    """Shows how it stands. Raises HostlerError where it is stopped."""
    from starter.sdk.errors import HostlerError
    from starter.sdk.fleet.waiting import Stand
    from starter.sdk.machine_config.results import judge

    found = await client.config_pools.describe(name)
    verdict = judge(found)
    if verdict.stand is Stand.STANDS:
        say(*now(found))
        raise HostlerError(verdict.words)
    say(*([verdict.words] if verdict.stand is Stand.DONE else now(found)))


async def history(client: HostlerClient, name: str) -> list[str]:
    """The rollouts that Temporal keeps, oldest first, as kubectl has revisions."""
    from starter.output import Table

    found = await client.config_pools.rollouts(name)
    if not found:
        await client.config_pools.describe(name)  # a mistyped name is reported as such
        return [f"{label(name)} has no rollout that Temporal knows: none of its nodes was given a config, or long ago"]
    return Table(HISTORY).lines([_told(r) for r in reversed(found)])


def _told(r: ConfigRolloutListed) -> tuple[str, ...]:
    from resources.words import utc
    from starter.output import age

    took = age((r.ended or datetime.now(UTC)) - r.began)
    counts = f"{r.counts.done} of {r.counts.machines}" if r.counts is not None else ""
    return (r.config, r.phase, utc(r.began), took, counts, r.message)

"""Follows rollouts to their end, or until a person must act."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from resources.base import format_duration
from starter.commands.rollout_view import RolloutView
from starter.sdk.errors import HostlerError, NotFound, Refused, WaitTimeout
from starter.sdk.fleet.waiting import RolloutVerdict, Stand
from starter.sdk.patience import look_until, patiently
from starter.sdk.pools import rollout_look
from starter.sdk.pools.rollout_status import RolloutLook, where

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient


async def follow(client: HostlerClient, names: Sequence[str], view: RolloutView, limit: timedelta | None) -> None:
    """Follows the rollouts. Raises HostlerError, with a line for each pool whose rollout has stopped, was undone, or is
    not done in time."""
    first: dict[str, int] = {}
    """The revision from which each pool was followed."""
    last = dict[str, tuple[RolloutLook, RolloutVerdict]]()
    left, stood, failed = list(names), set[str](), list[str]()

    async def look() -> None:
        for name in list(left):
            found = await patiently(partial(rollout_look.look, client.pools, name))
            verdict = await patiently(partial(_verdict, client, found, first, view))
            if verdict.stand is Stand.DONE:
                found = await patiently(partial(_ended, client, found))
            last[name] = found, verdict
            view.show(found, datetime.now(UTC))
            if _goes_on(verdict, name, stood):
                continue
            left.remove(name)
            if verdict.stand is Stand.DONE:
                view.finish(found)
            else:
                failed.append(verdict.words)

    async def reached(*_: None) -> bool:
        return not left

    with view.running():
        try:
            await look_until(look, reached, lambda _: "", timeout=limit)
        except WaitTimeout:
            for found, verdict in (last[name] for name in left):
                failed.append(verdict.words if verdict.stand is Stand.STANDS else _late(found, limit))
    if failed:
        raise HostlerError("\n".join(failed))


def _goes_on(verdict: RolloutVerdict, name: str, stood: set[str]) -> bool:
    """Whether to go on. A rollout that has stopped is looked at twice: a person may have acted a moment ago, and no
    plan has taken that up yet."""
    if verdict.stand is Stand.STANDS and name not in stood:
        stood.add(name)
        return True
    if verdict.stand is Stand.GOING:
        stood.discard(name)
    return verdict.stand is Stand.GOING


async def _verdict(
    client: HostlerClient, look: RolloutLook, first: dict[str, int], view: RolloutView
) -> RolloutVerdict:
    """The verdict. Somebody who waits for a rollout does not have it when it was undone, though the pool is rolled out
    then too."""
    name, revision = look.name, look.revision
    if not revision or (former := first.setdefault(name, revision)) == revision:
        return look.verdict
    if (result := await rollout_look.undone(client.pools, name, former)) is not None:
        return RolloutVerdict(
            Stand.STANDS, f"the rollout of revision {former} of pool {name} was undone: {result.message}"
        )
    view.say(f"{name}: revision {revision} has replaced revision {former}")
    first[name] = revision
    return look.verdict


async def _ended(client: HostlerClient, look: RolloutLook) -> RolloutLook:
    """The end, with the last steps: the story hears of them a moment after the pool is rolled out."""
    if look.story is None or not look.story.running:
        return look
    try:
        end = client.pools.rollout_result(look.name, look.revision)
        await asyncio.wait_for(end, rollout_look.OUTCOME_PATIENCE)
    except (NotFound, Refused, TimeoutError):
        return look
    return await rollout_look.look(client.pools, look.name)


def _late(look: RolloutLook, limit: timedelta | None) -> str:
    after = f" after {format_duration(limit)}" if limit else ""
    words = f"; {look.verdict.words}" if look.pool.summary and look.verdict.words else ""
    on = "it continues" if look.pool.summary else "it continues when a worker answers (`hostler doctor`)"
    return f"the rollout of pool {look.name} is not complete{after}: {where(look.pool)}{words}; {on}"

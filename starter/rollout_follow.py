"""Following rollouts to their end, or to where a person must do something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from resources.base import format_duration
from starter import rollout_status as status
from starter.errors import HostlerError, NotFound, Refused
from starter.patience import patiently
from starter.pool_waiting import where
from starter.rollout_status import Look, Stand, Verdict
from starter.rollout_view import View

if TYPE_CHECKING:
    from starter.client import HostlerClient

INTERVAL = 1.0
"""Seconds between two looks."""


async def follow(client: HostlerClient, names: Sequence[str], view: View, limit: timedelta | None) -> None:
    """Raises HostlerError, with a line for each pool whose rollout stands, was undone, or is not done in time."""
    end = None if limit is None else time.monotonic() + limit.total_seconds()
    first: dict[str, int] = {}
    """The revision that each was followed from."""
    left, stood, failed = list(names), set[str](), list[str]()
    with view.running():
        while left:
            late = end is not None and time.monotonic() >= end
            for name in list(left):
                look = await patiently(partial(status.look, client, name))
                verdict = await patiently(partial(_verdict, client, look, first, view))
                if verdict.stand is Stand.DONE:
                    look = await patiently(partial(_ended, client, look))
                view.show(look, datetime.now(UTC))
                if _goes_on(verdict, name, stood) and not late:
                    continue
                left.remove(name)
                if verdict.stand is Stand.DONE:
                    view.finish(look)
                else:
                    failed.append(verdict.words if verdict.stand is Stand.STANDS else _late(look, limit))
            if left:
                await asyncio.sleep(INTERVAL)
    if failed:
        raise HostlerError("\n".join(failed))


def _goes_on(verdict: Verdict, name: str, stood: set[str]) -> bool:
    """What stands is looked at twice: a person's word may have come a moment ago, and no plan was made by it yet."""
    if verdict.stand is Stand.STANDS and name not in stood:
        stood.add(name)
        return True
    if verdict.stand is Stand.GOING:
        stood.discard(name)
    return verdict.stand is Stand.GOING


async def _verdict(client: HostlerClient, look: Look, first: dict[str, int], view: View) -> Verdict:
    """Whoever waits for a rollout has not got it when it was undone, though the pool is rolled out then too."""
    name, revision = look.name, look.revision
    if not revision or (former := first.setdefault(name, revision)) == revision:
        return look.verdict
    if (result := await status.undone(client, name, former)) is not None:
        return Verdict(Stand.STANDS, f"the rollout of revision {former} of pool {name} was undone: {result.message}")
    view.say(f"{name}: revision {revision} has come after revision {former}")
    first[name] = revision
    return look.verdict


async def _ended(client: HostlerClient, look: Look) -> Look:
    """With the last steps: the story hears of them a moment after the pool is rolled out."""
    if look.story is None or not look.story.running:
        return look
    try:
        end = client.pools.rollout_result(look.name, look.revision)
        await asyncio.wait_for(end, status.OUTCOME_PATIENCE)
    except (NotFound, Refused, TimeoutError):
        return look
    return await status.look(client, look.name)


def _late(look: Look, limit: timedelta | None) -> str:
    after = f" after {format_duration(limit)}" if limit else ""
    words = f"; {look.verdict.words}" if look.pool.summary and look.verdict.words else ""
    return f"the rollout of pool {look.name} is not done{after}: {where(look.pool)}{words}; it goes on"

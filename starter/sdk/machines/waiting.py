"""Waiting until a machine is in a phase, or gone, by the server's records; its workflow is asked only where they do not
say enough: whether it goes for good, or in order to be made anew (`recreate`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from resources.base import format_duration
from resources.machine import Phase
from starter.sdk.errors import Refused, WaitTimeout
from starter.sdk.patience import patiently
from starter.sdk.results import Description, Life

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

WAIT_POLL = 0.5
"""Seconds between two looks, each one cheap read of the server's records."""
DELETED = "deleted"

Progress = Callable[[Life], Awaitable[None]]


async def wait(
    client: HostlerClient,
    name: str,
    until: str,
    *,
    timeout: timedelta | None,
    progress: Progress | None,
    cluster: str | None,
    unlike: str | None,
) -> Life:
    """`HostlerClient.wait`."""
    target = until if until == DELETED else Phase(until)
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    look = partial(client.life, name, cluster=cluster)
    life = first = await patiently(look)
    while not await patiently(partial(_reached, client, life, first, target, unlike)):
        if end is not None and time.monotonic() >= end:
            after = f", after {format_duration(timeout)}" if timeout else ""
            what = f"not {until}" if unlike is None else f"not yet {until} as a new one"
            yet = until_when(life) or "it may get there yet"
            raise WaitTimeout(f"machine {name} is {_where(life)}, {what}{after}; {yet}")
        if progress is not None:
            await progress(life)
        await asyncio.sleep(WAIT_POLL)
        life = await patiently(look)
    return life


async def _reached(client: HostlerClient, life: Life, first: Life, target: str, unlike: str | None) -> bool:
    """Raises Refused when it cannot be reached any more."""
    name = life.summary.name
    another = life.first_run_id != first.first_run_id  # a new machine has taken the name
    over = another or not life.running
    if target == DELETED:
        if over and not another and life.status != "COMPLETED":
            raise Refused(
                f"the workflow of machine {name} ended as {life.status}: what it owned may still exist: "
                f"`hostler adopt machine {name} --cluster {life.summary.cluster}` takes its VM over"
            )
        return over
    if over:
        raise Refused(f"machine {name} is gone{since(life)}; it was to become {target}")
    phase = _phase(life)
    there = phase == target
    lost = not there and (phase == Phase.TERMINATING or (phase == Phase.FAILED and target != Phase.TERMINATING))
    if there and unlike is None:
        return True
    if not (there or lost):
        return False
    found = await client.describe(name, cluster=life.summary.cluster)
    if _comes_back(found) or _phase(found.life) != phase or _newer(found, phase) or _mends(found, target):
        return False
    if there and found.state is not None and found.state.uid != unlike:
        return True
    if there:
        raise Refused(f"machine {name} is {_where(life)} and is not being recreated: hostler events machine {name}")
    raise Refused(f"machine {name} is {_where(life)} and will not become {target}: hostler describe machine {name}")


def _comes_back(found: Description) -> bool:
    """It goes, or will go, and a new life follows."""
    deletion = found.state.deletion if found.state else None
    return deletion is not None and deletion.recreate


def _mends(found: Description, target: str) -> bool:
    """It Failed and is kept, and may be well again in time. One that never was Running is not: nobody has made its Node
    ready."""
    ran = found.state is None or found.no_answer or found.state.was_running
    return bool(until_when(found.life)) and target in (Phase.RUNNING, Phase.UNKNOWN) and bool(ran)


def until_when(life: Life) -> str:
    """What a Failed machine that is preserved waits for; "" of any other."""
    until = life.summary.preserved_until
    if until is None or _phase(life) != Phase.FAILED:
        return ""
    return f"it is kept until {until:%Y-%m-%d %H:%M:%S} UTC, and Running again when its Node is well by then"


def _newer(found: Description, phase: str) -> bool:
    """The machine itself is further than its attributes, which follow when it has something to wait for."""
    return not found.no_answer and found.state is not None and str(found.state.status.phase) != phase


def _phase(life: Life) -> str:
    return life.summary.phase.split(":")[0]  # Running:Preserved is Running


def _where(life: Life) -> str:
    return life.summary.phase + (f" ({life.summary.reason})" if life.summary.reason else "") or life.status


def since(life: Life) -> str:
    """` since 2026-03-01 14:05:00 UTC`, of a life that has ended."""
    return f" since {life.closed:%Y-%m-%d %H:%M:%S} UTC" if life.closed else ""

"""How long a watch lasts (activities/watch/follow.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.watch.follow import run_for

LONG = timedelta(hours=1)
ENDS: dict[str, tuple[timedelta, Callable[[ActivityEnvironment], None]]] = {
    "its worker shuts down": (LONG, ActivityEnvironment.worker_shutdown),
    "it is cancelled": (LONG, ActivityEnvironment.cancel),
    "its time is over": (timedelta(milliseconds=10), lambda activity: None),
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_watch_ends_and_leaves_nothing_running(how: str) -> None:
    """A worker that stops waits for none: it would wait for its whole grace period, at each restart."""
    duration, end = ENDS[how]
    activity, begun, left = ActivityEnvironment(), asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    running = asyncio.create_task(activity.run(run_for, duration, watch()))
    await begun.wait()
    end(activity)
    await asyncio.wait_for(running, 30)
    assert left.is_set()


async def test_its_first_error_is_its_own() -> None:
    async def watch() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(failing())

    async def failing() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match=r"^broken$"):
        await ActivityEnvironment().run(run_for, LONG, watch())

"""Patience for callers that look again and again: a moment without Temporal does not end them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from starter.sdk.errors import Interrupted, WaitTimeout

T = TypeVar("T")
Progress = Callable[[T], Awaitable[None]]
"""Hears of every look that is not the last."""

INTERVAL = 1.0
"""Seconds between two looks of `look_until`."""

SILENCE = 60.0
"""Seconds without an answer after which nobody waits for one any longer."""
PAUSE = 1.0


async def patiently(look: Callable[[], Awaitable[T]]) -> T:
    """Returns what `look` answers, asked again while Temporal does not. Raises Interrupted after SILENCE.

    Only for reads: what has been asked for may have arrived though no answer has.
    """
    end = time.monotonic() + SILENCE
    while True:
        try:
            return await look()
        except Interrupted:
            if time.monotonic() >= end:
                raise
        await asyncio.sleep(PAUSE)


async def look_until(
    look: Callable[[], Awaitable[T]],
    reached: Callable[[T, T], Awaitable[bool]],
    late: Callable[[T], str],
    *,
    timeout: timedelta | None,
    progress: Progress[T] | None = None,
    interval: float | None = None,
) -> T:
    """Looks until `reached` holds for a look and the first one, and returns that look. `reached` raises where it never
    will hold. Raises WaitTimeout with the words of `late`."""
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    found = first = await patiently(look)
    while not await patiently(partial(reached, found, first)):
        if progress is not None:
            await progress(found)
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(late(found))
        await asyncio.sleep(INTERVAL if interval is None else interval)
        found = await patiently(look)
    return found

"""For who looks again and again: a moment without Temporal is no end of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starter.sdk.errors import Interrupted

T = TypeVar("T")

SILENCE = 60.0
"""Seconds without an answer after which nobody waits for one any more."""
PAUSE = 1.0


async def patiently(look: Callable[[], Awaitable[T]]) -> T:
    """What `look` answers, asked again while Temporal does not. Raises Interrupted after SILENCE.

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

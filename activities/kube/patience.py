"""Waits for somebody else's answer, and for no longer than it deserves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TURNS = 20


async def patiently(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Awaits `work`. Raises TimeoutError after so many seconds in which the event loop also had TURNS turns: where
    others hold the loop up for that long, an answer that came meanwhile has not been looked at yet, and nobody was
    silent."""
    task = asyncio.create_task(work)
    try:
        for _ in range(TURNS):
            done, _ = await asyncio.wait({task}, timeout=seconds / TURNS)
            if done:
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""A few calls at a time: a list of thousands must not become thousands of questions at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 10


@asynccontextmanager
async def under_way(calls: Iterable[Callable[[], Awaitable[T]]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """The calls as tasks, in order; those that have not ended when the block is left are cancelled."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with slots:
            return await call()

    tasks = [asyncio.create_task(one(call)) for call in calls]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def each(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """The answers, in order. A call that fails ends the others."""
    async with under_way(calls) as tasks:
        return [await task for task in tasks]

"""Work that a worker repeats beside the activities that it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

from resources.words import cause


@contextlib.asynccontextmanager
async def beside(
    call: Callable[[], Awaitable[None]], every: timedelta, log: logging.Logger, trouble: str, well: str
) -> AsyncIterator[None]:
    """Makes `call` now and every so often, beside what runs inside. A failure never stops a worker: it is reported once
    (`trouble`, with a %s for the error) and tried again, and so is the recovery (`well`)."""
    task = asyncio.create_task(_again_and_again(call, every, log, trouble, well), name=log.name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _again_and_again(
    call: Callable[[], Awaitable[None]], every: timedelta, log: logging.Logger, trouble: str, well: str
) -> None:
    failing = False
    while True:
        try:
            await call()
            if failing:
                log.info(well)
            failing = False
        except Exception as e:
            if not failing:
                log.warning(trouble, cause(e))
            failing = True
        await asyncio.sleep(every.total_seconds())

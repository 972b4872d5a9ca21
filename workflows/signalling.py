"""Entities that signal other workflows, and go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from temporalio import workflow

from workflows.entity import Entity

with workflow.unsafe.imports_passed_through():
    from resources.journal import Happening


class SignallingEntity(Entity):
    def __init__(self, journal: list[Happening], intents: dict[str, str], deadlines: dict[str, datetime]) -> None:
        super().__init__(journal, intents, deadlines)
        self.signals: set[asyncio.Task[None]] = set()
        """Signals to other workflows that are not accepted yet."""

    @property
    def settled(self) -> bool:
        return not self.signals

    def signal(self, send: Callable[[], Awaitable[None]], failed: Callable[[str], None] = lambda _: None) -> None:
        """Signals another workflow. That it may be gone is no error; `failed` hears of it."""

        async def sent() -> None:
            try:
                await send()
            except Exception as e:  # whatever it is, the next snapshot says it all again
                workflow.logger.info("a signal was not taken: %s", e)
                failed(str(e))

        task = asyncio.create_task(sent())
        self.signals.add(task)
        self.in_flight.add(task)
        task.add_done_callback(self.signalled)

    def signalled(self, task: asyncio.Task[None]) -> None:
        self.signals.discard(task)
        self.in_flight.discard(task)

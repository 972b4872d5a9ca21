"""The story of a rollout: its pool tells it what happens, until it says how the rollout ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from temporalio import workflow

from workflows.entity import NEVER, Entity

with workflow.unsafe.imports_passed_through():
    from resources.fleet.story import FIRST_STEPS_KEPT, STEPS_KEPT, StoryState
    from resources.journal import Happening


class StoryEnd(Protocol):
    """How a rollout ended, of whatever kind it is."""

    @property
    def outcome(self) -> Any: ...

    @property
    def message(self) -> str: ...

    @property
    def time(self) -> datetime: ...


class StoryEntity(Entity):
    s: StoryState

    def __init__(self, state: StoryState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self._news = False
        if state.began is None:
            state.began = workflow.now()

    @property
    def ended(self) -> StoryEnd | None:
        """The pool's last word, how it ended."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        return self.ended is not None

    async def listen(self) -> dict[str, Any]:
        """Shows what is told, until it is over. Returns what the results of all stories have in common."""
        await self.stand_still(unless=lambda: self.over)
        while not self.over:
            self._news = False
            await self.until(lambda: self._news or self.over or self._renewal_due, NEVER)
            if self._renewal_due:
                await self.renew()
        self.publish()
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self.settled)
        s, end = self.s, self.ended
        assert end is not None
        return {
            "pool": s.pool,
            "cluster": s.cluster,
            "outcome": end.outcome,
            "message": end.message,
            "began": s.began,
            "ended": end.time,
            "steps": s.steps,
            "steps_dropped": s.steps_dropped,
        }

    @property
    def _renewal_due(self) -> bool:
        return not self.over and self.settled and self.wants_renewal(self.s.messages)

    def hear(self, time: datetime, steps: Iterable[Happening]) -> bool:
        """Whether the news is the newest. Each step is told once, the rest is a snapshot: one that was overtaken only
        adds its steps."""
        s = self.s
        s.messages += 1
        self._news = True
        self.add(steps)
        if s.news_at is not None and self.is_older(time, s.news_at):
            return False
        s.news_at = time
        return True

    def add(self, steps: Iterable[Happening]) -> None:
        s, now = self.s, workflow.now()
        told = [h.model_copy(update={"time": min(h.time, now)}) for h in steps]  # one of the future would stay the last
        s.steps = sorted([*s.steps, *told], key=lambda h: h.time)
        dropped = max(0, len(s.steps) - STEPS_KEPT)
        del s.steps[FIRST_STEPS_KEPT : FIRST_STEPS_KEPT + dropped]
        s.steps_dropped += dropped

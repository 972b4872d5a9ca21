"""RolloutWorkflow: the story of one rollout of a pool, for people: how far it is, each step with its reason, its end.

Identity: `rollout/<cluster>/<pool>/<revision>`. Started by the pool, which decides everything and tells it here; what a
person asks here (pause, resume, abort, approve, reject) goes on to the pool. Ends when the pool says how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import workflow

from workflows.entity import intent
from workflows.fleet.story import StoryEntity
from workflows.page import bar, show

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import HELD, STOPPED
    from resources import attributes as at
    from resources.intents import Intent
    from resources.markdown import Markdown, heading, items, join, page, prose, strong
    from resources.names import pool_id, rollout_id
    from resources.pool.intents import ResumeIntent, VerdictIntent
    from resources.pool.rollout import (
        RolloutEnd,
        RolloutNews,
        RolloutResult,
        RolloutState,
    )
    from resources.pool.state import Gate
    from resources.reasons import next_step
    from resources.words import by_whom, utc

LINES = 15
"""How many steps the web UI's page shows."""


@workflow.defn
class RolloutWorkflow(StoryEntity):
    s: RolloutState

    @workflow.init
    def __init__(self, state: RolloutState) -> None:
        super().__init__(state)
        self._passed_on: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self, state: RolloutState) -> RolloutResult:
        return await self.keep(self._live)

    async def _live(self) -> RolloutResult:
        told = await self.listen()
        return RolloutResult(**told, revision=self.s.revision, counts=self.s.counts)

    @property
    def own_id(self) -> str:
        return rollout_id(self.s.cluster, self.s.pool, self.s.revision)

    @property
    def settled(self) -> bool:
        return not self._passed_on

    @property
    def ended(self) -> RolloutEnd | None:
        return self.s.end

    # -- what the pool says -------------------------------------------------------------------------------------------

    @workflow.signal
    def news(self, news: RolloutNews) -> None:
        s = self.s
        if self.hear(news.time, news.steps):
            s.counts, s.waits, s.gate, s.stops_at = news.counts, news.waits, news.gate, news.stops_at

    @workflow.signal
    def end(self, end: RolloutEnd) -> None:
        self.add(end.steps)
        self.s.counts = end.counts or self.s.counts
        self.s.waits, self.s.stops_at = [], None
        self.s.end = end

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> RolloutState:
        return self.s

    # -- intents: the pool's to decide --------------------------------------------------------------------------------

    def _pass_on(self, name: str, intent: Intent) -> str:
        handle = workflow.get_external_workflow_handle(pool_id(self.s.cluster, self.s.pool))
        task = asyncio.create_task(self._signal(lambda: handle.signal(name, intent)))
        self._passed_on.add(task)
        task.add_done_callback(self._passed_on.discard)
        return f"pool {self.s.pool} was told to {name} its rollout"

    def _pass_verdict(self, name: str, intent: VerdictIntent) -> str:
        """One on this rollout, whichever the pool's newest is by then."""
        return self._pass_on(name, intent.model_copy(update={"revision": self.s.revision}))

    pause = intent(Intent, lambda self, intent: self._pass_on("pause", intent))
    resume = intent(ResumeIntent, lambda self, intent: self._pass_on("resume", intent))
    abort = intent(Intent, lambda self, intent: self._pass_on("abort", intent))
    approve = intent(VerdictIntent, lambda self, intent: self._pass_verdict("approve", intent))
    reject = intent(VerdictIntent, lambda self, intent: self._pass_verdict("reject", intent))

    async def _signal(self, send: Callable[[], Awaitable[None]]) -> None:
        try:
            await send()
        except Exception as e:
            self.note("PoolSilent", f"pool {self.s.pool} cannot be told: {e}")

    # -- Entity -------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        s = self.s
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: s.pool,
            at.PHASE: self._phase(),
            at.REASON: s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(self._details())

    def _phase(self) -> str:
        s = self.s
        reasons = {w.reason for w in s.waits}
        if s.end is not None:
            return str(s.end.outcome)
        if s.parked:
            return "Parked"
        if reasons.intersection(STOPPED):
            return "Stopped"
        return "Paused" if s.gate is Gate.PAUSED or reasons.intersection(HELD) else "Rolling"

    def _details(self) -> Markdown:
        s, c = self.s, self.s.counts
        by = by_whom(s.requested_by, s.reason)
        lines = [heading(f"Rollout of revision {s.revision} of pool {s.pool}: {self._phase()}")]
        facts: list[str] = [
            f"Since {utc(s.began)}{by}",
            f"Class {s.machine_class}, generation {s.generation}; replaces revision {', '.join(map(str, s.former))}",
            f"{bar(c.available, c.replicas)} {c.available} of {c.replicas} available, {c.updated} made, {c.old} old",
        ]
        if c.lost:
            facts.append(f"Never joined, and were replaced: {c.lost}")
        if s.stops_at is not None:
            facts.append(f"Stops at {utc(s.stops_at)}, unless a new machine becomes available before")
        if s.end is not None:
            facts.append(join(strong(s.end.outcome), f": {s.end.message}"))
        lines.append(items(facts))
        for wait in s.waits:
            step = next_step(wait.reason, s.cluster, s.pool, kind="pool")
            lines.append(join(strong(wait.reason), f" since {utc(wait.since)}: {wait.message}"))
            lines.append(prose(step))
        told = [f"{utc(h.time)} {h.reason}: {h.message}" for h in reversed(s.steps[-LINES:])]
        return page(*lines, "Steps:" if told else "", items(told))

    @property
    def to_end(self) -> str:
        return f"the rollout continues: use `hostler rollout abort {self.s.pool} --cluster {self.s.cluster}`"

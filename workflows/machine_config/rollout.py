"""ConfigRolloutWorkflow: the story of one rendered config on its way over a pool's nodes, for people: how far it is,
which node began when and how it ended.

Identity: `configrollout/<cluster>/<pool>/<rendered config>`. Started by the pool's workflow, which decides everything
and tells it here. Ends when the pool says how it ended.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.entity import NEVER, Entity
from workflows.machine_config.details import HELD, STANDS, rollout_page
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from resources import attributes as at
    from resources.journal import Happening
    from resources.machine_config.state import (
        FIRST_STEPS_KEPT,
        STEPS_KEPT,
        ConfigRolloutEnd,
        ConfigRolloutNews,
        ConfigRolloutResult,
        ConfigRolloutState,
    )
    from resources.names import config_pool_listed, config_rollout_id


@workflow.defn
class ConfigRolloutWorkflow(Entity):
    s: ConfigRolloutState

    @workflow.init
    def __init__(self, state: ConfigRolloutState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self._news = False
        if state.began is None:
            state.began = workflow.now()

    @workflow.run
    async def run(self, state: ConfigRolloutState) -> ConfigRolloutResult:
        return await self.keep(self._live)

    async def _live(self) -> ConfigRolloutResult:
        s = self.s
        await self.stand_still(unless=lambda: s.end is not None)
        while s.end is None:
            self._news = False
            await self.until(lambda: self._news or s.end is not None or self._renewal_due, NEVER)
            if self._renewal_due:
                await self.renew()
        self.publish()
        await workflow.wait_condition(workflow.all_handlers_finished)
        assert s.began is not None
        return ConfigRolloutResult(
            pool=s.pool,
            cluster=s.cluster,
            config=s.config,
            former=s.former,
            outcome=s.end.outcome,
            message=s.end.message,
            began=s.began,
            ended=s.end.time,
            counts=s.counts,
            steps=s.steps,
            steps_dropped=s.steps_dropped,
        )

    @property
    def own_id(self) -> str:
        return config_rollout_id(self.s.cluster, self.s.pool, self.s.config)

    @property
    def _renewal_due(self) -> bool:
        return self.s.end is None and self.wants_renewal(self.s.messages)

    # -- what the pool says -------------------------------------------------------------------------------------------

    @workflow.signal
    def news(self, news: ConfigRolloutNews) -> None:
        """Takes the pool's news. Each step is told once, the rest is a snapshot: one that was overtaken only adds its
        steps."""
        s = self.s
        s.messages += 1
        self._news = True
        self._add(news.steps)
        if s.news_at is not None and self.is_older(news.time, s.news_at):
            return
        s.news_at, s.counts, s.waits, s.paused = news.time, news.counts, news.waits, news.paused
        s.stalls_at = news.stalls_at

    @workflow.signal
    def end(self, end: ConfigRolloutEnd) -> None:
        self._add(end.steps)
        self.s.counts = end.counts or self.s.counts
        self.s.waits, self.s.stalls_at = [], None
        self.s.end = end

    def _add(self, steps: list[Happening]) -> None:
        s, now = self.s, workflow.now()
        told = [h.model_copy(update={"time": min(h.time, now)}) for h in steps]  # one of the future would stay the last
        s.steps = sorted([*s.steps, *told], key=lambda h: h.time)
        dropped = max(0, len(s.steps) - STEPS_KEPT)
        del s.steps[FIRST_STEPS_KEPT : FIRST_STEPS_KEPT + dropped]
        s.steps_dropped += dropped

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> ConfigRolloutState:
        return self.s

    # -- Entity -------------------------------------------------------------------------------------------------------

    def _phase(self) -> str:
        s = self.s
        reasons = {w.reason for w in s.waits}
        if s.end is not None:
            return str(s.end.outcome)
        if s.parked:
            return "Parked"
        if s.paused or reasons.intersection(HELD):
            return "Paused"
        if reasons.intersection(STANDS):
            return "Stalled"
        return "Degraded" if s.counts.degraded else "Updating"

    def publish(self) -> None:
        s = self.s
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: config_pool_listed(s.pool),
            at.PHASE: self._phase(),
            at.REASON: s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(rollout_page(s, self._phase()))

    @property
    def to_end(self) -> str:
        return f"the rollout goes on: set spec.paused of MachineConfigPool {self.s.pool} to hold it"

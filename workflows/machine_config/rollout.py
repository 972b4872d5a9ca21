"""ConfigRolloutWorkflow: the story of one rendered config on its way over a pool's nodes, for people: how far it is,
which node began when and how it ended.

Identity: `configrollout/<cluster>/<pool>/<rendered config>`. Started by the pool's workflow, which decides everything
and tells it here. Ends when the pool says how it ended.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.fleet.story import StoryEntity
from workflows.machine_config.details import HELD, STANDS, rollout_page
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from resources import attributes as at
    from resources.machine_config.state import (
        ConfigRolloutEnd,
        ConfigRolloutNews,
        ConfigRolloutResult,
        ConfigRolloutState,
    )
    from resources.names import config_pool_listed, config_rollout_id


@workflow.defn
class ConfigRolloutWorkflow(StoryEntity):
    s: ConfigRolloutState

    @workflow.init
    def __init__(self, state: ConfigRolloutState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: ConfigRolloutState) -> ConfigRolloutResult:
        return await self.keep(self._live)

    async def _live(self) -> ConfigRolloutResult:
        told = await self.listen()
        return ConfigRolloutResult(**told, config=self.s.config, former=self.s.former, counts=self.s.counts)

    @property
    def own_id(self) -> str:
        return config_rollout_id(self.s.cluster, self.s.pool, self.s.config)

    @property
    def ended(self) -> ConfigRolloutEnd | None:
        return self.s.end

    # -- what the pool says -------------------------------------------------------------------------------------------

    @workflow.signal
    def news(self, news: ConfigRolloutNews) -> None:
        s = self.s
        if self.hear(news.time, news.steps):
            s.counts, s.waits, s.paused, s.stalls_at = news.counts, news.waits, news.paused, news.stalls_at

    @workflow.signal
    def end(self, end: ConfigRolloutEnd) -> None:
        self.add(end.steps)
        self.s.counts = end.counts or self.s.counts
        self.s.waits, self.s.stalls_at = [], None
        self.s.end = end

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

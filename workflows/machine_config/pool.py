"""MachineConfigPoolWorkflow: the nodes of one MachineConfigPool, which are given its rendered config a few at a time.

Identity: `machineconfigpool/<cluster>/<pool>`. Started by the cluster's MachineConfigsWorkflow, or by a person with
plain JSON. Ends when the object is gone, or nobody looks after the cluster's machine configs any longer. The object
says what is wanted (spec.paused, spec.maxUnavailable); this workflow decides when.
Source: seed 004 (UpdateController).
"""

from __future__ import annotations

from functools import partial

from temporalio import workflow

from workflows.entity import NEVER, intent
from workflows.fleet.entity import PATIENCE
from workflows.machine_config import drains, loans, looks, story
from workflows.machine_config.details import details, phase_of
from workflows.machine_config.entity import CallGivenUp
from workflows.machine_config.pool_entity import ConfigPoolEntity
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from resources import attributes as at
    from resources.calls.machine_config import NodesNews, PoolBrief
    from resources.cluster.news import ClusterNews
    from resources.fleet.lending import LendAnswer
    from resources.intents import Intent
    from resources.machine_config.state import ConfigRolloutOutcome, MachineConfigPoolState
    from resources.names import cluster_id, config_pool_id, config_pool_listed
    from resources.words import by_whom


@workflow.defn
class MachineConfigPoolWorkflow(ConfigPoolEntity):
    @workflow.init
    def __init__(self, state: MachineConfigPoolState) -> None:
        super().__init__(state)
        if state.created is None:
            state.created = workflow.now()

    @workflow.run
    async def run(self, state: MachineConfigPoolState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        s = self.s
        await self.stand_still(unless=lambda: s.gone)
        loans.again(self)
        self.deadlines["look"] = workflow.now()
        if s.news is None:
            self.deadlines["news"] = workflow.now() + PATIENCE
        while not s.gone:
            try:
                await self._turn()
            except CallGivenUp:
                workflow.logger.debug("%s: a call was not waited for", workflow.info().workflow_id)
            if self.winding_up and not s.gone:
                drains.stop(self)
                await self.renew()
        await self._leave()

    async def _turn(self) -> None:
        self._register()
        if self.due_then("news"):
            self.nudge()  # nobody has said that it is paused
        if self.due("look"):
            await looks.look(self)
        await drains.collect(self)
        await story.tell(self)
        await self.until(
            lambda: (
                self.s.gone
                or self.winding_up
                or drains.are_over(self)
                or story.due(self)
                or any(map(self.due, ("look", "news", "drains", "story")))
            ),
            NEVER,
        )

    async def _leave(self) -> None:
        """Ends it: the taints of its rollout and what was borrowed go back, and its rollout is told how it ended."""
        s = self.s
        drains.stop(self)
        s.waits = []
        story.over(self, "its pool is gone", ConfigRolloutOutcome.FAILED)
        loans.give_back(self, sorted(s.loans))
        await looks.untaint(self)
        if s.registered:
            handle = workflow.get_external_workflow_handle(cluster_id(s.cluster))
            self.signal(partial(handle.signal, "forget_pool", config_pool_listed(s.name)))
        self.deadlines.clear()
        while s.former:
            await story.last(self)
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self.settled)
        self.publish()

    def _register(self) -> None:
        """Tells the cluster of the pool, which then hears whether the cluster is paused or frozen. Where no workflow
        looks after the cluster, nobody can have paused it."""
        s = self.s
        if s.registered or self.announced:
            return
        self.announced = True
        handle = workflow.get_external_workflow_handle(cluster_id(s.cluster))
        s.registered = True
        self.signal(partial(handle.signal, "register_pool", config_pool_listed(s.name)), failed=self._not_registered)

    def _not_registered(self, _: str) -> None:
        self.s.registered = False
        if self.deadlines.pop("news", None) is not None:
            self.nudge()

    # -- what it is told ----------------------------------------------------------------------------------------------

    @workflow.signal
    def nodes_changed(self, news: NodesNews) -> None:
        """Nodes that may be the pool's have changed: a look shows how."""
        self.s.messages += 1
        self.nudge()

    @workflow.signal
    def pool_changed(self, brief: PoolBrief) -> None:
        """The object has changed, or is gone."""
        self.s.messages += 1
        self.nudge()

    @workflow.signal
    def cluster_news(self, news: ClusterNews) -> None:
        s = self.s
        s.messages += 1
        if s.news is None or not self.is_older(news.time, s.news.time):
            s.news = news
            self.deadlines.pop("news", None)
            self.nudge()

    @workflow.signal
    def lent(self, answer: LendAnswer) -> None:
        """An owner's answer to the request for one of its machines."""
        self.s.messages += 1
        loans.take(self, answer)

    def _remove(self, intent: Intent) -> str:
        self.s.gone = True
        by = by_whom(intent.requested_by, intent.reason)
        self.note("ConfigPoolRemoved", f"it is no longer looked after{by}")
        return f"config pool {self.s.name} is no longer looked after; its nodes stay as they are"

    remove = intent(Intent, _remove)

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> MachineConfigPoolState:
        return self.s

    # -- Entity -------------------------------------------------------------------------------------------------------

    renews = "a new run begins, which looks at the nodes afresh"

    def want_renewal(self) -> str:
        self.deadlines["look"] = workflow.now()
        return super().want_renewal()

    @property
    def own_id(self) -> str:
        return config_pool_id(self.s.cluster, self.s.name)

    @property
    def to_end(self) -> str:
        return f"delete MachineConfigPool {self.s.name} of cluster {self.s.cluster} to end it"

    def begin_anew(self) -> object:
        self.s.registered = False  # its cluster's workflow may be another one by now
        return super().begin_anew()

    def publish(self) -> None:
        s = self.s
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: config_pool_listed(s.name),
            at.PHASE: phase_of(s),
            at.REASON: "InternalError" if s.parked else s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(details(s, self.made))

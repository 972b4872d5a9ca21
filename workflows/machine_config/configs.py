"""MachineConfigsWorkflow: the machine configs of a cluster. It keeps the watch of the four kinds and of Nodes, has
everything rendered anew after each change, and keeps a workflow for each MachineConfigPool.

Identity: `machineconfigs/<cluster>`, one for each cluster whose settings want it. Ends when it is removed; what was
rendered, and the nodes, stay as they are. It holds names only: rendering is an activity's (`sync_configs`).
Source: seed 004 (TemplateController, RenderController, KubeletConfigController).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of, watching
from workflows.entity import NEVER, intent
from workflows.machine_config import drains, strays
from workflows.machine_config.details import configs_page
from workflows.machine_config.entity import CallGivenUp, ConfigEntity
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from activities.cluster.configs import ConfigRenderActivities
    from activities.temporal.configs import ConfigActivities
    from activities.watch.configs import ConfigWatchActivities
    from planners.fleet.steps import Wait
    from planners.words import named
    from resources import attributes as at
    from resources.calls.machine_config import (
        ConfigNews,
        ConfigsCursor,
        NodesNews,
        PoolBrief,
        StartPoolsInput,
        SyncInput,
        SyncOutput,
        WatchConfigsInput,
    )
    from resources.cluster.news import Reachability
    from resources.intents import Intent
    from resources.journal import Note
    from resources.machine_config.state import MachineConfigsState
    from resources.names import (
        cluster_queue,
        config_pool_id,
        machine_configs_id,
        watch_queue,
        workflow_queue,
    )
    from resources.words import by_whom

SYNC_SELDOM = timedelta(minutes=30)
"""The time between two passes where nobody says that anything has changed."""
SYNC_TIMEOUT = timedelta(minutes=10)
"""Start to close of one pass: a large cluster has some hundred configs of a megabyte."""
WATCH_AGAIN = timedelta(seconds=30)


@workflow.defn
class MachineConfigsWorkflow(ConfigEntity):
    s: MachineConfigsState

    @workflow.init
    def __init__(self, state: MachineConfigsState) -> None:
        super().__init__(state)
        self._watch: workflow.ActivityHandle[ConfigsCursor] | None = None
        if state.created is None:
            state.created = workflow.now()

    @workflow.run
    async def run(self, state: MachineConfigsState) -> None:
        await self.keep(self._live)

    @property
    def cluster(self) -> str:
        return self.s.name

    def nudge(self) -> None:
        self.no_later(strays.LOOK, workflow.now())

    @property
    def ending(self) -> bool:
        return self.s.removed

    async def _live(self) -> None:
        s = self.s
        await self.stand_still(unless=lambda: s.removed)
        s.living = []  # they are started again where somebody has ended them
        self.deadlines["sync"] = workflow.now()
        if s.drains:
            self.nudge()
        while not s.removed:
            try:
                await self._turn()
            except CallGivenUp:
                workflow.logger.debug("%s: a call was not waited for", workflow.info().workflow_id)
            if self.winding_up and not s.removed:
                drains.stop(self)
                await self._stop()
                await self.renew()
        await self._leave()

    async def _turn(self) -> None:
        await self._collect()
        self._begin_watch()
        if self.due("sync"):
            await self._sync()
        if self.due(strays.LOOK):
            await strays.look(self)
        await drains.collect(self)
        await self.until(
            lambda: (
                self.s.removed
                or self.winding_up
                or (self._watch is not None and self._watch.done())
                or drains.are_over(self)
                or any(map(self.due, ("sync", "watch", strays.LOOK)))
            ),
            NEVER,
        )

    # -- the watch ----------------------------------------------------------------------------------------------------

    def _begin_watch(self) -> None:
        s = self.s
        if self._watch is not None or "watch" in self.deadlines:
            return
        self._watch = workflow.start_activity_method(
            ConfigWatchActivities.watch_configs,
            WatchConfigsInput(
                cluster=s.name,
                workflow_id=workflow.info().workflow_id,
                cursor=s.cursor,
                duration=s.watch_duration,
            ),
            task_queue=watch_queue(s.name, s.queue_prefix),
            **watching(s.watch_duration, s.timings.heartbeat),
            summary=f"watch the machine configs of {s.name}, and its nodes",
            priority=Urgency.POLL,
        )

    async def _collect(self) -> None:
        """Takes the cursor of a watch that has ended; one that failed begins again after a while."""
        self.due_then("watch")
        if self._watch is None or not self._watch.done():
            return
        handle, self._watch = self._watch, None
        try:
            self.s.cursor = await handle
        except ActivityError as e:
            self.note_news("WatchFailed", failure_of(e).info.message)
            self.no_later("watch", workflow.now() + WATCH_AGAIN)

    async def _stop(self) -> None:
        """Asks the watch to return. One that can no longer answer is no loss: its last cursor serves."""
        if self._watch is None:
            return
        self._watch.cancel()
        try:
            self.s.cursor = await self._watch
        except ActivityError:
            workflow.logger.info("the watch of the configs of %s ended without a cursor", self.s.name)
        self._watch = None

    # -- rendering ----------------------------------------------------------------------------------------------------

    async def _sync(self) -> None:
        """Has everything rendered that is not as it should be, and tells pools what has become of theirs."""
        s = self.s
        self.deadlines.pop("sync", None)
        s.changed_at = None  # what changes from now on is the next pass's
        try:
            found = await self.call(
                ConfigRenderActivities.sync_configs,
                SyncInput(cluster=s.name),
                queue=cluster_queue(s.name, s.queue_prefix),
                summary=f"render the machine configs of {s.name}",
                timeout=SYNC_TIMEOUT,
            )
            self._take(found)
            await self._start_pools()
            self.succeeded()
        except ActivityError as e:
            self.no_later("sync", self.failed(e))
        self.no_later("sync", workflow.now() + SYNC_SELDOM)
        self._wait()

    def _take(self, found: SyncOutput) -> None:
        s, now = self.s, workflow.now()
        for words in found.written:
            self.note("ConfigWritten", words)
        known = {(t.about, t.reason, t.message) for t in s.troubles}
        for trouble in found.troubles:
            if (trouble.about, trouble.reason, trouble.message) not in known:
                self.note(trouble.reason, f"{trouble.about}: {trouble.message}")
        s.troubles = found.troubles[:100]
        if not found.written:
            s.synced = now
        briefs = {brief.name: brief for brief in found.pools}
        gone = [name for name in s.pools if name not in briefs]
        changed = [b for b in briefs.values() if s.pools.get(b.name) not in (None, b)]
        s.pools = briefs
        self._tell([*changed, *(PoolBrief(name=name, uid="") for name in gone)])
        s.living = [name for name in s.living if name in briefs]
        if found.again is not None:
            self.no_later("sync", now + found.again)

    async def _start_pools(self) -> None:
        """Starts the workflows of pools that have none."""
        s = self.s
        names = [name for name in s.pools if name not in s.living]
        if not names:
            return
        await self.call(
            ConfigActivities.start_config_pools,
            StartPoolsInput(cluster=s.name, names=names, queue_prefix=s.queue_prefix, timings=s.timings),
            queue=workflow_queue(s.queue_prefix),
            summary=f"start the workflows of config pools: {named(names)}",
        )
        s.living = sorted({*s.living, *names})

    def _tell(self, briefs: Sequence[PoolBrief]) -> None:
        """Tells pools of their object. One whose workflow is not there is started by the next pass."""
        for brief in briefs:
            handle = workflow.get_external_workflow_handle(config_pool_id(self.s.name, brief.name))
            self.signal(partial(handle.signal, "pool_changed", brief), failed=partial(self._missing, brief.name))

    def _missing(self, name: str, _: str) -> None:
        if name in self.s.living:
            self.s.living = [n for n in self.s.living if n != name]
            self.no_later("sync", workflow.now() + self.s.render_delay)

    def _wait(self) -> None:
        """What keeps it from its work, and what cannot be rendered."""
        s = self.s
        waits = [Wait(t.reason, f"{t.about}: {t.message}") for t in s.troubles]
        if s.api is not None and not s.api.reachable:
            waits.insert(0, Wait("APIRefused" if s.api.refused else "APIUnreachable", s.api.message))
        self.keep_waits(tuple({w.reason: w for w in reversed(waits)}.values()))
        if self.failure is not None:
            s.waits = [self.failure, *s.waits]

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Ends it, and the workflows of its pools."""
        s = self.s
        s.waits = []
        self.deadlines.clear()
        drains.stop(self)
        s.drains = {}
        await self._stop()
        for name in sorted(s.pools):
            handle = workflow.get_external_workflow_handle(config_pool_id(s.name, name))
            words = f"the machine configs of cluster {s.name} are no longer looked after"
            self.signal(partial(handle.signal, "remove", Intent(id=f"{self.own_id}, removed", reason=words)))
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self.settled)
        self.publish()

    # -- what it is told ----------------------------------------------------------------------------------------------

    @workflow.signal
    def configs_changed(self, news: ConfigNews) -> None:
        """Something is to be rendered anew. Changes that come one after the other are one pass (OpenShift's
        renderDelay)."""
        s = self.s
        s.messages += 1
        last = (s.news.epoch, s.news.seq) if s.news is not None else None
        if not self.is_newer((news.epoch, news.seq), last):
            return
        s.news = news
        if s.changed_at is None:
            s.changed_at = workflow.now()
        self.no_later("sync", s.changed_at + s.render_delay)

    @workflow.signal
    def drains_asked(self, news: NodesNews) -> None:
        """Nodes that may belong to no pool ask for a drain, or ask no longer: a look shows which."""
        self.s.messages += 1
        self.nudge()

    @workflow.signal
    def reachability(self, news: Reachability) -> None:
        s = self.s
        s.messages += 1
        former = s.api
        if former is not None and (former.reachable, former.refused) == (news.reachable, news.refused):
            return
        s.api = news
        if not news.reachable:
            self.note("APIRefused" if news.refused else "APIUnreachable", news.message)
        elif former is not None:
            self.note("APIReachable", "the API server answers again")
            self.no_later("sync", workflow.now())
        self._wait()

    @workflow.signal(name="note")
    def note_by_signal(self, note: Note) -> None:
        self.s.messages += 1
        self.note(note.reason, note.message)

    def _remove(self, intent: Intent) -> str:
        self.s.removed = True
        by = by_whom(intent.requested_by, intent.reason)
        self.note("ConfigsRemoved", f"no longer looked after{by}")
        return f"the machine configs of cluster {self.s.name} are no longer looked after; all stays as it is"

    remove = intent(Intent, _remove)

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> MachineConfigsState:
        return self.s

    # -- Entity -------------------------------------------------------------------------------------------------------

    renews = "a new run begins once the watch has returned"

    @property
    def own_id(self) -> str:
        return machine_configs_id(self.s.name)

    @property
    def to_end(self) -> str:
        return "send the intent `remove` to end it"

    def _phase(self) -> str:
        s = self.s
        if s.parked:
            return "Parked"
        if s.removed:
            return "Gone"
        if s.api is not None and not s.api.reachable:
            return "APIRefused" if s.api.refused else "APIUnreachable"
        return "Degraded" if s.waits else "Watching"

    def publish(self) -> None:
        s = self.s
        reason = "InternalError" if s.parked else s.waits[0].reason if s.waits else None
        self.upsert({at.CLUSTER: s.name, at.PHASE: self._phase(), at.REASON: reason})
        show(configs_page(s, self._phase()))

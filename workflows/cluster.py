"""ClusterWorkflow: which VM is which machine, the watches of nodes and of cloud accounts, and what of them answers.

Identity: `cluster/<cluster>`. Started by the command line or by the first machine's create activity. Ends when it is
removed. Continues as new when the watch has returned and enough was said; never decides anything about a machine.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError
from temporalio.workflow import ActivityCancellationType

from workflows.calls import SHORT, Urgency, failure_of, poller, share
from workflows.cluster_words import details, held, pause_words, phase_of, refusal
from workflows.entity import Entity, unheard

with workflow.unsafe.imports_passed_through():
    from activities.instances import InstancesActivities
    from activities.news import NewsActivities
    from activities.pools import PoolActivities
    from activities.watch import WatchActivities
    from planners.cluster_news import news_of, to_search, untold
    from resources import attributes as at
    from resources.cluster import ClusterState, Pause, PoolsFound, PoolsInput
    from resources.messages import (
        Announcement,
        Answer,
        CloudReachability,
        ClusterNews,
        Cursor,
        InstancesInput,
        InstancesOutput,
        Intent,
        NewsInput,
        Note,
        Reachability,
        VmsTold,
        WatchInput,
    )
    from resources.names import cloud_queue, pool_id, provider_key, watch_queue, workflow_queue

WATCH_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn
class ClusterWorkflow(Entity):
    s: ClusterState

    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self._phase = ""
        self._nodes: workflow.ActivityHandle[Cursor] | None = None
        self._untold = False
        self._clouds: dict[str, workflow.ActivityHandle[InstancesOutput]] = {}
        self._search: workflow.ActivityHandle[PoolsFound] | None = None

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        await self.stand_still(unless=lambda: self.s.removed)
        while not self.s.removed:
            self._watch_nodes()
            self._watch_clouds()
            self._tell_machines()
            self._search_pools()
            await self._tell_pools()
            await self.until(self._something_to_do)
            await self._collect()
            if self.wants_renewal(self.s.messages):
                await self._stop()
                await self.renew()
        await self._stop()
        await workflow.wait_condition(workflow.all_handlers_finished)

    # -- the watches --------------------------------------------------------------------------------------------------

    def _watch_nodes(self) -> None:
        """One activity that lists and follows, until it returns or is asked to; its cursor goes on in the next one."""
        s = self.s
        if self._nodes is not None or "retry" in self.deadlines:
            return
        self._nodes = workflow.start_activity_method(
            WatchActivities.watch_nodes,
            WatchInput(
                cluster=s.name,
                workflow_id=workflow.info().workflow_id,
                queue_prefix=s.queue_prefix,
                cursor=s.cursor,
                duration=s.watch_duration,
            ),
            task_queue=watch_queue(s.name, s.queue_prefix),
            start_to_close_timeout=s.watch_duration + timedelta(minutes=5),
            heartbeat_timeout=s.heartbeat,
            retry_policy=WATCH_RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"watch the nodes of {s.name}",
        )

    def _watch_clouds(self) -> None:
        """One retrying activity for each account that machines were announced from, while there are machines."""
        s = self.s
        for key in self._unwatched():
            account, last = s.accounts[key], s.vms.get(key, InstancesOutput())
            self._clouds[key] = workflow.start_activity_method(
                InstancesActivities.watch_instances,
                InstancesInput(
                    cluster=s.name,
                    account=account,
                    told=last.told,
                    interval=s.cloud_watch,
                    duration=s.watch_duration,
                ),
                task_queue=cloud_queue(account.provider, s.queue_prefix),
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=s.heartbeat,
                retry_policy=poller(s.cloud_watch),
                summary=f"watch the VMs of {key}",
                priority=share(Urgency.POLL, account),
            )

    def _tell_machines(self) -> None:
        """Once for each change. Nobody waits for it: a machine that was not told learns it from its own next call."""
        if not self._untold or self.s.api is None:
            return
        self._untold = False
        handle = workflow.start_activity_method(
            NewsActivities.tell_machines,
            NewsInput(cluster=self.s.name, api=self.s.api),
            task_queue=workflow_queue(self.s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=self.s.heartbeat,
            retry_policy=SHORT,
            summary=f"tell machines that wait: the API server {self.s.api.words}",
        )
        unheard(handle)

    # -- its pools ----------------------------------------------------------------------------------------------------

    def _search_pools(self) -> None:
        """Those of a former workflow of this cluster: nobody else would tell them."""
        if self._search is not None or not to_search(self.s):
            return
        self._search = workflow.start_activity_method(
            PoolActivities.find_pools,
            PoolsInput(cluster=self.s.name),
            task_queue=workflow_queue(self.s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=self.s.heartbeat,
            retry_policy=WATCH_RETRY,
            summary=f"pools of {self.s.name} that were there before",
            priority=Urgency.POLL,
        )

    async def _tell_pools(self) -> None:
        """That one is told is in state before it happens: one that registers meanwhile is told once more."""
        s = self.s
        if names := untold(s, workflow.now()):
            s.news = news_of(s, workflow.now())
            s.pools |= dict.fromkeys(names, s.news.time)
            await asyncio.gather(*(self._tell_pool(name, s.news) for name in names))

    async def _tell_pool(self, name: str, news: ClusterNews) -> None:
        s = self.s
        try:
            await workflow.get_external_workflow_handle(pool_id(s.name, name)).signal("cluster_news", news)
        except FailureError:
            if s.pools.get(name) == news.time:
                del s.pools[name]
                self.note("PoolMissing", f"pool {name} has no workflow that runs, and has not said that it ends")

    @workflow.signal
    def register_pool(self, name: str) -> None:
        """Also one that is known: it may be a new life of that name, which has not been told anything."""
        self.s.messages += 1
        self._stays(f"pool {name}")
        self.s.pools[name] = None

    @workflow.signal
    def forget_pool(self, name: str) -> None:
        self.s.messages += 1
        self.s.pools.pop(name, None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _unwatched(self) -> list[str]:
        return sorted(k for k in self.s.accounts if k not in self._clouds) if self.s.machines else []

    def _something_to_do(self) -> bool:
        return (
            self.s.removed
            or self.wants_renewal(self.s.messages)
            or (self._nodes is not None and self._nodes.done())
            or any(h.done() for h in self._clouds.values())
            or bool(self._unwatched())
            or self._untold
            or bool(untold(self.s, workflow.now()))
            or (self._search.done() if self._search is not None else to_search(self.s))
        )

    async def _collect(self) -> None:
        """What watches that ended have returned; a failed one is begun again, the nodes' after a while."""
        if self.due("retry"):
            del self.deadlines["retry"]
        if self._nodes is not None and self._nodes.done():
            try:
                self.s.cursor = await self._nodes
            except ActivityError as e:
                failure = failure_of(e)
                self.note("WatchFailed", failure.info.message)
                self.s.api = Reachability(reachable=False, message=failure.info.message, time=workflow.now())
                self.deadlines["retry"] = workflow.now() + 3 * self.s.heartbeat
            self._nodes = None
        if self._search is not None and self._search.done():
            self.s.pools = dict.fromkeys((await self._search).names) | self.s.pools
            self._search, self.s.searched = None, True
        for key in sorted(k for k, h in self._clouds.items() if h.done()):
            try:
                self.s.vms[key] = await self._clouds.pop(key)
            except ActivityError as e:
                self.note("WatchFailed", failure_of(e).info.message)
                del self.s.accounts[key]  # the next machine that is announced from it brings it back

    async def _stop(self) -> None:
        """Ask the watches to return. One that cannot answer any more is no loss: its last cursor serves."""
        for key in sorted(self._clouds):
            self.drop(self._clouds.pop(key))
        if self._search is not None:
            self.drop(self._search)
        if self._nodes is not None:
            self._nodes.cancel()
            try:
                self.s.cursor = await self._nodes
            except ActivityError:
                workflow.logger.info("the watch of %s ended without a cursor", self.s.name)
            self._nodes = None

    # -- what the watch asks and tells --------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> ClusterState:
        return self.s

    @workflow.query
    def resolve(self, keys: list[str]) -> dict[str, str]:
        """Machines by provider key; unknown keys are left out. A query leaves no history."""
        return {k: self.s.machines[k] for k in keys if k in self.s.machines}

    @workflow.signal
    def announce(self, announcement: Announcement) -> None:
        self.s.messages += 1
        self._stays(f"machine {announcement.machine}")
        self.s.machines[provider_key(announcement.provider_id)] = announcement.machine
        if announcement.account is not None:
            self.s.accounts[announcement.account.key] = announcement.account

    def _stays(self, needed_by: str) -> None:
        """Who comes just when it is removed would have no cluster: whoever announced it was told that there is one."""
        if self.s.removed:
            self.s.removed = False
            self.note("Refused", f"cluster {self.s.name} is not removed: {needed_by} came at the same time")

    @workflow.signal
    def forget(self, provider_id: str) -> None:
        self.s.messages += 1
        self.s.machines.pop(provider_key(provider_id), None)

    @workflow.signal
    def reachability(self, news: Reachability) -> None:
        self.s.messages += 1
        former = self.s.api
        if former is not None and (former.reachable, former.refused) == (news.reachable, news.refused):
            return
        if former is not None and not former.reachable and not news.reachable:
            news = news.model_copy(update={"since": former.began})  # another trouble, the same outage
        self.s.api = news
        self._untold = former is not None or not news.reachable
        if not news.reachable:
            self.note("APIRefused" if news.refused else "APIUnreachable", news.message)
        elif former is not None:
            self.note("APIReachable", f"the API server answers again, after {news.time - former.began}")

    @workflow.signal
    def cloud_reachability(self, news: CloudReachability) -> None:
        self.s.messages += 1
        former = self.s.clouds.get(news.account)
        if former is not None and former.reachable == news.reachable:
            return
        self.s.clouds[news.account] = Reachability(**news.model_dump(exclude={"account"}))
        if not news.reachable:
            self.note("CloudUnreachable", f"{news.account}: {news.message}")
        elif former is not None:
            self.note("CloudReachable", f"{news.account} answers again, after {news.time - former.began}")

    @workflow.signal
    def vms_told(self, news: VmsTold) -> None:
        """What machines were told of their VMs, when it has changed."""
        self.s.messages += 1
        self.s.vms[news.account] = InstancesOutput(told=news.told)

    @workflow.signal(name="note")
    def note_by_signal(self, note: Note) -> None:
        self.s.messages += 1
        self.note(note.reason, note.message)

    # -- intents ------------------------------------------------------------------------------------------------------

    @workflow.update(name="pause")
    def pause(self, intent: Intent) -> Answer:
        return self.once(intent, lambda: self._pause(intent))

    @workflow.signal(name="pause")
    def pause_by_signal(self, intent: Intent) -> None:
        self.once(intent, lambda: self._pause(intent))

    def _pause(self, intent: Intent) -> str:
        s = self.s
        s.messages += 1
        if s.pause is not None:
            return f"cluster {s.name} is paused already, {pause_words(s.pause)}"
        s.pause = Pause(time=workflow.now(), requested_by=intent.requested_by, reason=intent.reason)
        self.note("Paused", pause_words(s.pause))
        return f"cluster {s.name} is paused: {held(len(s.pools))} until hostler resume cluster {s.name}"

    @workflow.update(name="resume")
    def resume(self, intent: Intent) -> Answer:
        return self.once(intent, lambda: self._resume(intent))

    @workflow.signal(name="resume")
    def resume_by_signal(self, intent: Intent) -> None:
        self.once(intent, lambda: self._resume(intent))

    def _resume(self, intent: Intent) -> str:
        s = self.s
        s.messages += 1
        if s.pause is None:
            return f"cluster {s.name} is not paused"
        by = f" by {intent.requested_by}" if intent.requested_by else ""
        why = f": {intent.reason}" if intent.reason else ""
        self.note("Resumed", f"after {workflow.now() - s.pause.time}{by}{why}")
        s.pause = None
        return f"cluster {s.name} goes on"

    @workflow.update(name="remove")
    def remove(self, intent: Intent) -> Answer:
        return self._remove(intent)

    @remove.validator
    def check_remove(self, intent: Intent) -> None:
        if words := refusal(self.s):
            raise ApplicationError(words, type="Refused", non_retryable=True)

    @workflow.signal(name="remove")
    def remove_by_signal(self, intent: Intent) -> None:
        if words := refusal(self.s):
            self.note("Refused", words)
        else:
            self._remove(intent)

    def _remove(self, intent: Intent) -> Answer:
        def act() -> str:
            self.s.removed = True
            return f"cluster {self.s.name} is no longer watched"

        return self.once(intent, act)

    def want_renewal(self) -> str:
        self.s.parked = None
        self.renewal_wanted = True
        return "a new run begins when the watch has returned"

    # -- Entity -------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        phase = phase_of(self.s)
        if phase != self._phase:
            workflow.upsert_search_attributes([at.PHASE.value_set(phase)])
            self._phase = phase
        workflow.set_current_details(details(self.s))

    def parked(self, error: Exception) -> None:
        self.s.parked = f"{type(error).__name__}: {error}"
        self.note("InternalError", self.s.parked)

    def cancel_ignored(self) -> None:
        self.note("CancelIgnored", "somebody cancelled the workflow; send the intent `remove` to end it")

    def begin_anew(self) -> ClusterState:
        """All pools are told once more: those that were ended from outside are found out by it."""
        self.s.messages = 0
        self.s.pools = dict.fromkeys(self.s.pools)
        return self.s

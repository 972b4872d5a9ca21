"""ClusterWorkflow: which VM is which machine, the watches of nodes and of cloud accounts, and what of them answers.

Identity: `cluster/<cluster>`. Started by the command line or by the first machine's create activity. Ends when it is
removed. Continues as new when the watch has returned and enough was said; never decides anything about a machine.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType

from workflows.calls import SHORT, Urgency, failure_of, poller
from workflows.entity import NEVER, Entity, unheard

with workflow.unsafe.imports_passed_through():
    from activities.instances import InstancesActivities
    from activities.news import NewsActivities
    from activities.watch import WatchActivities
    from resources import attributes as at
    from resources.cluster import ClusterState
    from resources.messages import (
        Announcement,
        Answer,
        CloudReachability,
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
    from resources.names import cloud_queue, provider_key, watch_queue, workflow_queue

WATCH_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn
class ClusterWorkflow(Entity):
    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self._phase = ""
        self._nodes: workflow.ActivityHandle[Cursor] | None = None
        self._untold = False
        self._clouds: dict[str, workflow.ActivityHandle[InstancesOutput]] = {}

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        while self.s.parked and not self.s.removed:
            await self.until(lambda: self.s.removed or self.s.parked is None, NEVER)
        while not self.s.removed:
            self._watch_nodes()
            self._watch_clouds()
            self._tell_machines()
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
                priority=Urgency.POLL,
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
            summary=f"tell machines that wait: the API server {'answers' if self.s.api.reachable else 'is silent'}",
        )
        unheard(handle)

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
        self.s.machines[provider_key(announcement.provider_id)] = announcement.machine
        if announcement.account is not None:
            self.s.accounts[announcement.account.key] = announcement.account

    @workflow.signal
    def forget(self, provider_id: str) -> None:
        self.s.messages += 1
        self.s.machines.pop(provider_key(provider_id), None)

    @workflow.signal
    def reachability(self, news: Reachability) -> None:
        self.s.messages += 1
        former = self.s.api
        if former is not None and former.reachable == news.reachable:
            return
        self.s.api = news
        self._untold = former is not None or not news.reachable
        if not news.reachable:
            self.note("APIUnreachable", news.message)
        elif former is not None:
            self.note("APIReachable", f"the API server answers again, after {news.time - former.time}")

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
            self.note("CloudReachable", f"{news.account} answers again, after {news.time - former.time}")

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

    @workflow.update(name="remove")
    def remove(self, intent: Intent) -> Answer:
        return self._remove(intent)

    @remove.validator
    def check_remove(self, intent: Intent) -> None:
        if self.s.machines:
            raise ApplicationError(self._refusal(), type="Refused", non_retryable=True)

    @workflow.signal(name="remove")
    def remove_by_signal(self, intent: Intent) -> None:
        if self.s.machines:
            self.note("Refused", self._refusal())
        else:
            self._remove(intent)

    def _refusal(self) -> str:
        some = ", ".join(sorted(set(self.s.machines.values()))[:5])
        return f"cluster {self.s.name} still has {len(self.s.machines)} machines ({some}); delete them first"

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
        phase = "Parked" if self.s.parked else "Watching"
        if self.s.api is not None and not self.s.api.reachable:
            phase = "APIUnreachable"
        if phase != self._phase:
            workflow.upsert_search_attributes([at.PHASE.value_set(phase)])
            self._phase = phase
        api = self.s.api
        words = "not known yet" if api is None else "answers" if api.reachable else f"cannot be reached: {api.message}"
        workflow.set_current_details(
            f"### Cluster {self.s.name}: {phase}\n\n- API server: {words}\n- VMs announced: {len(self.s.machines)}\n"
            f"- Nodes told to their machines: {len(self.s.cursor.told)}\n{self._cloud_words()}"
        )

    def _cloud_words(self) -> str:
        lines = []
        for key, cloud in sorted(self.s.clouds.items()):
            lines.append(f"- {key}: {'answers' if cloud.reachable else f'cannot be reached: {cloud.message}'}")
        return "\n".join(lines)

    def parked(self, error: Exception) -> None:
        self.s.parked = f"{type(error).__name__}: {error}"
        self.note("InternalError", self.s.parked)

    def cancel_ignored(self) -> None:
        self.note("CancelIgnored", "somebody cancelled the workflow; send the intent `remove` to end it")

    def begin_anew(self) -> ClusterState:
        self.s.messages = 0
        return self.s

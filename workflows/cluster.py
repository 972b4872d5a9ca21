"""ClusterWorkflow: which VM is which machine, the watch of the cluster's nodes, and whether its API can be reached.

Identity: `cluster/<cluster>`. Started by the command line or by the first machine's create activity. Ends when it is
removed. Continues as new when the watch has returned and enough was said; never decides anything about a machine.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType

from workflows.calls import failure_of
from workflows.entity import Entity

with workflow.unsafe.imports_passed_through():
    from activities.watch import WatchActivities
    from resources import attributes as at
    from resources.cluster import ClusterState
    from resources.messages import Announcement, Answer, Cursor, Intent, Note, Reachability, WatchInput
    from resources.names import provider_key, watch_queue

WATCH_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn
class ClusterWorkflow(Entity):
    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self.renewal_wanted = False
        self._phase = ""

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        while self.s.parked and not self.s.removed:
            await self.until(lambda: self.s.removed or self.s.parked is None)
        while not self.s.removed:
            await self._watch()
            if self._renewal():
                await self.renew()
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _watch(self) -> None:
        """One watch activity, until it returns or is asked to: its cursor goes on in the next one."""
        s = self.s
        handle: workflow.ActivityHandle[Cursor] = workflow.start_activity_method(
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
        await self.until(lambda: handle.done() or s.removed or self._renewal())
        if not handle.done():
            handle.cancel()
        try:
            s.cursor = await handle
        except ActivityError as e:
            if handle.cancelled() or s.removed or self._renewal():
                return  # cancelled before it could answer: the last cursor serves
            failure = failure_of(e)
            self.note("WatchFailed", failure.info.message)
            s.api = Reachability(reachable=False, message=failure.info.message, time=workflow.now())
            self.deadlines["retry"] = workflow.now() + 3 * s.heartbeat
            await self.until(lambda: s.removed)
            self.deadlines.pop("retry", None)

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
        if not news.reachable:
            self.note("APIUnreachable", news.message)
        elif former is not None:
            self.note("APIReachable", f"the API server answers again, after {news.time - former.time}")

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

    @workflow.update(name="renew")
    def renew_by_update(self, intent: Intent) -> Answer:
        return self.once(intent, self._want_renewal)

    @workflow.signal(name="renew")
    def renew_by_signal(self, intent: Intent) -> None:
        self.once(intent, self._want_renewal)

    def _want_renewal(self) -> str:
        self.s.parked = None
        self.renewal_wanted = True
        return "a new run begins when the watch has returned"

    def _renewal(self) -> bool:
        return self.renewal_wanted or self.should_renew(self.s.messages)

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
            f"- Nodes told to their machines: {len(self.s.cursor.told)}"
        )

    def parked(self, error: Exception) -> None:
        self.s.parked = f"{type(error).__name__}: {error}"
        self.note("InternalError", self.s.parked)

    def cancel_ignored(self) -> None:
        self.note("CancelIgnored", "somebody cancelled the workflow; send the intent `remove` to end it")

    def begin_anew(self) -> ClusterState:
        self.s.messages = 0
        return self.s

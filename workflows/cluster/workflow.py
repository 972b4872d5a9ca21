"""ClusterWorkflow: the watches of nodes and of cloud accounts, which of them answer, and whom that concerns.

Identity: `cluster/<cluster>`. Started by the command line or by the first machine's create activity. Ends when it is
removed and nothing is left. Continues as new when the watch has returned and enough was said. It never decides anything
about a machine, and knows none.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from workflows.calls import SHORT, Urgency, failure_of
from workflows.cluster import holds
from workflows.cluster.watches import WATCH_RETRY, Watches
from workflows.cluster.words import details, gap_words, not_told, phase_of, reason_of, refusal, silent_clouds
from workflows.entity import intent, unheard
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from activities.temporal.members import MemberActivities
    from activities.temporal.news import NewsActivities
    from activities.temporal.uses import UsesActivities
    from planners.cluster.news import news_of, to_search, untold
    from resources import attributes as at
    from resources.base import format_duration, whole_seconds
    from resources.cluster.news import ClusterNews, NewsInput, Reachability
    from resources.cluster.state import ClusterState, Left, LeftInput, PoolsFound, PoolsInput
    from resources.intents import Intent
    from resources.journal import Note
    from resources.maintenance import FreezeIntent
    from resources.names import cluster_id, workflow_queue
    from resources.owner import listener_id, listener_words

HEARING = timedelta(seconds=3)
"""How long a pause or its end waits for its pools before it is answered: less than the command line waits."""
FULL = "signal limit"
"""The SDK's words for a workflow that takes no more signals before it continues as new."""
TELL_AGAIN = timedelta(minutes=1)
"""How long to wait before telling a pool that could not be told."""


@workflow.defn
class ClusterWorkflow(Watches):
    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._shown = "", ""
        """Phase and reason in lists."""
        self._untold = False
        self._telling: set[str] = set()
        """Pools whose news is on its way."""
        self._deaf: set[str] = set()
        """Pools that could not be told, until the next try."""
        self._search: workflow.ActivityHandle[PoolsFound] | None = None
        self._left: workflow.ActivityHandle[Left] | None = None
        self._refusal = ""
        """Why the last removal that was judged was refused; "" if it was granted."""

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        if state.ended is not None and workflow.info().continued_run_id is None:
            self.note("BackAgain", gap_words(state.ended, workflow.now()))
        await self.keep(self._live)

    async def _live(self) -> None:
        while True:
            while self.s.parked and not self.s.removed:
                self._judge_removal()
                await self.stand_still(unless=lambda: self.s.removed or self._removal_due())
                await self._judged()
            while not self.s.removed:
                self._watch_nodes()
                self._watch_clouds()
                self._look_for_uses()
                self._tell_machines()
                self._search_pools()
                self._judge_removal()
                holds.keep_time(self)
                await self._tell_pools()
                await self.until(self._something_to_do)
                await self._collect()
                if self._renewal_due():
                    await self._stop()
                    await self.renew()
            await self._stop()
            await workflow.wait_condition(workflow.all_handlers_finished)
            if self.s.removed:  # nothing is awaited: whatever came while the watches returned has kept it
                return

    # -- telling ------------------------------------------------------------------------------------------------------

    def _tell_machines(self) -> None:
        """Tells machines once for each change. Nobody waits for it: a machine that was not told learns it from its own
        next call."""
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
            summary=f"tell waiting machines: the API server {self.s.api.words}",
        )
        unheard(handle)

    # -- its pools ----------------------------------------------------------------------------------------------------

    def _search_pools(self) -> None:
        """Looks for the pools of a former workflow of this cluster: nobody else would tell them."""
        if self._search is not None or not to_search(self.s):
            return
        self._search = workflow.start_activity_method(
            MemberActivities.find_pools,
            PoolsInput(cluster=self.s.name),
            task_queue=workflow_queue(self.s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=self.s.heartbeat,
            retry_policy=WATCH_RETRY,
            summary=f"find the pools of {self.s.name} that already exist",
            priority=Urgency.POLL,
        )

    async def _tell_pools(self) -> None:
        """Tells pools the newest. The state says that a pool is told before it happens: one that registers meanwhile is
        told again."""
        s = self.s
        if names := untold(s, workflow.now()):
            s.news = news_of(s, workflow.now())
            s.pools |= dict.fromkeys(names, s.news.time)
            self._telling = set(names)
            await asyncio.gather(*(self._tell_pool(name, s.news) for name in names))

    async def _tell_pool(self, name: str, news: ClusterNews) -> None:
        s, who = self.s, listener_words(name)
        try:
            await workflow.get_external_workflow_handle(listener_id(s.name, name)).signal("cluster_news", news)
        except FailureError as e:
            if s.pools.get(name) != news.time:
                return
            if self.by_class and FULL in str(e):
                self._deaf.add(name)
                self.deadlines["tell"] = workflow.now() + TELL_AGAIN
                self.note_news("PoolDeaf", f"{who} accepts no more signals: {e}; they are sent again in a minute")
                return
            del s.pools[name]
            self.note("PoolMissing", f"{who} has no running workflow, although it was not deleted")
        finally:
            self._telling.discard(name)

    @workflow.signal
    def register_pool(self, name: str) -> None:
        """Registers a pool, even a known one: it may be a new life of that name, which has not been told anything."""
        self.s.messages += 1
        self._stays(listener_words(name))
        self.s.pools[name] = None

    @workflow.signal
    def forget_pool(self, name: str) -> None:
        self.s.messages += 1
        self.s.pools.pop(name, None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _something_to_do(self) -> bool:
        return (
            self.s.removed
            or self._renewal_due()
            or self._watches_ended()
            or self._untold
            or self._owners_changed()
            or bool(untold(self.s, workflow.now()))
            or (self._search.done() if self._search is not None else to_search(self.s))
            or self._removal_due()
        )

    def _renewal_due(self) -> bool:
        """Whether a new run is due. Not before it is known whether this is the end: whoever asked waits for the
        answer."""
        return self.s.removal is None and self.wants_renewal(self.s.messages)

    def _removal_due(self) -> bool:
        return self._left.done() if self._left is not None else self.s.removal is not None

    async def _collect(self) -> None:
        await self._collect_watches()
        if self.due("tell"):
            del self.deadlines["tell"]
            self.s.pools |= dict.fromkeys(self._deaf & self.s.pools.keys())
            self._deaf.clear()
        if self._search is not None and self._search.done():
            self.s.pools = dict.fromkeys((await self._search).names) | self.s.pools
            self._search, self.s.searched = None, True
        await self._judged()

    async def _stop(self) -> None:
        if self._search is not None:
            self.drop(self._search)
            self._search = None
        if self._left is not None:
            self.drop(self._left)
            self._left = None
        await self._stop_watches()

    # -- what is asked and told ---------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> ClusterState:
        return self.s

    def _stays(self, needed_by: str) -> None:
        """Keeps the cluster if something comes just as it is removed: whoever announced that was told that there is a
        cluster."""
        if self.s.removed or self.s.removal is not None:
            self._refusal = f"cluster {self.s.name} is not removed: {needed_by} was added at the same time"
            self.s.removed, self.s.removal = False, None
            self.note("Refused", self._refusal)

    @workflow.signal
    def reachability(self, news: Reachability) -> None:
        self.s.messages += 1
        former = self.s.api
        if former is not None and (former.reachable, former.refused) == (news.reachable, news.refused):
            return
        if former is not None and not former.reachable and not news.reachable:
            news = news.model_copy(update={"since": former.began})  # another trouble, the same outage
        self.s.api = news
        self._untold = former is not None or not news.reachable or self.s.ended is not None
        if not news.reachable:
            self.note("APIRefused" if news.refused else "APIUnreachable", news.message)
        elif former is not None:
            lasted = format_duration(whole_seconds(news.time - former.began))
            self.note("APIReachable", f"the API server answers again, after {lasted}")

    @workflow.signal(name="note")
    def note_by_signal(self, note: Note) -> None:
        self.s.messages += 1
        self.note(note.reason, note.message)

    # -- intents ------------------------------------------------------------------------------------------------------

    async def _paused(self, said: str) -> str:
        begins = said == holds.pause_words(self.s)
        not_heard = await self._not_heard()
        # Some of its pools may not have been known when it began.
        return f"{holds.pause_words(self.s) if begins else said}{not_heard}"

    async def _told(self, said: str) -> str:
        return f"{said}{await self._not_heard()}"

    async def _not_heard(self) -> str:
        """Which pools have not heard after a few seconds; "" if all have. An answer is true when it is given: once
        Temporal has taken a pool's news, the pool has it before anything that it decides later."""
        if not self.by_class:
            return ""
        try:
            await workflow.wait_condition(lambda: not self._hearing(), timeout=HEARING)
        except TimeoutError:
            return f"; {not_told(self._hearing())}"
        return ""

    def _hearing(self) -> list[str]:
        """Pools that do not have the newest yet; some may not even be known yet."""
        names = {*untold(self.s, workflow.now()), *self._telling, *(self._deaf & self.s.pools.keys())}
        return sorted(names) or ([""] if to_search(self.s) else [])

    def _remove(self, intent: Intent) -> str | None:
        if not self.by_class:
            return self._removed()
        self.s.messages += 1
        self.s.removal = intent
        return None

    def _removed(self) -> str:
        self.s.removed, self._refusal = True, ""
        return f"cluster {self.s.name} is no longer watched"

    async def _removal(self, said: str) -> str:
        await workflow.wait_condition(lambda: self.s.removal is None)
        if self._refusal:
            raise ApplicationError(self._refusal, type="Refused", non_retryable=True)
        return said or self._removed()

    pause = intent(Intent, holds.pause, answer=_paused)
    resume = intent(Intent, holds.resume, answer=_told)
    freeze = intent(FreezeIntent, holds.freeze, answer=_told)
    unfreeze = intent(Intent, holds.unfreeze, answer=_told)
    remove = intent(Intent, _remove, lambda self, _: refusal(self.s), _removal)

    def _judge_removal(self) -> None:
        """Counts machines before the end, because they are not known here."""
        s = self.s
        if s.removal is None or self._left is not None:
            return
        self._left = workflow.start_activity_method(
            UsesActivities.find_left,
            LeftInput(cluster=s.name),
            task_queue=workflow_queue(s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=s.heartbeat,
            retry_policy=SHORT,
            summary=f"what is left of {s.name}",
        )

    async def _judged(self) -> None:
        if self._left is None or not self._left.done():
            return
        handle, self._left = self._left, None
        s, intent = self.s, self.s.removal
        try:
            left = (await handle).words
            self._refusal = refusal(s, left) or ""
        except ActivityError as e:
            self._refusal = f"whether cluster {s.name} still has machines is not known: {failure_of(e).info.message}"
        if intent is None:
            return  # another message has ended it meanwhile
        s.removal = None
        if self._refusal:
            self.note("Refused", self._refusal)
        else:
            self.once(intent, self._removed)

    # -- Entity -------------------------------------------------------------------------------------------------------

    renews = "a new run begins once the watch has returned"

    @property
    def own_id(self) -> str:
        return cluster_id(self.s.name)

    def publish(self) -> None:
        phase = phase_of(self.s)
        reason = reason_of(phase)
        if not reason and (silent := silent_clouds(self.s)) and workflow.patched("cluster-names-clouds"):
            reason = silent[0]
        if (phase, reason) != self._shown:
            told = at.REASON.value_set(reason) if reason else at.REASON.value_unset()
            workflow.upsert_search_attributes([at.PHASE.value_set(phase), told])
            self._shown = phase, reason
        self._tell_owners()
        show(details(self.s))

    @property
    def to_end(self) -> str:
        return "send the intent `remove` to end it"

    def begin_anew(self) -> object:
        """Tells all pools again, which reveals those that were ended from outside."""
        self.s.pools = dict.fromkeys(self.s.pools)
        return super().begin_anew()

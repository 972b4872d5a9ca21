"""What the parts of a pool's workflow share: its state as planners see it, its words, its calls."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, Failure, failure_of
from workflows.entity import Entity
from workflows.page import show
from workflows.pool.details import details

with workflow.unsafe.imports_passed_through():
    from planners.pool.plan import Observed, complete
    from planners.pool.steps import HELD, STOPPED
    from planners.pool.view import View
    from planners.waits import wait_after
    from resources import attributes as at
    from resources.machine_deployment import MachineDeploymentSpec
    from resources.membership import PoolRef
    from resources.pool import PoolState, PoolWait
    from resources.rollout import RolloutNews

P = TypeVar("P")
R = TypeVar("R")

RENEW_AFTER = 2000
"""Messages in one run: a pool of 5,000 machines is a megabyte, and hears of each of them several times in an hour."""
REPLAYABLE = 100_000
MESSAGE = 50
"""What one run may cost, in members looked at (some 15 microseconds each): a plan looks at all of them, and a message
costs as much as 50. A worker that has lost the run does all of it again within one workflow task, for which Temporal
gives 10 s."""
PATIENCE = timedelta(seconds=30)
"""For machines that were there before, to say how they are; and for the cluster's first news."""
ENDED_KEPT = 200
ORDINARY = (
    "RolledOut",
    "Replaced",
    "ReplacedUnavailable",
    "RolloutMarks",
    "ReplicasMissing",
    "NewMachinesNotReady",
    "NewMachinesFail",
    "WaitsForVMsToGo",
    "SlowStart",
)
ORDINARY_KEPT = 4
"""Of each in the journal, the newest."""


@dataclass
class Deed:
    """An activity under way, and what its end means."""

    handle: workflow.ActivityHandle[Any]
    done: Callable[[Any], None]
    failed: Callable[[], None]
    may_be_lost: bool
    """The run may end without it: what it does is not confirmed then, and done again."""


class PoolEntity(Entity):
    s: PoolState

    def __init__(self, state: PoolState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self.news = True
        """Something has changed that a plan is made from."""
        self.deeds: list[Deed] = []
        self.signals: set[asyncio.Task[None]] = set()
        """To other workflows, not accepted yet."""
        self.later: set[str] = set()
        """What has failed, and is not tried again before the next check: at once would be without end."""
        self.failure = ""
        """Of the last call that failed, until the next check."""
        self.plans = 0
        """In a row, without an end."""
        self.looked_at = 0
        """Members, by the plans of this run."""
        self.bounded = False
        """By REPLAYABLE; a run that began before there was this bound is not."""
        self.braked = workflow.patched("pool-brakes")
        """By planners.pool.brake; a run that began before there were brakes is not. Asked here, before any report."""
        self.marking = False
        """Nodes are being marked."""
        self.reporting = False
        """The class is being told of the pool."""
        self.beginning: set[int] = set()
        """Rollouts whose stories are being begun."""
        self.ended: deque[str] = deque(maxlen=ENDED_KEPT)
        """Machines that are gone: a word of theirs that was overtaken by the last one brings them back no more."""
        self.told_news: RolloutNews | None = None
        """What the story of the rollout was told last."""

    def note(self, reason: str, message: str) -> None:
        """What a rollout says all the time must not wash out what people did: its own story has each step."""
        if reason in ORDINARY:
            own = [h for h in self.journal if h.reason == reason]
            self.journal[:] = [h for h in self.journal if h not in own[: len(own) - ORDINARY_KEPT + 1]]
        super().note(reason, message)

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def ref(self) -> PoolRef:
        return PoolRef(cluster=self.s.cluster, name=self.s.name)

    @property
    def over(self) -> bool:
        """Deleted, and nothing is left of it."""
        return self.s.deleted and not self.s.members and not self.s.expected

    @property
    def spec(self) -> MachineDeploymentSpec:
        """As it counts: a person's pause goes beside the manifest's."""
        spec = self.s.spec
        return spec.model_copy(update={"paused": True}) if self.s.paused and not spec.paused else spec

    def observed(self) -> Observed:
        s = self.s
        return Observed(
            members=s.members,
            revision=s.revision,
            rollout=s.rollout,
            back=bool(s.revisions) and s.revisions[-1].back,
            unfinished=s.rolling_out,
            pace=s.pace,
            deleted=s.deleted,
            cluster_paused=s.news is not None and s.news.paused,
            reachable=not s.unseen,
            braked=self.braked,
        )

    def view(self) -> View:
        return View(self.observed(), self.spec, workflow.now())

    @property
    def settled(self) -> bool:
        return not self.signals

    @property
    def quiet(self) -> bool:
        """Nothing is under way that must be known before this run may end."""
        return self.settled and all(d.may_be_lost for d in self.deeds)

    # -- calling ------------------------------------------------------------------------------------------------------

    def start(
        self,
        method: Callable[[Any, P], Coroutine[Any, Any, R]],
        input: P,
        *,
        queue: str,
        summary: str,
        done: Callable[[R], None] = lambda _: None,
        failed: Callable[[], None] = lambda: None,
        may_be_lost: bool = False,
    ) -> None:
        """Start an activity that can be repeated; nobody waits for it, and `done` acts on its answer in the loop."""
        handle: workflow.ActivityHandle[R] = workflow.start_activity_method(
            method,
            input,
            task_queue=queue,
            start_to_close_timeout=self.s.timings.call_timeout,
            heartbeat_timeout=self.s.timings.heartbeat,
            retry_policy=SHORT,
            summary=summary,
        )
        if not may_be_lost:
            self.in_flight.add(handle)
            handle.add_done_callback(lambda h: self.in_flight.discard(handle))
        self.deeds.append(Deed(handle, done, failed, may_be_lost))

    async def collect(self) -> None:
        """What the deeds that are over have come to. A failed one is said; the check that follows does again what is
        not confirmed."""
        over = [d for d in self.deeds if d.handle.done()]
        for deed in over:
            self.deeds.remove(deed)
            self.news = True
            try:
                deed.done(await deed.handle)
            except ActivityError as e:
                self.failed(failure_of(e))
                deed.failed()

    def failed(self, failure: Failure) -> None:
        self.failure = failure.info.message
        self.note_news("PoolCallFailed", failure.info.message)
        again = workflow.now() + wait_after(failure.info, self.s.timings)
        self.deadlines["check"] = min(again, self.deadlines.get("check", again))

    @property
    def call_over(self) -> bool:
        return any(d.handle.done() for d in self.deeds)

    async def patience(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Until what has failed is tried again."""
        self.s.waits = [self.trouble_of(self.since("PoolCallFailed"))]
        await self.until(lambda: self.winding_up or unless(), "check")
        self.deadlines.pop("check", None)
        await self.renew_if_due()
        self.s.waits = []

    def trouble_of(self, since: datetime) -> PoolWait:
        words = f"{self.failure}; tried again at {self.deadlines['check']:%Y-%m-%d %H:%M:%S}"
        return PoolWait(reason="PoolCallFailed", message=words, since=since)

    def since(self, reason: str) -> datetime:
        """Of a wait, or of now."""
        return next((w.since for w in self.s.waits if w.reason == reason), workflow.now())

    def signal(self, send: Callable[[], Awaitable[None]]) -> None:
        """To another workflow, which may be gone: that is no error."""

        async def sent() -> None:
            try:
                await send()
            except Exception as e:  # whatever it is, the next snapshot says it all again
                workflow.logger.info("a signal was not taken: %s", e)

        task = asyncio.create_task(sent())
        self.signals.add(task)
        self.in_flight.add(task)
        task.add_done_callback(self._signalled)

    def _signalled(self, task: asyncio.Task[None]) -> None:
        self.signals.discard(task)
        self.in_flight.discard(task)
        if any(story.outcome for story in self.s.stories.values()):
            self.news = True  # its end waits for all else to be taken

    # -- Entity -------------------------------------------------------------------------------------------------------

    def _phase(self, view: View) -> str:
        s = self.s
        reasons = {w.reason for w in s.waits}
        if s.parked:
            return "Parked"
        if s.deleted:
            return "Deleting"
        if s.spec.hibernated:
            return "Hibernated"
        if reasons.intersection(STOPPED):
            return "Stopped"
        if reasons.intersection(HELD):
            return "Paused"
        if s.rollout is not None:
            return "Rolling"
        return "Ready" if complete(view) else "Scaling"

    def publish(self) -> None:
        s, view = self.s, self.view()
        values = {
            at.CLUSTER: s.cluster,
            at.POOL: s.name,
            at.CLASS: s.spec.template.spec.class_.name,
            at.PHASE: self._phase(view),
            at.REASON: "InternalError" if s.parked else s.waits[0].reason if s.waits else None,
        }
        self.upsert(values)
        show(details(s, view))

    @property
    def to_end(self) -> str:
        return "use `hostler delete pool` to end it"

    def begin_anew(self) -> object:
        self.s.registered = False  # its cluster's workflow may be another one by now
        return super().begin_anew()

    @property
    def winding_up(self) -> bool:
        """A new run is due: nothing new is begun, for a busy pool would never be quiet."""
        if self.wants_renewal(0) or self.s.messages >= RENEW_AFTER:
            return True
        return self.bounded and self.looked_at + MESSAGE * self.s.messages >= REPLAYABLE

    @property
    def renewal_due(self) -> bool:
        return self.winding_up and self.quiet

    async def renew_if_due(self) -> None:
        if self.renewal_due:
            await self.renew()

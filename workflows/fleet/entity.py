"""The base of workflows that own machines: their calls, their signals to others, and when a new run is due."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, Failure, failure_of
from workflows.signalling import SignallingEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.revisions import Revised, Wanted
    from planners.fleet.steps import Plan, Step
    from planners.machine.hot_update import HASH_VERSION
    from planners.waits import wait_after
    from resources.fleet.lending import Borrowing
    from resources.fleet.membership import MemberReport, MembersFound, TemplateNews, member_state
    from resources.fleet.revision import Revision
    from resources.fleet.state import FleetState, FleetWait
    from resources.machine.placement import Placement
    from resources.machine.state import ClassSnapshot, MachineState
    from resources.maintenance import Opening
    from resources.owner import Owner, OwnerRef
    from resources.words import utc

P = TypeVar("P")
R = TypeVar("R")

RENEW_AFTER = 2000
"""The messages in one run: a pool of 5,000 machines is a megabyte, and hears of each several times an hour."""
REPLAYABLE = 100_000
MESSAGE = 50
"""What one run may cost, in members looked at (some 15 microseconds each): a plan looks at all of them, and a message
costs as much as 50. A worker that has lost the run repeats all of it within one workflow task, for which Temporal gives
10 s."""
PATIENCE = timedelta(seconds=30)
"""How long to wait until machines that were there before say how they are, and for the cluster's first news."""
ENDED_KEPT = 200
HISTORY = 10
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for names: no vowels, so no words, and nothing that looks like something else."""


@dataclass
class Call:
    """An activity under way, and what its end means."""

    handle: workflow.ActivityHandle[Any]
    done: Callable[[Any], None]
    failed: Callable[[], None]
    may_be_lost: bool
    """Whether the run may end without it: its effect is not confirmed then, and it is done again."""


class FleetEntity(SignallingEntity):
    s: FleetState

    def __init__(self, state: FleetState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self.news = True
        """Whether something has changed that a plan is made from."""
        self.calls: list[Call] = []
        self.later: set[str] = set()
        """What has failed, and is not tried again before the next check: an immediate retry would go on without end."""
        self.failure = ""
        """The message of the last call that failed, until the next check."""
        self.looked_at = 0
        """How many members the plans of this run have looked at."""
        self.bounded = False
        """Whether REPLAYABLE bounds this run; it does not bound one that began before there was this bound."""
        self.reporting = False
        """Whether the class is being told of the owner."""
        self.braked = True
        """Whether failures hold it back; a pool's run that began before there were brakes knows none."""
        self.hashing = HASH_VERSION
        """The version of the hash that distinguishes revisions."""
        self.borrowings: dict[str, Borrowing] = {}
        """Machines that a config pool asks for, or gives back, until that is judged."""
        self.plans = 0
        """How many plans in a row, without an end."""
        self.ended: deque[str] = deque(maxlen=ENDED_KEPT)
        """Machines that are gone: a word of theirs that the last one overtook does not bring them back."""

    # -- what a subclass says ---------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        raise NotImplementedError

    @property
    def class_name(self) -> str:
        """The name of the class that new machines are made from."""
        raise NotImplementedError

    @property
    def replicas(self) -> int:
        """How many machines it is to have."""
        raise NotImplementedError

    def plan(self, now: datetime) -> Plan:
        """What to do now; a plan that is carried out and made again comes to nothing."""
        raise NotImplementedError

    def take_class(self, machine_class: ClassSnapshot, by: str, reason: str) -> object:
        """Takes a class that was asked for, or its news: it may make a new revision."""
        raise NotImplementedError

    @property
    def history_limit(self) -> int:
        """How many revisions without a machine are kept."""
        return HISTORY

    @property
    def making(self) -> int:
        """The revision that machines are made of."""
        return self.s.revision

    @property
    def needed(self) -> int:
        """A revision that is kept though it may have no machine; 0: none is."""
        return 0

    def revised(self, revised: Revised) -> None:
        """There may be a new revision."""

    def comparing(self, wanted: Wanted) -> Wanted:
        """The wish, which then tells this owner's revisions apart."""
        return replace(wanted, hashing=self.hashing)

    # -- what it may add ----------------------------------------------------------------------------------------------

    def found(self, found: MembersFound) -> None:
        """Acts on what a former workflow has left, besides its machines."""

    def planned(self, steps: Sequence[Step]) -> None:
        """Follows up plans that came to their end, with these steps carried out; also once more at the very end."""

    def decided(self) -> None:
        """Does what is left to do in this turn of the loop."""

    def last_words(self) -> None:
        """Says what is left to be said at the very end; asked again until nothing is under way."""

    def heard(self, report: MemberReport) -> None:
        """Takes what a member's report says beyond `Member`."""

    def may_lend(self, machine: str) -> str:
        """Why a machine is not lent to a config pool now, in words; "" where it is. Where nothing else is said, one at
        a time is."""
        others = sorted(self.s.lent.keys() - {machine})
        return f"{others[0]} is lent, and one is at a time" if others else ""

    def repeat(self) -> None:
        """Repeats what else was said and is not confirmed: after a failed call, and in a new run."""

    def lift(self, names: Sequence[str]) -> None:
        """Tells machines that leave that they need not stay for its sake, where it holds any."""

    def new_name(self, revision: Revision, placement: Placement | None, letters: str) -> str:
        """The name of a new machine, with these random letters: `<owner>-<hash of the revision>-<letters>`. The middle
        is the same for all of one revision, so that a person sees in `get nodes` which are new."""
        made_from = (revision.machine_class.name, revision.hash, revision.restart)
        digest = hashlib.sha256(f"{revision.counter} {made_from}".encode()).digest()
        middle = "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:5])
        return f"{self.s.name}-{middle}-{letters}"

    @property
    def tells_template(self) -> bool:
        """Whether machines are told of a changed template now."""
        return not self.s.expected and (self.s.news is None or not self.s.news.paused)

    def openings(self) -> Sequence[Opening] | None:
        """When running machines may be changed, as far as is known; None: always."""
        return None

    def machine_of(self, name: str) -> MachineState:
        """The state that the member begins with; others of its revision and placement differ in their names only."""
        member = self.s.members[name]
        return member_state(self.s, self.owner, name, self.revision_of(member.revision), member.placement)

    def template_news(self) -> TemplateNews:
        """The newest generation of the template."""
        s = self.s
        return TemplateNews(generation=s.template, template=s.revisions[-1].template, requested_by=s.template_by)

    def revision_of(self, counter: int) -> Revision:
        """The revision of machines that are to be started: one that has machines is kept."""
        revision = self.s.find(counter)
        assert revision is not None
        return revision

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def ref(self) -> OwnerRef:
        return OwnerRef(cluster=self.s.cluster, **self.owner.model_dump())

    @property
    def over(self) -> bool:
        """Whether it is deleted, and nothing is left of it."""
        return self.s.deleted and not self.s.members and not self.s.expected

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way that must be known before this run may end."""
        return self.settled and all(c.may_be_lost for c in self.calls)

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
        retry: RetryPolicy = SHORT,
    ) -> workflow.ActivityHandle[R]:
        """Starts an activity that can be repeated; nobody waits for it, and `done` acts on its answer in the loop."""
        handle: workflow.ActivityHandle[R] = workflow.start_activity_method(
            method,
            input,
            task_queue=queue,
            start_to_close_timeout=self.s.timings.call_timeout,
            heartbeat_timeout=self.s.timings.heartbeat,
            retry_policy=retry,
            summary=summary,
        )
        if not may_be_lost:
            self.in_flight.add(handle)
            handle.add_done_callback(lambda h: self.in_flight.discard(handle))
        self.calls.append(Call(handle, done, failed, may_be_lost))
        return handle

    def abandon(self, handle: workflow.ActivityHandle[Any]) -> None:
        """Cancels a call that may be lost, whose answer no longer matters."""
        self.calls = [c for c in self.calls if c.handle is not handle]
        self.drop(handle)

    async def collect(self) -> None:
        """Takes the results of calls that are over. A failed one is noted; the check that follows repeats what is not
        confirmed."""
        over = [c for c in self.calls if c.handle.done()]
        for call in over:
            self.calls.remove(call)
            self.news = True
            try:
                call.done(await call.handle)
            except ActivityError as e:
                self.failed(failure_of(e))
                call.failed()

    def failed(self, failure: Failure) -> None:
        self.failure = failure.info.message
        self.note_news("PoolCallFailed", failure.info.message)
        again = workflow.now() + wait_after(failure.info, self.s.timings)
        self.deadlines["check"] = min(again, self.deadlines.get("check", again))

    @property
    def call_over(self) -> bool:
        return any(c.handle.done() for c in self.calls)

    async def patience(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Waits until the next try of what has failed."""
        self.s.waits = [self.trouble_of(self.since("PoolCallFailed"))]
        await self.until(lambda: self.winding_up or unless(), "check")
        self.deadlines.pop("check", None)
        await self.renew_if_due()
        self.s.waits = []

    def trouble_of(self, since: datetime) -> FleetWait:
        words = f"{self.failure}; tried again at {utc(self.deadlines['check'])}"
        return FleetWait(reason="PoolCallFailed", message=words, since=since)

    def since(self, reason: str) -> datetime:
        """The time since which it has waited for this; now, if it has not."""
        return next((w.since for w in self.s.waits if w.reason == reason), workflow.now())

    def waits_for(self, reason: str, message: str) -> None:
        """Makes this the only wait."""
        self.s.waits = [FleetWait(reason=reason, message=message, since=self.since(reason))]

    # -- Entity -------------------------------------------------------------------------------------------------------

    @property
    def own_id(self) -> str:
        return self.owner.workflow_id(self.s.cluster)

    def begin_anew(self) -> object:
        self.s.registered = False  # its cluster's workflow may be another one by now
        return super().begin_anew()

    renews = "a new run begins once no calls are in progress"

    def want_renewal(self) -> str:
        self.news = True
        if self.s.parked:
            self.s.parked = None
            return "failed calls are tried again"
        return super().want_renewal()

    @property
    def messages_most(self) -> int:
        """The number of messages after which a new run begins."""
        return RENEW_AFTER

    @property
    def winding_up(self) -> bool:
        """Whether a new run is due: nothing new begins, because a busy owner would never be quiet."""
        if self.wants_renewal(0) or self.s.messages >= self.messages_most:
            return True
        return self.bounded and self.looked_at + MESSAGE * self.s.messages >= REPLAYABLE

    @property
    def renewal_due(self) -> bool:
        return self.winding_up and self.quiet

    async def renew_if_due(self) -> None:
        if self.renewal_due:
            await self.renew()


def chunks(names: Sequence[str], most: int) -> list[list[str]]:
    return [list(names[i : i + most]) for i in range(0, len(names), most)]

"""What the phases of a machine share: calls and their answers, waits, failing, and the end of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError

from workflows.calls import Failure, Urgency, failure_of, poller, share, short
from workflows.entity import NEVER, unheard
from workflows.machine.record import MachineRecord

with workflow.unsafe.imports_passed_through():
    from activities.cluster.node import NodeActivities
    from planners.machine.creation import Retry, cause_after, creation_deadline, hides_cause, why_late
    from planners.machine.health import Health
    from planners.waits import Tries, wait_after
    from resources.base import format_duration, whole_seconds
    from resources.calls.cloud import UpdateOutput, VmLook
    from resources.calls.cluster import NodeLook, PreserveOutput, TellInput
    from resources.machine.facts import NodeFacts
    from resources.machine.state import AppliedSpec, ClassSnapshot, MachineState, OperationState, OperationType, Phase
    from resources.names import cluster_queue
    from resources.words import utc

PRESERVATION_TIMES = ("preserve", "preserve-warning", "protect")
"""Deadlines of preservation, for every wait of a machine that may be preserved."""
CALLS_RENEW = "calls-renew"
"""The patch of waits for a call's answer that also end their run after so many messages."""
CAUSES = "causes"
"""The patch by which lists show what held a Failed machine up, and not the deadline."""
ROOTS = "root-causes"
"""The patch by which a call without an answer hides no answer that was given before it."""
STANDS_STILL = "creation-stands-still"
"""The patch by which a creation deadline stands still while its API server or cloud account does not answer."""

P = TypeVar("P")
R = TypeVar("R")


class HotUpdate(NamedTuple):
    """A hot update that is under way. The life goes on meanwhile: it takes as long as there is no worker."""

    handle: workflow.ActivityHandle[UpdateOutput]
    machine_class: ClassSnapshot
    applied: AppliedSpec
    """What the VM carries once the update has succeeded."""
    fields: str


class Looking(NamedTuple):
    """Fresh looks that are under way, side by side."""

    node: workflow.ActivityHandle[NodeLook]
    vm: workflow.ActivityHandle[VmLook]
    known: NodeFacts | None
    """What was known of the Node when they began."""

    @property
    def over(self) -> bool:
        return self.node.done() and self.vm.done()


class NodeCall(NamedTuple):
    """A call of preservation to the Node. The life goes on meanwhile."""

    handle: workflow.ActivityHandle[PreserveOutput]
    on: bool
    uncordon: bool


class MachineEntity(MachineRecord):
    """Phases are coroutines over this; handlers are in workflow.py."""

    def __init__(self, state: MachineState) -> None:
        super().__init__(state)
        self.updating: HotUpdate | None = None
        self.on_node: NodeCall | None = None
        self.weighing: Looking | None = None
        """The looks at the Lease that weigh a claim of the cloud."""
        self.deleting = False
        """Whether the VM is being deleted: the machine then waits for it to be gone."""
        self.telling: set[asyncio.Task[None]] = set()
        """Reports on their way to the pool."""
        self.told_all = False
        """Whether the pool has been told the end: nothing may be told after it."""
        self.compared: tuple[AppliedSpec, ClassSnapshot, bool] | None = None
        """Whether the updatable fields of the two differ."""

    # -- calls ---------------------------------------------------------------------------------------------------------

    def start(
        self,
        method: Callable[[Any, P], Coroutine[Any, Any, R]],
        input: P,
        *,
        queue: str,
        summary: str,
        polls: bool = False,
        urgency: Priority = Urgency.OTHER,
    ) -> workflow.ActivityHandle[R]:
        """Starts an activity. One that polls ends on its own only with success or bad news, and may be cancelled."""
        self.publish()
        timings = self.s.timings
        polled_by_cloud = self.s.machine_class is not None and queue == self.cloud
        handle: workflow.ActivityHandle[R] = workflow.start_activity_method(
            method,
            input,
            task_queue=queue,
            start_to_close_timeout=timings.call_timeout,
            heartbeat_timeout=timings.heartbeat,
            retry_policy=poller(timings.poll) if polls else short(timings.again),
            summary=summary,
            priority=share(urgency, self.account if polled_by_cloud else None),
        )
        if not polls:
            self.in_flight.add(handle)
            handle.add_done_callback(lambda h: self.in_flight.discard(handle))
        return handle

    async def answer(self, handle: workflow.ActivityHandle[R], *, repeats: bool = False) -> R:
        """The answer of a call whose effect must be known, however long it takes: an absent worker is a wait.

        While there is no VM, a creation deadline that passes meanwhile counts exactly then, and the answer is still
        awaited. `repeats`: the next run makes the same call on its own and finds done what was done, so a run that gets
        too long meanwhile ends.
        """

        def over() -> bool:
            return handle.done() or (repeats and self.too_long_for(handle))

        if self.status.provider_id is None:
            await self.until(over, "creation")
            self.failed_at_deadline()
        await self.beside(over)
        if not handle.done():
            await self.ask_anew(handle)
        try:
            answer = await handle
        except ActivityError as e:
            self.refused_by(failure_of(e))
            raise
        self.s.trouble = self.s.cause = None
        self.answers()
        return answer

    def refused_by(self, failure: Failure) -> None:
        """Takes from a failed call who does not answer, and what does not pass on its own."""
        s = self.s
        if failure.info.silent:
            self.silent(workflow.now())
        else:
            self.answers()
        if not s.was_running:
            words = self.words_of_cloud(failure)
            s.cause = cause_after(s.cause, failure.reason, failure.info, words, workflow.now())

    async def polled(self, handle: workflow.ActivityHandle[R]) -> R:
        """The answer of a poller, which may take forever. A run that gets too long ends, and the next one polls
        afresh."""
        await self.beside(lambda: handle.done() or self.overlong)
        if not handle.done():
            self.drop(handle)
            await self.renew()
        answer = await handle
        self.s.trouble = None
        return answer

    def too_long_for(self, handle: workflow.ActivityHandle[Any]) -> bool:
        """Whether the run should end, and only this call is under way. After 10,000 messages the server would refuse
        the very deletion that ends the wait."""
        others = self.in_flight - {handle} or self.updating or self.on_node or self.weighing
        return not others and self.wants_renewal(self.s.messages) and workflow.patched(CALLS_RENEW)

    async def ask_anew(self, handle: workflow.ActivityHandle[Any]) -> None:
        """Ends the run."""
        self.drop(handle)
        await self.renew()

    async def beside(self, over: Callable[[], bool], *names: str) -> None:
        """Waits until it is over or one of these deadlines has passed; what preservation has to do is done
        meanwhile."""
        while not (over() or any(map(self.due, names))):
            if not self.attend():
                seen, times = self.attention(), (*(names or (NEVER,)), *PRESERVATION_TIMES)
                await self.until(lambda seen=seen: over() or self.attention() != seen, *times)  # type: ignore[misc]

    def attend(self) -> bool:
        """Whether preservation has changed something."""
        return False

    def attention(self) -> tuple[object, ...]:
        """What `attend` goes by, besides PRESERVATION_TIMES."""
        return ()

    def tell(self) -> None:
        """Tells the newest happening on the Node, and what was refused since the last. Nobody waits for it."""
        if not self.s.joined or self.status.node_name is None:
            return
        story = [*(h for h in self.refused if h not in self.journal[-1:]), *self.journal[-1:]]
        self.refused = []
        handle = self.start(
            NodeActivities.tell_node,
            TellInput(
                machine=self.ref,
                node_name=self.status.node_name,
                provider_id=self.status.provider_id,
                node_uid=self.s.joined_uid or "",
                story=story,
            ),
            queue=cluster_queue(self.s.cluster, self.s.queue_prefix),
            summary=f"Event {self.journal[-1].reason} on {self.status.node_name}",
        )
        unheard(handle)

    # -- after a failed call -------------------------------------------------------------------------------------------

    def tried(self, reason: str) -> Tries:
        """Counts one more failure of this kind. The next wait grows with how many there were in a row, and at
        random."""
        self.in_trouble(reason)
        return self.tries(self.s.trouble.failures if self.s.trouble else 1)

    def tries(self, failures: int = 1) -> Tries:
        return Tries(failures, workflow.random().random()) if workflow.patched("spread-waits") else Tries()

    def wait_once(self, failure: Failure) -> timedelta:
        """The wait after a call beside others, whose failures are not counted."""
        return wait_after(failure.info, self.s.timings, self.tries())

    async def back_off(self, failure: Failure, unless: Callable[[], bool] = lambda: False, way_out: str = "") -> None:
        """Says what went wrong, and waits as long as its class asks for. `way_out`: what else ends the wait."""
        message = "; ".join(filter(None, (self.words_of_cloud(failure), way_out)))
        reason = failure.reason
        next_try = workflow.now() + wait_after(failure.info, self.s.timings, self.tried(reason))
        self.note_news(reason, message)
        self.waiting(reason, message + self.standing, next_try)
        await self.pause(next_try, unless)

    async def retry(self, retry: Retry, unless: Callable[[], bool] = lambda: False) -> None:
        """Records what a failed step makes of the machine, and waits for the next try."""
        if self.s.trouble is None or self.s.trouble.reason != retry.reason:
            self.in_trouble(retry.reason)
        if self.status.phase != retry.phase:
            self.enter(retry.phase, retry.reason, retry.message)
        else:
            self.note_news(retry.reason, retry.message)
        self.operation(retry.operation, retry.state, retry.message, retry.code)
        self.waiting(retry.reason, retry.message + self.standing, retry.next_try)
        await self.pause(retry.next_try, unless)

    @property
    def last_call(self) -> str:
        """The deadline that ends every pause: without a VM the creation's, with one the next fresh look."""
        return "confirm" if self.status.provider_id else "creation"

    async def pause(self, until: datetime, unless: Callable[[], bool] = lambda: False) -> None:
        """Waits until then, or a deletion, the last call, or the condition.

        What is tried again forever must not grow a history forever: this is a safe point too, and the next run tries at
        once. Not while a VM is being created, which its deadline ends: there the pause keeps the lag window.
        """
        if self.status.provider_id or self.leaving:
            await self.renew_if_due()
        leaving = self.leaving
        deletion = self.s.deletion
        self.deadlines["retry"] = until
        await self.beside(
            lambda: self.leaving != leaving or self.s.deletion != deletion or unless(), "retry", self.last_call, "drain"
        )
        self.deadlines.pop("retry", None)

    # -- the creation deadline stands still in an outage ---------------------------------------------------------------

    @property
    def must_be_running_by(self) -> datetime:
        """The creation deadline; one that stands still moves on with the time."""
        return creation_deadline(self.s, workflow.now())

    @property
    def standing(self) -> str:
        """What a message adds while the creation deadline stands still."""
        return "; creationTimeout stands still until there is an answer" if self.s.silent_since else ""

    def silent(self, since: datetime) -> None:
        """Its API server or its cloud account does not answer, known since then. A machine that is not Running yet must
        not fail of that: its creation deadline is gone until there is an answer."""
        s, now = self.s, workflow.now()
        if s.created is None or "creation" not in self.deadlines or not workflow.patched(STANDS_STILL):
            return
        s.silent_since = max(s.created, min(since, now))
        del self.deadlines["creation"]

    def answers(self) -> bool:
        """What did not answer does so again: the creation deadline goes on, later by as long as that has lasted.
        Returns whether it had stood still."""
        s, now = self.s, workflow.now()
        if s.silent_since is None:
            return False
        lasted, s.silent_since = now - s.silent_since, None
        if self.leaving or self.status.phase not in (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF):
            return False
        s.stood_still += lasted
        self.deadlines["creation"] = self.must_be_running_by
        stood = format_duration(whole_seconds(lasted))
        end = utc(self.deadlines["creation"])
        self.note("CreationGoesOn", f"creationTimeout stood still for {stood} and ends at {end}")
        if self.status.provider_id:
            s.suspicion = None  # what was seen before is old news
            self.deadlines["confirm"] = now
            self.deadlines["look"] = now  # whoever watches the VM keeps its token alive until the former deadline
        return True

    # -- failing -------------------------------------------------------------------------------------------------------

    def failed_at_deadline(self) -> bool:
        """Makes a machine without a VM Failed at its creation deadline; for one with a VM, fresh looks decide
        (confirm.py)."""
        if self.status.provider_id or not self.due("creation"):
            return False
        self.fail_creation()
        return True

    def fail_creation(self, health: Health | None = None, found: str = "") -> None:
        """`health` and `found`: what the last look found, for a machine that has a VM."""
        if hides_cause(self.s) and not workflow.patched(ROOTS):
            self.s.cause = None
        late = why_late(self.s, workflow.now(), health, found)
        self.s.held_up = late.cause if late.cause and workflow.patched(CAUSES) else None
        self.fail(OperationType.CREATE, "CreationTimeout", late.message)

    def fail(self, operation: OperationType, reason: str, message: str) -> None:
        """Makes the machine Failed. It stays so: the rest is its pool's choice, or a person's where there is no pool. A
        machine that is already being deleted continues with that."""
        if self.status.phase == Phase.TERMINATING:
            self.note(reason, message)
            return
        self.deadlines.clear()
        self.operation(operation, OperationState.FAILED, message)
        self.condition("Failed", reason, message)
        self.enter(Phase.FAILED, reason, message)
        self.tell()

    # -- the end of a run ----------------------------------------------------------------------------------------------

    @property
    def renewal_due(self) -> bool:
        """Whether a new run is due, nothing that must be known is in flight, and no answer is still to be taken. A
        poller dies with the run, and the next one starts it."""
        under_way = self.in_flight or self.updating or self.on_node or self.weighing
        return not under_way and self.wants_renewal(self.s.messages)

    @property
    def overlong(self) -> bool:
        return self.renewal_due and super().overlong

    async def renew_if_due(self) -> None:
        if self.renewal_due:
            await self.renew()

    def begin_anew(self) -> object:
        if self.on_node is not None:
            self.status.preserve.node_due = True  # nobody will get its answer
        return super().begin_anew()

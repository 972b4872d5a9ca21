"""Whom a class does not tell yet: those whose owner is about to take a change of its own, and those that wait for a
window; and how owners hear of the latter."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, failure_of, poller
from workflows.entity import unheard

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from planners.machine_class.rollout import deferred
    from resources.machine_class.state import Awaited, ClassId, ClassState, TellHeldInput, UpdatesHeld
    from resources.names import workflow_queue
    from resources.owner import is_owner, pool_of

AWAITED, AGAIN = "awaited", "held again"
"""Deadlines."""


def await_words(s: ClassState, owners: Collection[str]) -> None:
    """Awaits the word of these owners about the newest generation. Those that are no users hear of it elsewhere."""
    until = workflow.now() + s.silence
    s.awaited = {owner: Awaited(s.generation, until) for owner in owners if owner in s.users}


def heard(s: ClassState, owner: str, generation: int) -> None:
    if owner in s.awaited and generation >= s.awaited[owner].generation:
        del s.awaited[owner]


def awaiting(s: ClassState, deadlines: dict[str, datetime]) -> set[str]:
    """Users that are not told yet, because their owner's word is awaited, for as long as patience lasts."""
    now = workflow.now()
    s.awaited = {owner: a for owner, a in s.awaited.items() if a.until > now}
    if not s.awaited:
        deadlines.pop(AWAITED, None)
        return set()
    deadlines[AWAITED] = min(a.until for a in s.awaited.values())
    return deferred(s.users, s.awaited)


class Turn:
    """The turn of a class whose machines share one budget with those of another class, which come first
    (hostler.io/updates-after)."""

    def __init__(self, state: ClassState) -> None:
        self.s = state
        self._call: workflow.ActivityHandle[None] | None = None
        self._for = 0
        """The generation that is asked for."""

    @property
    def over(self) -> bool:
        return self._call is not None and self._call.done()

    def waiting(self) -> set[str]:
        """Machines that are not told yet; it asks whether it is their turn for as long as there are some."""
        s = self.s
        if not s.before or s.turn >= s.touching:
            return set()
        waiting = {name for name, user in s.users.items() if user.generation < s.touching and not is_owner(name)}
        if waiting and self._call is None:
            self._for = s.touching
            self._call = workflow.start_activity_method(
                ClassActivities.await_turn,
                ClassId(cluster=s.cluster, name=s.before),
                task_queue=workflow_queue(s.queue_prefix),
                start_to_close_timeout=s.timings.call_timeout,
                heartbeat_timeout=s.timings.heartbeat,
                retry_policy=poller(s.timings.poll),
                summary=f"wait until the machines of class {s.before} are updated",
            )
            unheard(self._call)
        return waiting

    async def collect(self) -> None:
        """Nobody waits for ever for a class that cannot be asked: the poller goes on until it can."""
        if self._call is None or not self._call.done():
            return
        call, self._call = self._call, None
        with contextlib.suppress(ActivityError):
            await call
            self.s.turn = self._for


class HeldNews:
    """Tells owners how many of their machines wait for a window, so that they say so themselves."""

    def __init__(self, state: ClassState, deadlines: dict[str, datetime]) -> None:
        self.s, self._deadlines = state, deadlines
        self._call: workflow.ActivityHandle[None] | None = None
        self._before: dict[str, int] = {}
        """What owners had been told when the call began."""

    @property
    def over(self) -> bool:
        return self._call is not None and self._call.done()

    @property
    def quiet(self) -> bool:
        return self._call is None

    def say(self, waiting: Collection[str]) -> None:
        s, counts = self.s, Counter(pool_of(name) for name in waiting)
        told = {owner for owner in {*counts, *s.held} if owner in s.users}
        news = {owner: counts[owner] for owner in sorted(told) if counts[owner] != s.held.get(owner, 0)}
        if not news or self._call is not None or AGAIN in self._deadlines or not workflow.patched("class-says-held"):
            return
        self._before = s.held
        s.held = {owner: count for owner, count in {**s.held, **news}.items() if count and owner in told}
        now = workflow.now()
        held = {o: UpdatesHeld(machine_class=s.name, machines=count, time=now) for o, count in news.items()}
        self._call = workflow.start_activity_method(
            ClassActivities.tell_held,
            TellHeldInput(cluster=s.cluster, held=held),
            task_queue=workflow_queue(s.queue_prefix),
            start_to_close_timeout=s.timings.call_timeout,
            heartbeat_timeout=s.timings.heartbeat,
            retry_policy=SHORT,
            summary=f"say how many machines wait for a window: {', '.join(f'{o} {n}' for o, n in news.items())}",
        )

    async def collect(self) -> str:
        """The words of a failure; it is tried again."""
        if self._call is None or not self._call.done():
            return ""
        call, self._call = self._call, None
        try:
            await call
        except ActivityError as e:
            self.s.held = self._before
            self._deadlines[AGAIN] = workflow.now() + self.s.silence
            return failure_of(e).info.message
        return ""

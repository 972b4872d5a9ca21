"""What the workflows of machine configs share: one call at a time, which a new run or the end may interrupt.

Whatever is called can be repeated, and what it is to do is in state before: so a run may end without its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, Failure, failure_of
from workflows.entity import NEVER
from workflows.signalling import SignallingEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import Wait
    from planners.waits import Tries, wait_after
    from resources.calls.machine_config import ConfigDrainBlocked, ConfigDrainOutput
    from resources.errors import API
    from resources.fleet.state import FleetWait
    from resources.machine_config.state import MachineConfigPoolState, MachineConfigsState
    from resources.names import workflow_queue

P = TypeVar("P")
R = TypeVar("R")
RENEW_AFTER = 2000
"""The messages in one run: a pool hears of its nodes many times a minute while they update."""
CALL_FAILED = "ConfigCallFailed"


@dataclass
class DrainCall:
    wish: str
    handle: workflow.ActivityHandle[ConfigDrainOutput]


class CallGivenUp(Exception):
    """A call was not waited for: a new run is due, or the end."""


class ConfigEntity(SignallingEntity):
    s: MachineConfigPoolState | MachineConfigsState

    def __init__(self, state: MachineConfigPoolState | MachineConfigsState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self.drain_calls: dict[str, DrainCall] = {}
        """Calls for drains and uncordons under way, by node."""
        self.failures = 0
        """Failures of calls, in a row."""
        self.failure: FleetWait | None = None
        """The last call that failed, until one succeeds."""

    @property
    def ending(self) -> bool:
        """Whether it is to end."""
        raise NotImplementedError

    @property
    def cluster(self) -> str:
        raise NotImplementedError

    @property
    def pool_name(self) -> str:
        """The config pool whose nodes it looks after; "": those of none."""
        return ""

    @property
    def in_client(self) -> str:
        """The task queue of what only needs Temporal."""
        return workflow_queue(self.s.queue_prefix)

    def nudge(self) -> None:
        """Has it look again at its nodes soon."""
        raise NotImplementedError

    @workflow.signal
    def drain_blocked(self, news: ConfigDrainBlocked) -> None:
        """What is in the way of a drain, for longer than one pass."""
        self.s.messages += 1
        drain = self.s.drains.get(news.node)
        if drain is not None and drain.blocker != news.message:
            self.s.drains[news.node] = drain._replace(blocker=news.message)
            self.note_news("ConfigDrainBlocked", f"{news.node}: {news.message}")

    @property
    def winding_up(self) -> bool:
        return self.wants_renewal(0) or self.s.messages >= RENEW_AFTER

    # -- calling ------------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: Callable[[Any, P], Coroutine[Any, Any, R]],
        input: P,
        *,
        queue: str,
        summary: str,
        timeout: timedelta | None = None,
        at_end: bool = False,
    ) -> R:
        """Calls an activity. Raises ActivityError, or CallGivenUp where its answer is no longer waited for. `at_end`:
        it belongs to the end, which waits for it."""
        handle: workflow.ActivityHandle[R] = workflow.start_activity_method(
            method,
            input,
            task_queue=queue,
            start_to_close_timeout=timeout or self.s.timings.call_timeout,
            heartbeat_timeout=self.s.timings.heartbeat,
            retry_policy=SHORT,
            summary=summary,
        )
        await self.until(lambda: handle.done() or (not at_end and (self.ending or self.winding_up)), NEVER)
        if not handle.done():
            self.drop(handle)
            raise CallGivenUp
        return await handle

    def failed(self, error: ActivityError) -> datetime:
        """Records a failed call, and returns when it is to be tried again."""
        failure: Failure = failure_of(error)
        self.failures += 1
        again = workflow.now() + wait_after(failure.info, self.s.timings, Tries(failures=self.failures))
        since = self.failure.since if self.failure is not None else workflow.now()
        # An API server that does not answer is the cluster's trouble, and mended there.
        reason = failure.reason if failure.info.silent == API else CALL_FAILED
        self.failure = FleetWait(reason=reason, message=failure.info.message, since=since)
        self.note_news(reason, failure.info.message)
        return again

    def succeeded(self) -> None:
        self.failures, self.failure = 0, None

    # -- waiting ------------------------------------------------------------------------------------------------------

    def keep_waits(self, waits: tuple[Wait, ...]) -> None:
        """Records what is not done now, and since when; the journal gets a line for each new one."""
        s, now = self.s, workflow.now()
        since = {w.reason: w.since for w in s.waits}
        for wait in waits:
            if wait.reason not in since:
                self.note(wait.reason, wait.message)
        s.waits = [FleetWait(reason=w.reason, message=w.message, since=since.get(w.reason, now)) for w in waits]

    def waits_only(self, reason: str, message: str) -> None:
        self.keep_waits((Wait(reason, message),))

    def due_then(self, name: str) -> bool:
        """Whether a deadline has passed, which is cleared then."""
        if self.due(name):
            del self.deadlines[name]
            return True
        return False

    def no_later(self, name: str, time: datetime | None) -> None:
        """Moves a deadline forward."""
        if time is not None:
            self.deadlines[name] = min(time, self.deadlines.get(name, time))

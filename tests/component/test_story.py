"""The story that `hostler events` tells: what counts is told once, and what happens again and again is one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from lifekit import eventually
from machine.stubs import classified, not_yet, stubbed
from temporalio.api.enums.v1 import EventType
from temporalio.api.enums.v1 import TimeoutType as ProtoTimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.journal import Happening
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.timings import Timings
from starter.sdk import history
from starter.sdk.history import Calls, Story
from workflows.machine import MachineWorkflow

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def fails(story: Story, seconds: float, words: str, what: str = "delete the VM") -> None:
    story.tell(at(seconds), "ActivityFailed", f"{what}: {words}", failure=words)


def lines(story: Story) -> list[tuple[str, str]]:
    return [(e.reason, str(e)) for e in story.sorted()]


# -- one line for what happens again and again ------------------------------------------------------------------------


def test_a_failure_that_the_journal_tells_is_one_line_with_its_number() -> None:
    story = Story()
    story.journal([Happening(time=at(0.1), reason="Conflict", message="it is protected (OperationNotPermitted)")])
    for second in (0, 5, 10):
        fails(story, second, "it is protected")
    assert lines(story) == [("Conflict", "it is protected (OperationNotPermitted) (3 times until 03:00:10 UTC)")]


def test_a_failure_that_the_journal_does_not_tell_is_told() -> None:
    story = Story()
    story.journal([Happening(time=at(0.1), reason="Conflict", message="it is protected")])
    fails(story, 0, "connection refused", "join")
    fails(story, 1, "connection refused", "join")
    fails(story, 90000, "connection refused", "delete the VM")
    assert lines(story) == [
        ("ActivityFailed", "join: connection refused (2 times until 03:00:01 UTC)"),
        ("Conflict", "it is protected"),
        ("ActivityFailed", "delete the VM: connection refused"),
    ]


def test_what_the_journal_tells_anew_counts_anew() -> None:
    """The failure that comes just before a line of the journal belongs to that line, not to the one before."""
    story = Story()
    told = [(0.1, "Conflict", "protected"), (7, "Applied", "class c1"), (3600.1, "Conflict", "protected")]
    story.journal([Happening(time=at(s), reason=r, message=m) for s, r, m in told])
    for second in (0, 5, 3600):
        fails(story, second, "protected")
    assert lines(story) == [
        ("Conflict", "protected (2 times until 03:00:05 UTC)"),
        ("Applied", "class c1"),
        ("Conflict", "protected"),
    ]


def test_a_line_whose_number_grows_is_no_new_line_for_a_watch() -> None:
    story = Story()
    story.journal([Happening(time=at(0.1), reason="Conflict", message="protected")])
    fails(story, 0, "protected")
    before = story.sorted()
    fails(story, 86400, "protected")
    assert story.sorted() == before
    assert str(story.sorted()[0]) == "protected (2 times until 2026-03-02 03:00:00 UTC)"


# -- what became of a call --------------------------------------------------------------------------------------------


class Run:
    """Events as the server records them, for activities with a summary."""

    def __init__(self) -> None:
        self.story = Story()
        self.calls = Calls(pydantic_data_converter)
        self.events = 0

    async def _read(self, kind: str, field: str, **attributes: object) -> None:
        self.events += 1
        event = HistoryEvent(event_id=self.events, event_type=EventType.Value(f"EVENT_TYPE_ACTIVITY_TASK_{kind}"))
        event.event_time.FromDatetime(at(self.events))
        written = getattr(event, f"activity_task_{field}_event_attributes")
        for name, value in attributes.items():
            if isinstance(value, Failure):
                getattr(written, name).CopyFrom(value)
            elif name == "activity_type":
                written.activity_type.name = str(value)
            else:
                setattr(written, name, value)
        if kind == "SCHEDULED":
            (summary,) = await pydantic_data_converter.encode(["create VM"])
            event.user_metadata.summary.CopyFrom(summary)
        await self.calls.read(event, self.story)

    async def call(self, end: str, attempt: int = 1, before: Failure | None = None, **how: object) -> list[str]:
        """A call that is tried this many times and ends in this way; returns what is told of it."""
        activity, dropped = how.pop("activity", "create_machine"), how.pop("dropped", False)
        await self._read("SCHEDULED", "scheduled", activity_type=activity)
        scheduled = self.events
        if dropped:
            await self._read("CANCEL_REQUESTED", "cancel_requested", scheduled_event_id=scheduled)
        last = {"last_failure": before} if before else {}
        await self._read("STARTED", "started", scheduled_event_id=scheduled, attempt=attempt, **last)
        await self._read(end, end.lower(), scheduled_event_id=scheduled, **how)
        return [f"{e.reason} {e}" for e in self.story.sorted()]


async def failure(error: BaseException) -> Failure:
    made = Failure()
    await pydantic_data_converter.encode_failure(error, made)
    return made


def silent() -> Failure:
    made = Failure(message="activity Heartbeat timeout")
    made.timeout_failure_info.timeout_type = ProtoTimeoutType.TIMEOUT_TYPE_HEARTBEAT
    return made


async def test_a_call_that_succeeds_at_last_says_what_was_before() -> None:
    assert await Run().call("COMPLETED") == []
    assert await Run().call("COMPLETED", 2, silent()) == [
        "Retried create VM: succeeded at the 2nd attempt; before: no heartbeat, its worker died or hung"
    ]
    looked = await failure(not_yet("1 of 3 pods gone", timedelta(seconds=5)))
    assert await Run().call("COMPLETED", 12, looked) == [
        "Retried create VM: done at the 12th attempt; before: 1 of 3 pods gone"
    ]


async def test_a_call_that_fails_says_it_once() -> None:
    refused, other = await failure(ApplicationError("refused")), await failure(ApplicationError("reset"))
    assert await Run().call("FAILED", 5, other, failure=refused) == ["ActivityFailed create VM: refused"]
    assert await Run().call("TIMED_OUT", 5, other, failure=silent()) == [
        "ActivityTimedOut create VM: no heartbeat, its worker died or hung"
    ]


async def test_what_nobody_waits_for_is_not_told() -> None:
    """That is an Event on the Node, a dropped poller, a pass that says "not yet"."""
    run, refused = Run(), await failure(ApplicationError("refused"))
    assert await run.call("FAILED", activity="tell_node", failure=refused) == []
    assert await run.call("COMPLETED", 2, refused, activity="tell_node") == []
    assert await run.call("FAILED", dropped=True, failure=refused) == []
    assert await run.call("FAILED", failure=await failure(not_yet("no node", timedelta(seconds=1)))) == []
    assert await run.call("FAILED", failure=refused) == ["ActivityFailed create VM: refused"]


@pytest.mark.parametrize(
    ("n", "words"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd"), (113, "113th")]
)
def test_numbers_in_words(n: int, words: str) -> None:
    assert history._nth(n) == words


def _in(phase: Phase) -> Callable[[MachineState], bool]:
    return lambda state: state.status.phase == phase


# -- a whole life -----------------------------------------------------------------------------------------------------


async def test_the_story_of_a_protected_vm_fits_on_a_screen(temporal: WorkflowEnvironment) -> None:
    """Its deletion fails again and again; and so do the Events on its Node, which nobody waits for."""
    moment = timedelta(milliseconds=20)
    quick = Timings.fast().model_copy(update={"retry": dict.fromkeys(ErrorClass, moment)})
    async with stubbed(temporal.client) as machines:
        protected = classified(ErrorClass.CONFLICT, "it is protected from termination")
        machines.stubs.then("delete_machine", *[protected] * 9)
        machines.stubs.then("tell_node", *[classified(ErrorClass.AUTH, "forbidden")] * 9)
        handle = await machines.start(machines.new_state("m-1", quick))
        for phase, ready in ((Phase.RUNNING, True), (Phase.UNKNOWN, False)):
            await handle.signal(MachineWorkflow.observe, machines.facts(ready=ready))
            await eventually(lambda: handle.query(MachineWorkflow.describe), _in(phase), phase)
        await eventually(lambda: asyncio.sleep(0, machines.stubs.called("tell_node")), what="the Event")
        await handle.execute_update(MachineWorkflow.delete, DeleteIntent(requested_by="tester"))
        await handle.result()
        assert len(machines.stubs.called("delete_machine")) == 10
        story = await history.read(temporal.client, handle.id, (await handle.describe()).run_id, MachineState)
    told = [str(e) for e in story.sorted()]
    (line,) = [line for line in told if "protected" in line]
    assert line.startswith("it is protected from termination (9 times until ")
    assert [line for line in told if "forbidden" in line] == []

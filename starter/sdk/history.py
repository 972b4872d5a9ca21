"""The story of one entity: its journal, merged with what the histories of the runs that still exist say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeout
from temporalio.service import RPCError

from resources.cluster.state import ClusterState
from resources.errors import NOT_YET
from resources.fleet.state import FleetState
from resources.journal import Happening
from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import ExtendIntent, PreserveIntent
from resources.machine.state import ApplyIntent, MachineResult, MachineState
from resources.machine_class.state import ClassState
from resources.machine_config.state import MachineConfigPoolState, MachineConfigsState
from starter.sdk.errors import no_such_workflow
from starter.sdk.live import failure_words, innermost
from starter.sdk.machines import preservation
from starter.sdk.machines.recorded import IntentCall, intent_of
from starter.sdk.results import TOLD_ASIDE, Event

Journaled = MachineState | FleetState | ClassState | ClusterState | MachineConfigPoolState | MachineConfigsState
"""The states of the entities whose story can be told."""
S = TypeVar("S", bound=Journaled)
MAX_RUNS = 100
"""Runs of a life that are told, the newest; the journal has the rest."""


@dataclass
class Story:
    """Events of one life, each told once: an intent that came by both update and signal is one; journals overlap."""

    events: dict[Event, int] = field(default_factory=dict)
    """The events, with a rank among those of one moment: what was asked, what the journal says, how it went on."""
    intents: set[str] = field(default_factory=set)
    failures: dict[Event, str] = field(default_factory=dict)
    """What failed calls said."""

    def journal(self, happenings: list[Happening]) -> None:
        for h in happenings:
            self.events.setdefault(Event(h.time.astimezone(UTC), h.reason, h.message, "journal"), 1)

    def tell(self, time: datetime, reason: str, message: str, rank: int = 2, failure: str = "") -> None:
        event = Event(time.astimezone(UTC), reason, message, "history")
        self.events.setdefault(event, rank)
        if failure:
            self.failures[event] = failure

    def intent(self, time: datetime, call: IntentCall) -> None:
        name, intent = call
        if intent.id and intent.id in self.intents:
            return
        self.intents.add(intent.id)
        asked = f"asked by {intent.requested_by}" if intent.requested_by else "asked"
        extra = ""
        if isinstance(intent, DeleteIntent) and intent.force:
            extra = ", with force"
        elif isinstance(intent, ApplyIntent):
            extra = f", class {intent.machine_class.name} generation {intent.machine_class.generation}"
        elif isinstance(intent, PreserveIntent | ExtendIntent):
            extra = preservation.words(intent)
        elif isinstance(intent, HookIntent):
            extra = f", {'remove' if intent.remove else 'add'} {intent.name}"
        reason = f": {intent.reason}" if intent.reason else ""
        self.tell(time, f"{name.capitalize()}Asked", f"{name} {asked}{extra}{reason}", rank=0)

    def sorted(self) -> list[Event]:
        """The entries in time order; those of one moment stay in their journal's order. Calls that fail again and again
        become one line: the journal's, where it says the same, else the first one's."""
        lines: list[Event] = []
        ordered = sorted(self.events, key=lambda e: (e.time, self.events[e]))
        for i, event in enumerate(ordered):
            if event in self.failures and self._journal_follows(ordered, i):
                continue
            same = self._said(lines, event) if event in self.failures else None
            if same is None:
                lines.append(event)
            else:
                lines[same] = replace(lines[same], times=lines[same].times + 1, until=event.time)
        return lines

    def _journal_follows(self, events: list[Event], at: int) -> bool:
        """Whether the journal tells of this very failure, a moment later."""
        words = self.failures[events[at]]
        for event in events[at + 1 :]:
            if self.failures.get(event) == words:
                return False
            if event.source == "journal" and words in event.message:
                return True
        return False

    def _said(self, lines: list[Event], event: Event) -> int | None:
        """The newest line that says the same as this failure."""
        words = self.failures[event]
        for i in range(len(lines) - 1, -1, -1):
            line = lines[i]
            if (line.source == "journal" and words in line.message) or line.message == event.message:
                return i
        return None


@dataclass
class Calls:
    """The activities of one run, by the id of the event that scheduled them."""

    converter: DataConverter
    names: dict[int, str] = field(default_factory=dict)
    tried: dict[int, tuple[int, Failure]] = field(default_factory=dict)
    """Attempts that failed are not in the history; the event that ended the activity has their number and the last of
    them."""
    unheard: set[int] = field(default_factory=set)
    """Nobody waits for their end (any longer), so it tells nothing."""

    async def read(self, event: HistoryEvent, story: Story) -> None:
        time = event.event_time.ToDatetime(UTC)
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                self.names[event.event_id] = await self._name(event)
                if event.activity_task_scheduled_event_attributes.activity_type.name == TOLD_ASIDE:
                    self.unheard.add(event.event_id)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED:
                self.unheard.add(event.activity_task_cancel_requested_event_attributes.scheduled_event_id)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                started = event.activity_task_started_event_attributes
                if started.attempt > 1 and started.HasField("last_failure"):
                    self.tried[started.scheduled_event_id] = started.attempt, started.last_failure
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes.scheduled_event_id
                if done in self.tried and done not in self.unheard:
                    story.tell(time, "Retried", f"{self._of(done)}: {await self._at_last(*self.tried[done])}")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                error = await self.converter.decode_failure(failed.failure)
                not_yet = isinstance(error, ApplicationError) and error.type == NOT_YET
                if not not_yet and failed.scheduled_event_id not in self.unheard:
                    words = _words(error)
                    what = self._of(failed.scheduled_event_id)
                    story.tell(time, "ActivityFailed", f"{what}: {words}", failure=words)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                late = event.activity_task_timed_out_event_attributes
                if late.scheduled_event_id not in self.unheard:
                    words = _words(await self.converter.decode_failure(late.failure))
                    what = self._of(late.scheduled_event_id)
                    story.tell(time, "ActivityTimedOut", f"{what}: {words}", failure=words)

    def _of(self, scheduled: int) -> str:
        return self.names.get(scheduled, "activity")

    async def _name(self, event: HistoryEvent) -> str:
        """The purpose of the activity, as its workflow says; else its type."""
        if event.user_metadata.HasField("summary"):
            (summary,) = await self.converter.decode([event.user_metadata.summary], [str])
            return str(summary)
        return event.activity_task_scheduled_event_attributes.activity_type.name

    async def _at_last(self, attempt: int, last: Failure) -> str:
        error = await self.converter.decode_failure(last)
        looks = isinstance(error, ApplicationError) and error.category == ApplicationErrorCategory.BENIGN
        at = f"done at the {_nth(attempt)} attempt" if looks else f"succeeded at the {_nth(attempt)} attempt"
        return f"{at}; before: {_words(error)}"


def _words(error: BaseException) -> str:
    cause = innermost(error)
    if isinstance(cause, TemporalTimeout) and cause.type == TimeoutType.HEARTBEAT:
        return "no heartbeat, its worker died or hung"
    return failure_words(cause)


def _nth(n: int) -> str:
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


async def read(temporal: Client, workflow_id: str, run_id: str, kind: type[S]) -> Story:
    """Reads every run of the life that ends with `run_id`, as far back as the server keeps them. `kind` is its
    state's, one of `Journaled`."""
    story = Story()
    run: str | None = run_id
    for _ in range(MAX_RUNS):
        if not run:
            break
        try:
            run = await _read_run(temporal, workflow_id, run, kind, story)
        except RPCError as e:
            if no_such_workflow(e):
                break  # past the retention; the journal goes further back
            raise
    return story


async def _read_run(temporal: Client, workflow_id: str, run_id: str, kind: type[S], story: Story) -> str:
    """Tells one run and returns the one before it, empty for the first."""
    converter = temporal.data_converter
    before = ""
    calls = Calls(converter)
    task_started: datetime | None = None
    handle = temporal.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        time = event.event_time.ToDatetime(UTC)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            before = await _started(event, converter, kind, story)
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            task_started = time
        elif (call := await intent_of(event, converter)) is not None:
            # An accepted update has the time of its task's end, what it led to that of the task's start.
            by_update = event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
            story.intent(task_started if by_update and task_started else time, call)
        await calls.read(event, story)
        async for reason, message in _happened(event, converter):
            story.tell(time, reason, message)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED and kind is MachineState:
            payloads = event.workflow_execution_completed_event_attributes.result.payloads
            for result in await converter.decode(list(payloads), [MachineResult]):
                story.journal(result.journal)
    return before


async def _started(event: HistoryEvent, converter: DataConverter, kind: type[S], story: Story) -> str:
    started = event.workflow_execution_started_event_attributes
    (state,) = await converter.decode(list(started.input.payloads), [kind])
    story.journal(state.journal)
    if not started.continued_execution_run_id:
        snapshot = getattr(state, "machine_class", None)
        of = f", class {snapshot.name} generation {snapshot.generation}" if snapshot else ""
        story.tell(event.event_time.ToDatetime(UTC), "Started", f"started by {started.identity}{of}", rank=0)
    return str(started.continued_execution_run_id)


async def _happened(event: HistoryEvent, converter: DataConverter) -> AsyncIterator[tuple[str, str]]:
    """Reason and message of an event of the run itself that matters; most do not."""

    async def words(failure: Failure) -> str:
        return failure_words(await converter.decode_failure(failure))

    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            task = event.workflow_task_failed_event_attributes
            if task.HasField("failure"):
                yield "WorkflowTaskFailed", await words(task.failure)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            yield "CancelRequested", "a cancellation of the workflow was requested; it has no effect"
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            yield "ContinuedAsNew", "continues in a new run"
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            yield "WorkflowFailed", await words(event.workflow_execution_failed_event_attributes.failure)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            end = event.workflow_execution_terminated_event_attributes
            yield (
                "Terminated",
                f"its workflow was terminated by {end.identity}" + (f": {end.reason}" if end.reason else ""),
            )

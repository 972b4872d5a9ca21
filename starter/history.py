"""The story of one machine: its journal, merged with what the histories of the runs that still exist say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from resources.machine import ApplyIntent, MachineResult, MachineState
from resources.messages import DeleteIntent, Happening
from starter.errors import no_such_workflow
from starter.live import IntentCall, failure_words, intent_of
from starter.results import Event

MAX_RUNS = 100
"""A life of so many runs is told from its newest ones; the journal has the rest."""


@dataclass
class Story:
    """Events of one life, each told once: an intent that came by update and by signal is one; journals overlap."""

    events: dict[Event, int] = field(default_factory=dict)
    """With the rank among those of one moment: what was asked, what the journal says, how it went on."""
    intents: set[str] = field(default_factory=set)

    def journal(self, happenings: list[Happening]) -> None:
        for h in happenings:
            self.events.setdefault(Event(h.time.astimezone(UTC), h.reason, h.message, "journal"), 1)

    def tell(self, time: datetime, reason: str, message: str, rank: int = 2) -> None:
        self.events.setdefault(Event(time.astimezone(UTC), reason, message, "history"), rank)

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
        reason = f": {intent.reason}" if intent.reason else ""
        self.tell(time, f"{name.capitalize()}Asked", f"{name} {asked}{extra}{reason}", rank=0)

    def sorted(self) -> list[Event]:
        """In time order; entries of one moment stay in their journal's order."""
        return sorted(self.events, key=lambda e: (e.time, self.events[e]))


async def read(temporal: Client, workflow_id: str, run_id: str) -> Story:
    """Every run of the life that ends with `run_id`, as far back as the server keeps them."""
    story = Story()
    run: str | None = run_id
    for _ in range(MAX_RUNS):
        if not run:
            break
        try:
            run = await _read_run(temporal, workflow_id, run, story)
        except RPCError as e:
            if no_such_workflow(e):
                break  # past the retention; the journal goes further back
            raise
    return story


async def _read_run(temporal: Client, workflow_id: str, run_id: str, story: Story) -> str:
    """Tells one run and answers with the one before it, empty for the first."""
    converter = temporal.data_converter
    before = ""
    summaries: dict[int, str] = {}
    task_started: datetime | None = None
    handle = temporal.get_workflow_handle(workflow_id, run_id=run_id)
    async for event in handle.fetch_history_events():
        time = event.event_time.ToDatetime(UTC)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            before = await _started(event, converter, story)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            summaries[event.event_id] = await _summary(event, converter)
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            task_started = time
        elif (call := await intent_of(event, converter)) is not None:
            # An accepted update is dated by the end of its task, what it led to by the task's start.
            by_update = event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
            story.intent(task_started if by_update and task_started else time, call)
        async for reason, message in _happened(event, converter, summaries):
            story.tell(time, reason, message)
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            payloads = event.workflow_execution_completed_event_attributes.result.payloads
            for result in await converter.decode(list(payloads), [MachineResult]):
                story.journal(result.journal)
    return before


async def _started(event: HistoryEvent, converter: DataConverter, story: Story) -> str:
    started = event.workflow_execution_started_event_attributes
    (state,) = await converter.decode(list(started.input.payloads), [MachineState])
    story.journal(state.journal)
    if not started.continued_execution_run_id:
        snapshot = state.machine_class
        of = f", class {snapshot.name} generation {snapshot.generation}" if snapshot else ""
        story.tell(event.event_time.ToDatetime(UTC), "Started", f"started by {started.identity}{of}", rank=0)
    return str(started.continued_execution_run_id)


async def _summary(event: HistoryEvent, converter: DataConverter) -> str:
    """What the activity is for, as its workflow says; else its type."""
    if event.user_metadata.HasField("summary"):
        (summary,) = await converter.decode([event.user_metadata.summary], [str])
        return str(summary)
    return event.activity_task_scheduled_event_attributes.activity_type.name


async def _happened(
    event: HistoryEvent, converter: DataConverter, summaries: dict[int, str]
) -> AsyncIterator[tuple[str, str]]:
    """Reason and message of an event that tells something; most do not."""

    async def words(failure: Failure) -> str:
        return failure_words(await converter.decode_failure(failure))

    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            # Attempts that failed are not in the history; the one that ended it knows the last of them.
            tried = event.activity_task_started_event_attributes
            if tried.attempt > 1 and tried.HasField("last_failure"):
                what = summaries.get(tried.scheduled_event_id, "activity")
                yield "Retried", f"{what}: attempt {tried.attempt}; the one before: {await words(tried.last_failure)}"
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            what = summaries.get(failed.scheduled_event_id, "activity")
            yield "ActivityFailed", f"{what}: {await words(failed.failure)}"
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            late = event.activity_task_timed_out_event_attributes
            yield (
                "ActivityTimedOut",
                f"{summaries.get(late.scheduled_event_id, 'activity')}: {await words(late.failure)}",
            )
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            task = event.workflow_task_failed_event_attributes
            if task.HasField("failure"):
                yield "WorkflowTaskFailed", await words(task.failure)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            yield "CancelRequested", "a cancellation of the workflow was asked for; it changes nothing"
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            yield "ContinuedAsNew", "goes on in a new run"
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            yield "Failed", await words(event.workflow_execution_failed_event_attributes.failure)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            end = event.workflow_execution_terminated_event_attributes
            yield (
                "Terminated",
                f"its workflow was terminated by {end.identity}" + (f": {end.reason}" if end.reason else ""),
            )

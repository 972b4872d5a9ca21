"""What a workflow knew, from its history. A history always answers, while a query needs a worker, code that can answer,
and a run whose last news somebody has taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from resources.cluster.state import LAST_WORDS, ClusterState, Ended
from resources.settings import Settings
from resources.sound import fault
from resources.starts import FROM_OUTSIDE
from resources.strict import strange, untyped

StateT = TypeVar("StateT")
Message = tuple[str, Sequence[Payload]]


async def folded(
    client: Client,
    workflow_id: str,
    run_id: str | None,
    kind: type[StateT],
    fold: Callable[[StateT, HistoryEvent, DataConverter], Awaitable[StateT]],
) -> StateT | None:
    """The state that a run began with, and what its events have made of it since, including messages that no worker has
    seen yet. None without a beginning. Raises RPCError."""
    state: StateT | None = None
    converter = client.data_converter
    async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            (state,) = await converter.decode(list(payloads), [kind])
        elif state is not None:
            state = await fold(state, event, converter)
    return state


def message_of(event: HistoryEvent) -> Message | None:
    """Name and arguments of what this event told a workflow, by signal or by accepted update."""
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
        signal = event.workflow_execution_signaled_event_attributes
        return signal.signal_name, list(signal.input.payloads)
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
        call = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        return call.name, list(call.args.payloads)
    return None


async def told_by(event: HistoryEvent, converter: DataConverter, kinds: Mapping[str, type]) -> tuple[str, Any] | None:
    """Name and argument of the message that an event carries, if it has one of these names. None also for one that
    cannot be read: typed by hand in the web UI, and wrong, so that the workflow refuses it too."""
    name, payloads = message_of(event) or ("", [])
    if name not in kinds or len(payloads) != 1:
        return None
    by_signal = event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    try:
        if converter.payload_codec is not None:
            payloads = await converter.payload_codec.decode(payloads)
        (said,) = converter.payload_converter.from_payloads(payloads, [kinds[name]])
    except (RuntimeError, ValueError, TypeError):
        return None
    kind, data = kinds[name], payloads[0].data
    refused = fault(said, kind) or (by_signal and (strange(kind, data, by_signal) or untyped(kind, data, by_signal)))
    return None if refused else (name, said)


async def cluster_begins(
    client: Client, name: str, settings: Settings, found: WorkflowExecutionDescription | None
) -> ClusterState:
    """What a cluster's workflow begins with where none runs: after one that somebody has ended from outside, with what
    people and classes had told that one. `found`: the newest run. Raises RPCError."""
    state = ClusterState.of(name, settings.queue_prefix, settings.timings)
    if found is None or found.status not in FROM_OUTSIDE:
        return state
    try:
        former = await last_words(client, found.id, found.run_id)
    except RPCError as e:
        if e.status != RPCStatusCode.NOT_FOUND:
            raise
        former = None  # its history is gone
    return state.after(former, Ended(time=found.close_time, how=found.status.name))


async def last_words(client: Client, workflow_id: str, run_id: str | None) -> ClusterState | None:
    """What a cluster's workflow knew at the end of a run; None when its history says nothing. Raises RPCError."""
    return await folded(client, workflow_id, run_id, ClusterState, _heard)


async def _heard(state: ClusterState, event: HistoryEvent, converter: DataConverter) -> ClusterState:
    said = await told_by(event, converter, LAST_WORDS)
    return state.told(*said, event.event_time.ToDatetime(UTC)) if said else state

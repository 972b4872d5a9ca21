"""What Temporal's history of a machine says, without a worker: what was asked for, and what has come of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadConverter, decode_typed_search_attributes

from resources import histories
from resources.attributes import PRESERVED_UNTIL
from resources.calls.cloud import CreateInput
from resources.intents import Intent
from resources.machine.hooks import HookIntent
from resources.machine.intents import AdoptIntent, DeleteIntent, RecreateIntent
from resources.machine.preservation import (
    ExtendIntent,
    Preservation,
    PreservedBy,
    PreserveIntent,
    PreserveValue,
    ReleaseIntent,
)
from resources.machine.state import ApplyIntent, Attempt, MachineState
from starter.sdk.live import folded

IntentCall = tuple[str, Any]

_INTENTS: dict[str, type[Any]] = {
    "apply": ApplyIntent,
    "delete": DeleteIntent,
    "recreate": RecreateIntent,
    "adopt": AdoptIntent,
    "renew": Intent,
    "preserve": PreserveIntent,
    "release": ReleaseIntent,
    "extend": ExtendIntent,
    "hook": HookIntent,
}


FIRST = 2
"""The event after the start."""


async def intent_of(event: HistoryEvent, converter: DataConverter) -> IntentCall | None:
    """Name and payload of an operator's intent that an event carries."""
    return await histories.told_by(event, converter, _INTENTS)


async def recorded(temporal: Client, workflow_id: str, run_id: str) -> MachineState:
    """The state that was asked for of a machine, without a worker. So a second `apply` continues from the first one's
    class generation.

    It also has the uid that the machine has given itself, its newest attempt, as it asked the cloud for a VM, and until
    when it is preserved.
    """
    return await folded(temporal, workflow_id, run_id, MachineState, _fold_event)


async def _fold_event(state: MachineState, event: HistoryEvent, converter: DataConverter) -> MachineState:
    if event.event_id == FIRST:
        from workflows.machine.taken import begun

        state = begun(state, _time(event))
    if event.event_type == EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
        return _published(state, event)
    if (asked := await _create_of(event, converter)) is not None:
        return _attempted(state, asked)
    if (call := await intent_of(event, converter)) is not None:
        from workflows.machine.taken import taken  # not above: no command needs it that has a worker to ask

        return taken(state, call[1], _time(event))
    return state


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(UTC)


# -- what it did ------------------------------------------------------------------------------------------------------


async def _create_of(event: HistoryEvent, converter: DataConverter) -> CreateInput | None:
    """What a create activity was asked for."""
    call = event.activity_task_scheduled_event_attributes
    if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED or call.activity_type.name != "create_machine":
        return None
    (asked,) = await converter.decode(list(call.input.payloads), [CreateInput])
    return CreateInput.model_validate(asked)


def _attempted(state: MachineState, asked: CreateInput) -> MachineState:
    target, now = asked.target, state.machine_class
    if now is None:
        return state  # none begins without a class
    made_from = now.model_copy(update={"provider": target.provider, "provider_spec": target.provider_spec})
    attempt = Attempt(number=asked.attempt, token=target.token, started=asked.started, machine_class=made_from)
    return state.model_copy(update={"uid": target.machine.uid, "attempt": attempt})


def _published(state: MachineState, event: HistoryEvent) -> MachineState:
    """The end of a preservation as published: it is in no intent."""
    news = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    if PRESERVED_UNTIL.name not in news:
        return state
    p, until = state.status.preserve, _moment(news[PRESERVED_UNTIL.name])
    barred = p.own is not None and p.own.value is PreserveValue.FALSE
    if until is None:  # what was asked for is gone with it, on the Node too
        return _with(state, Preservation(own=p.own if barred else None, node_uid=p.node_uid))
    if p.expiry_time is not None:
        return _with(state, p.model_copy(update={"expiry_time": until}))
    own = None if barred else p.own  # the Node's value was stronger
    by_node = p.node_value not in ("", PreserveValue.FALSE)
    source = PreservedBy.ASKED if own or by_node else PreservedBy.AUTO
    begun = {"expiry_time": until, "since": _time(event), "own": own, "source": source, "why": "", "warned": False}
    return _with(state, p.model_copy(update=begun))


def _moment(payload: Payload) -> datetime | None:
    if PayloadConverter.default.from_payload(payload) is None:
        return None  # the SDK's own decoding takes no empty time
    alone = SearchAttributes(indexed_fields={PRESERVED_UNTIL.name: payload})
    return decode_typed_search_attributes(alone).get(PRESERVED_UNTIL)


def _with(state: MachineState, preserve: Preservation) -> MachineState:
    return state.model_copy(update={"status": state.status.model_copy(update={"preserve": preserve})})

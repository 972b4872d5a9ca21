"""What a history without a worker says of a preservation: the requests that it has, and the time that was published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifekit import examples
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import SearchAttributeKey
from temporalio.converter import encode_typed_search_attribute_value

from resources.attributes import DEADLINE, PHASE, PRESERVED_UNTIL
from resources.converter import data_converter
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import (
    ExtendIntent,
    Preservation,
    PreservedBy,
    PreserveIntent,
    PreserveRequest,
    PreserveValue,
    ReleaseIntent,
)
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState
from resources.names import PRESERVE_ANNOTATION
from starter.sdk.machines.recorded import _fold_event

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATER, LATEST = NOW + 8 * HOUR, NOW + 24 * HOUR
ASKED, AUTO, NOBODY = PreservedBy.ASKED, PreservedBy.AUTO, PreservedBy.NOBODY
NAMES = {
    PreserveIntent: "preserve",
    ReleaseIntent: "release",
    ExtendIntent: "extend",
    DeleteIntent: "delete",
    ApplyIntent: "apply",
}

own = PreserveRequest(value=PreserveValue.WHEN_FAILED, time=NOW - HOUR)
never = PreserveRequest(value=PreserveValue.FALSE, time=NOW - HOUR)
kept = Preservation(own=own, source=ASKED, expiry_time=LATER, since=NOW - HOUR, why="words")
slot = Preservation(source=AUTO, expiry_time=LATER, since=NOW - HOUR)
by_node = Preservation(last_seen_node_value="now", source=ASKED, expiry_time=LATER)


async def signalled(intent: Intent) -> HistoryEvent:
    event = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    event.event_time.FromDatetime(NOW)
    event.workflow_execution_signaled_event_attributes.signal_name = NAMES[type(intent)]
    event.workflow_execution_signaled_event_attributes.input.payloads.extend(await data_converter.encode([intent]))
    return event


def published(key: SearchAttributeKey[Any], value: Any) -> HistoryEvent:
    event = HistoryEvent(event_type=EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    event.event_time.FromDatetime(NOW)
    news = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    for k, v in ((key, value), (DEADLINE, None)):
        news[k.name].CopyFrom(encode_typed_search_attribute_value(k, v))
        news[k.name].metadata["type"] = k._metadata_type.encode()  # as the server adds it
    return event


async def folded(p: Preservation, *happens: Intent | datetime | None) -> Preservation:
    """The state after an intent, or after the published time; None: there is none."""
    loaded = examples("m-1")
    snapshot = ClassSnapshot.of(loaded.classes[0])
    state = MachineState(name="m-1", spec=loaded.machines[0].spec, machine_class=snapshot)
    state.status.preserve = p
    for what in happens:
        event = await signalled(what) if isinstance(what, Intent) else published(PRESERVED_UNTIL, what)
        state = await _fold_event(state, event, data_converter)
    return state.status.preserve


ask = PreserveIntent(id="p", requested_by="alice", lasts=2 * HOUR)
now = PreserveIntent(id="n", requested_by="alice")
bar = PreserveIntent(id="b", value=PreserveValue.FALSE)
release = ReleaseIntent(id="r", requested_by="bob")
extend = ExtendIntent(id="e", until=LATEST)


@pytest.mark.parametrize(
    ("before", "happens", "expiry", "source", "value"),
    [
        pytest.param(Preservation(), [ask], None, NOBODY, "now", id="asked, and not preserved yet"),
        pytest.param(Preservation(), [ask, LATER], LATER, ASKED, "now", id="preserved on request"),
        pytest.param(Preservation(), [LATER], LATER, AUTO, "", id="for whom nobody asked"),
        pytest.param(by_node.model_copy(update={"expiry_time": None}), [LATER], LATER, ASKED, "", id="by its Node"),
        pytest.param(Preservation(own=never), [LATER], LATER, AUTO, "", id="against its own word: by its Node"),
        pytest.param(kept, [], LATER, ASKED, "when-failed", id="as the run began"),
        pytest.param(kept, [extend], LATEST, ASKED, "when-failed", id="extended, and nobody has worked on it"),
        pytest.param(kept, [extend, LATEST], LATEST, ASKED, "when-failed", id="extended"),
        pytest.param(kept, [ExtendIntent(id="e", lasts=HOUR)], NOW + HOUR, ASKED, "when-failed", id="from then on"),
        pytest.param(slot, [now], LATER, AUTO, "now", id="of a slot, and now on request"),
        pytest.param(kept, [release, None], None, NOBODY, "", id="released"),
        pytest.param(kept, [release, None, ask, LATEST], LATEST, ASKED, "now", id="and asked for again"),
        pytest.param(kept, [now, release, None, now], None, NOBODY, "", id="an intent that comes twice counts once"),
        pytest.param(kept, [None], None, NOBODY, "", id="its time ended"),
        pytest.param(by_node, [None], None, NOBODY, "", id="its annotation was taken away"),
        pytest.param(slot, [bar, None], None, NOBODY, "false", id="a bar stays"),
        pytest.param(Preservation(own=own), [release], None, NOBODY, "", id="a request is withdrawn"),
        pytest.param(Preservation(), [extend], None, NOBODY, "", id="nothing is extended"),
        pytest.param(kept, [DeleteIntent(id="d"), release], LATER, ASKED, "when-failed", id="not of one that goes"),
    ],
)
async def test_a_preservation(
    before: Preservation, happens: list[Any], expiry: datetime | None, source: PreservedBy, value: str
) -> None:
    after = await folded(before, *happens)
    assert (after.expiry_time, after.source, str(after.own.value) if after.own else "") == (expiry, source, value)
    assert after.release is None


async def test_who_asked_and_since_when() -> None:
    after = await folded(Preservation(), ask, LATER)
    assert after.own == PreserveRequest(value=PreserveValue.NOW, time=NOW, requested_by="alice", lasts=2 * HOUR)
    assert after.since == NOW
    assert (await folded(kept, LATEST)).since == kept.since


async def test_a_release_that_nobody_has_worked_on_is_one_yet() -> None:
    after = await folded(kept, release)
    assert after.release is not None
    assert (after.release.requested_by, after.own, after.expiry_time) == ("bob", None, LATER)
    assert (await folded(kept, release, now)).release is None


@pytest.mark.parametrize(
    ("before", "first", "refused"),
    [
        pytest.param(kept, release, extend, id="extended when it is released"),
        pytest.param(kept, now, ask, id="a new time for what is preserved"),
        pytest.param(by_node, now, PreserveIntent(id="w", value=PreserveValue.WHEN_FAILED), id="the Node says now"),
        pytest.param(Preservation(), bar, ExtendIntent(id="e", lasts=HOUR), id="not preserved"),
    ],
)
async def test_what_a_signal_asks_in_vain_changes_nothing(before: Preservation, first: Intent, refused: Intent) -> None:
    assert await folded(before, first, refused) == await folded(before, first)


async def test_force_that_comes_later_is_in_the_history_too() -> None:
    loaded = examples("m-1")
    state = MachineState(name="m-1", spec=loaded.machines[0].spec, machine_class=ClassSnapshot.of(loaded.classes[0]))
    for intent in (DeleteIntent(id="d", requested_by="alice"), DeleteIntent(id="f", requested_by="bob", force=True)):
        state = await _fold_event(state, await signalled(intent), data_converter)
    assert state.deletion is not None
    assert (state.deletion.force, state.deletion.requested_by) == (True, "alice")


async def test_other_attributes_are_no_news_of_it() -> None:
    event = published(PHASE, "Running")
    loaded = examples("m-1")
    state = MachineState(name="m-1", spec=loaded.machines[0].spec, machine_class=ClassSnapshot.of(loaded.classes[0]))
    assert await _fold_event(state, event, data_converter) is state


async def test_what_a_manifest_asks_counts_from_the_first_event_on() -> None:
    loaded = examples("m-1")
    meta = {"annotations": {PRESERVE_ANNOTATION: "when-failed"}}
    state = MachineState(name="m-1", spec=loaded.machines[0].spec, **meta)  # type: ignore[arg-type]
    first = HistoryEvent(event_id=2)
    begun = await _fold_event(state, first, data_converter)
    assert begun.status.preserve.own is not None
    assert (begun.status.preserve.own.value, begun.annotations) == (PreserveValue.WHEN_FAILED, state.annotations)
    later = state.model_copy(update={"created": NOW})
    assert await _fold_event(later, first, data_converter) == later, "its next run has what has become of it"
    of = ClassSnapshot.of(loaded.classes[0])
    over = ApplyIntent(id="a", spec=state.spec, machine_class=of, requested_by="alice")
    assert (await _fold_event(begun, await signalled(over), data_converter)).status.preserve.own is None

"""A message that the workflow refuses does not count for readers of its history either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from resources.converter import data_converter
from resources.histories import told_by
from resources.machine.facts import NodeFacts
from resources.machine.intents import DeleteIntent
from resources.strict import strange


def event(*arguments: dict[str, Any]) -> HistoryEvent:
    found = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
    told = found.workflow_execution_signaled_event_attributes
    told.signal_name = "delete"
    for argument in arguments:
        data = json.dumps(argument).encode()
        told.input.payloads.append(Payload(metadata={"encoding": b"json/plain"}, data=data))
    return found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([{"force": True}], True),
        ([{"requestedBy": "pool p1", "newer": 1}], True),
        ([{"forced": True}], False),
        ([{"requestedBy": "me", "newer": 1}], False),
        ([{"force": True}, {}], False),
        ([{"force": "maybe"}], False),
        ([], False),
    ],
)
async def test_what_is_refused_was_not_asked_for(arguments: list[dict[str, Any]], told: bool) -> None:
    found = await told_by(event(*arguments), data_converter, {"delete": DeleteIntent})
    assert (found is not None) is told


def test_facts_may_say_more_and_names_may_be_written_either_way() -> None:
    assert strange(NodeFacts, b'{"newer": 1}', by_signal=True) == ""
    assert strange(DeleteIntent, b'{"requested_by": "a", "abandonNode": true}', by_signal=True) == ""
    words = strange(DeleteIntent, json.dumps({"abandon": 1, "x" * 500: 2}).encode(), by_signal=False)
    assert words.startswith("DeleteIntent has no 'abandon'; did you mean abandonNode?, no 'xxxxx")
    assert len(words) < 400

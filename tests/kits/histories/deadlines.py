"""Whether a deadline was kept, by the history of its workflow: on a busy computer the clock does not tell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowHandle


async def at_once(handle: WorkflowHandle[Any, Any], deadline: datetime, at: datetime) -> None:
    """Checks that a deadline has a timer, and that no other one was waited for from then until `at`, when it was acted
    on, except for the second of two looks, which follows the first however late that was. So a decision that hangs on
    something later is seen, and a slow computer is none."""
    now = at
    timers: dict[str, tuple[datetime, str]] = {}
    fired: list[tuple[datetime, str]] = []
    for event in (await handle.fetch_history()).events:
        match event.WhichOneof("attributes"):
            case "workflow_task_started_event_attributes":
                now = event.event_time.ToDatetime(tzinfo=UTC)  # what the workflow takes for now
            case "timer_started_event_attributes":
                started, name = event.timer_started_event_attributes, event.user_metadata.summary.data.decode()
                timers[started.timer_id] = now + started.start_to_fire_timeout.ToTimedelta(), name
            case "timer_fired_event_attributes":
                fired.append(timers[event.timer_fired_event_attributes.timer_id])
    near = timedelta(seconds=0.1)  # what two clocks make of one moment
    assert any(abs(end - deadline) < near for end, _ in fired), (deadline, fired)
    others = [timer for timer in fired if deadline + near <= timer[0] <= at and "confirm" not in timer[1]]
    assert not others, (deadline, others, at)
    assert deadline <= at

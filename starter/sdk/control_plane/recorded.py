"""What was asked for of a control plane, from its history: what is known of it without a worker."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from resources import histories
from resources.control_plane.intents import ApplyControlPlane
from resources.control_plane.state import ControlPlaneState
from resources.intents import Intent
from resources.machine_class.state import ClassNews
from starter.sdk import live
from starter.sdk.fleet.recorded import applied, with_class

_MESSAGES: dict[str, type] = {
    "apply": ApplyControlPlane,
    "pause": Intent,
    "resume": Intent,
    "delete": Intent,
    "class_changed": ClassNews,
}


async def read(temporal: Client, workflow_id: str, run_id: str) -> ControlPlaneState:
    """Reads the state that the run began with, and what was asked for since. Raises NotFound without a history."""
    return await live.folded(temporal, workflow_id, run_id, ControlPlaneState, _fold)


async def _fold(state: ControlPlaneState, event: HistoryEvent, converter: DataConverter) -> ControlPlaneState:
    """Folds an intent into the state. What the workflow refuses changes nothing, as far as that is known without it."""
    told = await histories.told_by(event, converter, _MESSAGES)
    if told is None or state.deleted:
        return state
    match told:
        case _, ApplyControlPlane() as said:
            return applied(state, said)
        case _, ClassNews(machine_class=of) if of.name == state.class_name:
            return with_class(state, of)
        case "pause" | "resume" as name, Intent() as intent:
            by = intent.requested_by if name == "pause" else ""
            return state.model_copy(update={"paused": name == "pause", "paused_by": by})
        case "delete", _:
            return state.model_copy(update={"deleted": True})
    return state

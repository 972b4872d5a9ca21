"""What was asked for of a pool, from its history: what is known of it without a worker."""

from __future__ import annotations

from datetime import UTC

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from resources import histories
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine_class.state import ClassNews
from resources.maintenance import FreezeIntent
from resources.pool.intents import PoolIntent, ResumeIntent, ScaleIntent
from resources.pool.state import PoolState
from starter.sdk import live
from starter.sdk.fleet.recorded import applied, with_class

_MESSAGES: dict[str, type] = {
    "apply": PoolIntent,
    "scale": ScaleIntent,
    "hibernate": Intent,
    "wake": Intent,
    "resume": ResumeIntent,
    "freeze": FreezeIntent,
    "unfreeze": Intent,
    "delete": DeleteIntent,
    "class_changed": ClassNews,
}


async def read(temporal: Client, workflow_id: str, run_id: str) -> PoolState:
    """Reads the state that the run began with, and what was asked for since. Raises NotFound without a history."""
    return await live.folded(temporal, workflow_id, run_id, PoolState, _fold)


async def _fold(state: PoolState, event: HistoryEvent, converter: DataConverter) -> PoolState:
    """Folds an intent into the state. What the workflow refuses changes nothing, as far as that is known without it."""
    told = await histories.told_by(event, converter, _MESSAGES)
    if told is None or state.deleted:
        return state
    match told:
        case _, PoolIntent() as said:
            return applied(state, said)
        case _, ScaleIntent(replicas=int(replicas), current=current) if current in (None, state.spec.replicas):
            return _with(state, replicas=replicas)
        case _, DeleteIntent():
            return state.model_copy(update={"deleted": True})
        case _, ClassNews(machine_class=of) if of.name == state.spec.template.spec.class_.name:
            return with_class(state, of)
        case "hibernate" | "wake" as name, _:
            return _with(state, hibernated=name == "hibernate")
        case "resume", _:
            return _with(state, paused=False)
        case _, FreezeIntent() as said:
            return state.model_copy(update={"freeze": said.begun(event.event_time.ToDatetime(UTC))})
        case "unfreeze", _:
            return state.model_copy(update={"freeze": None})
    return state


def _with(state: PoolState, **changed: int | bool) -> PoolState:
    return state.model_copy(update={"spec": state.spec.model_copy(update=changed)})

"""What the server knows of a pool without a worker: its record, and what was asked for, from its history."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription
from temporalio.converter import DataConverter

from resources import attributes, histories
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine_class.state import ClassNews
from resources.names import id_parts
from resources.pool.intents import PoolIntent, ScaleIntent
from resources.pool.state import PoolState
from starter.sdk import live
from starter.sdk.pools.results import PoolDescription, PoolListed

_MESSAGES: dict[str, type] = {
    "apply": PoolIntent,
    "scale": ScaleIntent,
    "hibernate": Intent,
    "wake": Intent,
    "resume": Intent,
    "delete": DeleteIntent,
    "class_changed": ClassNews,
}


async def listed(execution: WorkflowExecution) -> PoolListed:
    """The pool as its search attributes show it."""
    cluster, name = id_parts(execution.id, 2)
    found = execution.typed_search_attributes
    return PoolListed(
        name=name,
        cluster=cluster,
        created=await live.created_of(execution),
        phase=found.get(attributes.PHASE, ""),
        reason=found.get(attributes.REASON, ""),
        machine_class=found.get(attributes.CLASS, ""),
    )


async def life(found: WorkflowExecutionDescription, web: str | None) -> PoolDescription:
    """The latest life, running or gone."""
    status = found.status.name if found.status else "UNKNOWN"
    otherwise = f"somebody ended its workflow ({status}): its machines continue without it"
    return PoolDescription(
        listed=await listed(found),
        status=status,
        failure="" if status in ("RUNNING", "COMPLETED") else otherwise,
        ended=found.close_time,
        run_id=found.run_id,
        first_run_id=found.raw_description.workflow_execution_info.first_run_id,
        task_attempt=live.task_attempt(found),
        pending=await live.pending_of(found),
        web=web,
    )


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
            fields = ("spec", "machine_class", "namespace", "labels", "annotations")
            return state.model_copy(update={f: getattr(said, f) for f in fields})
        case _, ScaleIntent(replicas=int(replicas), current=current) if current in (None, state.spec.replicas):
            return _with(state, replicas=replicas)
        case _, DeleteIntent():
            return state.model_copy(update={"deleted": True})
        case _, ClassNews(machine_class=of) if of.name == state.spec.template.spec.class_.name:
            known = state.machine_class
            newer = known is None or known.name != of.name or of.generation > known.generation
            return state.model_copy(update={"machine_class": of}) if newer else state
        case "hibernate" | "wake" as name, _:
            return _with(state, hibernated=name == "hibernate")
        case "resume", _:
            return _with(state, paused=False)
    return state


def _with(state: PoolState, **changed: int | bool) -> PoolState:
    return state.model_copy(update={"spec": state.spec.model_copy(update=changed)})

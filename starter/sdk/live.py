"""Reads any workflow: from the server's records, by what it answers, and by who polls its task queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import QueryRejectCondition
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeout
from temporalio.service import RPCError, RPCStatusCode

from resources.attributes import MEMO_CREATED
from resources.errors import TOO_EARLY
from resources.words import cause, utc_clock
from starter.sdk.errors import NoAnswer, NotFound, no_such_workflow, translated
from starter.sdk.results import PendingActivity

QUERY_TIMEOUT = 3.0
"""Seconds that a workflow may take to answer before nobody is assumed to be there."""
POLL_WINDOW = 70.0
"""Seconds: a worker that lives polls at least once a minute (the server's long poll)."""

DRAINING = "Draining"
"""The reason of a machine whose drain is under way: what it waits for changes with every pass, and only the activity
knows it."""

StateT = TypeVar("StateT")


def running(workflow: str) -> str:
    """The visibility query for running workflows of a type."""
    return f"WorkflowType='{workflow}' AND ExecutionStatus='Running'"


async def created_of(execution: WorkflowExecution) -> datetime:
    """When somebody asked for it: as its starter noted, else when its workflow began."""
    created = await execution.memo_value(MEMO_CREATED, None)
    return datetime.fromisoformat(created) if isinstance(created, str) else execution.start_time


async def described(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionDescription | None:
    """The server's own record of a workflow's latest run; None when there never was one."""
    try:
        return await handle.describe()
    except RPCError as e:
        if no_such_workflow(e):
            return None
        raise


def completed(found: WorkflowExecutionDescription) -> bool:
    """Whether it came to its own end."""
    return found.status == WorkflowExecutionStatus.COMPLETED


def task_attempt(found: WorkflowExecutionDescription) -> int:
    """Over 1: the workflow's own code fails, and is tried again."""
    return found.raw_description.pending_workflow_task.attempt or 1


async def pending_of(description: WorkflowExecutionDescription) -> tuple[PendingActivity, ...]:
    """The activities that the workflow waits for."""
    pending = description.raw_description.pending_activities
    return tuple([await _pending(p, description.data_converter) for p in pending])


async def seen_last(handle: WorkflowHandle[Any, Any]) -> str:
    """What an activity that polls has said last of what it waits for: what is in the way of a drain, for example. ""
    where none has, or the workflow is gone."""
    found = await described(handle)
    pending = await pending_of(found) if found is not None else ()
    return next((p.last_failure for p in pending if p.waits and not p.aside), "")


async def _pending(info: PendingActivityInfo, converter: DataConverter) -> PendingActivity:
    next_try = info.next_attempt_schedule_time.ToDatetime(UTC) if info.HasField("next_attempt_schedule_time") else None
    error = await converter.decode_failure(info.last_failure) if info.HasField("last_failure") else None
    return PendingActivity(
        type=info.activity_type.name,
        attempt=info.attempt,
        running=info.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
        last_failure=await _last_failure(error, info, converter) if error else "",
        next_try=next_try,
        waits=isinstance(error, ApplicationError) and error.category == ApplicationErrorCategory.BENIGN,
    )


async def _last_failure(error: BaseException, info: PendingActivityInfo, converter: DataConverter) -> str:
    if isinstance(error, TemporalTimeout) and error.type == TimeoutType.HEARTBEAT:
        if info.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED and _heard_since(info):
            return ""  # another worker has taken it up, and is not silent
        # A dead worker says nothing: the last thing it said is the blocker, not "heartbeat timeout".
        details = await converter.decode(list(info.heartbeat_details.payloads)) or list(error.last_heartbeat_details)
        return f"its worker went silent; before: {_words(details)}" if details else "its worker went silent"
    return failure_words(error)


def _heard_since(info: PendingActivityInfo) -> bool:
    """Whether a heartbeat came since its present attempt began."""
    began, heard = info.last_started_time, info.last_heartbeat_time
    return (heard.seconds, heard.nanos) > (began.seconds, began.nanos)


def innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def failure_words(error: BaseException) -> str:
    """The innermost message: what a driver or an activity said, not that an activity failed."""
    error = innermost(error)
    return error.message if isinstance(error, ApplicationError) else cause(error)


def _words(details: Sequence[Any]) -> str:
    """The words of a heartbeat's progress: its message where it has one."""
    last = details[-1]
    if isinstance(last, dict):
        last = last.get("message") or last.get("blocker") or json.dumps(last, default=str)
    return str(last)


async def query(
    handle: WorkflowHandle[Any, Any],
    model: type[StateT],
    reject: QueryRejectCondition = QueryRejectCondition.NONE,
    *,
    name: str = "describe",
    args: Sequence[Any] = (),
) -> StateT:
    """A workflow's answer to a query: its state unless another is asked for. Raises NoAnswer when none comes in
    time."""

    async def ask() -> StateT:
        while True:
            try:
                answer: StateT = await handle.query(name, args=args, result_type=model, reject_condition=reject)
                return answer
            except WorkflowQueryFailedError as e:
                if TOO_EARLY not in str(e):
                    raise

    try:
        return await asyncio.wait_for(ask(), QUERY_TIMEOUT)
    except TimeoutError:
        raise NoAnswer(f"no answer within {QUERY_TIMEOUT:g} s") from None
    except WorkflowQueryFailedError as e:
        raise NoAnswer(f"the workflow's code cannot answer: {e}") from None
    except RPCError as e:
        # FAILED_PRECONDITION: no poller for minutes, or the workflow's task has failed.
        if e.status in (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise NoAnswer(e.message) from None
        raise


async def last_poll(temporal: Client, task_queue: str) -> tuple[datetime, str] | None:
    """When and by whom a queue of workflows was last polled; the server forgets it after 5 minutes."""
    answer = await temporal.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=temporal.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    return max(((p.last_access_time.ToDatetime(UTC), p.identity) for p in answer.pollers), default=None)


def lately(poll: tuple[datetime, str] | None, now: datetime) -> bool:
    """Whether a worker that polled at that time may still be there."""
    return poll is not None and (now - poll[0]).total_seconds() <= POLL_WINDOW


async def absence(temporal: Client, task_queue: str, now: datetime) -> str:
    """The poller of the queue, in words, for an operator whose question nobody answered."""
    poll = await last_poll(temporal, task_queue)
    if poll is None:
        return f"nobody polls {task_queue} (no worker was seen there in the last 5 minutes)"
    time, identity = poll
    words = f"last poll at {utc_clock(time)} by {identity}"
    if not lately(poll, now):
        return f"nobody polls {task_queue} ({words})"
    return f"nobody polls {task_queue}, or the worker there is stuck ({words})"


async def stuck(handle: WorkflowHandle[Any, Any], task_queue: str, temporal: Client) -> str:
    """Why this workflow does not answer, in words, although its queue was polled lately: its worker is frozen, or has
    just gone. "" where it answers, or says itself why not."""
    with translated():
        try:
            await query(handle, dict)
        except NoAnswer as e:
            return await absence(temporal, task_queue, datetime.now(UTC)) if str(e).startswith("no answer") else ""
        return ""


async def nobody(temporal: Client, task_queue: str) -> str:
    """Why nobody can answer, in words; empty while a worker has polled the queue lately. One small question."""
    now = datetime.now(UTC)
    with translated():
        there = lately(await last_poll(temporal, task_queue), now)
        return "" if there else await absence(temporal, task_queue, now)


async def folded(
    temporal: Client,
    workflow_id: str,
    run_id: str,
    kind: type[StateT],
    fold: Callable[[StateT, HistoryEvent, DataConverter], Awaitable[StateT]],
) -> StateT:
    """The state, folded by resources/histories.py. Raises NotFound without a history."""
    from resources import histories

    state = await histories.folded(temporal, workflow_id, run_id, kind, fold)
    if state is None:
        raise NotFound(f"{workflow_id}: its history is gone")
    return state


def web_link(ui: str | None, namespace: str, workflow_id: str, run_id: str = "") -> str | None:
    """The workflow's page in Temporal's web UI: of one run, the words in which it says what it waits for."""
    if not ui:
        return None
    page = f"{ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows/{quote(workflow_id, safe='')}"
    return f"{page}/{run_id}/user-metadata" if run_id else page

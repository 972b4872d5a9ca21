"""Sending an operator's intent: an update that is answered, else a signal that Temporal keeps until a worker comes."""

from __future__ import annotations

import asyncio
import getpass
import socket
import uuid
from typing import Any

from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from resources.errors import NOT_PRESERVED
from resources.intents import Answer, Intent
from starter.sdk.errors import NotFound, NotPreserved, Refused, no_such_workflow
from starter.sdk.results import Sent

TRIES, PAUSE = 5, 0.2
UPDATE_TIMEOUT = 5.0
"""Seconds that an update may wait for its answer. An update is durable only when a worker has accepted it."""
FAILED_TASK = "Workflow Task in failed state"
"""The server's words where the last task of the workflow failed, or nobody finished it in time."""
ABORTED = "workflow update was aborted"
"""The server's words where it has forgotten the update: its shard moved, or the workflow was reset meanwhile."""
STUCK = "its worker is stuck, or fails the workflow's task: `hostler doctor` says which"


def new_id() -> str:
    return uuid.uuid4().hex


def whoami() -> str:
    """The person who asks, for the journal: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id has no name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


async def send(handle: Any, name: str, intent: Intent, queue: str, what: str) -> Sent:
    """Sends by update, and by signal too unless the update is answered or refused. Both may arrive; the workflow counts
    an intent once per id. `what` names the receiver in errors.

    Raises Refused with the workflow's own words, NotFound when it is gone, RPCError when no signal is accepted either.
    """
    try:
        return Sent((await _update(handle, name, intent)).message)
    except Unanswered as e:
        why = str(e) or f"no worker is polling {queue}"
    try:
        await handle.signal(name, intent)
    except RPCError as e:  # only this tells whether the workflow is gone: for an update, "not found" may be the update
        if no_such_workflow(e):
            raise NotFound(f"{what} is gone") from None
        raise
    return Sent(f"recorded; {why}", recorded=True)


async def ask(handle: Any, name: str, intent: Intent) -> Answer:
    """Asks by update. The server gives an update up when it has forgotten it, or when the workflow task that carried it
    failed, as does a task that would end a run while news comes in (temporalio/temporal#7296); the id makes it harmless
    to ask again."""
    for left in reversed(range(TRIES)):
        try:
            answer: Answer = await handle.execute_update(name, intent, id=intent.id, result_type=Answer)
            return answer
        except RPCError as e:
            forgotten = e.status is RPCStatusCode.UNAVAILABLE and ABORTED in e.message
            if not left or not (forgotten or e.status is RPCStatusCode.FAILED_PRECONDITION):
                raise
        await asyncio.sleep(PAUSE)
    raise AssertionError("unreachable: the last try raises")


class Unanswered(Exception):
    """It is not known whether the update was accepted; the message says why, or is empty where no answer came in
    time."""


async def _update(handle: Any, name: str, intent: Intent) -> Answer:
    """Updates. Raises Refused, or Unanswered. The timer is ours and not the RPC's, whose deadline the server may take
    for its own."""
    call = asyncio.create_task(ask(handle, name, intent))
    try:
        done, _ = await asyncio.wait({call}, timeout=UPDATE_TIMEOUT)
    finally:
        call.cancel()
    if not done:
        await asyncio.gather(call, return_exceptions=True)
        raise Unanswered
    try:
        return call.result()
    except WorkflowUpdateFailedError as e:
        cause = e.cause
        if isinstance(cause, ApplicationError) and cause.type == "AcceptedUpdateCompletedWorkflow":
            return Answer(message="accepted; its workflow has ended since")
        refused = NotPreserved if isinstance(cause, ApplicationError) and cause.type == NOT_PRESERVED else Refused
        raise refused(getattr(cause, "message", "") or str(cause)) from None
    except WorkflowUpdateRPCTimeoutOrCancelledError:
        raise Unanswered from None
    except Exception as e:  # for example, too many updates at once, an unreadable answer
        if isinstance(e, RPCError) and e.status is RPCStatusCode.FAILED_PRECONDITION and FAILED_TASK in e.message:
            raise Unanswered(STUCK) from None
        words = f"{e.status.name}: {e.message}" if isinstance(e, RPCError) else f"{type(e).__name__}: {e}"
        raise Unanswered(f"a direct request was not answered ({words})") from None

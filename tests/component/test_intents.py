"""How an intent is sent: whatever becomes of the update, what may be recorded is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from lifekit import eventually
from pools.workflow import Pool, new_pool, spec
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from resources.errors import NOT_PRESERVED
from resources.intents import Answer, Intent
from resources.pool.intents import ScaleIntent
from starter.sdk import intents
from starter.sdk.errors import NotFound, NotPreserved, Refused
from workflows.pool import MachineDeploymentWorkflow

ABORTED = RPCError("workflow update was aborted", RPCStatusCode.UNAVAILABLE, b"")
FAILED_TASK = RPCError("Workflow Task in failed state", RPCStatusCode.FAILED_PRECONDITION, b"")
GONE = RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")
NO_NAMESPACE = RPCError("Namespace x is not found.", RPCStatusCode.NOT_FOUND, b"")


def refusal(type: str = "Refused") -> WorkflowUpdateFailedError:
    return WorkflowUpdateFailedError(ApplicationError("its own words", type=type))


class Handle:
    """The handle of a workflow that does as it is told: `update` and `signal` raise, unless they are None."""

    def __init__(self, update: BaseException | None, signal: BaseException | None = None) -> None:
        self._update, self._signal = update, signal
        self.sent: list[str] = []

    async def execute_update(self, name: str, intent: Intent, *, id: str, result_type: type[Answer]) -> Answer:
        assert id == intent.id
        self.sent.append("update")
        if self._update:
            raise self._update
        return Answer(message="done")

    async def signal(self, name: str, intent: Intent) -> None:
        self.sent.append(f"signal {intent.id}")
        if self._signal:
            raise self._signal


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "PAUSE", 0)


async def send(handle: Handle) -> intents.Sent:
    return await intents.send(handle, "renew", Intent(id="i"), "q", "machine m1")


async def test_an_answer_is_the_end_of_it() -> None:
    handle = Handle(None)
    assert await send(handle) == intents.Sent("done")
    assert handle.sent == ["update"]


RECORDED = [
    *(
        RPCError("no", status, b"")
        for status in RPCStatusCode
        if status not in (RPCStatusCode.OK, RPCStatusCode.FAILED_PRECONDITION)
    ),
    WorkflowUpdateRPCTimeoutOrCancelledError(),
    RuntimeError("Failed decoding arguments"),
]


@pytest.mark.parametrize(
    "error", RECORDED, ids=[e.status.name if isinstance(e, RPCError) else str(e) for e in RECORDED]
)
async def test_what_is_neither_answered_nor_refused_is_recorded(error: BaseException) -> None:
    """This includes NOT_FOUND, which may be about the update alone; the signal tells whether the workflow is gone."""
    handle = Handle(error)
    sent = await send(handle)
    assert sent.recorded
    assert handle.sent == ["update", "signal i"]
    if isinstance(error, WorkflowUpdateRPCTimeoutOrCancelledError):
        assert sent.message == "recorded; no worker is polling q"
    else:
        assert sent.message.startswith("recorded; a direct request was not answered (")


@pytest.mark.parametrize(
    ("given_up", "words"),
    [
        (FAILED_TASK, "its worker is stuck, or fails the workflow's task: `hostler doctor` says which"),
        (ABORTED, "a direct request was not answered (UNAVAILABLE: workflow update was aborted)"),
    ],
)
async def test_what_the_server_gives_up_is_asked_again_and_then_recorded(given_up: RPCError, words: str) -> None:
    """The task that carried the update failed, or the server has forgotten it; most often the next try is answered."""
    handle = Handle(given_up)
    sent = await send(handle)
    assert (sent.message, sent.recorded) == (f"recorded; {words}", True)
    assert handle.sent == ["update"] * intents.TRIES + ["signal i"]


@pytest.mark.parametrize(
    ("update", "signal", "raised", "words"),
    [
        (refusal(), None, Refused, "^its own words$"),
        (refusal(NOT_PRESERVED), None, NotPreserved, "^its own words$"),
        (refusal("ValueError"), None, Refused, "^its own words$"),
        (GONE, GONE, NotFound, "^machine m1 is gone$"),
        (NO_NAMESPACE, NO_NAMESPACE, RPCError, "Namespace x"),
    ],
)
async def test_what_is_raised(update: Any, signal: Any, raised: type[Exception], words: str) -> None:
    handle = Handle(update, signal)
    with pytest.raises(raised, match=words):
        await send(handle)
    assert handle.sent == (["update", "signal i"] if signal else ["update"])


async def test_an_intent_while_tasks_fail_is_recorded(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This was seen once: `hostler scale` said FAILED_PRECONDITION, and the pool never heard of it."""
    async with new_pool(temporal.client) as pool:
        pool.replays = False
        async with pool.worker():
            await pool.ready(spec(1))
            (name,) = await pool.members()
        with monkeypatch.context() as broken:
            broken.setattr(MachineDeploymentWorkflow, "_heard", _breaks)
            async with pool.worker():
                await pool.report(name, 99)
                await eventually(lambda: _fails(pool), what="a task that fails")
                intent = ScaleIntent(id="s", replicas=3)
                sent = await intents.send(pool.handle, "scale", intent, pool.queue, "pool p1")
                assert sent.recorded, sent
        async with pool.worker():
            await pool.rolled_out(3)


def _breaks(_: object) -> None:
    raise ValueError("a bug")


async def _fails(pool: Pool) -> bool:
    return (await pool.handle.describe()).raw_description.pending_workflow_task.attempt > 1

"""The guard over the workflows' clock: nothing is decided that a replay would decide otherwise."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from lifekit import eventually
from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.converter import WithSerializationContext
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import worker
from resources.base import Model
from resources.converter import data_converter
from resources.errors import TOO_EARLY
from resources.machine.state import MachineState
from starter.sdk import live
from workflows.runner import NewsWithoutTime, Runner, Tasks, WorkflowClock

PASSED = SandboxRestrictions.default.with_passthrough_modules("test_runner")
TRIES = 8
"""Tries, as the server chooses whether the query or the task comes first."""


@workflow.defn
class Deadline:
    """A workflow whose command after its deadline differs from that before it."""

    def __init__(self) -> None:
        self.pokes = 0

    @workflow.run
    async def run(self) -> bool:
        end = workflow.now() + timedelta(seconds=1)
        await workflow.wait_condition(lambda: self.pokes > 0)
        if late := workflow.now() >= end:
            workflow.upsert_memo({"late": True})
        await workflow.sleep(0.01)
        return late

    @workflow.signal
    def poke(self) -> None:
        self.pokes += 1

    @workflow.query
    def describe(self) -> int:
        return self.pokes


async def asked_first(temporal: WorkflowEnvironment, runner: WorkflowRunner) -> tuple[WorkflowHandle[Any, bool], str]:
    """A worker comes back after the deadline, to a waiting query and signal; returns how the query ended."""
    name = f"deadline-{uuid.uuid4().hex[:8]}"

    def back() -> Worker:
        return Worker(temporal.client, task_queue=name, workflows=[Deadline], workflow_runner=runner)

    async with back():
        handle = await temporal.client.start_workflow(Deadline.run, id=name, task_queue=name)
        await eventually(lambda: handle.query(Deadline.describe), lambda _: True)
    query = asyncio.create_task(handle.query(Deadline.describe))
    await asyncio.sleep(0.1)
    await handle.signal(Deadline.poke)
    await asyncio.sleep(1)
    async with back():
        await handle.result()
        answer = (await asyncio.gather(query, return_exceptions=True))[0]
    return handle, str(answer)


async def replay_of(handle: WorkflowHandle[Any, bool]) -> Exception | None:
    replayer = Replayer(workflows=[Deadline], workflow_runner=SandboxedWorkflowRunner(restrictions=PASSED))
    return (await replayer.replay_workflow(await handle.fetch_history(), raise_on_replay_failure=False)).replay_failure


async def tried(temporal: WorkflowEnvironment, runner: WorkflowRunner) -> list[tuple[bool, str]]:
    """For each try: whether its history replays, and how its query ended."""
    ended = await asyncio.gather(*(asked_first(temporal, runner) for _ in range(TRIES)))
    return [(await replay_of(handle) is None, answer) for handle, answer in ended]


async def test_without_the_guard_a_query_may_leave_a_history_that_nobody_can_replay(
    temporal: WorkflowEnvironment,
) -> None:
    """This is why the guard is there: when this no longer finds any, the SDK has fixed it."""
    seen = await tried(temporal, SandboxedWorkflowRunner(restrictions=PASSED))
    assert not all(replays for replays, _ in seen)


async def test_with_it_every_history_replays(temporal: WorkflowEnvironment) -> None:
    seen = await tried(temporal, Runner(restrictions=PASSED))
    assert [replays for replays, _ in seen] == [True] * TRIES
    assert TOO_EARLY in {answer for _, answer in seen} <= {TOO_EARLY, "0", "1", "Timeout expired"}


@pytest.mark.parametrize("strict", [True, False])
def test_the_worker_has_it(strict: bool) -> None:
    assert isinstance(worker.sandbox(strict), Runner)


def test_models_are_made_for_each_workflow_that_is_prepared() -> None:
    """Those too that were defined since the first one: an import in between makes some."""
    for _ in range(2):

        class Late(Model):
            number: int = 0

        assert not Late.__pydantic_complete__
        Runner(restrictions=PASSED).prepare_workflow(workflow._Definition.must_from_class(Deadline))
        assert Late.__pydantic_complete__


# -- which steps it lets pass -----------------------------------------------------------------------------------------


def step(seconds: int, length: int, replaying: bool = False) -> WorkflowActivation:
    made = WorkflowActivation(history_length=length, is_replaying=replaying)
    made.timestamp.FromSeconds(seconds)
    return made


@pytest.mark.parametrize(
    "steps",
    [
        [step(1, 3), step(2, 9), step(3, 15)],
        [step(1, 3), step(1, 3)],  # several in one task
        [step(1, 3, replaying=True), step(2, 9, replaying=True), step(9, 15)],  # replayed, then its task
        [step(1, 3, replaying=True), step(1, 6, replaying=True), step(2, 9)],  # a query, then the next task
        [step(5, 3)],
    ],
)
def test_tasks_and_queries_pass(steps: list[WorkflowActivation]) -> None:
    clock = WorkflowClock()
    for each in steps:
        clock.check(each)


def test_news_at_the_last_tasks_time_are_refused() -> None:
    clock = WorkflowClock()
    clock.check(step(1, 3, replaying=True))
    with pytest.raises(NewsWithoutTime, match="ask again"):
        clock.check(step(1, 8))


# -- who asked, asks again --------------------------------------------------------------------------------------------


class Early:
    """A workflow that a query met too early, this many times."""

    def __init__(self, times: int, words: str = TOO_EARLY) -> None:
        self.times, self.words, self.asked = times, words, 0

    async def query(self, *_: Any, **__: Any) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.asked <= self.times:
            raise WorkflowQueryFailedError(self.words)
        return "answer"


async def test_the_clients_ask_again() -> None:
    early: Any = Early(2)
    assert await live.query(early, MachineState) == "answer"  # type: ignore[comparison-overlap]
    assert early.asked == 3


async def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUERY_TIMEOUT", 0.05)
    with pytest.raises(live.NoAnswer, match="no answer within"):
        await live.query(Early(10**9), MachineState)  # type: ignore[arg-type]


async def test_of_other_failures_once() -> None:
    early: Any = Early(1, "its code is wrong")
    with pytest.raises(live.NoAnswer, match="its code is wrong"):
        await live.query(early, MachineState)
    assert early.asked == 1


# -- the watch over the threads ---------------------------------------------------------------------------------------


def test_a_run_that_keeps_its_thread_is_stuck() -> None:
    now = [0.0]
    tasks = Tasks(lambda: now[0])
    with tasks.running("a", evicts=False):
        now[0] = 61
        with tasks.running("b", evicts=False):
            assert tasks.stuck(60) == ["a"]
    assert tasks.stuck(-1) == []


def test_an_eviction_that_fails_keeps_its_slot_until_one_succeeds() -> None:
    now = [0.0]
    tasks = Tasks(lambda: now[0])
    for _ in range(2):
        with pytest.raises(RuntimeError), tasks.running("a", evicts=True):
            raise RuntimeError("tasks remain")
        now[0] += 31
    with pytest.raises(ValueError, match="a bug"), tasks.running("a", evicts=False):
        raise ValueError("a bug")  # a task that fails has given its thread back
    assert tasks.stuck(60) == ["a"]
    with tasks.running("a", evicts=True):
        pass
    assert tasks.stuck(-1) == []


def test_no_converter_asks_what_a_payload_is_for() -> None:
    """Otherwise the runner must not answer with nothing."""
    encodings = data_converter.payload_converter_class().converters.values()  # type: ignore[attr-defined]
    assert encodings
    for part in (*encodings, data_converter.payload_codec):
        assert not isinstance(part, WithSerializationContext)

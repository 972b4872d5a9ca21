"""Places of an account in a worker: a burst waits for its turn, and nobody waits for an account that hangs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest
from lifekit import eventually
from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import places
from activities.boundary import Boundary
from activities.deps import Deps
from activities.places import Places
from drivers.base import GetAccountRequest
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.machine.manifest import SecretRef
from resources.settings import Settings, WorkerSettings

SLOTS, LIMIT, BURST = 8, 2, 30


class Cloud:
    """Accounts by the name of their Secret. The hung one takes calls and answers none before its timeout."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.thawed = threading.Event()
        self._lock = threading.Lock()

    def get_account(self, request: GetAccountRequest) -> str:
        account: str = request.provider_spec["account"]
        if account == "hung":
            with self._lock:
                self.under_way += 1
                self.most = max(self.most, self.under_way)
            self.thawed.wait(60)
            with self._lock:
                self.under_way -= 1
        return account


@workflow.defn
class CallsOfAccount:
    """A number of calls at once, each tried for ever."""

    @workflow.run
    async def run(self, account: str, calls: int) -> None:
        handles = [
            workflow.start_activity(
                "ask_account",
                account,
                start_to_close_timeout=timedelta(minutes=1),
                heartbeat_timeout=timedelta(seconds=2),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), backoff_coefficient=1),
            )
            for _ in range(calls)
        ]
        await asyncio.gather(*handles)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.setattr(places, "PATIENCE", 0.5)
    cloud = Cloud()
    yield cloud
    cloud.thawed.set()


@pytest.fixture
async def deps(temporal: WorkflowEnvironment) -> AsyncIterator[Deps]:
    settings = Settings(worker=WorkerSettings(max_concurrent_activities=SLOTS))
    deps = Deps(settings, temporal.client)
    yield deps
    await deps.close()


async def test_a_hung_account_delays_no_other(temporal: WorkflowEnvironment, deps: Deps, cloud: Cloud) -> None:
    """It exhausts neither slots nor threads, though it has far more calls to make than the worker has of both."""
    queue = f"t{uuid.uuid4().hex[:8]}"

    @activity.defn
    async def ask_account(account: str) -> str:
        caller = deps.caller("AWS", {"region": "eu-west-1"}, SecretRef(name=account))
        return await caller(cloud.get_account, GetAccountRequest(provider_spec={"account": account}))

    async with Worker(
        temporal.client,
        task_queue=queue,
        workflows=[CallsOfAccount],
        activities=[ask_account],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=SLOTS,
        interceptors=[Boundary()],
    ):

        async def start(account: str, calls: int) -> Any:
            arguments = [account, calls]
            return await temporal.client.start_workflow(
                CallsOfAccount.run, args=arguments, id=f"{account}/{queue}", task_queue=queue
            )

        hung = await start("hung", BURST)

        async def under_way() -> int:
            return cloud.under_way

        await eventually(under_way, lambda n: n == LIMIT, "calls that hang")
        for i in range(3):
            await asyncio.wait_for((await start(f"other-{i}", 3)).result(), 20)
        assert (cloud.under_way, cloud.most) == (LIMIT, LIMIT)
        cloud.thawed.set()  # and it is served as soon as it answers again
        await asyncio.wait_for(hung.result(), 30)


# -- on their own -----------------------------------------------------------------------------------------------------


def ended(error: BaseException | None = None) -> Future[Any]:
    call = Future[Any]()
    if error:
        call.set_exception(error)
    else:
        call.set_result(None)
    return call


SILENT = DriverError(ErrorClass.TRANSIENT, "timed out")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def full(clock: Clock) -> tuple[Places, list[float]]:
    account = Places("a", LIMIT, clock)
    return account, [await account.enter() for _ in range(LIMIT)]


async def refused(account: Places) -> str:
    with pytest.raises(DriverError) as caught:
        await asyncio.wait_for(account.enter(), 5)
    assert caught.value.error_class is ErrorClass.TRANSIENT
    return caught.value.message


async def test_in_a_burst_each_has_its_turn() -> None:
    account, began = await full(Clock())
    turns: list[int] = []

    async def call(n: int) -> None:
        await account.enter()
        turns.append(n)

    waiting = [asyncio.create_task(call(n)) for n in range(3)]
    await asyncio.sleep(0)
    assert (account.waiting, turns) == (3, [])
    waiting.pop(1).cancel()
    for _ in range(2):
        account.leave(began.pop(), ended())
    await asyncio.gather(*waiting)
    assert (turns, account.waiting) == ([0, 2], 0)


async def test_who_is_cancelled_as_its_turn_comes_gives_it_on() -> None:
    account, began = await full(Clock())
    first, second = (asyncio.create_task(account.enter()) for _ in range(2))
    await asyncio.sleep(0)
    account.leave(began[0], ended())
    first.cancel()
    await asyncio.wait_for(second, 5)
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_of_a_silent_account_nobody_waits_again_until_it_answers() -> None:
    clock = Clock()
    account, began = await full(clock)
    clock.now += places.PATIENCE
    assert "2 calls of account a are under way in this worker, and none was answered for 5 s" in await refused(account)
    clock.now += 15
    for call in began:
        account.leave(call, ended(SILENT))
    began = [await account.enter() for _ in range(LIMIT)]  # the next tries
    await refused(account)  # at once: that they have just begun is no sign of health
    account.leave(began[0], ended())
    await account.enter()
    waits = asyncio.create_task(account.enter())
    await asyncio.sleep(0)
    assert account.waiting == 1
    account.leave(clock.now, ended())
    await asyncio.wait_for(waits, 5)


@pytest.mark.parametrize(("took", "later"), [(0.1, 0.0), (20.0, places.REMEMBERED)], ids=["at once", "long ago"])
async def test_what_is_held_against_no_account(took: float, later: float) -> None:
    """An error that came at once kept nobody; a call that hung long ago says nothing about now."""
    clock = Clock()
    account, began = await full(clock)
    clock.now += took
    for call in began:
        account.leave(call, ended(SILENT))
    clock.now += later
    began = [await account.enter() for _ in range(LIMIT)]
    waits = asyncio.create_task(account.enter())
    await asyncio.sleep(0)
    assert account.waiting == 1
    account.leave(began[0], ended())
    await asyncio.wait_for(waits, 5)

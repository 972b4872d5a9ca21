"""Fixtures that every test may use: one Temporal dev server per session."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_asyncio
from apiserver.real import assets
from lifekit import Stack, new_stack
from paths import TESTS
from temporalio.client import Client
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment
from temporalio.worker import _workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition

from resources.attributes import ALL
from resources.converter import data_converter
from starter.local.stack import KNOBS as UP
from starter.local.stack import dynamic_config
from starter.sdk import patience
from starter.sdk.machines import waiting
from starter.sdk.setup import create_namespace, setup

DEV_SERVER = Path(sys.executable).parent / "temporal"
KNOBS = {
    **UP,
    "frontend.WorkflowTimeSkippingEnabled": "true",
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # Without it, five minutes: a call that is just being sent then fails with "operation was canceled".
    "frontend.keepAliveMaxConnectionAge": '"24h"',
    # Without them, five minutes each: every test has task queues of its own, and those of the last five minutes keep a
    # twentieth of a core busy. No poll takes longer than a minute.
    "matching.maxTaskQueueIdleTime": '"70s"',
    "matching.getUserDataLongPollTimeout": '"60s"',
    # Without it, a dev server reads its attributes and its namespace anew for each write of one, which is a quarter of
    # what it reads. Tests make none after it has begun.
    "system.forceSearchAttributesCacheRefreshOnRead": "false",
    # Without it, five: the server waits longer before each try, so that the doctor hears of them after half a minute.
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "2",
}


SYSTEM = TESTS / "system"

LIMIT = 900
"""Seconds for one test. The longest, a flow of the complete fault matrix, take a third of it."""

TIERS = ("system", "component", "unit")
"""In the order in which they run: one test of the system takes as long as a file of the others."""

LONG = (
    "test_up.py",
    "test_up_clouds.py",
    "test_upgrade.py",
    "test_cli_pools.py",
    "test_cli_rollout.py",
    "test_inbound.py",
    "test_replay.py",
    "test_pool_rollouts.py",
)
"""Files of their tier that come first."""

APART = (
    "test_matrix_later.py",
    "test_compose.py",
    "test_matrix.py",
    "test_matrix_clouds.py",
    "test_matrix_control_plane.py",
    "test_matrix_pool.py",
)
"""Files to keep apart: each has ten processes that keep two cores busy, and two of them side by side starve each other
and whatever else runs. The longest comes first."""


DEADLOCK = 30
"""Seconds after which the SDK takes a workflow task for deadlocked. Its own two seconds are wall-clock time, and the
whole process shares them: where two cores are busy it interrupts healthy tasks, whose second try waits ten seconds."""


FEW_COLLECTIONS = "400"
"""Percent by which the heap of a program in Go may grow before garbage is looked for. With its own hundred, a sixth of
what a dev server takes of a core is that."""

NEW_OBJECTS = 10_000
"""How many there must be before Python looks for garbage: with its own 700, a life's models and messages are looked
through while most of them are in use, which is a twentieth of what a test takes."""

LOOK = 0.05
"""Seconds between two looks of a command, or of the SDK, that waits in this process. A person's second would be most of
what a test of it takes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--temporal", metavar="HOST:PORT", help="a Temporal server to use in place of the dev server")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("numprocesses", None):  # with processes that test, this one collects nothing
        # What is collected stays. To look for garbage in it again and again takes as long as to make it.
        gc.disable()
    os.environ.setdefault("GOGC", FEW_COLLECTIONS)
    # An example takes as long as a busy machine makes it: its own deadline is 200 ms of wall-clock time.
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")
    # Tests started in the background of a shell have it ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    patience.INTERVAL = waiting.WAIT_POLL = LOOK
    # The SDK has no option for it, except to have no limit and to run workflows on the event loop (debug_mode).
    allowed = property(lambda self: DEADLOCK, lambda self, seconds: None)
    _workflow._WorkflowWorker._deadlock_timeout_seconds = allowed  # type: ignore[assignment]
    SandboxedWorkflowRunner.prepare_workflow = _once(SandboxedWorkflowRunner.prepare_workflow)  # type: ignore[method-assign]


def _once(
    prepare: Callable[[SandboxedWorkflowRunner, _Definition], None],
) -> Callable[[SandboxedWorkflowRunner, _Definition], None]:
    """Each test has workers of its own, and each worker makes an instance of each workflow, to see that it can. It sees
    the same again in a process that has seen it of this class, with these modules passed through."""
    seen: set[tuple[object, ...]] = set()

    def once(runner: SandboxedWorkflowRunner, definition: _Definition) -> None:
        passed = runner.restrictions.passthrough_modules
        key = (definition.cls, frozenset(passed), runner.restrictions.passthrough_all_modules)
        if key not in seen:
            prepare(runner, definition)
            seen.add(key)

    return once


def pytest_report_header() -> str:
    return f"kubernetes: {assets().words}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes of xdist in this order: those that need the whole machine must not meet, and what is
    long comes first, so that all processes end together."""
    files = sorted(dict.fromkeys(item.path for item in items), key=_rank)
    order = [f for f in files if f.name not in APART]
    apart = [f for name in APART for f in files if f.name == name]
    slow = sum(_rank(f)[0] < TIERS.index("unit") for f in files)  # in the last tier, one of them would end after all
    for n, file in enumerate(apart):
        order.insert(n * slow // len(apart), file)
    place = {file: n for n, file in enumerate(order)}
    items.sort(key=lambda item: place[item.path])
    for item in items:
        if SYSTEM in item.path.parents or _real_server(item):
            item.add_marker("system")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def _rank(file: Path) -> tuple[int, bool]:
    tier = file.relative_to(TESTS).parts[0] if file.is_relative_to(TESTS) else ""
    return TIERS.index(tier) if tier in TIERS else len(TIERS), file.name not in LONG


def _real_server(item: pytest.Item) -> bool:
    """Whether the contract is tried on a real API server; on the simulated one it is a test of a component."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("kube") == "real"


def _bounded(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Cancels a test that takes longer than any should: the traceback says where it waits."""

    @functools.wraps(test)
    async def bounded(*args: Any, **fixtures: Any) -> None:
        async with asyncio.timeout(LIMIT):
            await test(*args, **fixtures)

    return bounded


@pytest_asyncio.fixture(scope="session")
async def temporal(pytestconfig: pytest.Config) -> AsyncIterator[WorkflowEnvironment]:
    """The real dev server, or the server of --temporal. Time is skipped only where a test asks for it, by
    `fast_forward`, which a dev server allows."""
    if address := pytestconfig.getoption("--temporal"):
        client = await _served(address)
        await create_namespace(client, timedelta(days=1))
        await setup(client)
        yield WorkflowEnvironment.from_client(client)
        return
    env = await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(enabled=False),
        data_converter=data_converter,
        search_attributes=list(ALL),
        dev_server_existing_path=str(DEV_SERVER),
        dev_server_extra_args=dynamic_config(KNOBS),
    )
    yield env
    await env.shutdown()
    await asyncio.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)


async def _served(address: str) -> Client:
    """A client, once the server serves: it listens before."""
    while True:
        try:
            return await Client.connect(address, data_converter=data_converter)
        except RuntimeError as e:
            if "not healthy yet" not in str(e):
                raise
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def stack(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    """A simulated cloud and cluster with workers."""
    async with new_stack(temporal.client) as stack, stack.worker():
        yield stack

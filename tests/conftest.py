"""Fixtures that every test may use: one Temporal dev server per session."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_asyncio
from lifekit import Stack, new_stack
from paths import TESTS
from realkube import assets
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment
from temporalio.worker import _workflow

from resources.attributes import ALL
from resources.converter import data_converter
from starter.local.stack import KNOBS as UP

DEV_SERVER = Path(sys.executable).parent / "temporal"
KNOBS = {
    **UP,
    "frontend.WorkflowTimeSkippingEnabled": "true",
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # Without it, five minutes: a call that is just being sent then fails with "operation was canceled".
    "frontend.keepAliveMaxConnectionAge": '"24h"',
}


SYSTEM = TESTS / "system"

LIMIT = 900
"""Seconds for one test. The longest, a flow of the complete fault matrix, take a third of it."""

APART = ("test_matrix.py", "test_matrix_later.py", "test_matrix_pool.py")
"""Files to keep apart: each has ten processes that keep two cores busy."""


DEADLOCK = 30
"""Seconds after which the SDK takes a workflow task for deadlocked. Its own two seconds are wall-clock time, and the
whole process shares them: where two cores are busy it interrupts healthy tasks, whose second try waits ten seconds."""


def pytest_configure() -> None:
    # An example takes as long as a busy machine makes it: its own deadline is 200 ms of wall-clock time.
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")
    # Tests started in the background of a shell have it ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The SDK has no option for it, except to have no limit and to run workflows on the event loop (debug_mode).
    patience = property(lambda self: DEADLOCK, lambda self, seconds: None)
    _workflow._WorkflowWorker._deadlock_timeout_seconds = patience  # type: ignore[assignment]


def pytest_report_header() -> str:
    return f"kubernetes: {assets().words}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes of xdist in this order: those that need the whole machine must not meet."""
    files = list(dict.fromkeys(item.path for item in items))
    order = [f for f in files if f.name not in APART]
    for n, name in enumerate(APART):
        place = n * len(files) // len(APART)
        order[place:place] = [f for f in files if f.name == name]
    items.sort(key=lambda item: order.index(item.path))
    for item in items:
        if SYSTEM in item.path.parents:
            item.add_marker("system")
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Cancels a test that takes longer than any should: the traceback says where it waits."""

    @functools.wraps(test)
    async def bounded(*args: Any, **fixtures: Any) -> None:
        async with asyncio.timeout(LIMIT):
            await test(*args, **fixtures)

    return bounded


@pytest_asyncio.fixture(scope="session")
async def temporal() -> AsyncIterator[WorkflowEnvironment]:
    """The real dev server. Time is skipped only where a test asks for it, by `fast_forward`."""
    env = await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(enabled=False),
        data_converter=data_converter,
        search_attributes=list(ALL),
        dev_server_existing_path=str(DEV_SERVER),
        dev_server_extra_args=[a for k, v in KNOBS.items() for a in ("--dynamic-config-value", f"{k}={v}")],
    )
    yield env
    await env.shutdown()
    await asyncio.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)


@pytest_asyncio.fixture
async def stack(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    """A simulated cloud and cluster with workers."""
    async with new_stack(temporal.client) as stack, stack.worker():
        yield stack

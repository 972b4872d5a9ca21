"""Faults at activity boundaries: a worker that kills itself, loses a reply, or lets an activity fail, once each.

A flow says where faults begin (`arm`): the beginning that many flows share is struck in the flow that is about it.

The worker is a process of its own, killed with SIGKILL: nothing of it is left, neither heartbeats nor cached workflows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import multiprocessing
import multiprocessing.context
import multiprocessing.forkserver
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from lifekit import Stack, eventually
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor
from temporalio.worker._worker import load_default_build_id

import worker
from drivers.aws.calls import new_session
from faults.flow import Boundary
from resources.base import build_models
from resources.clouds import PROVIDERS
from resources.errors import CODE_OF, ErrorClass, ErrorInfo
from resources.settings import load_settings
from starter.sdk.connection import connect

Kind = Literal["killed before", "killed after", "reply lost", "transient", "throttled", "permanent", "not found"]
CRASHES: tuple[Kind, ...] = ("killed before", "killed after", "reply lost")
ERRORS: dict[Kind, ErrorClass] = {
    "transient": ErrorClass.TRANSIENT,
    "throttled": ErrorClass.THROTTLED,
    "permanent": ErrorClass.AUTH,
    "not found": ErrorClass.NOT_FOUND,
}
KINDS: tuple[Kind, ...] = (*CRASHES, *ERRORS)


@dataclass(frozen=True)
class Fault:
    """Strikes the first attempt of the n-th call of an activity since the flow was armed, once."""

    activity: str
    kind: Kind
    call: int = 1

    def __str__(self) -> str:
        return f"{self.activity} {self.call} {self.kind}"


def arm(stack: Stack, *workflows: str) -> None:
    """From here on boundaries count; with types of workflows given, only those of the activities that such workflows
    call."""
    armed = _armed(stack.settings_file)
    written = armed.with_suffix(".new")
    written.write_text(" ".join(workflows))
    written.rename(armed)  # whole or not at all: an empty file arms every workflow


def is_armed(stack: Stack) -> bool:
    return _armed(stack.settings_file).exists()


def _armed(settings_file: Path) -> Path:
    return settings_file.with_name("armed")


def _counts(armed: Path, info: activity.Info) -> bool:
    try:
        workflows = armed.read_text().split()
    except FileNotFoundError:
        return False
    return not workflows or info.workflow_type in workflows


def disturbed(stack: Stack) -> bool:
    """Whether the stack's worker is one to be struck. In a flow that is run to find its boundaries, whatever is
    repeated when it is late must have more time: a boundary that only a slow run has would never be struck."""
    return _ready(stack.settings_file).exists()


def _ready(settings_file: Path) -> Path:
    """The file that is there once the first worker polls."""
    return settings_file.with_name("ready")


class Recorder(Interceptor):
    """Records the boundaries of an undisturbed flow, in order."""

    def __init__(self, settings_file: Path) -> None:
        self.armed = _armed(settings_file)
        self.found: list[Boundary] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Recorder(next, self)

    def see(self) -> None:
        info = activity.info()
        if info.attempt == 1 and _counts(self.armed, info):
            before = sum(name == info.activity_type for name, _ in self.found)
            self.found.append((info.activity_type, before + 1))


class _Recorder(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, recorder: Recorder) -> None:
        super().__init__(next)
        self.recorder = recorder

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self.recorder.see()
        return await super().execute_activity(input)


# -- inside the worker's process --------------------------------------------------------------------------------------


class Faults:
    """Faults that are still to strike, over all processes of a worker: files remember what has been."""

    def __init__(self, settings_file: Path, faults: Sequence[Fault]) -> None:
        self.armed, self.faults = _armed(settings_file), tuple(faults)
        self._folder = settings_file.parent

    def left(self) -> list[Fault]:
        struck = _lines(self._folder / "struck")
        return [f for f in self.faults if str(f) not in struck]

    def next(self, info: activity.Info) -> Fault | None:
        """The fault that is to strike this attempt; it counts as struck then. A call whose first attempt died with the
        process counts by its id."""
        if info.activity_type not in {f.activity for f in self.faults} or not _counts(self.armed, info):
            return None
        called = self._folder / f"called-{info.activity_type}"
        call = f"{info.workflow_run_id} {info.activity_id}"
        if call not in _lines(called):
            _append(called, call)
        calls = len(_lines(called))
        for fault in self.left():
            if fault.activity == info.activity_type and fault.call <= calls:
                _append(self._folder / "struck", str(fault))
                return fault
        return None


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _append(file: Path, line: str) -> None:
    with file.open("a") as f:
        f.write(f"{line}\n")


class Striker(Interceptor):
    def __init__(self, faults: Faults) -> None:
        self.faults = faults

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Striker(next, self.faults)


class _Striker(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, faults: Faults) -> None:
        super().__init__(next)
        self.faults = faults

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        fault = self.faults.next(info)
        if fault is None:
            return await super().execute_activity(input)
        if fault.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind in ERRORS:
            raise _failure(ERRORS[fault.kind])
        try:
            return await super().execute_activity(input)
        finally:
            if fault.kind == "killed after":
                os.kill(os.getpid(), signal.SIGKILL)
            # Silent until the server has given this attempt up: nobody hears what is answered then.
            assert info.heartbeat_timeout is not None
            await asyncio.sleep(2 * info.heartbeat_timeout.total_seconds())


def _failure(error_class: ErrorClass) -> ApplicationError:
    """The failure as the boundary raises it."""
    retried = error_class in (ErrorClass.TRANSIENT, ErrorClass.THROTTLED)
    info = ErrorInfo(error_class=error_class, code=CODE_OF[error_class], message=f"{error_class} by fault")
    wait = timedelta(seconds=1) if error_class == ErrorClass.THROTTLED else None
    return ApplicationError(info.message, info, type=str(error_class), non_retryable=not retried, next_retry_delay=wait)


# Every worker process would hash all code, build all models and parse EC2's for itself: a second of CPU at each of its
# lives. Forked from one that has done so, they have it already.
load_default_build_id()
build_models()
new_session().get_service_model("ec2")


def serve(settings_file: Path, address: str, faults: Faults, sabotage: str | None) -> None:
    """The process: a worker as `python -m worker` has it, with faults, and perhaps a saboteur."""
    gc.freeze()  # what the process was forked with is no garbage; beside many others a collection takes a second
    os.environ["TEMPORAL_ADDRESS"] = address
    if sabotage:
        from faults.saboteurs import SABOTEURS

        logging.basicConfig(format=f"saboteur {sabotage}: %(message)s")  # what it breaks is said to be broken
        SABOTEURS[sabotage]()

    async def run() -> None:
        settings = load_settings(settings_file)
        client = await connect(settings)
        async with worker.running(client, settings, [Striker(faults)]):
            _ready(settings_file).touch()
            await asyncio.Event().wait()

    asyncio.run(run())


# -- beside it ------------------------------------------------------------------------------------------------------


_first = threading.Lock()
"""Whoever comes while the forking process imports waits for it, too."""


def _processes() -> multiprocessing.context.ForkServerContext:
    """A process that has imported everything, from which workers are forked: seconds of CPU less for each. To be called
    beside the event loop: on a busy machine the imports take half a minute, and the simulator's callers would give up.
    """
    with _first:
        return _forking()


@functools.cache
def _forking() -> multiprocessing.context.ForkServerContext:
    """Python 3.11 does not tell it our path (gh-117378), and it says nothing of a preload that it does not find."""
    processes = multiprocessing.get_context("forkserver")
    drivers = [provider.driver for provider in PROVIDERS.values()]
    processes.set_forkserver_preload(["worker", *drivers, "faults.strike", "faults.saboteurs"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    first = processes.Process(target=int)  # it forks when all is imported
    first.start()
    first.join()
    return processes


def warm_up() -> None:
    """Lets that process begin with its imports, where there is something else to do before the first worker."""
    _processes()


@contextlib.asynccontextmanager
async def faulty_worker(
    stack: Stack, *faults: Fault, sabotage: str | None = None
) -> AsyncIterator[tuple[Faults, Callable[[], None]]]:
    """A worker in a process that is started again whenever it was killed: its faults, each of which strikes once, and
    what kills it."""
    processes = await asyncio.to_thread(_processes)
    faults = Faults(stack.settings_file, faults)
    address = stack.client.service_client.config.target_host
    arguments = (stack.settings_file, address, faults, sabotage)
    current: list[Any] = []

    async def keep() -> None:
        while True:
            process = processes.Process(target=serve, args=arguments, daemon=True)
            process.start()
            current[:] = [process]
            await asyncio.to_thread(process.join)

    def kill() -> None:
        for process in current:
            process.kill()

    async def polls() -> bool:
        return _ready(stack.settings_file).exists()

    keeper = asyncio.create_task(keep())
    try:
        # Its start should not count against a machine's deadlines. On a busy machine its imports alone take 45 s.
        await eventually(polls, what="the worker", within=180.0)
        yield faults, kill
    finally:
        keeper.cancel()
        for process in current:
            process.kill()
            await asyncio.to_thread(process.join)

"""Faults at activity boundaries: a worker that kills itself, loses a reply, or lets an activity fail, once.

A flow says where faults begin (`arm`): the beginning that many flows share is struck in the flow that is about it.

The worker is a process of its own, killed with SIGKILL: nothing of it is left, neither heartbeats nor cached workflows.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import multiprocessing
import multiprocessing.context
import multiprocessing.forkserver
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from flowkit import Boundary
from lifekit import Stack, eventually
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor
from temporalio.worker._worker import load_default_build_id

import worker
from drivers.aws.calls import new_session
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


class Striker(Interceptor):
    """Strikes once over all processes: the marker file remembers it."""

    def __init__(self, fault: Fault, marker: Path, armed: Path) -> None:
        self.fault, self.marker, self.armed = fault, marker, armed
        self._calls = 0

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Striker(next, self)

    def now(self, info: activity.Info) -> bool:
        """Whether this is the attempt to strike; it counts calls up to there."""
        if info.activity_type != self.fault.activity or self.marker.exists() or not _counts(self.armed, info):
            return False
        self._calls += info.attempt == 1
        if self._calls < self.fault.call:
            return False
        self.marker.touch()
        return True


class _Striker(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, striker: Striker) -> None:
        super().__init__(next)
        self.striker, self.fault = striker, striker.fault

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if not self.striker.now(info):
            return await super().execute_activity(input)
        if self.fault.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.kind in ERRORS:
            raise _failure(ERRORS[self.fault.kind])
        try:
            return await super().execute_activity(input)
        finally:
            if self.fault.kind == "killed after":
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


# Every worker process would hash all code and parse EC2's model for itself; forked from one that has done so, they have
# it already.
load_default_build_id()
new_session().get_service_model("ec2")


def serve(settings_file: str, address: str, fault: Fault, marker: str, sabotage: str | None) -> None:
    """The process: a worker as `python -m worker` has it, with a fault, and perhaps a saboteur."""
    os.environ["TEMPORAL_ADDRESS"] = address
    if sabotage:
        from saboteurs import SABOTEURS

        SABOTEURS[sabotage]()

    async def run() -> None:
        settings = load_settings(Path(settings_file))
        client = await connect(settings)
        striker = Striker(fault, Path(marker), _armed(Path(settings_file)))
        async with worker.running(client, settings, [striker]):
            _ready(Path(settings_file)).touch()
            await asyncio.Event().wait()

    asyncio.run(run())


# -- beside it ------------------------------------------------------------------------------------------------------


@functools.cache
def _processes() -> multiprocessing.context.ForkServerContext:
    """A process that has imported everything, from which workers are forked: a second of CPU less for each.

    Python 3.11 does not tell it our path (gh-117378), and it says nothing of a preload that it does not find.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["worker", "drivers.aws", "faultkit", "saboteurs"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return processes


@contextlib.asynccontextmanager
async def faulty_worker(stack: Stack, fault: Fault, sabotage: str | None = None) -> AsyncIterator[Path]:
    """A worker in a process that is started again whenever it was killed. Yields the file that says "it has struck"."""
    processes = _processes()
    marker = stack.settings_file.parent / f"struck-{uuid.uuid4().hex}"
    address = stack.client.service_client.config.target_host
    arguments = (str(stack.settings_file), address, fault, str(marker), sabotage)
    current: list[Any] = []

    async def keep() -> None:
        while True:
            process = processes.Process(target=serve, args=arguments, daemon=True)
            process.start()
            current[:] = [process]
            await asyncio.to_thread(process.join)

    async def polls() -> bool:
        return _ready(stack.settings_file).exists()

    keeper = asyncio.create_task(keep())
    try:
        await eventually(polls, what="the worker")  # its start should not count against a machine's deadlines
        yield marker
    finally:
        keeper.cancel()
        for process in current:
            process.kill()
            await asyncio.to_thread(process.join)

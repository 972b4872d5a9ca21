"""Faults at activity boundaries: a worker that kills itself, loses a reply, or lets an activity fail, once.

The worker is a process of its own, killed by SIGKILL: nothing of it is left, neither heartbeats nor cached workflows.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from lifekit import Stack
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

import worker
from resources.errors import CODE_OF, ErrorClass, ErrorInfo
from resources.settings import load_settings
from starter.connection import connect

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
    """Strikes the first attempt of the first call of an activity, once in a flow."""

    activity: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.activity} {self.kind}"


# -- inside the worker's process --------------------------------------------------------------------------------------


class Striker(Interceptor):
    def __init__(self, fault: Fault, marker: Path) -> None:
        self.fault, self.marker = fault, marker

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Striker(next, self.fault, self.marker)


class _Striker(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, fault: Fault, marker: Path) -> None:
        super().__init__(next)
        self.fault, self.marker = fault, marker

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.activity_type != self.fault.activity or self.marker.exists():
            return await super().execute_activity(input)
        self.marker.touch()
        if self.fault.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.kind in ERRORS:
            raise _failure(ERRORS[self.fault.kind])
        try:
            return await super().execute_activity(input)
        finally:
            if self.fault.kind == "killed after":
                os.kill(os.getpid(), signal.SIGKILL)
            # Silent until the server has given this attempt up: what is answered then, nobody hears.
            assert info.heartbeat_timeout is not None
            await asyncio.sleep(2 * info.heartbeat_timeout.total_seconds())


def _failure(error_class: ErrorClass) -> ApplicationError:
    """As the boundary raises it."""
    retried = error_class in (ErrorClass.TRANSIENT, ErrorClass.THROTTLED)
    info = ErrorInfo(error_class=error_class, code=CODE_OF[error_class], message=f"{error_class} by fault")
    wait = timedelta(seconds=1) if error_class == ErrorClass.THROTTLED else None
    return ApplicationError(info.message, info, type=str(error_class), non_retryable=not retried, next_retry_delay=wait)


def serve(settings_file: str, address: str, fault: Fault, marker: str, sabotage: str | None) -> None:
    """The process: a worker as `python -m worker` has it, with a fault, and perhaps a saboteur."""
    os.environ["TEMPORAL_ADDRESS"] = address
    if sabotage:
        from saboteurs import SABOTEURS

        SABOTEURS[sabotage]()

    async def run() -> None:
        settings = load_settings(Path(settings_file))
        client = await connect(settings)
        async with worker.running(client, settings, [Striker(fault, Path(marker))]):
            await asyncio.Event().wait()

    asyncio.run(run())


# -- beside it ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def faulty_worker(stack: Stack, fault: Fault, sabotage: str | None = None) -> AsyncIterator[Path]:
    """A worker in a process that is started again whenever it was killed. Yields the file that says "it has struck"."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["worker", "faultkit"])
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

    keeper = asyncio.create_task(keep())
    try:
        yield marker
    finally:
        keeper.cancel()
        for process in current:
            process.kill()
            await asyncio.to_thread(process.join)

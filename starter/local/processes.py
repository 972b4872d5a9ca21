"""Child processes: started in one group, ready when they say so, logged to files, stopped in order, none left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from starter.local.private import UMASK, make_folder, open_private
from starter.sdk.errors import HostlerError

STOP_GRACE = 10.0
"""Seconds that a child has between SIGTERM and SIGKILL."""
BACK_OFF = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before a child that died is started again; the last one repeats."""
STEADY = 60.0
"""A child that lived for this many seconds starts with the first wait again."""
POLL = 0.05

Ready = Callable[["Child"], Awaitable[None]]
Say = Callable[[str], None]


class ProcessError(HostlerError):
    """A child did not start; the message names its log and the last lines of it."""


async def no_wait(child: Child) -> None:
    """Ready as soon as it runs."""


@dataclass(frozen=True)
class Command:
    """What to run, and how to know that it is ready."""

    name: str
    """For people: `worker`."""
    argv: Sequence[str]
    log: Path
    ready: Ready = no_wait
    """Returns when the child serves; it need not watch whether the child lives."""
    timeout: float = 60.0
    """Seconds that it may take to get ready."""
    environment: Mapping[str, str] | None = None
    """None: this process's own."""


class Child:
    """One life of a command."""

    def __init__(self, command: Command, process: asyncio.subprocess.Process, offset: int) -> None:
        self.command = command
        self.process = process
        self.started = time.monotonic()
        self._offset = offset

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        """What this life has written so far; the log itself goes on over several lives."""
        with self.command.log.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode(errors="replace")

    async def line(self, wanted: Callable[[str], bool]) -> str:
        """The first whole line of the output for which `wanted` is true."""
        while True:
            for line in self.output().splitlines(keepends=True):
                if line.endswith("\n") and wanted(line.strip()):
                    return line.strip()
            await asyncio.sleep(POLL)

    async def ready(self) -> None:
        """Raises ProcessError when it ends or takes too long before it is ready."""
        ready = asyncio.ensure_future(self.command.ready(self))
        ended = asyncio.ensure_future(self.process.wait())
        try:
            await asyncio.wait({ready, ended}, timeout=self.command.timeout, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise ProcessError(self._explain(describe_exit(ended.result())))
            if not ready.done():
                raise ProcessError(self._explain(f"was not ready after {self.command.timeout:g} s"))
            ready.result()
        finally:
            ready.cancel()
            ended.cancel()

    def _explain(self, what: str) -> str:
        last = self.output().strip().splitlines()[-5:]
        return "\n".join([f"the {self.command.name} {what}; its log is {self.command.log}", *(f"  {x}" for x in last)])

    async def stop(self) -> bool:
        """SIGTERM, and after STOP_GRACE seconds SIGKILL. Whether SIGTERM was enough."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), STOP_GRACE)
        except TimeoutError:
            self.kill()
            await self.process.wait()
            return False
        return True

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


async def _gone(group: int) -> None:
    """Waits until the group is gone: SIGKILL does not wait. A process that nobody reaps (a container without init)
    counts until then."""
    deadline = time.monotonic() + 1.0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            await asyncio.sleep(POLL / 5)


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class Processes:
    """A group of children, in the order they were started; an async context manager that leaves none of them running.

    `keep` are open files that the guardian holds too, such as a lock: it is free again only when everybody is gone.
    """

    def __init__(self, say: Say, keep: Sequence[int] = ()) -> None:
        self.say = say
        self.children: dict[str, Child] = {}
        """The present life of each command, by name."""
        self._keep = tuple(keep)
        self._guardian: subprocess.Popen[bytes] | None = None
        self._supervisors: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        script = Path(__file__).with_name("guardian.py")
        # Not asyncio's: that would reap it behind our back, and its id, which is the group's, could be another's.
        self._guardian = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-S", "-E", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=self._keep,
            process_group=0,  # a group of its own: Ctrl-C in the terminal is for us; we stop the others in order
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._guardian is not None
        try:
            for task in self._supervisors:
                task.cancel()
            await asyncio.gather(*self._supervisors, return_exceptions=True)
            await self._stop_all()
        finally:
            # Even when the orderly stop was interrupted (a second Ctrl-C): what is left of the group goes at once,
            # grandchildren and the guardian included.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guardian.pid, signal.SIGKILL)
            self._guardian.communicate()
            for child in self.children.values():
                await child.process.wait()
            await _gone(self._guardian.pid)

    async def _stop_all(self) -> None:
        """Stops all, the last started first: a worker gives its tasks back while the server is still there."""
        for child in reversed(self.children.values()):
            if child.process.returncode is None and not await child.stop():
                self.say(f"the {child.command.name} did not stop within {STOP_GRACE:g} s and was killed")

    async def start(self, command: Command) -> Child:
        """Starts the command, waits until it is ready, and from then on starts it again whenever it ends.

        Raises ProcessError when this first start fails.
        """
        child = await self._launch(command)
        await child.ready()
        self._supervisors.append(asyncio.create_task(self._supervise(command)))
        return child

    async def _launch(self, command: Command) -> Child:
        assert self._guardian is not None, "not entered"
        make_folder(command.log.parent)
        with open_private(command.log, "ab") as log:
            offset = log.seek(0, os.SEEK_END)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=command.environment,
                    process_group=self._guardian.pid,
                    umask=UMASK,
                )
            except OSError as e:
                raise ProcessError(f"the {command.name} cannot be started: {command.argv[0]}: {e.strerror}") from None
        child = self.children[command.name] = Child(command, process, offset)
        return child

    async def _supervise(self, command: Command) -> None:
        died = 0
        while True:
            child = self.children[command.name]
            code = await child.process.wait()
            died = 1 if time.monotonic() - child.started > STEADY else died + 1
            wait = BACK_OFF[min(died, len(BACK_OFF)) - 1]
            self.say(f"the {command.name} {describe_exit(code)}; starting it again in {wait:g} s ({command.log})")
            await asyncio.sleep(wait)
            try:
                child = await self._launch(command)
                await child.ready()
            except ProcessError as e:
                self.say(str(e))
                await self.children[command.name].stop()  # one that hangs; its end is the next turn's
            else:
                self.say(f"the {command.name} runs again (process {child.pid})")

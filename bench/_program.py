"""A benchmark as a program: it runs to its end or to a signal, and prints a table and last one line of JSON."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from _stack import BenchError
from rich.console import Console

from starter.sdk.errors import HostlerError

T = TypeVar("T")
Say = Callable[[str], None]


def program(
    bench: Callable[[Say], Awaitable[T]], show: Callable[[T, Console], None], summary: Callable[[T], object]
) -> int:
    """Runs `bench` and returns the exit code. `bench` may report how far it is; its findings are shown when its
    processes have ended."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        found = asyncio.run(_run(bench, lambda words: console.print(words)))
    except (BenchError, HostlerError) as e:  # HostlerError: a process did not start, or what was applied was refused
        print(f"error: {e}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    show(found, console)
    print(json.dumps(summary(found)))
    return 0


async def _run(bench: Callable[[Say], Awaitable[T]], say: Say) -> T:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # like Ctrl-C: processes are ended
    found = await bench(say)
    await asyncio.sleep(0.1)  # the process may crash at exit right after the last call (temporalio/sdk-python#300)
    return found

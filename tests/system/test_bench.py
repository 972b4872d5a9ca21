"""The benchmarks run, and their numbers are plausible. Nothing here asserts how fast anything is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator

import pytest
from paths import ROOT
from processes.children import alive, children, until

LIFE = ROOT / "bench" / "life.py"
IDLE = 11  # seconds: kubelets renew their leases every 10


@contextlib.asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(LIFE), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()  # what it has started ends with it
            await process.communicate()


async def test_a_tiny_run() -> None:
    async with running("--machines", "3", "--rounds", "1", "--idle", str(IDLE)) as process:
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    lines = output.decode().strip().splitlines()
    assert any("machines/s to Running" in line for line in lines)
    numbers = json.loads(lines[-1])
    assert (numbers["machines"], numbers["rounds"]) == (3, 1)
    assert numbers["bare_per_second"] > 0
    assert numbers["ratio"] == pytest.approx(numbers["machines_per_second"] / numbers["bare_per_second"], rel=0.05)
    # A life has at least the start, and schedule, start and end of each of four activities before it is Running.
    assert 1 + 3 * 4 < numbers["events_to_running"] < numbers["events_life"]
    assert numbers["idle_events_per_hour"] == 0
    assert numbers["idle_heartbeats"] >= 6  # six living machines were looked at
    assert isinstance(numbers["kb_per_machine"], float)
    for side in ("hostler", "bare"):
        assert set(numbers["cpu_ms"][side]) == {"server", "simulator", "worker", "client"}
        assert numbers["cpu_ms"][side]["worker"] > 0
        assert numbers["ec2_calls"][side] > 3  # image, launch, status, the update's change


async def test_interrupted_it_leaves_nothing() -> None:
    async with running("--machines", "3", "--rounds", "1") as process:
        await asyncio.to_thread(until, lambda: len(children(process.pid)) >= 3)  # guardian, server, simulator
        started = children(process.pid)
        assert all(map(alive, started))
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, errors.decode()
    assert errors == b""
    assert not [pid for pid in started if alive(pid)]

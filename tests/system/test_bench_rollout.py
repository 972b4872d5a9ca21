"""bench/rollout.py and bench/scale.py run, and their counts are right. Nothing here asserts how fast anything is."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from paths import ROOT

BENCH = ROOT / "bench"


async def run(program: str, *arguments: str) -> Any:
    """Runs it; returns the line of JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(BENCH / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()  # what it has started ends with it
            await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output.decode().strip().splitlines()[-1])


@pytest.mark.exhaustive  # what it runs is test_life_pool.py's; how benchmarks begin and end is test_bench.py's
async def test_a_tiny_rollout() -> None:
    times = ("--boot", "0.2", "--join", "0.1", "--terminate", "0.2")
    numbers = await run("rollout.py", "--machines", "3", "--surge", "50%", *times)
    # Half of three is rounded up; two waves of 0.5 s.
    assert [numbers[k] for k in ("machines", "surge", "waves", "rollout_ideal")] == [3, 2, 2, 1.0]
    assert 4 <= numbers["most_vms"] <= 5
    for phase in ("up", "rollout", "down"):
        assert numbers[f"{phase}_ratio"] >= 1
        assert numbers[f"{phase}_seconds"] >= numbers[f"{phase}_ideal"]
    assert numbers["events"]["machine"] > 0


@pytest.mark.exhaustive  # likewise
async def test_two_tiny_pools() -> None:
    rows = await run("scale.py", "--machines", "1", "2", "--idle", "0.5")
    assert [row["machines"] for row in rows] == [1, 2]
    for row in rows:
        assert row["up_ms"] > 0
        assert row["pool_events"] > 0
        assert row["machine_events"] > 20
        assert row["state_kb"] > 0

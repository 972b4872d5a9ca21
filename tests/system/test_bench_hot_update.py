"""bench/hot_update.py runs, and its counts are right. Nothing here asserts how fast anything is."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from paths import ROOT

HOT_UPDATE = ROOT / "bench" / "hot_update.py"


@pytest.mark.exhaustive  # what it runs is test_life_hot_update.py's; how benchmarks begin and end is test_bench.py's
async def test_a_tiny_run() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HOT_UPDATE),
        *("--machines", "3", "--concurrency", "2", "--calls-per-second", "50"),
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
    lines = output.decode().strip().splitlines()
    assert any("EC2 CreateTags" in line for line in lines)
    numbers = json.loads(lines[-1])
    # A VM, a volume and a NIC each.
    assert (numbers["machines"], numbers["resources"], numbers["replaced"]) == (3, 9, 0)
    assert numbers["calls"]["CreateTags"] == 3
    assert numbers["changing_per_machine"] == 1
    assert 1 <= numbers["at_work"] <= numbers["concurrency"] == 2
    assert (numbers["calls_per_second"], 1 <= numbers["updates_per_second"] <= 3) == (50, True)
    assert numbers["events_per_machine"] > 0
    assert numbers["seconds"] > 0

"""What a life costs an account of the other clouds, counted in the simulators' journals as test_cloud_calls.py counts
EC2's. The goal is the same, and what the cloud's API asks for on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from activitykit import Attempts, new_attempts
from clouds.azure import azure
from clouds.drivers import calls
from clouds.gcp import gcp
from clouds.lives import Life, lives

GOAL = 12
CLOUDS: dict[str, Any] = {"azure": azure, "gcp": gcp}
ONCE = frozenset({"ResourceGroups_Get", "Subnets_Get", "Token_Get", "VirtualMachineImages_Get", "projects.get"})
"""Asked once for all of an account, an image or a subnet."""
APART = {"azure": 5, "gcp": 2}
"""Calls of a life that EC2 does not ask for. Azure: the interface apart from the VM, the VM read once it is made, two
that set the tags of its disk, the second look once nothing is left. Google: the instance read once it is made, and the
operation that says that it was deleted."""


@pytest.fixture(scope="module", params=CLOUDS)
def running(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    with CLOUDS[request.param]() as cloud:
        yield request.param, cloud


@pytest.fixture
async def attempts(running: tuple[str, Any], tmp_path: Path) -> AsyncIterator[Attempts]:
    _, cloud = running
    cloud.reset()
    if running[0] == "gcp":
        cloud.gce.settings.insert_delay = 0.0
    async with new_attempts(cloud, tmp_path) as found:
        yield found


def end(life: Life) -> None:
    life.attempts.cloud.fast_forward()


@pytest.mark.parametrize("latency", [2.0, 40.0, 120.0])
@pytest.mark.parametrize("count", [1, 5])
async def test_a_life_costs_few_calls_whatever_time_its_vm_takes_to_end(
    running: tuple[str, Any], attempts: Attempts, count: int, latency: float
) -> None:
    spec = {"vmTags": {"team": "a"}, "diskTags": {"backup": "no"}} if running[0] == "azure" else {}
    await lives(attempts, count, latency, end, **spec)
    made = Counter(c.operation for c in calls(attempts.cloud) if c.operation not in ONCE)
    assert sum(made.values()) <= (GOAL + APART[running[0]]) * count, made
    if count > 1:  # one listing serves all while they go, and no machine is looked at alone
        looks = made["VirtualMachines_List"] + made["instances.list"]
        assert looks <= {2.0: 1, 40.0: 4, 120.0: 6}[latency]
        assert sum(made.values()) <= GOAL * count + looks, made

"""`hostler up` with every cloud at once: a machine of each lives in one cluster, and of each nothing is left."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from lifekit import eventually

from resources.clouds import simulations
from resources.machine.state import Phase
from resources.manifests import load_manifests
from starter.local.ports import Ports
from starter.local.stack import CLUSTER, Options, Stack
from starter.local.up import examples_of, shown, words
from starter.sdk.client import HostlerClient
from starter.sdk.results import Description


def manifests(cloud: str) -> list[Any]:
    """As `hostler apply -f examples/<cloud>` sends them."""
    loaded = load_manifests("\n---\n".join(f.read_text() for f in examples_of(cloud).glob("*.yaml")), cloud)
    return [*loaded.secrets, *loaded.classes, *loaded.machines]


@pytest.mark.core
async def test_a_machine_of_every_cloud_lives_and_goes(tmp_path: Path) -> None:
    clouds = [*simulations()]
    async with Stack(Options(directory=tmp_path, ports=Ports.any(*clouds), speed="fast"), lambda line: None) as stack:
        assert [*stack.settings.clouds] == clouds
        said = "\n".join(words(stack))
        assert [said.count(f"apply -f {shown(examples_of(cloud))}\n") for cloud in clouds] == [1] * len(clouds)
        hostler = HostlerClient(await stack.connect(), stack.settings, cluster=CLUSTER)
        every = [m for cloud in clouds for m in manifests(cloud)]
        await hostler.apply(*every)
        names = [m.metadata.name for m in every if m.kind == "Machine"]
        for name in names:
            await eventually(partial(hostler.describe, name), is_running, f"{name} Running")
        made = await resources(stack)
        assert {cloud: sum(r["vm"] for r in made[cloud]) for cloud in clouds} == dict.fromkeys(clouds, 1)
        for name in names:
            await hostler.delete(name, reason="seen")
        for name in names:
            await eventually(partial(hostler.describe, name), lambda d: not d.life.running, f"{name} gone")
        left = await resources(stack)
        assert {cloud: [r for r in left[cloud] if not r["gone"]] for cloud in clouds} == {cloud: [] for cloud in clouds}


def is_running(description: Description) -> bool:
    return description.state is not None and description.state.status.phase == Phase.RUNNING


async def resources(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """What each simulated cloud holds, by the cloud's name in the settings."""
    found = {}
    for name, simulation in simulations().items():
        async with aiohttp.request("GET", f"{stack.admin}/{simulation.service}/resources") as answer:
            found[name] = await answer.json()
    return found

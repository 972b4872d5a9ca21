"""Fixtures of the conformance tests: lives on stubs, and single activities on a simulated cloud and cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from deedkit import new_deeds
from drainkit import NODE, VM, Drain
from driver_clouds import AwsCloud, aws
from kube_wire import NODES
from kube_world import new_world
from onemachine import OneMachine, one_machine
from stubs import Machines, stubbed
from temporalio.testing import WorkflowEnvironment

from activities.deps import Deps
from activities.drain import DrainActivities
from resources.settings import ClusterSettings, Settings


@pytest.fixture
async def machines(temporal: WorkflowEnvironment) -> AsyncIterator[Machines]:
    async with stubbed(temporal.client) as machines:
        yield machines


@pytest.fixture(scope="package")
def one_cloud() -> Iterator[AwsCloud]:
    with aws() as cloud:
        yield cloud


@pytest.fixture
def cloud(one_cloud: AwsCloud) -> Iterator[AwsCloud]:
    one_cloud.reset()
    yield one_cloud
    one_cloud.reset()


@pytest.fixture
async def one(cloud: AwsCloud, tmp_path: Path) -> AsyncIterator[OneMachine]:
    async with new_deeds(cloud, tmp_path) as deeds:
        yield one_machine(deeds, tmp_path)


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_world() as world:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(world.kube.kubeconfig())
        deps = Deps(Settings(clusters={"demo": ClusterSettings(kubeconfig=kubeconfig)}), temporal.client)
        await world.kube.create(NODES, {"metadata": {"name": NODE}, "spec": {"providerID": VM}})
        drain = Drain(world, DrainActivities(deps))
        await drain.node()
        try:
            yield drain
        finally:
            await deps.close()

"""Fixtures of the conformance tests: lives on stubs, and single activities on a simulated cloud and cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from activitykit import OneMachine, new_attempts, one_machine
from clouds.drivers import AwsCloud, aws
from machine.drains import Drain, new_drain
from temporalio.testing import WorkflowEnvironment


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
    async with new_attempts(cloud, tmp_path) as attempts:
        yield one_machine(attempts, tmp_path)


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_drain(temporal.client, tmp_path) as drain:
        yield drain

"""The APIs under contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kube_wire import KubeTarget, simulated
from kubernetes.aio.client import ApiClient


@pytest.fixture(scope="session", params=["simulator"])
async def kube(request: pytest.FixtureRequest) -> AsyncIterator[KubeTarget]:
    """A Kubernetes API server with an administrator's token."""
    async with simulated() as target:
        yield target


@pytest.fixture(scope="session")
async def kube_client(kube: KubeTarget) -> AsyncIterator[ApiClient]:
    """The official asyncio client as the administrator."""
    async with kube.client() as client:
        yield client

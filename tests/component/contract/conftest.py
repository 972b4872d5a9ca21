"""The APIs under contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from apiserver.real import CERTIFICATES, real_kube, required_assets
from apiserver.simulated import KubeTarget, simulated
from kubernetes.aio.client import ApiClient

from activities.deps import Deps
from resources.machine_config.settings import MachineConfigSettings
from resources.settings import ClusterSettings, Settings


@pytest.fixture(scope="session", params=["simulator", "real"])
async def kube(request: pytest.FixtureRequest) -> AsyncIterator[KubeTarget]:
    """A Kubernetes API server with an administrator's token; others write only its signing requests."""
    if request.param == "simulator":
        async with simulated() as target:
            yield target
    else:
        async with real_kube(required_assets(), CERTIFICATES) as real:
            yield real.target


@pytest.fixture(scope="session")
async def kube_client(kube: KubeTarget) -> AsyncIterator[ApiClient]:
    """The official asyncio client as the administrator."""
    async with kube.client() as client:
        yield client


@pytest.fixture
async def deps(kube: KubeTarget, tmp_path: Path) -> AsyncIterator[Deps]:
    """What activities need of a worker, for the cluster `demo`; there is no Temporal server."""
    (tmp_path / "kubeconfig").write_text(kube.kubeconfig())
    configs = MachineConfigSettings(enabled=True)
    cluster = ClusterSettings(kubeconfig=tmp_path / "kubeconfig", machine_configs=configs)
    settings = Settings(clusters={"demo": cluster})
    nobody = SimpleNamespace(service_client=SimpleNamespace(config=SimpleNamespace(runtime=None)))
    deps = Deps(settings, nobody)  # type: ignore[arg-type]
    try:
        yield deps
    finally:
        await deps.close()

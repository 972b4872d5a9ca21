"""deploy/rbac/machine-configs.yaml on a real API server: a worker for each role, with the account of its file and no
other, renders configs and brings them to nodes. The server's audit log says what each account has used: all that it may
for machine configs, and nothing that it may not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from apiserver.real import CERTIFICATES, RealKube, real_kube, required_assets
from apiserver.simulated import KubeTarget, Obj
from lifekit import eventually
from machine_configs.kinds import config_pool, create, path
from machine_configs.life import ConfigLife, config_life
from paths import ROOT
from temporalio.testing import WorkflowEnvironment

import worker
from resources.machine_config.keys import GROUP, KUBELET_CONFIG, MACHINE_CONFIG
from resources.rights import CONFIG_NEEDS, Right
from resources.settings import Role, Settings

RBAC = ROOT / "deploy" / "rbac"
BOUND: tuple[Role, ...] = ("cluster", "watch", "drain")
ACCOUNT = "system:serviceaccount:hostler:hostler-"
ASKED_BY_ADMISSION = "finalizers"
"""A right that an admission plugin asks for, where it is on: no request uses it."""


async def _grant(real: RealKube) -> None:
    files = [f"--filename={RBAC / f'{name}.yaml'}" for name in ("roles", *BOUND, "machine-configs")]
    kubectl = str(Path(sys.executable).parent / "kubectl")
    environment = {**os.environ, "KUBECONFIG": str(real.kubeconfig_file)}
    process = await asyncio.create_subprocess_exec(kubectl, "apply", *files, env=environment)
    assert await process.wait() == 0


async def _settings_of(life: ConfigLife, real: RealKube, role: Role) -> Settings:
    """Those of a worker with this role, and with the token of its account."""
    cluster = life.settings.clusters[life.cluster]
    if role in BOUND:
        account = f"/api/v1/namespaces/hostler/serviceaccounts/hostler-{role}/token"
        issued = await real.target.create(account, {"spec": {"expirationSeconds": 3600}})
        target = KubeTarget(real.target.url, issued["status"]["token"], real.target.ca_file)
        file = life.settings_file.parent / f"{role}.kubeconfig"
        file.write_text(target.kubeconfig())
        cluster = cluster.model_copy(update={"kubeconfig": file})
    ours = life.settings.worker.model_copy(update={"roles": [role]})
    return life.settings.model_copy(update={"clusters": {life.cluster: cluster}, "worker": ours})


async def _life(life: ConfigLife) -> None:
    """Two nodes get configs, with drains; a KubeletConfig comes and goes; what somebody has edited is restored."""
    life.daemons.usual.drains = True
    labels = {"pools.operator.machineconfiguration.openshift.io/worker": ""}
    pool = config_pool("worker")
    pool["metadata"]["labels"] = labels
    kubelet = {
        "apiVersion": f"{GROUP}/v1",
        "kind": KUBELET_CONFIG.kind,
        "metadata": {"name": "more-pods"},
        "spec": {"machineConfigPoolSelector": {"matchLabels": labels}, "kubeletConfig": {"maxPods": 250}},
    }
    await life.prepare(pool, worker=2)
    first = await life.target()
    await life.all_have(first)
    await life.updated(first)
    await create(life.kube, kubelet)
    second = await life.target(other_than=first)
    await life.all_have(second)
    await life.kube.patch(path(MACHINE_CONFIG, "00-worker"), {"spec": {"kernelArguments": ["quiet"]}})
    await life.kube.delete(path(KUBELET_CONFIG, "more-pods"))
    assert await life.target(other_than=second) == first
    await life.all_have(first)

    async def restored() -> bool:
        return not (await life.kube.get(path(MACHINE_CONFIG, "00-worker")))["spec"].get("kernelArguments")

    await eventually(restored, what="00-worker restored")
    await life.updated(first)


def _asked(event: Obj) -> Right:
    it = event["objectRef"]
    return Right(event["verb"], it["resource"], it.get("apiGroup", ""), it.get("subresource", ""))


@pytest.mark.exhaustive
async def test_each_role_has_what_machine_configs_need_and_no_more(temporal: WorkflowEnvironment) -> None:
    async with real_kube(required_assets(), CERTIFICATES) as real:
        await _grant(real)
        async with config_life(temporal.client, real.target) as life, contextlib.AsyncExitStack() as workers:
            for role in ("workflows", *BOUND):
                await workers.enter_async_context(worker.running(temporal.client, await _settings_of(life, real, role)))
            try:
                await _life(life)
            finally:
                refused = [e for e in real.audited() if e["responseStatus"]["code"] == 403]
                assert {f"{e['user']['username']}: {e['verb']} {e['requestURI']}" for e in refused} == set()
        audit = [e for e in real.audited() if e.get("objectRef", {}).get("apiGroup") == GROUP]
    used = {(e["user"]["username"].removeprefix(ACCOUNT), _asked(e)) for e in audit}
    granted = {(need.role, right) for need in CONFIG_NEEDS for right in need.rights}
    assert used == {(role, right) for role, right in granted if right.subresource != ASKED_BY_ADMISSION}

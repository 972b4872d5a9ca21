"""Machine configs on the command line: from `hostler apply` to a rollout that is followed, held, and gone back."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator

import pytest
import yaml
from apiserver.simulated import NODES, Obj, simulated
from cli.place import answering
from lifekit import command, eventually
from machine_configs.kinds import config, config_pool
from machine_configs.life import ConfigLife, config_life
from temporalio.testing import WorkflowEnvironment

from resources.machine_config.keys import MACHINE_CONFIG, SEED

pytestmark = pytest.mark.core


@pytest.fixture
async def life(temporal: WorkflowEnvironment) -> AsyncIterator[ConfigLife]:
    async with simulated() as kube, config_life(temporal.client, kube) as life, life.worker():
        with answering():
            yield life


async def hostler(life: ConfigLife, *args: str, stdin: str = "", code: int = 0) -> str:
    """What the command says, on both of its outputs."""
    server = life.client.service_client.config.target_host
    mine = {"TEMPORAL_ADDRESS": server, "TEMPORAL_NAMESPACE": life.client.namespace, "COLUMNS": "200"}
    environment = {**dict.fromkeys(os.environ), **mine, "HOSTLER_SETTINGS": str(life.settings.file)}
    found, out, err = await asyncio.wait_for(command(args, environment, stdin), 120)
    assert found == code, (out, err)
    return out + err


class AllBut(set[str]):
    """Every config but one."""

    def __contains__(self, config: object) -> bool:
        return config not in list(self)

    def __init__(self, one: str) -> None:
        super().__init__([one])


def row(table: str, name: str) -> dict[str, str]:
    heads, *rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return next(dict(zip(heads, cells, strict=False)) for cells in rows if cells[0] == name)


def text(*objects: Obj) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False)


async def test_a_config_is_applied_followed_held_and_taken_back(life: ConfigLife) -> None:
    await life.prepare(worker=3)
    pool, own = config_pool("worker", maxUnavailable=2), config("50-worker-own")
    said = await hostler(life, "apply", "-f", "-", "--dry-run", stdin=text(own, pool))
    assert "machineconfig/50-worker-own created (dry run)" in said
    said = await hostler(life, "apply", "-f", "-", stdin=text(own, pool))
    assert said.splitlines()[:2] == ["machineconfig/50-worker-own created", "machineconfigpool/worker created"]
    # Followed from before anything was rendered to the last node.
    said = await hostler(life, "rollout", "status", "mcp/worker", "--timeout", "2m")
    first = await life.target()
    assert said.splitlines()[-1] == f"mcp/worker is updated: all 3 nodes have {first}"
    assert await hostler(life, "wait", "mcp", "worker") == "mcp/worker is updated\n"
    seen = row(await hostler(life, "get", "mcp"), "worker")
    assert (seen["CONFIG"], seen["NODES"], seen["UPDATED"], seen["PHASE"]) == (first, "3", "3", "Updated")
    assert row(await hostler(life, "get", "mc"), "50-worker-own")["ROLE"] == "worker"
    assert "controllerconfig/machine-config-controller" in await hostler(life, "get", "controllerconfigs", "-o", "name")
    assert "mcp/worker" in await hostler(life, "tree")
    assert "unchanged" in await hostler(life, "apply", "-f", "-", stdin=text(own, pool))

    # One object on its own page, and what its deletion would mean.
    page = await hostler(life, "describe", "mc", "50-worker-own", first)
    assert re.search(r"Selected by: +pool worker", page)
    assert re.search(r"Nodes that have it: +worker-1, worker-2, worker-3", page)
    assert "No" not in (await hostler(life, "describe", "controllerconfig", "machine-config-controller")).split()
    said = await hostler(life, "delete", "mc", "50-worker-own", "--dry-run")
    assert said.splitlines()[:2] == ["machineconfig/50-worker-own deletion (dry run)", "  selected by pool worker"]
    assert "pool worker: 3 of 3 nodes updated to rendered-worker-" in said
    said = await hostler(life, "delete", "mcp", "worker", code=1)
    assert "machineconfigpool worker is not deleted: 3 nodes (worker-1, worker-2, worker-3)" in said
    await hostler(life, "apply", "-f", "-", stdin=text(config("60-gpu", "gpu")))
    assert (await hostler(life, "delete", "mc", "60-gpu")).splitlines()[0] == "machineconfig/60-gpu deleted"
    assert "MachineConfig '60-gpu' of cluster" in await hostler(life, "get", "mc", "60-gpu", code=1)
    assert "machineconfigs/" in await hostler(life, "renew", f"machineconfigs/{life.cluster}")

    # Held: what changes then is not rendered, and goes out at once afterwards.
    assert "mcp/worker paused" in await hostler(life, "rollout", "pause", "mcp/worker")
    assert "mcp/worker is paused already" in await hostler(life, "rollout", "pause", "mcp/worker")
    changed = config("50-worker-own", kernelArguments=["nosmt"])
    said = await hostler(life, "diff", "-f", "-", stdin=text(changed), code=1)
    assert said.splitlines() == [
        "machineconfig/50-worker-own configured",
        '  kernelArguments: nothing -> ["nosmt"]',
    ]
    assert "configured" in await hostler(life, "apply", "-f", "-", stdin=text(changed))
    assert row(await hostler(life, "get", "mcp"), "worker")["PHASE"] == "Paused"
    # What others have written stays, and is a conflict where the manifest says otherwise.
    assert "machineconfigpool/worker unchanged" in await hostler(life, "apply", "-f", "-", stdin=text(pool))
    going = config_pool("worker", maxUnavailable=2, paused=False)
    said = await hostler(life, "apply", "-f", "-", stdin=text(going), code=1)
    assert 'machineconfigpool worker: 1 conflict: conflict with "hostler-rollout" using' in said
    assert "--force-conflicts takes it over" in said
    said = await hostler(life, "diff", "-f", "-", "--force-conflicts", stdin=text(going), code=1)
    assert said.splitlines() == ["machineconfigpool/worker configured", "  paused: true -> false"]
    assert await life.target() == first

    # A node that cannot take it: who it is, and what to do, is on the page.
    life.daemons.knob("worker-2", degrades=AllBut(first))
    said = await hostler(life, "apply", "-f", "-", "--force-conflicts", stdin=text(going))
    assert "machineconfigpool/worker configured" in said
    assert "is not paused" in await hostler(life, "rollout", "resume", "mcp/worker")
    second = await life.target(other_than=first)
    said = await hostler(life, "rollout", "status", "mcp/worker", "--timeout", "2m", code=1)
    assert "mcp/worker is blocked: ConfigNodesDegraded: " in said
    assert "what can be done: " in said
    await life.all_have(second, "worker-2")
    page = await hostler(life, "describe", "mcp", "worker")
    assert re.search(rf"worker-2 .*{first} .*degraded", page)
    assert f"2 of 3 nodes have {second}" in page
    assert "ConfigNodesDegraded" in page
    assert "What can be done" in page
    assert 'kernelArguments: nothing -> ["nosmt"]' in await hostler(life, "mc", "diff", first, second, code=1)

    # And back: the same rendered config, and the history of both.
    await hostler(life, "apply", "-f", "-", stdin=text(own))
    assert await life.target(other_than=second) == first
    await hostler(life, "wait", "mcp", "worker", "--timeout", "2m")

    async def told() -> str:
        return await hostler(life, "rollout", "history", "mcp/worker")

    history = await eventually(told, lambda said: said.count("Complete") >= 2, "both rollouts in the lists")
    assert [line.split()[0] for line in history.splitlines()] == ["CONFIG", first, second, first]
    assert "Superseded" in history
    events = await hostler(life, "events", "mcp", "worker")
    assert "ConfigNodeDegraded" in events
    assert "renewal: " in await hostler(life, "renew", "mcp", "worker")

    # A node of no pool is drained too, where its daemon asks for it.
    await life.join("apart-1", pool="nobody")
    await life.kube.patch(f"{NODES}/apart-1", {"metadata": {"annotations": {SEED.desired_drain: "drain-v9"}}})

    async def apart() -> Obj:
        return await life.kube.get(f"{NODES}/apart-1")

    found = await eventually(
        apart, lambda n: n["metadata"]["annotations"].get(SEED.last_drain) == "drain-v9", "drained"
    )
    assert found["spec"]["unschedulable"] is True


async def test_what_is_not_there_is_said(life: ConfigLife) -> None:
    pool = config_pool("worker")
    said = await hostler(life, "apply", "-f", "-", stdin=text(pool), code=1)
    assert "does not serve machineconfigpools" in said
    assert "kubectl apply -f deploy/crds" in said
    assert "does not serve machineconfigs" in await hostler(life, "get", "mc", code=1)
    await life.prepare(pool)
    said = await hostler(life, "describe", "mcp", "worke", code=1)
    lists = f"`hostler get machineconfigpools --cluster {life.cluster}` lists those that are"
    assert f"MachineConfigPool 'worke' of cluster {life.cluster!r} is not known: {lists}; did you mean worker?" in said
    assert "MachineConfig '00-x' of cluster" in await hostler(life, "get", "mc", "00-x", code=1)
    assert "goes back when its MachineConfigs do" in await hostler(life, "rollout", "undo", "mcp/worker", code=2)
    assert "only pools, the control plane and config pools" in await hostler(life, "rollout", "pause", "mc/x", code=2)
    wrong = {**pool, "spec": {**pool["spec"], "machineSelector": {"matchLabels": {"a": "b"}}, "maxUnavailable": "9 %"}}
    said = await hostler(life, "apply", "-f", "-", stdin=text(wrong), code=1)
    assert "machineSelector and nodeSelector both say which machines are the pool's" in said
    assert "spec.maxUnavailable: neither a count nor a percentage" in said
    await life.kube.create(f"/apis/machineconfiguration.openshift.io/v1/{MACHINE_CONFIG.plural}", config("10-a"))
    assert row(await hostler(life, "get", "machineconfigs", "10-a"), "10-a")["IGNITION"] == "3.5.0"

"""A Shoot's worker, applied as it is, with the real driver and machines on the simulators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from cli.place import Place
from lifekit import EXAMPLES, Stack, end_running, eventually, hostler
from pools.lives import Pool
from temporalio.testing import WorkflowEnvironment

SHOOT = EXAMPLES.parent / "workerpool" / "shoot.yaml"
NAME, ZONE_POOL = "shoot-w1", "shoot-w1-eu-west-1a"


@pytest.fixture
async def tidy(stack: Stack) -> AsyncIterator[Stack]:
    yield stack
    await end_running(stack)


async def test_a_shoots_worker_from_its_first_vm_to_its_last(
    temporal: WorkflowEnvironment, tidy: Stack, tmp_path: Path
) -> None:
    stack = tidy
    place = Place(temporal, stack.settings_file.parent, stack.cluster, stack.settings.queue_prefix)
    address = stack.client.service_client.config.target_host

    async def said(*words: str) -> str:
        ran = await place.run("--cluster", stack.cluster, *words, TEMPORAL_ADDRESS=address)
        assert ran.code == 0, ran
        return ran.out

    applied = await said("apply", "-f", str(SHOOT), "-f", str(EXAMPLES / "secret.yaml"))
    assert f"machinedeployment/{ZONE_POOL} created" in applied
    waits = ("--cluster", stack.cluster, "wait", "pool", ZONE_POOL, "--timeout", "120s")
    assert f"machinedeployment/{ZONE_POOL} is rolled-out" in await hostler(stack, *waits)
    (node,) = Pool(stack, ZONE_POOL).nodes()
    labels = node["metadata"]["labels"]
    assert labels["workload"] == "general"
    assert labels["worker.gardener.cloud/pool"] == NAME
    assert labels["topology.ebs.csi.aws.com/zone"] == "eu-west-1a"
    assert "dedicated" in [taint["key"] for taint in node["spec"]["taints"]]

    # A tag is hot: the same VM has it, now that no window is waited for.
    documents = list(yaml.safe_load_all(SHOOT.read_text()))
    del documents[0]["spec"]["maintenance"]
    documents[0]["spec"]["provider"]["workers"][0]["providerConfig"]["vmTags"] = {"team": "core"}
    (tmp_path / "shoot.yaml").write_text(yaml.safe_dump_all(documents))
    assert "zone eu-west-1a: hot update of 1 machine" in await said("apply", "-f", str(tmp_path / "shoot.yaml"))

    async def tags() -> list[str | None]:
        return [stack.tags(vm).get("team") for vm in stack.launched()]

    assert await eventually(tags, lambda found: found == ["core"], "the tag on the one VM that there ever was")

    await said("delete", "workerpool", NAME, "--wait", "--timeout", "60s")
    assert Pool(stack, ZONE_POOL).vms() == {}
    assert "No classes found" in (await place.run("get", "classes", TEMPORAL_ADDRESS=address)).err

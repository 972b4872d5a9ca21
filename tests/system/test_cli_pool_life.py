"""A pool's life through the real command line, with the real driver and machines on the simulators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from cli.place import Place
from lifekit import EXAMPLES, Stack, end_running, eventually, hostler
from pools.lives import Pool
from temporalio.testing import WorkflowEnvironment

NAME = "cli-pool"
POOL = EXAMPLES.parent / "pool" / "pool.yaml"


@pytest.fixture
async def tidy(stack: Stack) -> AsyncIterator[Stack]:
    yield stack
    await end_running(stack)


def pool(folder: Path, replicas: int, **labels: str) -> str:
    """The example with fewer machines; labels of its Nodes."""
    manifest = yaml.safe_load(POOL.read_text())
    manifest["metadata"]["name"] = NAME
    manifest["spec"] |= {"replicas": replicas, "minReadySeconds": 0}
    manifest["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"] |= labels
    (folder / "pool.yaml").write_text(yaml.safe_dump(manifest))
    return str(folder / "pool.yaml")


def edited_class(folder: Path, ami: str) -> str:
    manifest = yaml.safe_load((EXAMPLES / "class.yaml").read_text())
    manifest["providerSpec"]["ami"] = ami
    (folder / "class.yaml").write_text(yaml.safe_dump(manifest))
    return str(folder / "class.yaml")


async def test_a_pool_as_an_operator_runs_it(temporal: WorkflowEnvironment, tidy: Stack, tmp_path: Path) -> None:
    stack = tidy
    place = Place(temporal, stack.settings_file.parent, stack.cluster, stack.settings.queue_prefix)
    address = stack.client.service_client.config.target_host

    async def said(*words: str, code: int = 0) -> str:
        """Runs the command in this process, which saves the second that each start of it takes."""
        ran = await place.run(*words, TEMPORAL_ADDRESS=address)
        assert ran.code == code, ran
        return ran.out

    files = [word for f in ("class.yaml", "secret.yaml") for word in ("-f", str(EXAMPLES / f))]
    applied = await said("apply", *files, "-f", pool(tmp_path, replicas=2))
    assert f"machinedeployment/{NAME} created" in applied
    waits = ("wait", "pool", NAME, "--timeout", "120s")
    assert f"machinedeployment/{NAME} is rolled-out" in await hostler(stack, *waits)

    async def running() -> list[list[str]]:
        return [line.split() for line in (await said("get", "machines", "--pool", NAME)).splitlines()[1:]]

    machines = await eventually(running, lambda r: [m[1] for m in r] == ["Running"] * 2, "two machines in a list")
    page = await said("describe", "machine", machines[0][0])
    assert f"{NAME}, revision 1\n" in page

    wanted = edited_class(tmp_path, "ami-0a1b2c3d4e5f60002")
    beforehand = await said("diff", "-f", wanted, code=1)
    assert f"rolls pool {NAME}: 2 machines will be replaced" in beforehand
    assert f"rolls pool {NAME}: 2 machines will be replaced" in await said("apply", "-f", wanted)
    stands = await hostler(stack, *waits, expect=1)
    assert "is blocked: Canary: 1 of 2 machines are of revision 2 (pauseAfter 1)" in stands
    page = await said("describe", "pool", NAME)
    for words in ("Phase:     Paused", "Reason:            Canary", "1 Running", "hostler rollout resume"):
        assert words in page, page
    assert len(stack.launched()) == 3
    await said("rollout", "resume", NAME, "--reason", "it looks good")
    await hostler(stack, *waits)
    assert len(stack.launched()) == 4
    story = await said("events", "pool", NAME)
    for words in ("ReplicasMissing", "Revised", "RolledOut", "Replaced", "Canary", "it looks good"):
        assert words in story, story

    labelled = await said("apply", "-f", pool(tmp_path, replicas=2, tier="gold"))
    assert f"machinedeployment/{NAME} configured: hot update of 2 machines" in labelled

    async def tiers() -> list[str]:
        nodes = yaml.safe_load(await said("get", "nodes", "-o", "yaml"))["items"]
        return [n["metadata"]["labels"].get("tier", "") for n in nodes]

    await eventually(tiers, lambda found: found == ["gold", "gold"], "the label on both Nodes")
    assert len(stack.launched()) == 4  # none was replaced for it

    assert "replicas 2 → 1" in await said("scale", f"pool/{NAME}", "--replicas=1")
    await hostler(stack, *waits)
    deleted = await hostler(stack, "delete", "pool", NAME, "--wait", "--timeout", "120s")
    assert f"machinedeployment/{NAME} deleted" in deleted
    assert "Nothing is left." in await said("describe", "pool", NAME)
    assert Pool(stack, NAME).vms() == {}

"""Zone by zone, with an approval by a person: a worker pool through the real command line, with the real driver and
machines on the simulators."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli.place import Place
from lifekit import EXAMPLES, Stack, end_running
from pools.lives import Pool
from temporalio.testing import WorkflowEnvironment

from resources.pool.rollout import RolloutOutcome

NAME = "workers"
A, B = (f"{NAME}-eu-west-1{zone}" for zone in "ab")
EXAMPLE = EXAMPLES.parent / "workerpool" / "aws.yaml"


@pytest.fixture
async def tidy(stack: Stack) -> AsyncIterator[Stack]:
    yield stack
    await end_running(stack)


def worker_pool(folder: Path, version: str) -> str:
    """The example with one machine in each zone, rolled one after the other, each revision with a person's approval."""
    manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["spec"]["machine"]["image"]["version"] = version
    manifest["spec"] |= {"zoneStrategy": "Sequential", "approval": {"required": True, "timeout": "1h"}}
    (folder / "workers.yaml").write_text(yaml.safe_dump(manifest))
    return str(folder / "workers.yaml")


async def test_a_worker_pool_is_rolled_zone_by_zone(temporal: WorkflowEnvironment, tidy: Stack, tmp_path: Path) -> None:
    stack = tidy
    place = Place(temporal, stack.settings_file.parent, stack.cluster, stack.settings.queue_prefix)
    address = stack.client.service_client.config.target_host

    async def said(*words: str, code: int = 0) -> str:
        ran = await place.run(*words, TEMPORAL_ADDRESS=address)
        assert ran.code == code, ran
        return ran.out + ran.err

    first, second = Pool(stack, A), Pool(stack, B)
    applied = await said("apply", "-f", str(EXAMPLES / "secret.yaml"), "-f", worker_pool(tmp_path, "4459.2.1"))
    assert A in applied
    for pool in (first, second):
        await pool.rolled_out(1)

    await said("apply", "-f", worker_pool(tmp_path, "4459.2.2"))
    for pool in (first, second):
        await pool.waits("Approval")
    assert "is blocked: Approval" in await said("rollout", "status", A, code=1)
    await said("freeze", "cluster", "--reason", "a look first")
    approved = await said("rollout", "approve", f"workerpool/{NAME}", "--reason", "tried in the test cluster")
    assert approved.count("approved; ") == 2
    for pool in (first, second):
        await pool.waits("Frozen")
    assert len(stack.launched()) == 2, "no VM was made before"
    await said("unfreeze", "cluster")

    behind = await second.waits("AfterPool")
    assert A in next(w.message for w in behind.waits if w.reason == "AfterPool")
    for pool in (first, second):
        await pool.rolled_out(1, revision=2)
        assert (await pool.result(2)).outcome is RolloutOutcome.COMPLETE
    assert len(stack.launched()) == 4
    done, begun = (await first.result(2)).ended, _began((await second.result(2)).steps)
    assert done <= begun, "the second zone begins when the first is done"
    for pool in (first, second):
        told = {step.reason: step.message for step in (await pool.result(2)).steps}
        assert told["Approved"].endswith("tried in the test cluster")
    shown = await said("describe", "pool", B)
    assert f"pool {A} with class {A}-" in shown

    await said("delete", "workerpool", NAME)
    for pool in (first, second):
        await pool.handle.result()
    assert first.vms() + second.vms() == {}


def _began(steps: Any) -> datetime:
    """When the first machine of the rollout was made."""
    found: datetime = next(step.time for step in steps if step.reason == "RolledOut")
    return found

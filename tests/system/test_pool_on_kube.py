"""One rollout of a pool on the simulated API server and on a real one with its own controllers: nodes are marked and
unmarked, pods are moved, and nothing is left. EC2 and the kubelets are simulated in both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from apiserver.real import ALL, real_kube, required_assets
from lifekit import EXAMPLES, Stack, end_running, eventually, new_stack
from pools.lives import OTHER_IMAGE, Crowd, Pool, marks, pool_class, pool_spec
from temporalio.testing import WorkflowEnvironment

from resources.pool.rollout import RolloutOutcome


@pytest.fixture(params=[pytest.param("simulator", marks=pytest.mark.exhaustive), "real"])
async def stack(request: pytest.FixtureRequest, temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with contextlib.AsyncExitStack() as entered:
        simulator = {}
        if request.param == "real":
            kube = await entered.enter_async_context(real_kube(required_assets(), ALL))
            simulator = {"api_server_kubeconfig": kube.kubeconfig}
        made = await entered.enter_async_context(new_stack(temporal.client, **simulator))
        await entered.enter_async_context(made.worker())
        yield made
        await end_running(made)


def workload(folder: Path) -> Path:
    """The examples' workload, with a budget that lets one pod go at a time."""
    file = folder / "web.yaml"
    text = (EXAMPLES.parent / "workloads" / "web.yaml").read_text()
    file.write_text(text.replace("minAvailable: 2", "minAvailable: 1"))
    return file


async def test_a_rollout_with_a_canary(stack: Stack, tmp_path: Path) -> None:
    pool, crowd = Pool(stack), Crowd(stack, "p1")
    await pool.start(pool_spec(2, rolling={"pauseAfter": 1}))
    await pool.rolled_out(2)
    stack.kubectl("apply", "-f", str(workload(tmp_path)))
    await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
    seen = await pool.waits("Canary")
    assert (seen.updated, seen.available) == (1, 2)
    look = lambda: asyncio.to_thread(marks, pool)  # noqa: E731
    # Those that will be replaced take no new work, and no autoscaler removes them; the canary is left alone.
    await eventually(look, lambda found: sorted(found) == [(False, False, False), (True, True, True)], "marks")
    await pool.ask("resume")
    await pool.rolled_out(2, revision=2)
    result = await pool.result(2)
    assert result.outcome == RolloutOutcome.COMPLETE
    await eventually(look, lambda found: found == [(False, False, False)] * 2, "no marks")
    assert (crowd.most, crowd.twins) == (3, set())

    async def serving() -> str:
        return await asyncio.to_thread(
            stack.kubectl, "get", "deployment", "web", "-o", "jsonpath={.status.availableReplicas}"
        )

    await eventually(serving, lambda n: n == "2", "the pods run on the new nodes")
    stack.kubectl("delete", "-f", str(tmp_path / "web.yaml"))  # its budget would hold the last drain
    await pool.delete()
    assert pool.vms() == {}

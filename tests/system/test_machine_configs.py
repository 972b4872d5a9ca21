"""Machine configs, from a change of the templates' input to the last Node and back, with real workflows and activities
and a reference daemon on each Node; the API server's own log is the judge of I13."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from apiserver.simulated import simulated
from machine_configs.daemon import referee
from machine_configs.kinds import config_pool
from machine_configs.life import ConfigLife, config_life
from temporalio.testing import WorkflowEnvironment

from resources.machine_config.state import ConfigRolloutOutcome


@pytest.fixture
async def life(temporal: WorkflowEnvironment) -> AsyncIterator[ConfigLife]:
    async with simulated() as kube, config_life(temporal.client, kube) as life, life.worker():
        yield life


@pytest.mark.core
async def test_a_change_of_the_templates_reaches_six_nodes_and_goes_back_past_a_degraded_one(life: ConfigLife) -> None:
    life.daemons.usual.reboots = 0.1
    await life.prepare(config_pool("worker", maxUnavailable=2), worker=6)
    async with referee(life.kube, lambda pool, count: 2) as judge:
        first = await life.target()
        await life.all_have(first)
        status = await life.updated(first)
        assert (status["machineCount"], status["updatedMachineCount"], status["updatingMachines"]) == (6, 6, 6)
        # A change that one Node cannot take: the others have it in the end.
        await life.dns("10.96.0.53")
        second = await life.target(other_than=first)
        life.daemons.knob("worker-3", degrades={second})
        await life.all_have(second, "worker-3")
        assert (await life.seen())["worker-3"] == (first, "degraded")
        assert "worker-3" in str((await life.pool())["status"]["conditions"])
        assert (await life.conditions())["Degraded"] == "True"
        # And back: that Node, too, is well again.
        await life.dns("10.96.0.10")
        assert await life.target(other_than=second) == first
        await life.all_have(first)
        await life.updated(first)
        assert (await life.conditions())["Degraded"] == "False"
    assert judge.most == {"worker": 2}
    ended = await life.rollout(second)
    assert ended.outcome is ConfigRolloutOutcome.SUPERSEDED

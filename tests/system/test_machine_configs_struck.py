"""A pool's nodes get one config after the other while everything happens at once: a roll-back in the middle, a node
that degrades, one that joins, one that is deleted, and a worker that is killed at every boundary. Every event of the
API server's log is judged (I13)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from apiserver.real import CERTIFICATES, real_kube, required_assets
from apiserver.simulated import KubeTarget, simulated
from faults.strike import CRASHES, Fault, Kind, arm, faulty_worker, warm_up
from lifekit import eventually
from machine_configs.daemon import Referee, referee
from machine_configs.kinds import config_pool
from machine_configs.life import ConfigLife, config_life
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

BOUNDARIES = (
    *("sync_configs", "read_config_pool", "target_config_nodes", "write_pool_status"),
    *("set_update_taints", "start_config_rollout", "drain_for_config", "uncordon_for_config"),
)
"""Every activity that is called while nodes are given configs. The watch ends only with its worker, and so dies with
each of them."""


PATIENCE = 600.0
"""Seconds, for what takes many rounds with a worker that is started again and again."""


def tenth(pool: str, count: int) -> int:
    return max(1, count // 10)


async def _installed(life: ConfigLife, count: int) -> str:
    """So many nodes that have been installed with the pool's config."""
    life.daemons.usual.reboots = 0.1
    await life.prepare(config_pool("worker", maxUnavailable="10%"))
    async with life.worker():
        first = await life.target()
        life.daemons.first = first
        await life.join(*(f"worker-{n}" for n in range(1, count + 1)))
        await life.all_have(first)
        await life.updated(first)
    return first


async def _turmoil(life: ConfigLife, first: str, judge: Referee) -> None:
    """From one config to another, back in the middle, and on to a third."""

    async def count(config: str, least: int) -> None:
        async def look() -> int:
            return sum(has == config for has, _ in (await life.seen()).values())

        await eventually(look, lambda n: n >= least, f"{least} nodes have {config}", PATIENCE)

    life.daemons.knob("worker-1", "worker-2", *(f"worker-{n}" for n in range(6, 12)), drains=True)
    await life.dns("10.96.0.53")
    second = await life.target(other_than=first)
    await count(second, max(1, len(judge.nodes) // 4))
    await life.dns("10.96.0.10")
    assert await life.target(other_than=second) == first
    await life.all_have(first, within=PATIENCE)
    await life.dns("10.96.0.54")
    third = await life.target(other_than=first)
    life.daemons.knob("worker-4", degrades={third})
    await count(third, 1)
    await life.leave("worker-5")
    await life.join("worker-new")
    if tenth("", len(judge.nodes)) > 1:  # else the degraded one has the only place
        await life.all_have(third, "worker-4", within=PATIENCE)
    await eventually(life.seen, lambda s: s["worker-4"] == (first, "degraded"), "worker-4 degraded", PATIENCE)
    life.daemons.knob("worker-4", degrades=set())
    await life.all_have(third, within=PATIENCE)
    status = await life.updated(third)
    assert status["machineCount"] == status["updatedMachineCount"] == len(judge.nodes)


async def _struck(client: Client, kube: KubeTarget, nodes: int, faults: Sequence[Fault]) -> None:
    warm_up()
    async with config_life(client, kube) as life:
        first = await _installed(life, nodes)
        async with faulty_worker(life, *faults) as (left, _), referee(life.kube, tenth) as judge:  # type: ignore[arg-type]
            arm(life)  # type: ignore[arg-type]
            await _turmoil(life, first, judge)
            assert not left.left(), left.left()
            assert judge.most["worker"] == tenth("", nodes)


@pytest.mark.core
async def test_i13_with_a_worker_that_is_killed_at_each_boundary(temporal: WorkflowEnvironment) -> None:
    """Six nodes, one at a time; at each boundary one kind of crash."""
    kinds: list[Kind] = [CRASHES[i % len(CRASHES)] for i in range(len(BOUNDARIES))]
    faults = [Fault(activity, kind) for activity, kind in zip(BOUNDARIES, kinds, strict=True)]
    async with simulated() as kube:
        await _struck(temporal.client, kube, 6, faults)


@pytest.mark.exhaustive
async def test_i13_of_thirty_nodes_on_a_real_api_server(temporal: WorkflowEnvironment) -> None:
    """Three at a time; at each boundary every kind of crash, at its first calls and later."""
    rollouts = {"start_config_rollout": 1}  # there are three
    faults = [Fault(a, kind, 1 + n * rollouts.get(a, 2)) for n, kind in enumerate(CRASHES) for a in BOUNDARIES]
    async with real_kube(required_assets(), CERTIFICATES) as real:
        await _struck(temporal.client, real.target, 30, faults)

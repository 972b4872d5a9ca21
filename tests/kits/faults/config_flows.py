"""Flows of machine configs: Nodes without kubelets, with a daemon each, at an API server of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from apiserver.simulated import simulated
from lifekit import Stack, end_running
from machine_configs.daemon import referee
from machine_configs.kinds import config_pool
from machine_configs.life import ConfigLife, config_life

from faults.flow import Flow, flow
from faults.strike import arm

CONFIGS: dict[str, Flow] = {}
NODES = 4
MOST = 2
PATIENCE = 300.0
_lives: dict[str, ConfigLife] = {}
"""Lives by cluster."""


@contextlib.asynccontextmanager
async def with_configs(stack: Stack) -> AsyncIterator[None]:
    """The stack's workers serve a cluster whose machine configs are on."""
    async with simulated() as kube, config_life(stack.client, kube) as life:
        stack.settings, stack.settings_file, stack.cluster = life.settings, life.settings_file, life.cluster
        _lives[stack.cluster] = life
        try:
            yield
        finally:
            del _lives[stack.cluster]


@flow(
    CONFIGS,
    "sync_configs",
    "read_config_pool",
    "target_config_nodes",
    "target_config_nodes 2",
    "set_update_taints",
    "write_pool_status",
    "start_config_rollout",
    "drain_for_config",
    "uncordon_for_config",
    around=with_configs,
)
async def machine_configs_rolled_out(stack: Stack) -> None:
    """A change reaches all Nodes, two at a time, and one of them after it has failed."""
    life = _lives[stack.cluster]
    # Longer than from one look at the pool to the next: who forgets a node that is under way is found out.
    life.daemons.usual.reboots, life.daemons.usual.slow = 0.3, 1.5
    await life.prepare(config_pool("worker", maxUnavailable=MOST))
    try:
        first = await life.target()
        life.daemons.first = first
        life.daemons.knob("worker-1", drains=True)
        await life.join(*(f"worker-{n}" for n in range(1, NODES + 1)))
        await life.all_have(first, within=PATIENCE)
        async with referee(life.kube, lambda pool, count: MOST):
            arm(stack)
            await life.dns("10.96.0.53")
            second = await life.target(other_than=first)
            life.daemons.knob("worker-2", degrades={second})
            await life.all_have(second, "worker-2", within=PATIENCE)
            life.daemons.knob("worker-2", degrades=set())
            await life.all_have(second, within=PATIENCE)
            await life.updated(second)
    finally:
        await end_running(stack)

"""Machines and their configs change at the same time, with real VMs, kubelets and daemons: the owners of machines and
the config pool keep one budget, which every event of the API server's log is judged by."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from etcd.fake import fake_etcd
from faults.control_plane_flows import LiveControlPlane
from faults.flow import template
from lifekit import Stack, eventually
from machine_configs.kinds import config_pool
from machine_configs.lent import Attendance, lent_life
from machine_configs.life import ConfigLife
from pools.lives import OTHER_IMAGE, Pool, pool_class, pool_spec
from temporalio.testing import WorkflowEnvironment

from resources.machine.state import Phase
from resources.names import CONTROL_PLANE_LABELS

WORKER = {"nodeTemplate": template({"node-role.kubernetes.io/worker": ""}).model_dump(mode="json", by_alias=True)}


async def begun(stack: Stack, life: ConfigLife) -> tuple[Pool, Attendance, str]:
    """A pool of three machines, of which one may be unavailable, and the config that their nodes have."""
    pool, seen = Pool(stack), Attendance(stack, "p1", 3)
    life.daemons.first = config = await life.target()
    await pool.start(pool_spec(3, surge=0, unavailable=1, machine=WORKER))
    await pool.rolled_out(3)
    await life.all_have(config)
    seen.begin()
    return pool, seen, config


async def test_machines_are_replaced_while_their_nodes_get_another_config(temporal: WorkflowEnvironment) -> None:
    """maxUnavailable is 1 of the pool of machines and 2 of the config pool, so never more than one is out of
    service."""
    async with lent_life(temporal.client, config_pool("worker", maxUnavailable=2)) as (stack, life):
        pool, seen, first = await begun(stack, life)
        await asyncio.gather(life.dns("10.96.0.53"), pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE)))
        second = await life.target(other_than=first)
        await pool.rolled_out(3, revision=2)
        await life.all_have(second)
        await life.updated(second)
        assert (seen.look().most, max(seen.ours)) == (1, 1)
        assert "MachineLent" in [h.reason for h in (await pool.state()).journal]


async def test_a_lost_machine_takes_the_place_of_the_nodes_that_get_another_config(
    temporal: WorkflowEnvironment,
) -> None:
    """Nothing else is taken out of service until it is made up for."""
    async with lent_life(temporal.client, config_pool("worker", maxUnavailable=2)) as (stack, life):
        pool, seen, first = await begun(stack, life)
        lost, machine = min((await pool.machines()).items())
        vm = str(machine.status.provider_id).rpartition("/")[2]
        await asyncio.to_thread(stack.ec2().terminate_instances, InstanceIds=[vm])
        await eventually(
            pool.state, lambda s: lost not in s.members or s.members[lost].phase is not Phase.RUNNING, f"{lost} is lost"
        )
        await life.dns("10.96.0.53")
        second = await life.target(other_than=first)
        await pool.rolled_out(3)
        await life.all_have(second)
        await life.updated(second)
        assert lost not in await pool.machines()
        assert max(seen.look().ours) == 1


@pytest.mark.core
async def test_a_control_plane_gets_another_config_one_by_one(temporal: WorkflowEnvironment) -> None:
    """Never two of three are away; and while a member of etcd is down, the other two machines stay at home."""
    masters = config_pool("master", nodeSelector={"matchLabels": {CONTROL_PLANE_LABELS[0]: ""}})
    async with lent_life(temporal.client, masters) as (stack, life):
        cp = LiveControlPlane(stack, f"c{uuid.uuid4().hex[:6]}")
        seen = Attendance(stack, cp.name, 3)
        life.daemons.first = first = await life.target("master")
        await cp.by_hand()
        async with fake_etcd(stack, cp.names) as etcd:
            await eventually(etcd.count, lambda n: n == 3, "each machine has a member")
            await cp.start(etcdGuard=True)
            await cp.complete()
            await life.all_have(first)
            seen.begin()
            down = await cp.node(cp.hands[0])
            etcd.down = {down}
            await eventually(cp.state, lambda s: s.etcd and any(not m.healthy for m in s.etcd.members), "it is seen")
            await life.dns("10.96.0.53")
            second = await life.target("master", other_than=first)
            assert "of 3 voting members of etcd would be healthy" in await life.waits("MachinesNotLent", "master")
            assert {n for n, (has, _) in (await life.seen()).items() if has == second} <= {down}
            etcd.down = set()
            await life.all_have(second)
            await life.updated(second, "master")
            assert (seen.look().most, len(seen.ours)) == (1, 3)
            assert etcd.done == [], "no member left for it"

"""A changed tag reaches every machine of a pool, old revision and new one alike, and replaces none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from lifekit import Stack, end_running, eventually
from machine.hot_updates import COST_A, COST_B, PATIENT, B, Hot, instance_id
from machine.lives import fault
from pools.lives import OTHER_IMAGE, Crowd, Pool, machine_handle, pool_spec

from resources.machine_class.state import ClassState, UpdateState
from resources.names import UPDATE_CONCURRENCY_ANNOTATION
from resources.owner import Owner
from resources.pool.manifest import MachineDeployment, MachineDeploymentSpec


class HotPool(Pool):
    """A pool whose class is a workflow, too."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.hot = Hot(stack, PATIENT)

    async def apply_both(self, spec: MachineDeploymentSpec, **provider_spec: object) -> None:
        self.hot.manifest = self.hot.changed(**provider_spec)
        manifest = MachineDeployment.model_validate(
            {"metadata": {"name": self.name}, "spec": spec.model_dump(by_alias=True)}
        )
        await self.hot.client.apply(self.hot.manifest, manifest)
        self.stack.started[self.name] = self.handle

    async def known(self, machines: int) -> ClassState:
        """The class knows the pool and this many machines, and all are done."""
        return await eventually(
            self.hot.of_class, lambda s: len(s.users) == machines + 1 and s.updated, f"{machines} users known"
        )


@pytest_asyncio.fixture
async def pool(stack: Stack) -> AsyncIterator[HotPool]:
    yield HotPool(stack)
    await end_running(stack)


async def test_one_of_a_pools_machines_may_not_be_tagged(pool: HotPool) -> None:
    """There are more machines than the class tells at a time."""
    pool.hot.manifest.metadata.annotations[UPDATE_CONCURRENCY_ANNOTATION] = "2"
    hot, stack, crowd = pool.hot, pool.stack, Crowd(pool.stack, pool.name)
    await pool.apply_both(pool_spec(4), **COST_A)
    await pool.rolled_out(4)
    await pool.known(4)
    assert (await hot.of_class()).update_concurrency == 2
    machines = await pool.machines()
    denied = sorted(machines)[0]
    vm = instance_id(machines[denied])
    fault(stack, operation="*Tags", match=vm, code="UnauthorizedOperation", times=None)
    await hot.apply(**COST_B)

    def told(s: ClassState) -> bool:
        counts = [n for state, _, n in s.states if state is UpdateState.UPDATED]
        return s.generation == 2 and sum(counts) >= 3 and s.users[denied].state is UpdateState.FAILED

    seen = await eventually(hot.of_class, told, "3 updated, one failed")
    assert (seen.users[denied].reason, list(seen.troubles)) == ("NotAuthorized", [denied])
    assert vm in seen.troubles[denied].message
    assert seen.users[Owner(name=pool.name).user].generation == 2
    for name, machine in machines.items():
        if name != denied:
            assert hot.each(machine) == [B] * 3
    summary = await pool.summary()
    assert (summary.revision, summary.rolled_out, summary.waits) == (1, True, [])

    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
    await hot.client.renew(denied)
    await hot.done()
    assert hot.each(machines[denied]) == [B] * 3
    assert (len(stack.launched()), crowd.most, (await pool.machines()).keys()) == (4, 4, machines.keys())


async def test_in_the_middle_of_a_rollout(pool: HotPool) -> None:
    """A canary holds old and new machines side by side: both get the tag, and the rollout stays where it is."""
    hot = pool.hot
    await pool.apply_both(pool_spec(2, rolling={"pauseAfter": 1}), **COST_A)
    await pool.rolled_out(2)
    await pool.known(2)
    await hot.apply(ami=OTHER_IMAGE)
    await pool.waits("Canary")
    await hot.apply(**COST_B)
    await eventually(hot.of_class, lambda s: s.generation == 3 and s.updated and len(s.users) == 3, "all have the tag")
    await eventually(pool.state, lambda s: len(s.members) == 2, "the one that was replaced is gone")
    machines = await pool.machines()
    assert [hot.each(m) for m in machines.values()] == [[B] * 3] * 2
    assert sorted(m.revision for m in machines.values()) == [1, 2]
    images = {m.revision: m.machine_class.provider_spec["ami"] for m in machines.values() if m.machine_class}
    assert images == {1: hot_image(pool), 2: OTHER_IMAGE}
    assert len(pool.stack.launched()) == 3
    await pool.ask("resume")
    await pool.rolled_out(2, revision=2)


def hot_image(pool: HotPool) -> str:
    """A changed image of the examples' class."""
    return str(pool.machine_class.provider_spec["ami"])


async def test_a_changed_node_template_reaches_every_node(pool: Pool) -> None:
    """Labels and taints are for a machine itself to change; no VM is replaced for them."""
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    changed = pool_spec(2, machine={"nodeTemplate": {"metadata": {"labels": {"example.com/tier": "gold"}}}})
    assert await pool.apply(changed) == "configured; hot update of 2 machines"
    await pool.when(lambda s: s.template_pending == 0, "all have it")

    def tiers() -> list[str]:
        return [node["metadata"]["labels"].get("example.com/tier", "") for node in pool.nodes()]

    assert tiers() == ["gold"] * 2
    state = await machine_handle(pool.stack, sorted((await pool.state()).members)[0]).query("describe")
    assert state["spec"]["nodeTemplate"]["metadata"]["labels"] == {"example.com/tier": "gold"}
    assert len(pool.stack.launched()) == 2

"""Machines that are lent to config pools: the workflows of owners and of a borrower, with stand-ins for each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from control_plane.workflow import ControlPlane
from control_plane.workflow import snapshot as of_control_plane
from lifekit import eventually
from machine_configs.workflows import Configs, PlayedOwner, new_configs, old_nodes
from pools.workflow import Pool, new_pool, snapshot, spec
from temporalio.testing import WorkflowEnvironment

from resources.fleet.lending import Borrowing
from resources.intents import Intent
from resources.names import pool_id


@pytest_asyncio.fixture
async def configs(temporal: WorkflowEnvironment) -> AsyncIterator[Configs]:
    async with new_configs(temporal.client) as made, made.worker(PlayedOwner):
        yield made


async def test_a_config_pool_borrows_each_machine_before_it_begins(
    configs: Configs, temporal: WorkflowEnvironment
) -> None:
    """maxUnavailable would let all begin; the owner lends one at a time, and has each back in the end, also over a new
    run of the borrower."""
    owner = await temporal.client.start_workflow(
        PlayedOwner.run, id=pool_id(configs.cluster, "demo"), task_queue=configs.cluster
    )
    configs.pool(maxUnavailable=3)
    configs.put(*(n._replace(machine=f"m-{n.name}") for n in old_nodes(3)))
    configs.owners = {"m-n0": "demo", "m-n1": "demo"}
    await configs.start()
    await configs.when(lambda s: configs.having("v1") == ["n2"], "the one that belongs to nobody")
    assert "its budget is spent" in await configs.waits("MachinesNotLent")
    assert len(configs.of("target_config_nodes")) == 1
    await owner.signal("be_willing")
    await configs.handle.signal("renew", Intent(id="r"))
    await temporal.fast_forward(configs.handle, timedelta(seconds=31))
    await configs.when(lambda s: len(configs.having("v1")) >= 2, "the next one")
    await temporal.fast_forward(configs.handle, timedelta(seconds=31))
    await configs.updated()

    async def seen() -> Any:
        return await owner.query(PlayedOwner.seen)

    lent, most, told = await eventually(seen, lambda found: not found[0], "all are back")
    assert (lent, most) == ([], 1)
    assert {"back m-n0", "back m-n1"} <= set(told)
    assert not (await configs.state()).loans


async def test_a_machine_that_is_taken_over_meanwhile_is_borrowed(
    configs: Configs, temporal: WorkflowEnvironment
) -> None:
    """It belonged to nobody when that was looked up; then the pool was paused."""
    owner = await temporal.client.start_workflow(
        PlayedOwner.run, id=pool_id(configs.cluster, "demo"), task_queue=configs.cluster
    )
    configs.pool(maxUnavailable=1)
    configs.put(*(n._replace(machine=f"m-{n.name}") for n in old_nodes(1)))
    configs.after_owners = lambda: configs.pool(maxUnavailable=1, paused=True)
    await configs.start()
    await configs.waits("ConfigPoolPaused")
    configs.after_owners, configs.owners = lambda: None, {"m-n0": "demo"}
    configs.pool(maxUnavailable=1)
    await configs.nudge()
    assert "its budget is spent" in await configs.waits("MachinesNotLent")
    assert configs.having("v1") == []
    await owner.signal("be_willing")
    await configs.updated()


# -- owners -----------------------------------------------------------------------------------------------------------


def borrowing(machine: str) -> Borrowing:
    return Borrowing(machine=machine, borrower="worker", config="v1", time=datetime.now(UTC))


async def test_a_pool_lends_within_its_budget_and_holds_its_rollout(temporal: WorkflowEnvironment) -> None:
    async with new_pool(temporal.client) as pool, pool.worker():
        await _lends(pool)


async def _lends(pool: Pool) -> None:
    await pool.ready(spec(3, surge=0, unavailable=1))
    one, two, _ = await pool.members()
    await pool.handle.signal("lend", borrowing(one))
    await pool.when(lambda s: one in s.lent, "lent")
    await pool.handle.signal("lend", borrowing(two))
    await pool.apply(machine_class=snapshot(2, image=2))
    assert f"lent to a config pool ({one})" in await pool.waits("MachinesLent")
    found = await pool.state()
    assert list(found.lent) == [one]
    assert len(found.members) == 3
    await pool.handle.signal("give_back", borrowing(one))
    assert one in await pool.noted("MachineReturned")
    await pool.rolled_out(3, revision=2)


async def test_the_control_plane_lends_one_and_replaces_nothing_meanwhile(temporal: WorkflowEnvironment) -> None:
    cp = ControlPlane(temporal.client)
    async with cp.worker():
        one, two, _ = await cp.ready()
        await cp.handle.signal("lend", borrowing(one))
        await eventually(cp.state, lambda s: list(s.lent) == [one], "lent")
        await cp.handle.signal("lend", borrowing(two))
        await cp.apply(machine_class=of_control_plane(generation=2, type="m5.xlarge"))
        assert await cp.waits("MachinesLent") == (
            f"{one} is lent to a config pool: nothing is replaced until it is back"
        )
        found = await cp.state()
        assert (list(found.lent), len(found.members)) == ([one], 3)
        await cp.handle.signal("give_back", borrowing(one))
        await cp.done(revision=2)
        await cp.end()


async def test_a_borrower_that_is_gone_gives_back_in_the_end(temporal: WorkflowEnvironment) -> None:
    async with new_pool(temporal.client) as pool, pool.worker():
        await pool.ready(spec(1, surge=1, unavailable=0))
        (one,) = await pool.members()
        await pool.handle.signal("lend", borrowing(one))
        await pool.when(lambda s: one in s.lent, "lent")
        await temporal.fast_forward(pool.handle, timedelta(minutes=31))
        assert one in await pool.noted("LoanExpired")
        assert not (await pool.state()).lent

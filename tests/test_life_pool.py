"""Pools with real machines on the simulators."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from lifekit import Stack
from poollives import Pool, end_machines, pool_class, pool_spec

from resources.rollout import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def pool(stack: Stack) -> AsyncIterator[Pool]:
    yield Pool(stack)
    await end_machines(stack)


async def test_from_nothing_to_many_to_few(pool: Pool) -> None:
    await pool.start(pool_spec(0))
    await pool.rolled_out(0)
    assert await pool.scale(20) == "scaled; replicas 0 → 20"
    await pool.rolled_out(20)
    assert pool.vms() == {"running": 20}
    await pool.scale(5)
    await pool.rolled_out(5)
    assert pool.vms() == {"running": 5}
    assert len(pool.stack.launched()) == 20
    await pool.delete()
    assert pool.vms() == {}


async def test_a_rollout(pool: Pool) -> None:
    await pool.start(pool_spec(3))
    await pool.rolled_out(3)
    answer = await pool.apply(machine_class=pool_class(2, ami="ami-0000000000000002"))
    assert answer == "configured; revision 2 replaces 3 machines"
    await pool.rolled_out(3, revision=2)
    result = await pool.result(2)
    assert result.outcome == Outcome.COMPLETE
    assert len(pool.stack.launched()) == 6

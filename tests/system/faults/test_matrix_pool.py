"""The fault matrix, third part: flows of a pool and its rollouts."""

from __future__ import annotations

import pytest
from faults.matrix import EVERYTHING, Strikes, check_saboteurs, check_struck, check_subset, with_lag
from faults.pool_flows import POOLS as FLOWS
from lifekit import Stack


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


@pytest.mark.skipif(EVERYTHING, reason="nothing is left out")
def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    check_subset(FLOWS)


@pytest.mark.skipif(not EVERYTHING, reason="a pool asks no cloud: what its machines read is in the other parts")
async def test_reads_that_lag_behind(shared: Stack) -> None:
    await with_lag(shared, FLOWS)


async def test_each_invariant_sees_its_saboteurs(shared: Stack) -> None:
    await check_saboteurs(shared, FLOWS)

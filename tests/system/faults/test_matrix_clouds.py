"""The fault matrix, fourth part: machines in each of the other clouds, where single calls are struck too."""

from __future__ import annotations

import pytest
from faults.matrix import EVERYTHING, Strikes, check_saboteurs, check_struck, check_subset, sabotage_at, with_lag
from faults.site_flows import ELSEWHERE as FLOWS
from lifekit import new_stack
from temporalio.testing import WorkflowEnvironment


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


@pytest.mark.skipif(EVERYTHING, reason="nothing is left out")
def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    check_subset(FLOWS)


HOMES = sorted({flow.home for flow in FLOWS.values()})


@pytest.mark.skipif(not EVERYTHING, reason="a variation: the drivers' contract has rows for lag")
async def test_reads_that_lag_behind(temporal: WorkflowEnvironment) -> None:
    for home in HOMES:
        async with new_stack(temporal.client, home=home) as shared:
            await with_lag(shared, {name: flow for name, flow in FLOWS.items() if flow.home == home})


@pytest.mark.skipif(not EVERYTHING, reason="a variation: each invariant sees its saboteur at the first cloud")
async def test_each_invariant_sees_its_saboteurs(temporal: WorkflowEnvironment) -> None:
    for home in HOMES:
        async with new_stack(temporal.client, home=home) as shared:
            await check_saboteurs(shared, FLOWS, sabotage_at(home))

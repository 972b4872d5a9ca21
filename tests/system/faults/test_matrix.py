"""The fault matrix, first part: flows of a machine's beginning, and its whole life. The others are in
test_matrix_later.py and test_matrix_pool.py; conftest.py keeps them apart."""

from __future__ import annotations

import pytest
from faults import flows
from faults.machine_flows import BIRTHS as FLOWS
from faults.matrix import (
    EVERYTHING,
    SABOTAGE,
    Strikes,
    check_saboteurs,
    check_struck,
    check_subset,
    sabotaged,
    with_lag,
)
from faults.saboteurs import SABOTEURS
from faults.strike import Fault
from lifekit import Stack

from simulator.frame import FaultRule


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


@pytest.mark.skipif(EVERYTHING, reason="nothing is left out")
def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    check_subset(FLOWS)


async def test_reads_that_lag_behind(shared: Stack) -> None:
    await with_lag(shared, FLOWS)


def test_every_saboteur_has_its_flow() -> None:
    assert {row.name for row in SABOTAGE} | {"I5"} == set(SABOTEURS)
    assert {row.flow for row in SABOTAGE} <= set(flows.FLOWS)


async def test_each_invariant_sees_its_saboteurs(shared: Stack) -> None:
    await check_saboteurs(shared, FLOWS)


async def test_i5_sees_a_look_that_takes_an_error_for_death(shared: Stack) -> None:
    """It runs alone: the read that fails while the VM is well must be this machine's."""
    rule = FaultRule(service="ec2", operation="DescribeInstances", code="Unavailable", match="InstanceIds")
    shared.simulator.call(lambda: shared.simulator.simulator.frame.faults.append(rule))
    said = await sabotaged(shared, FLOWS["whole life"], Fault("watch_machine", "killed before"), "I5")
    assert said.startswith("I5:")

"""The fault matrix, fourth part: flows of a control plane."""

from __future__ import annotations

import pytest
from faults.control_plane_flows import CONTROL_PLANES as FLOWS
from faults.matrix import Strikes, check_saboteurs, check_struck
from lifekit import Stack


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


async def test_each_invariant_sees_its_saboteurs(shared: Stack) -> None:
    await check_saboteurs(shared, FLOWS)

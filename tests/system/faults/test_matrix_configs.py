"""The fault matrix, fifth part: flows of machine configs."""

from __future__ import annotations

import pytest
from faults.config_flows import CONFIGS as FLOWS
from faults.matrix import Strikes, check_saboteurs, check_struck
from lifekit import Stack


@pytest.mark.parametrize("flow", FLOWS)
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


async def test_i13_sees_its_saboteur(shared: Stack) -> None:
    await check_saboteurs(shared, FLOWS)

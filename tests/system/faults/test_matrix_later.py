"""The fault matrix, second part: flows of a living machine, and of its class."""

from __future__ import annotations

import pytest
from faults.class_flows import CLASSES
from faults.later_flows import LATER
from faults.machine_flows import DRAINS, PRESERVED
from faults.matrix import EVERYTHING, Strikes, check_saboteurs, check_struck, check_subset, with_lag
from lifekit import Stack

FLOWS = LATER | CLASSES | DRAINS | PRESERVED


@pytest.mark.parametrize("flow", [pytest.param(f, marks=[pytest.mark.core] if f == "recreate" else []) for f in FLOWS])
async def test_matrix(strikes: Strikes, flow: str) -> None:
    check_struck(flow, await strikes.of(flow))


@pytest.mark.skipif(EVERYTHING, reason="nothing is left out")
def test_a_subset_covers_every_boundary_and_every_kind() -> None:
    check_subset(FLOWS)


async def test_reads_that_lag_behind(shared: Stack) -> None:
    """Those that look for a VM; in the others it is known long before anything happens."""
    await with_lag(shared, FLOWS if EVERYTHING else {name: FLOWS[name] for name in ("reset", "recreate", "adopt")})


async def test_each_invariant_sees_its_saboteurs(shared: Stack) -> None:
    await check_saboteurs(shared, FLOWS)

"""What the parts of the fault matrix have in common. Each has its flows as FLOWS, and a test for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from faults.matrix import Strikes, boundaries_of, to_find
from faults.strike import Boundary
from lifekit import Stack, new_stack
from temporalio.testing import WorkflowEnvironment


@pytest.fixture
async def shared(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


@pytest.fixture(scope="module")
async def boundaries(temporal: WorkflowEnvironment, request: pytest.FixtureRequest) -> dict[str, list[Boundary]]:
    """The boundaries of the flows whose every boundary is struck."""
    return await boundaries_of(temporal.client, to_find(request.module.FLOWS))


@pytest.fixture(scope="module")
async def strikes(
    temporal: WorkflowEnvironment, boundaries: dict[str, list[Boundary]], request: pytest.FixtureRequest
) -> AsyncIterator[Strikes]:
    """The flows that are to be tested here, under their faults."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    ours = [item.callspec.params for item in items if item.module is request.module and hasattr(item, "callspec")]
    strikes = Strikes(temporal.client, request.module.FLOWS, [p["flow"] for p in ours], boundaries)
    yield strikes
    await strikes.stop()

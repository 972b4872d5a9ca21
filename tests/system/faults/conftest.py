"""What the parts of the fault matrix have in common. Each has its flows as FLOWS."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from faultkit import Boundary
from lifekit import Stack, new_stack
from matrixkit import boundaries_of, to_find
from temporalio.testing import WorkflowEnvironment


@pytest.fixture
async def shared(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


@pytest.fixture(scope="module")
async def boundaries(temporal: WorkflowEnvironment, request: pytest.FixtureRequest) -> dict[str, list[Boundary]]:
    """The boundaries of the flows whose every boundary is struck."""
    return await boundaries_of(temporal.client, to_find(request.module.FLOWS))

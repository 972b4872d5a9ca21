"""Fixtures of the component tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from machine.stubs import Machines, stubbed
from temporalio.testing import WorkflowEnvironment


@pytest.fixture
async def machines(temporal: WorkflowEnvironment) -> AsyncIterator[Machines]:
    """The real workflows of machines; their activities are stubs."""
    async with stubbed(temporal.client) as machines:
        yield machines

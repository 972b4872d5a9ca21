"""MachineDeploymentWorkflow and what its machines say: repair, storms, lost workflows, a former pool's machines,
templates that reach them without being replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from lifekit import eventually
from poolworkflowkit import DEAF, LINGERS, Pool, new_pool, snapshot, spec
from stubs import classified
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.machine import Phase
from resources.messages import DeleteIntent
from resources.names import UPDATE_CONCURRENCY_ANNOTATION


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Pool]:
    """Without a worker."""
    async with new_pool(temporal.client) as pool:
        yield pool


@pytest_asyncio.fixture
async def pool(idle: Pool) -> AsyncIterator[Pool]:
    async with idle.worker():
        yield idle


ONE_AT_A_TIME = {UPDATE_CONCURRENCY_ANNOTATION: "1"}
HOT = {"machine": {"drainTimeout": "5m"}}
"""A template that machines take without being replaced."""


# -- templates --------------------------------------------------------------------------------------------------------


async def test_a_silent_one_holds_up_the_others_for_two_minutes_only(
    pool: Pool, temporal: WorkflowEnvironment
) -> None:
    await pool.ready(spec(2), annotations=ONE_AT_A_TIME)
    first, second = await pool.members()
    await pool.be(first, second, habits=[DEAF])
    await pool.apply(spec(2, **HOT), annotations=ONE_AT_A_TIME)
    await pool.until_heard(first, "template_changed")
    await temporal.fast_forward(pool.handle, timedelta(minutes=1, seconds=50))
    assert await pool.heard(second) == []
    await temporal.fast_forward(pool.handle, timedelta(seconds=11))
    await pool.until_heard(second, "template_changed")
    assert await pool.heard(first) == ["template_changed"]
    await pool.be(second, template=2)
    await pool.until_heard(first, "template_changed", times=2)
    await pool.be(first, template=2)
    await pool.when(lambda s: not s.told, "all have it")

"""More news at once than a task takes: no task fails, nothing is lost, and a person is answered in the middle of it.

bench/busy.py shows how long it takes with thousands.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pools.workflow import begin, grown, new_pool
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.state import ClusterState
from resources.intents import Intent
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.settings import WorkerSettings
from starter.sdk import intents
from workflows.cluster import ClusterWorkflow

MANY = 350
"""Fewer messages than end a run: the server fails the task that would end one while news comes in, and it is done
again."""
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


async def burst(handle: WorkflowHandle[Any, Any], send: Callable[[int], Awaitable[None]]) -> None:
    """Sends all at once, with an intent in the middle; no task of the workflow fails."""
    asked: list[Any] = []

    async def one(n: int) -> None:
        await send(n)
        if n == MANY // 2:
            asked.append(await intents.send(handle, "pause", Intent(id="p", requested_by="ann"), "q", "it"))

    await asyncio.gather(*map(one, range(MANY)))
    assert "paused" in asked[0].message or asked[0].recorded, asked


async def failed_tasks(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [str(e) async for e in handle.fetch_history_events() if e.event_type == FAILED]


async def test_a_burst_of_news_from_the_members_of_a_pool(temporal: WorkflowEnvironment) -> None:
    async with new_pool(temporal.client) as pool, pool.worker():
        state = grown(pool, MANY)
        await begin(pool, state)
        await pool.summary()  # begun
        names = sorted(state.members)
        await burst(pool.handle, lambda n: pool.report(names[n], 4, Phase.UNKNOWN))
        found = await pool.when(lambda s: all(m.phase is Phase.UNKNOWN for m in s.members.values()))
        assert (found.paused, found.paused_by) == (True, "ann")
        assert await failed_tasks(pool.handle) == []


async def test_a_burst_of_news_of_classes(temporal: WorkflowEnvironment) -> None:
    queue = f"t{uuid.uuid4().hex[:8]}"
    runner = worker.sandbox(strict=False)
    slots = WorkerSettings().max_concurrent_workflow_tasks
    async with Worker(
        temporal.client,
        task_queue=queue,
        workflows=worker.WORKFLOWS,
        workflow_runner=runner,
        max_concurrent_workflow_tasks=slots,
    ):
        state = ClusterState(name=queue, queue_prefix=queue)
        started = await temporal.client.start_workflow(
            ClusterWorkflow.run, state, id=f"cluster/{queue}", task_queue=queue
        )
        handle = temporal.client.get_workflow_handle_for(ClusterWorkflow.run, started.id)

        async def announce(n: int) -> None:
            account = Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name="cloud"))
            await handle.signal("use_account", AccountUse(machine_class=f"c-{n}", account=account))

        await handle.query(ClusterWorkflow.describe)  # begun
        await burst(handle, announce)
        found = await handle.query(ClusterWorkflow.describe)
        assert found.pause is not None
        assert found.pause.requested_by == "ann"
        assert len(found.classes) == MANY
        assert await failed_tasks(handle) == []
        await handle.terminate("the test is over")


pytestmark = pytest.mark.timeout(300)

"""What every entity does alike: a parked one ends its run too, and can still be asked, released and deleted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from entitykit import ENTITIES, PARKED, own_id
from lifekit import eventually
from machine.stubs import Machines, not_yet, phase, reason, stubbed
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from resources.base import Value
from resources.intents import Answer, Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from workflows import entity
from workflows.machine import MachineWorkflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("kind", "state", "signal", "arguments"), ENTITIES, ids=[kind for kind, *_ in ENTITIES])
async def test_parked_with_many_messages_begins_a_new_run(
    temporal: WorkflowEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    state: Callable[[str], Value],
    signal: str,
    arguments: list[Any],
) -> None:
    """Temporal refuses everything once a run has had 10,000 signals, `renew` and `delete` among it."""
    monkeypatch.setattr(entity, "RENEW_AFTER", 20)
    queue = f"t{uuid.uuid4().hex[:8]}"
    first = await temporal.client.start_workflow(kind, state(queue), id=own_id(kind, queue), task_queue=queue)
    handle: WorkflowHandle[Any, Any] = temporal.client.get_workflow_handle(first.id)
    for _ in range(25):
        await handle.signal(signal, args=arguments)
    runner = worker.sandbox(strict=False)
    async with Worker(temporal.client, task_queue=queue, workflows=worker.WORKFLOWS, workflow_runner=runner):

        async def renewed() -> bool:
            return (await handle.describe()).run_id != first.first_execution_run_id

        await eventually(renewed, what="a new run")
        found = await handle.query("describe")
        assert (found["parked"], found["messages"]) == (PARKED, 0)
        answer = await handle.execute_update("renew", Intent(id="r"), id="r", result_type=Answer)
        assert answer.message
        assert (await handle.query("describe"))["parked"] is None
    await handle.terminate("the test is over")


# -- the waits of a machine that may last ------------------------------------------------------------------------------


async def for_its_class(machines: Machines) -> str:
    await machines.start(machines.new_state("m-1").model_copy(update={"machine_class": None}))
    return "ClassMissing"


async def for_its_node(machines: Machines) -> str:
    await machines.start(machines.new_state("m-1"))
    return "NodeNotSeen"


async def for_a_drain(machines: Machines) -> str:
    machines.stubs.always["drain_node"] = not_yet("blocked", timedelta(days=1))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    return "Draining"


async def for_the_end_of_its_vm(machines: Machines) -> str:
    machines.stubs.always["delete_machine"] = not_yet("shutting down", timedelta(days=1))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    return "DeletingVM"


async def for_its_post_start_update(machines: Machines) -> str:
    """A machine waits for its post-start update. No worker of the cloud answers; the watch keeps telling of the
    Node."""
    machines.stubs.holds["update_machine"] = asyncio.Event()
    await machines.start(machines.new_state("m-1"))
    return "PostStartUpdate"


async def for_its_cluster_to_forget_it(machines: Machines) -> str:
    machines.stubs.holds["forget_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    return "Forgetting"


@pytest.mark.parametrize(
    "waits",
    [
        for_its_class,
        for_a_drain,
        pytest.param(for_its_node, marks=pytest.mark.exhaustive),
        pytest.param(for_the_end_of_its_vm, marks=pytest.mark.exhaustive),
        pytest.param(for_its_post_start_update, marks=pytest.mark.exhaustive),
        pytest.param(for_its_cluster_to_forget_it, marks=pytest.mark.exhaustive),
    ],
)
async def test_a_machine_that_waits_begins_a_new_run_after_many_messages(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, waits: Callable[[Machines], Awaitable[str]]
) -> None:
    """It goes on waiting: what it waits for may take for ever."""
    monkeypatch.setattr(entity, "RENEW_AFTER", 20)
    async with stubbed(temporal.client, workflows=False) as machines, machines.workflow_worker():
        why = await waits(machines)
        handle = temporal.client.get_workflow_handle(machines.started[0].id)
        before = await reason(handle, why)
        run = (await handle.describe()).run_id
        for _ in range(25):
            await handle.signal(MachineWorkflow.report_again)

        async def renewed() -> bool:
            return (await handle.describe()).run_id != run

        await eventually(renewed, what="a new run")
        after = await reason(handle, why)
        assert (after.uid, after.attempt, after.deletion) == (before.uid, before.attempt, before.deletion)
        assert after.drain_began == before.drain_began

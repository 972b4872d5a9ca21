"""An account with a task queue of its own: its calls go there, and a change of the settings moves them, also in the
middle of a life."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from lifekit import eventually
from machine.stubs import phase, stubbed
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

import worker
from activities.deps import Deps
from resources.converter import data_converter
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.names import cloud_queue
from resources.queues import Routes
from resources.settings import AccountQueue, CloudSettings, Settings
from workflows.routing import Routing

OWN = {"own": AccountQueue(accounts=["AWS/eu-west-1/default/*"], calls_per_second=50)}


def settings(prefix: str, queues: dict[str, AccountQueue]) -> Settings:
    return Settings(queue_prefix=prefix, clouds={"aws": CloudSettings(queues=queues)})


def cloud_calls(history: WorkflowHistory, names: Iterable[str]) -> list[tuple[str, str]]:
    """Activity and task queue, of these queues, in order."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return [(s.activity_type.name, s.task_queue.name) for s in scheduled if s.task_queue.name in names]


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "passed through"])
async def test_a_life_goes_on_where_the_settings_say_now(temporal: WorkflowEnvironment, strict: bool) -> None:
    """Born with a queue of its account's own, deleted by a worker that no longer has the setting, on the same
    history."""
    async with stubbed(temporal.client, workflows=False) as machines:
        shared = cloud_queue("aws", machines.prefix)
        own = cloud_queue("aws", machines.prefix, "own")
        machines.activities[own] = machines.activities[shared]
        routing = Routing(Routes(settings(machines.prefix, OWN)))
        async with machines.activity_worker(own):
            async with machines.workflow_worker(strict, interceptors=[routing]):
                handle = await machines.start(machines.new_state("m-1"))
                await phase(handle, Phase.PENDING)
                before = cloud_calls(await handle.fetch_history(), (own, shared))
            async with machines.workflow_worker(strict, max_cached_workflows=0):
                await handle.signal("delete", DeleteIntent(id=str(uuid.uuid4()), requested_by="test"))

                async def calls() -> list[tuple[str, str]]:
                    return cloud_calls(await handle.fetch_history(), (own, shared))

                after = await eventually(calls, lambda seen: "delete_machine" in dict(seen))
        history = await handle.fetch_history()
    assert ("create_machine", own) in before
    assert {queue for _, queue in before} == {own}
    assert after[: len(before)] == before
    assert dict(after)["delete_machine"] == shared
    for interceptors in ([], [routing]):  # history has both queues, and either setting replays it
        replayer = Replayer(
            workflows=worker.WORKFLOWS,
            data_converter=data_converter,
            workflow_runner=worker.sandbox(strict),
            interceptors=interceptors,
        )
        await replayer.replay_workflow(history)


async def test_workers_poll_them_at_their_own_rate(temporal: WorkflowEnvironment) -> None:
    prefix = f"t{uuid.uuid4().hex[:8]}"
    given = settings(prefix, OWN)
    built = worker.build(temporal.client, given, Deps(given, temporal.client))

    def rate(w: Any) -> float | None:
        return w.config()["max_task_queue_activities_per_second"]  # type: ignore[no-any-return]

    rates = {w.task_queue: rate(w) for w in built}
    assert rates == {prefix: None, cloud_queue("aws", prefix): None, cloud_queue("aws", prefix, "own"): 50}

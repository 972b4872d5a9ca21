"""A busy account delays no other: Temporal takes the accounts of a cloud's queue in turns, each at its own rate."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from lifekit import eventually
from machine.stubs import phase, stubbed
from paths import ROOT
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.common import Priority
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from resources.cluster.accounts import FAIRNESS_KEY_BYTES, Account
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.names import cloud_queue
from resources.settings import AccountQueue, CloudSettings, Settings, SettingsError
from starter.sdk import limits
from workflows.calls import Urgency, share

BACKLOG = 300
BUSY, QUIET = (Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(name=n)) for n in ("busy", "quiet"))


@workflow.defn
class Calls:
    """A number of calls of one account, all at once."""

    @workflow.run
    async def run(self, account: Account, calls: int, priority_key: int, queue: str) -> None:
        urgency = share(Priority(priority_key=priority_key), account)
        handles = [
            workflow.start_activity(
                "call", account.key, task_queue=queue, start_to_close_timeout=timedelta(minutes=1), priority=urgency
            )
            for _ in range(calls)
        ]
        await asyncio.gather(*handles)


def settings(**cloud: float) -> Settings:
    return Settings(queue_prefix=f"t{uuid.uuid4().hex[:8]}", clouds={"aws": CloudSettings.model_validate(cloud)})


@contextlib.asynccontextmanager
async def calling(client: Client, settings: Settings) -> AsyncIterator[tuple[list[str], str]]:
    """Calls in the order in which they are started, and their queue."""
    started: list[str] = []

    @activity.defn
    async def call(account: str) -> None:
        started.append(account)

    queue, cloud = cloud_queue("aws", settings.queue_prefix), settings.clouds["aws"]
    await limits.apply(client, settings)
    async with (
        Worker(
            client, task_queue=settings.queue_prefix, workflows=[Calls], workflow_runner=UnsandboxedWorkflowRunner()
        ),
        Worker(
            client,
            task_queue=queue,
            activities=[call],
            max_concurrent_activities=4,
            max_task_queue_activities_per_second=cloud.calls_per_second,
        ),
    ):
        yield started, queue


async def start(client: Client, settings: Settings, account: Account, calls: int, urgency: Priority, queue: str) -> str:
    workflow_id = f"calls-{uuid.uuid4()}"
    await client.start_workflow(
        Calls.run,
        args=[account, calls, urgency.priority_key, queue],
        id=workflow_id,
        task_queue=settings.queue_prefix,
    )
    return workflow_id


@pytest.mark.parametrize(
    ("limit", "busy", "quiet"),
    [
        # Even urgent calls of the one come after the other's less urgent ones, once it has had its share.
        ({"calls_per_second_per_account": 5.0}, Urgency.CREATE, Urgency.POLL),
        ({"calls_per_second": 20.0}, Urgency.DELETE, Urgency.DELETE),
    ],
    ids=["a limit of each account", "a limit of the queue"],
)
async def test_a_busy_account_delays_no_other(
    temporal: WorkflowEnvironment, limit: dict[str, float], busy: Priority, quiet: Priority
) -> None:
    """This counts calls, not seconds: hundreds of calls of the one account wait, and the other's go before them."""
    client, given = temporal.client, settings(**limit)
    async with calling(client, given) as (started, queue):
        many = await start(client, given, BUSY, BACKLOG, busy, queue)

        async def count() -> int:
            return len(started)

        before = await eventually(count, lambda n: n >= 5, "calls of the busy account")
        few = await start(client, given, QUIET, 3, quiet, queue)
        await client.get_workflow_handle(few).result()
        last = max(i for i, account in enumerate(started) if account == QUIET.key)
        assert started.count(QUIET.key) == 3
        assert last - before < BACKLOG / 5
        assert started.count(BUSY.key) < BACKLOG  # it has a backlog still
        await client.get_workflow_handle(many).terminate("the test is over")


async def keeps(client: Client, queue: str, limit: limits.Limit) -> None:
    """Waits until the server says so: it keeps the limit with the workflows' half of a task queue, and the activities'
    half, which is asked, hears of it a moment later."""
    await eventually(lambda: limits.kept(client, queue), limit.__eq__, f"{queue} with {limit}")


async def test_the_limit_of_each_account_is_as_the_settings_say(temporal: WorkflowEnvironment) -> None:
    client, given = temporal.client, settings(calls_per_second_per_account=7.5)
    queue = cloud_queue("aws", given.queue_prefix)
    own = AccountQueue(accounts=["AWS/*/default/*"])
    with_own = given.clouds["aws"].model_copy(update={"queues": {"own": own}})
    await limits.apply(client, given.model_copy(update={"clouds": {"aws": with_own}}))
    assert await limits.kept(client, cloud_queue("aws", given.queue_prefix, "own")) == limits.Limit(7.5)
    none = given.model_copy(update={"clouds": {"aws": CloudSettings()}})
    await limits.apply(client, none)
    assert await limits.kept(client, queue) == limits.Limit(None)
    for _ in range(2):
        await limits.apply(client, given)
        await keeps(client, queue, limits.Limit(7.5))
    await limits.apply(client, none)  # the setting was taken away
    await keeps(client, queue, limits.Limit(None))


async def test_a_limit_that_was_set_by_hand_stays(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, given = temporal.client, settings(calls_per_second_per_account=3.0)
    with monkeypatch.context() as by_hand:
        by_hand.setattr(limits, "REASON", "the account is new")
        await limits.apply(client, given)
    queue = cloud_queue("aws", given.queue_prefix)
    await keeps(client, queue, limits.Limit(3.0, by_hand=True))
    await limits.apply(client, given.model_copy(update={"clouds": {"aws": CloudSettings()}}))
    assert await limits.kept(client, queue) == limits.Limit(3.0, by_hand=True)
    await limits.apply(
        client, given.model_copy(update={"clouds": {"aws": CloudSettings(calls_per_second_per_account=4)}})
    )
    await keeps(client, queue, limits.Limit(4.0))


async def test_a_server_that_keeps_no_limit_is_an_error_only_where_one_is_wanted(
    temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise RPCError("unknown method", RPCStatusCode.UNIMPLEMENTED, b"")

    monkeypatch.setattr(limits, "kept", refuse)
    await limits.apply(temporal.client, settings())
    with pytest.raises(SettingsError, match=r"clouds\.aws\.callsPerSecondPerAccount: .*keeps no limit"):
        await limits.apply(temporal.client, settings(calls_per_second_per_account=1.0))


async def test_each_call_of_a_machines_cloud_is_of_its_accounts_share(temporal: WorkflowEnvironment) -> None:
    async with stubbed(temporal.client) as machines:
        handle = await machines.start(machines.new_state("m-1"))
        await phase(handle, Phase.PENDING)
        queue, keys = cloud_queue("aws", machines.prefix), {}
        history = await handle.fetch_history()
        for event in history.events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                call = event.activity_task_scheduled_event_attributes
                keys[call.activity_type.name] = (call.task_queue.name == queue, call.priority.fairness_key)
    account = "AWS/eu-west-1/default/demo-aws"
    assert keys["create_machine"] == (True, account)
    assert all(bool(key) == of_cloud for of_cloud, key in keys.values())


def test_whoever_uses_a_clouds_queue_says_whose_share_it_takes() -> None:
    users = [f for f in (ROOT / "workflows").rglob("*.py") if "cloud_queue(" in f.read_text()]
    assert len(users) >= 3
    silent = [f.name for f in users if "priority=share(" not in f.read_text()]
    assert silent == ["record.py"]  # which names the queue, for entity.py
    assert "priority=share(" in (ROOT / "workflows" / "machine" / "entity.py").read_text()


def test_a_fairness_key_is_never_longer_than_temporal_takes_it() -> None:
    assert BUSY.fairness_key == BUSY.key
    long = [
        Account(provider="AWS", region="eu-west-1", secret_ref=SecretRef(namespace="n" * 63, name=f"{'x' * 200}{n}"))
        for n in range(2)
    ]
    assert all(len(a.fairness_key.encode()) <= FAIRNESS_KEY_BYTES for a in long)
    assert long[0].fairness_key != long[1].fairness_key

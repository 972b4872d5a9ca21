"""A class and its machines on a stack: started, changed and asked as the command line does."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from cli.place import class_yaml
from lifekit import Stack, asked, eventually, examples
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.classes import ClassActivities
from resources import attributes
from resources.errors import ErrorClass
from resources.intents import Answer, Intent
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import (
    SILENCE,
    ClassIntent,
    ClassNews,
    ClassReport,
    ClassState,
    UpdatesHeld,
    UpdateState,
)
from resources.manifests import MachineClass
from resources.names import class_id, machine_id
from resources.owner import user_id
from resources.settings import Settings
from resources.timings import Timings
from simulator.frame import FaultRule
from starter.sdk.starts import start_class
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow

MUST = {"kubernetes.io/cluster/shoot--hostler--demo": "1", "kubernetes.io/role/node": "1"}


def tagged(tags: dict[str, str], hops: int = 2) -> dict[str, Any]:
    """Fields of a provider spec: the same tags on VM, NIC and disk, and a metadata option."""
    options = {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": hops}
    kinds = {"vmTags": {**MUST, **tags}, "nicTags": tags, "diskTags": tags}
    return {**kinds, "instanceMetadataOptions": options}


class LiveClass:
    """The examples' class, with fields of its provider spec replaced."""

    def __init__(self, stack: Stack, silence: timedelta = SILENCE, **provider_spec: Any) -> None:
        self.stack, self.silence = stack, silence
        self.manifest: MachineClass = examples(cloud=stack.home).classes[0]
        self.name = self.manifest.metadata.name
        self.wanted = self.snapshot(**provider_spec)
        self.handle: WorkflowHandle[Any, Any] = stack.client.get_workflow_handle(class_id(stack.cluster, self.name))

    def snapshot(self, **provider_spec: Any) -> ClassSnapshot:
        made = ClassSnapshot.of(self.manifest)
        return made.model_copy(update={"provider_spec": {**made.provider_spec, **provider_spec}})

    async def start(self) -> None:
        state = ClassState(
            name=self.name,
            cluster=self.stack.cluster,
            machine_class=self.wanted,
            silence=self.silence,
            queue_prefix=self.stack.settings.queue_prefix,
            timings=self.stack.settings.timings,
        )
        await start_class(self.stack.client, state)

    async def apply(self, **provider_spec: Any) -> str:
        intent = ClassIntent(id=uuid.uuid4().hex, machine_class=self.snapshot(**provider_spec), requested_by="test")
        answer: Answer = await self.handle.execute_update(MachineClassWorkflow.apply, intent, id=intent.id)
        return answer.message

    async def delete(self) -> str:
        """Deletes the class; it fails while the class is used."""
        intent = Intent(id=uuid.uuid4().hex, requested_by="test")
        answer: Answer = await self.handle.execute_update(MachineClassWorkflow.delete, intent, id=intent.id)
        return answer.message

    async def refusal(self) -> str:
        """Why it cannot be deleted."""
        try:
            return f"not refused: {await self.delete()}"
        except WorkflowUpdateFailedError as e:
            return str(e.cause)

    async def state(self) -> ClassState:
        return await asked(self.handle, MachineClassWorkflow.describe)

    async def known(self, machine: str) -> ClassState:
        """Waits until the class has heard that a machine was made from it."""
        return await eventually(self.state, lambda s: machine in s.users and s.users[machine].applied, "the user")

    async def updated(self, generation: int) -> ClassState:
        """Waits until every user is done with a generation."""
        return await eventually(
            self.state, lambda s: s.generation == generation and s.users and s.updated, f"generation {generation}"
        )


async def start_by_hand(
    stack: Stack, name: str, of: LiveClass, waits: Mapping[ErrorClass, timedelta] | None = None
) -> None:
    """Starts a machine with the few words that a person types in Temporal's web UI, and the tests' short waits."""
    id = machine_id(stack.cluster, name)
    await stack.client.start_workflow(
        "MachineWorkflow",
        {
            "name": name,
            "cluster": stack.cluster,
            "spec": {"class": {"name": of.name}},
            "queuePrefix": stack.settings.queue_prefix,
            "timings": waiting(stack, waits or {}).model_dump(mode="json", by_alias=True),
        },
        id=id,
        task_queue=stack.settings.queue_prefix,
    )
    stack.started[name] = stack.client.get_workflow_handle_for(MachineWorkflow.run, id)


def waiting(stack: Stack, waits: Mapping[ErrorClass, timedelta]) -> Timings:
    """The tests' timings, with other waits after failures."""
    usual = stack.settings.timings
    return usual.model_copy(update={"retry": {**usual.retry, **waits}})


def refuse(stack: Stack, uid: str, code: str, times: int | None = None) -> FaultRule:
    """The machine's volume takes no new tags; a call that names other resources too tags none of them."""
    (volume,) = stack.leftovers(uid)["volumes"]
    rule = FaultRule(service="ec2", operation="CreateTags", code=code, match=volume, times=times)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(rule))
    return rule


def relent(stack: Stack, rule: FaultRule) -> None:
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.remove(rule))


@workflow.defn(name="MachineWorkflow")
class DeafUser:
    """Keeps what its class tells it, and says nothing."""

    def __init__(self) -> None:
        self.news: list[ClassNews] = []
        self.held: list[int] = []
        self.over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.over)

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        self.news.append(news)

    @workflow.signal
    def updates_held(self, news: UpdatesHeld) -> None:
        self.held.append(news.machines)

    @workflow.query
    def waiting(self) -> list[int]:
        return self.held

    @workflow.signal
    def stop(self) -> None:
        self.over = True

    @workflow.query
    def heard(self) -> list[ClassNews]:
        return self.news


def snapshot(generation: int = 1, **fields: Any) -> ClassSnapshot:
    return ClassSnapshot.of(MachineClass.model_validate(class_yaml(**fields)), generation)


class Classes:
    """One class and its users, in a cluster of their own."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client, self.queue, self.cluster = client, queue, queue
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(class_id(self.cluster, "c1"))
        self.deps = Deps(Settings(queue_prefix=queue), client)

    def worker(self, strict: bool = False) -> Worker:
        ours = ClassActivities(self.deps)
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[MachineClassWorkflow],
            activities=[ours.tell_users, ours.tell_held, ours.await_turn, ours.report_to_class, ours.find_users],
            workflow_runner=worker.sandbox(strict),
            interceptors=[Boundary()],
        )

    def users_worker(self) -> Worker:
        queue = f"{self.queue}-users"
        return Worker(self.client, task_queue=queue, workflows=[DeafUser], workflow_runner=UnsandboxedWorkflowRunner())

    async def start(self, **fields: Any) -> None:
        state = ClassState(
            name="c1", cluster=self.cluster, machine_class=snapshot(), queue_prefix=self.queue, searched=True
        )
        await self.client.start_workflow(
            MachineClassWorkflow.run, state.model_copy(update=fields), id=self.handle.id, task_queue=self.queue
        )

    async def user(self, name: str, **report: Any) -> WorkflowHandle[Any, Any]:
        """A machine (by Owner.user a pool) that its class knows, done with generation 1 unless told otherwise."""
        handle = await self.client.start_workflow(
            DeafUser.run,
            id=user_id(self.cluster, name),
            task_queue=f"{self.queue}-users",
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(attributes.CLUSTER, self.cluster),
                    SearchAttributePair(attributes.CLASS, "c1"),
                ]
            ),
        )
        await self.report(name, **report)
        return handle

    async def report(
        self, name: str, generation: int = 1, state: UpdateState = UpdateState.UPDATED, **more: Any
    ) -> None:
        fields = {"applied": generation, "time": datetime.now(UTC)} | more
        report = ClassReport(user=name, generation=generation, state=state, **fields)
        await self.handle.signal(MachineClassWorkflow.report, report)

    async def apply(self, wanted: ClassSnapshot, **fields: Any) -> str:
        intent = ClassIntent(id=uuid.uuid4().hex, machine_class=wanted, **fields)
        answer: Answer = await self.handle.execute_update(MachineClassWorkflow.apply, intent)
        return answer.message

    async def state(self) -> ClassState:
        found: ClassState = await self.handle.query(MachineClassWorkflow.describe)
        return found

    async def told(self) -> dict[str, list[int]]:
        """Generations by machine, as the machines heard them."""
        users = (await self.state()).users
        return {name: [n.machine_class.generation for n in await self.heard(name)] for name in users}

    async def heard(self, name: str) -> list[ClassNews]:
        handle = self.client.get_workflow_handle(user_id(self.cluster, name))
        news: list[ClassNews] = await handle.query(DeafUser.heard)
        return news

    async def waiting(self, owner: str) -> list[int]:
        """How many of its machines wait for a window, as an owner heard it."""
        handle = self.client.get_workflow_handle(user_id(self.cluster, owner))
        held: list[int] = await handle.query(DeafUser.waiting)
        return held

    async def until_told(self, wanted: dict[str, list[int]]) -> None:
        await eventually(self.told, lambda told: told == wanted, f"{wanted}")

    async def end(self) -> None:
        await self.deps.close()
        async for found in self.client.list_workflows(f"TaskQueue IN ('{self.queue}', '{self.queue}-users')"):
            with contextlib.suppress(Exception):
                await self.client.get_workflow_handle(found.id).terminate("the test is over")


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment) -> AsyncIterator[Classes]:
    """A class without a worker."""
    classes = Classes(temporal.client, f"k{uuid.uuid4().hex[:8]}")
    async with classes.users_worker():
        try:
            yield classes
        finally:
            await classes.end()


@pytest_asyncio.fixture
async def classes(idle: Classes) -> AsyncIterator[Classes]:
    async with idle.worker():
        await idle.start()
        yield idle


def names(count: int) -> list[str]:
    return [f"m{n}" for n in range(1, count + 1)]


async def refused(call: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as raised:
        await call
    return str(raised.value.cause).removeprefix("Refused: ")

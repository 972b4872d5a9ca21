"""An owner of machines that is no pool (tests/kits/pools/quorum.py) does what every owner does: it starts machines in
their places, hears them, permits repairs, finds lost ones, is paused with its cluster, and tells a template.

Cluster, class and all activities between them are the real ones; the machines are stand-ins.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from lifekit import asked, eventually
from pools.quorum import PLACES, QUORUM, QuorumState, QuorumWorkflow, TemplateIntent
from pools.standins import PlayedMachine
from pools.workflow import snapshot
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

import worker
from activities.base import methods
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.classes import ClassActivities
from activities.temporal.members import MemberActivities
from activities.temporal.uses import UsesActivities
from activities.watch.lost import Lost
from resources import owner
from resources.cluster.state import LeftInput, PoolsInput
from resources.converter import data_converter
from resources.intents import Answer, Intent
from resources.machine.manifest import MachineTemplate
from resources.machine.state import MachineState, Phase
from resources.machine_class.state import ClassId, ClassIntent, ClassState
from resources.names import UPDATE_CONCURRENCY_ANNOTATION, class_id, cluster_id, machine_id
from resources.settings import ClusterSettings, Settings
from starter.commands import describe
from starter.sdk import owners
from starter.sdk.client import HostlerClient
from workflows.cluster import ClusterWorkflow
from workflows.machine_class import MachineClassWorkflow

TEMPLATE = MachineTemplate.model_validate({"spec": {"class": {"name": "c1"}}})
HOT = MachineTemplate.model_validate({"spec": {"class": {"name": "c1"}, "drainTimeout": "5m"}})


class Quorum:
    """One in a cluster of its own, with the cluster's workflow and its class's, on a task queue of its own."""

    def __init__(self, client: Client) -> None:
        self.client, self.cluster = client, f"q{uuid.uuid4().hex[:8]}"
        settings = Settings(queue_prefix=self.cluster, clusters={self.cluster: ClusterSettings()})
        self.deps = Deps(settings, client)
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(f"quorum/{self.cluster}")

    def worker(self) -> Worker:
        roles = MemberActivities, ClassActivities, UsesActivities
        return Worker(
            self.client,
            task_queue=self.cluster,
            workflows=[QuorumWorkflow, ClusterWorkflow, MachineClassWorkflow, PlayedMachine],
            workflow_runner=worker.sandbox(strict=False),
            activities=[call for role in roles for call in methods(role(self.deps))],
            interceptors=[Boundary()],
        )

    async def start(self) -> None:
        of = ClassState(cluster=self.cluster, name="c1", machine_class=snapshot(), queue_prefix=self.cluster)
        await self.client.start_workflow(
            MachineClassWorkflow.run, of, id=class_id(self.cluster, "c1"), task_queue=self.cluster
        )
        await self.begin()
        await eventually(self.running, lambda names: len(names) == 2, "two machines")

    async def begin(self) -> None:
        state = QuorumState(
            name=QUORUM.only,
            cluster=self.cluster,
            made_from=TEMPLATE,
            annotations={UPDATE_CONCURRENCY_ANNOTATION: "1"},
            queue_prefix=self.cluster,
        )
        await self.client.start_workflow(QuorumWorkflow.run, state, id=self.handle.id, task_queue=self.cluster)

    async def state(self) -> QuorumState:
        return await asked(self.handle, QuorumWorkflow.describe)

    async def running(self) -> list[str]:
        """Running machines in the order of their places."""
        members = (await self.state()).members
        places = {n: m.placement for n, m in members.items() if m.phase is Phase.RUNNING}
        return sorted(places, key=lambda name: PLACES.index(places[name]))

    async def when(self, until: Any, what: str) -> QuorumState:
        return await eventually(self.state, until, what)

    def machine(self, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(machine_id(self.cluster, name))

    async def heard(self, name: str) -> list[str]:
        return await asked(self.machine(name), PlayedMachine.what)

    async def be(self, name: str, **changes: Any) -> None:
        await self.machine(name).signal("be", changes)

    async def ask(self, intent: str, on: str | None = None, **fields: Any) -> str:
        handle = self.client.get_workflow_handle(on or self.handle.id)
        answer: Answer = await handle.execute_update(intent, Intent(id=uuid.uuid4().hex, **fields), result_type=Answer)
        return answer.message

    async def end(self) -> None:
        """Ends all that runs on its queue. Lists lag, so it is over when two of them in a row are empty."""
        running = f"TaskQueue = '{self.cluster}' AND ExecutionStatus = 'Running'"
        empty = 0
        while empty < 2:
            ids = [execution.id async for execution in self.client.list_workflows(running)]
            for workflow_id in ids:
                with contextlib.suppress(RPCError):
                    await self.client.get_workflow_handle(workflow_id).terminate()
            empty = 0 if ids else empty + 1
            await asyncio.sleep(0.2)

    async def users(self) -> dict[str, Any]:
        found = await asked(
            self.client.get_workflow_handle(class_id(self.cluster, "c1")), MachineClassWorkflow.describe
        )
        return dict(found.users)


@pytest_asyncio.fixture
async def quorum(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Quorum]:
    monkeypatch.setitem(owner.KINDS, QUORUM.manifest, QUORUM)
    it = Quorum(temporal.client)
    async with it.worker():
        await it.start()
        yield it
        await it.end()
    replayer = Replayer(
        workflows=[QuorumWorkflow], data_converter=data_converter, workflow_runner=worker.sandbox(strict=False)
    )
    await replayer.replay_workflow(await it.handle.fetch_history())


async def test_it_starts_its_machines_in_their_places(quorum: Quorum) -> None:
    names = await quorum.running()
    for name, place in zip(names, PLACES, strict=True):
        state: MachineState = await quorum.machine(name).query(PlayedMachine.describe)
        assert state.placement == place
        assert state.owner is not None
        assert (str(state.owner), state.pool) == ("quorum main", "")
        described = await quorum.machine(name).describe()
        assert described.search_attributes["HostlerPool"] == ["quorum/main"]
    users = await eventually(quorum.users, lambda users: "quorum/main" in users, "a user of its class")
    assert users["quorum/main"].generation == 1
    changed = ClassIntent(id="2", machine_class=snapshot(team="b"))
    await quorum.client.get_workflow_handle(class_id(quorum.cluster, "c1")).execute_update("apply", changed)
    told = await quorum.when(lambda s: s.machine_class.generation == 2, "its class's news")
    assert told.machine_class is not None
    assert told.machine_class.provider_spec["vmTags"] == {"team": "b"}


async def test_a_new_cluster_and_a_new_class_find_it(quorum: Quorum) -> None:
    """Those of a former workflow that was ended from outside: by visibility."""
    pools, classes = MemberActivities(quorum.deps), ClassActivities(quorum.deps)

    async def found() -> tuple[list[str], list[str]]:
        users = await classes.find_users(ClassId(cluster=quorum.cluster, name="c1"))
        return (await pools.find_pools(PoolsInput(cluster=quorum.cluster))).names, users.users

    await eventually(found, lambda seen: "quorum/main" in seen[1] and seen[0] == ["quorum/main"], "it is found")


async def test_an_ill_one_is_permitted_and_replaced_in_its_place(quorum: Quorum) -> None:
    first, second = await quorum.running()
    await quorum.be(second, phase="Unknown", asks=True)
    names = await eventually(quorum.running, lambda now: len(now) == 2 and second not in now, "another in its place")
    assert names[0] == first
    told = ("Missing", "RepairGranted", "Unhealthy")
    reasons = [h.reason for h in (await quorum.state()).journal if h.reason in told]
    assert reasons == ["Missing", "Missing", "RepairGranted", "Unhealthy", "Missing"]
    assert (await quorum.state()).members[names[1]].placement == PLACES[1]


async def test_a_lost_one_is_found_and_so_are_those_of_a_former_life(quorum: Quorum) -> None:
    first, second = await quorum.running()
    await quorum.machine(first).terminate()
    seen = Lost(quorum.deps)

    async def told() -> list[str]:
        return await seen.machines()

    await eventually(told, lambda names: names == [first], "its owner is told")
    await quorum.when(lambda s: set(s.lost) == {first}, "the lost one")
    await quorum.handle.terminate()
    await quorum.begin()
    again = await quorum.when(lambda s: s.members and not s.expected, "a new life")
    assert (again.members[second].placement, again.members[second].revision) == (PLACES[1], 1)
    assert "MemberFound" in [h.reason for h in again.journal]


async def test_one_without_a_workflow_is_restored_from_its_owner_or_given_up(quorum: Quorum) -> None:
    """What `hostler adopt` does with it (tests/system/test_adopt_pools.py plays it for pools)."""
    names = await quorum.running()
    hostler = HostlerClient(quorum.client, quorum.deps.settings, cluster=quorum.cluster)
    connection = hostler.connection
    of = await owners.owner_of(connection, names[1], quorum.cluster)
    assert of is not None
    made = owners.made_from(of, names[1])
    assert made is not None
    begun = await quorum.machine(names[1]).query(PlayedMachine.describe)
    fields = ("owner", "revision", "template", "placement", "spec", "machine_class")
    assert [getattr(made, f) for f in fields] == [getattr(begun, f) for f in fields]
    assert made.model_copy(update=owners.membership(of, names[1])) == made
    assert any(
        line.split() == ["Quorum:", "main,", "revision", "1"]
        for line in describe.page(await hostler.describe(names[1]), datetime.now(UTC))
    )
    assert await owners.owner_of(connection, "main-x-y", quorum.cluster) is None

    left = await UsesActivities(quorum.deps).find_left(LeftInput(cluster=quorum.cluster))
    assert left.words.endswith(" and its quorum")
    await quorum.machine(names[1]).terminate()
    adopted = await owners.give_up(connection, of, names[1], "c1")
    assert adopted.notes[0].endswith("; quorum main is told and makes another if it needs one")
    now = await eventually(quorum.running, lambda now: len(now) == 2 and names[1] not in now, "another in its place")
    assert now[0] == names[0]


async def test_it_is_paused_with_its_cluster(quorum: Quorum) -> None:
    first, _ = await quorum.running()
    cluster = cluster_id(quorum.cluster)
    assert "its quorum does nothing" in await quorum.ask("pause", cluster)
    await quorum.be(first, phase="Failed", drained=True)
    await quorum.when(lambda s: [w.reason for w in s.waits] == ["ClusterPaused"], "it waits")
    assert await quorum.heard(first) == []
    assert await quorum.ask("resume", cluster) == f"cluster {quorum.cluster} is resumed"
    await eventually(quorum.running, lambda now: len(now) == 2 and first not in now, "another one")


async def test_a_template_reaches_one_after_the_other(quorum: Quorum) -> None:
    first, second = sorted(await quorum.running())
    await quorum.be(first, habits=["deaf"])
    await quorum.handle.execute_update("change", TemplateIntent(id="1", made_from=HOT))
    await eventually(lambda: quorum.heard(first), lambda heard: heard == ["template_changed"], "the first one is told")
    assert await quorum.heard(second) == []
    await quorum.be(first, template=2)
    await eventually(lambda: quorum.heard(second), lambda heard: heard == ["template_changed"], "then the second one")


async def test_it_ends_when_nothing_is_left_and_is_forgotten(quorum: Quorum) -> None:
    await eventually(quorum.users, lambda users: "quorum/main" in users, "a user of its class")
    cluster = quorum.client.get_workflow_handle(cluster_id(quorum.cluster))
    assert list((await asked(cluster, ClusterWorkflow.describe)).pools) == ["quorum/main"]
    await quorum.handle.execute_update("delete", Intent(id="1"))
    await quorum.handle.result()
    assert "quorum/main" not in await quorum.users()
    assert (await asked(cluster, ClusterWorkflow.describe)).pools == {}

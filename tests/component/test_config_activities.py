"""What the workflows of machine configs ask of Temporal, through its real server: machines that are only a state."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from activitykit import once
from lifekit import end_running_of, eventually
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.deps import Deps
from activities.temporal.configs import ConfigActivities
from activities.temporal.workflows import MACHINE, running
from activities.watch.lost import Lost
from resources import attributes as at
from resources.calls.machine_config import FindOwnersInput, SelectMachinesInput, SelectMachinesOutput
from resources.machine.manifest import MachineSpec
from resources.machine.state import MachineState
from resources.machine_config.settings import MachineConfigSettings
from resources.machine_config.state import MachineConfigsState
from resources.names import machine_configs_id, machine_id
from resources.settings import ClusterSettings, Settings


@workflow.defn(name="MachineWorkflow", sandboxed=False)
class Labelled:
    @workflow.init
    def __init__(self, state: MachineState) -> None:
        self.s = state

    @workflow.run
    async def run(self, state: MachineState) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def describe(self) -> MachineState:
        return self.s


class Fleet:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.cluster = self.queue = f"c{uuid.uuid4().hex[:8]}"
        off, on = ClusterSettings(), ClusterSettings(machine_configs=MachineConfigSettings(enabled=True))
        clusters = {self.cluster: on, f"{self.cluster}-off": off}
        self.deps = Deps(Settings(queue_prefix=self.queue, clusters=clusters), client)
        self.activities = ConfigActivities(self.deps)

    async def machine(self, name: str, owner: str = "", **labels: str) -> None:
        spec = MachineSpec.model_validate({"class": {"name": "c"}})
        state = MachineState(name=name, cluster=self.cluster, labels=labels, spec=spec)
        pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(at.CLUSTER, self.cluster)]
        pairs += [SearchAttributePair(at.POOL, owner)] if owner else []
        await self.client.start_workflow(
            Labelled.run,
            state,
            id=machine_id(self.cluster, name),
            task_queue=self.queue,
            search_attributes=TypedSearchAttributes(pairs),
        )

    async def listed(self, count: int) -> None:
        async def look() -> int:
            return (await self.client.count_workflows(running(MACHINE, cluster=self.cluster))).count

        await eventually(look, lambda n: n == count, f"{count} machines listed")

    async def select(self, **given: Any) -> SelectMachinesOutput:
        return await once(self.activities.select_machines, SelectMachinesInput(cluster=self.cluster, **given))


@pytest.fixture
async def fleet(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(temporal.client)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(temporal.client, task_queue=fleet.queue, workflows=[Labelled], workflow_runner=runner):
        yield fleet
        await end_running_of(temporal.client, fleet.queue)
    await fleet.deps.close()


async def test_machines_are_selected_by_their_labels_or_by_the_pool_that_has_them(fleet: Fleet) -> None:
    await fleet.machine("p-11111-a", "p", tier="gpu")
    await fleet.machine("p-11111-b", "p", tier="gpu")
    await fleet.machine("p-22222-c", "p", tier="cpu")  # of another revision, so of another template
    await fleet.machine("alone", tier="gpu")
    await fleet.machine("cp-0", "controlplane/cluster")
    await fleet.listed(5)
    gpu = {"matchLabels": {"tier": "gpu"}}
    assert await fleet.select(selector=gpu) == SelectMachinesOutput(machines=["alone", "p-11111-a", "p-11111-b"])
    assert (await fleet.select(machine_set="p")).machines == ["p-11111-a", "p-11111-b", "p-22222-c"]
    nobody = await fleet.select(machine_set="q")
    assert nobody.machines == []
    assert nobody.trouble.startswith("there is no pool q")
    input = FindOwnersInput(cluster=fleet.cluster, machines=["p-11111-a", "alone", "cp-0", "never-there"])
    owners = (await once(fleet.activities.find_owners_of_machines, input)).owners
    assert owners == {"p-11111-a": "p", "alone": "", "cp-0": "controlplane/cluster", "never-there": ""}


async def test_only_a_cluster_whose_settings_want_it_gets_the_workflow_and_gets_it_again(fleet: Fleet) -> None:
    lost = Lost(fleet.deps)
    assert await lost.configs() == [fleet.cluster]
    assert await lost.configs() == []  # it runs
    handle = fleet.client.get_workflow_handle(machine_configs_id(fleet.cluster))
    described = await handle.describe()
    (state,) = await fleet.client.data_converter.decode([p async for p in _input(handle)], [MachineConfigsState])
    assert (described.workflow_type, state.name) == ("MachineConfigsWorkflow", fleet.cluster)
    assert state.render_delay == MachineConfigSettings().render_delay
    await handle.terminate("somebody ends it")
    assert await lost.configs() == [fleet.cluster]


async def _input(handle: Any) -> AsyncIterator[Any]:
    async for event in handle.fetch_history_events():
        for payload in event.workflow_execution_started_event_attributes.input.payloads:
            yield payload
        return

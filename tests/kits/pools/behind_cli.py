"""The real pool and the real rollout's story, with machines that the pool's activities play, so that the command line
can be tried on them. Machines join at once, or when the test says so, and are gone once they are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cli.place import Place, answering
from cli.standins import PlayedCluster, PlayedMachine
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.base import methods
from activities.deps import Deps
from activities.temporal.classes import ClassActivities
from activities.temporal.members import MemberActivities
from activities.temporal.pools import PoolActivities
from resources.cluster.news import ClusterNews
from resources.fleet.member import Trouble, Vm
from resources.fleet.membership import (
    ForgetPoolInput,
    MarkNodesInput,
    MemberReport,
    MembersFound,
    StartMachinesInput,
    StartMachinesOutput,
    TellMachinesInput,
    TellMachinesOutput,
)
from resources.machine.state import Phase
from resources.machine_class.state import ClassReport, TellUsersInput, TellUsersOutput, UpdateState
from resources.names import class_id, cluster_queue, pool_id
from resources.owner import OwnerRef
from resources.pool.rollout import RolloutState
from resources.settings import load_settings
from workflows.machine_class import MachineClassWorkflow
from workflows.pool import MachineDeploymentWorkflow
from workflows.pool.rollout import RolloutWorkflow


@dataclass
class Machine:
    pool: str
    revision: int
    template: int
    phase: Phase = Phase.PENDING
    seq: int = 0


@dataclass
class Machines:
    """All machines that were started and are not gone, by name."""

    client: Client
    cluster: str
    deps: Deps
    slow: set[int] = field(default_factory=set)
    """Machines of these revisions get a VM, and join when `join` says so."""
    lost: set[int] = field(default_factory=set)
    """Machines of these revisions never join: they are Failed at once."""
    there: dict[str, Machine] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)
    """Machines whose Nodes carry the marks of a rollout."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set: what a class has to tell is still on its way."""

    told: list[str] = field(default_factory=list)
    """Users that classes have told something, in that order."""

    def __post_init__(self) -> None:
        self.heard.set()

    # -- what a test does ---------------------------------------------------------------------------------------------

    async def join(self, revision: int, most: int = 10**6) -> None:
        """The waiting machines of a slow revision join."""
        waiting = [n for n, m in self.there.items() if m.revision == revision and m.phase is Phase.PENDING]
        for name in waiting[:most]:
            await self._is(name, Phase.RUNNING)

    async def fall_ill(self, name: str) -> None:
        await self._is(name, Phase.UNKNOWN)

    async def known_to(self, machine_class: str) -> None:
        """All of them report to their class, as real machines do."""
        handle = self.client.get_workflow_handle(class_id(self.cluster, machine_class))
        for name in self.there:
            said = {"user": name, "generation": 1, "applied": 1, "state": UpdateState.UPDATED}
            await handle.signal("report", ClassReport.model_validate({**said, "time": datetime.now(UTC)}))

    # -- activities ---------------------------------------------------------------------------------------------------

    @activity.defn(name="start_machines")
    async def start(self, input: StartMachinesInput) -> StartMachinesOutput:
        for name in input.names:
            s = input.state
            if name not in self.there:
                self.there[name] = Machine(s.pool, s.revision, s.template)
            await self._is(name, Phase.PENDING)
            if s.revision in self.lost:
                await self._is(name, Phase.FAILED, trouble=Trouble.JOIN, drained=True, message="no Node came")
            elif s.revision not in self.slow:
                await self._is(name, Phase.RUNNING)
        return StartMachinesOutput()

    @activity.defn(name="tell_members")
    async def tell(self, input: TellMachinesInput) -> TellMachinesOutput:
        gone = [n for n in input.names if n not in self.there]
        for name in input.names:
            if name not in self.there:
                continue
            machine = self.there[name]
            if input.delete is not None or input.repair is not None:
                await self._is(name, Phase.TERMINATING, ended=True, vm=Vm.GONE)
                del self.there[name]
                continue
            if input.template is not None:
                machine.template = input.template.generation
            await self._is(name, machine.phase)
        return TellMachinesOutput(gone=gone)

    @activity.defn(name="tell_users")
    async def tell_users(self, input: TellUsersInput) -> TellUsersOutput:
        while not self.heard.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.02)
        self.told += input.users
        return await ClassActivities(self.deps).tell_users(input)

    @activity.defn(name="mark_nodes")
    async def mark(self, input: MarkNodesInput) -> None:
        self.marked = self.marked | set(input.machines) if input.on else self.marked - set(input.machines)

    @activity.defn(name="register_pool")
    async def register(self, input: OwnerRef) -> None:
        """Registers the pool, as a cluster that can be seen."""
        pool = self.client.get_workflow_handle(pool_id(self.cluster, input.name))
        await pool.signal("cluster_news", ClusterNews(time=datetime.now(UTC)))

    @activity.defn(name="forget_pool")
    async def forget(self, input: ForgetPoolInput) -> None: ...

    @activity.defn(name="find_members")
    async def find(self, input: OwnerRef) -> MembersFound:
        return MembersFound()

    @activity.defn(name="start_rollout")
    async def start_rollout(self, input: RolloutState) -> None:
        await MemberActivities(self.deps).start_rollout(input)

    async def _is(self, name: str, phase: Phase, **more: Any) -> None:
        machine = self.there[name]
        machine.phase, machine.seq = phase, machine.seq + 1
        report = {"machine": name, "seq": machine.seq, "phase": phase, "since": datetime.now(UTC), "vm": Vm.LIVES}
        said = MemberReport.model_validate({**report, "template": machine.template, **more})
        await self.client.get_workflow_handle(pool_id(self.cluster, machine.pool)).signal("report", said)


@contextlib.asynccontextmanager
async def played(place: Place) -> AsyncIterator[Machines]:
    """Workers for pools, rollouts and classes."""
    deps = Deps(load_settings(place.settings_file), place.client)
    machines, classes = Machines(place.client, place.cluster, deps), ClassActivities(deps)
    ours = [machines.start, machines.tell, machines.register, machines.forget, machines.find, machines.start_rollout]
    asked = [
        machines.tell_users,
        classes.tell_held,
        classes.await_turn,
        classes.find_users,
        classes.ask_class,
        classes.report_to_class,
    ]
    workflows = Worker(
        place.client,
        task_queue=place.queue,
        workflows=[PlayedCluster, PlayedMachine, MachineDeploymentWorkflow, RolloutWorkflow, MachineClassWorkflow],
        activities=[*ours, *asked, *methods(PoolActivities(deps))],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    nodes = Worker(place.client, task_queue=cluster_queue(place.cluster, place.queue), activities=[machines.mark])
    try:
        async with workflows, nodes:
            with answering():
                yield machines
    finally:
        await deps.close()


def pool_yaml(
    name: str = "p1", replicas: int = 3, machine_class: str = "c1", surge: int | str = 1, **more: Any
) -> dict[str, Any]:
    """A pool's manifest. `more`: fields of the spec; what it says of rollingUpdate is added to maxSurge, and nothing is
    unavailable."""
    rolling = {"maxSurge": surge, "maxUnavailable": 0, **more.pop("rollingUpdate", {})}
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"class": {"kind": "MachineClass", "name": machine_class}}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            **more,
        },
    }

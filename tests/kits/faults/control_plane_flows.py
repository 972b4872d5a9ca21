"""Flows of a control plane, with real machines. Boundaries are those of the activities that its workflow calls: what
its machines do is struck in the machines' own flows."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

from etcd.fake import fake_etcd
from lifekit import Stack, asked, end_running, eventually, result_of
from machine.classes import LiveClass
from pools.lives import machine_handle
from temporalio.client import WorkflowHandle

from faults.flow import Flow, flow, template
from faults.pool_invariants import Watched, check_ends, check_pool_i1, check_pool_i6, check_pool_i8
from faults.strike import arm
from resources.control_plane.spec import ControlPlaneSpec
from resources.control_plane.state import ControlPlaneState
from resources.control_plane.summary import ControlPlaneSummary
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.names import CONTROL_PLANE_LABELS
from workflows.control_plane import ControlPlaneWorkflow

CONTROL_PLANES: dict[str, Flow] = {}
QUORUM = 2
MACHINE = {
    "nodeTemplate": template({CONTROL_PLANE_LABELS[0]: ""}).model_dump(mode="json", by_alias=True, exclude_unset=True),
    "healthTimeout": "5m",
    "creationTimeout": "5m",
    "drainTimeout": "1m",
}


@dataclass
class LiveControlPlane:
    """A control plane of three machines that were made by hand."""

    stack: Stack
    name: str
    """What the names of its machines begin with, as a pool's do."""

    def __post_init__(self) -> None:
        self.handle: WorkflowHandle[Any, Any] = self.stack.client.get_workflow_handle(
            f"controlplane/{self.stack.cluster}"
        )
        self.of = LiveClass(self.stack)
        self.hands = [f"{self.name}-hand{index}-{index}" for index in range(3)]

    async def by_hand(self) -> None:
        await self.of.start()
        for name in self.hands:
            await self.stack.create(name, machine_class=self.of.wanted, **MACHINE)
        for name in self.hands:
            await self.stack.phase(Phase.RUNNING, name)

    async def start(self, **spec: Any) -> None:
        settings = self.stack.settings
        made = {"class": {"name": self.of.name}, **MACHINE}
        given = {"state": "Active", "namePrefix": self.name, "template": {"spec": made}, **spec}
        state = ControlPlaneState(
            name="cluster",
            cluster=self.stack.cluster,
            spec=ControlPlaneSpec.model_validate(given),
            queue_prefix=settings.queue_prefix,
            timings=settings.timings,
        )
        await self.stack.client.start_workflow(
            ControlPlaneWorkflow.run, state, id=self.handle.id, task_queue=settings.queue_prefix
        )
        self.stack.started[self.name] = self.handle

    async def state(self) -> ControlPlaneState:
        return await asked(self.handle, ControlPlaneWorkflow.describe)

    async def summary(self) -> ControlPlaneSummary:
        return await asked(self.handle, ControlPlaneWorkflow.summary)

    async def names(self) -> list[str]:
        """Its machines, those that were made by hand even when they are gone."""
        begun = self.name in self.stack.started
        return sorted({*self.hands, *(await self.state()).members} if begun else self.hands)

    async def node(self, name: str) -> str:
        return str((await asked(machine_handle(self.stack, name), "describe"))["status"]["nodeName"])

    async def complete(self, *without: str) -> ControlPlaneSummary:
        def done(s: ControlPlaneSummary) -> bool:
            gone = not any(h.name in without for i in s.indexes for h in i.hosts)
            return gone and s.rolled_out and s.machines == 3 and not s.template_pending

        return await eventually(self.summary, done, "three machines, each up to date")

    async def delete(self, name: str) -> None:
        await machine_handle(self.stack, name).signal("delete", DeleteIntent(id=uuid.uuid4().hex, requested_by="test"))

    async def end(self) -> None:
        """The set is deleted, its machines stay; then they are deleted, and nothing is left."""
        names = list((await self.state()).members)
        intent = Intent(id=uuid.uuid4().hex, requested_by="test")
        await self.handle.execute_update("delete", intent, id=intent.id)
        await result_of(self.handle)
        for name in names:
            state = await asked(machine_handle(self.stack, name), "describe")
            assert (state["owner"], state["status"]["phase"], state["deletion"]) == (None, "Running", None)
        for name in names:
            await self.delete(name)
        for name in names:
            await result_of(machine_handle(self.stack, name))


def check_i14(seen: Watched) -> None:
    """The control plane never loses quorum by our hand: so many of its Nodes have joined, and are not being drained."""
    counts = seen.in_service()
    assert min(counts, default=QUORUM) >= QUORUM, f"I14: in service {counts}, a quorum is {QUORUM}"


@flow(
    CONTROL_PLANES,
    "find_control_plane_nodes",
    "find_members",
    "start_machines",
    "tell_members",
    "tell_members 2",
    "tell_members 3",
    "forget_pool",
    alone=True,
)
async def control_plane_of_deleted_machines(stack: Stack) -> None:
    """Three machines made by hand are taken over; a person deletes two of them at once. Both are replaced at once, and
    go one after the other."""
    cp = LiveControlPlane(stack, f"c{uuid.uuid4().hex[:6]}")
    seen = Watched(cp)  # type: ignore[arg-type]  # it has what Watched asks of a pool
    try:
        await cp.by_hand()
        arm(stack, "ControlPlaneWorkflow")
        await cp.start(strategy="OnDelete")
        await cp.complete()
        seen.in_service()
        gone, stays = cp.hands[:2], cp.hands[2]
        await asyncio.gather(*map(cp.delete, gone))
        summary = await cp.complete(*gone)
        check_i14(seen)
        assert [h.name for h in summary.indexes[2].hosts] == [stays]
        await cp.end()
        check_pool_i1(seen, machines=5)
        check_pool_i6(seen)
        check_pool_i8(seen)
        await check_ends(seen, [cp.handle.id])
        await eventually(cp.of.state, lambda s: not s.users, "the class forgets the set and its machines")
    finally:
        await end_running(stack)


@flow(
    CONTROL_PLANES,
    "look_at_etcd",
    "look_at_etcd 2",
    "look_at_etcd 3",
    "change_etcd",
    "change_etcd 2",
    "change_etcd 3",
    alone=True,
)
async def control_plane_and_its_etcd(stack: Stack) -> None:
    """A person deletes two machines of three, the leader's first. Each one's member goes before it is drained, once its
    replacement votes: the leader moves once, two members are removed, and never fewer than three vote."""
    cp = LiveControlPlane(stack, f"c{uuid.uuid4().hex[:6]}")
    seen = Watched(cp)  # type: ignore[arg-type]  # it has what Watched asks of a pool
    try:
        await cp.by_hand()
        async with fake_etcd(stack, cp.names) as etcd:
            await eventually(etcd.count, lambda n: n == 3, "each machine has a member")
            gone = [await cp.node(name) for name in cp.hands[:2]]
            etcd.leader = gone[0]
            arm(stack, "ControlPlaneWorkflow")
            await cp.start(strategy="OnDelete", etcdGuard=True)
            await cp.complete()
            seen.in_service()
            for name in cp.hands[:2]:
                await cp.delete(name)
                await cp.complete(name)
            assert [d for d in etcd.done if d.startswith("remove")] == [f"remove {node}" for node in gone]
            moved = [d.partition(" ")[2] for d in etcd.done if d.startswith("lead")]
            assert moved
            assert gone[0] not in moved
            assert (len(etcd.voters), etcd.fewest) == (3, 3), "a member voted before the other went"
            check_i14(seen)
        await cp.end()
        check_pool_i1(seen, machines=5)
        check_pool_i6(seen)
        await check_ends(seen, [cp.handle.id])
    finally:
        await end_running(stack)

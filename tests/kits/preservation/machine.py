"""A machine whose activities are stubs, and its Node as a small world: people, the watch, the drain and preserve_node
write it, and read what was written."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifekit import DEADLINE, eventually
from machine.stubbed import Pool
from machine.stubs import NODE, VM, Handle, Machines, phase, reason, state, stubbed
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

import worker
from activities.cluster.preserve import preserve_patch
from activities.kube.facts import project
from activities.kube.whose import ready_status
from resources import names
from resources.calls.cluster import LookInput, NodeLook, PreserveInput
from resources.calls.cluster import PreserveOutput as Output
from resources.calls.drain import DrainInput, DrainOutput
from resources.converter import data_converter
from resources.intents import Answer, Intent
from resources.machine.state import MachineState, Phase
from resources.names import (
    CORDON_ANNOTATION,
    PRESERVE_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
)
from simulator.kube.patches import merge
from workflows.machine import MachineWorkflow

TEN = timedelta(minutes=10)
HOUR = timedelta(hours=1)
FULL = timedelta(hours=72)
SOON = timedelta(seconds=30)
"""Soon by the machine's clock, which is the wall clock where no time is skipped."""


class Node:
    """The Node object, as the API server has it."""

    def __init__(self, machines: Machines) -> None:
        self.machines, self.object = machines, self._new()
        self.there = True
        always = {"preserve_node": self._preserve, "drain_node": self._drain, "look_at_node": self._look}
        machines.stubs.always.update(always)

    def _new(self) -> dict[str, Any]:
        made = {"name": NODE, "uid": uuid.uuid4().hex, "resourceVersion": "1"}
        return {
            "metadata": {**made, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}},
            "spec": {"providerID": VM},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    # -- what it says -------------------------------------------------------------------------------------------------

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.object["metadata"].get("annotations") or {}
        return found

    @property
    def wanted(self) -> str | None:
        return self.annotations.get(PRESERVE_ANNOTATION)

    @property
    def protection(self) -> tuple[str | None, bool]:
        """What cluster-autoscaler reads, and whether it is ours."""
        return self.annotations.get(SCALE_DOWN_DISABLED), SCALE_DOWN_DISABLED_BY_PRESERVATION in self.annotations

    @property
    def cordoned(self) -> bool:
        return bool(self.object["spec"].get("unschedulable"))

    async def becomes(self, so: Callable[[Node], object], what: str = "the Node") -> None:
        async def look() -> bool:
            return bool(so(self))

        await eventually(look, bool, what)

    # -- what people and kubelets do ----------------------------------------------------------------------------------

    def write(self, annotations: dict[str, str | None] | None = None, cordon: bool | None = None) -> None:
        patch: dict[str, Any] = {"metadata": {"annotations": annotations or {}}}
        if cordon is not None:
            patch["spec"] = {"unschedulable": cordon or None}
        self._merge(patch)

    def ready(self, well: bool) -> None:
        status = {"type": "Ready", "status": "True" if well else "Unknown", "reason": "NodeStatusUnknown"}
        self._merge({"status": {"conditions": [status | {"message": "Kubelet stopped posting node status."}]}})

    def registers_anew(self) -> None:
        self.object, self.there = self._new(), True

    def _merge(self, patch: dict[str, Any]) -> None:
        self.object = merge(self.object, patch)
        metadata = self.object["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    # -- what activities do -------------------------------------------------------------------------------------------

    def _preserve(self, input: PreserveInput) -> Output:
        if not self.there:
            return Output()
        if patch := preserve_patch(self.object, input):
            self._merge(patch)
        return Output(value=self.wanted or "")

    def _drain(self, input: DrainInput) -> DrainOutput:
        if input.again:
            return DrainOutput(uncordoned=self.there and not self.cordoned)
        if self.there and not self.cordoned:
            self.write({CORDON_ANNOTATION: input.machine.name}, cordon=True)
        return DrainOutput()

    def _look(self, input: LookInput) -> NodeLook:
        facts = project(self.object, 0, 0)
        if not self.there:
            return NodeLook(node=facts.model_copy(update={"exists": False}))
        return NodeLook(node=facts, ready=ready_status(self.object))


class Kept:
    """One machine m-1, of a pool or of none, and its Node."""

    def __init__(self, temporal: WorkflowEnvironment, machines: Machines, pool: Pool | None = None) -> None:
        self.temporal, self.machines, self.pool = temporal, machines, pool
        self.stubs, self.node = machines.stubs, Node(machines)
        self.handle: Handle

    # -- its life -----------------------------------------------------------------------------------------------------

    async def start(self, **fields: Any) -> None:
        """Starts it; Pending: its Node has not joined. The handle is of whichever run there is."""
        made = self.pool.new_state if self.pool else self.machines.new_state
        started = await self.machines.start(made("m-1", **{"health_timeout": TEN, **fields}))
        self.handle = self.machines.client.get_workflow_handle(started.id)
        await reason(self.handle, "NodeNotSeen")

    async def run(self, **spec: Any) -> None:
        await self.start(**spec)
        await self.news()
        await phase(self.handle, Phase.RUNNING)

    async def news(self) -> None:
        """The watch tells of the Node as it is."""
        self.machines.seq += 1
        facts = project(self.node.object, 1, self.machines.seq)
        if not self.node.there:
            facts = facts.model_copy(update={"exists": False})
        await self.handle.signal(MachineWorkflow.observe, facts)

    async def annotate(self, value: str | None) -> None:
        """`kubectl annotate node node-1 node.machine.sapcloud.io/preserve=…`, and the watch's news of it."""
        self.node.write({PRESERVE_ANNOTATION: value})
        await self.news()

    async def ill(self) -> MachineState:
        self.node.ready(False)
        await self.news()
        return await phase(self.handle, Phase.UNKNOWN)

    async def fail(self) -> MachineState:
        """It has been ill for healthTimeout. It may still be drained."""
        await self.ill()
        await self.skip(timedelta(minutes=9, seconds=1))
        await self.until(lambda s: s.suspicion, "the first look")
        await self.skip(timedelta(minutes=1, seconds=1))
        if self.pool:
            await reason(self.handle, "RepairPermit")
            await self.pool.permits(self.handle)
        return await phase(self.handle, Phase.FAILED)

    async def well(self) -> MachineState:
        """It is ready again, for as long as it must be."""
        self.node.ready(True)
        await self.news()
        await self.until(lambda s: "settle" in s.status.deadlines, "it settles")
        await self.skip(timedelta(seconds=31))
        return await phase(self.handle, Phase.RUNNING)

    async def renew(self) -> None:
        """A new run begins."""
        former = (await self.handle.describe()).run_id
        await self.handle.execute_update(MachineWorkflow.renew_by_update, Intent(id=uuid.uuid4().hex))
        await eventually(self.handle.describe, lambda d: d.run_id != former, "a new run")

    async def skip(self, span: timedelta) -> None:
        """Skips time. Not while a call is under way: the server waits for it."""
        await asyncio.wait_for(self.temporal.fast_forward(self.handle, span), DEADLINE)

    async def skip_to(self, name: str = "preserve", seen: MachineState | None = None) -> None:
        """Skips time to right after this deadline, of its state or of one that it has shown."""
        deadline = (seen or await self.state()).status.deadlines[name]
        await self.skip(deadline - await self.now() + timedelta(seconds=1))

    async def now(self) -> datetime:
        """The time by the machine's clock: that of its newest event."""
        newest = (await self.handle.fetch_history()).events[-1]
        return newest.event_time.ToDatetime(tzinfo=UTC)

    # -- what it says -------------------------------------------------------------------------------------------------

    async def state(self) -> MachineState:
        return await state(self.handle)

    async def until(self, so: Callable[[MachineState], object], what: str) -> MachineState:
        return await eventually(self.state, so, what)

    async def shows(self, wanted: str) -> MachineState:
        """The phase with its sub-phase."""
        return await self.until(lambda s: s.status.shown_phase == wanted, wanted)

    async def noted(self, wanted: str, count: int = 1) -> MachineState:
        return await self.until(lambda s: noted(s, wanted)[count - 1 :], f"{count} times {wanted} in its journal")

    async def is_listed(self, query: str) -> None:
        """Visibility lists it, where people and sweeps look."""

        async def found() -> list[str]:
            mine = f"WorkflowId = '{self.handle.id}' AND {query}"
            return [w.id async for w in self.machines.client.list_workflows(mine)]

        await eventually(found, bool, query)

    # -- what people say to it ----------------------------------------------------------------------------------------

    async def says(self, name: str, intent: Intent | dict[str, Any]) -> str:
        """Sends an update; returns the answer."""
        answer: Answer = await self.handle.execute_update(name, intent, result_type=Answer)
        return answer.message

    async def refuses(self, name: str, intent: Intent | dict[str, Any]) -> str:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await self.says(name, intent)
        cause = refused.value.cause
        assert isinstance(cause, ApplicationError)
        return cause.message

    # -- what it calls ------------------------------------------------------------------------------------------------

    async def asks(self, name: str) -> None:
        """Whether it calls this activity, or has called it."""

        async def calls() -> list[Any]:
            return self.stubs.called(name)

        await eventually(calls, bool, f"a call of {name}")

    async def under_way(self, name: str, so: bool = True) -> None:
        """Waits until a call of this activity is under way, even where nobody polls; or until none is."""

        async def pending() -> list[str]:
            found = (await self.handle.describe()).raw_description.pending_activities
            return [a.activity_type.name for a in found]

        await eventually(pending, lambda found: (name in found) is so, name)

    async def away(self, queue: str) -> None:
        """The worker of these activities goes away."""
        await self.machines.workers[queue].shutdown()

    @property
    def queues(self) -> tuple[str, str, str]:
        """The queues of the cloud, the cluster and the drain."""
        prefix = self.machines.prefix
        return names.cloud_queue("aws", prefix), names.cluster_queue(prefix, prefix), names.drain_queue(prefix, prefix)

    # -- what was done ------------------------------------------------------------------------------------------------

    def did(self, *names: str) -> list[str]:
        return [name for name, _ in self.stubs.asked if name in names]

    async def ended(self) -> dict[str, datetime]:
        """Waits until nothing is left of the machine; returns, by reason, when it last happened."""
        result = await asyncio.wait_for(self.handle.result(), DEADLINE)
        return {h["reason"]: datetime.fromisoformat(h["time"]) for h in result["journal"]}


def noted(seen: MachineState, wanted: str) -> list[str]:
    """The journal's messages with this reason."""
    return [h.message for h in seen.journal if h.reason == wanted]


def when(seen: MachineState, wanted: str) -> datetime:
    """The time of the newest happening with this reason."""
    return [h.time for h in seen.journal if h.reason == wanted][-1]


@contextlib.asynccontextmanager
async def keeping(client: Client, **options: Any) -> AsyncIterator[Machines]:
    """Workers for machines on stubs, whose histories are replayed at the end."""
    async with stubbed(client, **options) as machines:
        yield machines
        ids = [handle.id for handle in machines.started]
    replayer = Replayer(
        workflows=[MachineWorkflow], data_converter=data_converter, workflow_runner=worker.sandbox(False)
    )
    for id in dict.fromkeys(ids):
        async for history in client.list_workflows(f"WorkflowId = '{id}'").map_histories():
            await replayer.replay_workflow(history)

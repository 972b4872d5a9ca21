"""A pool that only listens, for tests of what a machine tells it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from lifekit import eventually
from stubs import Handle, Machines, phase, reason
from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from resources.fleet.membership import MemberReport, PermitGranted
from resources.machine.state import MachineState, Phase
from resources.names import pool_id
from resources.owner import Owner
from workflows.machine import MachineWorkflow


@workflow.defn
class Listener:
    """Stands in a pool's place and keeps what it hears."""

    def __init__(self) -> None:
        self.reports: list[MemberReport] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def report(self, report: MemberReport) -> None:
        self.reports.append(report)

    @workflow.query
    def heard(self) -> list[MemberReport]:
        return self.reports


class Pool:
    def __init__(self, machines: Machines, name: str) -> None:
        self.machines, self.name = machines, name
        self.queue = f"{machines.prefix}-{name}"

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.machines.client.get_workflow_handle(pool_id(self.machines.prefix, self.name))

    async def come(self) -> None:
        """It begins to listen; what was told before, it does not know."""
        await self.machines.client.start_workflow(Listener.run, id=self.handle.id, task_queue=self.queue)

    async def leave(self) -> None:
        await self.handle.terminate("nobody listens any more")

    # -- its machines -------------------------------------------------------------------------------------------------

    def new_state(self, name: str = "m-1", **fields: Any) -> MachineState:
        """A machine of revision 1 and of the template's generation 1."""
        new = self.machines.new_state(name, **fields)
        return new.model_copy(update={"owner": Owner(name=self.name), "revision": 1, "template": 1})

    async def start(self, state: MachineState) -> Handle:
        """The handle is of whichever run there is."""
        started = await self.machines.start(state)
        return self.machines.client.get_workflow_handle(started.id)

    async def running(self, name: str = "m-1", **fields: Any) -> Handle:
        handle = await self.start(self.new_state(name, **fields))
        await reason(handle, "NodeNotSeen")
        await handle.signal(MachineWorkflow.observe, self.machines.facts())
        await phase(handle, Phase.RUNNING)
        return handle

    async def permits(self, handle: Handle, why: str = "1 of 1 repairs") -> None:
        await handle.signal(MachineWorkflow.permit, PermitGranted(reason=why))

    # -- what it has heard --------------------------------------------------------------------------------------------

    async def heard(self) -> list[MemberReport]:
        """Reports by their numbers: two that were sent at once may overtake each other."""
        return sorted(await self.handle.query(Listener.heard), key=lambda r: r.seq)

    async def told(self, told: Callable[[MemberReport], object], what: str = "a report") -> MemberReport:
        """Waits until the newest report is as wanted."""
        heard = await eventually(self.heard, lambda all: all and told(all[-1]), what)
        return heard[-1]


@contextlib.asynccontextmanager
async def listening(machines: Machines) -> AsyncIterator[Pool]:
    pool = Pool(machines, f"p{uuid.uuid4().hex[:8]}")
    async with Worker(
        machines.client, task_queue=pool.queue, workflows=[Listener], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        await pool.come()
        try:
            yield pool
        finally:
            with contextlib.suppress(Exception):
                await pool.leave()

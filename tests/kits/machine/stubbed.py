"""What happens to machines whose activities are stubs, and what is known of them afterwards: hours skipped by explicit
fast-forward, a class that changes, a pool that listens."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import DEADLINE, eventually
from temporalio import workflow
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from machine.stubs import NODE, VM, Handle, Machines, phase, reason, running, state
from planners.machine.creation import token_of
from planners.provider_spec import spec_hash
from resources.fleet.membership import MemberReport, PermitGranted
from resources.intents import Intent
from resources.journal import Happening
from resources.machine.intents import DeleteIntent
from resources.machine.state import (
    AppliedSpec,
    ApplyIntent,
    Attempt,
    ClassSnapshot,
    LastOperation,
    MachineResult,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    Status,
)
from resources.machine_class.state import ClassNews
from resources.names import pool_id
from resources.owner import Owner
from workflows.machine import MachineWorkflow

WAY_OUT = ["drain_node", "delete_machine", "forget_machine"]


async def called(machines: Machines, name: str, times: int = 1) -> None:
    async def count() -> int:
        return len(machines.stubs.called(name))

    await eventually(count, lambda n: n >= times, f"{name} called {times} times")


async def delete(handle: Handle, **fields: Any) -> None:
    """Asks for the deletion; it is under way when this returns."""
    intent = DeleteIntent(**{"id": str(uuid.uuid4()), "requested_by": "test", **fields})
    await handle.execute_update(MachineWorkflow.delete, intent, id=intent.id)


async def ended(handle: Handle) -> MachineResult:
    """What is left of the machine; bounded, so that a machine that never goes is a failed test and not a silent one."""
    result: MachineResult = await asyncio.wait_for(handle.result(), DEADLINE)
    return result


async def pending_failure(handle: Handle) -> str:
    """The last failure of the pending activity: a poller's blocker."""
    pending = (await handle.describe()).raw_description.pending_activities
    return str(pending[0].last_failure.message) if pending else ""


async def past(temporal: WorkflowEnvironment, handle: Handle, deadline: str) -> None:
    """Skips to just after a deadline of its table. Not further: while an activity is pending, time may be skipped to
    the end in one go."""
    at = (await state(handle)).status.deadlines[deadline]
    await temporal.fast_forward(handle, at - await temporal.get_current_time(handle) + timedelta(seconds=1))


async def past_both_looks(temporal: WorkflowEnvironment, handle: Handle) -> None:
    """The first look comes so early that the second is at the deadline."""
    await past(temporal, handle, "confirm")
    await eventually(lambda: state(handle), lambda s: s.suspicion, "the first of the two fresh looks")
    await past(temporal, handle, "confirm")


def operation(s: MachineState) -> tuple[OperationType, OperationState]:
    assert s.status.last_operation is not None
    return s.status.last_operation.type, s.status.last_operation.state


def with_vm(machines: Machines, name: str = "m-1", **fields: Any) -> MachineState:
    """The state with which the next run begins when a VM has been made, for example after a continue-as-new."""
    s, uid, now = machines.new_state(name), str(uuid.uuid4()), datetime.now(UTC)
    assert s.machine_class is not None
    spec = s.machine_class.provider_spec
    status = Status(
        phase=Phase.PENDING,
        last_operation=LastOperation(type=OperationType.CREATE, state=OperationState.PROCESSING, time=now),
        provider_id=VM,
        node_name=NODE,
        last_applied_provider_spec=AppliedSpec(hash=spec_hash(spec), provider_spec=spec),
        deadlines={"creation": (end := now + s.spec.creation_timeout), "confirm": end - s.timings.confirm},
    )
    attempt = Attempt(number=1, token=token_of(uid, 1), started=now, machine_class=s.machine_class)
    usual = {"uid": uid, "created": now, "made": now, "attempt": attempt, "status": status}
    return s.model_copy(update={**usual, **fields})


async def events(handle: Handle, attributes: str) -> int:
    """How many events of a kind its history has, by the name of their attributes."""
    return sum([event.HasField(attributes) async for event in handle.fetch_history_events()])  # type: ignore[arg-type]


def way_out(machines: Machines) -> list[str]:
    """The activities of the way out, in the order in which they were called."""
    return [name for name, _ in machines.stubs.calls if name in WAY_OUT]


# -- a class that changes ----------------------------------------------------------------------------------------------

CLASS = "demo-m5-large"


async def held(machines: Machines) -> tuple[Handle, ClassSnapshot, asyncio.Event]:
    """A Running machine, its class, and an event before which no hot update of it ends."""
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    hold.set()
    handle = await running(machines)
    hold.clear()
    now = (await state(handle)).machine_class
    assert now is not None
    return handle, now, hold


def another(snapshot: ClassSnapshot, generation: int, **provider_spec: Any) -> ClassSnapshot:
    """The class with other fields of its provider spec."""
    spec = {**snapshot.provider_spec, **provider_spec}
    return snapshot.model_copy(update={"generation": generation, "provider_spec": spec})


def tagged(snapshot: ClassSnapshot, generation: int, team: str, **others: str) -> ClassSnapshot:
    """The class with this tag of the VM, and perhaps others."""
    return another(snapshot, generation, vmTags={**snapshot.provider_spec["vmTags"], "team": team, **others})


def team(provider_spec: dict[str, Any]) -> str:
    return str(provider_spec["vmTags"]["team"])


async def tell(handle: Handle, wanted: ClassSnapshot) -> None:
    """Tells the machine, as the class does."""
    await handle.signal(MachineWorkflow.class_changed, ClassNews(machine_class=wanted))


async def apply(handle: Handle, wanted: ClassSnapshot, **spec: Any) -> str:
    """Applies, as the command line does; returns the answer's words."""
    now = await state(handle)
    intent = ApplyIntent(id=uuid.uuid4().hex, spec=now.spec.model_copy(update=spec), machine_class=wanted)
    return str((await handle.execute_update(MachineWorkflow.apply, intent)).message)


async def renew(handle: Handle) -> str:
    return str((await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id=uuid.uuid4().hex))).message)


async def updated(handle: Handle, generation: int) -> MachineState:
    """Waits until the machine carries what this generation says."""
    return await eventually(
        lambda: state(handle), lambda s: s.status.applied_generation == generation, f"generation {generation}"
    )


async def in_trouble(handle: Handle, failures: int = 1) -> MachineState:
    """Waits until its hot update has failed this many times in a row."""

    def fails(s: MachineState) -> bool:
        return s.status.update_trouble is not None and s.update_failures >= failures

    return await eventually(lambda: state(handle), fails, f"{failures} failures")


async def asked_for(machines: Machines, count: int) -> None:
    """Waits until this many hot updates have been asked for."""

    async def asked() -> int:
        return len(machines.stubs.hot_updates())

    await eventually(asked, lambda n: n >= count, f"{count} hot updates")


async def until_told(machines: Machines, *reports: tuple[str, int, int, str]) -> None:
    """Waits until classes have heard exactly this."""

    async def told() -> list[tuple[str, int, int, str]]:
        return machines.stubs.told()

    await eventually(told, lambda seen: seen == list(reports), f"{reports}")


async def until_last_told(machines: Machines, wanted: tuple[str, int, int, str]) -> None:
    """Waits until this is the last that a class has heard."""

    async def told() -> list[tuple[str, int, int, str]]:
        return machines.stubs.told()

    await eventually(told, lambda seen: seen[-1:] == [wanted], f"{wanted}")


def story(s: MachineState, reason: str) -> list[Happening]:
    return [h for h in s.journal if h.reason == reason]


def condition(s: MachineState, type: str) -> str | None:
    return next((c.message for c in s.status.conditions if c.type == type), None)


# -- a pool that listens -----------------------------------------------------------------------------------------------


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

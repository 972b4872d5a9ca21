"""Machines that together go through every phase in every way, and what their histories say of it. Stubs; real time."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import DEADLINE, asked, eventually
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from machine.stubs import NODE, VM, Machines, classified, looked, not_yet, stubbed
from planners.waits import REASON
from resources.attributes import PHASE
from resources.calls.cloud import CreateOutput, StatusOutput, VmLook
from resources.errors import API, IDEMPOTENCY, MISSING_CREDENTIALS, NAME_TAKEN, WRONG_ACCOUNT, ErrorClass, ErrorInfo
from resources.journal import Happening
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.preservation import PreserveIntent, PreserveValue
from resources.machine.state import ApplyIntent, Attempt, MachineResult, MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

Edge = tuple[str, str, str]
"""From, to, reason."""
Reasons = Mapping[str, set[str]]
"""The reasons with which a phase can be entered."""
START, END = "begin", "end"
SOON, NEVER = timedelta(seconds=0.3), timedelta(hours=1)
TIMINGS = Timings(
    poll=SOON,
    vm_look=timedelta(0),
    settle=timedelta(0),
    confirm=SOON,
    consistency=SOON,
    retry=dict.fromkeys(ErrorClass, SOON),
)


class PerMachine(deque[Any]):
    """Answers of one activity for many machines; it takes the place of the answers for all in `Stubs`."""

    def __init__(self, usual: Any) -> None:
        super().__init__([None])  # never empty
        self.usual = usual
        self.of: defaultdict[str, deque[Any]] = defaultdict(deque)

    def popleft(self) -> Any:
        return self._answer

    def _answer(self, input: Any) -> Any:
        machine = input.machine if hasattr(input, "machine") else input.target.machine
        own = self.of[machine.name]
        answer = own.popleft() if own else self.usual
        if isinstance(answer, BaseException):
            raise answer
        return answer


@dataclass
class Life:
    machines: Machines
    answers: dict[str, PerMachine]
    name: str
    handle: WorkflowHandle[Any, Any] | None = None

    def then(self, activity: str, *answers: Any) -> None:
        self.answers[activity].of[self.name].extend(answers)

    async def begin(self, timings: Timings = TIMINGS, **spec: Any) -> None:
        self.handle = await self.machines.start(self.machines.new_state(self.name, timings, **spec))

    async def adopt(self) -> None:
        state = self.machines.new_state(self.name, TIMINGS)
        state.uid, state.status.provider_id = str(uuid.uuid4()), VM
        assert state.machine_class is not None
        state.attempt = Attempt(number=1, token="", started=datetime.now(UTC), machine_class=state.machine_class)
        self.handle = await self.machines.start(state)

    @property
    def id(self) -> str:
        assert self.handle is not None
        return self.handle.id

    @property
    def newest(self) -> WorkflowHandle[Any, Any]:
        return self.machines.client.get_workflow_handle_for(MachineWorkflow.run, self.id)

    async def state(self) -> MachineState:
        found: MachineState = await asked(self.newest, MachineWorkflow.describe)
        return found

    async def phase(self, phase: Phase) -> None:
        await eventually(self.state, lambda s: s.status.phase == phase, f"{self.name} {phase}")

    async def has_vm(self) -> None:
        await eventually(self.state, lambda s: s.status.provider_id, f"{self.name} has a VM")

    async def node(self, **facts: Any) -> None:
        await self.newest.signal(MachineWorkflow.observe, self.machines.facts(**facts))

    async def vm(self, state: str) -> None:
        self.machines.seq += 1
        facts = VmFacts(epoch=1, seq=self.machines.seq, provider_id=VM, state=state)
        await self.newest.signal(MachineWorkflow.observe_vm, facts)

    async def run(self, **spec: Any) -> None:
        await self.begin(**spec)
        await self.has_vm()
        await self.node()
        await self.phase(Phase.RUNNING)

    async def time_is_up(self, **timeouts: timedelta) -> None:
        """A changed timeout counts at once: no machine waits for it, and for none it comes too early."""
        state = await self.state()
        assert state.machine_class is not None
        intent = ApplyIntent(
            id=str(uuid.uuid4()), spec=state.spec.model_copy(update=timeouts), machine_class=state.machine_class
        )
        await self.newest.execute_update(MachineWorkflow.apply, intent)

    async def delete(self) -> None:
        await self.newest.execute_update(MachineWorkflow.delete, DeleteIntent(id=str(uuid.uuid4())))


# -- the lives: each ends with a deletion -----------------------------------------------------------------------------


def failed_creations() -> dict[str, Exception]:
    """Failed creations, by the reason that it gives."""
    info = ErrorInfo.of(ErrorClass.CONFLICT, "terminated")
    secret = ErrorInfo.of(ErrorClass.AUTH, "Secret default/s is missing")
    return {
        **{reason: classified(error_class, last=True) for error_class, reason in REASON.items()},
        "APIUnreachable": classified(ErrorClass.TRANSIENT, last=True, silent=API),
        "APIRefused": classified(ErrorClass.AUTH, silent=API),
        "AttemptIsOver": ApplicationError("terminated", info, True, type=IDEMPOTENCY, non_retryable=True),
        "NameTaken": ApplicationError("taken", info, type=NAME_TAKEN, non_retryable=True),
        "CredentialsMissing": ApplicationError("missing", secret, type=MISSING_CREDENTIALS, non_retryable=True),
        "WrongAccount": ApplicationError("another account", secret, type=WRONG_ACCOUNT, non_retryable=True),
    }


def created_after(error: Exception) -> Callable[[Life], Awaitable[None]]:
    async def live(m: Life) -> None:
        m.then("create_machine", error)
        await m.begin()
        await m.has_vm()

    return live


async def found_after_an_error(m: Life) -> None:
    m.then("create_machine", classified(ErrorClass.UNKNOWN), CreateOutput(provider_id=VM, node_name=NODE, adopted=True))
    await m.begin()
    await m.has_vm()


async def never_created(m: Life) -> None:
    m.then("create_machine", classified(ErrorClass.QUOTA))
    await m.begin(TIMINGS.model_copy(update={"retry": {}}))
    await m.phase(Phase.CRASH_LOOP_BACK_OFF)
    await m.time_is_up(creation_timeout=SOON)
    await m.phase(Phase.FAILED)


async def deleted_while_creating_fails(m: Life) -> None:
    m.then("create_machine", classified(ErrorClass.QUOTA))
    await m.begin(TIMINGS.model_copy(update={"retry": {}}))
    await m.phase(Phase.CRASH_LOOP_BACK_OFF)


async def stale(m: Life) -> None:
    m.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, stale_node=NODE))
    await m.begin()
    await m.phase(Phase.FAILED)


async def stale_after_an_error(m: Life) -> None:
    m.then("create_machine", classified(ErrorClass.UNKNOWN))
    await stale(m)


async def lost_before_a_reset(m: Life) -> None:
    m.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, gone=True))
    await m.begin()
    await m.phase(Phase.FAILED)


async def lost_before_a_reset_and_after_an_error(m: Life) -> None:
    m.then("create_machine", classified(ErrorClass.UNKNOWN))
    await lost_before_a_reset(m)


async def never_joined(m: Life) -> None:
    await m.begin()
    await m.has_vm()
    await m.time_is_up(creation_timeout=SOON)
    await m.phase(Phase.FAILED)


async def stopped_while_joining(m: Life) -> None:
    m.then("watch_machine", StatusOutput(message=f"{VM} is stopped"))
    await m.begin()
    await m.phase(Phase.FAILED)


async def gone_while_joining(m: Life) -> None:
    m.then("watch_machine", StatusOutput(gone=True, message=f"{VM} is gone"))
    await m.begin()
    await m.phase(Phase.FAILED)


async def ill_in_every_way(m: Life) -> None:
    await m.run(health_timeout=NEVER)
    for trouble in ({"ready": False}, {"conditions": {"DiskPressure": "True"}}, {"exists": False}):
        await m.node(**trouble)
        await m.phase(Phase.UNKNOWN)
        await m.node()
        await m.phase(Phase.RUNNING)
    m.then("look_at_vm", VmLook(state="gone"))  # and no Node contradicts it
    for state in ("stopped", "gone"):
        await m.vm(state)
        await m.phase(Phase.UNKNOWN)
        await m.vm("running")
        await m.node()
        await m.phase(Phase.RUNNING)


async def deleted_while_ill(m: Life) -> None:
    await m.run(health_timeout=NEVER)
    await m.node(ready=False)
    await m.phase(Phase.UNKNOWN)


async def ill_for_too_long_and_recreated(m: Life) -> None:
    await m.run(health_timeout=NEVER)
    await m.node(ready=False)
    await m.phase(Phase.UNKNOWN)
    await m.time_is_up(health_timeout=SOON)
    await m.phase(Phase.FAILED)
    former = (await m.state()).uid
    intent = RecreateIntent(id=str(uuid.uuid4()))
    await m.newest.execute_update(MachineWorkflow.recreate, intent)
    await eventually(m.state, lambda s: s.uid != former and s.status.provider_id, f"{m.name} lives again")


async def failed_preserved_and_well_again(m: Life) -> None:
    await m.run(health_timeout=NEVER)
    await m.newest.signal("preserve", PreserveIntent(value=PreserveValue.WHEN_FAILED))
    await m.node(ready=False)
    await m.phase(Phase.UNKNOWN)
    await m.time_is_up(health_timeout=SOON)
    await eventually(m.state, lambda s: s.status.preserve.expiry_time, f"{m.name} is preserved")
    await m.node()
    await m.phase(Phase.RUNNING)


async def adopted(m: Life) -> None:
    m.then("look_at_node", looked())
    await m.adopt()
    await m.phase(Phase.RUNNING)


LIVES: dict[str, Callable[[Life], Awaitable[None]]] = {
    **{reason.lower(): created_after(error) for reason, error in failed_creations().items()},
    **{
        life.__name__.replace("_", "-"): life
        for life in (
            found_after_an_error,
            never_created,
            deleted_while_creating_fails,
            stale,
            stale_after_an_error,
            lost_before_a_reset,
            lost_before_a_reset_and_after_an_error,
            never_joined,
            stopped_while_joining,
            gone_while_joining,
            ill_in_every_way,
            deleted_while_ill,
            ill_for_too_long_and_recreated,
            failed_preserved_and_well_again,
            adopted,
        )
    },
}


async def lives(client: Client, reasons: Reasons) -> set[Edge]:
    """Plays all of them side by side; returns every change of a phase that their histories show."""
    usual = {
        "create_machine": CreateOutput(provider_id=VM, node_name=NODE),
        "watch_machine": not_yet("no node yet", NEVER),
        "look_at_node": looked(exists=False),
        "look_at_vm": VmLook(state="running"),
    }
    async with stubbed(client) as machines:
        answers = {name: PerMachine(answer) for name, answer in usual.items()}
        machines.stubs.script.update(answers)

        async def one(name: str, live: Callable[[Life], Awaitable[None]]) -> set[Edge]:
            life = Life(machines, answers, name)
            await live(life)
            await life.delete()
            result: MachineResult = await asyncio.wait_for(life.newest.result(), DEADLINE)
            return {edge async for edge in edges(client, life, result.journal, reasons)}

        return set().union(*await asyncio.gather(*(one(name, live) for name, live in LIVES.items())))


# -- what a history tells ---------------------------------------------------------------------------------------------


async def edges(client: Client, life: Life, journal: list[Happening], reasons: Reasons) -> AsyncIterator[Edge]:
    """Edges over all runs. A phase shows when its search attribute is written; the reason is what the journal says of
    that time."""
    assert life.handle is not None
    run, phase = life.handle.result_run_id, START
    last: datetime | None = None
    moments: list[datetime] = []
    while run:
        history = await client.get_workflow_handle(life.id, run_id=run).fetch_history()
        times = {event.event_id: event.event_time.ToDatetime(UTC) for event in history.events}
        # The last task of the former run may have said what a new run begins with.
        moments, run = [last] if last else [], None
        for event in history.events:
            task, then = event.workflow_task_completed_event_attributes, None
            if task.started_event_id:  # a workflow's "now" is when its task began
                now = times[task.started_event_id]
                moments = [*moments, now] if now != last and moments == [last] else [now]
            elif event.HasField("workflow_execution_continued_as_new_event_attributes"):
                run = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
                last = moments[-1]
            elif event.HasField("workflow_execution_completed_event_attributes"):
                then = END
            else:
                written = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
                then = (
                    json.loads(written[PHASE.name].data).removesuffix(":Preserved") if PHASE.name in written else None
                )
            if then and then != phase:
                yield phase, then, _reason(journal, moments, reasons[then])
                phase = then


def _reason(journal: list[Happening], moments: list[datetime], possible: set[str]) -> str:
    """The first line of those times that can be the reason of a phase; "" where there is none."""
    precision = timedelta(milliseconds=1)  # the SDK's times are floats
    lines = [h.reason for m in moments for h in journal if abs(h.time - m) < precision and h.reason in possible]
    return lines[0] if lines else ""

"""A machine's activities as stubs: for tests of timing, where hours are skipped and no simulator takes part."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import STICKY, asked, eventually, examples
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from activities.boundary import RETRIED
from resources import names
from resources.calls.cloud import (
    CreateInput,
    CreateOutput,
    DeleteInput,
    DeleteOutput,
    FindInput,
    FoundVm,
    StatusInput,
    StatusOutput,
    UpdateInput,
    UpdateOutput,
    VmLook,
    VmLookInput,
)
from resources.calls.cluster import (
    ForgetInput,
    ForgetOutput,
    JoinInput,
    LookInput,
    NodeLook,
    PreserveInput,
    PreserveOutput,
    ReadyInput,
    ReadyOutput,
    StaleNodeInput,
    StaleNodeOutput,
    TellInput,
)
from resources.calls.drain import DrainInput, DrainOutput
from resources.errors import (
    NOT_YET,
    ErrorClass,
    ErrorInfo,
)
from resources.machine.facts import NodeFacts
from resources.machine.intents import DeleteIntent
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassId, ReportInput
from resources.timings import Timings
from workflows.machine import MachineWorkflow

VM = "aws:///eu-west-1/i-1"
NODE = "node-1"
Handle = WorkflowHandle[Any, Any]


def classified(
    error_class: ErrorClass, message: str = "no", *details: Any, last: bool = False, **fields: Any
) -> ApplicationError:
    """A failure as the boundary raises it; `fields` are more of ErrorInfo. `last`: Temporal does not retry it, even if
    it passes on its own, as its tries are used up (a poller's never are)."""
    info = ErrorInfo.of(error_class, message).model_copy(update=fields)
    retried = error_class in RETRIED and not last
    after = timedelta(seconds=info.retry_after) if retried and info.retry_after else None
    kind = str(error_class)
    return ApplicationError(message, info, *details, type=kind, non_retryable=not retried, next_retry_delay=after)


def not_yet(message: str, again: timedelta) -> ApplicationError:
    return ApplicationError(message, type=NOT_YET, next_retry_delay=again, category=ApplicationErrorCategory.BENIGN)


def looked(lease: datetime | None = None, status: str = "", changed: datetime | None = None, **facts: Any) -> NodeLook:
    """The answer of a fresh look at the Node. `changed`: when Ready changed to what it is."""
    usual = {"epoch": 0, "seq": 0, "exists": True, "name": NODE, "providerID": VM, "ready": True}
    node = NodeFacts.model_validate({**usual, **facts})
    ready = (status or ("True" if node.ready else "Unknown")) if node.exists else ""
    return NodeLook(node=node, ready=ready, lease_renewed=lease, changed={"Ready": changed} if changed else {})


class Stubs:
    """Answers of the activities. `script[name]` holds what the next calls do instead of the usual: an exception to
    raise, a function to call with the input, or a value to answer with."""

    def __init__(self) -> None:
        self.script: dict[str, deque[Any]] = {}
        self.always: dict[str, Any] = {}
        """Answers in place of the usual ones, where the script says nothing."""
        self.calls: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        """Calls without repetitions of one activity: a slow one is called again, though asked for once."""
        self.holds: dict[str, asyncio.Event] = {}
        """An activity named here does not answer before its event is set."""
        self.classes: dict[str, ClassSnapshot] = {}
        """Classes that a machine can ask; one that is missing is asked for again."""

    def then(self, name: str, *answers: Any) -> None:
        self.script.setdefault(name, deque()).extend(answers)

    def called(self, name: str) -> list[Any]:
        return [i for n, i in self.calls if n == name]

    async def until_called(self, name: str, count: int = 1) -> None:
        """Waits until this many calls have begun. The reason of a wait says only that the machine has asked for one."""

        async def calls() -> int:
            return len(self.called(name))

        await eventually(calls, lambda n: n >= count, f"{count} calls of {name}")

    def hot_updates(self) -> list[UpdateInput]:
        """Hot updates, without the post-start update."""
        return [i for n, i in self.asked if n == "update_machine" and i.last_applied is not None]

    def reports(self) -> list[ReportInput]:
        """What classes heard from machines, in the order in which it was said. Nobody waits for a report, so that two
        of them may overtake each other; a class goes by their times as well."""
        return sorted((i for n, i in self.asked if n == "report_to_class"), key=lambda i: i.report.time)

    def told(self) -> list[tuple[str, int, int, str]]:
        """For each report: class, generation, applied, state."""
        return [
            (i.machine_class.name, i.report.generation, i.report.applied, str(i.report.state)) for i in self.reports()
        ]

    async def _answer(self, name: str, input: Any, usual: Any) -> Any:
        self.calls.append((name, input))
        if activity.info().attempt == 1:
            self.asked.append((name, input))
        if name in self.holds:
            while not self.holds[name].is_set():
                activity.heartbeat()
                await asyncio.sleep(0.02)
        answers = self.script.get(name)
        answer = answers.popleft() if answers else self.always.get(name, usual)
        if isinstance(answer, BaseException):
            raise answer
        return answer(input) if callable(answer) else answer

    @activity.defn(name="create_machine")
    async def create(self, input: CreateInput) -> CreateOutput:
        return await self._answer("create_machine", input, CreateOutput(provider_id=VM, node_name=NODE))

    @activity.defn(name="find_machine")
    async def find(self, input: FindInput) -> FoundVm:
        return await self._answer("find_machine", input, FoundVm())

    @activity.defn(name="update_machine")
    async def update(self, input: UpdateInput) -> UpdateOutput:
        return await self._answer("update_machine", input, UpdateOutput())

    @activity.defn(name="watch_machine")
    async def watch(self, input: StatusInput) -> StatusOutput:
        return await self._answer("watch_machine", input, not_yet("no node yet", timedelta(days=1)))

    @activity.defn(name="look_at_vm")
    async def look_at_vm(self, input: VmLookInput) -> VmLook:
        return await self._answer("look_at_vm", input, VmLook(state="running", message=f"{VM} is running"))

    @activity.defn(name="look_at_node")
    async def look_at_node(self, input: LookInput) -> NodeLook:
        return await self._answer("look_at_node", input, looked(exists=False))

    @activity.defn(name="tell_node")
    async def tell(self, input: TellInput) -> None:
        await self._answer("tell_node", input, None)

    @activity.defn(name="join_node")
    async def join(self, input: JoinInput) -> None:
        await self._answer("join_node", input, None)

    @activity.defn(name="remove_ready_taint")
    async def ready(self, input: ReadyInput) -> ReadyOutput:
        return await self._answer("remove_ready_taint", input, ReadyOutput(removed=True))

    @activity.defn(name="preserve_node")
    async def preserve(self, input: PreserveInput) -> PreserveOutput:
        return await self._answer("preserve_node", input, PreserveOutput())

    @activity.defn(name="drain_node")
    async def drain(self, input: DrainInput) -> DrainOutput:
        return await self._answer("drain_node", input, DrainOutput())

    @activity.defn(name="delete_machine")
    async def delete(self, input: DeleteInput) -> DeleteOutput:
        return await self._answer("delete_machine", input, DeleteOutput())

    @activity.defn(name="forget_machine")
    async def forget(self, input: ForgetInput) -> ForgetOutput:
        return await self._answer("forget_machine", input, ForgetOutput())

    @activity.defn(name="remove_stale_node")
    async def remove_stale(self, input: StaleNodeInput) -> StaleNodeOutput:
        return await self._answer("remove_stale_node", input, StaleNodeOutput(removed=True))

    @activity.defn(name="report_to_class")
    async def report(self, input: ReportInput) -> bool:
        return await self._answer("report_to_class", input, True)

    @activity.defn(name="ask_class")
    async def ask(self, input: ClassId) -> ClassSnapshot:
        missing = not_yet(f"class {input.name} is not there", timedelta(seconds=0.2))
        return await self._answer("ask_class", input, self.classes.get(input.name, missing))


async def state(handle: Handle) -> MachineState:
    found: MachineState = await asked(handle, MachineWorkflow.describe)
    return found


async def phase(handle: Handle, wanted: Phase) -> MachineState:
    return await eventually(lambda: state(handle), lambda s: s.status.phase == wanted, f"phase {wanted}")


async def reason(handle: Handle, wanted: str) -> MachineState:
    def waits(s: MachineState) -> bool:
        return s.status.waiting_for is not None and s.status.waiting_for.reason == wanted

    return await eventually(lambda: state(handle), waits, f"waiting for {wanted}")


@contextlib.asynccontextmanager
async def stubbed(client: Client, workflows: bool = True, **options: Any) -> AsyncIterator[Machines]:
    """Workers for a prefix of their own: the real workflows, the activities as stubs.

    `workflows` False: the test brings the workers of workflows itself.
    """
    machines = Machines(client, f"t{uuid.uuid4().hex[:8]}", Stubs())
    async with contextlib.AsyncExitStack() as stack:
        for queue in machines.activities:
            await stack.enter_async_context(machines.activity_worker(queue))
        if workflows:
            await stack.enter_async_context(machines.workflow_worker(**options))
        try:
            yield machines
        finally:
            for handle in machines.started:
                with contextlib.suppress(Exception):
                    await handle.terminate("the test is over")


class Machines:
    def __init__(self, client: Client, prefix: str, stubs: Stubs) -> None:
        self.client, self.prefix, self.stubs = client, prefix, stubs
        self.started: list[WorkflowHandle[Any, Any]] = []
        self.activities: dict[str, list[Callable[..., Any]]] = {
            names.cloud_queue("aws", prefix): [
                stubs.create,
                stubs.find,
                stubs.update,
                stubs.watch,
                stubs.look_at_vm,
                stubs.delete,
            ],
            names.cluster_queue(prefix, prefix): [
                *(stubs.join, stubs.tell, stubs.ready, stubs.look_at_node, stubs.preserve, stubs.forget),
                stubs.remove_stale,
            ],
            names.drain_queue(prefix, prefix): [stubs.drain],
            names.workflow_queue(prefix): [stubs.report, stubs.ask],
        }
        """Activities by their task queue."""
        self.workers: dict[str, Worker] = {}
        """Workers of activities; one that a test shuts down no longer polls, and another may come."""
        self.seq = 0

    def activity_worker(self, queue: str) -> Worker:
        self.workers[queue] = Worker(self.client, task_queue=queue, activities=self.activities[queue])
        return self.workers[queue]

    def workflow_worker(self, strict: bool = False, **options: Any) -> Worker:
        """A worker for the real workflows. `strict`: in the sandbox that also covers our own modules, which takes a
        second of a core for each; every kind of workflow has one such life, and every recorded history is replayed in
        it."""
        runner = worker.sandbox(strict)
        return Worker(
            self.client,
            task_queue=self.prefix,
            workflows=worker.WORKFLOWS,
            workflow_runner=runner,
            **{"sticky_queue_schedule_to_start_timeout": STICKY, **options},
        )

    def new_state(self, name: str, timings: Timings | None = None, **spec: Any) -> MachineState:
        defaults = {"creation_timeout": timedelta(minutes=20), "drain_timeout": timedelta(hours=2)}
        loaded = examples(name, **{**defaults, **spec})
        return MachineState(
            name=name,
            cluster=self.prefix,
            spec=loaded.machines[0].spec,
            machine_class=ClassSnapshot.of(loaded.classes[0]),
            queue_prefix=self.prefix,
            timings=timings or Timings(),
            life=1,
        )

    async def start(self, state: MachineState, **options: Any) -> WorkflowHandle[Any, Any]:
        handle = await self.client.start_workflow(
            MachineWorkflow.run,
            state,
            id=names.machine_id(state.cluster, state.name),
            task_queue=self.prefix,
            **{
                "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
                "id_reuse_policy": WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                **options,
            },
        )
        self.started.append(handle)
        return handle

    def facts(self, **fields: Any) -> NodeFacts:
        self.seq += 1
        usual = {"epoch": 1, "seq": self.seq, "exists": True, "name": NODE, "providerID": VM, "ready": True}
        if "provider_id" in fields:
            fields["providerID"] = fields.pop("provider_id")
        return NodeFacts.model_validate({**usual, **fields})


async def running(machines: Machines, name: str = "m-1", messages: int = 0, **spec: Any) -> Handle:
    """A machine that runs. The handle is of whichever run there is; `messages`: this many are counted already."""
    new = machines.new_state(name, **spec)
    started = await machines.start(new.model_copy(update={"messages": messages}))
    handle = machines.client.get_workflow_handle_for(MachineWorkflow.run, started.id)
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


def a_delete(**fields: Any) -> DeleteIntent:
    return DeleteIntent(**{"id": str(uuid.uuid4()), "requested_by": "test", **fields})


SICK = {"ready": False, "reason": "NodeStatusUnknown: Kubelet stopped posting node status."}

TEN = timedelta(minutes=10)


async def sick(machines: Machines, handle: Handle) -> MachineState:
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    return await phase(handle, Phase.UNKNOWN)


async def to_first_look(temporal: WorkflowEnvironment, handle: Handle) -> MachineState:
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    return await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")


async def failed_of_health(temporal: WorkflowEnvironment, machines: Machines, **spec: Any) -> Handle:
    """It was sick for longer than its healthTimeout, ten minutes unless said otherwise."""
    handle = await running(machines, **{"health_timeout": TEN, **spec})
    await sick(machines, handle)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await to_first_look(temporal, handle)
    await temporal.fast_forward(handle, timedelta(seconds=62))
    await phase(handle, Phase.FAILED)
    return handle


def when(state: MachineState, reason: str) -> datetime:
    """The last time at which the journal has it."""
    return [h.time for h in state.journal if h.reason == reason][-1]


async def server_time() -> datetime:
    """The server runs on this computer."""
    return datetime.now(UTC)


async def end_soon(handle: Handle, left: timedelta) -> None:
    """Sets its deadline near: a changed timeout counts at once."""
    before = await state(handle)
    now = datetime.now(UTC)
    assert before.created is not None
    assert before.machine_class is not None
    timeouts = {"creation_timeout": now - before.created + left}
    if before.illness is not None:
        timeouts = {"health_timeout": now - before.illness.began + left}
    spec = before.spec.model_copy(update=timeouts)
    intent = ApplyIntent(id="soon", spec=spec, machine_class=before.machine_class)
    await handle.execute_update(MachineWorkflow.apply, intent)
    await eventually(lambda: state(handle), lambda s: min(s.status.deadlines.values()) <= now + left, "a deadline soon")

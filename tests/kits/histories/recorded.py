"""Histories of workflows: recorded ones, and what they would answer at any point; resets into them, servers that have
forgotten them, and a search for secrets in every byte that Temporal keeps."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import re
import typing
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from google.protobuf.json_format import ParseDict
from lifekit import Stack, eventually
from paths import TESTS
from temporalio import workflow
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistory
from temporalio.service import RPCError
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

import worker
from resources.converter import data_converter
from workflows.machine import MachineWorkflow
from workflows.runner import Runner

# -- secrets where none may be (I11) -----------------------------------------------------------------------------------
# A canary is found as it is, JSON- and URL-escaped, in base64 at every alignment, and in all of these inside gzip.

GZIP = b"\x1f\x8b\x08"
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
NESTING = 3


def disguises(canary: str) -> set[bytes]:
    """The forms in which a secret can stand in a text. Base64: the part that does not depend on what is around it."""
    plain = canary.encode()
    found = {plain, json.dumps(canary)[1:-1].encode(), quote(canary, safe="").encode()}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        inner = encoded[4 * (shift > 0) : len(encoded) - 4]
        if len(inner) >= 8:  # a shorter one would be found everywhere
            found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return found


def layers(data: bytes, depth: int = NESTING) -> Iterator[bytes]:
    """The bytes, and what is compressed in them, plainly or in base64."""
    yield data
    if not depth:
        return
    start = data.find(GZIP)
    while start >= 0:
        with contextlib.suppress(zlib.error):
            # Tolerates what follows, and a cut end: base64 may have lost its last characters.
            yield from layers(zlib.decompressobj(wbits=31).decompress(data[start:]), depth - 1)
        start = data.find(GZIP, start + 1)
    for match in BASE64.finditer(data):
        text = match.group().replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
        for shift in range(4):
            piece = text[shift:]
            decoded = base64.b64decode(piece[: len(piece) // 4 * 4])
            if GZIP in decoded:
                yield from layers(decoded, depth - 1)


def found_in(canaries: Iterable[str], texts: Iterable[bytes]) -> list[str]:
    """The canaries that occur in the texts."""
    forms = {c: disguises(c) for c in canaries}
    seen = [layer for text in texts for layer in layers(text)]
    return [c for c, shapes in forms.items() if any(s in layer for s in shapes for layer in seen)]


def assert_no_canary(canaries: Iterable[str], texts: list[bytes]) -> None:
    assert texts, "nothing was searched"
    assert not (found := found_in(canaries, texts)), f"I11: {len(found)} secrets are in a history"


async def canaries_of(stack: Stack) -> list[str]:
    """The secret values of the machines' Secret: credentials, and the marked line of the user data."""
    return [stack.canary, stack.secret_key]


async def tokens_of(stack: Stack) -> list[str]:
    """The secret parts of the bootstrap tokens that exist now."""
    found = json.loads(stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "json"))["items"]
    return [base64.b64decode(s["data"]["token-secret"]).decode() for s in found if "token-secret" in s.get("data", {})]


async def texts_of(client: Client, *workflow_ids: str) -> list[bytes]:
    """Every event of every run, and what describe says: pending activities with failures and heartbeats, memo."""
    texts: list[bytes] = []
    for workflow_id in workflow_ids:
        handle = client.get_workflow_handle(workflow_id)
        texts.append((await handle.describe()).raw_description.SerializeToString())
        async for event in handle.fetch_history_events():
            texts.append(event.SerializeToString())
    return texts


# -- recorded histories ------------------------------------------------------------------------------------------------


HISTORIES = sorted((TESTS / "histories").glob("*.json"))


@functools.cache
def load(file: Path) -> WorkflowHistory:
    """As it was recorded. The SDK's own way first mends what other programs have written, which takes longer."""
    content = json.loads(file.read_text())
    return WorkflowHistory(content["workflowId"], ParseDict({"events": content["events"]}, History()).events)


def replayer(history: WorkflowHistory, runner: WorkflowRunner) -> Replayer:
    """Replays one history: no other workflow has to be prepared for the sandbox."""
    return Replayer(workflows=[definition_of(history).cls], data_converter=data_converter, workflow_runner=runner)


def definition_of(history: WorkflowHistory) -> workflow._Definition:
    name = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
    return next(d for d in map(workflow._Definition.must_from_class, worker.WORKFLOWS) if d.name == name)


# -- resets ------------------------------------------------------------------------------------------------------------


async def runs(client: Client, workflow_id: str) -> list[str]:
    """Ids of the runs of its chain, the first one first, from the server's own records."""
    newest = await client.get_workflow_handle(workflow_id).describe()
    found, run = [], newest.raw_description.workflow_execution_info.first_run_id
    while run:
        found.append(run)
        described = await client.get_workflow_handle(workflow_id, run_id=run).describe()
        run = ""
        if described.status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            events = (await client.get_workflow_handle(workflow_id, run_id=found[-1]).fetch_history()).events
            run = events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def run_of(client: Client, workflow_id: str, number: int) -> str:
    """The id of the run of this number, once there is one."""
    found = await eventually(lambda: runs(client, workflow_id), lambda ids: len(ids) > number, f"run {number}")
    return found[number]


async def reset(client: Client, workflow_id: str, share: float, run_id: str | None = None) -> None:
    """Resets to the task at this share of the tasks of a run, the newest by default; returns when there is a run that
    goes on from there."""
    run_id = run_id or (await client.get_workflow_handle(workflow_id).describe()).run_id
    events = (await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()).events
    points = [e.event_id for e in events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
            reason="somebody has pressed the button",
            workflow_task_finish_event_id=points[round(share * (len(points) - 1))],
            request_id=str(uuid.uuid4()),
        )
    )


async def reset_machine(stack: Stack, name: str, share: float, run_id: str | None = None) -> None:
    handle = stack.client.get_workflow_handle_for(MachineWorkflow.run, stack.started[name].id)
    await reset(stack.client, handle.id, share, run_id)
    stack.started[name] = handle  # the newest run's, whichever that is


# -- retention ---------------------------------------------------------------------------------------------------------


async def forgotten(client: Client, workflow_id: str) -> None:
    """Nothing is known of the workflow any longer: no record, no history."""
    request = DeleteWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=workflow_id)
    )
    await client.workflow_service.delete_workflow_execution(request)

    async def there() -> bool:
        try:
            await client.get_workflow_handle(workflow_id).describe()
        except RPCError:
            return False
        return True

    await eventually(there, lambda found: not found, f"the server forgets {workflow_id}")


# -- a workflow taken to any point of a recorded life, without a server, and messages sent to it -----------------------
# A replay of the history is taped as what the SDK gives a workflow, activation by activation. A player plays the
# beginning of a tape to a new workflow, in the sandbox that users have, and goes on with messages of its own; what the
# workflow answers is all that a server would see.

CONVERTER = data_converter.payload_converter
ENDS = (
    "complete_workflow_execution",
    "continue_as_new_workflow_execution",
    "fail_workflow_execution",
    "cancel_workflow_execution",
)
ID_BYTES, SUMMARY_BYTES, INDEXED_BYTES, TIMER_YEARS = 1000, 400, 2048, 100
"""The server's limits: it fails the task whose commands break one."""


# -- tapes ------------------------------------------------------------------------------------------------------------


@dataclass
class Tape:
    name: str
    details: WorkflowInstanceDetails
    activations: list[WorkflowActivation] = field(default_factory=list)

    @property
    def definition(self) -> workflow._Definition:
        return self.details.defn


@dataclass(frozen=True)
class Taping(Runner):
    tapes: list[Tape] = field(default_factory=list)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        tape, activate = Tape("", det), instance.activate
        self.tapes.append(tape)

        def taped(act: WorkflowActivation) -> WorkflowActivationCompletion:
            copied = _copy(act)
            answer = activate(act)
            if not any(job.HasField("remove_from_cache") for job in act.jobs):
                tape.activations.append(copied)
            return answer

        instance.activate = taped  # type: ignore[method-assign]
        return instance


def _copy(act: WorkflowActivation) -> WorkflowActivation:
    copied = WorkflowActivation()
    copied.CopyFrom(act)
    return copied


async def tape(name: str, history: WorkflowHistory) -> Tape:
    runner = Taping(restrictions=worker.sandbox(strict=False).restrictions)  # type: ignore[attr-defined]
    await replayer(history, runner).replay_workflow(history, raise_on_replay_failure=False)
    (made,) = [t for t in runner.tapes if t.activations]
    made.name = name
    return made


# -- playing ----------------------------------------------------------------------------------------------------------


class TaskFailed(Exception):
    """A failed workflow task, which Temporal would hand out again for ever."""


class Player:
    """A workflow that a tape was played to. To be used in one thread, which is not an event loop's."""

    def __init__(self, tape: Tape, instance: WorkflowInstance) -> None:
        self.tape, self.instance = tape, instance
        self.last = tape.activations[0]
        self.timers: dict[int, float] = {}
        self.over = ""
        """How it has ended."""
        self.handed_over: Any = None
        """The state that the next run begins with."""

    @staticmethod
    async def of(tape: Tape, id: str = "") -> Player:
        """Makes a player where an event loop runs, as in a worker. `id`: of a first start, where that is what is
        played."""
        details = tape.details
        if id:
            info = replace(details.info, workflow_id=id, first_execution_run_id=details.info.run_id)
            details = replace(details, info=info)
        return Player(tape, worker.sandbox(strict=False).create_instance(details))

    def play(self, share: float) -> None:
        """Plays from the beginning up to this share of the tape, but not to the end."""
        count = max(1, round(share * (len(self.tape.activations) - 1)))
        for act in self.tape.activations[:count]:
            self._step(_copy(act))
            if self.over:
                return

    def start(self, arguments: Sequence[Payload]) -> list[Any]:
        first = _copy(self.tape.activations[0])
        for job in first.jobs:
            if job.HasField("initialize_workflow"):
                del job.initialize_workflow.arguments[:]
                job.initialize_workflow.arguments.extend(arguments)
                job.initialize_workflow.continued_from_execution_run_id = ""
                job.initialize_workflow.first_execution_run_id = first.run_id
        first.is_replaying = False
        return self._step(first)

    def send(self, **job: Any) -> list[Any]:
        """Sends one job in a task of its own; returns the commands."""
        return self._step(self._next(WorkflowActivationJob(**job), 1.0))

    def ring(self) -> None:
        """Fires its earliest timer."""
        if self.timers:
            seq = min(self.timers, key=lambda s: self.timers[s])
            delay = self.timers.pop(seq)
            self._step(self._next(WorkflowActivationJob(fire_timer={"seq": seq}), min(max(delay, 1.0), 10.0**9)))

    def query(self, name: str, *arguments: Payload) -> Any:
        """The command that answers."""
        job = WorkflowActivationJob(query_workflow={"query_id": "q", "query_type": name, "arguments": list(arguments)})
        act = self._next(job, 0.0)
        act.history_length = self.last.history_length
        (command,) = self._step(act)
        return command.respond_to_query

    def close(self) -> None:
        act = WorkflowActivation(run_id=self.last.run_id)
        act.jobs.add().remove_from_cache.SetInParent()
        self.instance.activate(act)

    def _next(self, job: WorkflowActivationJob, later: float) -> WorkflowActivation:
        act = WorkflowActivation(
            run_id=self.last.run_id,
            history_length=self.last.history_length + 3,
            available_internal_flags=self.last.available_internal_flags,
            jobs=[job],
        )
        act.timestamp.FromNanoseconds(self.last.timestamp.ToNanoseconds() + int(later * 1e9))
        return act

    def _step(self, act: WorkflowActivation) -> list[Any]:
        answer = self.instance.activate(act)
        if answer.HasField("failed"):
            raise TaskFailed(answer.failed.failure.message, answer.failed.failure.cause.message)
        self.last = act
        commands = list(answer.successful.commands)
        for command in commands:
            self._see(command)
        return commands

    def _see(self, command: Any) -> None:
        kind = command.WhichOneof("variant")
        if kind == "start_timer":
            self.timers[command.start_timer.seq] = command.start_timer.start_to_fire_timeout.ToSeconds()
        elif kind == "cancel_timer":
            self.timers.pop(command.cancel_timer.seq, None)
        elif kind in ENDS:
            self.over = kind
        if broken := unlawful(command):
            raise TaskFailed(broken)
        if kind == "continue_as_new_workflow_execution":
            arguments = command.continue_as_new_workflow_execution.arguments
            (self.handed_over,) = CONVERTER.from_payloads(arguments, self.tape.definition.arg_types)


def unlawful(command: Any) -> str:
    """Which of the server's limits a command breaks; "": none."""
    texts = {"summary": (len(command.user_metadata.summary.data), SUMMARY_BYTES)}
    if command.HasField("schedule_activity"):
        texts["task queue"] = (len(command.schedule_activity.task_queue.encode()), ID_BYTES)
    if command.HasField("signal_external_workflow_execution"):
        told = command.signal_external_workflow_execution.workflow_execution.workflow_id
        texts["workflow id"] = (len(told.encode()), ID_BYTES)
    if command.HasField("upsert_workflow_search_attributes"):
        for name, payload in command.upsert_workflow_search_attributes.search_attributes.indexed_fields.items():
            texts[name] = (len(payload.data), INDEXED_BYTES)
    if command.HasField("start_timer"):
        years = command.start_timer.start_to_fire_timeout.ToSeconds() / (365 * 86400)
        texts["timer"] = (int(years), TIMER_YEARS)
    return "; ".join(f"{what}: {size} of {most}" for what, (size, most) in texts.items() if size > most)


async def in_thread(tape: Tape, play: typing.Callable[[Player], None], id: str = "") -> None:
    """Runs it as a worker does: made on the event loop, run in a thread."""
    player = await Player.of(tape, id)

    def done() -> None:
        try:
            play(player)
        finally:
            player.close()

    await asyncio.to_thread(done)


def state(player: Player) -> Any:
    answer = player.query("describe")
    assert answer.HasField("succeeded"), answer.failed.message
    hint = player.tape.definition.arg_types
    assert hint
    (found,) = CONVERTER.from_payloads([answer.succeeded.response], hint)
    return found

"""Workflows taken to any point of a recorded life, without a server, and messages then sent to them.

A replay of the recorded histories is taped as what the SDK gives a workflow, activation by activation. A case plays the
beginning of a tape to a new workflow, in the sandbox that users have, and goes on with a message of its own; what the
workflow answers is all that a server would see.
"""

from __future__ import annotations

import asyncio
import enum
import json
import random
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails

import worker
from resources.converter import data_converter
from resources.orders import is_order
from workflows.runner import Runner

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
    replayer = Replayer(workflows=worker.WORKFLOWS, data_converter=data_converter, workflow_runner=runner)
    await replayer.replay_workflow(history, raise_on_replay_failure=False)
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


# -- what is sent -----------------------------------------------------------------------------------------------------

TEXTS = [
    *("", " ", "x" * 3000, "y" * 20000, "x" * 250, "\x00", "\x1b[31mred\x1b]0;t\x07", "éü\u202e", "💥" * 50),
    *("a/b", "../../etc/passwd", "demo", "now", "1", "\n\n# h\n", "pool/x", "aws:///eu-west-1/i-0", "aws"),
    *("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "1h" * 500),
]
TIMES = [
    *(
        "2026-01-01T00:00:00",
        "2026-11-29T00:00:00Z",
        "2199-06-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "1970-01-01",
    ),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 0, 253402300799, 1e18),
]
DURATIONS = ["0s", "1ns", "-PT5S", "-5h", "87600000h", "80000000h", "P999999999D", "-P999999999D", "1h", 5, "0.000001s"]
NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63), 2**63 - 1, 10**18, 5000, 10**30, 2**53, 4 * 10**12]
FAR: list[list[Any]] = [[2**53, 4 * 10**12], ["2199-06-01T00:00:00Z", "2030-01-01T00:00:00Z"]]
"""Values of the far future: numbers, times."""
ANYTHING = [None, 1, "s", [], {"a": {"b": [1]}}, {"region": "eu-west-1"}, "x" * 2000, 10**30, {"region": "x" * 3000}]
PLAIN: list[tuple[type, Any, list[Any]]] = [
    (str, "demo", TEXTS),
    (datetime, "2026-11-29T00:00:00Z", TIMES),
    (timedelta, "1h", DURATIONS),
    (bool, True, [True, False]),
    (int, 1, NUMBERS),
    (float, 1.0, [0.0, -1.0, 1e308, 5]),
]
WRONG = [
    *(b"{", b"", b"\xff\xfe", b"[[[", b"NaN", b'"\\ud800"', b"[" * 5000, b"1" * 5000),
    *(json.dumps(value).encode() for value in (17, -0.5, True, [1], [[]])),
]


def payload(data: bytes, encoding: str = "json/plain") -> Payload:
    return Payload(metadata={"encoding": encoding.encode()}, data=data)


NULLS = [payload(b"", "binary/null"), payload(b"x", "binary/plain"), payload(b"x", "no/such"), Payload(data=b"{}")]


@dataclass(frozen=True)
class Fuzz:
    """Values of a type, and arguments that do not fit one."""

    chance: random.Random
    odd: float = 1.0
    """The share of extreme values; a message in which all are odd is refused for the first of them."""
    ahead: bool = False
    """Whether each number and time is one of the far future."""

    def payloads(self, hints: Sequence[Any], how: str) -> list[Payload]:
        """`how`: missing, extra, wrong, extreme or ahead."""
        if how == "ahead":
            return replace(self, odd=0.0, ahead=True).payloads(hints, "")
        fitting = [self.fitting(hint) for hint in hints]
        if how == "missing":
            return fitting[1:]
        if how == "extra":
            return [*fitting, self.fitting(str)]
        if how == "wrong":
            texts = hints and hints[0] is str
            wrong = [payload(w) for w in WRONG if not texts or not w.startswith(b'"')]
            return [self.chance.choice([*wrong, *NULLS]), *fitting[1:]] if hints else []
        return fitting

    def fitting(self, hint: Any) -> Payload:
        return payload(json.dumps(self.value(hint)).encode())

    def value(self, hint: Any, depth: int = 0) -> Any:
        choice, origin, parts = self.chance.choice, typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self.value(parts[0], depth)
        if origin in (typing.Union, types.UnionType):
            some = [p for p in parts if p is not type(None)]
            return None if len(some) < len(parts) and self.chance.random() < 0.4 else self.value(choice(some), depth)
        if origin is typing.Literal:
            return choice(parts)
        if origin in (list, set, frozenset) or (origin is tuple and parts[-1:] == (Ellipsis,)):
            many = choice([0, 0, 1, 3, 40 if depth < 2 else 1])
            return [self.value(parts[0], depth + 1) for _ in range(many)]
        if origin is tuple:
            return [self.value(p, depth + 1) for p in parts]
        if origin is dict:
            return {
                str(self.value(parts[0], depth + 1)): self.value(parts[1], depth + 1) for _ in range(choice([0, 1, 3]))
            }
        if isinstance(hint, type):
            return self._of_class(hint, depth)
        return choice(ANYTHING)

    def _of_class(self, hint: type, depth: int) -> Any:
        choice = self.chance.choice
        for kind, usual, values in PLAIN:
            if hint is kind:
                return choice(values) if self.chance.random() < self.odd else usual
        if issubclass(hint, enum.Enum):
            return choice([m.value for m in hint])
        if issubclass(hint, BaseModel):
            return dict(self._fields(hint, depth))
        if issubclass(hint, tuple):
            return [self.value(p, depth + 1) for p in typing.get_type_hints(hint, include_extras=True).values()]
        return choice(ANYTHING)

    def _fields(self, hint: type[BaseModel], depth: int) -> Iterator[tuple[str, Any]]:
        for name, field_ in hint.model_fields.items():
            if self.ahead and is_order(field_):
                yield field_.alias or name, self.chance.choice(FAR[datetime is field_.annotation])
            elif field_.is_required() or self.chance.random() > 0.4:
                yield field_.alias or name, self.value(field_.annotation, depth + 1)
        if self.chance.random() < 0.05:
            yield "noSuchKey", 1


async def in_thread(tape: Tape, deed: typing.Callable[[Player], None], id: str = "") -> None:
    """Runs it as a worker does: made on the event loop, run in a thread."""
    player = await Player.of(tape, id)

    def done() -> None:
        try:
            deed(player)
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

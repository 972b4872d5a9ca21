"""One of each entity as it begins, whatever may arrive at it, and what `describe` says of a machine that waits."""

from __future__ import annotations

import enum
import json
import random
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import examples
from pydantic import BaseModel
from temporalio.api.common.v1 import Payload

from resources.base import Value
from resources.cluster.news import ClusterNews
from resources.cluster.state import ClusterState
from resources.machine.state import (
    ClassSnapshot,
    MachineState,
    Phase,
    Status,
    WaitingFor,
)
from resources.machine_class.state import ClassState
from resources.names import class_id, cluster_id, machine_id, pool_id, rollout_id
from resources.orders import is_order
from resources.pool.manifest import MachineDeployment
from resources.pool.rollout import RolloutNews, RolloutState
from resources.pool.state import PoolState, RolloutCounts
from starter.commands.machine_page import page
from starter.sdk.results import (
    Description,
    Life,
    MachineSummary,
    PendingActivity,
)

PARKED = "ValueError: a bug"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def machine(queue: str) -> MachineState:
    loaded = examples()
    return MachineState(
        name="m-1",
        cluster=queue,
        uid=str(uuid.uuid4()),
        created=BEGAN,
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        queue_prefix=queue,
        parked=PARKED,
    )


def pool(queue: str) -> PoolState:
    template = {"spec": {"class": {"name": "c1"}}}
    manifest = {"metadata": {"name": "p1"}, "spec": {"replicas": 1, "template": template}}
    spec = MachineDeployment.model_validate(manifest).spec
    return PoolState(name="p1", cluster=queue, spec=spec, created=BEGAN, queue_prefix=queue, parked=PARKED)


def machine_class(queue: str) -> ClassState:
    snapshot = ClassSnapshot.of(examples().classes[0])
    return ClassState(name="c1", cluster=queue, machine_class=snapshot, queue_prefix=queue, parked=PARKED)


def cluster(queue: str) -> ClusterState:
    return ClusterState(name=queue, queue_prefix=queue, parked=PARKED)


def rollout(queue: str) -> RolloutState:
    return RolloutState(pool="p1", cluster=queue, revision=2, queue_prefix=queue, parked=PARKED)


def own_id(kind: str, queue: str) -> str:
    """The id of each entity below: others know it by the id that its state makes."""
    return {
        "MachineWorkflow": machine_id(queue, "m-1"),
        "MachineDeploymentWorkflow": pool_id(queue, "p1"),
        "MachineClassWorkflow": class_id(queue, "c1"),
        "ClusterWorkflow": cluster_id(queue),
        "RolloutWorkflow": rollout_id(queue, "p1", 2),
    }[kind]


ENTITIES: list[tuple[str, Callable[[str], Value], str, list[Any]]] = [
    ("MachineWorkflow", machine, "report_again", []),
    ("MachineDeploymentWorkflow", pool, "cluster_news", [ClusterNews(time=BEGAN, reachable=True)]),
    ("MachineClassWorkflow", machine_class, "forget_user", ["m-2"]),
    ("ClusterWorkflow", cluster, "forget", ["aws:///eu-west-1/i-2"]),
    ("RolloutWorkflow", rollout, "news", [RolloutNews(time=BEGAN, counts=RolloutCounts())]),
]


# -- a machine that waits ---------------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)


def waits_for(reason: str) -> MachineState:
    loaded = examples("m-1")
    waiting = WaitingFor(
        reason=reason,
        message=f"3 of 7 {reason.lower()} words",
        since=NOW - timedelta(minutes=12),
        next_try=NOW + timedelta(minutes=5),
    )
    return MachineState(
        name="m-1",
        cluster="prod",
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        status=Status(phase=Phase.UNKNOWN, waiting_for=waiting),
    )


def described(
    state: MachineState, status: str = "RUNNING", failure: str = "", pending: tuple[PendingActivity, ...] = ()
) -> str:
    summary = MachineSummary(name=state.name, cluster=state.cluster, created=NOW, phase=str(state.status.phase))
    life = Life(summary=summary, status=status, run_id="r", first_run_id="r", task_queue="q", pending=pending)
    shown = Description(life=life, state=state, failure=failure)
    return "\n".join(page(shown, NOW))


# -- whatever may arrive -----------------------------------------------------------------------------------------------

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

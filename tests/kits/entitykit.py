"""One of each entity as it begins, and what `describe` says of a machine that waits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import examples

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
from resources.pool.manifest import MachineDeployment
from resources.pool.rollout import RolloutNews, RolloutState
from resources.pool.state import PoolState, RolloutCounts
from starter.commands.describe import page
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

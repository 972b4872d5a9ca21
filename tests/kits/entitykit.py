"""One of each entity, as it begins."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lifekit import examples

from resources.base import Value
from resources.cluster.news import ClusterNews
from resources.cluster.state import ClusterState
from resources.machine.state import ClassSnapshot, MachineState
from resources.machine_class.state import ClassState
from resources.names import class_id, cluster_id, machine_id, pool_id, rollout_id
from resources.pool.manifest import MachineDeployment
from resources.pool.rollout import RolloutNews, RolloutState
from resources.pool.state import PoolState, RolloutCounts

PARKED = "ValueError: a bug"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def machine(queue: str) -> MachineState:
    loaded = examples()
    return MachineState(
        name="m-1",
        cluster=queue,
        uid=str(uuid.uuid4()),
        created=NOW,
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        queue_prefix=queue,
        parked=PARKED,
    )


def pool(queue: str) -> PoolState:
    template = {"spec": {"class": {"name": "c1"}}}
    manifest = {"metadata": {"name": "p1"}, "spec": {"replicas": 1, "template": template}}
    spec = MachineDeployment.model_validate(manifest).spec
    return PoolState(name="p1", cluster=queue, spec=spec, created=NOW, queue_prefix=queue, parked=PARKED)


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
    ("MachineDeploymentWorkflow", pool, "cluster_news", [ClusterNews(time=NOW, reachable=True)]),
    ("MachineClassWorkflow", machine_class, "forget_user", ["m-2"]),
    ("ClusterWorkflow", cluster, "forget", ["aws:///eu-west-1/i-2"]),
    ("RolloutWorkflow", rollout, "news", [RolloutNews(time=NOW, counts=RolloutCounts())]),
]

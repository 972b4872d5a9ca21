"""What every entity does alike: a parked one ends its run, too, and stays to be asked, released and deleted."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from lifekit import eventually, examples
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from resources.base import Value
from resources.cluster import ClusterState
from resources.machine import ClassSnapshot, MachineState
from resources.machine_class import ClassState
from resources.manifests import MachineDeployment
from resources.messages import Answer, ClusterNews, Intent
from resources.pool import PoolState
from resources.rollout import RolloutCounts, RolloutNews, RolloutState
from workflows import entity

PARKED = "ValueError: a bug"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def machine(queue: str) -> MachineState:
    loaded = examples()
    return MachineState(
        name="m-1",
        cluster="demo",
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
    return PoolState(name="p1", cluster="demo", spec=spec, created=NOW, queue_prefix=queue, parked=PARKED)


def machine_class(queue: str) -> ClassState:
    snapshot = ClassSnapshot.of(examples().classes[0])
    return ClassState(name="c1", cluster="demo", machine_class=snapshot, queue_prefix=queue, parked=PARKED)


def cluster(queue: str) -> ClusterState:
    return ClusterState(name="demo", queue_prefix=queue, parked=PARKED)


def rollout(queue: str) -> RolloutState:
    return RolloutState(pool="p1", cluster="demo", revision=2, queue_prefix=queue, parked=PARKED)


ENTITIES: list[tuple[str, Callable[[str], Value], str, list[Any]]] = [
    ("MachineWorkflow", machine, "report_again", []),
    ("MachineDeploymentWorkflow", pool, "cluster_news", [ClusterNews(time=NOW, reachable=True)]),
    ("MachineClassWorkflow", machine_class, "forget_user", ["m-2"]),
    ("ClusterWorkflow", cluster, "forget", ["aws:///eu-west-1/i-2"]),
    ("RolloutWorkflow", rollout, "news", [RolloutNews(time=NOW, counts=RolloutCounts())]),
]


@pytest.mark.parametrize(("kind", "state", "signal", "arguments"), ENTITIES, ids=[kind for kind, *_ in ENTITIES])
async def test_parked_with_many_messages_begins_a_new_run(
    temporal: WorkflowEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    state: Callable[[str], Value],
    signal: str,
    arguments: list[Any],
) -> None:
    """Temporal refuses everything once a run has had 10,000 signals, `renew` and `delete` among it."""
    monkeypatch.setattr(entity, "RENEW_AFTER", 20)
    queue = f"t{uuid.uuid4().hex[:8]}"
    first = await temporal.client.start_workflow(kind, state(queue), id=f"parked/{queue}", task_queue=queue)
    handle: WorkflowHandle[Any, Any] = temporal.client.get_workflow_handle(first.id)
    for _ in range(25):
        await handle.signal(signal, args=arguments)
    runner = worker.sandbox(strict=False)
    async with Worker(temporal.client, task_queue=queue, workflows=worker.WORKFLOWS, workflow_runner=runner):

        async def renewed() -> bool:
            return (await handle.describe()).run_id != first.first_execution_run_id

        await eventually(renewed, what="a new run")
        found = await handle.query("describe")
        assert (found["parked"], found["messages"]) == (PARKED, 0)
        answer = await handle.execute_update("renew", Intent(id="r"), id="r", result_type=Answer)
        assert answer.message
        assert (await handle.query("describe"))["parked"] is None
    await handle.terminate("the test is over")

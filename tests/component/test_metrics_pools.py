"""Pools in the census: by visibility, and by what each says of itself."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from lifekit import eventually
from metricskit import NOW, Metered, Visibility, listed, metered
from temporalio import workflow
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.census.census import Census
from activities.census.pools import PoolTally
from resources import attributes
from resources.fleet.state import FleetWait
from resources.machine.state import Phase
from resources.names import pool_id
from resources.pool.intents import PoolSummary
from resources.pool.state import Rollout

__all__ = ["metered"]  # a fixture

ROLLOUT = Rollout(revision=2, began=NOW, progress_at=NOW, old_left=3)


def summary(name: str = "p1", **fields: Any) -> PoolSummary:
    return PoolSummary(name=name, cluster="demo", machine_class="c1", replicas=5).model_copy(update=fields)


@workflow.defn(name="MachineDeploymentWorkflow")
class PlayedPool:
    """It says of itself what it was started with."""

    @workflow.init
    def __init__(self, said: PoolSummary) -> None:
        self.said = said

    @workflow.run
    async def run(self, said: PoolSummary) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def say(self, said: PoolSummary) -> None:
        self.said = said

    @workflow.query
    def summary(self) -> PoolSummary:
        return self.said


async def test_a_pool_by_its_own_words_and_none_is_zero(metered: Metered) -> None:
    queue = f"t{uuid.uuid4().hex[:8]}"
    counting = Census(metered.deps(queue))
    phases = [(1, Phase.RUNNING, 2), (1, Phase.TERMINATING, 1), (2, Phase.PENDING, 1)]
    wait = FleetWait(reason="NewMachinesNotReady", message="1 of 1", since=NOW)
    slots = {"preserved": 3, "preserved_auto": 1, "slots_used": 2, "slots": 4}
    said = summary(cluster=queue, phases=phases, repairs=1, rollout=ROLLOUT, waits=[wait], **slots)

    async def counted() -> dict[str, float | None]:
        await counting.count()
        pool = {"cluster": queue, "pool": "p1"}
        asked: dict[str, tuple[str, dict[str, str]]] = {
            "pools": ("hostler_pools", {"cluster": queue, "phase": "Rolling", "reason": "NewMachinesNotReady"}),
            "replicas": ("hostler_pool_replicas", pool),
            "running": ("hostler_pool_machines", {**pool, "phase": "Running", "revision": "1"}),
            "leaving": ("hostler_pool_machines", {**pool, "phase": "Terminating", "revision": "1"}),
            "new": ("hostler_pool_machines", {**pool, "phase": "Pending", "revision": "2"}),
            "repairs": ("hostler_pool_repairs", pool),
            "old": ("hostler_pool_rollout_old", {**pool, "revision": "2"}),
            "waiting": ("hostler_pool_waiting", {**pool, "reason": "NewMachinesNotReady"}),
            "in a slot": ("hostler_pool_preserved", {**pool, "source": "slot"}),
            "asked for": ("hostler_pool_preserved", {**pool, "source": "asked"}),
            "slots used": ("hostler_pool_preserve_slots", {**pool, "kind": "used"}),
            "slots": ("hostler_pool_preserve_slots", {**pool, "kind": "max"}),
        }
        return {key: await metered.value(name, **labels) for key, (name, labels) in asked.items()}

    worker = Worker(
        metered.client, task_queue=queue, workflows=[PlayedPool], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with worker:
        handle = await metered.client.start_workflow(
            PlayedPool.run,
            said,
            id=pool_id(queue, "p1"),
            task_queue=queue,
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(attributes.CLUSTER, queue),
                    SearchAttributePair(attributes.PHASE, "Rolling"),
                    SearchAttributePair(attributes.REASON, "NewMachinesNotReady"),
                ]
            ),
        )
        wanted = {"pools": 1, "replicas": 5, "running": 2, "leaving": 1, "new": 1, "repairs": 1, "old": 3, "waiting": 1}
        wanted |= {"in a slot": 1, "asked for": 2, "slots used": 2, "slots": 4}
        await eventually(counted, lambda c: c == wanted, "a rollout that waits")
        await handle.signal(PlayedPool.say, summary(cluster=queue, phases=[(2, Phase.RUNNING, 5)]))
        gone = dict.fromkeys(wanted.keys() - {"pools", "replicas"}, 0)
        await eventually(counted, lambda c: c == wanted | gone, "the rollout is over")
        assert await metered.value("hostler_pool_machines", cluster=queue, revision="2", phase="Running") == 5
        await handle.terminate("gone")
        await eventually(counted, lambda c: c == dict.fromkeys(wanted, 0), "zero, and not the last value")


async def test_a_pool_that_does_not_answer_keeps_its_numbers(
    metered: Metered, caplog: pytest.LogCaptureFixture
) -> None:
    script: list[PoolSummary | Exception] = [
        summary(waits=[FleetWait(reason="TooManyUnhealthy", message="3 of 5", since=NOW)]),
        WorkflowQueryFailedError("unhandled error"),
        RPCError("no poller", RPCStatusCode.FAILED_PRECONDITION, b""),
        summary(),
    ]

    async def query(name: str, **_: Any) -> PoolSummary:
        assert name == "summary"
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    deps = metered.deps("t")
    pool = listed("machinedeployment/demo/p1", type="MachineDeploymentWorkflow", cluster="demo", phase="Ready")
    deps.client = client = Visibility(metered.client, [pool])  # type: ignore[assignment]
    client.get_workflow_handle = lambda workflow_id: SimpleNamespace(query=query)  # type: ignore[attr-defined]
    counting, seen = Census(deps), []
    while script:
        await counting.count()
        labels = {"cluster": "demo", "pool": "p1"}
        waits = await metered.value("hostler_pool_waiting", reason="TooManyUnhealthy", **labels)
        seen.append((waits, await metered.value("hostler_pool_replicas", **labels)))
    assert seen == [(1, 5)] * 3 + [(0, 5)]
    (said,) = [r.getMessage() for r in caplog.records if r.name == "hostler.census"]
    words = "machinedeployment/demo/p1 does not answer: unhandled error; until then its numbers"
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("rollout", "old"),
    [
        (None, {}),
        (ROLLOUT, {"2": 3}),
        (ROLLOUT.model_copy(update={"revision": 3}), {"3": 4}),
    ],
    ids=["none", "of the second", "of the third"],
)
def test_old_machines_are_those_of_every_other_revision(rollout: Rollout | None, old: dict[str, int]) -> None:
    tally = PoolTally()
    phases = [(1, Phase.RUNNING, 2), (1, Phase.FAILED, 1), (2, Phase.RUNNING, 1)]
    tally.add(summary(phases=phases, rollout=rollout))
    assert {dict(labels)["revision"]: n for labels, n in tally.old.items()} == old

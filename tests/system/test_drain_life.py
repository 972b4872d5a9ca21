"""Whole deletes, with everything: the workflow's pending activity says what a drain waits for."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from datetime import timedelta
from typing import Any

import pytest
from apiserver.simulated import pod
from lifekit import Stack, eventually, new_stack
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.drain.words import moment
from resources.machine.intents import DeleteIntent
from resources.machine.state import Phase
from resources.names import CORDON_ANNOTATION
from simulator.controllers.storage import DETACH_ANNOTATION
from simulator.frame import Call, FaultRule
from workflows.machine import MachineWorkflow

CSI = "ebs.csi.aws.com"


def workload(node: str) -> str:
    """Two pods on the node, one of them behind a budget that never lets it go."""
    web, other = pod("web-1", node, app="web"), pod("other-1", node)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [web, other, budget]})


async def blocked(stack: Stack) -> str:
    """Asks for deletion; returns the words of the pending activity once the budget stands in the way."""
    await delete(stack)
    return await eventually(lambda: pending(stack.client, stack.started["m-1"].id), lambda w: w.startswith("1 of 2"))


async def delete(stack: Stack) -> None:
    """Asks for deletion, once a budget protects what is on the Node."""
    state = await stack.phase(Phase.RUNNING)
    file = stack.kubeconfig.with_name("workload.json")
    file.write_text(workload(str(state.status.node_name)))
    stack.kubectl("create", "-f", str(file))

    async def protected() -> str:
        return await stack.kubectl_beside("get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}")

    await eventually(protected, lambda healthy: healthy == "1", "the budget's controller")
    intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="test")
    await stack.started["m-1"].execute_update(MachineWorkflow.delete, intent, id=intent.id)


async def pending(client: Client, workflow_id: str) -> str:
    described = await client.get_workflow_handle(workflow_id).describe()
    return next((p.last_failure.message for p in described.raw_description.pending_activities), "")


class Said(Interceptor):
    """Remembers what passes of a drain have said: nobody need look before the next one says something else."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Said(next, self.words)


class _Said(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, words: list[str]) -> None:
        super().__init__(next)
        self.words = words

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            return await super().execute_activity(input)
        except ApplicationError as e:
            if activity.info().activity_type == "drain_node":
                self.words.append(e.message)
            raise


def kills(stack: Stack) -> list[Call]:
    """Calls about the blocked pod: evictions that were refused, then the deletion without grace."""
    calls = [c for c in stack.calls("*pods*", "kubernetes") if c.mutating and "/pods/web-1" in c.request["path"]]
    return [c for c in calls if c.operation in ("create pods/eviction", "delete pods") and "admin" in c.caller]


async def test_a_whole_delete_at_the_deadline(temporal: WorkflowEnvironment) -> None:
    """Field case P45: the budget is honoured until the deadline, to the second, and not a moment less."""
    said = Said()
    async with new_stack(temporal.client) as stack, stack.worker([said]):
        await at_the_deadline(stack, said)


async def at_the_deadline(stack: Stack, said: Said) -> None:
    await stack.create(drain_timeout=timedelta(seconds=8))
    await delete(stack)
    result = await asyncio.wait_for(stack.started["m-1"].result(), 60)
    state = await stack.state()
    assert state.deletion is not None
    deadline = state.deletion.time + timedelta(seconds=8)
    words = next(w for w in said.words if w.startswith("1 of 2"))
    expected = "1 of 2 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed), force at "
    assert words.startswith(expected + moment(deadline, state.deletion.time))
    assert "; PDB web is misconfigured: all its pods are healthy (1 of 1)" in words
    calls = kills(stack)  # a pass that a busy machine gives up is made again: what counts is up to the first deletion
    first = [c.operation for c in calls].index("delete pods")
    evictions, kill = calls[:first], calls[first]
    assert {(c.operation, c.status) for c in evictions} == {("create pods/eviction", 429)}
    assert len(evictions) >= 2
    assert kill.status == 200
    assert evictions[-1].time > deadline.timestamp()  # the force pass asks once more before it kills
    reasons = [h.reason for h in result.journal]
    assert reasons[reasons.index("Terminating") :] == [
        "Terminating",
        "DrainBlocked",
        "DrainForced",
        "Drained",
        "VMDeleted",
        "Gone",
    ]
    assert stack.leftovers(state.uid) == {}


async def test_a_whole_delete_by_force(stack: Stack) -> None:
    """An operator insists while it is blocked: the deadline is not waited for, and clean-up is done all the same."""
    await stack.create(drain_timeout=timedelta(hours=2))
    await blocked(stack)
    uid = (await stack.state()).uid
    before = len(kills(stack))
    result = await stack.delete(force=True)
    *evictions, kill = kills(stack)
    assert len(evictions) > before  # the force pass asks once more before it kills
    assert kill.operation == "delete pods"
    assert evictions[-1].operation == "create pods/eviction"
    (forced,) = [h for h in result.journal if h.reason == "DrainForced"]
    assert forced.message == "force was requested"
    assert stack.leftovers(uid) == {}


async def test_a_whole_delete_by_force_of_a_node_that_cannot_be_written(stack: Stack) -> None:
    """The pods of the refusing webhook may have run on the last nodes: nobody is left to mend it."""
    await stack.create(drain_timeout=timedelta(hours=2))
    state = await stack.phase(Phase.RUNNING)
    fault(stack, FaultRule(operation="patch nodes", match=CORDON_ANNOTATION, code="InternalError", times=None))
    result = await stack.delete(force=True)
    assert [h.reason for h in result.journal][-4:] == ["Terminating", "DrainFailed", "VMDeleted", "Gone"]
    assert stack.leftovers(state.uid) == {}


def fault(stack: Stack, rule: FaultRule) -> None:
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(rule))


@pytest.mark.core
async def test_a_whole_delete_of_a_node_to_which_a_pod_comes_back(stack: Stack) -> None:
    """Its tolerations lift the cordon, and the Node that was emptied is the first that the scheduler takes."""
    await stack.create(drain_timeout=timedelta(hours=2))
    await stack.phase(Phase.RUNNING)
    # The cordon comes in a later second than the deletion, and so does the pod that is made again.
    fault(stack, FaultRule(operation="patch nodes", match=CORDON_ANNOTATION, delay=1.2))
    labels = {"app": "operator"}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
    }
    operator = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "operator", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    file = stack.kubeconfig.with_name("operator.json")
    file.write_text(json.dumps(operator))
    stack.kubectl("create", "-f", str(file))

    async def ready() -> str:
        return await stack.kubectl_beside("get", "deployment", "operator", "-o", "jsonpath={.status.readyReplicas}")

    await eventually(ready, lambda n: n == "1", "the operator runs")
    result = await stack.delete()
    assert evicted(stack) == ["operator"]
    (drained,) = [h.message for h in result.journal if h.reason == "Drained"]
    assert re.search(r"not waited for: default/operator-\S+: came back: it tolerates the cordon$", drained)
    assert "DrainForced" not in [h.reason for h in result.journal]


def database(name: str) -> list[dict[str, Any]]:
    """A Deployment of one pod with a volume that is slow to detach."""
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    disk = {"csi": {"driver": CSI, "volumeHandle": f"vol-{name}"}, "capacity": {"storage": "1Gi"}}
    bound = {"claimRef": {"namespace": "default", "name": name}}
    labels = {"app": name}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    containers = [{"name": "c", "image": "i"}]
    spec = {"containers": containers, "volumes": volumes, "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}", "annotations": {DETACH_ANNOTATION: "600"}},
            "spec": {**modes, **disk, **bound},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**modes, "volumeName": f"pv-{name}", "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
    ]


async def test_a_whole_delete_moves_volumes_one_at_a_time(stack: Stack) -> None:
    """A simulated attach-detach controller moves two pods' volumes to the other machine. The test sets how long the
    first one takes: the second pod runs that long."""
    await stack.create("m-1")
    node = (await stack.phase(Phase.RUNNING, "m-1")).status.node_name
    file = stack.kubeconfig.with_name("databases.json")
    items = [*database("a"), *database("b")]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    stack.kubectl("create", "-f", str(file))
    await eventually(lambda: attached(stack), lambda found: found == {("pv-a", node), ("pv-b", node)}, "attached")
    await stack.create("m-2")
    other = (await stack.phase(Phase.RUNNING, "m-2")).status.node_name
    intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="test")
    await stack.started["m-1"].execute_update(MachineWorkflow.delete, intent, id=intent.id)
    words = await eventually(lambda: pending(stack.client, stack.started["m-1"].id), lambda w: "to detach" in w)
    assert words.startswith("1 of 2 pods gone; waiting for volume pv-a of default/a-")
    assert await attached(stack) == {("pv-a", node), ("pv-b", node)}
    assert evicted(stack) == ["a"]
    for name in ("a", "b"):
        stack.kubectl("annotate", "pv", f"pv-{name}", "--overwrite", f"{DETACH_ANNOTATION}=0")
    await asyncio.wait_for(stack.started["m-1"].result(), 60)
    assert await attached(stack) == {("pv-a", other), ("pv-b", other)}
    assert evicted(stack) == ["a", "b"]
    assert when(stack, "pv-a", other) < evictions(stack)[1].n < when(stack, "pv-b", other)


async def attached(stack: Stack) -> set[tuple[str, str]]:
    found = json.loads(stack.kubectl("get", "volumeattachments", "-o", "json"))["items"]
    where = [(a["spec"]["source"]["persistentVolumeName"], a["spec"]["nodeName"]) for a in found]
    return {w for w, a in zip(where, found, strict=True) if a["status"]["attached"]}


def evictions(stack: Stack) -> list[Call]:
    return [c for c in stack.calls("create pods/eviction", "kubernetes") if not c.error]


def evicted(stack: Stack) -> list[str]:
    """The pods by their Deployments, in order."""
    return [c.request["path"].split("/")[6].split("-")[0] for c in evictions(stack)]


def when(stack: Stack, volume: str, node: str | None) -> int:
    """The time of the call that attached it there."""
    for call in stack.calls("create volumeattachments", "kubernetes"):
        spec = call.request["body"]["spec"]
        if (spec["source"]["persistentVolumeName"], spec["nodeName"]) == (volume, node) and not call.error:
            return call.n
    raise AssertionError(f"{volume} was never attached to {node}")

"""Draining: pass by pass against a simulated API server without controllers, and two whole deletes with everything."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from drainkit import NODE, VM, Drain
from kube_wire import NODES, PODS, pod
from kube_world import new_world
from lifekit import Stack, eventually
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from activities.deps import Deps
from activities.drain import DrainActivities
from resources.machine import Phase
from resources.messages import DeleteIntent, DrainOutput
from resources.names import CORDON_ANNOTATION
from resources.settings import ClusterSettings, Settings
from simulator.frame import Call, FaultRule
from workflows.machine import MachineWorkflow

OTHER_VM = "aws:///eu-west-1/i-2"


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_world() as world:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(world.kube.kubeconfig())
        deps = Deps(Settings(clusters={"demo": ClusterSettings(kubeconfig=kubeconfig)}), temporal.client)
        await world.kube.create(NODES, {"metadata": {"name": NODE}, "spec": {"providerID": VM}})
        drain = Drain(world, DrainActivities(deps))
        await drain.node()
        try:
            yield drain
        finally:
            await deps.close()


# -- which pods --------------------------------------------------------------------------------------------------------


async def test_pods_are_evicted_and_some_are_left_alone(drain: Drain) -> None:
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-1", "controller": True}
    await drain.pod("web-1")
    await drain.pod("web-2")
    await drain.pod("daemon", ownerReferences=[daemon])
    await drain.pod("mirror", annotations={"kubernetes.io/config.mirror": "x"})
    await drain.pod("finished", phase="Succeeded")
    await drain.pod("failed", phase="Failed")
    await drain.pod("elsewhere", node="n-2")
    assert await drain.waits() == "0 of 2 pods gone, force at 14:05:00"
    assert drain.evicted() == ["web-1", "web-2"]
    await drain.stopped("web-1")
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05:00"
    await drain.stopped("web-2")
    assert await drain.once() == DrainOutput(pods=2)
    assert drain.evicted() == ["web-1", "web-2"]  # none twice
    assert len(drain.calls("delete pods")) == 2  # the kubelet's own
    assert await drain.names() == {"daemon", "mirror", "finished", "failed", "elsewhere"}


async def test_a_pod_that_is_going_is_not_evicted_again(drain: Drain) -> None:
    await drain.pod("going")
    (await drain.kube.call("DELETE", f"{PODS}/going")).ok()
    assert await drain.waits() == "0 of 1 pods gone, force at 14:05:00"
    assert drain.evicted() == []
    await drain.pod("staying")
    assert await drain.waits() == "0 of 2 pods gone, force at 14:05:00"
    assert drain.evicted() == ["staying"]


async def test_after_a_crash_nothing_is_evicted_twice(drain: Drain) -> None:
    """The heartbeat may be lost with the worker; what was evicted is read from the pods."""
    await drain.pod("web-1")
    await drain.waits()
    drain.heartbeat = ()
    await drain.pod("web-2")
    assert await drain.waits() == "0 of 2 pods gone, force at 14:05:00"
    assert drain.evicted() == ["web-1", "web-2"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_namesake_that_came_meanwhile_is_not_touched(drain: Drain, force: bool) -> None:
    """A StatefulSet's pod comes again under its name on another node, between our look and our call."""
    await drain.pod("web-0")
    slow = FaultRule(operation="create pods/eviction", delay=0.5)
    drain.world.frame.faults.append(slow)
    under_way = asyncio.create_task(drain.waits(force=force))
    await eventually(lambda: _hit(slow))
    await drain.stopped("web-0")
    fresh = await drain.pod("web-0", node="n-2")
    await under_way
    living = await drain.kube.get(f"{PODS}/web-0")
    assert living["metadata"]["uid"] == fresh["metadata"]["uid"]
    assert "deletionTimestamp" not in living["metadata"]
    assert [c.error for c in drain.calls("create pods/eviction")] == ["Conflict"]
    assert (await drain.once(force=force)).pods == 1


async def _hit(rule: FaultRule) -> int:
    return rule.hits


# -- what stands in the way --------------------------------------------------------------------------------------------


async def test_a_budget_blocks_and_is_named(drain: Drain) -> None:
    """Another budget, that does not select the pod, is not taken for it."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.pod("other")
    await drain.budget("a-wrong", {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, 5)
    await drain.budget("web", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})
    blocked = "default/web-1 blocked by PDB web (0 disruptions allowed), force at 14:05:00"
    assert await drain.waits() == f"0 of 2 pods gone; {blocked}"
    await drain.stopped("other")
    assert await drain.waits() == f"1 of 2 pods gone; {blocked}"
    await drain.budget("web", {}, allowed=1)
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05:00"
    assert drain.evicted() == ["other", "web-1", "web-1", "web-1"]
    assert [c.error for c in drain.calls("create pods/eviction")] == [None, "TooManyRequests", "TooManyRequests", None]


async def test_many_blocked_pods_are_counted(drain: Drain) -> None:
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    for n in range(5):
        await drain.pod(f"web-{n}", labels={"app": "web"})
    words = await drain.waits(deadline=None)
    assert words.startswith("0 of 5 pods gone; default/web-0 blocked by PDB web")
    assert words.endswith("; 2 more blocked")


async def test_two_budgets_on_one_pod(drain: Drain) -> None:
    """The eviction API answers 500 for good: it is said in words that help, and waits for the deadline."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("one", {"matchLabels": {"app": "web"}}, allowed=1)
    await drain.budget("two", {"matchLabels": {"app": "web"}}, allowed=1)
    words = "it has more than one PodDisruptionBudget, which the eviction API does not support"
    assert await drain.waits() == f"0 of 1 pods gone; default/web-1 blocked: {words}, force at 14:05:00"
    assert await drain.waits(force=True, deadline=None) == "0 of 1 pods gone"
    assert await drain.names() == set()


async def test_one_pods_trouble_does_not_hold_up_the_others(drain: Drain) -> None:
    await drain.pod("a-broken")
    await drain.pod("web-1")
    broken = FaultRule(operation="create pods/eviction", match="a-broken", code="InternalError", times=None)
    broken.message = "failed calling webhook pods.example.com"
    drain.world.frame.faults.append(broken)
    words = "default/a-broken blocked: failed calling webhook pods.example.com"
    assert await drain.waits() == f"0 of 2 pods gone; {words}, force at 14:05:00"
    assert (await drain.kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]
    await drain.waits(force=True)
    assert await drain.names() == set()


async def test_volumes_are_waited_for(drain: Drain) -> None:
    await drain.node(volumes=("kubernetes.io/csi/ebs^vol-2", "kubernetes.io/csi/ebs^vol-1"))
    words = "0 of 0 pods gone; waiting for 2 volumes to detach (kubernetes.io/csi/ebs^vol-1), force at 14:05:00"
    assert await drain.waits() == words
    forced = await drain.once(force=True)
    assert forced.left == [f"volume kubernetes.io/csi/ebs^vol-{n} still attached" for n in (1, 2)]
    await drain.node()
    assert await drain.once() == DrainOutput()


# -- force, and nodes that are dead ------------------------------------------------------------------------------------


async def test_force_evicts_before_it_kills(drain: Drain) -> None:
    """I12. One pod is free, one blocked, one going already; each is killed by its uid, with no grace."""
    uids = {}
    for name in ("blocked", "free", "going"):
        uids[name] = (await drain.pod(name, grace=3600, labels={"name": name}))["metadata"]["uid"]
    await drain.budget("b", {"matchLabels": {"name": "blocked"}})
    (await drain.kube.call("DELETE", f"{PODS}/going")).ok()
    since = drain.calls("*")[-1].n
    await drain.waits(force=True)
    done = [c for c in drain.world.frame.calls("kubernetes", "* pods*", since) if c.mutating]
    assert [(c.operation, c.request["path"].split("/")[6]) for c in done] == [
        ("create pods/eviction", "blocked"),
        ("delete pods", "blocked"),
        ("create pods/eviction", "free"),
        ("delete pods", "free"),
        ("delete pods", "going"),
    ]
    for call in done:
        if call.operation == "delete pods":
            name = call.request["path"].split("/")[6]
            assert call.request["body"] == {"gracePeriodSeconds": 0, "preconditions": {"uid": uids[name]}}
    assert (await drain.once(force=True)).pods == 3


async def test_force_does_not_wait_for_a_finalizer(drain: Drain) -> None:
    await drain.pod("held", finalizers=["example.com/hold"])
    assert await drain.waits(force=True, deadline=None) == "0 of 1 pods gone"
    await asyncio.sleep(1.1)  # its grace period has ended in the past: times are whole seconds
    forced = await drain.once(force=True)
    assert forced.left == ["default/held: still terminating after its grace period"]
    await drain.kube.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})


async def test_a_dead_kubelet_is_not_waited_for(drain: Drain) -> None:
    """Nobody will confirm that its pods have stopped, nor detach its volumes."""
    await drain.pod("web-1", grace=1)
    await drain.pod("slow", grace=3600)
    await drain.waits()
    await asyncio.sleep(2.1)  # web-1 is overdue; times are whole seconds
    for ready, minutes in (("True", 60), ("Unknown", 4)):
        await drain.node(ready, timedelta(minutes=minutes), volumes=("v",))
        assert (await drain.waits()).startswith("0 of 2 pods gone")
    await drain.node("Unknown", timedelta(minutes=6), volumes=("v",))
    assert (await drain.waits()).startswith("1 of 2 pods gone")  # the other still has its time
    await drain.stopped("slow")
    output = await drain.once()
    assert output.left == ["default/web-1: still terminating after its grace period", "volume v still attached"]
    assert sorted(drain.evicted()) == ["slow", "web-1"]


# -- the node ----------------------------------------------------------------------------------------------------------


async def test_a_node_that_is_gone_is_drained(drain: Drain) -> None:
    await drain.pod("web-1")
    await drain.kube.delete(f"{NODES}/{NODE}")
    assert await drain.once() == DrainOutput()
    assert drain.evicted() == []


async def test_another_vms_node_of_the_same_name_is_not_touched(drain: Drain) -> None:
    await drain.pod("web-1")
    assert await drain.once(provider_id=OTHER_VM) == DrainOutput()
    assert drain.evicted() == []
    assert drain.calls("patch nodes") == []
    await drain.waits(provider_id="aws:///eu-west-1a/i-1")  # our VM, as the cloud-controller-manager spells it
    assert drain.evicted() == ["web-1"]
    assert len(drain.calls("patch nodes")) == 1


async def test_the_cordon_is_marked_as_ours_once(drain: Drain) -> None:
    await drain.pod("web-1")
    for _ in range(3):
        await drain.waits()
    node = await drain.kube.get(f"{NODES}/{NODE}")
    assert node["spec"]["unschedulable"]
    assert node["metadata"]["annotations"][CORDON_ANNOTATION] == "m-1"
    assert len(drain.calls("patch nodes")) == 1


async def test_a_persons_cordon_stays_theirs(drain: Drain) -> None:
    """I10."""
    await drain.pod("web-1")
    theirs = await drain.kube.patch(f"{NODES}/{NODE}", {"spec": {"unschedulable": True}})
    await drain.waits()
    assert drain.evicted() == ["web-1"]
    assert (await drain.kube.get(f"{NODES}/{NODE}"))["metadata"] == theirs["metadata"]


# -- whole deletes -----------------------------------------------------------------------------------------------------


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
    """Ask for deletion; the words of the pending activity once the budget stands in the way."""
    state = await stack.phase(Phase.RUNNING)
    file = stack.kubeconfig.with_name("workload.json")
    file.write_text(workload(str(state.status.node_name)))
    stack.kubectl("create", "-f", str(file))

    async def protected() -> str:
        return stack.kubectl("get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}")

    await eventually(protected, lambda healthy: healthy == "1", "the budget's controller")
    intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="test")
    await stack.started["m-1"].execute_update(MachineWorkflow.delete, intent, id=intent.id)
    return await eventually(lambda: pending(stack.client, stack.started["m-1"].id), lambda w: w.startswith("1 of 2"))


async def pending(client: Client, workflow_id: str) -> str:
    described = await client.get_workflow_handle(workflow_id).describe()
    return next((p.last_failure.message for p in described.raw_description.pending_activities), "")


def kills(stack: Stack) -> list[Call]:
    """Of the blocked pod: evictions that were refused, then the deletion without grace."""
    calls = [c for c in stack.calls("*pods*", "kubernetes") if c.mutating and "/pods/web-1" in c.request["path"]]
    return [c for c in calls if c.operation in ("create pods/eviction", "delete pods") and "admin" in c.caller]


async def test_a_whole_delete_at_the_deadline(stack: Stack) -> None:
    """Field case P45: the budget is honoured until the deadline, to the second, and not a moment less."""
    await stack.create(drain_timeout=timedelta(seconds=8))
    words = await blocked(stack)
    expected = r"1 of 2 pods gone; default/web-1 blocked by PDB web \(0 disruptions allowed\), force at \d\d:\d\d:\d\d"
    assert re.fullmatch(expected, words)
    state = await stack.state()
    assert state.deletion is not None
    deadline = state.deletion.time + timedelta(seconds=8)
    assert f"{deadline:%H:%M:%S}" in words
    result = await asyncio.wait_for(stack.started["m-1"].result(), 60)
    *evictions, kill = kills(stack)
    assert {(c.operation, c.status) for c in evictions} == {("create pods/eviction", 429)}
    assert len(evictions) >= 2
    assert (kill.operation, kill.status) == ("delete pods", 200)
    assert evictions[-1].time > deadline.timestamp()  # the force pass asks once more before it kills
    reasons = [h.reason for h in result.journal]
    assert reasons[reasons.index("Terminating") :] == ["Terminating", "DrainForced", "Drained", "VMDeleted", "Gone"]
    assert stack.leftovers(state.uid) == {}


async def test_a_whole_delete_by_force(stack: Stack) -> None:
    """An operator insists while it is blocked: no waiting for the deadline, clean-up all the same."""
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
    assert forced.message == "force was asked for"
    assert stack.leftovers(uid) == {}

"""Draining: pass by pass against a simulated API server without controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from apiserver.simulated import NODES, PODS
from lifekit import eventually
from machine.drains import BUDGETS, NODE, Drain, new_drain
from temporalio.testing import WorkflowEnvironment

from activities.drain import nodes
from resources.calls.drain import DrainBlocked, DrainOutput
from resources.names import CORDON_ANNOTATION
from simulator.frame import Call, FaultRule

OTHER_VM = "aws:///eu-west-1/i-2"


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_drain(temporal.client, tmp_path) as drain:
        yield drain


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
    assert await drain.waits() == "0 of 2 pods gone, force at 14:05 UTC"
    assert sorted(drain.evicted()) == ["web-1", "web-2"]
    await drain.stopped("web-1")
    going = await drain.terminating("web-2")
    assert await drain.waits() == f"1 of 2 pods gone; {going}, force at 14:05 UTC"
    await drain.stopped("web-2")
    assert await drain.once() == DrainOutput(pods=2)
    assert sorted(drain.evicted()) == ["web-1", "web-2"]  # none twice
    assert len(drain.calls("delete pods")) == 2  # the kubelet's own
    assert await drain.names() == {"daemon", "mirror", "finished", "failed", "elsewhere"}


async def test_a_pod_that_is_going_is_not_evicted_again(drain: Drain) -> None:
    await drain.pod("going")
    (await drain.kube.call("DELETE", f"{PODS}/going")).ok()
    going = await drain.terminating("going")
    assert await drain.waits() == f"0 of 1 pods gone; {going}, force at 14:05 UTC"
    assert drain.evicted() == []
    await drain.pod("staying")
    assert await drain.waits() == f"0 of 2 pods gone; {going}, force at 14:05 UTC"
    assert drain.evicted() == ["staying"]


async def test_after_a_crash_nothing_is_evicted_twice(drain: Drain) -> None:
    """The heartbeat may be lost with the worker; what was evicted is read from the pods."""
    await drain.pod("web-1")
    await drain.waits()
    drain.heartbeat = ()
    await drain.pod("web-2")
    assert await drain.waits() == f"0 of 2 pods gone; {await drain.terminating('web-1')}, force at 14:05 UTC"
    assert drain.evicted() == ["web-1", "web-2"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_pod_that_the_cordon_does_not_keep_away_is_left_alone_when_it_comes_back(
    drain: Drain, force: bool
) -> None:
    """Evicted again it would come again, until the deadline and after it."""
    made = await drain.pod("web-1", tolerations=({"operator": "Exists"},))
    await drain.pod("web-2")
    began = datetime.fromisoformat(made["metadata"]["creationTimestamp"]) - timedelta(seconds=1)
    going = {"since": began, "force": force}
    assert (await drain.waits(**going)).startswith("0 of 1 pods gone")
    if not force:
        await drain.stopped("web-2")
    back = "default/web-1: came back: it tolerates the cordon"
    assert await drain.once(**going) == DrainOutput(pods=1, left=[back])
    assert drain.evicted() == ["web-2"]
    assert await drain.names() == {"web-1"}
    drain.again()
    await drain.waits(since=began + timedelta(seconds=1.5))  # it was there, in the drain's first second
    assert drain.evicted() == ["web-2", "web-1"]


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
    """Another budget that does not select the pod is not taken for it."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.pod("other")
    await drain.budget("a-wrong", {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, 5)
    await drain.budget("web", {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})
    blocked = "default/web-1 blocked by PDB web (0 disruptions allowed), force at 14:05 UTC"
    assert await drain.waits() == f"0 of 2 pods gone; {blocked}"
    await drain.stopped("other")
    assert await drain.waits() == f"1 of 2 pods gone; {blocked}"
    await drain.budget("web", {}, allowed=1)
    drain.later(5)
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05 UTC"
    assert sorted(drain.evicted()) == ["other", "web-1", "web-1"]
    assert [c.error for c in drain.calls("create pods/eviction") if "web-1" in c.request["path"]] == [
        "TooManyRequests",
        None,
    ]


async def test_what_stays_in_the_way_is_told_to_the_machine_when_it_changes(
    drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the next pass gets rid of."""
    told = []

    async def tell(_: object, workflow_id: str, signal: str, news: DrainBlocked) -> bool:
        told.append((workflow_id, signal, news.message))
        return True

    monkeypatch.setattr(nodes, "tell_workflow", tell)
    web = "default/web-1 blocked by PDB web (0 disruptions allowed)"
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    await drain.waits()
    assert told == []
    for _ in range(4):
        drain.later(5)
        await drain.waits()
    assert told == [("test", "drain_blocked", web)]
    await drain.pod("db-0", labels={"app": "web"})
    for _ in range(3):
        drain.later(60)
        await drain.waits()
    assert [message for *_, message in told] == [web, f"default/db-0 {web.split(' ', 1)[1]}; {web}"]


async def test_a_refused_pod_is_asked_again_ever_more_rarely(drain: Drain) -> None:
    """There is one pass every 5 s, and at most a minute between two tries: a budget that holds a node is not asked in a
    hot loop."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    asked = []
    for second in range(0, 300, 5):
        await drain.waits()
        if len(drain.evicted()) > len(asked):
            asked.append(second)
        drain.later(5)
    assert asked == [0, 5, 15, 35, 75, 135, 195, 255]


async def test_retry_after_is_kept_to(drain: Drain) -> None:
    """The budget's controller has not seen it yet: the API server says when to come again (10 s)."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.kube.create(
        BUDGETS, {"metadata": {"name": "new"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    )
    await drain.waits()
    for _ in range(2):
        drain.later(3)
        assert "default/web-1 blocked by PDB new (0 disruptions allowed)" in await drain.waits()
    assert drain.evicted() == ["web-1"]
    drain.later(5)
    await drain.waits()
    assert drain.evicted() == ["web-1", "web-1"]


async def test_a_busy_api_server_is_no_budget(drain: Drain) -> None:
    """It answers 429 too. The pod's budget has nothing to do with it, and is not blamed."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=1)
    busy = FaultRule(operation="create pods/eviction", code="TooManyRequests")
    busy.message = "Too many requests, please try again later."
    drain.world.frame.faults.append(busy)
    words = "default/web-1 blocked: the API server asks to try again later"
    assert await drain.waits() == f"0 of 1 pods gone; {words}, force at 14:05 UTC"
    drain.later(60)
    assert await drain.waits() == "0 of 1 pods gone, force at 14:05 UTC"


async def test_a_budget_that_can_never_allow_it_is_named_once(drain: Drain) -> None:
    for n in range(2):
        await drain.pod(f"web-{n}", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}}, currentHealthy=2, expectedPods=2)
    blocked = "; ".join(f"default/web-{n} blocked by PDB web (0 disruptions allowed)" for n in range(2))
    advice = (
        "PDB web is misconfigured: all its pods are healthy (2 of 2), and still none may be evicted; "
        "lower its minAvailable, raise its maxUnavailable or add pods"
    )
    assert await drain.waits() == f"0 of 2 pods gone; {blocked}, force at 14:05 UTC; {advice}"


async def test_many_blocked_pods_are_counted(drain: Drain) -> None:
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    for n in range(5):
        await drain.pod(f"web-{n}", labels={"app": "web"})
    words = await drain.waits(deadline=None)
    assert words.startswith("0 of 5 pods gone; default/web-0 blocked by PDB web")
    assert words.endswith("; 2 more blocked")


async def test_two_budgets_on_one_pod(drain: Drain) -> None:
    """The eviction API answers 500 for good: the drain explains it helpfully, and waits for the deadline."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("one", {"matchLabels": {"app": "web"}}, allowed=1)
    await drain.budget("two", {"matchLabels": {"app": "web"}}, allowed=1)
    blocked = "default/web-1 blocked by PDBs one and two, force at 14:05 UTC"
    assert (
        await drain.waits()
        == f"0 of 1 pods gone; {blocked}; the eviction API allows one PDB per pod: delete all but one"
    )
    assert await drain.waits(force=True, deadline=None) == "0 of 1 pods gone"
    assert await drain.names() == set()


async def test_one_pods_trouble_does_not_hold_up_the_others(drain: Drain) -> None:
    await drain.pod("a-broken")
    await drain.pod("web-1")
    broken = FaultRule(operation="create pods/eviction", match="a-broken", code="InternalError", times=None)
    broken.message = "failed calling webhook pods.example.com"
    drain.world.frame.faults.append(broken)
    words = "default/a-broken blocked: failed calling webhook pods.example.com"
    assert await drain.waits() == f"0 of 2 pods gone; {words}, force at 14:05 UTC"
    assert (await drain.kube.get(f"{PODS}/web-1"))["metadata"]["deletionTimestamp"]
    await drain.waits(force=True)
    assert await drain.names() == set()


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
    done: dict[str, list[Call]] = {}
    for call in drain.world.frame.calls("kubernetes", "* pods*", since):
        if call.mutating:
            done.setdefault(call.request["path"].split("/")[6], []).append(call)
    asked = ["create pods/eviction", "delete pods"]
    told = {name: [c.operation for c in calls] for name, calls in done.items()}
    assert told == {"blocked": asked, "free": asked, "going": ["delete pods"]}
    for name, calls in done.items():
        assert calls[-1].request["body"] == {"gracePeriodSeconds": 0, "preconditions": {"uid": uids[name]}}
    assert (await drain.once(force=True)).pods == 3


async def test_force_after_refusals_asks_at_once(drain: Drain) -> None:
    """A back-off ends with the deadline."""
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    await drain.waits()
    await drain.waits(force=True)
    assert drain.evicted() == ["web-1", "web-1"]
    assert (await drain.once(force=True)).pods == 1


async def test_force_does_not_wait_for_a_finalizer(drain: Drain) -> None:
    await drain.pod("held", finalizers=["example.com/hold"])
    assert await drain.waits(force=True, deadline=None) == "0 of 1 pods gone"
    drain.later(60)  # its grace period has ended
    forced = await drain.once(force=True)
    assert forced.left == ["default/held: still terminating after its grace period"]
    await drain.kube.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})


async def test_nobody_waits_for_a_finalizer_for_two_hours(drain: Drain) -> None:
    """Its kubelet lives. After its grace period a pod gets two minutes, and all of this is said."""
    await drain.pod("held", finalizers=["example.com/hold"])
    await drain.waits()
    assert await drain.waits() == f"0 of 1 pods gone; {await drain.terminating('held')}, force at 14:05 UTC"
    drain.later(140)
    words = await drain.waits()
    assert words == f"0 of 1 pods gone; {await drain.terminating('held')}, force at 14:05 UTC"
    assert "past its grace of" in words
    drain.later(20)
    assert await drain.once() == DrainOutput(pods=1, left=["default/held: still terminating after its grace period"])
    await drain.kube.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})


async def test_a_dead_kubelet_is_not_waited_for(drain: Drain) -> None:
    """Field case P47. Nobody will confirm that its pods have stopped, nor detach its volumes: even a grace period of an
    hour is not waited for, whether it has begun already or not."""
    await drain.claim("data")
    await drain.attach("data")
    await drain.stateful("db-0", "data", grace=3600)
    await drain.pod("going", grace=3600)
    (await drain.kube.call("DELETE", f"{PODS}/going")).ok()
    await drain.pod("web-1", grace=3600, labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    for ready, minutes in (("True", 60), ("Unknown", 4)):
        await drain.node(ready, timedelta(minutes=minutes), volumes=("v",))
        assert (await drain.waits()).startswith("0 of 3 pods gone; default/web-1 blocked by PDB web")
    await drain.pod("other", grace=3600)
    await drain.node("Unknown", timedelta(minutes=6), volumes=("v",))
    await drain.waits()
    drain.later(60)
    assert (await drain.waits()).startswith("3 of 4 pods gone; default/web-1 blocked by PDB web")  # I12
    await drain.budget("web", {}, allowed=1)
    drain.later(60)
    await drain.waits()
    drain.later(60)
    output = await drain.once()
    names = ("db-0", "going", "other", "web-1")
    overdue = [f"default/{name}: still terminating after its grace period" for name in names]
    assert output.left == [*overdue, "volume pv-data still attached"]
    graces = {
        c.request["path"].split("/")[6]: c.request["body"]["deleteOptions"].get("gracePeriodSeconds")
        for c in drain.calls("create pods/eviction")
    }
    assert graces == {"db-0": None, "other": 1, "web-1": 1}
    assert len(drain.calls("delete *")) == 1  # ours, in the beginning


async def test_a_dead_kubelet_is_drained_within_two_minutes(drain: Drain) -> None:
    """Field case P47: four pods that nobody will ever end, two with volumes, one behind a budget that lets it go."""
    for name in ("a", "b"):
        await drain.claim(name)
        await drain.attach(name)
        await drain.stateful(f"db-{name}", name, grace=3600)
    await drain.pod("web-1", grace=3600, labels={"app": "web"})
    await drain.pod("web-2", grace=3600)
    await drain.budget("web", {"matchLabels": {"app": "web"}}, allowed=1)
    await drain.node("Unknown", timedelta(minutes=6))
    await drain.waits()
    drain.later(60)
    assert (await drain.once()).pods == 4


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

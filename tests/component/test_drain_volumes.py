"""Pods with volumes, pass by pass: one at a time, each waited for until its volumes are attached elsewhere."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.simulated import PODS, STRATEGIC, pod
from machine.drains import ATTACHMENTS, CSI, NODE, Drain, new_drain
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from resources.calls.drain import DrainOutput
from simulator.frame import FaultRule

DETACHING = r"waiting for volume pv-a of default/db-a to detach \(until \d\d:\d\d(:\d\d)? UTC\)"
ATTACHING = r"waiting for volume pv-a of default/db-a to attach to another node \(until \d\d:\d\d(:\d\d)? UTC\)"
NEXT = "; 1 pod with volumes waits for default/db-a, force at 14:05 UTC"
OTHER = "n-2"


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_drain(temporal.client, tmp_path) as drain:
        yield drain


async def databases(drain: Drain, *names: str, **fields: Any) -> None:
    """Pods db-<name>, each with a volume of its own."""
    for name in names:
        await drain.claim(name)
        await drain.attach(name)
        await drain.stateful(f"db-{name}", name, **fields)


# -- one at a time -----------------------------------------------------------------------------------------------------


async def test_one_pod_after_the_other_and_what_is_waited_for(drain: Drain) -> None:
    await databases(drain, "a", "b")
    assert await drain.waits() == f"0 of 2 pods gone{NEXT}"
    assert drain.evicted() == ["db-a"]
    drain.later(5)
    assert await drain.waits() == f"0 of 2 pods gone; {await drain.terminating('db-a')}{NEXT}"
    await drain.stopped("db-a")
    assert re.fullmatch(f"1 of 2 pods gone; {DETACHING}{NEXT}", await drain.waits())
    await drain.detach("a")
    assert re.fullmatch(f"1 of 2 pods gone; {ATTACHING}{NEXT}", await drain.waits())
    await drain.attach("a", node=OTHER, attached=False)
    assert re.fullmatch(f"1 of 2 pods gone; {ATTACHING}{NEXT}", await drain.waits())
    assert drain.evicted() == ["db-a"]
    await drain.kube.patch(f"{_attachment('a', OTHER)}/status", {"status": {"attached": True}})
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05 UTC"
    assert drain.evicted() == ["db-a", "db-b"]
    await drain.stopped("db-b")
    await drain.detach("b")
    await drain.attach("b", node=OTHER)
    assert await drain.once() == DrainOutput(pods=2)
    assert drain.evicted() == ["db-a", "db-b"]


def _attachment(claim: str, node: str = NODE) -> str:
    return f"{ATTACHMENTS}/csi-{claim}-{node}"


async def test_the_highest_priority_goes_first(drain: Drain) -> None:
    """Then it goes by name. The pods without volumes do not wait for them, nor they for those."""
    await databases(drain, "a", "b", priority=5)
    await databases(drain, "c", priority=1000)
    await databases(drain, "d")
    await drain.pod("web-1")
    await drain.pod("web-2")
    order = ["db-c", "db-a", "db-b", "db-d"]
    for n, name in enumerate(order):
        await drain.waits()
        assert [p for p in drain.evicted() if p.startswith("db-")] == order[: n + 1]
        await drain.stopped(name)
        await drain.detach(name.removeprefix("db-"))
        await drain.attach(name.removeprefix("db-"), node=OTHER)
    assert set(drain.evicted()) == {*order, "web-1", "web-2"}
    for name in ("web-1", "web-2"):
        assert sum(p == name for p in drain.evicted()) == 1
        await drain.stopped(name)
    assert (await drain.once()).pods == 6


async def test_one_that_a_budget_holds_does_not_hold_the_next(drain: Drain) -> None:
    """MCM: it is tried again after the whole list."""
    await databases(drain, "a", priority=5)
    await drain.kube.patch(f"{PODS}/db-a", {"metadata": {"labels": {"app": "a"}}})
    await databases(drain, "b")
    await drain.budget("a", {"matchLabels": {"app": "a"}})
    blocked = "default/db-a blocked by PDB a (0 disruptions allowed)"
    assert await drain.waits() == f"0 of 2 pods gone; {blocked}, force at 14:05 UTC"
    assert drain.evicted() == ["db-a", "db-b"]
    await drain.budget("a", {}, allowed=1)
    drain.later(5)
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]  # its turn comes when the other has arrived
    await drain.stopped("db-b")
    await drain.detach("b")
    await drain.attach("b", node=OTHER)
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b", "db-a"]


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_detaching_is_waited_for_no_longer_than_its_grace_and_two_minutes(drain: Drain) -> None:
    await databases(drain, "a", "b", grace=60)
    await drain.waits()
    await drain.stopped("db-a")
    drain.later(175)
    assert re.fullmatch(f"1 of 2 pods gone; {DETACHING}{NEXT}", await drain.waits())
    assert drain.evicted() == ["db-a"]
    drain.later(15)
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]


async def test_a_pod_that_does_not_stop_holds_the_others_no_longer_than_that(drain: Drain) -> None:
    """Nor is it waited for itself any longer."""
    await databases(drain, "a", "b", grace=60)
    await drain.waits()
    drain.later(175)
    assert await drain.waits() == f"0 of 2 pods gone; {await drain.terminating('db-a')}{NEXT}"
    assert drain.evicted() == ["db-a"]
    drain.later(60)
    assert await drain.waits() == "1 of 2 pods gone, force at 14:05 UTC"
    assert drain.evicted() == ["db-a", "db-b"]
    await drain.stopped("db-b")
    await drain.detach("b")
    await drain.attach("b", node=OTHER)
    await drain.waits()
    drain.later(130)
    left = (await drain.once()).left
    assert left == ["default/db-a: still terminating after its grace period", "volume pv-a still attached"]


async def test_attaching_elsewhere_is_waited_for_no_longer_than_ninety_seconds(drain: Drain) -> None:
    """There may be no room for the pod anywhere."""
    await databases(drain, "a", "b")
    await drain.waits()
    await drain.stopped("db-a")
    await drain.detach("a")
    await drain.waits()
    drain.later(80)
    assert re.fullmatch(f"1 of 2 pods gone; {ATTACHING}{NEXT}", await drain.waits())
    assert drain.evicted() == ["db-a"]
    drain.later(20)
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]


async def test_what_is_attached_in_the_end_is_waited_for_two_minutes(drain: Drain) -> None:
    """It would be torn off with the VM. The node itself may show what has no VolumeAttachment."""
    await drain.node(volumes=("kubernetes.io/csi/ebs^vol-2", "kubernetes.io/csi/ebs^vol-1"))
    words = await drain.waits()
    expected = "0 of 0 pods gone; waiting for volume kubernetes.io/csi/ebs^vol-1 and 1 more to detach (until "
    assert words.startswith(expected)
    drain.later(110)
    assert await drain.waits() == words
    drain.later(20)
    assert (await drain.once()).left == [f"volume kubernetes.io/csi/ebs^vol-{n} still attached" for n in (1, 2)]
    await drain.node()
    assert await drain.once() == DrainOutput()


# -- which volumes -----------------------------------------------------------------------------------------------------


async def test_a_volume_that_a_daemon_uses_stays_attached(drain: Drain) -> None:
    """Its pod is left alone, so nobody detaches it; the one beside it is waited for."""
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-1", "controller": True}
    for name in ("daemon", "other"):
        await drain.claim(name)
        await drain.attach(name)
    body = pod("daemon", NODE)
    body["metadata"]["ownerReferences"] = [daemon]
    body["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "daemon"}}]
    await drain.kube.create(PODS, body)
    await drain.node(volumes=(f"kubernetes.io/csi/{CSI}^vol-daemon", f"kubernetes.io/csi/{CSI}^vol-other"))
    assert (await drain.waits()).startswith("0 of 0 pods gone; waiting for volume pv-other to detach")
    await drain.detach("other")
    assert "vol-other to detach" in await drain.waits()
    await drain.node(volumes=(f"kubernetes.io/csi/{CSI}^vol-daemon",))
    assert await drain.once() == DrainOutput()


async def test_a_generic_ephemeral_volume_goes_with_its_pod(drain: Drain) -> None:
    """It detaches like any other, and is never attached again."""
    await drain.claim("a-job-scratch")
    await drain.attach("a-job-scratch")
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    body = pod("a-job", NODE)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    body["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    await drain.kube.create(PODS, body)
    await drain.kube.patch(f"{PODS}/a-job/status", {"status": {"phase": "Running"}}, STRATEGIC)
    await databases(drain, "z")
    await drain.waits()
    await drain.stopped("a-job")
    await drain.unclaim("a-job-scratch")  # what the garbage collector does
    assert "waiting for volume pv-a-job-scratch of default/a-job to detach" in await drain.waits()
    assert drain.evicted() == ["a-job"]
    await drain.detach("a-job-scratch")
    await drain.waits()
    assert drain.evicted() == ["a-job", "db-z"]


async def test_a_pod_that_nobody_makes_again_is_not_waited_for_elsewhere(drain: Drain) -> None:
    await drain.claim("a")
    await drain.attach("a")
    body = pod("db-a", NODE)
    body["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]
    await drain.kube.create(PODS, body)
    await databases(drain, "b")
    await drain.waits()
    await drain.stopped("db-a")
    assert re.fullmatch(f"1 of 2 pods gone; {DETACHING}{NEXT}", await drain.waits())
    await drain.detach("a")
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]


async def test_the_nodes_own_list_counts_as_well(drain: Drain) -> None:
    """The VolumeAttachment may be gone while the node's status still has the volume, or the other way round."""
    await databases(drain, "a", "b")
    await drain.node(volumes=(f"kubernetes.io/csi/{CSI}^vol-a",))
    await drain.waits()
    await drain.stopped("db-a")
    await drain.detach("a")
    await drain.attach("a", node=OTHER)
    assert re.fullmatch(f"1 of 2 pods gone; {DETACHING}{NEXT}", await drain.waits())
    await drain.node()
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-b"]


# -- a worker dies -----------------------------------------------------------------------------------------------------


async def test_killed_after_the_eviction_the_pod_itself_tells(drain: Drain) -> None:
    """Field case P51."""
    await databases(drain, "a", "b")
    await drain.waits()
    drain.heartbeat = ()
    drain.killed()
    await drain.waits()
    assert drain.evicted() == ["db-a"]
    await drain.stopped("db-a")
    assert re.fullmatch(f"1 of 2 pods gone; {DETACHING}{NEXT}", await drain.waits())
    await drain.detach("a")
    assert re.fullmatch(f"1 of 2 pods gone; {ATTACHING}{NEXT}", await drain.waits())
    assert drain.evicted() == ["db-a"]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("how", ["killed", "again"])
async def test_killed_and_the_pod_is_gone_its_volume_tells(drain: Drain, how: str, keep: bool) -> None:
    """Field case P53: the worker may have been on this very node. Also when the workflow starts the activity again."""
    await databases(drain, "a", "b")
    await drain.waits(keep=keep)
    drain.heartbeat = ()
    getattr(drain, how)()
    await drain.stopped("db-a")
    words = await drain.waits(keep=keep)
    assert re.search(r"waiting for volume pv-a to detach \(until .*; 1 pod with volumes waits for volume pv-a,", words)
    assert drain.evicted() == ["db-a"]
    await drain.detach("a")
    await drain.waits(keep=keep)
    assert drain.evicted() == ["db-a", "db-b"]


async def test_an_eviction_without_an_answer_is_not_forgotten(drain: Drain) -> None:
    """The call had its effect, the answer was lost, and the pod is gone when the next pass looks."""
    await databases(drain, "a", "b")
    lost = FaultRule(operation="create pods/eviction", drop=True)
    drain.world.frame.faults.append(lost)
    with pytest.raises(ApplicationError, match="cannot be reached"):
        await drain.once()
    await drain.stopped("db-a")
    assert "waiting for volume pv-a to detach" in await drain.waits()
    assert drain.evicted() == ["db-a"]


async def test_one_failing_call_does_not_lose_what_the_others_did(drain: Drain) -> None:
    """A budget's refusal is remembered although the next call of the same pass finds no API server."""
    await drain.pod("a", labels={"app": "web"})
    await drain.pod("b")
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    drain.world.frame.faults.append(FaultRule(operation="create pods/eviction", match="/b/", drop=True, delay=0.5))
    with pytest.raises(ApplicationError, match="cannot be reached"):
        await drain.once()
    assert (await drain.waits()).startswith("0 of 2 pods gone; default/a blocked by PDB web")
    assert sorted(drain.evicted()) == ["a", "b"]


# -- force, and machines that stay -------------------------------------------------------------------------------------


async def test_p75_force_does_not_wait_for_volumes_which_are_detached_when_the_vm_is_gone(drain: Drain) -> None:
    """A VM that is out of reach may still write; if a volume were attached elsewhere meanwhile, its file system would
    be lost (Kubernetes, non-graceful node shutdown). Attachments to other nodes are not ours."""
    await databases(drain, "a", "b")
    await drain.claim("c")
    await drain.attach("c", node=OTHER)
    await drain.waits()
    await drain.waits(force=True)
    assert await drain.names() == set()
    assert await drain.attached() == {"pv-a", "pv-b"}
    forced = await drain.once(force=True)
    assert forced.left == ["volume pv-a still attached", "volume pv-b still attached"]
    assert await drain.attached() == {"pv-a", "pv-b"}
    assert drain.calls("delete volumeattachments") == []
    await drain.forget()  # the cloud has confirmed it gone
    assert await drain.attached() == set()
    assert (await drain.kube.call("GET", _attachment("c", OTHER))).status == 200


@pytest.mark.parametrize("force", [False, True])
async def test_of_a_machine_that_stays_nothing_is_torn_off(drain: Drain, force: bool) -> None:
    """It may be preserved: its pods move; what else is attached stays attached, and nobody waits for it."""
    await databases(drain, "a")
    await drain.claim("stays")
    await drain.attach("stays")
    assert (await drain.waits(keep=True, force=force)).startswith("0 of 1 pods gone")
    if not force:
        await drain.stopped("db-a")
        assert re.search(DETACHING, await drain.waits(keep=True))
        await drain.detach("a")
        await drain.attach("a", node=OTHER)
    assert await drain.once(keep=True, force=force) == DrainOutput(pods=1)
    assert await drain.attached() == ({"pv-a", "pv-stays"} if force else {"pv-stays"})
    drain.again()
    await drain.once(force=True)  # nor is it of one that is to go, before its VM has gone
    assert await drain.attached() == ({"pv-a", "pv-stays"} if force else {"pv-stays"})


async def test_one_slow_eviction_does_not_hold_up_the_others(drain: Drain) -> None:
    for name in ("a-slow", "b", "c"):
        await drain.pod(name)
    drain.world.frame.faults.append(FaultRule(operation="create pods/eviction", match="a-slow", delay=3))
    await drain.waits()
    assert drain.evicted()[-1] == "a-slow"  # in the order in which they were answered
    assert sorted(drain.evicted()) == ["a-slow", "b", "c"]

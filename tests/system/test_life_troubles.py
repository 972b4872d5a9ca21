"""What goes wrong with a machine that was Running, as an operator meets it: on the real driver, the real Kubernetes
client, Temporal, and a simulated cloud and cluster.

Decisions alone are in test_planner_health.py, their timing on stubs in test_machine_health.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from lifekit import Stack, eventually, new_stack
from machine.lives import (
    described,
    details,
    fault,
    instance,
    knobs,
    node,
    nothing_is_left,
    reasons,
    story,
    time_is_up,
    told,
)
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from watchkit import Door

import activities.drain.nodes
from resources.machine.state import MachineState, Phase
from resources.timings import Timings

SOON = timedelta(seconds=5)  # healthTimeout of a machine that should fail
HOUR = timedelta(hours=1)
LATE = timedelta(seconds=3)  # how much later than its deadline a decision may come on a busy machine
POD = {"terminationGracePeriodSeconds": 1}


async def with_a_pod(stack: Stack, name: str = "m-1", **spec: Any) -> MachineState:
    """A machine that is Running, and the pod `web` on its node."""
    await stack.create(name, **spec)
    running = await stack.phase(Phase.RUNNING, name)
    pod = json.dumps({"spec": {"nodeName": running.status.node_name, **POD}})
    stack.kubectl("run", "web", "--image=i", f"--overrides={pod}")

    async def serves() -> bool:
        return await stack.kubectl_beside("get", "pod", "web", "-o", "jsonpath={.status.phase}") == "Running"

    await eventually(serves, what="the pod running")
    return running


async def soon(stack: Stack, *names: str) -> datetime:
    """Lets the health deadline of these machines, which are ill, come in a moment; returns the last one. What comes
    before it has had all the time that a busy computer takes."""
    deadlines = []
    for name in names:
        illness = (await stack.state(name)).illness
        assert illness is not None
        timeout = timedelta(seconds=ceil((datetime.now(UTC) - illness.began + SOON).total_seconds()))
        await time_is_up(stack, name, health_timeout=timeout)
        deadlines.append(illness.began + timeout)
    return max(deadlines)


async def called(handle: WorkflowHandle[Any, Any], activity: str) -> int:
    """How often the life has called it; retries of the same call count once."""
    scheduled = [
        e.activity_task_scheduled_event_attributes.activity_type.name async for e in handle.fetch_history_events()
    ]
    return scheduled.count(activity)


# -- unhealthy for too long --------------------------------------------------------------------------------------------


@pytest.mark.core
async def test_a_kubelet_dies(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown, two fresh looks, Failed and drained there; every page says what, why and what can be done."""
    monkeypatch.setattr(activities.drain.nodes, "DEAD_AFTER", timedelta(seconds=2))  # otherwise 5 min
    running = await with_a_pod(stack, health_timeout=HOUR)
    node_name = str(running.status.node_name)
    knobs(stack, dies_after=0.0)
    unknown = await stack.phase(Phase.UNKNOWN)
    assert unknown.illness is not None
    late = unknown.illness.began + HOUR
    assert unknown.status.deadlines["health"] == late
    assert f"Failed at {late:%Y-%m-%d %H:%M:%S}" in await described(stack)

    deadline = await soon(stack, "m-1")
    failed = await stack.reason("HealthTimeout")
    (looks,) = [h.message for h in failed.journal if h.reason == "ConfirmingFailure"]
    assert "a second look at Node, Lease and VM decides" in looks
    (when,) = [h.time for h in failed.journal if h.reason == "HealthTimeout"]
    assert timedelta(0) <= when - deadline < LATE  # I7
    handle = stack.started["m-1"]
    assert [await called(handle, a) for a in ("look_at_node", "look_at_vm", "drain_node")] == [2, 2, 1]
    assert reasons(failed)[-5:] == ["NodeNotReady", "Applied", "ConfirmingFailure", "HealthTimeout", "Drained"]
    assert "default/web: still terminating after its grace period" in failed.journal[-1].message

    for said in (await described(stack), await details(handle)):
        for words in ("Failed", "NodeStatusUnknown", "two fresh looks", "Lease last renewed at", "VM running"):
            assert words in said
        assert "hostler recreate machine m-1 --cluster demo" in said
    assert [e.reason for e in await story(stack) if e.reason in reasons(failed)] == reasons(failed)
    assert (await told(stack, node_name)).items() >= {"NodeNotReady": "Warning", "HealthTimeout": "Warning"}.items()
    assert node(stack, node_name)["spec"]["unschedulable"]

    await nothing_is_left(stack, running)
    assert await called(handle, "drain_node") == 2  # the second is a last look before the VM goes


@pytest.mark.exhaustive  # of the kubelet that dies; that its Node is missing is conformance's, with stubs
async def test_p07_the_node_is_deleted_and_its_kubelet_is_dead(stack: Stack) -> None:
    """Its kubelet does not register it again: Failed. (One whose kubelet lives: tests/component/conformance, P07.)"""
    await stack.create(health_timeout=HOUR)
    running = await stack.phase(Phase.RUNNING)
    node_name = str(running.status.node_name)
    knobs(stack, dies_after=0.0)
    stack.kubectl("delete", "node", node_name)
    missing = await stack.reason("NodeMissing")
    assert missing.status.phase == Phase.UNKNOWN
    assert f"node {node_name} was deleted by somebody" in await described(stack)
    await soon(stack, "m-1")
    failed = await stack.reason("HealthTimeout")
    assert failed.status.waiting_for is not None
    assert (
        f"node {node_name} was deleted by somebody (confirmed by two fresh looks" in failed.status.waiting_for.message
    )
    assert stack.launched() == [instance(running)]
    await nothing_is_left(stack, running)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        pytest.param("terminate", {"VMNotRunning", "VMNotFound"}, id="terminate"),
        pytest.param("stop", {"VMNotRunning"}, id="stop", marks=pytest.mark.exhaustive),
    ],
)
async def test_a_vm_ends_behind_our_back_and_stays_so(stack: Stack, ends: str, said: set[str]) -> None:
    """Its drain does not wait for a kubelet that no longer exists: the drain deadline is two minutes away.

    A terminated VM may be seen while it goes, or only when the cloud no longer finds it.
    """
    running = await with_a_pod(stack, health_timeout=SOON)
    if ends == "stop":
        stack.ec2().stop_instances(InstanceIds=[instance(running)])
    else:
        stack.ec2().terminate_instances(InstanceIds=[instance(running)])
    failed = await stack.reason("HealthTimeout")
    assert said & set(reasons(failed))
    assert failed.status.waiting_for is not None
    assert f"{instance(running)} is {'stopped' if ends == 'stop' else 'gone'} (confirmed by two fresh looks" in (
        failed.status.waiting_for.message
    )
    (drained,) = [h for h in failed.journal if h.reason == "Drained"]
    assert "default/web: still terminating after its grace period" in drained.message
    assert "DrainForced" not in reasons(failed)
    assert stack.launched() == [instance(running)]  # nothing takes its place on its own
    await nothing_is_left(stack, running)


# -- and back ----------------------------------------------------------------------------------------------------------


async def test_ready_again_between_the_two_looks(stack: Stack) -> None:
    between = timedelta(minutes=10)  # as long as it takes until it was seen and the node is well again
    timings = Timings.fast().model_copy(update={"confirm": between})
    await stack.create(health_timeout=between + timedelta(seconds=2), timings=timings)
    running = await stack.phase(Phase.RUNNING)
    knobs(stack, unready=True)
    await stack.reason("ConfirmingFailure")
    knobs(stack, unready=False)
    again = await stack.phase(Phase.RUNNING)
    assert reasons(again)[-2:] == ["ConfirmingFailure", "Recovered"]
    assert again.status.deadlines == {}
    assert again.suspicion is None
    assert again.status.waiting_for is None
    assert stack.launched() == [instance(running)]


# -- an API server that cannot be reached ------------------------------------------------------------------------------


@asynccontextmanager
async def behind_a_door(temporal: WorkflowEnvironment) -> AsyncIterator[tuple[Stack, Door]]:
    """A stack whose worker reaches the API server through a door; kubelets and kubectl do not."""
    async with new_stack(temporal.client) as stack:
        url = stack.simulator.simulator.kube_url
        door = Door(url)
        await door.open()
        settings = stack.settings.path(Path("kubeconfig"))
        direct = stack.kubeconfig.read_text()
        settings.write_text(direct.replace(url, f"https://127.0.0.1:{door.port}"))
        try:
            async with stack.worker():
                yield stack, door
        finally:
            door.shut()


async def test_an_outage_longer_than_the_health_timeout_fails_nobody(temporal: WorkflowEnvironment) -> None:
    """I5: not even the machine whose deadline passed meanwhile, nor when all Nodes are Unknown as the server comes
    back, because no kubelet could report. A machine that is really ill is Failed then, by fresh looks."""
    async with behind_a_door(temporal) as (stack, door):
        for name in ("well", "mends", "ill"):
            await stack.create(name, health_timeout=HOUR)
        for name in ("well", "mends", "ill"):
            await stack.phase(Phase.RUNNING, name)
        for name in ("mends", "ill"):
            knobs(stack, name, unready=True)
        for name in ("mends", "ill"):
            await stack.phase(Phase.UNKNOWN, name)
        door.shut()
        for what in (
            "leases",
            "nodes/status",
        ):  # the kubelets are not heard either, nor is it written that they are silent
            fault(stack, service="kubernetes", operation=f"patch {what}", code="ServiceUnavailable", times=None)
        overdue = await soon(stack, "mends", "ill")
        for name in ("mends", "ill"):
            waits = await stack.reason("CannotConfirm", name)
            assert waits.status.phase == Phase.UNKNOWN
            assert "nothing is decided on stale information" in await described(stack, name)
        assert (await stack.phase(Phase.UNKNOWN, "mends")).suspicion is None
        await eventually(_now, lambda now: now > overdue + SOON, "an outage as long again")
        assert (await stack.state("well")).status.phase == Phase.RUNNING

        for what in ("leases", "nodes/status"):
            assert stack.calls(f"patch {what}", "kubernetes")[-1].error == "ServiceUnavailable"
        knobs(stack, "mends", unready=False)
        stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
        await door.open()
        ill = await stack.phase(Phase.FAILED, "ill")
        for name in ("mends", "well"):
            running = await stack.phase(Phase.RUNNING, name)
            assert "HealthTimeout" not in reasons(running)
        mended = await stack.state("mends")
        assert {"CannotConfirm", "Recovered"} <= set(reasons(mended))
        assert reasons(ill).index("CannotConfirm") < reasons(ill).index("HealthTimeout")
        assert len(stack.launched()) == 3


async def _now() -> datetime:
    return datetime.now(UTC)


async def test_an_outage_over_the_creation_deadline_fails_nobody(temporal: WorkflowEnvironment) -> None:
    """The node joins meanwhile, and nobody hears of it; a machine whose node never joins is Failed when that can be
    read."""
    async with behind_a_door(temporal) as (stack, door):
        knobs(stack, "joins", join_delay=3600)
        knobs(stack, "never", never_joins=True)
        for name in ("joins", "never"):
            await stack.create(name, creation_timeout=HOUR)
        for name in ("joins", "never"):
            await stack.reason("NodeNotSeen", name)
        door.shut()
        knobs(stack, "joins", join_delay=0)
        for name in ("joins", "never"):
            await time_is_up(stack, name, creation_timeout=SOON)
        for name in ("joins", "never"):
            waits = await stack.reason("CannotConfirm", name)
            assert waits.status.phase == Phase.PENDING
            assert waits.created is not None
            assert datetime.now(UTC) > waits.created + SOON
        await door.open()
        never = await stack.phase(Phase.FAILED, "never")
        joins = await stack.phase(Phase.RUNNING, "joins")
        assert "CannotConfirm" in reasons(joins)
        assert reasons(never)[-3:] == ["CannotConfirm", "CreationGoesOn", "CreationTimeout"]


# -- no worker ---------------------------------------------------------------------------------------------------------


async def test_without_a_worker_for_longer_than_the_health_timeout(temporal: WorkflowEnvironment) -> None:
    """All timers have fired when a worker comes: a machine that is well again by then is Running, one that is not is
    Failed."""
    async with new_stack(temporal.client) as stack:
        async with stack.worker():
            for name in ("mends", "ill"):
                await stack.create(name, health_timeout=HOUR)
                await stack.phase(Phase.RUNNING, name)
                knobs(stack, name, unready=True)
            for name in ("mends", "ill"):
                await stack.phase(Phase.UNKNOWN, name)
            deadline = await soon(stack, "mends", "ill")
        knobs(stack, "mends", unready=False)
        await eventually(_now, lambda now: now > deadline, "the deadlines over")
        async with stack.worker():
            mended = await stack.phase(Phase.RUNNING, "mends")
            ill = await stack.phase(Phase.FAILED, "ill")
        assert "HealthTimeout" not in reasons(mended)
        (when,) = [h.time for h in ill.journal if h.reason == "HealthTimeout"]
        assert when > deadline

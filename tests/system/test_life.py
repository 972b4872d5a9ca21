"""One machine's whole life on real parts: Temporal, the AWS driver on the simulated EC2, the Kubernetes API."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lifekit import CLUSTER, Stack, eventually, examples, new_stack, plant
from machine.lives import fault, knobs, node
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from watchkit import Door

from resources.errors import Code
from resources.machine.manifest import NodeTemplate
from resources.machine.state import MachineResult, OperationState, OperationType, Phase
from resources.names import INSTANCE_NOT_READY_TAINT, MACHINE_NAME_LABEL

RUNNING_EVENTS, LIFE_EVENTS = 50, 90


async def history(handle: WorkflowHandle[object, object]) -> list[str]:
    return [EventType.Name(e.event_type)[11:] async for e in handle.fetch_history_events()]


def cost(events: list[str]) -> int:
    """Events of a life that was told of its node twice: joined, and Ready. How many of a kubelet's reports in between
    are seen separately is chance; each further one is a signal and a workflow task."""
    return len(events) - 4 * max(0, events.count("WORKFLOW_EXECUTION_SIGNALED") - 2)


@pytest.mark.core
async def test_from_birth_to_the_last_disk(stack: Stack) -> None:
    handle = await stack.create()
    running = await stack.phase(Phase.RUNNING)
    status = running.status
    assert status.last_operation is not None
    assert (status.last_operation.type, status.last_operation.state) == (
        OperationType.CREATE,
        OperationState.SUCCESSFUL,
    )
    assert status.node_name is not None
    seen = node(stack, status.node_name)
    assert seen["spec"]["providerID"] == status.provider_id
    assert INSTANCE_NOT_READY_TAINT not in json.dumps(seen["spec"])
    labels = seen["metadata"]["labels"]
    assert labels[MACHINE_NAME_LABEL] == "m-1"
    assert labels["worker.hostler.io/pool"] == "demo"
    assert len(stack.launched()) == 1
    assert sorted(stack.leftovers(running.uid)) == ["instances", "networkInterfaces", "volumes"]
    assert "bootstrap-token" not in stack.kubectl("get", "secrets", "-n", "kube-system")

    result = await stack.delete()
    assert isinstance(result, MachineResult)
    assert result.kept == []
    assert stack.leftovers(running.uid) == {}
    assert status.node_name not in stack.kubectl("get", "nodes", "-o", "name")
    assert [h.reason for h in result.journal] == [
        "Created",
        "VMCreated",
        "PostStartUpdated",
        "NodeJoined",
        "Running",
        "Terminating",
        "Drained",
        "VMDeleted",
        "Gone",
    ]
    cluster = await stack.client.get_workflow_handle(f"cluster/{CLUSTER}").query("describe")
    assert cluster["machines"] == {}
    assert cost(await history(handle)) <= LIFE_EVENTS


async def test_events_of_a_life_are_few(stack: Stack) -> None:
    """They are counted, because history is what a long life costs. Heartbeats of a healthy node are no news at all."""
    handle = await stack.create()
    await stack.phase(Phase.RUNNING)
    await eventually(lambda: _settled(handle), what="a quiet history")
    events = await history(handle)
    assert events.count("ACTIVITY_TASK_SCHEDULED") == 5
    upserted = [i for i, e in enumerate(events) if e == "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES"]
    assert cost(events[: upserted[-1] + 1]) <= RUNNING_EVENTS
    leases = len(stack.calls("* leases", "kubernetes"))
    await eventually(lambda: _more(stack, leases + 5), what="five more heartbeats")
    assert len(await history(handle)) == len(events)


async def _settled(handle: WorkflowHandle[object, object]) -> bool:
    events = await history(handle)
    # The look at the VM is cancelled, or has just come to its own end.
    ended = sum(events.count(f"ACTIVITY_TASK_{how}") for how in ("COMPLETED", "CANCELED", "FAILED"))
    return events[-1] == "WORKFLOW_TASK_COMPLETED" and ended == events.count("ACTIVITY_TASK_SCHEDULED")


async def _more(stack: Stack, count: int) -> bool:
    return len(stack.calls("* leases", "kubernetes")) >= count


async def test_unhealthy_is_unknown_and_recovers(stack: Stack) -> None:
    await stack.create()
    running = await stack.phase(Phase.RUNNING)
    knobs(stack, unready=True)
    unknown = await stack.phase(Phase.UNKNOWN)
    assert unknown.status.waiting_for is not None
    assert unknown.status.waiting_for.reason in ("NodeNotReady", "NodeUnhealthy")
    assert running.status.node_name is not None
    assert running.status.node_name in unknown.status.waiting_for.message
    knobs(stack, unready=False)
    again = await stack.phase(Phase.RUNNING)
    assert again.journal[-1].reason == "Recovered"
    assert stack.launched() == [running.status.provider_id.rsplit("/", 1)[-1]]  # nothing was replaced


@pytest.mark.exhaustive
async def test_a_silent_kubelet_is_unknown(stack: Stack) -> None:
    """The node lifecycle controller says so after its grace period, not Hostler."""
    knobs(stack, dies_after=0.2)
    await stack.create()
    unknown = await stack.phase(Phase.UNKNOWN)
    assert unknown.status.waiting_for is not None
    assert "NodeStatusUnknown" in unknown.status.waiting_for.message
    await stack.delete()
    assert stack.leftovers(unknown.uid) == {}


async def test_delete_while_the_create_call_is_in_flight(stack: Stack) -> None:
    """Field case P05."""
    slow = fault(stack, service="ec2", operation="RunInstances", delay=1.0)
    await stack.create()

    async def called() -> int:
        return slow.hits

    await eventually(called, what="RunInstances")
    uid = (await stack.state()).uid
    await stack.delete()
    assert len(stack.launched()) == 1  # it was born all the same
    assert stack.leftovers(uid) == {}


async def test_missing_credentials_are_waited_for(stack: Stack) -> None:
    stack.kubectl("delete", "secret", "demo-aws")
    await stack.create()
    state = await stack.reason("CredentialsMissing")
    assert state.status.phase == Phase.CRASH_LOOP_BACK_OFF
    assert "default/demo-aws" in state.status.waiting_for.message
    assert stack.launched() == []
    await plant(stack)
    await stack.phase(Phase.RUNNING)


async def test_a_deletion_without_credentials_waits_and_says_so(stack: Stack) -> None:
    await stack.create()
    state = await stack.phase(Phase.RUNNING)
    stack.kubectl("delete", "secret", "demo-aws")
    deleting = asyncio.create_task(stack.delete())
    waits = await stack.reason("CredentialsMissing")
    assert waits.status.phase == Phase.TERMINATING
    assert waits.status.last_operation.state == OperationState.FAILED
    assert "instances" in stack.leftovers(state.uid)
    await plant(stack)
    await deleting
    assert stack.leftovers(state.uid) == {}


@pytest.mark.exhaustive
async def test_failed_create_retries_by_class_and_keeps_its_token(stack: Stack) -> None:
    fault(stack, service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity", times=2)
    await stack.create()
    state = await stack.reason("OutOfCapacity")
    assert state.status.phase == Phase.CRASH_LOOP_BACK_OFF
    assert state.status.last_operation.error_code == Code.RESOURCE_EXHAUSTED
    assert state.status.waiting_for.next_try is not None
    await stack.phase(Phase.RUNNING)
    tokens = {c.request["ClientToken"] for c in stack.calls("RunInstances")}
    assert len(tokens) == 1
    assert len(stack.calls("RunInstances")) == 3
    assert len(stack.launched()) == 1


@pytest.mark.exhaustive
async def test_creation_timeout_is_exact_and_the_vm_is_known(stack: Stack) -> None:
    knobs(stack, never_joins=True)
    timeout = timedelta(seconds=5)  # there must be a VM by then, even on a busy machine
    await stack.create(creation_timeout=timeout)
    failed = await stack.phase(Phase.FAILED)
    assert failed.journal[-1].reason == "CreationTimeout"
    assert timedelta(0) <= failed.journal[-1].time - failed.created - timeout < timeout
    assert failed.status.provider_id is not None
    await stack.delete()
    assert stack.leftovers(failed.uid) == {}


async def test_a_vm_that_dies_while_joining_is_failed_and_not_replaced(stack: Stack) -> None:
    knobs(stack, never_joins=True)
    await stack.create()
    state = await stack.reason("NodeNotSeen")
    instance = state.status.provider_id.rsplit("/", 1)[-1]
    stack.simulator.call(lambda: stack.cloud.kill(instance))
    failed = await stack.phase(Phase.FAILED)
    assert failed.journal[-1].reason == "VMGone"
    assert stack.launched() == [instance]


async def test_stale_node(stack: Stack) -> None:
    """Seed 000: a VM that would be taken for an old node object is deleted, the machine is Failed (C8)."""
    name = "ip-10-250-0-4.eu-west-1.compute.internal"  # what the first VM of the subnet will be called
    stack.kubectl("create", "-f", _node_file(stack, name))
    await asyncio.sleep(1.1)  # the API server's times are whole seconds: the node must be older by one
    await stack.create()
    failed = await stack.phase(Phase.FAILED)
    assert failed.status.last_operation.description.startswith("VM was referring to stale node object")
    await eventually(lambda: _left(stack, failed.uid), lambda left: not left, "the VM gone")
    result = await stack.delete()
    (stays,) = [h.message for h in result.journal if h.reason == "StaleNodeStays"]
    assert f"`kubectl delete node {name}`" in stays
    assert name in stack.kubectl("get", "nodes", "-o", "name")  # somebody else's as far as anybody knows: it stays


async def test_a_stale_node_that_is_nobodys_stops_no_second_machine(stack: Stack) -> None:
    """The account knows no VM of its id, and its kubelet is silent: the first VM at its address finds that out."""
    name = "ip-10-250-0-4.eu-west-1.compute.internal"
    stack.kubectl("create", "-f", _node_file(stack, name))

    async def silent() -> bool:
        now = datetime.now(UTC)
        said = [c for c in node(stack, name).get("status", {}).get("conditions", ()) if c["type"] == "Ready"]
        return any(now - datetime.fromisoformat(c["lastTransitionTime"]) > timedelta(seconds=2) for c in said)

    await eventually(silent, what="the control plane says that it is silent")
    await stack.create(health_timeout=timedelta(seconds=1))
    failed = await eventually(stack.state, lambda s: any(h.reason == "StaleNodeRemoved" for h in s.journal))
    assert failed.status.phase == Phase.FAILED
    assert failed.status.last_operation.description.startswith("VM was referring to stale node object")
    await eventually(lambda: _left(stack, failed.uid), lambda left: not left, "the VM gone")
    stack.simulator.call(stack.cloud._network.last_ipv4.clear)  # the address may be reused
    await stack.create("m-2")
    running = await stack.phase(Phase.RUNNING, "m-2")
    assert running.status.node_name == name
    await stack.delete()
    await stack.delete("m-2")
    assert stack.kubectl("get", "nodes", "-o", "name") == ""


async def _left(stack: Stack, uid: str) -> dict[str, list[str]]:
    return stack.leftovers(uid)


def _node_file(stack: Stack, name: str) -> str:
    file = stack.settings.path(stack.kubeconfig.with_name("node.yaml"))
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "spec": {"providerID": "aws:///eu-west-1/i-0123456789abcdef0"},
            }
        )
    )
    return str(file)


async def test_a_node_without_the_taint_is_warned_about_once(stack: Stack) -> None:
    knobs(stack, no_taint=True)
    await stack.create()
    state = await stack.phase(Phase.RUNNING)
    assert [c.type for c in state.status.conditions] == ["NoReadyTaint"]
    assert [h.reason for h in state.journal].count("NoReadyTaint") == 1


async def test_a_changed_template_reaches_the_living_node(stack: Stack) -> None:
    await stack.create()
    state = await stack.phase(Phase.RUNNING)
    template = NodeTemplate.model_validate({"metadata": {"labels": {"worker.hostler.io/pool": "other"}}})
    spec = examples().machines[0].spec.model_copy(update={"node_template": template})
    answer = await stack.started["m-1"].execute_update(
        "apply", {"id": "a1", "spec": spec, "machineClass": state.machine_class}
    )
    assert answer["message"] == "configured"

    async def label() -> object:
        return node(stack, state.status.node_name)["metadata"]["labels"]

    labels = await eventually(label, lambda x: x.get("worker.hostler.io/pool") == "other")
    assert "node.kubernetes.io/role" not in labels
    assert len(stack.launched()) == 1


async def test_kubectl_describe_node_tells_the_story(stack: Stack) -> None:
    await stack.create()
    state = await stack.phase(Phase.RUNNING)
    story = {"Created", "VMCreated", "PostStartUpdated", "Running"}
    await eventually(lambda: _events_of(stack, state.status.node_name), lambda r: story <= set(r), "the whole story")
    events = stack.kubectl("describe", "node", state.status.node_name).partition("Events:")[2]
    assert not [reason for reason in story if f" {reason} " not in events], events
    knobs(stack, unready=True)
    await stack.phase(Phase.UNKNOWN)
    told = await eventually(lambda: _events_of(stack, state.status.node_name), lambda r: "NodeNotReady" in r)
    assert told.count("NodeNotReady") == 1


async def _events_of(stack: Stack, node_name: str) -> list[str]:
    found = json.loads(stack.kubectl("get", "events", "-o", "json"))["items"]
    ours = [e for e in found if e["source"].get("component") == "hostler" and e["involvedObject"]["name"] == node_name]
    return [e["reason"] for e in ours]


@pytest.mark.parametrize(("ends", "reason"), [("kill", "VMGone"), ("stop", "VMNotRunning")])
async def test_a_vm_that_ends_behind_our_back_is_unknown_and_told_once(stack: Stack, ends: str, reason: str) -> None:
    """The watch of the cloud account finds it, even before the node has been silent for long enough."""
    await stack.create("m-1")
    await stack.create("m-2")
    state = await stack.phase(Phase.RUNNING)
    other = await stack.phase(Phase.RUNNING, "m-2")
    instance = str(state.status.provider_id).rsplit("/", 1)[-1]
    if ends == "kill":
        stack.simulator.call(lambda: stack.cloud.kill(instance))
    else:
        stack.ec2().stop_instances(InstanceIds=[instance])
    unknown = await stack.reason(reason)
    assert unknown.status.phase == Phase.UNKNOWN
    assert instance in unknown.status.waiting_for.message
    if ends == "stop":
        await eventually(
            lambda: _state_of(stack, instance), lambda s: s == "stopped", "EC2 starts none that is stopping"
        )
        stack.ec2().start_instances(InstanceIds=[instance])
        await stack.phase(Phase.RUNNING)
    assert (await stack.state("m-2")).vm is None  # an undisturbed machine hears nothing
    assert other.status.provider_id != state.status.provider_id
    assert len(stack.launched()) == 2


async def _state_of(stack: Stack, instance: str) -> str:
    (found,) = stack.ec2().describe_instances(InstanceIds=[instance])["Reservations"]
    return str(found["Instances"][0]["State"]["Name"])


async def test_a_cloud_that_does_not_answer_is_said_and_nothing_is_decided(stack: Stack) -> None:
    await stack.create()
    await stack.phase(Phase.RUNNING)
    cluster = stack.client.get_workflow_handle(f"cluster/{CLUSTER}")
    await eventually(lambda: cluster.query("describe"), lambda s: s["clouds"] and _answers(s), "a listing")
    fault(stack, service="ec2", operation="DescribeInstances", code="Unavailable", times=None, id="outage")
    seen = await eventually(lambda: cluster.query("describe"), lambda s: not _answers(s), "unreachable")
    assert "CloudUnreachable" in [h["reason"] for h in seen["journal"]]
    assert (await stack.state()).status.phase == Phase.RUNNING
    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
    seen = await eventually(lambda: cluster.query("describe"), _answers, "reachable again")
    assert "CloudReachable" in [h["reason"] for h in seen["journal"]]
    assert (await stack.state()).status.phase == Phase.RUNNING


def _answers(cluster: dict[str, Any]) -> bool:
    return all(c["reachable"] for c in cluster["clouds"].values())


async def test_a_drain_does_not_wait_for_a_kubelet_whose_vm_is_gone(stack: Stack) -> None:
    """Nobody will confirm that a pod has stopped; otherwise the drain would last two hours, until its deadline."""
    await stack.create()
    state = await stack.phase(Phase.RUNNING)
    stack.kubectl("run", "web", "--image=i", f"--overrides={_pod_on(str(state.status.node_name))}")
    await eventually(lambda: _pod_phase(stack), lambda p: p == "Running")
    instance = str(state.status.provider_id).rsplit("/", 1)[-1]
    stack.simulator.call(lambda: stack.cloud.kill(instance))
    await stack.reason("VMGone")
    result = await stack.delete()
    (drained,) = [h for h in result.journal if h.reason == "Drained"]
    assert "default/web: still terminating after its grace period" in drained.message


def _pod_on(node_name: str) -> str:
    return json.dumps({"spec": {"nodeName": node_name, "terminationGracePeriodSeconds": 1}})


async def _pod_phase(stack: Stack) -> str:
    return await stack.kubectl_beside("get", "pod", "web", "-o", "jsonpath={.status.phase}")


async def test_an_api_server_out_of_reach_is_said_by_every_machine_that_waits(
    temporal: WorkflowEnvironment,
) -> None:
    async with new_stack(temporal.client) as stack:
        url = stack.simulator.simulator.kube_url
        door = Door(url)
        await door.open()
        kubeconfig = stack.kubeconfig.read_text().replace(url, f"https://127.0.0.1:{door.port}")
        stack.settings.path(Path("kubeconfig")).write_text(kubeconfig)
        async with stack.worker():
            knobs(stack, name="waits", never_joins=True)
            await stack.create("waits")
            await stack.create("runs")
            await stack.reason("NodeNotSeen", "waits")
            await stack.phase(Phase.RUNNING, "runs")

            async def conditions() -> list[str]:
                return [c.type for c in (await stack.state("waits")).status.conditions]

            door.shut()
            await eventually(conditions, lambda c: c == ["APIUnreachable"], "the news of the outage")
            running = await stack.state("runs")
            assert (running.status.phase, running.status.conditions) == (Phase.RUNNING, [])  # I5, and no noise
            await door.open()
            await eventually(conditions, lambda c: c == [], "the news of the recovery")
            door.shut()


async def test_deleted_between_the_node_s_registration_and_its_join(stack: Stack) -> None:
    """The Node is there, its template is not yet: it goes with the machine all the same."""
    fault(
        stack, service="kubernetes", operation="patch nodes", match="hostler.io/pool", code="InternalError", times=None
    )
    await stack.create()
    state = await stack.reason("NodeTemplate")
    assert state.node is not None
    await eventually(lambda: _left(stack, state.uid), lambda left: "instances" in left)
    assert state.node.name in stack.kubectl("get", "nodes", "-o", "name")
    assert not state.joined
    await stack.delete()
    assert state.node.name not in stack.kubectl("get", "nodes", "-o", "name")
    assert stack.leftovers(state.uid) == {}

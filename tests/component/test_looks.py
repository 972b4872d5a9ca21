"""Fresh looks at a Node and at a VM, without which nothing is decided against a machine; and what a Pending one waits
for, in words."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import Attempts, attempts, ref, running
from apiserver.simulated import NODES, SECRETS
from clouds.drivers import Given, fault

from activities.cloud import joining
from activities.cloud.joining import NO_TOKEN
from activities.cloud.machine import MESSAGE_LENGTH, MachineActivities
from activities.cluster.node import NodeActivities
from activities.kube.tokens import ensure_token, revoke_tokens, token_id
from drivers.base import CreateMachineRequest, MachineStatus
from resources.calls.cloud import CreateInput, StatusInput, StatusOutput, VmLookInput
from resources.calls.cluster import JoinInput, LookInput, ReadyInput, StaleNodeInput, StaleNodeOutput, TellInput
from resources.calls.machine import StaleNode
from resources.errors import ErrorClass, ErrorInfo
from resources.journal import Happening
from resources.machine.manifest import NodeTemplate
from resources.names import MACHINE_NAME_LABEL, STARTUP_TAINTS, TAG_UID
from simulator.frame import FaultRule

__all__ = ["attempts", "running"]  # fixtures

VM, OTHER_VM = "aws:///eu-west-1/i-0123456789abcdef0", "aws:///eu-west-1/i-0fedcba9876543210"
DEADLINE = datetime(2031, 1, 1, 12, 0, tzinfo=UTC)


def strike(attempts: Attempts, operation: str, **fields: Any) -> FaultRule:
    rule = FaultRule(service="kubernetes", operation=operation, **fields)
    attempts.world.frame.faults.append(rule)
    return rule


# -- the Node ----------------------------------------------------------------------------------------------------------


def look(attempts: Attempts, node_name: str | None = "n-1", node_uid: str = "") -> Any:
    machine = ref(attempts.given())
    input = LookInput(machine=machine, node_name=node_name, provider_id=VM, node_uid=node_uid)
    return attempts.attempt(NodeActivities(attempts.deps).look_at_node, input)


async def test_a_look_at_the_node_by_its_name(attempts: Attempts) -> None:
    """The cloud-controller-manager writes the zone where we write the region: it is the same VM."""
    await attempts.node("n-1", VM.replace("eu-west-1", "eu-west-1a"), ready="Unknown")
    await attempts.lease("n-1", "2030-05-06T07:08:09.123456Z")
    seen = await look(attempts)
    assert (seen.node.exists, seen.node.name, seen.node.ready) == (True, "n-1", False)
    assert (seen.node.epoch, seen.node.seq) == (0, 0)
    assert (seen.ready, seen.without_provider_id) == ("Unknown", False)
    assert seen.lease_renewed == datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


@pytest.mark.parametrize("status", ["True", "False", ""])
async def test_ready_is_told_as_it_is(attempts: Attempts, status: str) -> None:
    await attempts.node("n-1", VM, ready=status)
    seen = await look(attempts)
    assert (seen.ready, seen.node.ready, seen.lease_renewed) == (status, status == "True", None)


async def test_p35_a_node_under_another_name_is_found_by_label_and_provider_id(attempts: Attempts) -> None:
    labels = {MACHINE_NAME_LABEL: "worker-1"}
    await attempts.node("x1.corp", VM, ready="True", labels=labels)
    await attempts.node("x2.corp", OTHER_VM, ready="False", labels=labels)  # a copied label proves nothing
    await attempts.node("n-1", OTHER_VM)  # nor does a name
    await attempts.lease("x1.corp", "2030-05-06T07:08:09.000000Z")
    for name in ("n-1", None):
        seen = await look(attempts, name)
        assert (seen.node.name, seen.ready, seen.without_provider_id) == ("x1.corp", "True", False)
        assert seen.lease_renewed == datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)


async def test_of_two_nodes_of_one_vm_the_same_counts_as_in_the_watch(attempts: Attempts) -> None:
    """`activities.kube.whose.the_one` has the rows."""
    labels = {MACHINE_NAME_LABEL: "worker-1"}
    uids = {}
    for name in ("a-1", "b-2"):  # in this order, even when both are of the same second
        uids[name] = (await attempts.node(name, VM, labels=labels))["metadata"]["uid"]
    assert (await look(attempts)).node.name == "b-2"
    assert (await look(attempts, node_uid=uids["a-1"])).node.name == "a-1"
    await attempts.node("n-1", VM, ready="Unknown")  # by its name, and not labelled yet
    await attempts.world.kube.patch(
        f"{NODES}/b-2/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    assert (await look(attempts, node_uid=uids["a-1"])).node.name == "b-2"
    await attempts.world.kube.patch(
        f"{NODES}/n-1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    assert (await look(attempts)).node.name == "n-1"


async def test_a_node_without_provider_id_is_known_by_its_uid(attempts: Attempts) -> None:
    uid = (await attempts.node("n-1", ready="True"))["metadata"]["uid"]
    assert not (await look(attempts, node_uid="another")).node.exists
    assert (await look(attempts, node_uid=uid)).node.exists
    activities, machine = NodeActivities(attempts.deps), ref(attempts.given())
    for known, told in (("another", 0), (uid, 1)):
        at = {"machine": machine, "node_name": "n-1", "provider_id": VM, "node_uid": known}
        story = [Happening(time=DEADLINE, reason="NodeJoined", message="")]
        await attempts.attempt(activities.tell_node, TellInput(**at, story=story))
        assert len(attempts.world.frame.calls("kubernetes", "create events")) == told
    at["node_uid"] = "another"
    for method, input in (
        (activities.join_node, JoinInput(**at, attempt=1, node_template=NodeTemplate())),
        (activities.remove_ready_taint, ReadyInput(**at)),
    ):
        failure = await attempts.fails(method, input)
        assert (failure.type, "node n-1 is gone, or is no longer known to belong" in failure.message) == (
            "not_found",
            True,
        )
    assert attempts.world.frame.calls("kubernetes", "patch nodes") == []


# -- a Node that is nobody's -------------------------------------------------------------------------------------------


async def remove(attempts: Attempts, node: Any, later: timedelta = timedelta(hours=1), **of: str) -> StaleNodeOutput:
    """Asks this much later than the Node was made."""
    stale = StaleNode(**{"name": "n-1", "uid": node["metadata"]["uid"], "provider_id": OTHER_VM, **of})
    input = StaleNodeInput(machine=ref(attempts.given()), node=stale, silent_for=timedelta(minutes=10))
    return await attempts.attempt(NodeActivities(attempts.deps).remove_stale_node, input, at=datetime.now(UTC) + later)


async def test_a_stale_node_is_removed_when_nothing_of_it_lives(attempts: Attempts) -> None:
    node = await attempts.node("n-1", OTHER_VM, ready="Unknown")
    assert (await remove(attempts, node, later=timedelta(minutes=5))).message.endswith(", less than 10m ago")
    assert attempts.world.frame.calls("kubernetes", "delete nodes") == []
    seen = (await attempts.world.kube.get(f"{NODES}/n-1"))["metadata"]
    assert await remove(attempts, node) == StaleNodeOutput(removed=True)
    (gone,) = attempts.world.frame.calls("kubernetes", "delete nodes")
    preconditions = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
    assert gone.request["body"] == {"preconditions": preconditions}
    assert await remove(attempts, node) == StaleNodeOutput(removed=True, message="it was already gone")


async def test_a_stale_node_that_lives_stays(attempts: Attempts) -> None:
    node = await attempts.node("n-1", OTHER_VM, ready="Unknown")
    await attempts.lease("n-1", (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.000000Z"))
    assert "showed life at" in (await remove(attempts, node)).message
    assert (await remove(attempts, node, provider_id=VM)).message == f"its providerID is {OTHER_VM}"
    strike(attempts, "delete nodes", code="Conflict", status=409)
    assert (await remove(attempts, node, timedelta(hours=9))).message == "somebody has just changed node n-1"
    assert (await attempts.world.kube.call("GET", f"{NODES}/n-1")).status == 200
    # Nothing can be said of another object: it has come since, and is not the one that stood in the way.
    assert (await remove(attempts, node, timedelta(hours=9), uid="another")).message == "it was already gone"
    assert (await attempts.world.kube.call("GET", f"{NODES}/n-1")).status == 200


async def test_no_node_of_this_vm(attempts: Attempts) -> None:
    seen = await look(attempts)
    assert (seen.node.exists, seen.without_provider_id, seen.ready) == (False, False, "")
    await attempts.node("n-1", OTHER_VM, ready="True")
    seen = await look(attempts)
    assert (seen.node.exists, seen.without_provider_id, seen.ready) == (False, False, "")
    await attempts.world.kube.delete(f"{NODES}/n-1")
    await attempts.node("n-1", ready="True")
    seen = await look(attempts)
    assert (seen.node.exists, seen.without_provider_id) == (False, True)  # nobody can say whose it is
    await attempts.world.kube.patch(f"{NODES}/n-1", {"spec": {"providerID": VM}})
    assert (await look(attempts)).node.exists


@pytest.mark.parametrize("operation", ["get nodes", "list nodes", "get leases"])
async def test_what_cannot_be_read_is_an_error_and_never_absence(attempts: Attempts, operation: str) -> None:
    if operation == "get leases":
        await attempts.node("n-1", VM)
    for status, wanted in ((403, ErrorClass.AUTH), (503, ErrorClass.TRANSIENT)):
        strike(attempts, operation, code="Broken", status=status)
        machine = ref(attempts.given())
        failure = await attempts.fails(
            NodeActivities(attempts.deps).look_at_node, LookInput(machine=machine, node_name="n-1", provider_id=VM)
        )
        assert failure.type == wanted
    assert (await look(attempts)).node.exists is (operation == "get leases")


async def test_startup_taints_are_among_the_facts(attempts: Attempts) -> None:
    await attempts.node("n-1", VM)
    keys = (STARTUP_TAINTS[1], "example.com/other", STARTUP_TAINTS[0])
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    await attempts.world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": taints}})
    assert (await look(attempts)).node.startup_taints == sorted(STARTUP_TAINTS)
    await attempts.world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": taints[1:2]}})
    assert (await look(attempts)).node.startup_taints == []


# -- the VM ------------------------------------------------------------------------------------------------------------


def made(attempts: Attempts, given: Given) -> str:
    return attempts.cloud.driver.create_machine(given.creation()).provider_id


def instance(provider_id: str) -> str:
    return provider_id.rsplit("/", 1)[-1]


async def look_at_vm(attempts: Attempts, given: Given, provider_id: str, diagnose: bool = False) -> tuple[str, str]:
    seen = await attempts.attempt(
        MachineActivities(attempts.deps).look_at_vm,
        VmLookInput(target=attempts.target(given, provider_id), diagnose=diagnose),
    )
    return seen.state, seen.message


async def test_a_look_at_the_vm_and_its_diagnosis(attempts: Attempts) -> None:
    given = attempts.given()
    vm = made(attempts, given)
    attempts.cloud.do(lambda: attempts.cloud.ec2.impair(instance(vm), True))
    attempts.cloud.do(lambda: attempts.cloud.ec2.set_console(instance(vm), "kernel panic\n"))
    assert await look_at_vm(attempts, given, vm) == ("running", f"{vm} is running")
    impaired = "the cloud says: instance status impaired (reachability failed)"
    words = f"{vm} is running; {impaired}; console: kernel panic"
    assert await look_at_vm(attempts, given, vm, diagnose=True) == ("running", words)
    attempts.cloud.do(lambda: attempts.cloud.ec2.kill(instance(vm)))
    state, message = await look_at_vm(attempts, given, vm)
    assert state == "gone"
    assert "is terminated (Server.InternalError: " in message


async def test_a_vm_that_cannot_be_read_is_not_gone(attempts: Attempts) -> None:
    given = attempts.given()
    vm = made(attempts, given)
    for code, wanted in (("UnauthorizedOperation", ErrorClass.AUTH), ("InternalError", ErrorClass.TRANSIENT)):
        fault(attempts.cloud, "DescribeInstances", code)
        input = VmLookInput(target=attempts.target(given, vm))
        failure = await attempts.fails(MachineActivities(attempts.deps).look_at_vm, input)
        assert failure.type == wanted
    assert (await look_at_vm(attempts, given, vm))[0] == "running"


# -- what a Pending machine waits for ----------------------------------------------------------------------------------


async def pending(attempts: Attempts) -> tuple[Given, str]:
    """A machine with a VM and its bootstrap token."""
    given = attempts.given()
    await ensure_token(await attempts.deps.clusters.get("demo"), ref(given), 1, DEADLINE)
    return given, made(attempts, given)


def status_input(attempts: Attempts, given: Given, vm: str, **fields: Any) -> StatusInput:
    usual: dict[str, Any] = {
        "target": attempts.target(given, vm),
        "node_name": "n-1",
        "deadline": DEADLINE,
        "since": datetime.now(UTC),
        "interval": timedelta(seconds=30),
    }
    return StatusInput(**{**usual, **fields})


async def words(attempts: Attempts, given: Given, vm: str, **fields: Any) -> str:
    """What the look says after the VM's state."""
    text = await attempts.waits(
        MachineActivities(attempts.deps).watch_machine, status_input(attempts, given, vm, **fields)
    )
    state, _, rest = text.partition("; ")
    assert state == f"{vm} is running"
    return rest


def token_path(given: Given) -> str:
    return f"{SECRETS}/bootstrap-token-{token_id(given.machine.uid, 1)}"


async def test_p13_a_vm_that_never_joins_shows_state_node_checks_and_console_in_this_order(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    assert await words(attempts, given, vm) == "its node has not joined yet"
    attempts.cloud.do(lambda: attempts.cloud.ec2.impair(instance(vm), True))
    attempts.cloud.do(lambda: attempts.cloud.ec2.set_console(instance(vm), "no route to host\n"))
    impaired = "the cloud says: instance status impaired (reachability failed)"
    assert await words(attempts, given, vm) == f"its node has not joined yet; {impaired}; console: no route to host"


async def test_the_message_of_a_look_is_short_and_holds_no_token(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    kube = await attempts.deps.clusters.get("demo")
    token = (await ensure_token(kube, ref(given), 1, DEADLINE)).get_secret_value()
    console = "".join(f"{n} + kubeadm join --token {token} TOKEN_{token}\n" for n in range(2000)) + "the last line\n"
    attempts.cloud.do(lambda: attempts.cloud.ec2.set_console(instance(vm), console))
    await attempts.node("n-1", OTHER_VM)
    await revoke_tokens(kube, ref(given), 1)
    text = await words(attempts, given, vm)
    assert NO_TOKEN in text
    assert text.endswith(" TOKEN_" + token.partition(".")[0] + ".***\nthe last line")
    assert token.partition(".")[2] not in text
    assert len(text) < MESSAGE_LENGTH


async def test_a_token_that_somebody_removed_is_said_and_not_made_again(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    await attempts.world.kube.delete(token_path(given))
    assert await words(attempts, given, vm) == NO_TOKEN
    assert len(attempts.world.frame.calls("kubernetes", "create secrets")) == 1
    await attempts.node("n-1")
    assert (await words(attempts, given, vm)).startswith(f"{NO_TOKEN}; node n-1 exists but has no providerID: ")


async def test_a_token_of_another_machine_with_the_same_id_is_none_of_ours(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    assert await words(attempts, given, vm) == "its node has not joined yet"
    await attempts.world.kube.patch(token_path(given), {"metadata": {"annotations": {TAG_UID: "another"}}})
    later = DEADLINE + timedelta(hours=1)
    assert await words(attempts, given, vm, deadline=later) == NO_TOKEN
    assert await expiration(attempts, given) == "2031-01-01T12:00:00Z"


async def expiration(attempts: Attempts, given: Given) -> str:
    secret = await attempts.world.kube.get(token_path(given))
    return base64.b64decode(secret["data"]["expiration"]).decode()


async def test_a_token_that_would_end_before_the_deadline_is_renewed_once(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    for deadline in (DEADLINE - timedelta(hours=1), DEADLINE, DEADLINE + timedelta(hours=1)):
        for _ in range(2):
            assert await words(attempts, given, vm, deadline=deadline) == "its node has not joined yet"
    assert await expiration(attempts, given) == "2031-01-01T13:00:00Z"
    assert len(attempts.world.frame.calls("kubernetes", "patch secrets")) == 1


async def test_a_node_without_or_with_another_provider_id_is_said(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    await attempts.node("n-1")
    ccm = "waiting for the cloud-controller-manager (or kubelet --provider-id)"
    assert await words(attempts, given, vm) == f"node n-1 exists but has no providerID: {ccm}"
    await attempts.world.kube.delete(f"{NODES}/n-1")
    await attempts.node("n-1", OTHER_VM)
    theirs = f"node n-1 exists, but its providerID is {OTHER_VM}: it belongs to another VM"
    assert await words(attempts, given, vm) == theirs
    await attempts.world.kube.delete(f"{NODES}/n-1")
    await attempts.node("n-1", vm, ready="False")
    assert await words(attempts, given, vm) == "its node n-1 has joined, its condition Ready is False"


async def test_a_token_that_was_revoked_on_joining_was_removed_by_nobody(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    await attempts.node("x1.corp", vm, labels={MACHINE_NAME_LABEL: given.machine.name})
    await revoke_tokens(await attempts.deps.clusters.get("demo"), ref(given), 1)
    assert await words(attempts, given, vm) == "its node has joined as x1.corp"
    await attempts.world.kube.delete(f"{NODES}/x1.corp")
    assert await words(attempts, given, vm) == NO_TOKEN


async def test_without_the_right_to_read_the_look_still_says_what_it_can(attempts: Attempts) -> None:
    given, vm = await pending(attempts)
    forbidden: dict[str, Any] = {"code": "Forbidden", "status": 403}
    rule = strike(attempts, "get secrets", **forbidden)
    assert await words(attempts, given, vm) == "its node has not joined yet"
    assert rule.hits == 1
    strike(attempts, "get nodes", **forbidden, message="nodes is forbidden")
    assert await words(attempts, given, vm) == "whether its node has joined cannot be read: nodes is forbidden"
    await attempts.world.kube.delete(token_path(given))
    strike(attempts, "list nodes", **forbidden)
    assert await words(attempts, given, vm) == NO_TOKEN


async def test_an_api_server_that_hangs_costs_no_look_and_hides_no_bad_news(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "PATIENCE", 0.1)
    given, vm = await pending(attempts)
    strike(attempts, "get secrets", delay=5.0, times=None)
    silent = "whether its node has joined cannot be read: the API server of demo does not answer"
    assert await words(attempts, given, vm) == silent
    attempts.cloud.do(lambda: attempts.cloud.ec2.kill(instance(vm)))
    watch = MachineActivities(attempts.deps).watch_machine
    input = status_input(attempts, given, vm, since=datetime.now(UTC) - timedelta(hours=1))
    output = await attempts.attempt(watch, input)
    assert isinstance(output, StatusOutput)
    assert output.gone


# -- creating ----------------------------------------------------------------------------------------------------------


async def test_c13_a_vm_without_a_provider_id_is_an_error_and_adopted_at_the_next_try(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty node name, which is C13 upstream, is none here: a Node is matched by its providerID."""
    given = attempts.given()
    driver = attempts.deps.driver("AWS")
    create = driver.create_machine

    def nameless(request: CreateMachineRequest) -> MachineStatus:
        return create(request).model_copy(update={"provider_id": "", "node_name": ""})

    monkeypatch.setattr(driver, "create_machine", nameless)
    now = datetime.now(UTC)
    input = CreateInput(target=attempts.target(given), attempt=1, started=now, deadline=DEADLINE)
    failure = await attempts.fails(MachineActivities(attempts.deps).create_machine, input)
    info = ErrorInfo.model_validate(failure.details[0])
    assert (info.error_class, failure.non_retryable) == (ErrorClass.UNKNOWN, True)
    assert "answered without a providerID, so it is not known which VM it created" in info.message
    assert given.machine.uid in info.message
    assert attempts.client.started == []
    output = await attempts.attempt(MachineActivities(attempts.deps).create_machine, input)
    assert (output.adopted, [instance(output.provider_id)]) == (True, attempts.cloud.living(given.machine.uid))
    assert attempts.client.started == ["cluster/demo"]


async def test_c13_an_empty_node_name_is_no_error(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    given = attempts.given()
    driver = attempts.deps.driver("AWS")
    create = driver.create_machine
    monkeypatch.setattr(driver, "create_machine", lambda r: create(r).model_copy(update={"node_name": ""}))
    input = CreateInput(target=attempts.target(given), attempt=1, started=datetime.now(UTC), deadline=DEADLINE)
    output = await attempts.attempt(MachineActivities(attempts.deps).create_machine, input)
    assert (output.node_name, output.stale_node) == ("", None)
    assert [instance(output.provider_id)] == attempts.cloud.living(given.machine.uid)

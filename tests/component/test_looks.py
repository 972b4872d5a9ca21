"""Fresh looks at a Node and at a VM, without which nothing is decided against a machine; and what a Pending one waits
for, in words."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import Deeds, deeds, ref, running
from driver_clouds import Given, fault
from kubekit import NODES, SECRETS

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

__all__ = ["deeds", "running"]  # fixtures

VM, OTHER_VM = "aws:///eu-west-1/i-0123456789abcdef0", "aws:///eu-west-1/i-0fedcba9876543210"
DEADLINE = datetime(2031, 1, 1, 12, 0, tzinfo=UTC)


def strike(deeds: Deeds, operation: str, **fields: Any) -> FaultRule:
    rule = FaultRule(service="kubernetes", operation=operation, **fields)
    deeds.world.frame.faults.append(rule)
    return rule


# -- the Node ----------------------------------------------------------------------------------------------------------


def look(deeds: Deeds, node_name: str | None = "n-1", node_uid: str = "") -> Any:
    machine = ref(deeds.given())
    input = LookInput(machine=machine, node_name=node_name, provider_id=VM, node_uid=node_uid)
    return deeds.attempt(NodeActivities(deeds.deps).look_at_node, input)


async def test_a_look_at_the_node_by_its_name(deeds: Deeds) -> None:
    """The cloud-controller-manager writes the zone where we write the region: it is the same VM."""
    await deeds.node("n-1", VM.replace("eu-west-1", "eu-west-1a"), ready="Unknown")
    await deeds.lease("n-1", "2030-05-06T07:08:09.123456Z")
    seen = await look(deeds)
    assert (seen.node.exists, seen.node.name, seen.node.ready) == (True, "n-1", False)
    assert (seen.node.epoch, seen.node.seq) == (0, 0)
    assert (seen.ready, seen.without_provider_id) == ("Unknown", False)
    assert seen.lease_renewed == datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


@pytest.mark.parametrize("status", ["True", "False", ""])
async def test_ready_is_told_as_it_is(deeds: Deeds, status: str) -> None:
    await deeds.node("n-1", VM, ready=status)
    seen = await look(deeds)
    assert (seen.ready, seen.node.ready, seen.lease_renewed) == (status, status == "True", None)


async def test_p35_a_node_under_another_name_is_found_by_label_and_provider_id(deeds: Deeds) -> None:
    labels = {MACHINE_NAME_LABEL: "worker-1"}
    await deeds.node("x1.corp", VM, ready="True", labels=labels)
    await deeds.node("x2.corp", OTHER_VM, ready="False", labels=labels)  # a copied label proves nothing
    await deeds.node("n-1", OTHER_VM)  # nor does a name
    await deeds.lease("x1.corp", "2030-05-06T07:08:09.000000Z")
    for name in ("n-1", None):
        seen = await look(deeds, name)
        assert (seen.node.name, seen.ready, seen.without_provider_id) == ("x1.corp", "True", False)
        assert seen.lease_renewed == datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)


async def test_of_two_nodes_of_one_vm_the_same_counts_as_in_the_watch(deeds: Deeds) -> None:
    """`activities.kube.whose.the_one` has the rows."""
    labels = {MACHINE_NAME_LABEL: "worker-1"}
    uids = {}
    for name in ("a-1", "b-2"):  # in this order, even when both are of the same second
        uids[name] = (await deeds.node(name, VM, labels=labels))["metadata"]["uid"]
    assert (await look(deeds)).node.name == "b-2"
    assert (await look(deeds, node_uid=uids["a-1"])).node.name == "a-1"
    await deeds.node("n-1", VM, ready="Unknown")  # by its name, and not labelled yet
    await deeds.world.kube.patch(
        f"{NODES}/b-2/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    assert (await look(deeds, node_uid=uids["a-1"])).node.name == "b-2"
    await deeds.world.kube.patch(
        f"{NODES}/n-1/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    assert (await look(deeds)).node.name == "n-1"


async def test_a_node_without_provider_id_is_known_by_its_uid(deeds: Deeds) -> None:
    uid = (await deeds.node("n-1", ready="True"))["metadata"]["uid"]
    assert not (await look(deeds, node_uid="another")).node.exists
    assert (await look(deeds, node_uid=uid)).node.exists
    activities, machine = NodeActivities(deeds.deps), ref(deeds.given())
    for known, told in (("another", 0), (uid, 1)):
        at = {"machine": machine, "node_name": "n-1", "provider_id": VM, "node_uid": known}
        story = [Happening(time=DEADLINE, reason="NodeJoined", message="")]
        await deeds.attempt(activities.tell_node, TellInput(**at, story=story))
        assert len(deeds.world.frame.calls("kubernetes", "create events")) == told
    at["node_uid"] = "another"
    for method, input in (
        (activities.join_node, JoinInput(**at, attempt=1, node_template=NodeTemplate())),
        (activities.remove_ready_taint, ReadyInput(**at)),
    ):
        failure = await deeds.fails(method, input)
        assert (failure.type, "node n-1 is gone, or is no longer known to belong" in failure.message) == (
            "not_found",
            True,
        )
    assert deeds.world.frame.calls("kubernetes", "patch nodes") == []


# -- a Node that is nobody's -------------------------------------------------------------------------------------------


async def remove(deeds: Deeds, node: Any, later: timedelta = timedelta(hours=1), **of: str) -> StaleNodeOutput:
    """Asks this much later than the Node was made."""
    stale = StaleNode(**{"name": "n-1", "uid": node["metadata"]["uid"], "provider_id": OTHER_VM, **of})
    input = StaleNodeInput(machine=ref(deeds.given()), node=stale, silent_for=timedelta(minutes=10))
    return await deeds.attempt(NodeActivities(deeds.deps).remove_stale_node, input, at=datetime.now(UTC) + later)


async def test_a_stale_node_is_removed_when_nothing_of_it_lives(deeds: Deeds) -> None:
    node = await deeds.node("n-1", OTHER_VM, ready="Unknown")
    assert (await remove(deeds, node, later=timedelta(minutes=5))).message.endswith(", less than 10m ago")
    assert deeds.world.frame.calls("kubernetes", "delete nodes") == []
    seen = (await deeds.world.kube.get(f"{NODES}/n-1"))["metadata"]
    assert await remove(deeds, node) == StaleNodeOutput(removed=True)
    (gone,) = deeds.world.frame.calls("kubernetes", "delete nodes")
    preconditions = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}
    assert gone.request["body"] == {"preconditions": preconditions}
    assert await remove(deeds, node) == StaleNodeOutput(removed=True, message="it was already gone")


async def test_a_stale_node_that_lives_stays(deeds: Deeds) -> None:
    node = await deeds.node("n-1", OTHER_VM, ready="Unknown")
    await deeds.lease("n-1", (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.000000Z"))
    assert "showed life at" in (await remove(deeds, node)).message
    assert (await remove(deeds, node, provider_id=VM)).message == f"its providerID is {OTHER_VM}"
    strike(deeds, "delete nodes", code="Conflict", status=409)
    assert (await remove(deeds, node, timedelta(hours=9))).message == "somebody has just changed node n-1"
    assert (await deeds.world.kube.call("GET", f"{NODES}/n-1")).status == 200
    # Nothing can be said of another object: it has come since, and is not the one that stood in the way.
    assert (await remove(deeds, node, timedelta(hours=9), uid="another")).message == "it was already gone"
    assert (await deeds.world.kube.call("GET", f"{NODES}/n-1")).status == 200


async def test_no_node_of_this_vm(deeds: Deeds) -> None:
    seen = await look(deeds)
    assert (seen.node.exists, seen.without_provider_id, seen.ready) == (False, False, "")
    await deeds.node("n-1", OTHER_VM, ready="True")
    seen = await look(deeds)
    assert (seen.node.exists, seen.without_provider_id, seen.ready) == (False, False, "")
    await deeds.world.kube.delete(f"{NODES}/n-1")
    await deeds.node("n-1", ready="True")
    seen = await look(deeds)
    assert (seen.node.exists, seen.without_provider_id) == (False, True)  # nobody can say whose it is
    await deeds.world.kube.patch(f"{NODES}/n-1", {"spec": {"providerID": VM}})
    assert (await look(deeds)).node.exists


@pytest.mark.parametrize("operation", ["get nodes", "list nodes", "get leases"])
async def test_what_cannot_be_read_is_an_error_and_never_absence(deeds: Deeds, operation: str) -> None:
    if operation == "get leases":
        await deeds.node("n-1", VM)
    for status, wanted in ((403, ErrorClass.AUTH), (503, ErrorClass.TRANSIENT)):
        strike(deeds, operation, code="Broken", status=status)
        machine = ref(deeds.given())
        failure = await deeds.fails(
            NodeActivities(deeds.deps).look_at_node, LookInput(machine=machine, node_name="n-1", provider_id=VM)
        )
        assert failure.type == wanted
    assert (await look(deeds)).node.exists is (operation == "get leases")


async def test_startup_taints_are_among_the_facts(deeds: Deeds) -> None:
    await deeds.node("n-1", VM)
    keys = (STARTUP_TAINTS[1], "example.com/other", STARTUP_TAINTS[0])
    taints = [{"key": key, "effect": "NoSchedule"} for key in keys]
    await deeds.world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": taints}})
    assert (await look(deeds)).node.startup_taints == sorted(STARTUP_TAINTS)
    await deeds.world.kube.patch(f"{NODES}/n-1", {"spec": {"taints": taints[1:2]}})
    assert (await look(deeds)).node.startup_taints == []


# -- the VM ------------------------------------------------------------------------------------------------------------


def made(deeds: Deeds, given: Given) -> str:
    return deeds.cloud.driver.create_machine(given.creation()).provider_id


def instance(provider_id: str) -> str:
    return provider_id.rsplit("/", 1)[-1]


async def look_at_vm(deeds: Deeds, given: Given, provider_id: str, diagnose: bool = False) -> tuple[str, str]:
    seen = await deeds.attempt(
        MachineActivities(deeds.deps).look_at_vm,
        VmLookInput(target=deeds.target(given, provider_id), diagnose=diagnose),
    )
    return seen.state, seen.message


async def test_a_look_at_the_vm_and_its_diagnosis(deeds: Deeds) -> None:
    given = deeds.given()
    vm = made(deeds, given)
    deeds.cloud.do(lambda: deeds.cloud.ec2.impair(instance(vm), True))
    deeds.cloud.do(lambda: deeds.cloud.ec2.set_console(instance(vm), "kernel panic\n"))
    assert await look_at_vm(deeds, given, vm) == ("running", f"{vm} is running")
    impaired = "the cloud says: instance status impaired (reachability failed)"
    words = f"{vm} is running; {impaired}; console: kernel panic"
    assert await look_at_vm(deeds, given, vm, diagnose=True) == ("running", words)
    deeds.cloud.do(lambda: deeds.cloud.ec2.kill(instance(vm)))
    state, message = await look_at_vm(deeds, given, vm)
    assert state == "gone"
    assert "is terminated (Server.InternalError: " in message


async def test_a_vm_that_cannot_be_read_is_not_gone(deeds: Deeds) -> None:
    given = deeds.given()
    vm = made(deeds, given)
    for code, wanted in (("UnauthorizedOperation", ErrorClass.AUTH), ("InternalError", ErrorClass.TRANSIENT)):
        fault(deeds.cloud, "DescribeInstances", code)
        input = VmLookInput(target=deeds.target(given, vm))
        failure = await deeds.fails(MachineActivities(deeds.deps).look_at_vm, input)
        assert failure.type == wanted
    assert (await look_at_vm(deeds, given, vm))[0] == "running"


# -- what a Pending machine waits for ----------------------------------------------------------------------------------


async def pending(deeds: Deeds) -> tuple[Given, str]:
    """A machine with a VM and its bootstrap token."""
    given = deeds.given()
    await ensure_token(await deeds.deps.clusters.get("demo"), ref(given), 1, DEADLINE)
    return given, made(deeds, given)


def status_input(deeds: Deeds, given: Given, vm: str, **fields: Any) -> StatusInput:
    usual: dict[str, Any] = {
        "target": deeds.target(given, vm),
        "node_name": "n-1",
        "deadline": DEADLINE,
        "since": datetime.now(UTC),
        "interval": timedelta(seconds=30),
    }
    return StatusInput(**{**usual, **fields})


async def words(deeds: Deeds, given: Given, vm: str, **fields: Any) -> str:
    """What the look says after the VM's state."""
    text = await deeds.waits(MachineActivities(deeds.deps).watch_machine, status_input(deeds, given, vm, **fields))
    state, _, rest = text.partition("; ")
    assert state == f"{vm} is running"
    return rest


def token_path(given: Given) -> str:
    return f"{SECRETS}/bootstrap-token-{token_id(given.machine.uid, 1)}"


async def test_p13_a_vm_that_never_joins_shows_state_node_checks_and_console_in_this_order(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    assert await words(deeds, given, vm) == "its node has not joined yet"
    deeds.cloud.do(lambda: deeds.cloud.ec2.impair(instance(vm), True))
    deeds.cloud.do(lambda: deeds.cloud.ec2.set_console(instance(vm), "no route to host\n"))
    impaired = "the cloud says: instance status impaired (reachability failed)"
    assert await words(deeds, given, vm) == f"its node has not joined yet; {impaired}; console: no route to host"


async def test_the_message_of_a_look_is_short_and_holds_no_token(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    kube = await deeds.deps.clusters.get("demo")
    token = (await ensure_token(kube, ref(given), 1, DEADLINE)).get_secret_value()
    console = "".join(f"{n} + kubeadm join --token {token} TOKEN_{token}\n" for n in range(2000)) + "the last line\n"
    deeds.cloud.do(lambda: deeds.cloud.ec2.set_console(instance(vm), console))
    await deeds.node("n-1", OTHER_VM)
    await revoke_tokens(kube, ref(given), 1)
    text = await words(deeds, given, vm)
    assert NO_TOKEN in text
    assert text.endswith(" TOKEN_" + token.partition(".")[0] + ".***\nthe last line")
    assert token.partition(".")[2] not in text
    assert len(text) < MESSAGE_LENGTH


async def test_a_token_that_somebody_removed_is_said_and_not_made_again(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    await deeds.world.kube.delete(token_path(given))
    assert await words(deeds, given, vm) == NO_TOKEN
    assert len(deeds.world.frame.calls("kubernetes", "create secrets")) == 1
    await deeds.node("n-1")
    assert (await words(deeds, given, vm)).startswith(f"{NO_TOKEN}; node n-1 exists but has no providerID: ")


async def test_a_token_of_another_machine_with_the_same_id_is_none_of_ours(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    assert await words(deeds, given, vm) == "its node has not joined yet"
    await deeds.world.kube.patch(token_path(given), {"metadata": {"annotations": {TAG_UID: "another"}}})
    later = DEADLINE + timedelta(hours=1)
    assert await words(deeds, given, vm, deadline=later) == NO_TOKEN
    assert await expiration(deeds, given) == "2031-01-01T12:00:00Z"


async def expiration(deeds: Deeds, given: Given) -> str:
    secret = await deeds.world.kube.get(token_path(given))
    return base64.b64decode(secret["data"]["expiration"]).decode()


async def test_a_token_that_would_end_before_the_deadline_is_renewed_once(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    for deadline in (DEADLINE - timedelta(hours=1), DEADLINE, DEADLINE + timedelta(hours=1)):
        for _ in range(2):
            assert await words(deeds, given, vm, deadline=deadline) == "its node has not joined yet"
    assert await expiration(deeds, given) == "2031-01-01T13:00:00Z"
    assert len(deeds.world.frame.calls("kubernetes", "patch secrets")) == 1


async def test_a_node_without_or_with_another_provider_id_is_said(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    await deeds.node("n-1")
    ccm = "waiting for the cloud-controller-manager (or kubelet --provider-id)"
    assert await words(deeds, given, vm) == f"node n-1 exists but has no providerID: {ccm}"
    await deeds.world.kube.delete(f"{NODES}/n-1")
    await deeds.node("n-1", OTHER_VM)
    theirs = f"node n-1 exists, but its providerID is {OTHER_VM}: it belongs to another VM"
    assert await words(deeds, given, vm) == theirs
    await deeds.world.kube.delete(f"{NODES}/n-1")
    await deeds.node("n-1", vm, ready="False")
    assert await words(deeds, given, vm) == "its node n-1 has joined, its condition Ready is False"


async def test_a_token_that_was_revoked_on_joining_was_removed_by_nobody(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    await deeds.node("x1.corp", vm, labels={MACHINE_NAME_LABEL: given.machine.name})
    await revoke_tokens(await deeds.deps.clusters.get("demo"), ref(given), 1)
    assert await words(deeds, given, vm) == "its node has joined as x1.corp"
    await deeds.world.kube.delete(f"{NODES}/x1.corp")
    assert await words(deeds, given, vm) == NO_TOKEN


async def test_without_the_right_to_read_the_look_still_says_what_it_can(deeds: Deeds) -> None:
    given, vm = await pending(deeds)
    forbidden: dict[str, Any] = {"code": "Forbidden", "status": 403}
    rule = strike(deeds, "get secrets", **forbidden)
    assert await words(deeds, given, vm) == "its node has not joined yet"
    assert rule.hits == 1
    strike(deeds, "get nodes", **forbidden, message="nodes is forbidden")
    assert await words(deeds, given, vm) == "whether its node has joined cannot be read: nodes is forbidden"
    await deeds.world.kube.delete(token_path(given))
    strike(deeds, "list nodes", **forbidden)
    assert await words(deeds, given, vm) == NO_TOKEN


async def test_an_api_server_that_hangs_costs_no_look_and_hides_no_bad_news(
    deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "PATIENCE", 0.1)
    given, vm = await pending(deeds)
    strike(deeds, "get secrets", delay=5.0, times=None)
    silent = "whether its node has joined cannot be read: the API server of demo does not answer"
    assert await words(deeds, given, vm) == silent
    deeds.cloud.do(lambda: deeds.cloud.ec2.kill(instance(vm)))
    watch = MachineActivities(deeds.deps).watch_machine
    input = status_input(deeds, given, vm, since=datetime.now(UTC) - timedelta(hours=1))
    output = await deeds.attempt(watch, input)
    assert isinstance(output, StatusOutput)
    assert output.gone


# -- creating ----------------------------------------------------------------------------------------------------------


async def test_c13_a_vm_without_a_provider_id_is_an_error_and_adopted_at_the_next_try(
    deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty node name, which is C13 upstream, is none here: a Node is matched by its providerID."""
    given = deeds.given()
    driver = deeds.deps.driver("AWS")
    create = driver.create_machine

    def nameless(request: CreateMachineRequest) -> MachineStatus:
        return create(request).model_copy(update={"provider_id": "", "node_name": ""})

    monkeypatch.setattr(driver, "create_machine", nameless)
    now = datetime.now(UTC)
    input = CreateInput(target=deeds.target(given), attempt=1, started=now, deadline=DEADLINE)
    failure = await deeds.fails(MachineActivities(deeds.deps).create_machine, input)
    info = ErrorInfo.model_validate(failure.details[0])
    assert (info.error_class, failure.non_retryable) == (ErrorClass.UNKNOWN, True)
    assert "answered without a providerID, so it is not known which VM it created" in info.message
    assert given.machine.uid in info.message
    assert deeds.client.started == []
    output = await deeds.attempt(MachineActivities(deeds.deps).create_machine, input)
    assert (output.adopted, [instance(output.provider_id)]) == (True, deeds.cloud.living(given.machine.uid))
    assert deeds.client.started == ["cluster/demo"]


async def test_c13_an_empty_node_name_is_no_error(deeds: Deeds, monkeypatch: pytest.MonkeyPatch) -> None:
    given = deeds.given()
    driver = deeds.deps.driver("AWS")
    create = driver.create_machine
    monkeypatch.setattr(driver, "create_machine", lambda r: create(r).model_copy(update={"node_name": ""}))
    input = CreateInput(target=deeds.target(given), attempt=1, started=datetime.now(UTC), deadline=DEADLINE)
    output = await deeds.attempt(MachineActivities(deeds.deps).create_machine, input)
    assert (output.node_name, output.stale_node) == ("", None)
    assert [instance(output.provider_id)] == deeds.cloud.living(given.machine.uid)

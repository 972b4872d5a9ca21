"""What goes wrong until a machine is Running, as an operator meets it: the cloud refuses, the node does not join, or
joins otherwise than expected. On the real driver, the real Kubernetes client, Temporal, and a simulated cloud and
cluster.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from lifekit import Stack, eventually, examples, write_secret
from machine.lives import (
    described,
    details,
    fault,
    instance,
    knobs,
    mend,
    node,
    nothing_is_left,
    reasons,
    story,
    time_is_up,
    user_data,
)

from activities.kube.tokens import token_id
from planners.waits import GROWING, SPREAD, WAIT
from resources.errors import Code, ErrorClass
from resources.machine.state import MachineState, Phase
from resources.names import INSTANCE_NOT_READY_TAINT, STARTUP_TAINTS
from resources.timings import Timings
from simulator.frame import FaultRule

SOON = timedelta(seconds=4)  # creationTimeout of a machine that should fail
HOUR = timedelta(hours=1)
PATIENT = Timings.fast().model_copy(update={"heartbeat": timedelta(seconds=10)})
"""For what a single call answers: its worker lives, however long a busy computer keeps it silent."""
UNINITIALIZED = STARTUP_TAINTS[0]


async def says(stack: Stack, words: str, name: str = "m-1") -> str:
    """`hostler describe`, once it says so: what a poller waits for is its last failure."""
    return await eventually(lambda: described(stack, name), lambda text: words in text, words)


async def apply(stack: Stack, state: MachineState, **provider_spec: Any) -> str:
    """Applies the class as somebody has corrected it."""
    assert state.machine_class is not None
    corrected = {**state.machine_class.provider_spec, **provider_spec}
    machine_class = state.machine_class.model_copy(
        update={"provider_spec": corrected, "generation": state.machine_class.generation + 1}
    )
    intent = {"id": "corrected", "spec": state.spec, "machineClass": machine_class}
    return str((await stack.started[state.name].execute_update("apply", intent))["message"])


# -- the cloud refuses -------------------------------------------------------------------------------------------------

REFUSALS = {
    "capacity": ("InsufficientInstanceCapacity", ErrorClass.CAPACITY, "OutOfCapacity", Code.RESOURCE_EXHAUSTED),
    "quota": ("VcpuLimitExceeded", ErrorClass.QUOTA, "QuotaExceeded", Code.RESOURCE_EXHAUSTED),
    "auth": ("UnauthorizedOperation", ErrorClass.AUTH, "NotAuthorized", Code.PERMISSION_DENIED),
    "invalid": ("InvalidParameterCombination", ErrorClass.INVALID, "InvalidSpec", Code.INVALID_ARGUMENT),
    "missing": ("InvalidSubnetID.NotFound", ErrorClass.NOT_FOUND, "ReferenceNotFound", Code.NOT_FOUND),
    "unknown": ("MoonPhaseUnsuitable", ErrorClass.UNKNOWN, "ProviderError", Code.UNKNOWN),
    "throttled": ("RequestLimitExceeded", ErrorClass.THROTTLED, "Throttled", Code.UNAVAILABLE),
    "unavailable": ("Unavailable", ErrorClass.TRANSIENT, "ProviderUnavailable", Code.UNAVAILABLE),
}


async def test_each_refusal_has_its_own_reason_words_and_wait(stack: Stack) -> None:
    """P21 is among them. The first call of each is refused with an error of its class, however often it is made."""
    for name, (code, *_) in REFUSALS.items():
        fault(stack, operation="RunInstances", match=f'"{name}"', code=code, message=f"no {name}", times=None)
        await stack.create(name, timings=PATIENT.model_copy(update={"retry": {}}), creation_timeout=HOUR)
    for name, (code, error_class, reason, canonical) in REFUSALS.items():
        state = await stack.reason(reason, name)
        operation, waits = state.status.last_operation, state.status.waiting_for
        assert operation is not None
        assert waits is not None
        assert waits.next_try is not None
        assert (state.status.phase, operation.error_code) == (Phase.CRASH_LOOP_BACK_OFF, canonical)
        spread = WAIT[error_class] * (SPREAD if error_class in GROWING else 0)
        assert WAIT[error_class] <= waits.next_try - operation.time <= WAIT[error_class] + spread
        text = await described(stack, name)
        for words in (reason, code, f"no {name}", "Next try:", "What can be done:", "Failed, if not Running:"):
            assert words in text, text
    assert stack.launched() == []
    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
    await stack.phase(Phase.RUNNING, "unavailable")  # the shortest wait of them


async def test_a_class_corrected_while_creating_fails(stack: Stack) -> None:
    """It gets a new token, since the former one is bound to the wrong request, and waits less than with the same
    one."""
    slow = Timings.fast().model_copy(update={"retry": {ErrorClass.INVALID: HOUR}})
    await stack.create(provider_spec={"machineType": "m5.enormous"}, timings=slow)
    wrong = await stack.reason("InvalidSpec")
    assert "m5.enormous" in await described(stack)
    assert await apply(stack, wrong, machineType="m5.large") == "configured"
    running = await stack.phase(Phase.RUNNING)
    assert reasons(running)[:4] == ["Created", "InvalidSpec", "Applied", "VMCreated"]
    assert running.attempt is not None
    assert running.attempt.number == 2
    assert len(stack.calls("RunInstances")) == 2
    assert stack.launched() == [instance(running)]


async def test_user_data_edited_between_two_tries(stack: Stack) -> None:
    """EC2 has bound the token to the request that failed: a new attempt, which has the new user data."""
    fault(stack, operation="RunInstances", code="InsufficientInstanceCapacity", times=None)
    await stack.create()
    await stack.reason("OutOfCapacity")
    edited = f'--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule --node-labels=edited=yes"'
    await write_secret(
        stack, "demo-aws", user_data((f'--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule"', edited))
    )
    mend(stack)
    running = await stack.phase(Phase.RUNNING)
    (over,) = [h.message for h in running.journal if h.reason == "AttemptIsOver"]
    assert "a new attempt follows unless a VM of this machine appears" in over
    assert running.attempt is not None
    assert running.attempt.number == 2
    assert node(stack, str(running.status.node_name))["metadata"]["labels"]["edited"] == "yes"
    assert stack.launched() == [instance(running)]
    await nothing_is_left(stack, running)


# -- the node does not join --------------------------------------------------------------------------------------------


@pytest.mark.core
async def test_a_node_that_never_joins(stack: Stack) -> None:
    """P13: the console's last lines are in describe while it waits, and in its story when it has failed."""
    knobs(stack, never_joins=True)
    await stack.create(creation_timeout=HOUR)
    waits = await stack.reason("NodeNotSeen")
    line = "dracut: FATAL: no root device"
    stack.simulator.call(lambda: stack.cloud.set_console(instance(waits), f"{line}\n"))
    assert "its node has not joined yet" in await says(stack, line)
    await time_is_up(stack, creation_timeout=SOON)
    await stack.phase(Phase.FAILED)
    text = await described(stack)
    for words in ("CreationTimeout", "not Running within creationTimeout (4s)", line):
        assert words in text
    (failed,) = [e for e in await story(stack) if e.reason == "CreationTimeout"]
    assert line in failed.message
    assert line in await details(stack.started["m-1"])
    await nothing_is_left(stack, waits)


async def test_a_bootstrap_token_that_somebody_deletes(stack: Stack) -> None:
    """This is said at once, while the VM boots, and again when the machine has failed by it."""
    knobs(stack, join_delay=3600)
    await stack.create(creation_timeout=HOUR, timings=PATIENT)
    waits = await stack.reason("NodeNotSeen")
    assert waits.attempt is not None
    token = f"bootstrap-token-{token_id(waits.uid, waits.attempt.number)}"
    stack.kubectl("delete", "secret", "-n", "kube-system", token)
    removed = "somebody removed its bootstrap token"
    await says(stack, removed)
    knobs(stack, join_delay=0)
    refused = "cannot create certificate signing request"  # the VM has the old one: it is of no use
    await eventually(lambda: console(stack, waits), lambda text: refused in text, "the kubelet's try to join")
    await time_is_up(stack, creation_timeout=SOON)
    assert token not in stack.kubectl("get", "secrets", "-n", "kube-system")
    failed = await stack.phase(Phase.FAILED)
    assert removed in failed.journal[-1].message
    await nothing_is_left(stack, waits)


async def console(stack: Stack, state: MachineState) -> str:
    return str(stack.ec2().get_console_output(InstanceId=instance(state)).get("Output", ""))


async def without_provider_id(stack: Stack, **spec: Any) -> MachineState:
    """A machine whose node has registered without a providerID; it says what it waits for."""
    knobs(stack, no_provider_id=True)
    await stack.create(**spec)
    waits = await stack.reason("NodeNotSeen")
    words = f"node {waits.status.node_name} exists but has no providerID: waiting for the cloud-controller-manager"
    await says(stack, words)
    return waits


async def test_a_node_that_gets_its_provider_id_later(stack: Stack) -> None:
    waits = await without_provider_id(stack)
    name = str(waits.status.node_name)
    stack.kubectl("patch", "node", name, "-p", json.dumps({"spec": {"providerID": waits.status.provider_id}}))
    assert (await stack.phase(Phase.RUNNING)).status.node_name == name
    await nothing_is_left(stack, waits)


async def test_a_node_that_never_gets_its_provider_id(stack: Stack) -> None:
    """Nobody can say whose it is, so the machine may not delete it either."""
    waits = await without_provider_id(stack, creation_timeout=HOUR)
    name = str(waits.status.node_name)
    await time_is_up(stack, creation_timeout=SOON)
    failed = await stack.phase(Phase.FAILED)
    assert f"node {name} exists but has no providerID" in failed.journal[-1].message
    await stack.delete()
    assert stack.leftovers(waits.uid) == {}
    assert stack.kubectl("get", "nodes", "-o", "name") == f"node/{name}\n"


async def test_a_node_that_joins_after_its_machine_has_failed(stack: Stack) -> None:
    """Its kubelet had its identity in time, and could not register. It gets no work, and goes with the machine."""
    register = fault(stack, service="kubernetes", operation="create nodes", code="InternalError", times=None)
    await stack.create(creation_timeout=HOUR)
    await eventually(lambda: _struck(register), bool, "a registration that is refused")
    await time_is_up(stack, creation_timeout=SOON)
    failed = await stack.phase(Phase.FAILED)
    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
    late = await eventually(stack.state, lambda s: "JoinedLate" in reasons(s), "a node that joined late")
    assert late.status.phase == Phase.FAILED
    assert "joined after the machine had Failed; it gets no pods" in await described(stack)
    assert late.node is not None
    taints = [t["key"] for t in node(stack, late.node.name)["spec"]["taints"]]
    assert INSTANCE_NOT_READY_TAINT in taints
    await nothing_is_left(stack, failed)


async def _struck(rule: FaultRule) -> int:
    return rule.hits


# -- it joins otherwise than expected ----------------------------------------------------------------------------------


async def test_a_node_of_another_name(stack: Stack) -> None:
    """P35: it is known by its providerID."""
    knobs(stack, node_name="worker-17")
    await stack.create()
    running = await stack.phase(Phase.RUNNING)
    assert running.status.node_name == "worker-17"
    assert "by its providerID the node is worker-17" in await described(stack)
    await nothing_is_left(stack, running)


async def test_a_node_of_another_name_that_never_gets_ready(stack: Stack) -> None:
    """It goes with its machine too, although it was not made ready for work."""
    fault(stack, service="kubernetes", operation="patch nodes", match="hostler.io/pool", code="Forbidden", times=None)
    knobs(stack, node_name="worker-17")
    await stack.create(creation_timeout=HOUR)
    await stack.reason("NodeTemplate")
    await time_is_up(stack, creation_timeout=SOON)
    failed = await stack.phase(Phase.FAILED)
    assert "worker-17" in stack.kubectl("get", "nodes", "-o", "name")
    await nothing_is_left(stack, failed)


async def test_p77_the_node_of_a_vm_that_no_answer_named_goes_with_its_machine(stack: Stack) -> None:
    """Neither an answer of the create call nor a look at what it made arrives; its kubelet joins, and then the VM dies.
    Deleted before the call's next try, the machine makes no other."""
    fault(stack, operation="RunInstances", drop=True, times=None)
    fault(stack, operation="DescribeInstances", match='"m-1"')  # the look before the call passes, no later one does
    fault(stack, operation="DescribeInstances", match='"m-1"', code="Unavailable", times=None)
    await stack.create()
    await eventually(lambda: _nodes(stack), bool, "its Node")
    (vm,) = stack.launched()
    stack.simulator.call(lambda: stack.cloud.kill(vm))
    await stack.started["m-1"].signal("delete", {"id": "d"})
    leaves = await stack.phase(Phase.TERMINATING)
    assert leaves.status.provider_id is None
    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)
    await nothing_is_left(stack, leaves)
    assert stack.launched() == [vm]


async def _nodes(stack: Stack) -> list[str]:
    return (await stack.kubectl_beside("get", "nodes", "-o", "name")).split()


async def test_an_empty_twin_takes_nothing_over(stack: Stack) -> None:
    """A second Node object has the VM's providerID: the machine says so, and stays Running; both Nodes are gone with
    the VM."""
    await stack.create()
    running = await stack.phase(Phase.RUNNING)
    name = str(running.status.node_name)
    twin = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "twin"},
        "spec": {"providerID": running.status.provider_id},
    }
    file = stack.kubeconfig.with_name("twin.json")
    file.write_text(json.dumps(twin))
    for _ in range(2):
        stack.kubectl("create", "-f", str(file))
        doubled = await eventually(stack.state, _duplicate, "DuplicateNode at the machine")
        assert _duplicate(doubled) == f"nodes {name} and twin have the providerID of this machine's VM; {name} counts"
        assert "DuplicateNode" in await described(stack)
        await eventually(lambda: _events(stack, name), lambda text: "DuplicateNode" in text, "its Event")
        if len([h for h in doubled.journal if h.reason == "DuplicateNode"]) == 1:
            stack.kubectl("delete", "node", "twin")
            await eventually(stack.state, lambda s: not _duplicate(s), "no condition")
    assert (doubled.status.phase, doubled.status.node_name) == (Phase.RUNNING, name)
    assert "Unknown" not in [h.reason for h in doubled.journal]
    await nothing_is_left(stack, running)


def _duplicate(s: MachineState) -> str:
    return next((c.message for c in s.status.conditions if c.type == "DuplicateNode"), "")


async def _events(stack: Stack, node: str) -> str:
    return await stack.kubectl_beside(
        "get", "events", "--field-selector", f"involvedObject.name={node}", "-o", "name", "-o", "yaml"
    )


async def test_p41_a_taint_of_the_cloud_provider(stack: Stack) -> None:
    """The node is Ready and takes no work until somebody else has removed it: Pending, and it says who."""
    former = f"--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule"
    await write_secret(stack, "demo-aws", user_data((former, f"{former},{UNINITIALIZED}=true:NoSchedule")))
    await stack.create()
    waits = await stack.reason("StartupTaint")
    assert waits.status.phase == Phase.PENDING
    text = await described(stack)
    assert f"waits for cloud-controller-manager to remove its taint {UNINITIALIZED}" in text
    name = str(waits.status.node_name)
    assert INSTANCE_NOT_READY_TAINT in json.dumps(node(stack, name)["spec"])
    stack.kubectl("taint", "node", name, f"{UNINITIALIZED}:NoSchedule-")
    running = await stack.phase(Phase.RUNNING)
    assert INSTANCE_NOT_READY_TAINT not in json.dumps(node(stack, name)["spec"])
    assert running.status.conditions == []
    await nothing_is_left(stack, running)


# -- its template, later -----------------------------------------------------------------------------------------------


async def test_a_changed_template_beside_other_writers(stack: Stack) -> None:
    """P39, I10: others' keys stay, a write that meets another one is tried again, and a taint that somebody took away
    is not put back."""
    template = examples().machines[0].spec.node_template.model_dump(by_alias=True)
    template["metadata"]["annotations"] = {"hostler.io/ours": "1"}
    template["spec"]["taints"] = [
        {"key": "ours", "value": "1", "effect": "NoSchedule"},
        {"key": "taken-away", "effect": "NoSchedule"},
    ]
    await stack.create(node_template=type(examples().machines[0].spec.node_template).model_validate(template))
    running = await stack.phase(Phase.RUNNING)
    name = str(running.status.node_name)
    stack.kubectl("taint", "node", name, "taken-away:NoSchedule-", "theirs=1:NoSchedule")
    stack.kubectl("label", "node", name, "theirs=1")
    stack.kubectl("annotate", "node", name, "theirs=1")
    stack.kubectl("cordon", name)

    template["metadata"]["labels"]["worker.hostler.io/pool"] = "other"
    template["metadata"]["annotations"] = {}
    template["spec"]["taints"][0]["value"] = "2"
    fault(stack, service="kubernetes", operation="patch nodes", match='"ours"', code="Conflict", times=2, id="meets")
    since = len(stack.calls("patch nodes", "kubernetes"))
    spec = running.spec.model_copy(update={"node_template": type(running.spec.node_template).model_validate(template)})
    intent = {"id": "a1", "spec": spec, "machineClass": running.machine_class}
    await stack.started["m-1"].execute_update("apply", intent)

    async def seen() -> Any:
        return node(stack, name)

    changed = await eventually(seen, lambda n: n["metadata"]["labels"]["worker.hostler.io/pool"] == "other", "changed")
    assert {t["key"]: t.get("value") for t in changed["spec"]["taints"] if "kubernetes.io" not in t["key"]} == {
        "ours": "2",
        "theirs": "1",
    }
    assert changed["metadata"]["labels"]["theirs"] == "1"
    assert changed["metadata"]["annotations"]["theirs"] == "1"
    assert "hostler.io/ours" not in changed["metadata"]["annotations"]
    assert changed["spec"]["unschedulable"]
    assert {"Conflict"} == {c.error for c in stack.calls("patch nodes", "kubernetes")[since:] if c.error}
    assert (await stack.state()).status.phase == Phase.RUNNING
    await nothing_is_left(stack, running)

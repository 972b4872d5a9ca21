"""What is left of VMs that are gone: their Nodes, found by label, providerID, uid and the names of the VMs that were
deleted; and calls that would make a VM for a leaving machine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from activitykit import OneMachine, instance
from lifekit import eventually
from machine.stubbed import called, delete, ended
from machine.stubs import NODE, VM, Handle, Machines, classified, phase, reason, state
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from activities.cloud.machine import MachineActivities
from activities.cluster.node import NodeActivities
from activities.kube import looks
from resources.attributes import PHASE
from resources.calls.cloud import CreateOutput, DeleteInput, DeleteOutput, FoundVm
from resources.calls.cluster import ForgetInput, ForgetOutput, ReadyOutput
from resources.errors import NOT_WANTED, ErrorClass, ErrorInfo
from resources.machine.facts import NodeFacts
from resources.machine.state import MachineState, Phase
from resources.names import MACHINE_NAME_LABEL
from resources.timings import Timings
from simulator.frame import FaultRule
from workflows.machine import MachineWorkflow

OTHER_VM, THIRD_VM = "aws:///eu-west-1/i-0fedcba9876543210", "aws:///eu-west-1/i-0fedcba9876543211"
LABELS = {MACHINE_NAME_LABEL: "m-1"}


async def forget(one: OneMachine, **fields: Any) -> ForgetOutput:
    input = ForgetInput(machine=one.ref, attempts=1, **fields)
    output: ForgetOutput = await one.attempts.attempt(NodeActivities(one.attempts.deps).forget_machine, input)
    return output


# -- whose Nodes go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["500", "2"])
async def test_p77_the_node_of_a_vm_that_no_answer_named(
    one: OneMachine, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """Its create call never answered, its kubelet joined, and nobody has connected the two."""
    monkeypatch.setattr(looks, "PAGE", page)
    await one.attempts.node(
        "ip-10-0-0-1", VM.replace("eu-west-1", "eu-west-1a")
    )  # as the cloud-controller-manager says
    for number in range(4):  # none of them belongs to a VM that is gone
        await one.attempts.node(f"other-{number}", f"aws:///eu-west-1/i-9{number}")
    await one.attempts.node("nobodys")
    assert (await forget(one, vms={VM: ""})).left == []
    assert await one.nodes() == ["nobodys", "other-0", "other-1", "other-2", "other-3"]


async def test_p77_by_the_name_that_the_cloud_gave_it(one: OneMachine) -> None:
    """It counts only with its providerID: the name may be another VM's by now. A Node without one is named."""
    await one.attempts.node("a", VM)
    await one.attempts.node("b", OTHER_VM)
    await one.attempts.node("c")
    output = await forget(one, vms={VM: "a", "aws:///eu-west-1/i-2": "b", "aws:///eu-west-1/i-3": "c"})
    assert await one.nodes() == ["b", "c"]
    assert output.left == ["node c: it has no providerID, so it is not known whether it belonged to this VM"]


async def test_what_has_joined_is_found_without_reading_all_nodes(one: OneMachine) -> None:
    await one.attempts.node("a", VM, labels=LABELS)
    await forget(one, node_name="a", node_uid="u-1", provider_id=VM, vms={VM: "a"})
    assert len(one.world.frame.calls("kubernetes", "list nodes")) == 1  # by label
    assert await one.nodes() == []
    one.world.frame.reset_journal()
    await forget(one, provider_id=VM)  # it never joined
    assert len(one.world.frame.calls("kubernetes", "list nodes")) == 2


async def test_p78_a_labelled_node_of_another_vm(one: OneMachine) -> None:
    """A Node of one of the machine's own VMs goes; one of any other VM stays, and is named for what it is."""
    await one.attempts.node("deleted", OTHER_VM, labels=LABELS)
    await one.attempts.node("former-life", "aws:///eu-west-1/i-4", labels=LABELS)
    await one.attempts.node("theirs", THIRD_VM, labels=LABELS)
    mine = await one.attempts.node("mine", labels=LABELS)
    await one.attempts.node("anew", labels=LABELS)
    fields = {"provider_id": VM, "vms": {VM: "", OTHER_VM: ""}, "former": ["aws:///eu-west-1/i-4"]}
    output = await forget(one, node_uid=mine["metadata"]["uid"], **fields)
    assert await one.nodes() == ["anew", "theirs"]
    words = f"it has this machine's label but the providerID {THIRD_VM}, which is not known to have been its VM"
    assert sorted(output.left) == [
        "node anew: it has no providerID, so it is not known whether it belonged to this VM",
        f"node theirs: {words}",
    ]


# -- what the deletion has found ---------------------------------------------------------------------------------------


async def test_p77_a_deletion_says_which_vms_it_has_deleted(one: OneMachine) -> None:
    """It also tells their names, which EC2 gives only for living ones, even after a pass that no longer finds
    anything."""
    made = await one.create()
    one.cloud.set_delays(0.0, 3600.0)
    activities, input = MachineActivities(one.attempts.deps), DeleteInput(target=one.target())
    assert "shutting-down" in await one.attempts.waits(activities.delete_machine, input)
    one.cloud.do(lambda: one.cloud.ec2.kill(instance(made.provider_id)))
    output: DeleteOutput = await one.attempts.attempt(activities.delete_machine, input)
    assert output.vms == {made.provider_id: made.node_name}


async def test_p77_what_it_has_deleted_is_forgotten(machines: Machines) -> None:
    vms = {VM: NODE}
    machines.stubs.then("create_machine", classified(ErrorClass.UNKNOWN, "no answer"))
    machines.stubs.then("delete_machine", DeleteOutput(vms=vms))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "ProviderError")
    await delete(handle)
    await ended(handle)
    (input,) = machines.stubs.called("forget_machine")
    assert (input.provider_id, input.vms, input.former) == (None, vms, [])


async def observed(handle: Handle, facts: NodeFacts) -> MachineState:
    """Waits until the news has been worked on."""
    before = (await state(handle)).messages
    await handle.signal(MachineWorkflow.observe, facts)
    return await eventually(lambda: state(handle), lambda s: s.messages > before, "the facts taken")


async def test_p78_a_node_of_a_former_life_is_neither_news_nor_a_twin(machines: Machines) -> None:
    machines.stubs.then("delete_machine", DeleteOutput(vms={VM: NODE, OTHER_VM: ""}))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    machines.stubs.always["create_machine"] = CreateOutput(provider_id=THIRD_VM, node_name="n-3")
    await handle.execute_update(MachineWorkflow.recreate, {"id": "r"}, id="r")
    await called(machines, "create_machine", 2)
    handle = machines.client.get_workflow_handle_for(MachineWorkflow.run, handle.id)
    second = await observed(handle, machines.facts(provider_id=OTHER_VM, twins=["twin"]))
    assert (second.life, second.former_vms, second.node) == (2, [VM, OTHER_VM], None)
    unknown = "aws:///eu-west-1/i-5"  # it knows no VM yet, so this may be its own; that both are, nobody can say
    second = await observed(handle, machines.facts(provider_id=unknown, twins=["twin"]))
    assert (second.node is not None, second.status.conditions) == (True, [])
    hold.set()
    await reason(handle, "NodeNotSeen")
    seen = await observed(handle, machines.facts(provider_id=THIRD_VM, twins=["twin"]))
    assert [c.type for c in seen.status.conditions] == ["DuplicateNode"]
    await delete(handle)
    await ended(handle)
    assert machines.stubs.called("forget_machine")[-1].former == [VM, OTHER_VM]


# -- a create call of a machine that leaves ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "status", "words"),
    [
        ("Terminating", WorkflowExecutionStatus.RUNNING, "the machine is Terminating: no VM is created any longer"),
        ("Failed", WorkflowExecutionStatus.RUNNING, "the machine is Failed: no VM is created any longer"),
        ("Pending", WorkflowExecutionStatus.TERMINATED, "somebody has ended its workflow"),
    ],
)
async def test_p79_no_later_try_makes_a_vm_of_a_machine_that_leaves(
    one: OneMachine, monkeypatch: pytest.MonkeyPatch, phase: str, status: WorkflowExecutionStatus, words: str
) -> None:
    """It still tells the account in which the first try may have made one."""
    answers_within(one, monkeypatch, 0.1)
    one.cloud.frame.faults.append(FaultRule(service="ec2", operation="RunInstances", code="InternalError"))
    with pytest.raises(ApplicationError) as first:
        await one.create()
    assert (first.value.non_retryable, one.launches()) == (False, 1)
    one.attempts.client.phase, one.attempts.client.status = phase, status
    with pytest.raises(ApplicationError) as second:
        await one.create()
    assert (second.value.type, second.value.non_retryable, one.launches()) == (NOT_WANTED, True, 1)
    assert words in second.value.message
    assert second.value.details[0].account_id == one.cloud.account
    one.attempts.client.phase, one.attempts.client.status = "CrashLoopBackOff", WorkflowExecutionStatus.RUNNING
    await one.create()
    assert one.launches() == 2


async def test_p79_what_a_former_try_makes_meanwhile_is_waited_for(
    one: OneMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was on its way when the try was given up, and no look shows yet what it makes."""
    answers_within(one, monkeypatch, 1.5)
    one.cloud.frame.lag = one.cloud.frame.lag.model_copy(update={"describe_after_create": 1.0})
    made = await one.create()
    one.attempts.client.phase = "Terminating"
    found = await one.create()
    assert (found.provider_id, found.adopted, one.launches()) == (made.provider_id, True, 1)


def answers_within(one: OneMachine, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clouds = one.attempts.deps.settings.clouds
    patient = clouds["aws"].model_copy(update={"call_timeout": timedelta(seconds=seconds)})
    monkeypatch.setitem(clouds, "aws", patient)


async def test_p79_a_vm_that_is_there_is_found_whatever_the_machine_does(one: OneMachine) -> None:
    made = await one.create()
    one.attempts.client.phase = "Terminating"
    found = await one.create()
    assert (found.provider_id, found.adopted, one.launches()) == (made.provider_id, True, 1)


def not_wanted(account_id: str = "") -> ApplicationError:
    info = ErrorInfo.of(ErrorClass.CONFLICT, "leaving").model_copy(update={"account_id": account_id})
    return ApplicationError("leaving", info, type=NOT_WANTED, non_retryable=True)


@pytest.mark.parametrize("account", ["", "1"])
async def test_p79_a_deletion_shows_at_once_while_the_create_call_is_in_flight(
    machines: Machines, account: str
) -> None:
    """It shows as a search attribute of the run, which the call reads before it makes anything. A call that had got
    further counts as one without an answer."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    machines.stubs.then("create_machine", not_wanted(account))
    handle = await machines.start(machines.new_state("m-1"))
    await called(machines, "create_machine")
    assert (await handle.describe()).typed_search_attributes.get(PHASE) == "Pending"
    await delete(handle)
    await phase(handle, Phase.TERMINATING)
    assert (await handle.describe()).typed_search_attributes.get(PHASE) == "Terminating"
    assert machines.stubs.called("delete_machine") == []  # its answer is awaited
    hold.set()
    result = await ended(handle)
    assert [h.reason for h in result.journal] == ["Created", "Terminating", "VMDeleted", "Gone"]
    (asked,) = machines.stubs.called("delete_machine")
    assert asked.target.account_id == account
    assert (await state(handle)).create_failures == bool(account)


async def test_p79_what_the_call_in_flight_makes_after_all_is_deleted(machines: Machines) -> None:
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await called(machines, "create_machine")
    await delete(handle)
    await phase(handle, Phase.TERMINATING)
    hold.set()
    result = await ended(handle)
    assert [h.reason for h in result.journal] == ["Created", "Terminating", "VMCreated", "VMDeleted", "Gone"]
    assert [i.target.provider_id for i in machines.stubs.called("delete_machine")] == [VM]


# -- a reset -----------------------------------------------------------------------------------------------------------


async def test_p80_a_vm_that_a_run_knew_before_its_reset_and_that_is_gone(machines: Machines) -> None:
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, account_id="1", gone=True))
    handle = await machines.start(machines.new_state("m-1"))
    failed = await phase(handle, Phase.FAILED)
    words = f"{VM}, which this machine had before its workflow was reset, is gone; it is not created again"
    assert [(h.reason, h.message) for h in failed.journal[1:]] == [("VMGone", words)]
    assert (failed.status.provider_id, failed.vm is not None and failed.vm.state) == (VM, "gone")
    await delete(handle)
    await ended(handle)
    assert len(machines.stubs.called("create_machine")) == 1
    (input,) = machines.stubs.called("forget_machine")
    assert (input.provider_id, input.node_name) == (VM, NODE)


async def test_p80_deleted_at_its_first_task_its_node_is_forgotten(machines: Machines) -> None:
    machines.stubs.then("find_machine", FoundVm(provider_id=VM, node_name=NODE, account_id="1", gone=True))
    intent = {"id": "d", "requestedBy": "test"}
    handle = await machines.start(machines.new_state("m-1"), start_signal="delete", start_signal_args=[intent])
    result = await ended(handle)
    assert [h.reason for h in result.journal] == ["Created", "Terminating", "VMGone", "VMDeleted", "Gone"]
    assert machines.stubs.called("look_at_node") == []  # nothing runs on a VM that is gone
    assert machines.stubs.called("delete_machine")[0].target.account_id == "1"
    (input,) = machines.stubs.called("forget_machine")
    assert (input.provider_id, input.node_name) == (VM, NODE)


# -- words -------------------------------------------------------------------------------------------------------------


async def test_the_id_is_said_when_the_api_server_fails_after_the_create_call(one: OneMachine) -> None:
    rule = FaultRule(service="kubernetes", operation="get nodes", code="InternalError", times=1)
    one.world.frame.faults.append(rule)
    with pytest.raises(ApplicationError) as failed:
        await one.create()
    (vm,) = one.living()
    assert f"aws:///eu-west-1/{vm} exists, and counts once node ip-" in failed.value.message
    assert instance((await one.create()).provider_id) == vm


@pytest.mark.parametrize(("age", "warned"), [(timedelta(hours=1), False), (timedelta(0), True)])
async def test_a_node_that_joined_before_its_vm_was_found_may_have_lost_its_taint(
    machines: Machines, age: timedelta, warned: bool
) -> None:
    """It was made ready by a run that was reset, or by a former life."""
    machines.stubs.always["remove_ready_taint"] = ReadyOutput(removed=False)
    handle = await machines.start(machines.new_state("m-1", Timings()))
    seen = await reason(handle, "NodeNotSeen")
    assert seen.attempt is not None
    joined = seen.attempt.started.replace(microsecond=0) - age
    await handle.signal(MachineWorkflow.observe, machines.facts(created=joined))
    running = await phase(handle, Phase.RUNNING)
    assert [c.type for c in running.status.conditions] == ["NoReadyTaint"] * warned

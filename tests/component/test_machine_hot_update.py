"""A changed class and a machine: what is called, in which phase, and what is known afterwards. Stubs for activities."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from lifekit import DEADLINE, eventually
from machine.stubbed import (
    CLASS,
    another,
    apply,
    asked_for,
    condition,
    delete,
    held,
    running,
    story,
    tagged,
    team,
    tell,
    until_last_told,
    until_told,
    updated,
)
from machine.stubs import NODE, VM, Machines, classified, failed_of_health, phase, reason, sick, state
from temporalio.testing import WorkflowEnvironment

from planners.provider_spec import spec_hash
from resources.calls.cloud import CreateOutput, StatusOutput, UpdateOutput
from resources.errors import ErrorClass
from resources.intents import Intent
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

# -- what a change does ------------------------------------------------------------------------------------------------


async def test_a_changed_tag_is_one_call_and_no_other_machine(machines: Machines) -> None:
    """P69."""
    handle = await running(machines)
    before = await state(handle)
    machines.stubs.then("update_machine", UpdateOutput(changed=["i-1: set team"]))
    wanted = tagged(before.machine_class, 2, "b")
    await tell(handle, wanted)
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))
    (call,) = machines.stubs.hot_updates()
    assert call.last_applied == before.machine_class.provider_spec
    assert call.target.provider_spec == wanted.provider_spec
    assert (call.target.provider_id, call.target.token) == (VM, before.attempt.token)
    after = await state(handle)
    assert after.status.last_applied_provider_spec.provider_spec == wanted.provider_spec
    assert after.status.last_applied_provider_spec.hash == spec_hash(wanted.provider_spec)
    assert (before.status.applied_generation, after.status.applied_generation) == (1, 2)
    operation = after.status.last_operation
    assert (operation.type, operation.state, operation.error_code) == ("Update", "Successful", None)
    (happened,) = story(after, "Updated")
    assert happened.message == operation.description
    for word in ("generation 2", "i-1: set team"):
        assert word in happened.message
    told = machines.stubs.called("tell_node")[-1]
    assert told.story == [happened]
    for same in ("uid", "attempt", "made", "node", "joined_uid", "ready_uid"):
        assert getattr(after, same) == getattr(before, same)
    for same in ("phase", "phase_since", "provider_id", "conditions", "waiting_for", "deadlines"):
        assert getattr(after.status, same) == getattr(before.status, same)


async def test_a_run_ends_between_two_updates(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """An update that is followed by the next one, always, would keep its run until the server ends it."""
    handle, now, hold = await held(machines)
    run = (await handle.describe()).run_id
    await tell(handle, tagged(now, 2, "b"))
    await machines.stubs.until_called("update_machine", 2)  # the first one was the post-start update
    await tell(handle, tagged(now, 3, "c"))
    await handle.signal("renew", Intent(id="r"))
    hold.set()
    await updated(handle, 3)
    assert [team(c.target.provider_spec) for c in machines.stubs.hot_updates()] == ["b", "c"]
    history = await temporal.client.get_workflow_handle(handle.id, run_id=run).fetch_history()
    scheduled = [e.activity_task_scheduled_event_attributes.activity_type.name for e in history.events]
    assert scheduled.count("update_machine") == 2
    assert (await handle.describe()).run_id != run


def reversed_tags(now: ClassSnapshot) -> ClassSnapshot:
    return another(now, 2, vmTags=dict(reversed(now.provider_spec["vmTags"].items())))


SAME: dict[str, Callable[[ClassSnapshot], ClassSnapshot]] = {
    "another order of keys": reversed_tags,
    "an ignored field": lambda now: another(now, 2, monitoring=True),
    "an empty field that was absent": lambda now: another(now, 2, tags={}),
    "other credentials": lambda now: another(now, 2).model_copy(
        update={"credentials_secret_ref": SecretRef(name="fresh")}
    ),
    "a generation and no more": lambda now: another(now, 2),
}


async def test_a_change_without_effect_is_no_call(machines: Machines) -> None:
    handle = await running(machines)
    for generation, (what, change) in enumerate(SAME.items(), 2):
        same = change((await state(handle)).machine_class).model_copy(update={"generation": generation})
        await tell(handle, same)
        await until_last_told(machines, (CLASS, generation, generation, "Updated"))
        after = await state(handle)
        assert (after.machine_class, after.status.applied_generation) == (same, generation), what
        assert after.status.conditions == []
    assert machines.stubs.told() == [(CLASS, n, n, "Updated") for n in range(2, 2 + len(SAME))]
    assert machines.stubs.hot_updates() == []
    await tell(handle, tagged(same, 9, "b"))
    await updated(handle, 9)
    (call,) = machines.stubs.hot_updates()
    assert call.target.credentials_secret_ref == SecretRef(name="fresh") == same.credentials_secret_ref


async def test_an_empty_specific_field_is_not_an_absent_one(machines: Machines) -> None:
    """It keeps `tags` from its resource."""
    handle = await running(machines)
    now = (await state(handle)).machine_class
    for generation, tags in ((2, {}), (3, None)):
        await tell(handle, another(now, generation, tags={"cost": "1"}, nicTags=tags))
        await updated(handle, generation)
    assert [c.target.provider_spec["nicTags"] for c in machines.stubs.hot_updates()] == [{}, None]


async def test_a_field_that_needs_a_new_vm_is_outdated_and_no_call(machines: Machines) -> None:
    handle = await running(machines)
    now = (await state(handle)).machine_class
    await tell(handle, another(now, 2, machineType="m5.xlarge", srcAndDstChecksEnabled=True))
    await until_told(machines, (CLASS, 2, 2, "Outdated"))
    (report,) = machines.stubs.called("report_to_class")
    outdated = await state(handle)
    assert report.report.reason == "Outdated"
    for said in (report.report.message, condition(outdated, "Outdated")):
        assert [f in said for f in ("machineType", "srcAndDstChecksEnabled", "vmTags")] == [True, True, False]
    assert outdated.status.last_applied_provider_spec.provider_spec["machineType"] == "m5.large"
    await tell(handle, another(now, 3))
    await until_told(machines, (CLASS, 2, 2, "Outdated"), (CLASS, 3, 3, "Updated"))
    assert (await state(handle)).status.conditions == []
    assert machines.stubs.hot_updates() == []
    assert len(machines.stubs.called("update_machine")) == 1  # the post-start update


async def test_of_a_change_of_both_kinds_the_hot_part_is_made(machines: Machines) -> None:
    handle = await running(machines)
    now = (await state(handle)).machine_class
    answer = await apply(handle, another(tagged(now, 2, "b"), 2, machineType="m5.xlarge"))
    for word in ("hot update of providerSpec.vmTags", "machineType"):
        assert word in answer
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Outdated"))
    (call,) = machines.stubs.hot_updates()
    assert (team(call.target.provider_spec), call.target.provider_spec["machineType"]) == ("b", "m5.large")
    after = await state(handle)
    assert "machineType" in condition(after, "Outdated")
    assert team(after.status.last_applied_provider_spec.provider_spec) == "b"
    assert after.status.last_applied_provider_spec.provider_spec["machineType"] == "m5.large"


# -- in which phase ----------------------------------------------------------------------------------------------------


async def test_an_unknown_machine_is_updated_and_goes_on_being_unknown(machines: Machines) -> None:
    handle = await running(machines)
    before = await sick(machines, handle)
    await tell(handle, tagged(before.machine_class, 2, "b"))
    after = await updated(handle, 2)
    assert len(machines.stubs.hot_updates()) == 1
    assert (after.status.phase, after.illness) == (Phase.UNKNOWN, before.illness)
    assert after.status.deadlines == before.status.deadlines
    assert after.status.waiting_for == before.status.waiting_for


async def test_a_failed_machine_is_updated_and_keeps_what_it_failed_of(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Its VM runs and costs money, so tags for accounting matter. cluster-autoscaler reads its last operation."""
    handle = await failed_of_health(temporal, machines)
    before = await reason(handle, "HealthTimeout")
    await tell(handle, tagged(before.machine_class, 2, "b"))
    after = await updated(handle, 2)
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))
    assert len(machines.stubs.hot_updates()) == 1
    assert after.status.phase == Phase.FAILED
    assert after.status.waiting_for == before.status.waiting_for
    assert after.status.conditions == before.status.conditions
    assert after.status.last_operation == before.status.last_operation


async def test_a_failed_machine_is_updated_while_it_drains(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The drain may take hours; the update neither ends it nor begins it again."""
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    handle = await failed_of_health(temporal, machines)
    before = await reason(handle, "Draining")
    await tell(handle, tagged(before.machine_class, 2, "b"))
    meanwhile = await updated(handle, 2)
    assert (meanwhile.status.phase, meanwhile.status.waiting_for.reason) == (Phase.FAILED, "Draining")
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))
    hold.set()
    after = await reason(handle, "HealthTimeout")
    assert (after.drained, after.drain_began) == (True, before.drain_began)
    assert len(machines.stubs.hot_updates()) == 1
    assert len([n for n, _ in machines.stubs.asked if n == "drain_node"]) == 1


@pytest.mark.parametrize("failed", [False, True], ids=["call in flight", "CrashLoopBackOff"])
async def test_without_a_vm_the_next_attempt_is_made_with_the_new_class(
    temporal: WorkflowEnvironment, machines: Machines, failed: bool
) -> None:
    """Nothing is there to update. A request that is under way is frozen, and its VM is updated after post-start."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    if failed:
        machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY, "none left"))
        hold.set()
    handle = await machines.start(machines.new_state("m-1"))
    before = await reason(handle, "OutOfCapacity" if failed else "CreatingVM")
    await tell(handle, tagged(before.machine_class, 2, "b"))
    if failed:
        await reason(handle, "ClassChanged")
        await temporal.fast_forward(handle, timedelta(seconds=61))
    else:
        await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 2)
        hold.set()
    after = await updated(handle, 2)
    made = machines.stubs.called("create_machine")[-1]
    assert (team(made.target.provider_spec), made.generation) == (("b", 2) if failed else ("platform", 1))
    assert len(machines.stubs.hot_updates()) == (0 if failed else 1)
    assert team(after.status.last_applied_provider_spec.provider_spec) == "b"


async def test_a_vm_that_a_former_attempt_made_after_all_is_brought_to_the_new_class(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The reply of the first call was lost, the class changed, and the second attempt finds the first one's VM: it may
    carry the values of either."""
    machines.stubs.then("create_machine", classified(ErrorClass.UNKNOWN, "the reply was lost"))
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, adopted=True))
    handle = await machines.start(machines.new_state("m-1"))
    now = (await reason(handle, "ProviderError")).machine_class
    await tell(handle, tagged(now, 2, "b"))
    await reason(handle, "ClassChanged")
    await temporal.fast_forward(handle, timedelta(seconds=61))
    await asked_for(machines, 1)
    (call,) = machines.stubs.hot_updates()
    assert (team(call.last_applied), team(call.target.provider_spec)) == ("platform", "b")
    await until_last_told(machines, (CLASS, 2, 2, "Updated"))


async def test_a_vm_made_by_a_class_that_has_changed_meanwhile_is_outdated(machines: Machines) -> None:
    """The request was under way, and frozen, when a field changed that only a new VM can have."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    now = (await reason(handle, "CreatingVM")).machine_class
    await tell(handle, another(now, 2, machineType="m5.xlarge"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 2)
    hold.set()
    await until_last_told(machines, (CLASS, 2, 2, "Outdated"))
    assert "machineType" in str(condition(await reason(handle, "NodeNotSeen"), "Outdated"))


async def test_a_pending_machine_is_updated_after_its_post_start_update(machines: Machines) -> None:
    """The post-start update follows the class that the VM was made from."""
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    before = await reason(handle, "PostStartUpdate")
    await tell(handle, tagged(before.machine_class, 2, "b"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 2)
    assert machines.stubs.hot_updates() == []
    hold.set()
    after = await updated(handle, 2)
    assert after.status.phase == Phase.PENDING
    first, second = machines.stubs.called("update_machine")
    assert (first.last_applied, team(first.target.provider_spec)) == (None, "platform")
    assert (team(second.last_applied), team(second.target.provider_spec)) == ("platform", "b")
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))


async def test_a_pending_machine_is_updated_while_its_node_is_waited_for(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    before = await reason(handle, "NodeNotSeen")
    await tell(handle, tagged(before.machine_class, 2, "b"))
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))
    after = await reason(handle, "NodeNotSeen")
    assert len(machines.stubs.hot_updates()) == 1
    assert after.status.deadlines == before.status.deadlines
    await tell(handle, another(tagged(before.machine_class, 3, "b"), 3, machineType="m5.xlarge"))
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"), (CLASS, 3, 3, "Outdated"))
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    assert len(machines.stubs.hot_updates()) == 1


async def test_a_machine_that_failed_before_its_post_start_update_is_updated_too(machines: Machines) -> None:
    """Or it says why it is not: its class must not wait for it for ever."""
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    machines.stubs.then("update_machine", classified(ErrorClass.NOT_FOUND, "i-1 is terminated"))
    handle = await machines.start(machines.new_state("m-1", timings=Timings(consistency=timedelta(0))))
    before = await reason(handle, "PostStartUpdate")
    hold.set()
    await phase(handle, Phase.FAILED)
    await tell(handle, tagged(before.machine_class, 2, "b"))
    settled = {"Updated", "Failed", "Pending", "Outdated", "NotSupported"}

    async def last() -> str:
        told = machines.stubs.told()
        return told[-1][3] if told else ""

    await eventually(last, lambda said: said in settled, "an answer that the class can count")


async def test_a_machine_that_is_being_deleted_is_not_updated(machines: Machines) -> None:
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    handle = await running(machines)
    now = (await state(handle)).machine_class
    await tell(handle, tagged(now, 2, "b"))
    await updated(handle, 2)
    await delete(handle)
    await reason(handle, "Draining")
    await tell(handle, tagged(now, 3, "c"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 3)
    hold.set()
    result = await handle.result()
    assert [h.reason for h in result.journal].count("Updated") == 1
    assert len(machines.stubs.hot_updates()) == 1


# -- what happens meanwhile --------------------------------------------------------------------------------------------


async def test_a_class_that_changes_meanwhile_is_the_next_call_and_the_newest_wins(machines: Machines) -> None:
    """What the older call did is known by then: the next call's last applied spec is what the VM carries."""
    handle, now, hold = await held(machines)
    await tell(handle, tagged(now, 2, "b", cost="1"))
    await asked_for(machines, 1)
    for generation, value in ((3, "c"), (4, "d")):
        await tell(handle, tagged(now, generation, value))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 4)
    assert len(machines.stubs.hot_updates()) == 1
    hold.set()
    after = await updated(handle, 4)
    first, second = machines.stubs.hot_updates()
    assert (team(first.target.provider_spec), team(second.target.provider_spec)) == ("b", "d")
    assert second.last_applied == first.target.provider_spec
    assert after.status.last_applied_provider_spec.provider_spec == tagged(now, 4, "d").provider_spec
    assert [f"generation {n}" in h.message for n, h in zip((2, 4), story(after, "Updated"), strict=True)] == [True] * 2


async def test_a_class_set_back_while_the_call_is_in_flight_is_one_call_more(machines: Machines) -> None:
    handle, now, hold = await held(machines)
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    await tell(handle, another(now, 3))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 3)
    hold.set()
    after = await updated(handle, 3)
    assert [team(c.target.provider_spec) for c in machines.stubs.hot_updates()] == ["b", "platform"]
    assert team(machines.stubs.hot_updates()[-1].last_applied) == "b"
    assert after.status.last_applied_provider_spec.provider_spec == now.provider_spec


async def test_a_generation_that_changes_nothing_more_is_done_with_the_call_under_way(machines: Machines) -> None:
    handle, now, hold = await held(machines)
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    await tell(handle, tagged(now, 3, "b"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 3)
    hold.set()
    await updated(handle, 3)
    await until_last_told(machines, (CLASS, 3, 3, "Updated"))
    assert len(machines.stubs.hot_updates()) == 1


async def test_a_deletion_does_not_wait_for_the_call(machines: Machines) -> None:
    handle, now, hold = await held(machines)
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    await delete(handle)
    result = await asyncio.wait_for(handle.result(), DEADLINE)  # the call is still held
    assert result.journal[-1].reason == "Gone"
    assert [h.reason for h in result.journal if h.reason.startswith("Update")] == []
    hold.set()
    assert len(machines.stubs.hot_updates()) == 1


async def test_a_machine_is_judged_while_the_call_is_in_flight(machines: Machines) -> None:
    """There may be no worker of the cloud's queue for hours."""
    handle, now, hold = await held(machines)
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    unwell = await sick(machines, handle)
    assert "health" in unwell.status.deadlines
    hold.set()
    after = await updated(handle, 2)
    assert after.status.phase == Phase.UNKNOWN


async def test_a_failed_machine_whose_vm_is_gone_is_asked_for_once(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """There is nothing to update, and nobody to mend it: the class does not wait for it either."""
    machines.stubs.then("watch_machine", StatusOutput(gone=True, message=f"{VM} is terminated"))
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(0))))
    before = await phase(handle, Phase.FAILED)
    machines.stubs.then("update_machine", classified(ErrorClass.NOT_FOUND, "i-1 does not exist"))
    await tell(handle, tagged(before.machine_class, 2, "b"))
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 1, "Pending"))
    await temporal.fast_forward(handle, timedelta(hours=1))
    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.9"]))
    after = await eventually(lambda: state(handle), lambda s: s.node)
    assert len(machines.stubs.hot_updates()) == 1
    trouble = after.status.update_trouble
    assert (trouble.reason, trouble.next_try) == ("VMGone", None)
    assert "i-1 does not exist" in trouble.message
    assert after.status.waiting_for == before.status.waiting_for
    assert after.status.conditions == before.status.conditions

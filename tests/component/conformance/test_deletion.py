"""Deletion: machine-controller-manager's cases D2 to D6 and D16 to D21, and what surrounds them. docs/conformance.md is
the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import OneMachine
from clouds.drivers import AwsCloud, delete_until_gone, machine
from lifekit import eventually
from machine.stubbed import (
    WAY_OUT,
    called,
    delete,
    ended,
    operation,
    pending_failure,
    phase,
    reason,
    running,
    state,
    way_out,
    with_vm,
)
from machine.stubs import NODE, VM, Machines, classified, not_yet, stubbed
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import worker
from activities.cluster.node import NodeActivities
from resources.calls.cloud import DeleteOutput
from resources.calls.cluster import ForgetInput
from resources.errors import ErrorClass
from resources.machine.state import ApplyIntent, LastOperation, OperationState, OperationType, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

OTHER_VM = "aws:///eu-west-1/i-2"

# -- the steps ------------------------------------------------------------------------------------------------------


async def test_d02_d03_d05_terminating_drain_then_the_vm(machines: Machines) -> None:
    for name in WAY_OUT:
        machines.stubs.holds[name] = asyncio.Event()
    handle = await running(machines)
    await delete(handle, reason="rotation")
    seen = await reason(handle, "Draining")
    assert (seen.status.phase, operation(seen)) == (Phase.TERMINATING, (OperationType.DRAIN, OperationState.PROCESSING))
    assert (seen.journal[-1].reason, seen.journal[-1].message) == (
        "Terminating",
        "deletion was requested by test: rotation",
    )
    await called(machines, "drain_node")
    (asked,) = machines.stubs.called("drain_node")
    assert [h.reason for h in asked.story] == ["Terminating"]  # told as an Event on the Node; MCM: a node condition
    assert machines.stubs.called("delete_machine") == []
    machines.stubs.holds["drain_node"].set()
    seen = await reason(handle, "DeletingVM")
    assert (seen.drained, operation(seen)) == (True, (OperationType.DELETE, OperationState.PROCESSING))
    machines.stubs.holds["delete_machine"].set()
    machines.stubs.holds["forget_machine"].set()
    await ended(handle)


async def test_d04_the_step_is_state_and_not_a_text(machines: Machines) -> None:
    """MCM reads its step from the description; ours goes on after the drain whatever is written there."""
    garbled = LastOperation(
        type=OperationType.DELETE, state=OperationState.PROCESSING, description="???", time=datetime.now(UTC)
    )
    s = with_vm(machines, joined=True, was_running=True, drained=True)
    s.status.phase, s.status.last_operation, s.status.deadlines = Phase.TERMINATING, garbled, {}
    s = s.model_copy(update={"deletion": {"time": datetime.now(UTC)}})
    result = await ended(await machines.start(s))
    assert way_out(machines) == ["delete_machine", "forget_machine"]
    assert [h.reason for h in result.journal] == ["VMDeleted", "Gone"]


async def test_d06_without_a_node_there_is_nothing_to_drain(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await delete(handle)
    await ended(handle)
    assert way_out(machines) == ["delete_machine", "forget_machine"]


async def test_d16_d17_d18_the_node_goes_after_the_vm_and_then_the_machine(machines: Machines) -> None:
    machines.stubs.then("delete_machine", not_yet("still there: i-1 shutting-down", timedelta(seconds=1)))
    handle = await running(machines)
    await delete(handle)
    result = await ended(handle)
    assert way_out(machines) == ["drain_node", "delete_machine", "delete_machine", "forget_machine"]
    (forgotten,) = machines.stubs.called("forget_machine")
    assert (forgotten.node_name, forgotten.provider_id) == (NODE, VM)
    assert [h.reason for h in result.journal][-4:] == ["Terminating", "Drained", "VMDeleted", "Gone"]


NAMELESS = f"node {NODE}: it has no providerID, so it is not known whether it belonged to this VM"


@pytest.mark.parametrize(
    ("owner", "known", "left", "said"),
    [
        pytest.param(VM, True, [], [], id="D17"),
        pytest.param(VM, False, [], [], id="its own, and it never joined"),
        pytest.param("", True, [], [], id="without providerID, and it is the object that joined"),
        pytest.param("", False, [NODE], [NAMELESS], id="without providerID, and not the object that joined"),
        pytest.param(OTHER_VM, False, [NODE], [], id="another VM's of the same name"),
    ],
)
async def test_d17_the_node_object_is_deleted(
    one: OneMachine, owner: str, known: bool, left: list[str], said: list[str]
) -> None:
    """DNS names are reused: no Node is deleted by its name alone."""
    made = await one.attempts.node(NODE, owner)
    await one.attempts.node("other", "aws:///eu-west-1/i-3")
    uid = made["metadata"]["uid"] if known else "another"
    input = ForgetInput(machine=one.ref, node_name=NODE, node_uid=uid, provider_id=VM, attempts=1)
    for _ in range(2):  # again, after a crash
        output = await one.attempts.attempt(NodeActivities(one.attempts.deps).forget_machine, input)
        assert output.left == said
    assert await one.nodes() == sorted([*left, "other"])


# -- at any moment --------------------------------------------------------------------------------------------------


async def _creating(machines: Machines) -> Any:
    machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await called(machines, "create_machine")
    return handle


async def _crash_loop(machines: Machines) -> Any:
    machines.stubs.then("create_machine", classified(ErrorClass.QUOTA, "limit 100"))
    handle = await machines.start(machines.new_state("m-1"))
    await phase(handle, Phase.CRASH_LOOP_BACK_OFF)
    return handle


async def _setting_up(machines: Machines) -> Any:
    machines.stubs.then("update_machine", classified(ErrorClass.AUTH, "not authorized"))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NotAuthorized")
    return handle


async def _joining(machines: Machines) -> Any:
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(0))))
    await called(machines, "watch_machine")
    return handle


async def _unknown(machines: Machines) -> Any:
    handle = await running(machines)
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await phase(handle, Phase.UNKNOWN)
    return handle


async def _failed(machines: Machines) -> Any:
    machines.stubs.then("create_machine", *[classified(ErrorClass.QUOTA, "limit 100")] * 9)
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(seconds=1)))
    await phase(handle, Phase.FAILED)
    return handle


@pytest.mark.parametrize("moment", [_creating, _crash_loop, _setting_up, _joining, running, _unknown, _failed])
async def test_deleted_in_every_phase(machines: Machines, moment: Callable[[Machines], Any]) -> None:
    handle = await moment(machines)
    await delete(handle)
    for hold in machines.stubs.holds.values():
        hold.set()
    result = await ended(handle)
    assert way_out(machines)[-2:] == ["delete_machine", "forget_machine"]
    assert ("drain_node" in way_out(machines)) == (moment in (running, _unknown))  # otherwise no node had joined
    (asked,) = machines.stubs.called("delete_machine")
    made = moment not in (_crash_loop, _failed)
    assert asked.target.provider_id == (VM if made else None)  # without an id, by the machine's uid
    assert asked.target.machine.uid == result.uid
    assert result.journal[-1].reason == "Gone"


async def test_d19_d20_d21_deleted_while_it_is_created(machines: Machines) -> None:
    """MCM refuses the deletion for 3 minutes, by a mark in memory; ours is recorded and waits for the answer."""
    handle = await _creating(machines)
    await delete(handle)
    seen = await state(handle)
    assert seen.deletion is not None
    assert way_out(machines) == []
    machines.stubs.holds["create_machine"].set()
    await ended(handle)
    assert [i.target.provider_id for i in machines.stubs.called("delete_machine")] == [VM]
    assert machines.stubs.called("update_machine") == []
    other = await running(machines, "m-2")  # not in creation: at once
    await delete(other)
    await ended(other)


async def test_a_second_delete_changes_nothing(machines: Machines) -> None:
    machines.stubs.holds["drain_node"] = asyncio.Event()
    handle = await running(machines)
    await delete(handle, requested_by="first")
    await delete(handle, requested_by="second")
    seen = await state(handle)
    assert seen.deletion is not None
    assert seen.deletion.requested_by == "first"
    machines.stubs.holds["drain_node"].set()
    await ended(handle)
    assert way_out(machines) == WAY_OUT


async def test_missing_class_at_deletion(machines: Machines) -> None:
    """MCM hangs for ever (its issue 1061). The machine carries what it was made from."""
    handle = await running(machines)
    seen = await state(handle)
    assert seen.machine_class is not None
    made_from = seen.machine_class
    newest = made_from.model_copy(
        update={"generation": 2, "provider_spec": {**made_from.provider_spec, "machineType": "m5.xlarge"}}
    )
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="2", spec=seen.spec, machine_class=newest))
    await delete(handle)
    await ended(handle)
    (asked,) = machines.stubs.called("delete_machine")
    assert asked.target.provider_spec == made_from.provider_spec
    assert {name for name, _ in machines.stubs.calls} == {
        "create_machine",
        "update_machine",
        "join_node",
        "remove_ready_taint",
        "report_to_class",  # nobody waits for that
        *WAY_OUT,
    }  # nothing asks for a class


@pytest.mark.parametrize(
    ("step", "words", "waits"),
    [
        ("drain_node", "Kubernetes API: demo cannot be reached", "Draining"),
        ("delete_machine", "TerminateInstances: no connection", "DeletingVM"),
        ("forget_machine", "Kubernetes API: demo cannot be reached", "ProviderUnavailable"),
    ],
)
async def test_api_outage_while_deletions_run(
    temporal: WorkflowEnvironment, machines: Machines, step: str, words: str, waits: str
) -> None:
    """One API or the other does not answer: the step waits and says so, nothing after it is begun (I5), and it
    continues on its own.

    The words are those of the pending activity where it waits for something outside anyway.
    """
    pending, ten = waits != "ProviderUnavailable", timedelta(minutes=10)
    machines.stubs.always[step] = classified(ErrorClass.TRANSIENT, words, last=not pending)
    timings = Timings(poll=timedelta(seconds=0.2), retry={ErrorClass.TRANSIENT: ten})
    handle = await running(machines, timings=timings)
    await delete(handle)
    seen = await reason(handle, waits)
    assert seen.status.waiting_for is not None
    if pending:
        await eventually(lambda: pending_failure(handle), lambda said: said == words, "its words")
        await called(machines, step, 6)  # other activities get five tries in all
    else:
        how = f"`hostler delete machine m-1 --cluster {machines.prefix} --force --abandon-node`"
        assert (
            seen.status.waiting_for.message
            == f"{words}; its VM is gone; if the cluster will never answer again, end this with {how}"
        )
        assert seen.status.waiting_for.next_try is not None
    assert way_out(machines)[-1] == step
    del machines.stubs.always[step]
    if not pending:
        await temporal.fast_forward(handle, ten * 1.5)  # a wait is randomly longer
    await ended(handle)
    assert list(dict.fromkeys(way_out(machines))) == WAY_OUT
    assert way_out(machines).count(step) > 1
    assert [way_out(machines).count(name) for name in WAY_OUT if name != step] == [1, 1]


async def test_deletion_with_nobody_polling_then_a_worker_comes(temporal: WorkflowEnvironment) -> None:
    async with stubbed(temporal.client, workflows=False) as machines:
        options: dict[str, Any] = {"workflows": worker.WORKFLOWS, "workflow_runner": worker.sandbox(strict=False)}
        async with Worker(temporal.client, task_queue=machines.prefix, **options):
            handle = await running(machines)
        await handle.signal("delete", {"id": "d-1", "requestedBy": "somebody at night"})
        assert way_out(machines) == []
        async with Worker(temporal.client, task_queue=machines.prefix, **options):
            result = await ended(handle)
    assert way_out(machines) == WAY_OUT
    assert "somebody at night" in next(h.message for h in result.journal if h.reason == "Terminating")


async def test_what_the_spec_keeps_is_named_in_the_result(machines: Machines) -> None:
    machines.stubs.then("delete_machine", DeleteOutput(kept=["vol-1", "eni-1"]))
    handle = await running(machines)
    await delete(handle)
    result = await ended(handle)
    assert result.kept == ["vol-1", "eni-1"]
    assert "kept, because the spec says so: vol-1, eni-1" in next(
        h.message for h in result.journal if h.reason == "VMDeleted"
    )


def test_changed_must_tags_hide_nothing_from_a_deletion(cloud: AwsCloud) -> None:
    """MCM finds a VM by the cluster and role tags of its class, as the class is now; ours finds it by the machine's own
    uid."""
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    given.spec = cloud.spec(tags={"kubernetes.io/cluster/shoot--other--one": "1", "kubernetes.io/role/other": "1"})
    assert cloud.driver.get_machine_status(given.status(token="")).provider_id == made.provider_id
    delete_until_gone(given)
    assert cloud.left(given.machine.uid) == {}

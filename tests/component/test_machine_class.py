"""A machine and its class: asking for it, refusing it, leaving it, and what each is told. Stubs for activities."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

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
    in_trouble,
    running,
    story,
    tagged,
    team,
    tell,
    until_last_told,
    until_told,
    updated,
)
from machine.stubs import Handle, Machines, classified, not_yet, phase, reason, state, stubbed
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from resources import attributes
from resources.calls.cloud import UpdateOutput
from resources.errors import ErrorClass
from resources.machine.intents import RecreateIntent
from resources.machine.manifest import ClassRef, SecretRef
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.reasons import REASONS, next_step
from workflows.machine import MachineWorkflow

OTHER = "demo-green"
CLUSTER_TAG = "kubernetes.io/cluster/shoot--hostler--demo"


def other(snapshot: ClassSnapshot, generation: int, **provider_spec: Any) -> ClassSnapshot:
    return another(snapshot, generation, **provider_spec).model_copy(update={"name": OTHER})


def left(machines: Machines) -> list[tuple[str, list[str]]]:
    """For each report, the class that it went to; and the classes that were told that the machine is not theirs."""
    return [(i.machine_class.name, [c.name for c in i.left]) for i in machines.stubs.reports()]


async def until_left(machines: Machines, wanted: tuple[str, list[str]]) -> None:
    async def leaves() -> list[tuple[str, list[str]]]:
        return left(machines)

    await eventually(leaves, lambda seen: wanted in seen, f"{wanted}")


# -- asking ------------------------------------------------------------------------------------------------------------


async def bare(machines: Machines, name: str = "m-1", **spec: Any) -> tuple[Handle, ClassSnapshot]:
    """A machine as a person starts it with a few words of JSON, and the class that it lacks."""
    new = machines.new_state(name, **spec)
    started = await machines.start(new.model_copy(update={"machine_class": None}))
    assert new.machine_class is not None
    return machines.client.get_workflow_handle(started.id), new.machine_class


async def test_a_machine_without_a_class_waits_for_it_and_takes_it(machines: Machines) -> None:
    handle, its = await bare(machines)
    waits = await reason(handle, "ClassMissing")
    assert waits.status.phase == Phase.PENDING
    assert f"MachineClass {CLASS} of cluster {machines.prefix}" in waits.status.waiting_for.message
    assert "hostler apply" in next_step("ClassMissing", "demo", "m-1")
    await eventually(lambda: published(handle), lambda p: p == "ClassMissing", "the search attribute")
    assert machines.stubs.called("create_machine") == []
    machines.stubs.classes[CLASS] = another(its, 7)
    created = await reason(handle, "NodeNotSeen")
    assert machines.stubs.called("ask_class")[0].model_dump() == {"cluster": machines.prefix, "name": CLASS}
    (taken,) = story(created, "ClassTaken")
    assert taken.message == f"class {CLASS}, generation 7"
    (call,) = machines.stubs.called("create_machine")
    assert (call.class_name, call.generation, call.target.provider_spec) == (CLASS, 7, its.provider_spec)
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    assert await published(handle) is None


async def published(handle: Handle) -> str | None:
    """Why it waits, as lists of machines show it."""
    return (await handle.describe()).typed_search_attributes.get(attributes.REASON)


async def test_a_class_that_says_it_itself_or_an_operator_is_not_waited_for(machines: Machines) -> None:
    told, its = await bare(machines, "told")
    applied, _ = await bare(machines, "applied")
    for handle in (told, applied):
        await reason(handle, "ClassMissing")
    await tell(told, its)
    await apply(applied, its)
    for handle in (told, applied):
        await reason(handle, "NodeNotSeen")


async def test_a_question_that_fails_is_asked_again(temporal: WorkflowEnvironment, machines: Machines) -> None:
    machines.stubs.then("ask_class", classified(ErrorClass.UNKNOWN, "the class cannot be asked"))
    handle, its = await bare(machines)
    waits = await reason(handle, "ProviderError")
    assert "the class cannot be asked" in waits.status.waiting_for.message
    machines.stubs.classes[CLASS] = its
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    await reason(handle, "NodeNotSeen")
    assert await asked(machines) >= 2


async def test_without_a_class_by_its_creation_deadline_it_is_failed(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    machines.stubs.then("ask_class", *[not_yet(f"class {CLASS} is not there", timedelta(days=1))] * 9)
    handle, its = await bare(machines, creation_timeout=timedelta(minutes=5))
    await reason(handle, "ClassMissing")
    await eventually(lambda: asked(machines), lambda n: n == 1)
    await temporal.fast_forward(handle, timedelta(minutes=5, seconds=1))
    failed = await phase(handle, Phase.FAILED)
    assert failed.parked is None
    assert CLASS in condition(failed, "Failed")
    await tell(handle, its)  # too late: a Failed machine is no longer created
    await eventually(lambda: state(handle), lambda s: s.machine_class is not None)
    assert (await phase(handle, Phase.FAILED)).parked is None
    await delete(handle)
    assert (await handle.result())["journal"][-1]["reason"] == "Terminating"
    assert machines.stubs.called("create_machine") == machines.stubs.called("delete_machine") == []


async def asked(machines: Machines) -> int:
    return len(machines.stubs.called("ask_class"))


async def test_a_machine_that_waits_for_its_class_can_be_deleted(machines: Machines) -> None:
    handle, _ = await bare(machines)
    await machines.stubs.until_called("ask_class")
    await reason(handle, "ClassMissing")
    await delete(handle)
    result = await handle.result()
    assert result["providerID"] is None
    assert {n for n, _ in machines.stubs.calls} == {"ask_class"}


async def test_a_machine_that_waits_for_its_class_can_be_recreated(machines: Machines) -> None:
    """The new life asks again."""
    handle, its = await bare(machines)
    first = (await reason(handle, "ClassMissing")).uid
    await handle.execute_update(MachineWorkflow.recreate, RecreateIntent(id="r"))
    again = await eventually(lambda: state(handle), lambda s: s.uid not in ("", first), "a new life")
    assert again.machine_class is None
    machines.stubs.classes[CLASS] = its
    await reason(handle, "NodeNotSeen")


# -- refusing ----------------------------------------------------------------------------------------------------------


def without_cluster(now: ClassSnapshot) -> ClassSnapshot:
    tags = {k: v for k, v in now.provider_spec["vmTags"].items() if k != CLUSTER_TAG}
    return another(now, 3, vmTags=tags)


REFUSED = {
    "a must-tag is gone": (without_cluster, f"the tag {CLUSTER_TAG} may not be removed", True),
    "a must-tag is another": (
        lambda now: tagged(now, 3, "b", **{CLUSTER_TAG: "owned"}),
        f"the tag {CLUSTER_TAG} may not be changed",
        True,
    ),
    "another provider": (
        lambda now: now.model_copy(update={"generation": 3, "provider": "GCP"}),
        "cannot move from AWS to GCP",
        True,
    ),
    "an older generation": (lambda now: tagged(now, 1, "b"), "1 is older than 2", False),
}


async def test_what_cannot_be_is_refused_with_words_and_nothing_is_called(machines: Machines) -> None:
    """An operator gets the reason at once; for a class it is in the journal. Old news is not journalled."""
    handle = await running(machines)
    its = (await state(handle)).machine_class
    await tell(handle, another(its, 2))
    before = await updated(handle, 2)
    current = (CLASS, 2, 2, "Updated")
    for n, (change, words, noted) in enumerate(REFUSED.values(), 1):
        wanted = change(its)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await apply(handle, wanted)
        assert words in str(refused.value.cause)
        await tell(handle, wanted)
        await until_told(machines, *[current] * (n + 1))  # the class hears what the machine has
        after = await state(handle)
        assert [h.message for h in story(after, "Refused") if words in h.message][1:] == []
        assert any(words in h.message for h in story(after, "Refused")) is noted
        assert after.machine_class == before.machine_class
    assert machines.stubs.hot_updates() == []
    await tell(handle, tagged(its, 4, "b"))
    await updated(handle, 4)
    assert [team(c.target.provider_spec) for c in machines.stubs.hot_updates()] == ["b"]


async def test_a_must_tag_that_changes_while_the_vm_is_being_made_reaches_no_vm(machines: Machines) -> None:
    """It may be what keeps the VM from being made, so it is accepted; a VM of a request that was under way has the
    former one, and its driver refuses to change it."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    machines.stubs.then("update_machine", UpdateOutput(), classified(ErrorClass.INVALID, f"{CLUSTER_TAG}: refused"))
    handle = await machines.start(machines.new_state("m-1"))
    its = (await reason(handle, "CreatingVM")).machine_class
    await tell(handle, tagged(its, 2, "b", **{CLUSTER_TAG: "owned"}))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 2)
    hold.set()
    await in_trouble(handle)
    await until_last_told(machines, (CLASS, 2, 1, "Failed"))
    report = machines.stubs.called("report_to_class")[-1].report
    assert report.reason == "Refused"
    assert f"the tag {CLUSTER_TAG} may not be changed" in report.message
    status = (await state(handle)).status
    assert (status.last_applied_provider_spec.provider_spec, status.applied_generation) == (its.provider_spec, 1)
    await tell(handle, tagged(its, 3, "c"))
    after = await updated(handle, 3)
    assert team(after.status.last_applied_provider_spec.provider_spec) == "c"
    assert len(machines.stubs.hot_updates()) == 2


# -- leaving -----------------------------------------------------------------------------------------------------------


async def give_other(handle: Handle, wanted: ClassSnapshot) -> str:
    """Gives another class, as `hostler update-class` does."""
    return await apply(handle, wanted, class_=ClassRef(name=wanted.name))


async def test_another_class_is_told_and_the_former_is_left(machines: Machines) -> None:
    handle = await running(machines)
    its = (await state(handle)).machine_class
    await tell(handle, another(its, 7))
    await updated(handle, 7)
    words = await give_other(handle, other(tagged(its, 2, "b"), 2))
    assert "hot update of providerSpec.vmTags" in words
    after = await updated(handle, 2)
    await until_told(machines, (CLASS, 7, 7, "Updated"), (OTHER, 2, 0, "Updating"), (OTHER, 2, 2, "Updated"))
    assert left(machines) == [(CLASS, []), (OTHER, [CLASS]), (OTHER, [])]
    assert (after.machine_class.name, after.spec.class_.name) == (OTHER, OTHER)
    assert len(machines.stubs.hot_updates()) == 1
    await eventually(lambda: shown_class(handle), lambda name: name == OTHER, "the search attribute")


async def shown_class(handle: Handle) -> str | None:
    return (await handle.describe()).typed_search_attributes.get(attributes.CLASS)


async def test_another_class_with_the_same_values_is_no_call(machines: Machines) -> None:
    handle = await running(machines)
    its = (await state(handle)).machine_class
    await give_other(handle, other(its, 3))
    await until_told(machines, (OTHER, 3, 3, "Updated"))
    assert left(machines) == [(OTHER, [CLASS])]
    assert machines.stubs.hot_updates() == []


async def test_news_of_a_class_that_is_not_its_own_is_answered_with_a_leave(machines: Machines) -> None:
    """The class was told by nobody that the machine has left, or found it by an old list."""
    handle = await running(machines)
    its = (await state(handle)).machine_class
    await give_other(handle, other(its, 3))
    await until_left(machines, (OTHER, [CLASS]))
    before = await state(handle)
    await tell(handle, tagged(its, 9, "b"))

    async def leaves() -> int:
        return left(machines).count((OTHER, [CLASS]))

    await eventually(leaves, lambda n: n == 2, "a second leave")
    after = await state(handle)
    assert (after.machine_class, after.status) == (before.machine_class, before.status)
    assert machines.stubs.hot_updates() == []
    await tell(handle, tagged(other(its, 4), 4, "b"))  # its own is heard
    await updated(handle, 4)


async def test_a_machine_without_a_vm_leaves_its_class_too(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """It does so at once: otherwise the former class could not be deleted for as long as the creation fails."""
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    hold.set()
    machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY, "none left"))
    handle = await machines.start(machines.new_state("m-1"))
    its = (await reason(handle, "OutOfCapacity")).machine_class
    hold.clear()
    await give_other(handle, other(its, 1, machineType="m5.xlarge"))
    await reason(handle, "ClassChanged")
    await temporal.fast_forward(handle, timedelta(seconds=61))
    await until_left(machines, (OTHER, [CLASS]))
    assert (await state(handle)).status.waiting_for.reason == "CreatingVM"
    hold.set()
    await reason(handle, "NodeNotSeen")
    assert [i.class_name for n, i in machines.stubs.asked if n == "create_machine"] == [CLASS, OTHER]


async def test_a_class_changed_while_the_create_call_is_in_flight_is_left(machines: Machines) -> None:
    hold = machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    its = (await reason(handle, "CreatingVM")).machine_class
    await give_other(handle, other(tagged(its, 1, "b"), 1))
    hold.set()
    await reason(handle, "NodeNotSeen")
    await until_left(machines, (OTHER, [CLASS]))
    (call,) = machines.stubs.called("create_machine")
    assert (call.class_name, team(call.target.provider_spec)) == (CLASS, "platform")
    await asked_for(machines, 1)
    assert team(machines.stubs.hot_updates()[0].target.provider_spec) == "b"


async def test_another_class_taken_while_a_call_is_in_flight_counts_by_its_own_generation(machines: Machines) -> None:
    """The call's generation is the former class's."""
    handle, its, hold = await held(machines)
    await tell(handle, tagged(its, 5, "b"))
    await asked_for(machines, 1)
    await give_other(handle, other(tagged(its, 2, "b"), 2))
    hold.set()
    await until_last_told(machines, (OTHER, 2, 2, "Updated"))
    assert all(applied <= generation for _, generation, applied, _ in machines.stubs.told())
    assert len(machines.stubs.hot_updates()) == 1


async def test_the_credentials_of_a_changed_class_serve_the_deletion(machines: Machines) -> None:
    """They do so at once: what is in the way of a deletion may be just that."""
    handle = await running(machines)
    its = (await state(handle)).machine_class
    machines.stubs.then("delete_machine", classified(ErrorClass.AUTH, "the key was revoked"))
    await delete(handle)
    await reason(handle, "NotAuthorized")
    fresh = SecretRef(name="fresh")
    await tell(handle, its.model_copy(update={"generation": 2, "credentials_secret_ref": fresh}))
    await asyncio.wait_for(handle.result(), DEADLINE)  # and not after three minutes
    assert [i.target.credentials_secret_ref for i in machines.stubs.called("delete_machine")] == [None, fresh]


async def test_every_class_that_counts_it_hears_that_it_is_gone(machines: Machines) -> None:
    """So does one that told it something at the last moment."""
    handle = await running(machines)
    its = (await state(handle)).machine_class
    hold = machines.stubs.holds["delete_machine"] = asyncio.Event()
    await delete(handle)
    await reason(handle, "DeletingVM")
    await tell(handle, other(tagged(its, 2, "b"), 2))
    await tell(handle, tagged(its, 2, "b"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 2)
    hold.set()
    await handle.result()
    (farewell,) = machines.stubs.called("forget_machine")
    assert set(farewell.classes) == {CLASS, OTHER}
    assert machines.stubs.hot_updates() == []


async def test_a_machine_that_is_being_deleted_answers_its_class(machines: Machines) -> None:
    """A drain may take hours: the class does not wait for it, and does not ask again and again."""
    handle = await running(machines)
    its = (await state(handle)).machine_class
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    await delete(handle)
    await reason(handle, "Draining")
    await tell(handle, tagged(its, 2, "b"))

    async def answers() -> list[tuple[int, str, str]]:
        reports = [i.report for i in machines.stubs.reports()]
        return [(r.generation, str(r.state), r.reason) for r in reports]

    await eventually(answers, lambda a: a[-1:] == [(2, "Pending", "Terminating")], "the answer")
    hold.set()
    await handle.result()
    assert machines.stubs.hot_updates() == []


# -- away --------------------------------------------------------------------------------------------------------------


async def test_a_class_that_changed_while_no_worker_was_there_is_caught_up_with(temporal: WorkflowEnvironment) -> None:
    """Only the newest of its generations is applied."""
    async with stubbed(temporal.client, workflows=False) as machines:
        async with machines.workflow_worker():
            handle = await running(machines)
            its = (await state(handle)).machine_class
        for generation, value in ((2, "b"), (3, "c"), (4, "d")):
            await tell(handle, tagged(its, generation, value))
        async with machines.workflow_worker():
            await updated(handle, 4)
            await until_told(machines, (CLASS, 4, 1, "Updating"), (CLASS, 4, 4, "Updated"))
            assert [team(c.target.provider_spec) for c in machines.stubs.hot_updates()] == ["d"]


# -- what a person reads -----------------------------------------------------------------------------------------------


def readable(s: MachineState) -> None:
    waits = s.status.waiting_for
    assert waits is not None
    assert waits.reason in REASONS
    assert len(waits.message) > 20
    assert len(next_step(waits.reason, s.cluster, s.name)) > 10
    for c in s.status.conditions:
        assert c.reason in REASONS
    for h in s.journal:
        assert h.reason in REASONS, h.reason


async def test_whatever_it_waits_for_can_be_read_with_what_can_be_done(machines: Machines) -> None:
    handle, its = await bare(machines)
    readable(await reason(handle, "ClassMissing"))
    machines.stubs.classes[CLASS] = its
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    hold = machines.stubs.holds["update_machine"] = asyncio.Event()
    machines.stubs.then("update_machine", classified(ErrorClass.AUTH, "not authorized"))
    await tell(handle, another(tagged(its, 2, "b"), 2, machineType="m5.xlarge"))
    under_way = await reason(handle, "HotUpdate")
    assert "providerSpec.vmTags" in under_way.status.waiting_for.message
    readable(under_way)
    hold.set()
    failed = await reason(handle, "UpdateFailed")
    assert failed.status.waiting_for.next_try is not None
    assert {c.type for c in failed.status.conditions} == {"Outdated", "UpdateFailed"}
    readable(failed)

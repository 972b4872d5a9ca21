"""A hot update that fails: when it is tried again, what is known meanwhile, and that the machine takes no harm. Stubs
for activities; minutes are skipped by explicit fast-forward."""

from __future__ import annotations

from datetime import timedelta

import pytest
from lifekit import eventually
from machine.stubbed import (
    CLASS,
    another,
    asked_for,
    condition,
    held,
    in_trouble,
    renew,
    running,
    story,
    tagged,
    team,
    tell,
    until_last_told,
    until_told,
    updated,
)
from machine.stubs import (
    SICK,
    TEN,
    Handle,
    Machines,
    classified,
    failed_of_health,
    looked,
    phase,
    reason,
    sick,
    state,
    to_first_look,
)
from temporalio.testing import WorkflowEnvironment

from planners.machine.hot_update import may_carry
from planners.waits import REASON, SPREAD
from resources.calls.cloud import ResourceUpdate, UpdateOutput
from resources.calls.cluster import TellInput
from resources.errors import CODE_OF, ErrorClass, ErrorInfo
from resources.machine.state import ClassSnapshot, MachineState, Phase, UpdateTrouble
from workflows.entity import RENEW_AFTER
from workflows.machine import MachineWorkflow

SECOND = timedelta(seconds=1)
MANY = RENEW_AFTER - 20
"""Messages to a machine that will soon continue as new."""
LONG = [ErrorClass.AUTH, ErrorClass.INVALID, ErrorClass.QUOTA, ErrorClass.CAPACITY, ErrorClass.NOT_FOUND]
SHORT = [ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.CONFLICT, ErrorClass.UNKNOWN]


def trouble(s: MachineState) -> UpdateTrouble:
    assert s.status.update_trouble is not None
    return s.status.update_trouble


def wait(s: MachineState) -> timedelta:
    """The wait from the failure to the next try."""
    found = trouble(s)
    assert found.next_try is not None
    return found.next_try - found.time


async def failing(machines: Machines, *errors: BaseException, messages: int = 0) -> tuple[Handle, ClassSnapshot]:
    """A Running machine whose update to generation 2 fails in this way, and its class before that."""
    handle = await running(machines, messages=messages, health_timeout=TEN)
    now = (await state(handle)).machine_class
    machines.stubs.then("update_machine", *errors)
    await tell(handle, tagged(now, 2, "b"))
    return handle, now


# -- when it is tried again --------------------------------------------------------------------------------------------


def spread(least: timedelta, found: timedelta) -> bool:
    """The wait is as long, or randomly a little longer."""
    return least <= found <= least * (1 + SPREAD)


async def test_what_passes_by_itself_is_tried_after_5_10_20_seconds_up_to_3_minutes(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle, now = await failing(machines, *[classified(ErrorClass.TRANSIENT, "no answer", last=True)] * 8)
    expected = {n: timedelta(seconds=min(5 * 2 ** (n - 1), 180)) for n in range(1, 9)}
    waits: dict[int, timedelta] = {}
    while 8 not in waits:
        seen = await in_trouble(handle, max(waits, default=0) + 1)
        waits[seen.update_failures] = wait(seen)
        await temporal.fast_forward(handle, wait(seen) + SECOND)
    assert waits.keys() <= expected.keys()  # a try that nobody saw was one of them all the same
    assert all(spread(expected[n], waits[n]) for n in waits)
    await updated(handle, 2)
    assert len(machines.stubs.hot_updates()) == 9
    machines.stubs.then("update_machine", classified(ErrorClass.TRANSIENT, "no answer", last=True))
    await tell(handle, tagged(now, 3, "c"))
    assert spread(timedelta(seconds=5), wait(await in_trouble(handle)))  # a success resets it


async def test_what_passes_by_itself_is_tried_again_soon(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle, _ = await failing(machines, *(classified(e, last=True, retry_after=60.0) for e in SHORT))
    for n, error_class in enumerate(SHORT, 1):
        seen = await in_trouble(handle, n)
        assert spread(timedelta(seconds=60), wait(seen))  # the cloud asked for it, and it is longer
        reason, code = trouble(seen).reason, seen.status.last_operation.error_code
        assert (reason, code) == (REASON[error_class], CODE_OF[error_class])
        await temporal.fast_forward(handle, timedelta(seconds=80))
    await updated(handle, 2)


async def test_what_a_person_must_mend_is_tried_after_ten_minutes(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle, _ = await failing(machines, *(classified(e, retry_after=60.0) for e in LONG))
    for n, error_class in enumerate(LONG, 1):
        seen = await in_trouble(handle, n)
        assert (trouble(seen).reason, wait(seen)) == (REASON[error_class], timedelta(minutes=10))
        await temporal.fast_forward(handle, timedelta(minutes=9))
        assert len(machines.stubs.hot_updates()) == n
        await temporal.fast_forward(handle, timedelta(seconds=62))  # its clock is a little ahead of the next failure
    await updated(handle, 2)
    assert len(machines.stubs.hot_updates()) == len(LONG) + 1


async def test_a_cloud_that_asks_for_longer_is_left_alone_for_longer(machines: Machines) -> None:
    handle, _ = await failing(machines, classified(ErrorClass.QUOTA, retry_after=1800.0))
    assert wait(await in_trouble(handle)) == timedelta(minutes=30)


async def test_a_changed_class_is_tried_at_once(machines: Machines) -> None:
    """An earlier failure says nothing about it."""
    handle, now = await failing(machines, classified(ErrorClass.INVALID, "no such tag"))
    await in_trouble(handle)
    await tell(handle, tagged(now, 3, "c"))
    after = await updated(handle, 3)
    assert len(machines.stubs.hot_updates()) == 2
    assert (after.status.update_trouble, after.status.conditions, after.status.waiting_for) == (None, [], None)


async def test_the_same_class_told_again_is_an_answer_and_no_try(machines: Machines) -> None:
    handle, now = await failing(machines, classified(ErrorClass.INVALID, "no such tag"))
    failed = (CLASS, 2, 1, "Failed")
    await until_told(machines, (CLASS, 2, 1, "Updating"), failed)
    before = await in_trouble(handle)
    await tell(handle, tagged(now, 2, "b"))
    await until_told(machines, (CLASS, 2, 1, "Updating"), failed, failed)
    assert trouble(await state(handle)) == trouble(before)
    assert len(machines.stubs.hot_updates()) == 1


async def test_renew_tries_at_once(machines: Machines) -> None:
    """Somebody has mended the rights, and does not wait for ten minutes."""
    handle, _ = await failing(machines, classified(ErrorClass.AUTH, "not authorized to CreateTags"))
    await in_trouble(handle)
    await renew(handle)
    after = await updated(handle, 2)
    assert len(machines.stubs.hot_updates()) == 2
    assert (after.status.update_trouble, after.status.conditions) == (None, [])


async def test_a_new_run_does_not_lose_the_answer_of_a_call_under_way(machines: Machines) -> None:
    handle, now, hold = await held(machines)
    first = (await handle.describe()).run_id
    machines.stubs.then("update_machine", classified(ErrorClass.QUOTA, "limit 50"))
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    await renew(handle)
    hold.set()
    await another_run(handle, first)
    assert "limit 50" in trouble(await in_trouble(handle)).message
    assert len(machines.stubs.hot_updates()) == 1


async def test_the_next_try_outlives_becoming_running(temporal: WorkflowEnvironment, machines: Machines) -> None:
    machines.stubs.then("update_machine", UpdateOutput(), classified(ErrorClass.QUOTA, "limit 50"))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await tell(handle, tagged((await state(handle)).machine_class, 2, "b"))
    pending = await in_trouble(handle)
    assert pending.status.phase == Phase.PENDING
    await handle.signal(MachineWorkflow.observe, machines.facts())
    lives = await phase(handle, Phase.RUNNING)
    assert trouble(lives) == trouble(pending)
    await reason(handle, "UpdateFailed")
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    after = await updated(handle, 2)
    assert (after.status.phase, after.status.waiting_for) == (Phase.RUNNING, None)


async def test_the_next_try_outlives_becoming_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await failed_of_health(temporal, machines)
    before = await reason(handle, "HealthTimeout")
    machines.stubs.then("update_machine", classified(ErrorClass.QUOTA, "limit 50"))
    await tell(handle, tagged(before.machine_class, 2, "b"))
    failed = await in_trouble(handle)
    assert failed.status.waiting_for.reason == "HealthTimeout"  # the reason that it Failed for stays first
    assert "limit 50" in condition(failed, "UpdateFailed")
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    after = await updated(handle, 2)
    assert (after.status.phase, condition(after, "UpdateFailed")) == (Phase.FAILED, None)


async def test_a_vm_that_is_gone_is_no_trouble_of_an_update_once_the_machine_has_failed(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Before that it is one: nothing has decided yet that it is gone."""
    handle, _ = await failing(machines, *[classified(ErrorClass.NOT_FOUND, "i-1 does not exist")] * 9)
    assert "i-1 does not exist" in str(condition(await in_trouble(handle), "UpdateFailed"))
    await sick(machines, handle)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await to_first_look(temporal, handle)
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    await reason(handle, "HealthTimeout")
    await temporal.fast_forward(handle, timedelta(minutes=10))
    await until_last_told(machines, (CLASS, 2, 1, "Pending"))
    failed = await state(handle)
    assert (trouble(failed).reason, trouble(failed).next_try) == ("VMGone", None)
    assert condition(failed, "UpdateFailed") is None


# -- what is known meanwhile -------------------------------------------------------------------------------------------


async def test_a_failure_is_told_everywhere_and_the_machine_is_none_the_worse(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await running(machines)
    before = await state(handle)
    machines.stubs.then("update_machine", *[classified(ErrorClass.AUTH, "not authorized to CreateTags")] * 2)
    await tell(handle, tagged(before.machine_class, 2, "b"))
    failed = await reason(handle, "UpdateFailed")
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 1, "Failed"))
    words = trouble(failed).message
    assert "providerSpec.vmTags" in words
    assert "not authorized to CreateTags (with the credentials of default/demo-aws)" in words
    assert condition(failed, "UpdateFailed") == words
    assert (failed.status.waiting_for.message, failed.status.waiting_for.next_try) == (words, trouble(failed).next_try)
    operation = failed.status.last_operation
    assert (operation.type, operation.state, operation.description) == ("Update", "Failed", words)
    assert [h.message for h in story(failed, "UpdateFailed")] == [words]

    async def told() -> list[TellInput]:
        return machines.stubs.called("tell_node")

    (on_the_node,) = (await eventually(told, what="the Event on the Node"))[-1].story
    assert (on_the_node.reason, on_the_node.message) == ("UpdateFailed", words)
    report = machines.stubs.called("report_to_class")[-1].report
    assert (report.reason, report.message, report.next_try) == ("NotAuthorized", words, trouble(failed).next_try)
    for same in ("phase", "phase_since", "provider_id", "last_applied_provider_spec", "applied_generation"):
        assert getattr(failed.status, same) == getattr(before.status, same)

    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.9"]))
    await eventually(lambda: state(handle), lambda s: s.node.addresses == ["10.0.0.9"])
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    again = await in_trouble(handle, 2)
    assert len(story(again, "UpdateFailed")) == 1  # the same words are one happening
    waits = (await reason(handle, "UpdateFailed")).status.waiting_for
    assert waits.since == failed.status.waiting_for.since  # of the first failure: neither news nor a try is a new one
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    after = await updated(handle, 2)
    assert (after.status.phase, after.status.waiting_for, after.status.conditions) == (Phase.RUNNING, None, [])
    await until_told(machines, *[(CLASS, 2, 1, s) for s in ("Updating", "Failed")], (CLASS, 2, 2, "Updated"))


async def test_what_became_of_each_resource_is_known(machines: Machines) -> None:
    resources = [
        ResourceUpdate(id="i-1", kind="instance", changed=["set team"]),
        ResourceUpdate(id="vol-1", kind="volume", error=ErrorInfo.of(ErrorClass.AUTH, "not allowed on volumes")),
        ResourceUpdate(id="eni-1", kind="network-interface", changed=["set team"]),
    ]
    handle, now = await failing(machines, classified(ErrorClass.AUTH, "vol-1: not allowed on volumes", resources))
    failed = await in_trouble(handle)
    assert trouble(failed).resources == resources
    assert "(2 of 3 resources updated)" in trouble(failed).message
    assert failed.status.last_applied_provider_spec.provider_spec == now.provider_spec
    assert failed.status.applied_generation == 1
    await tell(handle, tagged(now, 3, "b"))  # the same values under a new generation: nothing shows that they arrived
    after = await updated(handle, 3)
    assert len(machines.stubs.hot_updates()) == 2
    assert after.status.update_trouble is None


async def test_a_failed_update_is_not_what_a_machine_fails_of(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Its node never joins; its old tags are not the reason."""
    machines.stubs.then("update_machine", UpdateOutput(), *[classified(ErrorClass.INVALID, "no such tag")] * 9)
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=5)))
    await reason(handle, "NodeNotSeen")
    await tell(handle, tagged((await state(handle)).machine_class, 2, "b"))
    await in_trouble(handle)
    await temporal.fast_forward(handle, timedelta(minutes=4, seconds=5))
    await eventually(lambda: state(handle), lambda s: s.suspicion, "the first of the two fresh looks")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    failed = await phase(handle, Phase.FAILED)
    assert "no such tag" not in condition(failed, "Failed")
    assert "no such tag" in condition(failed, "UpdateFailed")
    assert failed.status.last_operation.type == "Create"


async def test_a_failed_update_does_not_hurry_a_machine_that_joins_late(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The look at the creation deadline finds its node Ready: our own steps there get their time."""
    machines.stubs.then("update_machine", UpdateOutput(), *[classified(ErrorClass.INVALID, "no such tag")] * 9)
    machines.stubs.then("look_at_node", looked(exists=False), looked())
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=5)))
    await reason(handle, "NodeNotSeen")
    await tell(handle, tagged((await state(handle)).machine_class, 2, "b"))
    await in_trouble(handle)
    await temporal.fast_forward(handle, timedelta(minutes=4, seconds=5))
    await eventually(lambda: state(handle), lambda s: s.suspicion, "the first of the two fresh looks")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    lives = await eventually(lambda: state(handle), lambda s: s.status.phase != Phase.PENDING)
    assert lives.status.phase == Phase.RUNNING


# -- a class that is set back after half an update ---------------------------------------------------------------------


def half(resources: int = 1) -> BaseException:
    changed = [ResourceUpdate(id=f"i-{n}", kind="instance", changed=["set cost"]) for n in range(resources)]
    return classified(ErrorClass.AUTH, "vol-1: not allowed on volumes", changed)


@pytest.mark.parametrize(
    "renewed",
    [pytest.param(False, id="in one run", marks=pytest.mark.exhaustive), pytest.param(True, id="over continue-as-new")],
)
async def test_a_class_set_back_takes_back_what_half_an_update_did(machines: Machines, renewed: bool) -> None:
    """Otherwise what the failed call has set would stay for ever, as if it were somebody else's."""
    handle = await running(machines, messages=MANY)
    now = (await state(handle)).machine_class
    first, second = tagged(now, 2, "platform", cost="1"), tagged(now, 3, "platform", stage="x")
    for n, wanted in enumerate((first, second), 1):
        machines.stubs.then("update_machine", half())
        await tell(handle, wanted)
        await asked_for(machines, n)
        failed = await in_trouble(handle)
    if renewed:
        await begin_anew(machines, handle)
        assert (await state(handle)).status.model_dump() == failed.status.model_dump()
    await tell(handle, another(now, 4))
    after = await updated(handle, 4)
    *_, last = machines.stubs.hot_updates()
    assert len(machines.stubs.hot_updates()) == 3
    attempted = [first.provider_spec, second.provider_spec]
    assert last.last_applied == may_carry(now.provider, now.provider_spec, attempted, now.provider_spec)
    assert {"cost", "stage"} <= last.last_applied["vmTags"].keys()
    assert last.target.provider_spec == now.provider_spec
    assert after.status.last_applied_provider_spec.provider_spec == now.provider_spec
    assert (after.status.update_trouble, after.status.conditions, after.status.waiting_for) == (None, [], None)
    await tell(handle, another(now, 5))  # and that is forgotten with the success
    await until_last_told(machines, (CLASS, 5, 5, "Updated"))
    assert len(machines.stubs.hot_updates()) == 3


async def test_after_a_failure_the_next_class_is_called_with_all_that_the_vm_may_carry(machines: Machines) -> None:
    handle = await running(machines)
    now = (await state(handle)).machine_class
    machines.stubs.then("update_machine", half())
    first, second = tagged(now, 2, "b", cost="1"), tagged(now, 3, "c")
    await tell(handle, first)
    await in_trouble(handle)
    await tell(handle, second)
    after = await updated(handle, 3)
    _, last = machines.stubs.hot_updates()
    assert last.last_applied == may_carry(now.provider, now.provider_spec, [first.provider_spec], second.provider_spec)
    assert last.last_applied["vmTags"]["cost"] == "1"
    assert after.status.last_applied_provider_spec.provider_spec == second.provider_spec


async def begin_anew(machines: Machines, handle: Handle) -> None:
    """Sends so many messages that the machine continues as new on its own; nothing else is asked of it."""
    run = (await handle.describe()).run_id
    for n in range(20):
        await handle.signal(MachineWorkflow.observe, machines.facts(addresses=[f"10.0.0.{n}"]))
    await another_run(handle, run)


async def another_run(handle: Handle, former: str | None) -> None:
    async def run() -> str | None:
        return (await handle.describe()).run_id

    await eventually(run, lambda now: now != former, "a new run")


async def test_a_new_run_keeps_deadline_failures_and_trouble(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle, _ = await failing(machines, *[classified(ErrorClass.QUOTA, "limit 50")] * 2, messages=MANY)
    await in_trouble(handle)
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    before = await in_trouble(handle, 2)
    await begin_anew(machines, handle)
    after = await state(handle)
    assert (after.status, after.update_failures) == (before.status, 2)
    assert len(machines.stubs.hot_updates()) == 2
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=5))
    await updated(handle, 2)
    assert len(machines.stubs.hot_updates()) == 3


# -- a driver that has no update of a VM that runs ---------------------------------------------------------------------


async def test_a_driver_without_updates_is_not_asked_again(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle, now = await failing(machines, UpdateOutput(supported=False))
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 1, "NotSupported"))
    seen = await state(handle)
    assert (trouble(seen).reason, trouble(seen).next_try) == ("UpdateNotSupported", None)
    assert "providerSpec.vmTags" in condition(seen, "UpdateNotSupported")
    assert seen.status.phase == Phase.RUNNING
    assert team(seen.status.last_applied_provider_spec.provider_spec) == "platform"
    await temporal.fast_forward(handle, timedelta(days=1))
    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.9"]))
    await eventually(lambda: state(handle), lambda s: s.node.addresses == ["10.0.0.9"])
    assert len(machines.stubs.hot_updates()) == 1

    await tell(handle, tagged(now, 3, "c"))  # a new generation: the worker may be a newer one
    after = await updated(handle, 3)
    assert len(machines.stubs.hot_updates()) == 2
    assert (after.status.update_trouble, after.status.conditions) == (None, [])


async def test_set_back_it_is_as_before(machines: Machines) -> None:
    handle, now = await failing(machines, UpdateOutput(supported=False))
    unsupported = (CLASS, 2, 1, "NotSupported")
    await until_told(machines, (CLASS, 2, 1, "Updating"), unsupported)
    await tell(handle, another(now, 3))
    after = await updated(handle, 3)
    assert (after.status.update_trouble, after.status.conditions) == (None, [])
    await until_last_told(machines, (CLASS, 3, 3, "Updated"))


async def test_an_answer_to_an_older_class_says_nothing_of_the_newest(machines: Machines) -> None:
    handle, now, hold = await held(machines)
    machines.stubs.then("update_machine", UpdateOutput(supported=False))
    await tell(handle, tagged(now, 2, "b"))
    await asked_for(machines, 1)
    await tell(handle, tagged(now, 3, "c"))
    await eventually(lambda: state(handle), lambda s: s.machine_class.generation == 3)
    hold.set()
    after = await updated(handle, 3)
    assert (after.status.update_trouble, after.status.conditions) == (None, [])
    assert [team(c.target.provider_spec) for c in machines.stubs.hot_updates()] == ["b", "c"]

"""Hot updates that fail, on the real parts: it is said where, why, and when they are tried again. A failing update
never fails the machine. Calls are counted in the simulated EC2's own journal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from lifekit import Stack, eventually, plant
from machine.hot_updates import COST_A, COST_B, MUST, PATIENT, A, B, Hot, gate, instance_id, ours, reasons, said
from machine.lives import described, fault

from resources.errors import ErrorClass
from resources.machine.state import MachineState, OperationState, OperationType, Phase, UpdateTrouble
from resources.machine_class.state import UpdateState

LONG = timedelta(minutes=10)


@pytest.fixture
def hot(stack: Stack) -> Hot:
    return Hot(stack)


@pytest.fixture
def patient(stack: Stack) -> Hot:
    return Hot(stack, PATIENT)


def mend(stack: Stack) -> None:
    stack.simulator.call(stack.simulator.simulator.frame.clear_faults)


def trouble_of(state: MachineState) -> UpdateTrouble:
    found = state.status.update_trouble
    assert found is not None
    return found


def waits(state: MachineState) -> timedelta:
    """The wait from the failure to the next try."""
    found = trouble_of(state)
    assert found.next_try is not None
    return found.next_try - found.time


def cost_of(state: MachineState) -> str:
    """The cost tag that the VM is believed to carry."""
    applied = state.status.last_applied_provider_spec
    assert applied is not None
    return str(applied.provider_spec["tags"]["cost"])


# -- errors ------------------------------------------------------------------------------------------------------------


async def test_denied_for_one_resource_of_three(stack: Stack, patient: Hot) -> None:
    """The others are updated; it is said which, why and with whose credentials, and what happens next."""
    hot = patient
    await hot.apply(**COST_A)
    machine = await hot.machine()
    (volume,) = hot.of(machine)["volumes"]
    others = [r for r in hot.all(machine) if r != volume]
    fault(stack, operation="*Tags", match=volume, code="UnauthorizedOperation", times=None)
    await hot.apply(**COST_B)
    failed = await hot.failed("NotAuthorized")
    assert [hot.extra(r) for r in others] == [B, B]
    assert hot.extra(volume) == A
    by_id = {r.id: r for r in trouble_of(failed).resources}
    assert {id: " ".join(r.changed) for id, r in by_id.items()} == {
        volume: "",
        **dict.fromkeys(others, "removed team set cost"),
    }
    assert {id: r.error and r.error.error_class for id, r in by_id.items() if r.error} == {volume: ErrorClass.AUTH}
    assert waits(failed) == LONG
    operation, waiting = failed.status.last_operation, failed.status.waiting_for
    assert operation is not None
    assert (operation.type, operation.state) == (OperationType.UPDATE, OperationState.FAILED)
    assert (failed.status.phase, cost_of(failed)) == (Phase.RUNNING, "a")
    assert waiting is None or waiting.reason == "UpdateFailed"
    known = await eventually(hot.of_class, lambda s: s.users["m-1"].state is UpdateState.FAILED, "the class knows")
    assert (known.users["m-1"].reason, known.last_updated_generation) == ("NotAuthorized", 1)
    assert volume in known.troubles["m-1"].message
    await stack.reason("UpdateFailed")
    text = await described(stack)
    for words in (
        *("NotAuthorized", volume, "UnauthorizedOperation", "credentials of default/demo-aws"),
        *("2 of 3 resources updated", "Next try:", "What can be done:"),
    ):
        assert words in text, text

    mend(stack)
    since = hot.mark()
    await hot.client.renew("m-1")  # somebody who has mended it need not wait ten minutes
    done = await hot.mended()
    assert hot.each(done) == [B] * 3
    assert hot.changing(since) == ["DeleteTags", "CreateTags"]  # one of each for all three: reads may lag
    assert cost_of(done) == "b"
    assert (await hot.done()).troubles == {}
    assert stack.launched() == [instance_id(machine)]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param({"code": "RequestLimitExceeded", "headers": {"Retry-After": "1"}}, id="throttled"),
        pytest.param({"code": "InternalError"}, id="internal error"),
        pytest.param({"drop": True}, id="lost reply"),
    ],
)
async def test_an_error_that_passes_in_the_middle(stack: Stack, hot: Hot, rule: dict[str, Any]) -> None:
    """This is no news: the same calls are made again, and it is done."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    fault(stack, operation="CreateTags", **rule)
    since = hot.mark()
    await hot.everywhere(**COST_B)
    assert hot.each(machine) == [B] * 3
    assert hot.changing(since) == ["DeleteTags", "CreateTags"] * 2
    first, again = (c.request for c in hot.calls(since, "CreateTags"))
    assert first == again
    done = await stack.state()
    assert reasons(done).count("Updated") == 1
    assert "UpdateFailed" not in reasons(done)


async def test_throttled_for_longer(stack: Stack, hot: Hot) -> None:
    """It is visible as Throttled, and passes on its own; nothing that was updated meanwhile is lost."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    fault(stack, operation="DeleteTags", code="RequestLimitExceeded", headers={"Retry-After": "1"}, times=5)
    await hot.apply(**COST_B)
    failed = await hot.failed("Throttled")
    assert failed.status.phase == Phase.RUNNING
    assert hot.each(machine) == [{"cost": "b", "team": "x"}] * 3
    assert {tuple(r.changed) for r in trouble_of(failed).resources} == {("set cost",)}
    done = await hot.mended()
    assert hot.each(machine) == [B] * 3
    assert (reasons(done).count("UpdateFailed"), reasons(done).count("Updated")) == (1, 1)
    assert [c.type for c in done.status.conditions] == []


async def test_without_credentials(stack: Stack, patient: Hot) -> None:
    hot = patient
    await hot.apply(**COST_A)
    machine = await hot.machine()
    stack.kubectl("delete", "secret", "demo-aws")
    await hot.apply(**COST_B)
    failed = await hot.failed("CredentialsMissing")
    assert "default/demo-aws" in trouble_of(failed).message
    assert (failed.status.phase, waits(failed)) == (Phase.RUNNING, LONG)
    await plant(stack)
    await hot.client.renew("m-1")
    await hot.mended()
    assert hot.each(machine) == [B] * 3


async def test_more_tags_than_a_resource_may_carry(stack: Stack, patient: Hot) -> None:
    """Others' tags count too: this is reported with the count before EC2 is asked; resources with room get theirs."""
    hot = patient
    await hot.apply(**COST_A)
    machine = await hot.machine()
    vm = instance_id(machine)
    foreign = [{"Key": f"foreign-{n}", "Value": ""} for n in range(50 - len(stack.tags(vm)))]
    stack.ec2().create_tags(Resources=[vm], Tags=foreign)
    since = hot.mark()
    await hot.apply(tags={**MUST, **A, "one": "1", "two": "2"})
    failed = await hot.failed("InvalidSpec")
    words = trouble_of(failed).message
    assert (
        f"{vm}: it would have 52 tags, including those of others, but may have 50; remove 2 from vmTags or tags"
        in words
    )
    assert (failed.status.phase, waits(failed)) == (Phase.RUNNING, LONG)
    (call,) = hot.calls(since, "*Tags")
    assert sorted(call.request["Resources"]) == [r for r in hot.all(machine) if r != vm]
    assert len(stack.tags(vm)) == 50
    # A class that asks for less is tried at once: what goes makes room.
    await hot.everywhere(tags={**MUST, "one": "1", "two": "2"})
    assert len(stack.tags(vm)) == 50
    assert {k: v for k, v in hot.extra(vm).items() if "foreign" not in k} == {"one": "1", "two": "2"}
    assert [hot.extra(r) for r in hot.all(machine) if r != vm] == [{"one": "1", "two": "2"}] * 2


async def test_a_class_set_back_after_a_half_failed_update(stack: Stack, patient: Hot) -> None:
    """Nothing of the failed update stays, though the class is again what the VM is believed to carry."""
    hot = patient
    await hot.apply(**COST_A)
    machine = await hot.machine()
    (volume,) = hot.of(machine)["volumes"]
    fault(stack, operation="*Tags", match=volume, code="UnauthorizedOperation", times=None)
    await hot.apply(tags={**MUST, "cost": "b", "new": "1"})
    await hot.failed("NotAuthorized")
    assert [hot.extra(r) for r in hot.all(machine) if r != volume] == [{"cost": "b", "new": "1"}] * 2
    mend(stack)
    await hot.everywhere(**COST_A)
    assert hot.each(machine) == [A] * 3
    assert cost_of(await stack.state()) == "a"


# -- reads that lag, resources that vanish -----------------------------------------------------------------------------


async def test_reads_that_lag_behind_the_update(stack: Stack, hot: Hot) -> None:
    """EC2 shows the old tags for a while: the update is done once, and a next one is right all the same."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    frame = stack.simulator.simulator.frame
    stack.simulator.call(lambda: setattr(frame, "lag", frame.lag.model_copy(update={"tags": 3600.0})))
    since = hot.mark()
    await hot.everywhere(**COST_B)
    shown = {t["Key"]: t["Value"] for t in hot.instance(machine)["Tags"]}
    assert (shown["cost"], shown["team"]) == ("a", "x")
    assert hot.each(machine) == [B] * 3
    assert hot.changing(since) == ["DeleteTags", "CreateTags"]
    since = hot.mark()
    await hot.everywhere(**COST_A)
    assert hot.each(machine) == [A] * 3
    assert hot.changing(since) == ["CreateTags"]


async def test_a_nic_that_vanishes_meanwhile(stack: Stack, hot: Hot, monkeypatch: pytest.MonkeyPatch) -> None:
    """It vanishes between the read and the call. EC2 refuses the call as a whole; the others get their change all the
    same."""
    await hot.apply(**COST_A)
    machine = await hot.machine()
    others = hot.all(machine)
    nic = hot.make_nic(machine, **ours(machine), **A)  # of its own, detached for now
    with gate(monkeypatch, "DeleteTags") as held:
        await hot.apply(**COST_B)
        await held.held()
        stack.ec2().delete_network_interface(NetworkInterfaceId=nic)
        since = hot.mark()
        held.open()
        await hot.done()
    assert [hot.extra(r) for r in others] == [B] * 3
    whole, *single, last = [c for c in hot.calls(since) if c.mutating]
    gone = "InvalidNetworkInterfaceID.NotFound"
    assert (whole.operation, whole.error) == ("DeleteTags", gone)
    assert {*whole.request["Resources"]} == {*others, nic}
    wanted = {r: gone if r == nic else None for r in (*others, nic)}
    assert {c.request["Resources"][0]: c.error for c in single} == wanted
    assert [(c.operation, len(c.request["Resources"])) for c in single] == [("DeleteTags", 1)] * 4
    assert (last.operation, last.error, sorted(last.request["Resources"])) == ("CreateTags", None, others)
    (words,) = said(await stack.state(), "Updated")
    assert f"{nic}: gone meanwhile" in words


async def test_the_vm_ends_behind_our_back(stack: Stack, patient: Hot) -> None:
    """What should be updated is gone: that is reported, and judged like any other end of a VM; nothing takes its
    place."""
    hot = patient
    await hot.apply(**COST_A)
    machine = await hot.machine(health_timeout=timedelta(hours=1))
    vm = instance_id(machine)
    stack.simulator.call(lambda: stack.cloud.kill(vm))
    await stack.reason("VMGone")
    await hot.apply(**COST_B)
    failed = await hot.failed("ReferenceNotFound")
    assert vm in trouble_of(failed).message
    assert (failed.status.phase, waits(failed)) == (Phase.UNKNOWN, LONG)
    known = await eventually(hot.of_class, lambda s: s.users["m-1"].state is UpdateState.FAILED, "the class knows")
    assert vm in known.troubles["m-1"].message
    await stack.delete()
    assert stack.launched() == [vm]

"""A machine that Failed and its pool: the question whether it is kept, the answer, the repair, and how they cross.
Stubs; time is skipped."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from machine.stubbed import Pool, listening
from machine.stubs import VM, classified, looked
from preservation.machine import SOON, Kept, keeping, noted
from temporalio.testing import WorkflowEnvironment

from resources.calls.cloud import CreateOutput, VmLook
from resources.errors import ErrorClass
from resources.fleet.member import PreserveWish, Vm
from resources.fleet.membership import PreserveGrant, SlotTaken
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent, RepairIntent
from resources.machine.preservation import PreservedBy, PreserveIntent, PreserveValue, ReleaseIntent
from resources.machine.state import Phase
from resources.names import PRESERVE_ANNOTATION
from workflows.machine import MachineWorkflow


@pytest_asyncio.fixture
async def kept(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    async with keeping(temporal.client) as machines:
        yield Kept(temporal, machines)


@pytest_asyncio.fixture
async def member(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    """A member of a pool that says what the test lets it say."""
    async with keeping(temporal.client) as machines, listening(machines) as pool:
        yield Kept(temporal, machines, pool)


def pool_of(member: Kept) -> Pool:
    assert member.pool is not None
    return member.pool


async def failed(member: Kept, keep: PreserveWish) -> None:
    """It has Failed and is drained, and its pool has heard what it wants."""
    await member.fail()
    await pool_of(member).told(lambda r: r.keep is keep and r.drained, f"keep={keep!r}")


async def grants(member: Kept, by: PreservedBy) -> None:
    await member.handle.signal(MachineWorkflow.preserve_granted, PreserveGrant(by=by, reason="1 of 2 slots in use"))


async def repairs(member: Kept) -> None:
    intent = RepairIntent(id=uuid.uuid4().hex, requested_by="pool p", reason="no slot is free")
    await member.handle.signal(MachineWorkflow.repair, intent)


# -- the pool's words -------------------------------------------------------------------------------------------------


async def test_use_case_3_a_slot_keeps_one_that_nobody_asked_for(member: Kept) -> None:
    """Seed 003, point 6; MCM P6."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    asks = (await member.state()).status
    assert (asks.shown_phase, asks.preserve.expiry_time) == ("Failed", None)
    await grants(member, PreservedBy.AUTO)
    seen = await member.shows("Failed:Preserved")
    until = seen.status.preserve.expiry_time
    assert noted(seen, "PreserveGranted") == [f"pool {pool_of(member).name}: 1 of 2 slots in use"]
    heard = await pool_of(member).told(lambda r: r.preserved_until)
    assert (heard.preserved_until, heard.preserved_by, heard.keep) == (until, PreservedBy.AUTO, PreserveWish.UNDECIDED)
    await member.skip_to()
    gone = await member.ended()
    assert timedelta(0) <= gone["PreserveExpired"] - until < SOON
    reports = await pool_of(member).heard()
    assert next(r for r in reports if r.seq > heard.seq).keep is PreserveWish.UNDECIDED  # nothing is left to be granted
    assert reports[-1].ended


async def test_one_that_was_asked_for_says_so_and_waits_for_the_word(member: Kept) -> None:
    await member.run()
    await member.annotate("when-failed")
    await failed(member, PreserveWish.ASKED)
    asks = (await member.until(lambda s: s.status.waiting_for.reason == "PreserveUndecided", "the question")).status
    assert asks.preserve.expiry_time is None
    await grants(member, PreservedBy.ASKED)
    seen = await member.shows("Failed:Preserved")
    assert seen.status.preserve.source is PreservedBy.ASKED


async def test_a_request_that_comes_after_the_question_is_told(member: Kept) -> None:
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await member.annotate("now")
    await pool_of(member).told(lambda r: r.keep is PreserveWish.ASKED, "the request")
    await member.annotate("false")
    await pool_of(member).told(lambda r: r.keep is PreserveWish.NEVER, "the bar")
    await repairs(member)
    await member.ended()


@pytest.mark.parametrize("slot", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
async def test_a_word_on_request_gives_no_slot_to_one_whose_request_is_gone(member: Kept, slot: bool) -> None:
    await member.run()
    await member.annotate("when-failed")
    await failed(member, PreserveWish.ASKED)
    await member.annotate(None)
    await pool_of(member).told(lambda r: r.keep is PreserveWish.SLOT)
    await grants(member, PreservedBy.ASKED)
    await member.noted("PreserveGranted")
    assert (await member.state()).status.shown_phase == "Failed"
    if slot:
        await grants(member, PreservedBy.AUTO)
        seen = await member.shows("Failed:Preserved")
        assert seen.status.preserve.source is PreservedBy.AUTO
    else:
        await repairs(member)
        await member.ended()


async def test_a_grant_does_not_outlive_preserve_false(member: Kept) -> None:
    """Its pool has taken it back: when the annotation goes, the machine asks again."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await member.annotate("false")
    await pool_of(member).told(lambda r: r.keep is PreserveWish.NEVER, "the bar")
    await grants(member, PreservedBy.AUTO)
    await member.noted("PreserveGranted")
    await member.annotate(None)
    await pool_of(member).told(lambda r: r.keep is PreserveWish.SLOT, "the question")
    assert (await member.state()).status.shown_phase == "Failed"
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")


async def test_a_word_that_comes_twice_or_late_changes_nothing(member: Kept) -> None:
    await member.run()
    await grants(member, PreservedBy.AUTO)  # Running: it is not kept for the day it fails
    await failed(member, PreserveWish.SLOT)
    assert (await member.state()).status.shown_phase == "Failed"
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")
    await grants(member, PreservedBy.AUTO)
    assert len(noted(await member.state(), "PreserveGranted")) == 1
    await member.well()
    await grants(member, PreservedBy.AUTO)
    await member.skip_to()
    over = await member.shows("Running")
    assert len(noted(over, "Preserved")) == 1
    assert over.status.preserve.granted is PreservedBy.NOBODY
    await failed(member, PreserveWish.SLOT)  # it asks again
    assert (await member.state()).status.shown_phase == "Failed"


async def test_a_repair_meets_an_annotation_of_the_same_instant(member: Kept) -> None:
    """MCM 8.2: set in the same instant as failure. The watch has not told it yet; a fresh look finds it."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    member.node.write({PRESERVE_ANNOTATION: "when-failed"})
    await repairs(member)
    refused = await member.noted("RepairRefused")
    assert refused.deletion is None
    await pool_of(member).told(lambda r: r.keep is PreserveWish.ASKED and r.hash, "the refusal, as a whole")
    await grants(member, PreservedBy.ASKED)
    seen = await member.shows("Failed:Preserved")
    assert seen.repair is None
    assert member.did("delete_machine") == []


async def test_a_repair_that_comes_late_deletes_nothing_that_is_preserved(member: Kept) -> None:
    """I9: the pool's later answer overtook its repair."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")
    await repairs(member)
    seen = await member.noted("RepairRefused")
    assert (seen.status.shown_phase, seen.deletion, seen.repair) == ("Failed:Preserved", None, None)
    told = await pool_of(member).told(lambda r: r.preserved_until and r.hash)
    assert told.keep is PreserveWish.UNDECIDED
    await member.well()
    await repairs(member)  # nor a machine that is well again by now, nor one that fails again
    await pool_of(member).told(lambda r: r.phase is Phase.RUNNING and r.hash, "how it is")
    await member.fail()
    await member.noted("Drained", 2)
    await member.skip_to()
    gone = await member.ended()
    assert timedelta(0) <= gone["PreserveExpired"] - seen.status.preserve.expiry_time < SOON


async def test_without_a_request_a_repair_deletes(member: Kept) -> None:
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await repairs(member)
    reasons = await member.ended()
    assert "RepairRefused" not in reasons
    assert member.did("drain_node", "delete_machine") == ["drain_node", "drain_node", "delete_machine"]


async def test_a_deletion_during_a_repairs_look_is_the_persons_and_waits_for_nothing(member: Kept) -> None:
    await member.run()
    await failed(member, PreserveWish.SLOT)
    looked = member.stubs.holds["look_at_node"] = asyncio.Event()
    await repairs(member)
    await member.under_way("look_at_node")
    await member.says("delete", DeleteIntent(id="d", requested_by="alice", reason="it is in the way"))
    await member.ended()
    looked.set()
    ended = await member.state()
    assert (ended.deletion.requested_by, ended.deletion.reason) == ("alice", "it is in the way")


async def test_a_slot_that_is_given_is_not_taken_back_with_a_request(member: Kept) -> None:
    """It was given to the machine, and nobody has barred it."""
    await member.run()
    await member.annotate("when-failed")
    drained = member.stubs.holds["drain_node"] = asyncio.Event()
    await member.fail()
    await member.asks("drain_node")
    await grants(member, PreservedBy.AUTO)
    await member.noted("PreserveGranted")
    await member.says("release", ReleaseIntent())
    await member.noted("Released")
    drained.set()
    seen = await member.shows("Failed:Preserved")
    assert seen.status.preserve.source is PreservedBy.AUTO


async def test_a_repair_of_one_whose_node_cannot_be_read_waits(member: Kept) -> None:
    """I5: whether somebody asked for it is not known."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    member.node.write({PRESERVE_ANNOTATION: "when-failed"})
    member.stubs.then("look_at_node", classified(ErrorClass.AUTH, "not now"))
    await repairs(member)
    waits = await member.until(lambda s: "not now" in s.journal[-1].message, "the refusal")
    assert waits.deletion is None
    await member.skip(timedelta(minutes=4))
    await member.noted("RepairRefused")


async def test_a_slot_is_taken_from_what_nobody_asked_for(member: Kept) -> None:
    """MCM A6."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")
    await member.annotate("when-failed")  # by now somebody has
    await member.until(lambda s: s.status.preserve.source is PreservedBy.ASKED, "the request")
    await pool_of(member).told(lambda r: r.preserved_by is PreservedBy.ASKED)
    await member.handle.signal(MachineWorkflow.slot_taken, SlotTaken(reason="autoPreserveFailedMax is 0"))
    await member.annotate(None)
    gone = await member.ended()
    assert "SlotTaken" not in gone
    assert "Released" in gone


async def test_a_slot_that_is_taken_ends_it(member: Kept) -> None:
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")
    await member.handle.signal(MachineWorkflow.slot_taken, SlotTaken(reason="autoPreserveFailedMax is 0"))
    gone = await member.ended()
    assert gone["SlotTaken"] <= gone["VMDeleted"]


async def test_a_slot_that_is_taken_from_one_that_is_well_again_is_none(member: Kept) -> None:
    """Slots are for Failed machines: when it fails again, that failure is another matter."""
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await grants(member, PreservedBy.AUTO)
    until = (await member.shows("Failed:Preserved")).status.preserve.expiry_time
    await member.well()
    await member.handle.signal(MachineWorkflow.slot_taken, SlotTaken(reason="autoPreserveFailedMax is 0"))
    await member.fail()
    await member.noted("Drained", 2)
    seen = await member.shows("Failed:Preserved")
    assert seen.status.preserve.expiry_time == until


# -- never ------------------------------------------------------------------------------------------------------------


async def test_a_vm_that_goes_ends_it(member: Kept) -> None:
    await member.run()
    await failed(member, PreserveWish.SLOT)
    await grants(member, PreservedBy.AUTO)
    await member.shows("Failed:Preserved")
    member.stubs.always |= {"look_at_vm": VmLook(state="gone"), "look_at_node": looked(exists=False)}
    await member.handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=1, provider_id=VM, state="gone"))
    gone = await member.ended()
    assert "VMGone" in gone


async def test_a_stale_node_is_never_kept(member: Kept) -> None:
    member.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name="node-1", stale_node="node-1"))
    state = pool_of(member).new_state()
    started = await member.machines.start(state)
    member.handle = member.machines.client.get_workflow_handle(started.id)
    heard = await pool_of(member).told(lambda r: r.phase is Phase.FAILED)
    assert (heard.keep, heard.drained) == (PreserveWish.NEVER, True)
    await member.says("preserve", PreserveIntent(value=PreserveValue.WHEN_FAILED))
    await grants(member, PreservedBy.AUTO)
    await member.noted("PreserveGranted")
    seen = await member.state()
    assert (seen.status.shown_phase, seen.status.waiting_for.reason) == ("Failed", "StaleNode")
    await repairs(member)
    await member.ended()


async def test_without_a_vm_there_is_nothing_to_keep(member: Kept) -> None:
    member.stubs.then("create_machine", *[classified(ErrorClass.CAPACITY, "none left")] * 9)
    state = pool_of(member).new_state(creation_timeout=timedelta(minutes=5))
    started = await member.machines.start(state)
    member.handle = member.machines.client.get_workflow_handle(started.id)
    await member.until(lambda s: s.trouble, "the first refusal")
    await member.skip(timedelta(minutes=5, seconds=1))
    heard = await pool_of(member).told(lambda r: r.phase is Phase.FAILED)
    assert (heard.keep, heard.vm) == (PreserveWish.NEVER, Vm.UNBORN)
    await repairs(member)
    await member.ended()
    assert member.did("look_at_node", "delete_machine", "drain_node") in ([], ["delete_machine"])

"""A machine is preserved, from the request to the exact end: the seed's use cases on stubs, its 72 hours skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest_asyncio
from lifekit import eventually
from preservation.machine import FULL, HOUR, SOON, Kept, keeping, noted, when
from temporalio.testing import WorkflowEnvironment

from planners.machine.preservation import WARN_BEFORE
from resources import attributes as at
from resources.machine.preservation import ExtendIntent, PreservedBy, PreserveIntent, PreserveValue
from resources.machine.state import ApplyIntent, OperationState, OperationType
from resources.names import CORDON_ANNOTATION, PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED
from resources.timings import Timings
from workflows.machine.details import details


@pytest_asyncio.fixture
async def kept(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    async with keeping(temporal.client) as machines:
        yield Kept(temporal, machines)


# -- use case 1: `now` ------------------------------------------------------------------------------------------------


async def test_now_preserves_a_running_machine_for_72_hours(kept: Kept) -> None:
    """Seed 003, point 4 and use case 1; MCM P2, P7."""
    await kept.run()
    await kept.annotate("now")
    seen = await kept.shows("Running:Preserved")
    p = seen.status.preserve
    assert p.expiry_time == when(seen, "Preserved") + FULL
    assert (p.source, p.since) == (PreservedBy.ASKED, when(seen, "Preserved"))
    assert noted(seen, "Preserved")[0].endswith("annotation preserve=now on its node")
    assert seen.status.last_operation.type is OperationType.PRESERVE
    assert seen.status.last_operation.state is OperationState.SUCCESSFUL
    assert seen.status.deadlines == {"preserve": p.expiry_time, "preserve-warning": p.expiry_time - WARN_BEFORE}
    await kept.node.becomes(lambda n: n.protection == ("true", True), "protected from cluster-autoscaler")
    assert not kept.node.cordoned
    await kept.news()
    shown = (await kept.handle.describe()).typed_search_attributes
    assert (shown.get(at.PHASE), shown.get(at.PRESERVED_UNTIL)) == ("Running:Preserved", p.expiry_time)
    assert shown.get(at.DEADLINE) == p.expiry_time
    assert "- Preserved: annotation preserve=now on its node\n" in details(seen)
    assert f"- Preserved until: {p.expiry_time:%Y-%m-%d %H:%M:%S}" in details(seen)

    await kept.skip(FULL - timedelta(minutes=61))
    assert (await kept.state()).status.preserve.expiry_time == p.expiry_time
    await kept.skip(timedelta(minutes=2))
    warned = await kept.noted("PreservationEnds")
    assert timedelta(0) <= when(warned, "PreservationEnds") - (p.expiry_time - WARN_BEFORE) < SOON
    assert "hostler extend" in noted(warned, "PreservationEnds")[0]
    assert "PreservationEnds" in [i.story[-1].reason for i in kept.stubs.called("tell_node")]
    await kept.skip(HOUR)
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - p.expiry_time < SOON
    assert (over.status.preserve.expiry_time, over.status.deadlines, over.deletion) == (None, {}, None)
    await kept.node.becomes(lambda n: PRESERVE_ANNOTATION not in n.annotations)
    assert kept.node.protection == (None, False)
    await kept.news()
    shown = (await kept.handle.describe()).typed_search_attributes
    assert (shown.get(at.PHASE), shown.get(at.PRESERVED_UNTIL), shown.get(at.DEADLINE)) == ("Running", None, None)
    assert noted(await kept.state(), "PreservationEnds") == noted(warned, "PreservationEnds")
    assert kept.did("preserve_node", "drain_node", "delete_machine") == ["preserve_node", "preserve_node"]
    await kept.annotate("now")  # and once more, as the first time
    again = await kept.shows("Running:Preserved")
    assert again.status.preserve.expiry_time == when(again, "Preserved") + FULL


async def test_a_running_machine_is_kept_and_released_by_its_annotation(kept: Kept) -> None:
    """Seed 003, point 8 and note 6; MCM P5, P13."""
    await kept.run()
    await kept.annotate("now")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    for theirs in ("false", None):
        await kept.under_way("preserve_node", so=False)
        await kept.news()
        kept.node.write({SCALE_DOWN_DISABLED: theirs})
        await kept.news()
        await kept.node.becomes(lambda n: n.protection == ("true", True), "set back")
        assert (await kept.state()).status.shown_phase == "Running:Preserved"
    await kept.annotate("false")
    over = await kept.shows("Running")
    assert noted(over, "Released") == ["preserve=false ends it"]
    await kept.node.becomes(lambda n: n.annotations == {PRESERVE_ANNOTATION: "false"}, "only his own word")

    # An annotation that is removed releases like `false`.
    await kept.annotate("now")
    await kept.shows("Running:Preserved")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    await kept.annotate(None)
    over = await kept.noted("Released", 2)
    assert noted(over, "Released")[1] == "the annotation that asked for it was removed"
    await kept.node.becomes(lambda n: n.annotations == {})

    # What a person had set is there at the end (I10; MCM P18, P20): scale-down-disabled and the cordon.
    kept.node.write({SCALE_DOWN_DISABLED: "true"}, cordon=True)
    await kept.annotate("now")
    await kept.node.becomes(lambda n: n.protection[1], "marked")
    await kept.annotate("false")
    await kept.noted("Released", 3)
    await kept.node.becomes(lambda n: not n.protection[1], "released")
    assert kept.node.annotations == {SCALE_DOWN_DISABLED: "true", PRESERVE_ANNOTATION: "false"}
    assert kept.node.cordoned


# -- use case 2: `when-failed` ----------------------------------------------------------------------------------------


async def test_when_failed_keeps_the_vm_until_the_expiry(kept: Kept) -> None:
    """Seed 003, point 5 and use case 2; MCM P3, P4, P7, P9."""
    await kept.run()
    await kept.annotate("when-failed")
    before = await kept.until(lambda s: s.status.preserve.node_value, "the request")
    assert (before.status.shown_phase, before.status.preserve.expiry_time) == ("Running", None)
    assert "- To be preserved: when-failed, by the annotation on its node" in details(before)
    await kept.fail()
    seen = await kept.shows("Failed:Preserved")
    p = seen.status.preserve
    assert p.expiry_time == when(seen, "Preserved") + FULL
    assert when(seen, "Drained") <= when(seen, "Preserved")
    assert kept.node.cordoned
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    waits = seen.status.waiting_for
    assert (waits.reason, waits.next_try) == ("Preserved", p.expiry_time - WARN_BEFORE)
    assert f"until {p.expiry_time:%Y-%m-%d %H:%M:%S} UTC; then its VM is deleted" in waits.message
    assert [c.reason for c in seen.status.conditions] == ["HealthTimeout"]
    about = [(p.expiry_time + side).isoformat() for side in (-SOON, SOON)]  # it is kept in milliseconds
    preserved_until = "HostlerPreservedUntil BETWEEN '{}' AND '{}'".format(*about)
    await kept.is_listed(f"HostlerPhase = 'Failed:Preserved' AND {preserved_until}")

    await kept.skip(FULL - timedelta(minutes=10))
    late = await kept.noted("PreservationEnds")
    assert late.status.shown_phase == "Failed:Preserved"
    assert late.status.waiting_for.next_try == p.expiry_time
    assert kept.did("delete_machine") == []
    await kept.skip(timedelta(minutes=10, seconds=1))
    gone = await kept.ended()
    assert timedelta(0) <= gone["PreserveExpired"] - p.expiry_time < SOON
    assert timedelta(0) <= gone["VMDeleted"] - p.expiry_time < 2 * SOON
    shown = (await kept.handle.describe()).typed_search_attributes
    assert (shown.get(at.PHASE), shown.get(at.PRESERVED_UNTIL)) == ("Terminating", None)


# -- use case 4: early release ----------------------------------------------------------------------------------------


async def test_false_terminates_a_failed_machine(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("when-failed")
    await kept.fail()
    until = (await kept.shows("Failed:Preserved")).status.preserve.expiry_time
    await kept.annotate("false")
    gone = await kept.ended()
    assert gone["Released"] <= gone["VMDeleted"] < until - 71 * HOUR


async def test_an_invalid_value_changes_nothing_and_is_said(kept: Kept) -> None:
    """MCM P8."""
    await kept.run()
    await kept.annotate("nwo")
    seen = await kept.noted("PreserveUnreadable")
    assert (
        "preserve='nwo' of node node-1 is not valid; use now, when-failed or false"
        in noted(seen, "PreserveUnreadable")[0]
    )
    assert seen.status.shown_phase == "Running"

    async def told() -> list[str]:
        return [h.reason for i in kept.stubs.called("tell_node") for h in i.story]

    await eventually(told, lambda found: "PreserveUnreadable" in found, "an Event of the node")
    await kept.annotate("now")
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    await kept.annotate("nwo")
    await kept.noted("PreserveUnreadable", 2)
    assert (await kept.state()).status.preserve.expiry_time == until
    await kept.annotate(None)
    await kept.shows("Running")


# -- from phase to phase ----------------------------------------------------------------------------------------------


async def test_one_that_fails_keeps_its_expiry(kept: Kept) -> None:
    """It keeps it through Unknown, where it is preserved as well; it is drained only when Failed (MCM P16)."""
    await kept.run()
    await kept.annotate("now")
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    await kept.ill()
    assert (await kept.state()).status.shown_phase == "Unknown:Preserved"
    await kept.fail()
    seen = await kept.shows("Failed:Preserved")
    drained = await kept.noted("Drained")
    assert drained.status.preserve.expiry_time == seen.status.preserve.expiry_time == until
    assert len(noted(drained, "Preserved")) == 1


async def test_one_that_is_well_again_runs_until_the_same_expiry(kept: Kept) -> None:
    """Seed 003, point 7, where MCM stops it (P11, P14): our cordon is lifted; and it may fail once more."""
    await kept.run()
    await kept.annotate("when-failed")
    await kept.fail()
    until = (await kept.shows("Failed:Preserved")).status.preserve.expiry_time
    await kept.noted("Drained")
    well = await kept.well()
    assert (well.status.shown_phase, well.status.preserve.expiry_time) == ("Running:Preserved", until)
    assert (well.drained, well.status.waiting_for, well.status.conditions) == (False, None, [])
    await kept.node.becomes(lambda n: not n.cordoned, "takes work again")
    assert CORDON_ANNOTATION not in kept.node.annotations
    await kept.news()

    await kept.fail()
    await kept.noted("Drained", 2)
    again = await kept.shows("Failed:Preserved")
    assert again.status.preserve.expiry_time == until
    assert kept.node.cordoned
    assert kept.did("drain_node", "delete_machine") == ["drain_node", "drain_node"]

    await kept.well()
    await kept.skip_to()
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert over.deletion is None
    await kept.node.becomes(lambda n: not n.annotations and not n.cordoned, "as though nothing had been")


async def test_well_again_a_persons_cordon_stays(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("when-failed")
    kept.node.write(cordon=True)
    await kept.fail()
    await kept.shows("Failed:Preserved")
    await kept.noted("Drained")
    await kept.well()
    await kept.until(lambda s: not s.status.preserve.uncordon and not s.status.preserve.node_due, "the call is over")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    assert kept.node.cordoned


async def test_one_that_expires_in_unknown_ends_there(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent(lasts=timedelta(minutes=5)))
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    await kept.ill()
    await kept.skip(timedelta(minutes=5))
    over = await kept.shows("Unknown")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON
    assert over.deletion is None
    await kept.node.becomes(lambda n: n.protection == (None, False))


async def test_now_that_comes_in_unknown_begins_when_it_is_running(kept: Kept) -> None:
    await kept.run()
    await kept.ill()
    await kept.annotate("now")
    asked = await kept.until(lambda s: s.status.preserve.node_value, "the request")
    assert asked.status.shown_phase == "Unknown"
    await kept.well()
    await kept.shows("Running:Preserved")


async def test_now_while_it_is_pending_begins_with_running(kept: Kept) -> None:
    await kept.start()
    said = await kept.says("preserve", PreserveIntent(requested_by="alice", reason="case 17"))
    assert said == "machine m-1 will be preserved when it is Running or Failed; it is Pending"
    asked = await kept.state()
    assert asked.status.shown_phase == "Pending"
    assert "- To be preserved: now, requested by alice: case 17" in details(asked)
    await kept.news()
    seen = await kept.shows("Running:Preserved")
    assert noted(seen, "Preserved")[0].endswith("now, requested by alice (case 17)")


async def test_what_fails_at_its_creation_timeout_is_kept_where_there_is_a_vm(kept: Kept) -> None:
    await kept.start(timings=Timings(vm_look=HOUR))
    kept.node.there = False
    await kept.says("preserve", PreserveIntent(value=PreserveValue.WHEN_FAILED))
    await kept.skip(timedelta(minutes=19, seconds=1))
    await kept.until(lambda s: s.suspicion, "the first look")
    await kept.skip(timedelta(minutes=1, seconds=1))
    seen = await kept.shows("Failed:Preserved")
    assert [c.reason for c in seen.status.conditions] == ["CreationTimeout"]
    await kept.skip_to()
    gone = await kept.ended()
    assert timedelta(0) <= gone["PreserveExpired"] - seen.status.preserve.expiry_time < SOON
    assert kept.did("drain_node", "preserve_node", "delete_machine") == ["delete_machine"]


async def test_one_that_was_never_running_stays_failed_however_well_its_node_is(kept: Kept) -> None:
    await kept.start(timings=Timings(vm_look=HOUR))
    kept.node.there = False
    await kept.says("preserve", PreserveIntent(value=PreserveValue.WHEN_FAILED))
    await kept.skip(timedelta(minutes=19, seconds=1))
    await kept.until(lambda s: s.suspicion, "the first look")
    await kept.skip(timedelta(minutes=1, seconds=1))
    await kept.shows("Failed:Preserved")
    kept.node.there = True
    await kept.news()
    await kept.node.becomes(lambda n: n.protection == ("true", True), "protected")
    seen = await kept.state()
    assert (seen.node.ready, seen.was_running, "settle" in seen.status.deadlines) == (True, False, False)
    await kept.skip(timedelta(minutes=2))
    assert (await kept.state()).status.shown_phase == "Failed:Preserved"


# -- other times ------------------------------------------------------------------------------------------------------


async def test_extend_moves_the_expiry_and_a_changed_timeout_does_not(kept: Kept) -> None:
    """Seed 003, note 7."""
    await kept.run()
    await kept.says("preserve", PreserveIntent(lasts=timedelta(hours=2)))
    first = await kept.shows("Running:Preserved")
    until = first.status.preserve.expiry_time
    assert until == when(first, "Preserved") + timedelta(hours=2)
    shorter = first.spec.model_copy(update={"machine_preserve_timeout": HOUR})
    await kept.says("apply", ApplyIntent(spec=shorter, machine_class=first.machine_class))
    assert (await kept.state()).status.preserve.expiry_time == until
    await kept.skip(timedelta(minutes=65))
    await kept.noted("PreservationEnds")
    said = await kept.says("extend", ExtendIntent(lasts=timedelta(hours=3), requested_by="alice", reason="not done"))
    moved = await kept.noted("PreservationMoved")
    later = moved.status.preserve.expiry_time
    assert later == when(moved, "PreservationMoved") + timedelta(hours=3)
    assert said == f"machine m-1 is preserved until {later:%Y-%m-%d %H:%M:%S} UTC"
    assert noted(moved, "PreservationMoved")[0].endswith(" by alice: not done")
    assert f"- Preserved until: {later:%Y-%m-%d %H:%M:%S}" in details(moved)
    await kept.skip(timedelta(minutes=119))
    assert (await kept.state()).status.shown_phase == "Running:Preserved"
    await kept.skip(timedelta(minutes=2))
    await kept.noted("PreservationEnds", 2)
    await kept.skip(HOUR)
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - later < SOON
    await kept.says("preserve", PreserveIntent())
    again = await kept.shows("Running:Preserved")
    assert again.status.preserve.expiry_time == when(again, "Preserved") + HOUR
    assert noted(again, "PreservationEnds") == noted(over, "PreservationEnds")  # so the first message already says it


async def test_the_expiry_outlives_a_new_run(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("now")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    await kept.renew()
    assert (await kept.state()).status.preserve.expiry_time == until
    await kept.skip_to()
    over = await kept.shows("Running")
    assert timedelta(0) <= when(over, "PreserveExpired") - until < SOON

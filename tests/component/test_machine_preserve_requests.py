"""preserve, release and extend, by update and by signal: what is answered and refused, and what comes of it in each
phase. Stubs; time is skipped."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio
from machine.stubbed import listening
from machine.stubs import VM, reason
from preservation.machine import HOUR, Kept, keeping, noted, when
from temporalio.testing import WorkflowEnvironment

from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.preservation import ExtendIntent, PreservedBy, PreserveIntent, PreserveValue, ReleaseIntent
from resources.machine.state import ApplyIntent, Attempt, Phase
from resources.names import CORDON_ANNOTATION, PRESERVE_ANNOTATION
from workflows.machine.details import details

NOW, WHEN_FAILED, FALSE = PreserveValue
LATER = "2999-01-01T00:00:00Z"


def already(kept: Kept, until: datetime | None) -> str:
    assert until is not None
    move = f"`hostler extend m-1 --cluster {kept.machines.prefix} --for 24h`"
    return f"machine m-1 is preserved already, until {until:%Y-%m-%d %H:%M:%S} UTC; to change that time: {move}"


def stronger(there: str, wanted: str) -> str:
    command = f"`kubectl annotate --overwrite node node-1 {PRESERVE_ANNOTATION}={wanted}`"
    return f"node node-1 has the annotation preserve={there}, which takes precedence; change the annotation: {command}"


@pytest_asyncio.fixture
async def kept(temporal: WorkflowEnvironment) -> AsyncIterator[Kept]:
    async with keeping(temporal.client) as machines:
        yield Kept(temporal, machines)


# -- by plain Temporal ------------------------------------------------------------------------------------------------


async def test_plain_json_is_enough(kept: Kept) -> None:
    """JSON as in `temporal workflow signal --name preserve --input '{}'`."""
    await kept.run()
    await kept.handle.signal("preserve", {})
    seen = await kept.shows("Running:Preserved")
    assert seen.status.preserve.own.value is NOW
    await kept.handle.signal("extend", {"lasts": "8h", "reason": "night shift"})
    moved = await kept.noted("PreservationMoved")
    assert moved.status.preserve.expiry_time == when(moved, "PreservationMoved") + 8 * HOUR
    await kept.handle.signal("release", {"requestedBy": "ops"})
    over = await kept.shows("Running")
    assert noted(over, "Released") == ["released by ops"]
    assert await kept.says("preserve", {"value": "when-failed", "lasts": "1h30m"}) == (
        "machine m-1 will be preserved when it fails"
    )
    assert (await kept.state()).status.preserve.own.lasts == timedelta(minutes=90)


async def test_a_time_without_a_zone_is_utc(kept: Kept) -> None:
    """Nor does it stop the workflow when it comes by signal."""
    await kept.run()
    soon = datetime.now(UTC).replace(microsecond=0) + HOUR
    await kept.handle.signal("preserve", {"until": f"{soon:%Y-%m-%dT%H:%M:%S}"})
    seen = await kept.shows("Running:Preserved")
    assert seen.status.preserve.expiry_time == soon
    await kept.handle.signal("extend", {"until": f"{soon + HOUR:%Y-%m-%dT%H:%M:%S}"})
    await kept.until(lambda s: s.status.preserve.expiry_time == soon + HOUR, "the later time")


# -- by the annotation of its manifest (seed 003, points 3 to 5 and note 3) --------------------------------------------


async def test_a_manifest_asks_from_the_beginning_and_by_its_changes(kept: Kept) -> None:
    given = {PRESERVE_ANNOTATION: "now"}
    state = kept.machines.new_state("m-1").model_copy(update={"annotations": given})
    kept.handle = kept.machines.client.get_workflow_handle((await kept.machines.start(state)).id)
    await reason(kept.handle, "NodeNotSeen")
    await kept.news()
    seen = await kept.shows("Running:Preserved")
    assert (seen.status.preserve.own.value, seen.status.preserve.source) == (NOW, PreservedBy.ASKED)

    def wish(**meta: dict[str, str]) -> ApplyIntent:
        assert state.machine_class is not None
        return ApplyIntent(id=uuid.uuid4().hex, spec=state.spec, machine_class=state.machine_class, **meta)  # type: ignore[arg-type]

    async def apply(annotations: dict[str, str], **labels: str) -> str:
        return await kept.says("apply", wish(labels=labels, annotations=annotations))

    assert await apply(given) == "unchanged"
    assert await apply({}) == "configured; preserve=now is withdrawn"
    over = await kept.shows("Running")
    assert noted(over, "Released") == ["the annotation that asked for it was removed"]
    await kept.annotate("false")
    assert await apply({PRESERVE_ANNOTATION: "when-failed"}) == (
        "configured; preserve=when-failed is the machine's own value, but its node's annotation preserve=false takes "
        "precedence"
    )
    assert await apply({PRESERVE_ANNOTATION: "when-failed"}, team="a") == "configured"
    asked = await kept.state()
    assert (asked.labels, asked.status.preserve.own.value) == ({"team": "a"}, WHEN_FAILED)
    refused = await kept.refuses("apply", wish(labels={"a b": ""}))
    assert 'labels: Invalid value: "a b": name part must consist of' in refused
    await kept.handle.signal("apply", wish(annotations={"a b": ""}))
    (said,) = noted(await kept.noted("Refused"), "Refused")
    assert said.startswith("signal 'apply': annotations: Invalid value: \"a b\"")
    await kept.annotate(None)
    await kept.ill()
    await kept.fail()
    await kept.shows("Failed:Preserved")


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_what_cannot_be_is_refused_with_words_and_leaves_no_history(kept: Kept) -> None:
    await kept.run()
    before = len((await kept.handle.fetch_history()).events)
    past = datetime(2026, 1, 1, tzinfo=UTC)
    cases: list[tuple[str, Any, str]] = [
        (
            "release",
            ReleaseIntent(),
            "machine m-1 is not preserved, and nobody has asked for that; there is nothing to",
        ),
        (
            "extend",
            ExtendIntent(lasts=HOUR),
            f"machine m-1 is not preserved; `hostler preserve m-1 --cluster {kept.machines.prefix}` preserves it",
        ),
        ("preserve", PreserveIntent(until=past), "2026-01-01 00:00:00 UTC has passed"),
        ("preserve", PreserveIntent(lasts=HOUR, until=past), "both a duration and an end time are given; give one"),
    ]
    for name, intent, words in cases:
        assert (await kept.refuses(name, intent)).startswith(words)
    assert len((await kept.handle.fetch_history()).events) == before
    await kept.handle.signal("release", ReleaseIntent())
    assert noted(await kept.noted("Refused"), "Refused")[0].startswith(cases[0][2])


async def test_of_one_that_is_preserved_only_extend_moves_the_expiry(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    until = (await kept.shows("Running:Preserved")).status.preserve.expiry_time
    refused = await kept.refuses("preserve", PreserveIntent(lasts=HOUR))
    assert refused == already(kept, until)
    assert await kept.refuses("extend", ExtendIntent()) == "give either a duration or an end time"
    said = await kept.says("preserve", PreserveIntent(requested_by="bob"))
    assert said == f"machine m-1 is preserved already, until {until:%Y-%m-%d %H:%M:%S} UTC"
    assert (await kept.state()).status.preserve.expiry_time == until


async def test_the_annotation_is_stronger_than_a_request(kept: Kept) -> None:
    """Seed 003, note 3."""
    await kept.run()
    await kept.annotate("when-failed")
    await kept.until(lambda s: s.status.preserve.node_value, "the annotation")
    refused = await kept.refuses("preserve", PreserveIntent())
    assert refused == stronger("when-failed", "now")
    assert await kept.refuses("preserve", PreserveIntent(lasts=HOUR)) == f"{refused}, then ask again"
    assert (await kept.state()).status.preserve.own is None
    await kept.says("preserve", PreserveIntent(value=WHEN_FAILED, requested_by="alice"))  # the same value: no conflict
    await kept.annotate("false")
    await kept.until(lambda s: s.status.preserve.node_value == "false", "the annotation")
    await kept.fail()
    await kept.noted("Drained")
    assert (await kept.state()).status.shown_phase == "Failed"


async def test_who_wants_one_for_longer_that_is_kept_by_its_annotation_extends_it(kept: Kept) -> None:
    """Removing the annotation, or setting another, would end what it has caused."""
    await kept.run()
    await kept.annotate("when-failed")
    await kept.fail()
    seen = await kept.shows("Failed:Preserved")
    said = await kept.says("preserve", PreserveIntent(value=WHEN_FAILED))
    assert said.startswith("machine m-1 is preserved already, until ")
    for value, lasts in ((NOW, None), (NOW, HOUR), (WHEN_FAILED, HOUR)):
        refused = await kept.refuses("preserve", PreserveIntent(value=value, lasts=lasts))
        assert refused == already(kept, seen.status.preserve.expiry_time)
    assert await kept.refuses("preserve", PreserveIntent(value=FALSE)) == (
        f"{stronger('when-failed', 'false')}; it has Failed, so its VM is deleted then"
    )
    assert (await kept.state()).status.shown_phase == "Failed:Preserved"


async def test_of_one_that_runs_and_is_kept_by_its_annotation_too(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("now")
    seen = await kept.shows("Running:Preserved")
    refused = await kept.refuses("preserve", PreserveIntent(value=WHEN_FAILED))
    assert refused == already(kept, seen.status.preserve.expiry_time)
    assert await kept.refuses("preserve", PreserveIntent(value=FALSE)) == stronger("now", "false")


async def test_one_that_failed_and_is_not_decided_keeps_its_annotation(temporal: WorkflowEnvironment) -> None:
    """Without it nobody would have asked, and its pool would delete the machine."""
    async with keeping(temporal.client) as machines, listening(machines) as pool:
        member = Kept(temporal, machines, pool)
        await member.run()
        await member.annotate("when-failed")
        await member.fail()
        await reason(member.handle, "PreserveUndecided")
        refused = await member.refuses("preserve", PreserveIntent(lasts=24 * HOUR))
        assert refused == f"{stronger('when-failed', 'now')}, then ask again"
        assert PRESERVE_ANNOTATION in member.node.annotations


async def test_once_it_is_being_deleted_nothing_is_taken(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("now")
    await kept.shows("Running:Preserved")
    drained = kept.stubs.holds["drain_node"] = asyncio.Event()
    await kept.says("delete", DeleteIntent(id="d"))
    gone = await kept.shows("Terminating")
    assert "- To be preserved" not in details(gone)
    assert await kept.refuses("preserve", {}) == "machine m-1 is being deleted; it can no longer be preserved"
    assert await kept.refuses("release", {}) == "machine m-1 is already being deleted"
    assert (await kept.refuses("extend", {"lasts": "1h"})).startswith("machine m-1 is not preserved")
    drained.set()
    await kept.ended()


async def test_an_intent_by_update_and_by_signal_counts_once(kept: Kept) -> None:
    await kept.run()
    asked = PreserveIntent(id=uuid.uuid4().hex)
    first = await kept.says("preserve", asked)
    await kept.shows("Running:Preserved")
    moved = ExtendIntent(id=uuid.uuid4().hex, lasts=HOUR)
    await kept.says("extend", moved)
    released = ReleaseIntent(id=uuid.uuid4().hex)
    await kept.says("release", released)
    over = await kept.shows("Running")
    for name, intent in (("preserve", asked), ("extend", moved), ("release", released)):
        await kept.handle.signal(name, intent)
    assert await kept.says("preserve", asked) == first
    await kept.says("release", released)
    after = await kept.state()
    assert (after.status.shown_phase, after.journal) == ("Running", over.journal)


# -- release, phase by phase ------------------------------------------------------------------------------------------


async def test_release_while_it_is_pending_withdraws_the_request(kept: Kept) -> None:
    await kept.start()
    await kept.says("preserve", PreserveIntent())
    assert await kept.says("release", ReleaseIntent()) == "the request for machine m-1 is withdrawn"
    await kept.news()
    seen = await kept.shows("Running")
    assert noted(seen, "Preserved") == []
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")


async def test_a_later_request_counts_and_not_the_release_before_it(kept: Kept) -> None:
    await kept.start()
    kept.node.ready(False)
    await kept.annotate("now")
    await kept.until(lambda s: s.status.preserve.node_value, "the annotation")
    await kept.says("release", ReleaseIntent())
    await kept.says("preserve", PreserveIntent())
    kept.node.ready(True)
    await kept.news()
    await kept.shows("Running:Preserved")


async def test_release_takes_the_annotation_off(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("now")
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    said = await kept.says("release", ReleaseIntent(requested_by="alice", reason="seen enough"))
    assert said == "machine m-1 is released"
    over = await kept.shows("Running")
    assert noted(over, "Released") == ["released by alice (seen enough)"]
    await kept.node.becomes(lambda n: n.annotations == {})


async def test_release_of_a_request_for_the_day_it_fails(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("when-failed")
    await kept.until(lambda s: s.status.preserve.node_value, "the annotation")
    await kept.says("release", ReleaseIntent())
    await kept.node.becomes(lambda n: n.annotations == {})
    await kept.news()
    await kept.fail()
    await kept.noted("Drained")
    assert (await kept.state()).status.shown_phase == "Failed"


async def test_release_in_unknown(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")
    await kept.ill()
    await kept.says("release", ReleaseIntent())
    over = await kept.shows("Unknown")
    assert over.deletion is None


async def test_release_of_a_failed_one_deletes_its_vm(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent(value=WHEN_FAILED))
    await kept.fail()
    await kept.shows("Failed:Preserved")
    said = await kept.says("release", ReleaseIntent())
    assert said == "machine m-1 is released; it is Failed, so its VM is deleted"
    gone = await kept.ended()
    assert gone["Released"] <= gone["VMDeleted"]


async def test_release_in_the_middle_of_a_drain(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")
    drained = kept.stubs.holds["drain_node"] = asyncio.Event()
    await kept.fail()
    await kept.until(lambda s: s.status.waiting_for and s.status.waiting_for.reason == "Draining", "the drain")
    await kept.says("release", ReleaseIntent())
    await kept.shows("Terminating")
    drained.set()
    await kept.ended()


async def test_false_bars_and_release_lifts_the_bar(kept: Kept) -> None:
    await kept.run()
    assert await kept.says("preserve", PreserveIntent(value=FALSE)) == (
        "machine m-1 is not preserved and will not be, not even by its pool"
    )
    assert (await kept.state()).status.preserve.own.value is FALSE
    await kept.says("release", ReleaseIntent())
    await kept.until(lambda s: s.status.preserve.own is None, "no bar")


# -- ends that are stronger -------------------------------------------------------------------------------------------


async def test_a_deletion_ends_it_at_once(kept: Kept) -> None:
    await kept.run()
    await kept.annotate("now")
    await kept.shows("Running:Preserved")
    await kept.says("delete", DeleteIntent(id="d"))
    await kept.ended()
    assert kept.did("drain_node", "delete_machine") == ["drain_node", "delete_machine"]


async def test_a_new_life_begins_without_it(kept: Kept) -> None:
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.shows("Running:Preserved")
    former = (await kept.state()).uid
    await kept.says("recreate", RecreateIntent(id="r"))
    await kept.until(lambda s: s.uid != former and s.status.provider_id, "the new life")
    kept.node.registers_anew()
    await kept.news()
    seen = await kept.shows("Running")
    assert (seen.status.preserve.own, seen.status.preserve.expiry_time) == (None, None)


async def test_an_adopted_machine_takes_off_what_its_former_life_has_left(kept: Kept) -> None:
    """Nobody knows there any longer that it was preserved."""
    await kept.run()
    await kept.says("preserve", PreserveIntent())
    await kept.node.becomes(lambda n: n.protection == ("true", True))
    kept.node.write({CORDON_ANNOTATION: "m-1"}, cordon=True)  # it had Failed, and was drained
    await kept.handle.terminate("by somebody")
    former = kept.machines.new_state("m-1")
    former.uid, former.status.provider_id = str(uuid.uuid4()), VM
    former.attempt = Attempt(number=2, token="", started=datetime.now(UTC), machine_class=former.machine_class)
    await kept.machines.start(former)
    seen = await kept.shows("Running")
    assert seen.journal[0].reason == "Adopted"
    await kept.node.becomes(lambda n: n.annotations == {} and not n.cordoned, "free of it")


async def test_an_adopted_machine_honours_the_annotation(kept: Kept) -> None:
    kept.node.write({PRESERVE_ANNOTATION: "now"})
    new = kept.machines.new_state("m-1")
    new.uid, new.status.provider_id = str(uuid.uuid4()), VM
    new.attempt = Attempt(number=2, token="", started=datetime.now(UTC), machine_class=new.machine_class)
    started = await kept.machines.start(new)
    kept.handle = kept.machines.client.get_workflow_handle(started.id)
    seen = await kept.shows("Running:Preserved")
    assert seen.status.preserve.source is PreservedBy.ASKED
    assert seen.status.phase is Phase.RUNNING

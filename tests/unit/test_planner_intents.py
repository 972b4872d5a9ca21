"""planners/intents: what an intent makes of a deletion and of a preservation, and when it is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lifekit import examples

from planners.machine.intents import (
    PreservationIntent,
    by_manifest,
    deletion,
    manifest_words,
    preservation,
    refusal,
)
from resources.base import LONGEST
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.preservation import (
    ExtendIntent,
    Preservation,
    PreservedBy,
    PreserveIntent,
    PreserveRequest,
    PreserveValue,
    Release,
    ReleaseIntent,
)
from resources.machine.state import ClassSnapshot, Deletion, MachineState, Phase
from resources.names import PRESERVE_ANNOTATION

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATER = NOW + 8 * HOUR
FALSE, WHEN_FAILED = PreserveValue.FALSE, PreserveValue.WHEN_FAILED

asked = PreserveRequest(value=WHEN_FAILED, time=NOW - HOUR)
kept = Preservation(own=asked, source=PreservedBy.ASKED, expiry_time=LATER, warned=True)
by_node = Preservation(last_seen_node_value="now", last="now")
going = Release(time=NOW - HOUR, requested_by="bob")
released = kept.model_copy(update={"release": going})


# -- deletion ---------------------------------------------------------------------------------------------------------


def was(*, force: bool = False, recreate: bool = False) -> Deletion:
    return Deletion(time=NOW - HOUR, requested_by="alice", reason="old", force=force, recreate=recreate)


@pytest.mark.parametrize(
    ("former", "intent", "force", "recreate"),
    [
        pytest.param(None, DeleteIntent(), False, False, id="deleted"),
        pytest.param(None, DeleteIntent(force=True), True, False, id="deleted with force"),
        pytest.param(None, RecreateIntent(force=True), True, True, id="recreated with force"),
        pytest.param(was(), DeleteIntent(force=True), True, False, id="force comes later"),
        pytest.param(was(force=True), DeleteIntent(), True, False, id="force is never taken back"),
        pytest.param(was(recreate=True), RecreateIntent(force=True), True, True, id="recreated, now with force"),
        pytest.param(was(recreate=True), DeleteIntent(), False, False, id="a delete cancels the new life"),
        pytest.param(was(recreate=True), DeleteIntent(force=True), True, False, id="and may bring force"),
        pytest.param(was(), RecreateIntent(), False, False, id="a new life does not come after a delete"),
    ],
)
def test_a_deletion(former: Deletion | None, intent: DeleteIntent, force: bool, recreate: bool) -> None:
    after = deletion(former, intent.model_copy(update={"requested_by": "carol", "reason": "new"}), NOW)
    assert (after.force, after.recreate) == (force, recreate)
    who = ("alice", "old", NOW - HOUR) if former else ("carol", "new", NOW)
    assert (after.requested_by, after.reason, after.time) == who, "the first says who, why and since when"


# -- preservation -----------------------------------------------------------------------------------------------------


def test_a_request() -> None:
    intent = PreserveIntent(requested_by="carol", reason="kernel panic", lasts=HOUR)
    after = preservation(released, intent, NOW)
    request = PreserveRequest(
        value=PreserveValue.NOW, time=NOW, requested_by="carol", reason="kernel panic", lasts=HOUR
    )
    assert after == kept.model_copy(update={"own": request}), "and what was to be released is wanted again"


def test_false_takes_no_release_back() -> None:
    after = preservation(released, PreserveIntent(value=FALSE), NOW)
    assert after.release == going
    assert after.own is not None
    assert after.own.value is FALSE


@pytest.mark.parametrize(
    ("before", "ends"),
    [
        pytest.param(kept, True, id="preserved"),
        pytest.param(by_node, True, id="its Node asks for it"),
        pytest.param(by_node.model_copy(update={"last_seen_node_value": "noww"}), True, id="the last that was valid"),
        pytest.param(by_node.model_copy(update={"cleared": "now"}), False, id="we have cleared the Node ourselves"),
        pytest.param(Preservation(own=asked), False, id="only its own request"),
    ],
)
def test_a_release(before: Preservation, ends: bool) -> None:
    after = preservation(before, ReleaseIntent(requested_by="bob", reason="seen"), NOW)
    release = Release(time=NOW, requested_by="bob", reason="seen") if ends else None
    assert after == before.model_copy(update={"own": None, "release": release})


@pytest.mark.parametrize(
    ("intent", "until"),
    [
        pytest.param(ExtendIntent(lasts=HOUR), NOW + HOUR, id="from now on, and not from the expiry"),
        pytest.param(ExtendIntent(until=LATER + HOUR), LATER + HOUR, id="until"),
    ],
)
def test_an_extension(intent: ExtendIntent, until: datetime) -> None:
    assert preservation(kept, intent, NOW) == kept.model_copy(update={"expiry_time": until, "warned": False})


# -- the annotation of a manifest (seed 003, points 3 to 5 and note 3; MCM P6, P8, P12) --------------------------------

NONE, SAYS_NOW, SAYS_WHEN, SAYS_FALSE, NONSENSE = (
    {PRESERVE_ANNOTATION: value} if value else {"team": "a"} for value in ("", "now", "when-failed", "false", "nwo")
)
manifests = asked.model_copy(update={"by_manifest": True})


@pytest.mark.parametrize(
    ("own", "before", "after", "is_own"),
    [
        pytest.param(None, NONE, SAYS_NOW, PreserveValue.NOW, id="given"),
        pytest.param(None, NONE, SAYS_FALSE, FALSE, id="false bars"),
        pytest.param(manifests, SAYS_WHEN, SAYS_NOW, PreserveValue.NOW, id="changed"),
        pytest.param(asked, NONE, SAYS_FALSE, FALSE, id="the newer of two wishes, as of hostler preserve"),
        pytest.param(None, SAYS_NOW, SAYS_NOW, None, id="once given is given: what has expired does not come back"),
        pytest.param(asked, SAYS_NOW, SAYS_NOW, WHEN_FAILED, id="what somebody has asked since stays"),
        pytest.param(manifests, SAYS_WHEN, NONE, None, id="taken out"),
        pytest.param(asked, SAYS_NOW, NONE, WHEN_FAILED, id="taken out, and what somebody has asked since stays"),
        pytest.param(None, NONE, NONSENSE, None, id="no value (P8)"),
        pytest.param(manifests, SAYS_WHEN, NONSENSE, None, id="a value becomes none"),
    ],
)
def test_what_a_manifest_asks(
    own: PreserveRequest | None, before: dict[str, str], after: dict[str, str], is_own: PreserveValue | None
) -> None:
    p = by_manifest(Preservation(own=own, release=going), before, after, "carol", NOW)
    assert (p.own.value if p.own else None) == is_own
    if p.own not in (None, own):
        assert (p.own.by_manifest, p.own.requested_by, p.own.time) == (True, "carol", NOW)
    taken_back = p.release is None
    assert taken_back == (p.own != own and is_own in (PreserveValue.NOW, WHEN_FAILED)), "as a request does"


@pytest.mark.parametrize(
    ("p", "before", "after", "words"),
    [
        (Preservation(), NONE, SAYS_NOW, "preserve=now is the machine's own value"),
        (by_node, NONE, SAYS_NOW, "preserve=now is the machine's own value"),
        (
            by_node,
            NONE,
            SAYS_FALSE,
            "preserve=false is the machine's own value, but its node's annotation preserve=now takes precedence",
        ),
        (Preservation(own=manifests), SAYS_WHEN, NONE, "preserve=when-failed is withdrawn"),
        (Preservation(own=asked), SAYS_WHEN, NONE, ""),
        (Preservation(own=manifests), SAYS_WHEN, SAYS_WHEN, ""),
    ],
)
def test_what_is_said_of_it(p: Preservation, before: dict[str, str], after: dict[str, str], words: str) -> None:
    s = machine(p)
    s.annotations = before
    assert manifest_words(s, after) == words


# -- refused ----------------------------------------------------------------------------------------------------------


def machine(p: Preservation, *, deleted: bool = False, phase: Phase = Phase.RUNNING) -> MachineState:
    loaded = examples("m-1")
    s = MachineState(
        name="m-1",
        cluster="demo",
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        intents={"known": ""},
        deletion=was() if deleted else None,
    )
    s.status.preserve, s.status.phase = p, phase
    return s


@pytest.mark.parametrize(
    ("s", "intent", "words"),
    [
        pytest.param(machine(Preservation()), PreserveIntent(), "", id="preserve"),
        pytest.param(machine(Preservation(), deleted=True), PreserveIntent(), "is being deleted", id="one that goes"),
        pytest.param(machine(Preservation(), deleted=True), PreserveIntent(id="known"), "", id="a second arrival"),
        pytest.param(machine(kept), PreserveIntent(), "", id="again, without a time"),
        pytest.param(machine(kept), PreserveIntent(lasts=HOUR), "hostler extend m-1 --cluster demo", id="a new time"),
        pytest.param(
            machine(by_node), PreserveIntent(value=WHEN_FAILED), "which takes precedence", id="the Node says now"
        ),
        pytest.param(machine(by_node), PreserveIntent(lasts=HOUR), "", id="the Node says the same: the time counts"),
        pytest.param(machine(kept), PreserveIntent(value=FALSE), "", id="false ends it"),
        pytest.param(machine(Preservation()), PreserveIntent(until=NOW), "has passed", id="until now"),
        pytest.param(machine(Preservation()), PreserveIntent(lasts=LONGEST), "", id="the longest"),
        pytest.param(
            machine(Preservation()), PreserveIntent(until=NOW + LONGEST + HOUR), "at most 3650 days", id="longer"
        ),
        pytest.param(machine(Preservation()), PreserveIntent(lasts=HOUR, until=LATER), "give one", id="two times"),
        pytest.param(machine(Preservation()), ReleaseIntent(), "nothing to release", id="nothing to release"),
        pytest.param(machine(Preservation(own=asked)), ReleaseIntent(), "", id="a request is withdrawn"),
        pytest.param(machine(kept, deleted=True), ReleaseIntent(), "already being deleted", id="too late to release"),
        pytest.param(machine(Preservation()), ExtendIntent(lasts=HOUR), "hostler preserve m-1", id="nothing to extend"),
        pytest.param(
            machine(kept, deleted=True), ExtendIntent(lasts=HOUR), "is not preserved", id="too late to extend"
        ),
        pytest.param(machine(released), ExtendIntent(lasts=HOUR), "being released", id="extend what is released"),
        pytest.param(machine(kept), ExtendIntent(), "give either a duration or an end time", id="no time"),
        pytest.param(machine(kept), ExtendIntent(until=NOW - HOUR), "has passed", id="into the past"),
        pytest.param(machine(kept), ExtendIntent(lasts=HOUR), "", id="extend"),
    ],
)
def test_a_refusal(s: MachineState, intent: PreservationIntent, words: str) -> None:
    said = refusal(s, intent, NOW)
    assert words in said
    assert bool(said) == bool(words), said

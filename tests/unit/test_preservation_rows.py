"""planners/machine/preservation.py, row by row. Given a machine, then the decision. Each row says where it comes from:
seed 003 (points 1 to 10 of its proposal, diagrams 1 and 2, use cases 1 to 4, notes 1 to 8), the design's page, or a
case of machine-controller-manager as docs/conformance.md numbers them (K: preservation, A: slots, T: what is
terminated)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from preservation.planner import (
    ASKED,
    AUTO,
    FULL,
    HOUR,
    LATER,
    NOW,
    SECOND,
    TYPO,
    C,
    F,
    P,
    R,
    T,
    U,
    kept,
    machine,
    own,
    release,
    slot_taken,
)

from planners.machine.preservation import (
    AskPool,
    Decision,
    End,
    ObservedMachine,
    Preserve,
    Protect,
    Recover,
    Stay,
    Warn,
    decide,
)
from resources.machine.preservation import PreservedBy

WARNING = LATER - HOUR
STAY, ASK = Stay(), AskPool("")
KEPT = Preserve(LATER, ASKED, "Preserved", "")
HELD = Stay("Preserved", "", WARNING)


def begins(source: PreservedBy = ASKED, until: object = FULL) -> Preserve:
    assert isinstance(until, type(FULL))
    return Preserve(until, source, "Preserved", "")


def ends(reason: str, clear: str = "", terminate: bool = False, keep_own: bool = False) -> End:
    return End(reason, "", terminate, clear, keep_own)


def dies(reason: str, clear: str = "", keep_own: bool = False) -> End:
    return ends(reason, clear, True, keep_own)


def bare(made: Decision) -> Decision:
    """The decision without its words."""
    return replace(made, message="") if hasattr(made, "message") else made


Rows = list[tuple[str, ObservedMachine, Decision]]


def table(rows: Rows) -> Callable[..., object]:
    return pytest.mark.parametrize(("given", "expected"), [pytest.param(o, d, id=name) for name, o, d in rows])


# -- nobody has preserved it yet --------------------------------------------------------------------------------------

BEGINNING: Rows = [
    ("K1: nobody wants anything", machine(), STAY),
    ("point 4, K2: now on Running", machine(node="now"), begins()),
    ("use case 1: now, of the machine's own", machine(own=own()), begins()),
    (
        "point 4: expiry = now + machinePreserveTimeout",
        machine(node="now", timeout=8 * HOUR),
        begins(ASKED, NOW + 8 * HOUR),
    ),
    (
        "point 1: the timeout is the machine's at that moment",
        machine(own=own(), timeout=SECOND),
        begins(ASKED, NOW + SECOND),
    ),
    (
        "K9, K10: now, its Node is missing: the expiry all the same",
        machine(node="now", node_present=False),
        begins(),
    ),
    ("own --for 8h", machine(own=own(lasts=8 * HOUR)), begins(ASKED, NOW + 8 * HOUR)),
    ("own --until", machine(own=own(until=LATER)), begins(ASKED, LATER)),
    (
        "--for is the own request's: not of another value on the Node",
        machine(F, node="when-failed", own=own(lasts=8 * HOUR), granted=ASKED),
        begins(),
    ),
    (
        "--for counts beside the same value on the Node",
        machine(node="now", own=own(lasts=8 * HOUR)),
        begins(ASKED, NOW + 8 * HOUR),
    ),
    ("use case 2, K3: when-failed on Running waits without a word", machine(node="when-failed"), STAY),
    ("diagram 1, Running + Requested: own when-failed", machine(own=own("when-failed")), STAY),
    ("note 3, K12: Node now, own when-failed", machine(node="now", own=own("when-failed")), begins()),
    ("note 3: Node when-failed, own now", machine(node="when-failed", own=own()), STAY),
    ("note 3: Node false, own now", machine(node="false", own=own()), STAY),
    ("note 3: Node now, own false", machine(node="now", own=own("false")), begins()),
    ("design: false where nothing is preserved", machine(node="false"), STAY),
    ("K8: an invalid value", machine(node=TYPO), STAY),
    ("K8: an invalid value does not take back what was there", machine(node=TYPO, last="now"), begins()),
    ("design: now while Pending waits", machine(P, node="now"), Stay("PreserveWaits")),
    ("design: now while CrashLoopBackOff waits", machine(C, own=own()), Stay("PreserveWaits")),
    ("design: now while Unknown waits", machine(U, node="now"), Stay("PreserveWaits")),
    ("when-failed while Pending", machine(P, own=own("when-failed")), STAY),
    ("when-failed while Unknown", machine(U, node="when-failed"), STAY),
    (
        "a VM that is gone is not preserved: it is Unknown in a moment",
        machine(own=own(), vm_present=False),
        Stay("PreserveWaits"),
    ),
    ("a stray grant does not preserve a Running one", machine(granted=AUTO), STAY),
    ("a request whose time has passed has lapsed", machine(own=own(until=NOW)), ends("PreserveExpired")),
    ("so has when-failed", machine(own=own("when-failed", until=NOW - HOUR)), ends("PreserveExpired")),
    ("the same value on the Node stands", machine(node="now", own=own(until=NOW)), ends("PreserveExpired")),
    ("another value on the Node has no such time", machine(node="now", own=own("when-failed", until=NOW)), begins()),
    ("being deleted", machine(T, node="now", granted=ASKED, drained=True), STAY),
]

FAILING: Rows = [
    ("point 10: drained first", machine(F, node="when-failed", drained=False), STAY),
    ("point 10: drained first, also with the grant in hand", machine(F, granted=AUTO, drained=False), STAY),
    ("point 10: drained first, of no pool too", machine(F, own=own(), drained=False, in_pool=False), STAY),
    ("point 5, K4, T6: when-failed on the Node: its pool is asked", machine(F, node="when-failed"), ASK),
    ("T7: when-failed of the machine's own", machine(F, own=own("when-failed")), ASK),
    ("T4: now of the machine's own, not preserved yet", machine(F, own=own()), ASK),
    ("T5: now on the Node, not preserved yet", machine(F, node="now"), ASK),
    ("annotated in the instant of the failure, its Node is missing", machine(F, node="now", node_present=False), ASK),
    ("point 5: granted", machine(F, node="when-failed", granted=ASKED), begins()),
    (
        "point 5: granted, own now --for 8h",
        machine(F, own=own(lasts=8 * HOUR), granted=ASKED),
        begins(ASKED, NOW + 8 * HOUR),
    ),
    ("granted a slot, and annotated meanwhile: asked for", machine(F, node="now", granted=AUTO), begins()),
    ("point 6, A1: nobody asked: is a slot free?", machine(F), ASK),
    ("point 6, K6, A1, A4: a slot is free", machine(F, granted=AUTO), begins(AUTO)),
    (
        "point 6: a slot's time is the machine's timeout",
        machine(F, granted=AUTO, timeout=HOUR),
        begins(AUTO, NOW + HOUR),
    ),
    ("point 6: granted on request, which is gone: a slot is another matter", machine(F, granted=ASKED), ASK),
    ("A5: false is never chosen, also with a slot", machine(F, node="false", granted=AUTO), STAY),
    ("A5: own false", machine(F, own=own("false"), granted=AUTO), STAY),
    ("T3: false on the Node is left to its pool", machine(F, node="false"), STAY),
    ("T2: false of the machine's own is left to its pool", machine(F, own=own("false")), STAY),
    ("note 3: Node false, own when-failed", machine(F, node="false", own=own("when-failed")), STAY),
    ("note 3: Node when-failed, own false", machine(F, node="when-failed", own=own("false"), granted=ASKED), begins()),
    ("K8: invalid, nobody asked before: as though it were not there", machine(F, node=TYPO), ASK),
    ("K8: invalid after when-failed", machine(F, node=TYPO, last="when-failed", granted=ASKED), begins()),
    ("K8: invalid after false", machine(F, node=TYPO, last="false", granted=AUTO), STAY),
    ("design: no VM, no slot", machine(F, vm_present=False, granted=AUTO), STAY),
    ("design: no VM, whatever was asked for", machine(F, vm_present=False, node="now", granted=ASKED), STAY),
    ("design: no VM, of no pool", machine(F, vm_present=False, own=own(), in_pool=False), STAY),
    ("design: of no pool, when-failed", machine(F, own=own("when-failed"), in_pool=False), begins()),
    ("design: of no pool, now on the Node", machine(F, node="now", in_pool=False), begins()),
    ("design: of no pool nothing is preserved on its own", machine(F, in_pool=False), STAY),
    ("design: of no pool, a stray grant", machine(F, in_pool=False, granted=AUTO), STAY),
    ("design: of no pool, false", machine(F, own=own("false"), in_pool=False), STAY),
    (
        "its time has passed before it Failed: a slot is another matter",
        machine(F, own=own(until=NOW)),
        ends("PreserveExpired"),
    ),
]

# -- preserved --------------------------------------------------------------------------------------------------------

HOLDING: Rows = [
    ("point 4: Running:Preserved until then", kept(node="now"), Stay(until=WARNING)),
    ("point 7: Running:Preserved by a slot", kept(R, AUTO), Stay(until=WARNING)),
    ("point 5: Failed:Preserved, and says until when", kept(F), HELD),
    ("T1: its expiry is in the future", kept(F, AUTO), HELD),
    ("design: through Unknown with its expiry", kept(U, node="now"), Stay(until=WARNING)),
    ("point 4, design: Failed again: drained first, with its expiry", kept(F, drained=False), Stay(until=WARNING)),
    ("K16: preserved while Running, then Failed: the same expiry, slot or no slot", kept(F, node="now"), HELD),
    ("note 7: a changed timeout moves nothing", kept(F, timeout=SECOND), HELD),
    ("a second grant moves nothing", kept(F, AUTO, granted=ASKED), HELD),
    (
        "note 3: the Node's value replaces the own one: still asked for",
        kept(F, node="now", own=own("when-failed")),
        HELD,
    ),
    (
        "now becomes when-failed while Running: still asked for",
        kept(node="when-failed", last="now"),
        Stay(until=WARNING),
    ),
    (
        "K13: the Node's value is removed, somebody's own stands",
        kept(node="", own=own(), last="now"),
        Stay(until=WARNING),
    ),
    ("K8: now is written over with an invalid value", kept(node=TYPO, last="now"), Stay(until=WARNING)),
    ("K8: a slot's, and an invalid value", kept(F, AUTO, node=TYPO), HELD),
    ("a slot's, and then asked for: the same expiry", kept(F, AUTO, node="when-failed"), KEPT),
    (
        "a slot's, and then own now --for 8h: extend is what moves an expiry",
        kept(R, AUTO, own=own(lasts=8 * HOUR)),
        KEPT,
    ),
    ("K2, K17: the Node does not carry scale-down-disabled yet", kept(node="now", protected=False), Protect()),
    ("point 6: nor that of a Failed one", kept(F, AUTO, protected=False), Protect()),
    ("note 6: somebody set it to false: back to true", kept(node="now", protected=False, warned=True), Protect()),
    ("K9: no Node, nothing to write", kept(U, node_present=False, protected=False), Stay(until=WARNING)),
    ("an hour before its end it is said", kept(now=WARNING), Warn("")),
    ("a second before that it is not", kept(now=WARNING - SECOND), Stay(until=WARNING)),
    ("said once", kept(now=WARNING, warned=True), Stay(until=LATER)),
    ("said of a Failed one", kept(F, AUTO, now=LATER - SECOND), Warn("")),
    ("said once of a Failed one", kept(F, AUTO, now=WARNING, warned=True), Stay("Preserved", "", LATER)),
    ("point 7, K11, K14: healthy again: Running:Preserved until its expiry", kept(F, healthy=True), Recover("")),
    ("point 7, diagram 2, K11: a slot's as well", kept(F, AUTO, healthy=True), Recover("")),
    (
        "healthy again in the middle of its drain: that ends first",
        kept(F, healthy=True, drained=False),
        Stay(until=WARNING),
    ),
    ("K15: not healthy: stays as it is", kept(F, healthy=False), HELD),
]

ENDING: Rows = [
    ("point 4, K7: now, its time is over: Running", kept(node="now", now=LATER), ends("PreserveExpired", "now")),
    (
        "point 5, K7, T8: when-failed, its time is over: Terminating",
        kept(F, now=LATER),
        dies("PreserveExpired", "when-failed"),
    ),
    ("point 6, T8: a slot's time is over: Terminating", kept(F, AUTO, now=LATER), dies("PreserveExpired")),
    ("point 7: healthy since, its time is over: Running", kept(R, AUTO, now=LATER), ends("PreserveExpired")),
    (
        "design: its time is over in Unknown: it ends there",
        kept(U, node="now", now=LATER),
        ends("PreserveExpired", "now"),
    ),
    ("its time is over in the drain", kept(F, drained=False, now=LATER), dies("PreserveExpired", "when-failed")),
    ("a worker was away: long over", kept(F, AUTO, now=LATER + timedelta(days=9)), dies("PreserveExpired")),
    (
        "healthy at the last moment is too late",
        kept(F, healthy=True, now=LATER),
        dies("PreserveExpired", "when-failed"),
    ),
    (
        "K19: over, and its Node is missing",
        kept(U, node="now", node_present=False, now=LATER),
        ends("PreserveExpired", "now"),
    ),
    ("point 4: over, the machine's own value goes too", kept(node="", own=own(), now=LATER), ends("PreserveExpired")),
    (
        "K8: over, an invalid value is not ours to remove",
        kept(node=TYPO, last="now", now=LATER),
        ends("PreserveExpired"),
    ),
    ("point 8, use case 4, K5: false on Running:Preserved", kept(node="false"), ends("Released")),
    ("point 8, use case 4, K5: false on Failed:Preserved", kept(F, node="false"), dies("Released")),
    ("point 8, use case 4: false on one that has a slot", kept(F, AUTO, node="false"), dies("Released")),
    ("false in Unknown:Preserved", kept(U, node="false"), ends("Released")),
    ("own false ends it, and stays", kept(node="", own=own("false")), ends("Released", keep_own=True)),
    ("own false of a Failed one", kept(F, AUTO, own=own("false")), dies("Released", keep_own=True)),
    ("false on the Node ends what own now began, for good", kept(node="false", own=own()), ends("Released")),
    ("note 3: own false, but the Node says now", kept(node="now", own=own("false")), Stay(until=WARNING)),
    ("T9, K13: the annotation was removed: Terminating", kept(F, node="", last="when-failed"), dies("Released")),
    ("K13: the annotation was removed while nobody looked: Running", kept(node="", last="now"), ends("Released")),
    ("removed, and own false stands", kept(node="", own=own("false"), last="now"), ends("Released", keep_own=True)),
    ("released: Running, and the annotation goes", kept(node="now", release=release()), ends("Released", "now")),
    ("released: Failed: Terminating", kept(F, AUTO, release=release()), dies("Released")),
    ("released in Unknown", kept(U, release=release()), ends("Released", "when-failed")),
    ("released goes before healthy again", kept(F, healthy=True, release=release()), dies("Released", "when-failed")),
    (
        "a request is released before it began",
        machine(node="when-failed", release=release()),
        ends("Released", "when-failed"),
    ),
    ("own request is released before it began", machine(P, own=own(), release=release()), ends("Released")),
    (
        "released before it began, Failed: its pool says what then",
        machine(F, node="now", granted=ASKED, release=release()),
        ends("Released", "now"),
    ),
    (
        "released where nothing is preserved: it does not hang over a later one",
        machine(release=release()),
        ends("Released"),
    ),
    (
        "field case P87: the VM of one that Failed is gone: the slot is free",
        kept(F, AUTO, vm_present=False),
        dies("VMGone"),
    ),
    ("field case P87: of one that was asked for", kept(F, node="now", vm_present=False), dies("VMGone", "now")),
    (
        "of no pool: it stays Failed for its owner, as any",
        kept(F, node="now", in_pool=False, vm_present=False),
        ends("VMGone", "now"),
    ),
    ("gone while Unknown is not believed yet", kept(U, node="now", vm_present=False), Stay(until=WARNING)),
    ("note 4, A6: a lowered maximum takes its slot", kept(F, AUTO, release=slot_taken()), dies("SlotTaken")),
    ("note 4: in its drain too", kept(F, AUTO, drained=False, release=slot_taken()), dies("SlotTaken")),
    ("note 4: asked for in that instant: kept", kept(F, AUTO, node="now", release=slot_taken()), KEPT),
    ("note 4: well again in that instant: it has none", kept(R, AUTO, release=slot_taken()), Stay(until=WARNING)),
    ("being deleted: nothing ends twice", kept(T, now=LATER, release=release()), STAY),
]


@table(BEGINNING)
def test_it_begins(given: ObservedMachine, expected: Decision) -> None:
    assert bare(decide(given)) == expected


@table(FAILING)
def test_one_that_failed(given: ObservedMachine, expected: Decision) -> None:
    assert bare(decide(given)) == expected


@table(HOLDING)
def test_it_is_held(given: ObservedMachine, expected: Decision) -> None:
    assert bare(decide(given)) == expected


@table(ENDING)
def test_it_ends(given: ObservedMachine, expected: Decision) -> None:
    assert bare(decide(given)) == expected


def test_rows_have_names_of_their_own() -> None:
    names = [name for rows in (BEGINNING, FAILING, HOLDING, ENDING) for name, *_ in rows]
    assert len(set(names)) == len(names) > 100

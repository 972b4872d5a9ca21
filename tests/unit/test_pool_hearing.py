"""What a report makes of a member and of the pace (planners/fleet/hearing.py), and which members are told next of a
changed template."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pools.planner import EPOCH, member, report, wanted

from planners.fleet.hearing import first_heard, hear, pace_after
from planners.fleet.pace import NEVER_JOIN
from planners.fleet.template import PATIENCE, busy, next_look, pending, to_tell
from resources.errors import MISSING_CREDENTIALS, ErrorClass
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.membership import CreateFailure, MemberReport
from resources.fleet.revision import Pace, Revision
from resources.machine.manifest import MachineTemplate
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.names import PRIORITY_ANNOTATION
from resources.timings import Timings

LATER = EPOCH + timedelta(minutes=5)
U, FAILED = Phase.UNKNOWN, Phase.FAILED


def revision(counter: int, image: int = 1, priority: int | None = None) -> Revision:
    made = wanted(image)
    annotations = {PRIORITY_ANNOTATION: str(priority)} if priority is not None else {}
    template = made.template.model_dump(by_alias=True) | {"metadata": {"annotations": annotations}}
    return Revision(
        counter=counter,
        machine_class=made.machine_class,
        hash=made.hash,
        template=MachineTemplate.model_validate(template),
        created=EPOCH,
    )


# -- the member -------------------------------------------------------------------------------------------------------


def test_a_report_is_a_whole_snapshot() -> None:
    said = report(
        Phase.FAILED,
        trouble=Trouble.HEALTH,
        drained=True,
        preserved_until=LATER,
        preserved_by=PreservedBy.AUTO,
        template=4,
        seq=9,
        contradicted=True,
    )
    heard = hear(member(), said, [revision(1)])
    assert (heard.since, heard.phase, heard.vm, heard.trouble) == (LATER, Phase.FAILED, Vm.LIVES, Trouble.HEALTH)
    assert (heard.drained, heard.template, heard.seq, heard.contradicted) == (True, 4, 9, True)
    assert (heard.preserved_until, heard.preserved_by) == (LATER, PreservedBy.AUTO)
    after = hear(heard, report(seq=10), [revision(1)])
    assert (after.trouble, after.drained, after.preserved_until, after.contradicted) == (
        Trouble.NONE,
        False,
        None,
        False,
    )


@pytest.mark.parametrize(
    "own",
    [{"deleting": True}, {"node_marked": True}, {"revision": 7}, {"created": EPOCH}],
    ids=lambda own: next(iter(own)),
)
def test_what_the_pool_alone_decides_stays(own: dict[str, Any]) -> None:
    former = member()._replace(**own)
    heard = hear(former, report(), [revision(1)])
    assert {k: getattr(heard, k) for k in own} == own


def test_a_mark_for_deletion_stays_whoever_set_it() -> None:
    assert hear(member(marked=EPOCH), report(), []).marked == EPOCH
    assert hear(member(), report(marked=LATER), []).marked == LATER


@pytest.mark.parametrize(
    ("said", "of_the_template", "priority"),
    [(1, 5, 1), (None, 5, 5), (None, None, 3), (0, None, 0)],
    ids=["its Node's", "its template's", "neither's", "lowest"],
)
def test_its_priority(said: int | None, of_the_template: int | None, priority: int) -> None:
    revisions = [revision(1, priority=of_the_template)]
    assert hear(member(1), report(priority=said), revisions).priority == priority


def test_of_a_revision_that_is_forgotten_the_priority_stays() -> None:
    assert hear(member(1, priority=2), report(), [revision(2, priority=9)]).priority == 2


P = Permit


@pytest.mark.parametrize(
    ("had", "phase", "asks", "has"),
    [
        (P.NONE, Phase.UNKNOWN, True, P.ASKED),
        (P.ASKED, Phase.UNKNOWN, True, P.ASKED),
        (P.GRANTED, Phase.UNKNOWN, True, P.GRANTED),  # the permit is on its way
        (P.GRANTED, Phase.FAILED, True, P.GRANTED),  # a repair in flight until its VM is gone
        (P.GRANTED, Phase.FAILED, False, P.GRANTED),
        (P.ASKED, Phase.FAILED, False, P.NONE),  # it Failed for another reason
        (P.GRANTED, Phase.UNKNOWN, False, P.NONE),  # it has more time now
        (P.GRANTED, Phase.RUNNING, False, P.NONE),  # it is well again
        (P.ASKED, Phase.RUNNING, False, P.NONE),
    ],
)
def test_its_permit(had: Permit, phase: Phase, asks: bool, has: Permit) -> None:
    assert hear(member(permit=had), report(phase, asks=asks), []).permit is has


@pytest.mark.parametrize(
    ("image", "counter"), [(1, 3), (2, 2), (9, 0)], ids=["the newest that is alike", "an older one", "of none"]
)
def test_one_that_was_there_before_is_of_the_revision_that_is_made_alike(image: int, counter: int) -> None:
    said = report(machine_class="c1", hash=wanted(image).hash, seq=5)
    met = first_heard(said, [revision(1), revision(2, image=2), revision(3)])
    assert (met.revision, met.phase, met.created, met.seq) == (counter, Phase.RUNNING, LATER, 5)
    elsewhere = said.model_copy(update={"machine_class": "c2"})
    assert first_heard(elsewhere, [revision(1)]).revision == 0


# -- the pace ---------------------------------------------------------------------------------------------------------

UNBORN = Member(1, EPOCH, EPOCH)
PENDING = UNBORN._replace(vm=Vm.LIVES)
NO_CAPACITY = CreateFailure(error_class=ErrorClass.CAPACITY, message="none left")


def after(
    former: Member,
    said: MemberReport,
    speed: Pace | None = None,
    timings: Timings | None = None,
    replicas: int = 3,
    braked: bool = True,
) -> Pace:
    heard = hear(former, said, [revision(1)])
    speed = speed or Pace(revision=1)
    return pace_after(speed, former, heard, said, replicas, timings or Timings(), LATER, 0, braked)


def test_each_birth_widens_the_window_once() -> None:
    assert after(UNBORN, report(Phase.PENDING)).window == 2
    assert after(PENDING, report(Phase.PENDING)).window == 1
    assert after(UNBORN, report(Phase.PENDING, vm=Vm.UNBORN)).window == 1
    assert after(UNBORN, report(Phase.FAILED, vm=Vm.GONE)).window == 1


def test_one_that_is_running_forgives_what_the_cloud_refused_and_no_death() -> None:
    refused = Pace(revision=1, backoffs=3)
    assert after(PENDING, report(), refused) == Pace(revision=1)
    assert after(member(phase=Phase.UNKNOWN), report(), refused) == refused, "well again"
    died = Pace(revision=1, joins_failed=2, backoffs=3, newest=EPOCH)
    assert after(PENDING, report(), died) == died
    suspect = Pace(revision=1, joins_failed=3, suspect=True, newest=EPOCH)
    assert after(PENDING, report(), suspect).window == 2
    assert after(UNBORN, report(Phase.PENDING), suspect).window == 1


def test_a_run_from_before_there_were_brakes_decides_as_it_did() -> None:
    died = Pace(revision=1, joins_failed=2, backoffs=3)
    assert after(PENDING, report(), died, braked=False) == Pace(revision=1)
    gone = report(Phase.UNKNOWN, vm=Vm.GONE, trouble=Trouble.GONE)
    assert after(member(), gone, died, braked=False) == died
    third = after(PENDING, report(Phase.FAILED, trouble=Trouble.JOIN), died, braked=False)
    assert (third.reason, third.suspect) == (NEVER_JOIN, False)


def test_a_create_call_that_failed_stops_the_pool_for_a_while() -> None:
    said = report(Phase.CRASH_LOOP_BACK_OFF, vm=Vm.UNBORN, failure=NO_CAPACITY)
    speed = after(UNBORN, said, Pace(revision=1, window=8))
    assert (speed.window, speed.backoffs, speed.reason) == (1, 1, "OutOfCapacity")
    assert speed.message == "m1: none left"
    assert speed.until == LATER + timedelta(minutes=10)
    assert after(UNBORN, said, speed) == speed  # the next one of the same window
    quick = Timings(retry={ErrorClass.CAPACITY: timedelta(seconds=1)})
    assert after(UNBORN, said, timings=quick).until == LATER + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (MISSING_CREDENTIALS, MISSING_CREDENTIALS),
        pytest.param("", "NotAuthorized", id="an older worker's machine"),
        pytest.param(NEVER_JOIN, "NotAuthorized", id="not a machine's to say"),
    ],
)
def test_the_pool_waits_for_the_reason_that_its_machine_gives(said: str, kept: str) -> None:
    failure = CreateFailure(error_class=ErrorClass.AUTH, message="Secret a/b does not exist", reason=said)
    heard = report(Phase.CRASH_LOOP_BACK_OFF, vm=Vm.UNBORN, failure=failure)
    assert after(UNBORN, heard).reason == kept


@pytest.mark.parametrize("error", [ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.CONFLICT])
def test_what_passes_stops_nobody(error: ErrorClass) -> None:
    failure = CreateFailure(error_class=error, message="later")
    said = report(Phase.CRASH_LOOP_BACK_OFF, vm=Vm.UNBORN, failure=failure)
    assert after(UNBORN, said) == Pace(revision=1)


def test_a_failure_is_none_of_one_that_leaves() -> None:
    said = report(Phase.TERMINATING, vm=Vm.UNBORN, failure=NO_CAPACITY)
    assert after(UNBORN, said) == Pace(revision=1)


def test_the_third_in_a_row_that_never_joins_stops_the_pool() -> None:
    said = report(Phase.FAILED, trouble=Trouble.JOIN, message="no Node came")
    speed = Pace(revision=1)
    for failed in (1, 2):
        speed = after(PENDING, said, speed)
        assert (speed.joins_failed, speed.until) == (failed, None)
    speed = after(PENDING, said, speed)
    assert (speed.reason, speed.until) == (NEVER_JOIN, LATER + timedelta(minutes=5))
    assert speed.message == "3 machines in a row never joined; the last one: m1: no Node came"
    known = PENDING._replace(phase=Phase.FAILED, trouble=Trouble.JOIN)
    assert after(known, said, speed) == speed  # said once more


RAN = {"phase": Phase.RUNNING, "age": 3600}
DEATHS: list[tuple[str, Member, dict[str, Any], int]] = [
    ("never Running", PENDING, {"phase": FAILED, "trouble": Trouble.JOIN}, 1),
    ("its VM gone before", PENDING, {"phase": Phase.PENDING, "trouble": Trouble.JOIN, "vm": Vm.GONE}, 1),
    ("as an older machine says that", PENDING, {"phase": FAILED, "trouble": Trouble.GONE, "vm": Vm.GONE}, 1),
    ("gone after five minutes of Running", member(), {"phase": U, "trouble": Trouble.GONE, "vm": Vm.GONE}, 1),
    ("ill after as long", member(phase=U), {"phase": FAILED, "trouble": Trouble.HEALTH}, 1),
    ("gone after an hour", member(**RAN), {"phase": U, "trouble": Trouble.GONE, "vm": Vm.GONE}, 0),
    ("the same, before its phase says so", member(**RAN), {"trouble": Trouble.GONE, "since": member(**RAN).since}, 0),
    ("ill after an hour", member(phase=U, lasted=True), {"phase": FAILED, "trouble": Trouble.HEALTH}, 0),
    ("no VM to be had", UNBORN, {"phase": FAILED, "trouble": Trouble.CREATE, "vm": Vm.UNBORN}, 0),
    (
        "no answer, so there may have been VMs",
        UNBORN,
        {"phase": FAILED, "trouble": Trouble.CREATE, "vm": Vm.UNBORN, "unanswered": True},
        1,
    ),
    ("on its way out", member(deleting=True), {"phase": U, "trouble": Trouble.GONE, "vm": Vm.GONE}, 0),
    ("known before", member(phase=U, trouble=Trouble.GONE), {"phase": FAILED, "trouble": Trouble.GONE}, 0),
    ("merely ill", member(), {"phase": U}, 0),
]


@pytest.mark.parametrize(("former", "said", "count"), [r[1:] for r in DEATHS], ids=[r[0] for r in DEATHS])
def test_a_failure_counts_by_when_in_its_life_it_struck(former: Member, said: dict[str, Any], count: int) -> None:
    assert after(former, report(**said)).joins_failed == count


@pytest.mark.parametrize(
    ("former", "said", "lasted"),
    [
        (member(age=299), {"phase": U}, False),
        (member(age=300), {"phase": U}, True),
        (member(age=300), {}, False),  # it says so by `since` as long as it is Running
        (member(phase=U, lasted=True), {"phase": FAILED}, True),
    ],
    ids=["not for long enough", "for ten minutes", "Running still", "once and for all"],
)
def test_one_that_has_lasted(former: Member, said: dict[str, Any], lasted: bool) -> None:
    assert hear(former, report(**said), []).lasted is lasted


def test_of_a_large_pool_one_in_twenty_may_fail() -> None:
    said, speed = report(FAILED, trouble=Trouble.JOIN), Pace(revision=1)
    for _ in range(9):
        speed = after(PENDING, said, speed, replicas=200)
    assert speed.until is None
    assert after(PENDING, said, speed, replicas=200).reason == NEVER_JOIN


def test_a_repair_of_one_that_was_gone_lasts_until_it_has_ended() -> None:
    """Once deleted, it no longer says that its VM was gone before."""
    going = member(phase=U, vm=Vm.GONE, trouble=Trouble.GONE, permit=Permit.GRANTED, deleting=True)
    heard = hear(going, report(Phase.TERMINATING, vm=Vm.GONE), [])
    assert (heard.trouble, heard.permit) == (Trouble.GONE, Permit.GRANTED)
    ill = going._replace(vm=Vm.LIVES, trouble=Trouble.HEALTH, phase=FAILED)
    assert hear(ill, report(Phase.TERMINATING, vm=Vm.GONE, trouble=Trouble.HEALTH), []).trouble is Trouble.HEALTH
    assert hear(member(phase=U, trouble=Trouble.GONE), report(), []).trouble is Trouble.NONE, "adopted"


# -- templates --------------------------------------------------------------------------------------------------------


def at(**generations: int) -> dict[str, Member]:
    return {name: member(template=generation) for name, generation in generations.items()}


def test_who_has_not_taken_it() -> None:
    members = at(a=2, b=1, c=1, d=1) | {
        "failed": member(phase=Phase.FAILED, template=1),
        "leaving": member(deleting=True, template=1),
        "going": member(phase=Phase.TERMINATING, template=1),
        "ill": member(phase=Phase.UNKNOWN, template=1),
    }
    assert pending(members, 2) == ["b", "c", "d", "ill"]
    assert pending(members, 1) == []


AGO = {"just now": timedelta(0), "almost too long": PATIENCE - timedelta(seconds=1), "too long": PATIENCE}


@pytest.mark.parametrize(
    ("told", "limit", "next_ones"),
    [
        ({}, 2, ["a", "b"]),
        ({"a": "just now"}, 2, ["b"]),
        ({"a": "just now", "b": "almost too long"}, 2, []),
        ({"a": "too long"}, 1, ["b"]),  # those that were never told go first
        ({"a": "too long", "b": "just now"}, 2, ["c"]),
        ({"a": "too long", "b": "just now"}, 1, []),
        ({"a": "just now", "b": "too long", "c": "too long"}, 2, ["b"]),
        ({}, 9, ["a", "b", "c"]),
    ],
)
def test_who_is_told_next(told: dict[str, str], limit: int, next_ones: list[str]) -> None:
    times = {name: LATER - AGO[ago] for name, ago in told.items()}
    assert to_tell(at(a=1, b=1, c=1), times, {}, 2, limit, LATER) == next_ones


@pytest.mark.parametrize(
    ("superseded", "told", "limit", "next_ones"),
    [
        ({"b": "just now"}, {}, 1, ["b"]),  # the newest wins, in the place that it has
        ({"b": "just now"}, {}, 2, ["b", "a"]),
        ({"b": "just now", "c": "almost too long"}, {}, 1, ["b"]),  # the limit was lowered
        ({"b": "too long"}, {}, 1, ["a"]),
        ({"b": "too long"}, {"a": "just now"}, 2, ["b"]),  # silent about the older: never told of this one
        ({"b": "just now"}, {"a": "just now"}, 2, ["b"]),
    ],
)
def test_those_at_work_on_an_older_generation_keep_their_places(
    superseded: dict[str, str], told: dict[str, str], limit: int, next_ones: list[str]
) -> None:
    earlier, times = ({n: LATER - AGO[ago] for n, ago in some.items()} for some in (superseded, told))
    assert to_tell(at(a=1, b=1, c=1), times, earlier, 2, limit, LATER) == next_ones


@pytest.mark.parametrize(
    ("told", "count"),
    [({}, 3), ({"a": "almost too long"}, 3), ({"a": "too long"}, 2), (dict.fromkeys("abc", "too long"), 0)],
    ids=["nobody is told", "at work", "one is silent", "all are silent"],
)
def test_how_many_another_pool_waits_for(told: dict[str, str], count: int) -> None:
    times = {name: LATER - AGO[ago] for name, ago in told.items()}
    assert busy(at(a=1, b=1, c=1, d=2), times, 2, LATER) == count


def test_the_longest_silent_is_told_again_first() -> None:
    told = {"a": LATER - PATIENCE, "b": LATER - 3 * PATIENCE, "c": LATER - 2 * PATIENCE}
    assert to_tell(at(a=1, b=1, c=1), told, {}, 2, 2, LATER) == ["b", "c"]


def test_the_next_look_is_always_to_come() -> None:
    """One member's time is over while another has its place: a look in the past would never let the pool wait."""
    told = {"a": LATER - PATIENCE, "b": LATER - timedelta(seconds=30)}
    assert next_look(at(a=1, b=1), told, 2, LATER) == LATER - timedelta(seconds=30) + PATIENCE
    assert next_look(at(a=1), {"a": LATER - PATIENCE}, 2, LATER) is None
    assert next_look(at(a=2, b=1), {"a": LATER}, 2, LATER) is None


# -- preservation -----------------------------------------------------------------------------------------------------

AUTO, ASKED, NOBODY = PreservedBy.AUTO, PreservedBy.ASKED, PreservedBy.NOBODY
PRESERVED: dict[str, Any] = {"preserved_until": LATER, "preserved_by": AUTO}


def test_what_shall_become_of_it_is_what_it_says_last() -> None:
    asks = hear(member(), report(FAILED, drained=True, keep=PreserveWish.SLOT), [])
    assert asks.keep is PreserveWish.SLOT
    assert hear(asks, report(FAILED, drained=True, keep=PreserveWish.ASKED), []).keep is PreserveWish.ASKED
    assert hear(asks, report(FAILED, **PRESERVED), []).keep is PreserveWish.UNDECIDED


@pytest.mark.parametrize(
    ("granted", "phase", "said", "stays"),
    [
        (AUTO, FAILED, {"keep": PreserveWish.SLOT}, AUTO),  # the pool's word is on its way
        (AUTO, FAILED, {"keep": PreserveWish.ASKED}, AUTO),  # somebody asked meanwhile: one slot, not two
        (ASKED, FAILED, {"keep": PreserveWish.ASKED}, ASKED),
        (AUTO, FAILED, {}, AUTO),  # not drained, as an older worker said it
        (ASKED, FAILED, {"keep": PreserveWish.SLOT}, NOBODY),  # withdrawn: a slot, if one is free
        (AUTO, FAILED, {"keep": PreserveWish.NEVER}, NOBODY),  # `false`
        (AUTO, FAILED, PRESERVED, NOBODY),
        (AUTO, FAILED, {"keep": PreserveWish.SLOT, "vm": Vm.GONE}, NOBODY),
        (AUTO, Phase.RUNNING, {}, NOBODY),
        (AUTO, Phase.TERMINATING, {}, NOBODY),
        (NOBODY, FAILED, {"keep": PreserveWish.SLOT}, NOBODY),
    ],
)
def test_the_pools_word_that_it_is_preserved(
    granted: PreservedBy, phase: Phase, said: dict[str, Any], stays: PreservedBy
) -> None:
    assert hear(member(phase=FAILED, granted=granted), report(phase, **said), []).granted is stays


@pytest.mark.parametrize("had", [Released.TAKEN, Released.TOLD])
@pytest.mark.parametrize(
    ("phase", "said", "stays"),
    [
        (FAILED, PRESERVED, True),
        (FAILED, {**PRESERVED, "preserved_by": ASKED}, False),  # somebody asked for it meanwhile
        (FAILED, {"keep": PreserveWish.SLOT}, False),  # its time was over
        (Phase.RUNNING, PRESERVED, False),  # well again: no slot any longer
        (Phase.TERMINATING, {}, False),
    ],
    ids=["preserved", "asked for", "over", "well again", "it goes"],
)
def test_a_slot_that_was_taken(had: Released, phase: Phase, said: dict[str, Any], stays: bool) -> None:
    former = member(phase=FAILED, **PRESERVED, released=had)
    assert hear(former, report(phase, **said), []).released is (had if stays else Released.NO)


def test_a_slot_that_was_taken_before_it_was_reported_stays_so() -> None:
    heard = hear(member(phase=FAILED, granted=AUTO, released=Released.TAKEN), report(FAILED, **PRESERVED), [])
    assert (heard.granted, heard.released) == (NOBODY, Released.TAKEN)


REFUSALS: list[tuple[str, Phase, dict[str, Any], bool]] = [
    ("it is asked for", FAILED, {"keep": PreserveWish.ASKED}, True),
    ("it is preserved", FAILED, PRESERVED, True),
    ("it is preserved and well again", Phase.RUNNING, PRESERVED, True),
    ("on its way when the pool decided", FAILED, {"keep": PreserveWish.SLOT}, False),
    ("false", FAILED, {"keep": PreserveWish.NEVER}, False),
    ("it goes", Phase.TERMINATING, {"keep": PreserveWish.ASKED}, False),
    ("adopted: its new life knows of no repair", Phase.PENDING, {}, True),
    ("adopted, and Running", Phase.RUNNING, {}, True),
    ("adopted, and ill again", Phase.UNKNOWN, {}, True),
]


@pytest.mark.parametrize(("phase", "said", "back"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_a_repair_that_it_refuses(phase: Phase, said: dict[str, Any], back: bool) -> None:
    heard = hear(member(phase=FAILED, deleting=True, repair=True), report(phase, **said), [])
    assert (heard.deleting, heard.repair) == (not back, not back)


def test_one_that_was_terminating_and_was_adopted_is_judged_anew() -> None:
    """It had taken the deletion in the life before."""
    going = member(phase=Phase.TERMINATING, deleting=True, repair=True, permit=Permit.GRANTED)
    heard = hear(going, report(Phase.PENDING), [])
    assert (heard.leaving, heard.repair, heard.permit) == (False, False, Permit.NONE)


@pytest.mark.parametrize(("phase", "said"), [r[1:3] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_any_other_deletion_is_never_taken_back(phase: Phase, said: dict[str, Any]) -> None:
    assert hear(member(phase=FAILED, deleting=True), report(phase, **said), []).deleting


def test_one_that_is_preserved_needs_no_permit_any_more() -> None:
    former = member(phase=FAILED, permit=Permit.GRANTED)
    assert hear(former, report(FAILED, asks=True, **PRESERVED), []).permit is Permit.GRANTED, "it drains"
    assert hear(former, report(FAILED, asks=True, drained=True, **PRESERVED), []).permit is Permit.NONE

"""planners/pool/gates: what holds up a rollout and hot updates though the machines would allow it, and what it does
not hold up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pools.planner import EPOCH, World, at, created, deleted, drained, look, member, pool, spec, waits, wanted

from planners.fleet import pace
from planners.fleet.revisions import revise
from planners.fleet.steps import Create, MarkNodes, Plan
from planners.pool import brake, gates, progress
from planners.pool.view import Gates, ObservedPool, UpdateTurn, View
from resources.fleet.member import Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase
from resources.maintenance import Calendar, Freeze, Opening, Window, coming, is_open
from resources.pool.manifest import MachineDeploymentSpec, judge_updates_after
from resources.pool.state import Consent, Gate, PoolState, Predecessor, Rollout

HOUR = timedelta(hours=1)
NIGHTLY = {"windows": [{"begin": "22:00", "end": "04:00"}]}
WINDOWS = [Window(begin="22:00", end="04:00")]
SHUT = Gates(calendar=Calendar(windows=WINDOWS, openings=coming(WINDOWS, EPOCH + 5 * HOUR)))
"""At noon of EPOCH's day."""
NOON = EPOCH + 12 * HOUR
APPROVAL = {"required": True, "timeout": "24h"}
AFTER = {"pool": "p-a", "class": "c-2"}
ASKED = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, consent=Consent(asked=EPOCH))


REJECTED = Consent(asked=EPOCH, rejected=EPOCH, by="ann")
EXPIRED = Consent(asked=EPOCH, expired=EPOCH)


def rollout(**more: Any) -> Rollout:
    return Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, **more)


def stands(**more: Any) -> Gates:
    return Gates(before=Predecessor(**{"revision": 2, "pool": "p-a", "class_": "c-2", **more}))


def words(made: Plan, reason: str) -> str:
    (found,) = [w.message for w in made.waits if w.reason == reason]
    return found


# -- the order of updates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "first"),
    [
        ({}, True),
        ({"turn": 2}, True),
        ({"turn": 3}, False),
        ({"annotations": {}}, False),
        ({"deleted": True}, False),
        ({"template": 2}, False),
    ],
    ids=["not asked yet", "it was its turn before", "its turn", "none goes first", "being deleted", "all have it"],
)
def test_machines_of_another_pool_take_a_changed_template_first(state: dict[str, Any], first: bool) -> None:
    members = {f"m{n}": member(template=2) for n in range(2)}
    given = {"template": 3, "annotations": {"hostler.io/updates-after": "p-a"}, "members": members, **state}
    found = gates.turn(PoolState(name="p-b", spec=spec(2), **given))
    assert found == (UpdateTurn("p-a", 2) if first else None)
    made = look(pool(2), spec(2), NOON, revision=1, gates=Gates(turn=found))
    assert waits(made) == ({"UpdatesAfterPool"} if first else set())


@pytest.mark.parametrize(("named", "why"), [("p-b", "cannot wait for itself"), ("P A", "not the name of a pool")])
def test_a_pool_that_it_cannot_come_after_is_refused(named: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        judge_updates_after({"hostler.io/updates-after": named}, "p-b")


# -- what is held up --------------------------------------------------------------------------------------------------

HOLDS: list[tuple[str, dict[str, Any], dict[str, Any], set[str]]] = [
    ("nothing", {}, {}, set()),
    ("outside the windows", {"maintenance": NIGHTLY}, {"gates": SHUT}, {"MaintenanceWindow"}),
    ("windows not worked out", {"maintenance": NIGHTLY}, {"gates": Gates()}, {"MaintenanceWindow"}),
    (
        "windows of a former manifest",
        {"maintenance": NIGHTLY},
        {"gates": Gates(calendar=Calendar(windows=[], openings=[Opening(begin=EPOCH, end=at(10**6))]))},
        {"MaintenanceWindow"},
    ),
    (
        "an unknown zone",
        {"maintenance": NIGHTLY},
        {"gates": Gates(calendar=Calendar(windows=WINDOWS, problem="no zone"))},
        {"MaintenanceWindow"},
    ),
    (
        "opened by a person",
        {"maintenance": NIGHTLY},
        {"gates": Gates(calendar=SHUT.calendar, opened=Opening(begin=NOON - HOUR, end=NOON + HOUR))},
        set(),
    ),
    (
        "a person's window is over",
        {"maintenance": NIGHTLY},
        {"gates": Gates(calendar=SHUT.calendar, opened=Opening(begin=NOON - 2 * HOUR, end=NOON))},
        {"MaintenanceWindow"},
    ),
    ("no windows any longer", {}, {"gates": SHUT}, set()),
    ("frozen", {}, {"gates": Gates(freezes=(Freeze(time=EPOCH),))}, {"Frozen"}),
    ("a freeze that is over", {}, {"gates": Gates(freezes=(Freeze(time=EPOCH, until=NOON),))}, set()),
    (
        "frozen in a window that a person has opened",
        {"maintenance": NIGHTLY},
        {"gates": Gates(opened=Opening(begin=EPOCH, end=at(10**6)), freezes=(Freeze(time=EPOCH),))},
        {"Frozen"},
    ),
    ("to be approved", {"approval": APPROVAL}, {"rollout": ASKED}, {"Approval"}),
    (
        "approved",
        {"approval": APPROVAL},
        {"rollout": rollout(consent=Consent(asked=EPOCH, given=EPOCH, by="ann"))},
        set(),
    ),
    ("approval no longer required", {}, {"rollout": ASKED}, set()),
    ("approval required since the rollout began", {"approval": APPROVAL}, {"rollout": rollout()}, set()),
    ("after a pool that is not asked yet", {"rollsAfter": AFTER}, {}, {"AfterPool"}),
    ("after a pool that rolls", {"rollsAfter": AFTER}, {"gates": stands(message="it waits")}, {"AfterPool"}),
    ("after a pool that is rolled out", {"rollsAfter": AFTER}, {"gates": stands(complete=True)}, set()),
    ("after a pool that is gone", {"rollsAfter": AFTER}, {"gates": stands(gone=True)}, set()),
    (
        "an answer for a former revision",
        {"rollsAfter": AFTER},
        {"gates": stands(complete=True, revision=1)},
        {"AfterPool"},
    ),
    (
        "an answer for another class",
        {"rollsAfter": AFTER},
        {"gates": stands(complete=True, class_="c-1")},
        {"AfterPool"},
    ),
    ("not after it, by a person's word", {"rollsAfter": AFTER}, {"rollout": rollout(unordered=True)}, set()),
    (
        "all at once",
        {"rollsAfter": AFTER, "approval": APPROVAL, "maintenance": NIGHTLY},
        {"rollout": ASKED, "gates": SHUT},
        {"AfterPool", "Approval", "MaintenanceWindow"},
    ),
    ("paused is said alone", {"paused": True, "maintenance": NIGHTLY}, {"gates": SHUT}, {"RolloutPaused"}),
]


@pytest.mark.parametrize(("given", "seen", "held"), [r[1:] for r in HOLDS], ids=[r[0] for r in HOLDS])
def test_what_holds_up_a_rollout(given: dict[str, Any], seen: dict[str, Any], held: set[str]) -> None:
    """No new machine, no old one deleted, no mark, no clock; the wait is said. Without one, all of that."""
    seen = {"rollout": rollout(), **seen}
    made = look(pool(2), spec(2, progressDeadlineSeconds=600, **given), NOON, **seen)
    marks = [s for s in made.steps if isinstance(s, MarkNodes)]
    assert waits(made) & {*(w for r in HOLDS for w in r[3])} == held
    assert (created(made), bool(marks)) == ((0, False) if held else (1, True))
    assert not made.complete


@pytest.mark.parametrize(("given", "seen", "held"), [r[1:] for r in HOLDS if r[3]], ids=[r[0] for r in HOLDS if r[3]])
def test_what_it_does_not_hold_up(given: dict[str, Any], seen: dict[str, Any], held: set[str]) -> None:
    """Missing machines are made, failed ones replaced, marked ones deleted, and what is too much goes."""
    seen = {"rollout": rollout(), **seen}
    lost = pool(3) | {"failed": drained(), "marked": member(1, marked=EPOCH)}
    made = look(lost, spec(5, **given), NOON, **seen)
    assert set(deleted(made)) == {"failed", "marked"}
    assert created(look(pool(2), spec(3, **given), NOON, **seen)) == 1
    assert len(deleted(look(pool(4), spec(2, **given), NOON, **seen), "ScaledDown")) == 1, "all but the surge"


def test_the_words_say_until_when_and_whose() -> None:
    held = look(pool(2), spec(2, maintenance=NIGHTLY), NOON, gates=SHUT)
    assert "next window begins at 2026-01-01 22:00:00 UTC (daily 22:00-04:00 UTC)" in words(held, "MaintenanceWindow")
    freeze = Freeze(time=EPOCH, until=NOON + HOUR, requested_by="ann", reason="sale")
    frozen = look(pool(2), spec(2), NOON, gates=Gates(freezes=(freeze,)))
    assert "since 2026-01-01 00:00:00 UTC until 2026-01-01 13:00:00 UTC by ann: sale" in words(frozen, "Frozen")
    asked = look(pool(2), spec(2, approval=APPROVAL), NOON, rollout=ASKED)
    assert "aborted at 2026-01-02 00:00:00 UTC" in words(asked, "Approval")
    behind = look(pool(2), spec(2, rollsAfter=AFTER), NOON, gates=stands(message="it waits by Canary"))
    assert words(behind, "AfterPool") == (
        "Pool p-a is to be rolled out with class c-2 first (rollsAfter): it waits by Canary"
    )


# -- when it is looked again ------------------------------------------------------------------------------------------


def test_it_looks_again_when_something_opens_or_ends() -> None:
    freeze = Freeze(time=EPOCH, until=NOON + HOUR)
    for given, seen, expected in (
        ({"maintenance": NIGHTLY}, {"gates": SHUT}, EPOCH + 22 * HOUR),
        ({}, {"gates": Gates(freezes=(freeze,))}, NOON + HOUR),
        ({"approval": APPROVAL}, {"rollout": ASKED}, EPOCH + 24 * HOUR),
        ({"approval": APPROVAL, "maintenance": NIGHTLY}, {"rollout": ASKED, "gates": SHUT}, EPOCH + 22 * HOUR),
        ({}, {}, None),
    ):
        assert look(pool(2), spec(2, **given), NOON, **{"rollout": rollout(), **seen}).next_look == expected, given
    idle = look(pool(0, 2), spec(2, maintenance=NIGHTLY), NOON, gates=SHUT)
    assert (idle.next_look, idle.waits, idle.complete) == (None, (), True), "no timer where nothing waits"


def test_a_hot_update_waits_and_says_so() -> None:
    behind = Gates(calendar=SHUT.calendar, updates=2)
    made = look(pool(0, 2), spec(2, maintenance=NIGHTLY), NOON, gates=behind)
    assert "a hot update of 2 machines waits" in words(made, "MaintenanceWindow")
    assert made.next_look == EPOCH + 22 * HOUR
    assert made.complete


def test_two_weeks_of_windows() -> None:
    """Every 20 minutes of two weeks in which clocks go forward: a step begins at no other time than in a window; what
    was worked out runs out, and is worked out anew."""
    settings = spec(5, maintenance={"windows": [{"begin": "22:00", "end": "04:00", "timezone": "Europe/Berlin"}]})
    windows, old = settings.maintenance.windows, pool(5)
    seen, now, worked_out, opened = Gates(), datetime(2026, 3, 26, 12, tzinfo=UTC), 0, 0
    end = now + timedelta(days=14)
    while now < end:
        if gates.to_work_out(settings, seen, now):
            seen = Gates(calendar=Calendar(windows=windows, openings=coming(windows, now)))
            worked_out += 1
        made = look(old, settings, now, rollout=rollout(), gates=seen)
        assert bool(made.steps) == is_open(coming(windows, now, 1), now)
        assert bool(made.steps) != ("MaintenanceWindow" in waits(made))
        opened += bool(made.steps)
        now += timedelta(minutes=20)
    assert worked_out == 2
    assert opened == 3 * (14 * 6 - 1), "one night is an hour shorter"


# -- approval ---------------------------------------------------------------------------------------------------------


def followed(story: Rollout | None, now: datetime, back: bool = False, **given: Any) -> Rollout:
    found = progress.follow(ObservedPool(pool(2), 2, story, back=back), spec(2, **given), now)
    assert found
    return found


def test_a_new_rollout_asks_and_going_back_does_not() -> None:
    assert followed(None, NOON, approval=APPROVAL).consent == Consent(asked=NOON)
    assert followed(None, NOON, back=True, approval=APPROVAL).consent is None
    assert followed(None, NOON).consent is None
    former = rollout(consent=Consent(asked=EPOCH, given=EPOCH)).model_copy(update={"revision": 1})
    assert followed(former, NOON, approval=APPROVAL).consent == Consent(asked=NOON), "approval is for one revision"


def test_nobody_approves_it_in_time() -> None:
    end = EPOCH + 24 * HOUR
    assert followed(ASKED, end - timedelta(seconds=1), approval=APPROVAL).gate is Gate.OPEN
    aborted = followed(ASKED, end, approval=APPROVAL)
    assert aborted.gate is Gate.ABORTED
    assert followed(ASKED, end).gate is Gate.OPEN, "no longer required"
    given = ASKED.model_copy(update={"consent": Consent(asked=EPOCH, given=EPOCH)})
    assert followed(given, end, approval=APPROVAL).gate is Gate.OPEN
    made = look(pool(2), spec(2, approval=APPROVAL), end, rollout=aborted)
    assert words(made, "RolloutAborted").startswith(
        "The rollout was aborted: revision 2 was approved by nobody in time"
    )
    assert made.next_look is None
    again = progress.resume(aborted, ObservedPool(pool(2), 2, aborted), spec(2, approval=APPROVAL), end)
    assert (again.gate, again.consent) == (Gate.OPEN, Consent(asked=end)), "it asks anew"
    held = progress.resume(ASKED, ObservedPool(pool(2), 2, ASKED), spec(2, approval=APPROVAL), NOON)
    assert held.consent == Consent(asked=EPOCH), "resuming approves nothing, and does not put it off"


def made_of(made: Plan) -> set[int]:
    return {step.revision for step in made.steps if isinstance(step, Create)}


UNAPPROVED: list[tuple[str, dict[str, Any], dict[str, Any], int]] = [
    ("asked for", {"approval": APPROVAL}, {"rollout": ASKED}, 1),
    ("rejected", {"approval": APPROVAL}, {"rollout": rollout(gate=Gate.ABORTED, consent=REJECTED)}, 1),
    ("approved by nobody", {"approval": APPROVAL}, {"rollout": rollout(gate=Gate.ABORTED, consent=EXPIRED)}, 1),
    ("approved", {"approval": APPROVAL}, {"rollout": rollout(consent=Consent(asked=EPOCH, given=EPOCH))}, 2),
    ("approved, then aborted, and asked anew", {"approval": APPROVAL}, {"rollout": ASKED, "approved": 2}, 2),
    ("no longer required", {}, {"rollout": ASKED}, 2),
    ("needs none", {"approval": APPROVAL}, {"rollout": rollout()}, 2),
    ("not known, in an older worker's run", {"approval": APPROVAL}, {"rollout": ASKED, "approved": 0}, 2),
    ("paused besides", {"approval": APPROVAL, "paused": True}, {"rollout": ASKED}, 1),
    ("OnDelete", {"approval": APPROVAL, "strategy": {"type": "OnDelete"}}, {"rollout": ASKED}, 1),
]


@pytest.mark.parametrize(("given", "seen", "revision"), [r[1:] for r in UNAPPROVED], ids=[r[0] for r in UNAPPROVED])
def test_nothing_is_made_of_a_revision_that_nobody_has_approved(
    given: dict[str, Any], seen: dict[str, Any], revision: int
) -> None:
    """Neither where one is missing, nor where one has failed."""
    seen = {"approved": 1, "pace": Pace(revision=revision, window=pace.CAP), **seen}
    settings = spec(3, **given)
    assert made_of(look(pool(2), settings, NOON, **seen)) == {revision}
    failing = pool(2) | {"failed": drained()._replace(vm=Vm.GONE)}
    made = look(failing, settings, NOON, **seen)
    assert deleted(made) == ["failed"]
    assert made_of(look(pool(2), settings, NOON, **seen)) == {revision}
    assert not made.complete


def test_an_approval_is_asked_for_though_nothing_old_is_left() -> None:
    """It asks while it sleeps or its machines are gone as well: it stays without any of that revision until then."""
    settings = spec(2, approval=APPROVAL)
    for none in (settings.model_copy(update={"hibernated": True}), settings):
        asked = progress.follow(ObservedPool({}, 2, None, approved=1), none, NOON)
        assert asked
        assert asked.consent == Consent(asked=NOON)
        later = progress.follow(ObservedPool({}, 2, asked, approved=1), none, NOON + HOUR)
        assert later
        assert later.consent == asked.consent, "once"
        made = look({}, none, NOON, rollout=asked, approved=1, pace=Pace(revision=1, window=9))
        assert ("Approval" in waits(made), made.complete) == (True, False)
    assert made_of(made) == {1}
    given = asked.model_copy(update={"consent": Consent(asked=NOON, given=NOON)})
    assert progress.follow(ObservedPool({}, 2, given, approved=1), settings, NOON) is None, "it is as any other"
    rejected = asked.model_copy(update={"consent": REJECTED, "gate": Gate.ABORTED})
    made = look({}, settings, NOON, rollout=rejected, approved=1, pace=Pace(revision=1, window=9))
    assert words(made, "RolloutAborted") == "revision 2 was rejected by ann; machines are made of revision 1"
    assert progress.follow(ObservedPool({}, 1, None, approved=1), settings, NOON) is None
    assert progress.follow(ObservedPool({}, 1, None), settings, NOON) is None, "the first one needs none"


def test_the_pace_is_that_of_the_revision_that_is_made() -> None:
    slow = Pace(revision=1, until=NOON + HOUR, reason="OutOfCapacity", message="none left")
    made = look(pool(2), spec(3, approval=APPROVAL), NOON, rollout=ASKED, approved=1, pace=slow)
    assert ("OutOfCapacity" in waits(made), created(made)) == (True, 0)
    dying = Pace(revision=1, joins_failed=3, newest=EPOCH, suspect=True)
    seen = ObservedPool({"r1": member(1)}, 2, ASKED, dying, approved=1)
    assert not brake.follow(seen, spec(1, approval=APPROVAL), NOON).suspect, "one of that revision has lasted"


def test_what_machines_are_made_of_is_kept() -> None:
    """Though no machine is of it, and no history is to be kept; a revision that comes to the same is approved too."""
    first = revise((), {}, wanted(1), 0, EPOCH)
    for needed, kept in ((0, [2]), (1, [1, 2])):
        assert [r.counter for r in revise(first.revisions, {}, wanted(2), 0, EPOCH, needed).revisions] == kept
    second = revise(first.revisions, {}, wanted(2), 0, EPOCH, 1)
    again = revise(second.revisions, {}, wanted(1), 0, EPOCH, 1)
    assert ([r.counter for r in again.revisions], again.twins) == ([3], {1})


def test_the_progress_deadline_stands_still_meanwhile() -> None:
    members = pool(1) | {"new": member(2, Phase.PENDING)}
    story = rollout(waiting_since=EPOCH)
    settings = spec(2, progressDeadlineSeconds=600, maintenance=NIGHTLY)
    night = EPOCH + 22 * HOUR
    for now, held in ((EPOCH + 5 * HOUR, True), (night, False)):
        found = progress.follow(ObservedPool(members, 2, story, gates=SHUT), settings, now)
        assert found
        story = found
        assert (story.held_since is not None) == held
        assert not progress.stopped(View(ObservedPool(members, 2, story, gates=SHUT), settings, now))
    assert progress.stops_at(View(ObservedPool(members, 2, story, gates=SHUT), settings, night)) is not None


# -- the order of pools -----------------------------------------------------------------------------------------------


def asks(settings: MachineDeploymentSpec, seen: Gates, story: Rollout | None = None) -> tuple[str, str] | None:
    found = gates.question(View(ObservedPool(pool(2), 2, story or rollout(), gates=seen), settings, NOON))
    return (found.pool, found.known.message if found.known else "") if found else None


def test_what_is_asked_of_the_pool_before() -> None:
    settings = spec(2, rollsAfter=AFTER)
    assert asks(settings, Gates()) == ("p-a", "")
    assert asks(settings, stands(message="it waits")) == ("p-a", "it waits")
    assert asks(settings, stands(complete=True)) is None
    assert asks(settings, stands(complete=True), rollout(unordered=True)) is None
    assert asks(spec(2), stands()) is None
    assert asks(spec(2, rollsAfter={"pool": "p-b"}), stands(complete=True)) == ("p-b", "")
    idle = View(ObservedPool(pool(0, 2), 2, None, gates=Gates()), settings, NOON)
    assert gates.question(idle) is None, "without a rollout nothing is asked"


# -- what a class is told ---------------------------------------------------------------------------------------------


def test_openings_for_hot_updates() -> None:
    nightly, until = spec(2, maintenance=NIGHTLY), NOON + 11 * HOUR
    always = gates.openings(spec(2), Gates(), NOON)
    assert always is None
    for given, seen, now, expected in (
        (nightly, SHUT, NOON, False),
        (nightly, SHUT, NOON + 11 * HOUR, True),
        (spec(2), Gates(freezes=(Freeze(time=EPOCH),)), NOON, False),
        (spec(2), Gates(freezes=(Freeze(time=EPOCH, until=NOON),)), NOON, True),
    ):
        assert is_open(gates.openings(given, seen, now), now) is expected
    frozen = Gates(calendar=SHUT.calendar, freezes=(Freeze(time=EPOCH, until=until),))
    clipped = gates.openings(nightly, frozen, NOON)
    assert clipped is not None
    assert clipped[0] == Opening(begin=until, end=EPOCH + 28 * HOUR), "it knows in advance when it opens"
    open_later = gates.openings(spec(2), Gates(freezes=(Freeze(time=EPOCH, until=until),)), NOON)
    assert [is_open(open_later, t) for t in (NOON, until)] == [False, True]


# -- a whole story ----------------------------------------------------------------------------------------------------


def test_a_window_that_ends_in_a_rollout_ends_what_has_begun() -> None:
    """The machine on its way comes up, the one that goes is gone, and no further step begins until the next window."""
    world = World(spec(4, surge=1, unavailable=1, maintenance=NIGHTLY))
    world.fill()
    world.image(2)
    world.spec = spec(4, surge=1, unavailable=1)
    world.turn()
    assert world.members.keys() > {"m01"}
    moving = [n for n, m in world.members.items() if m.deleting or m.phase is Phase.PENDING]
    world.spec = spec(4, surge=1, unavailable=1, maintenance=NIGHTLY)  # shut: nothing is worked out
    for _ in range(10):
        made = world.turn()
        assert {s.reason for s in made.steps} <= {"ReplicasMissing"}
    assert moving
    assert not any(map(world.moves, world.members))
    assert world.lowest >= 3

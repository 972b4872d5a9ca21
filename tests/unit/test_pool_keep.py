"""planners/pool/keep.py: Failed machines that are preserved, the slots, and what overrides them.

Rows cite their source: A, T, S of machine-controller-manager's own tests (mcm.md §8.2), notes and points of seed 003.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from pools.planner import (
    EPOCH,
    P,
    U,
    World,
    asking,
    at,
    both,
    created,
    deleted,
    drained,
    granted,
    kept,
    limited,
    look,
    member,
    pool,
    preserving,
    run,
    taking,
    waits,
)

from planners.fleet.steps import Delete
from planners.pool.preservation import changed, given_back, lowered
from planners.pool.rehearsal import rehearsed
from planners.pool.view import ObservedPool, View
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.rehearsal import Rehearsal
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.pool.intents import PoolQuestion
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import PoolState, Rollout
from starter.sdk.fleet import rehearsal
from starter.sdk.pools import rehearsal as pool_rehearsal
from workflows.pool import views

AUTO, ASKED = PreservedBy.AUTO, PreservedBy.ASKED


# -- who is preserved -------------------------------------------------------------------------------------------------

SLOTS: list[tuple[str, int, dict[str, Member], list[str], list[str]]] = [
    ("A1 max 1, none in use, two failed", 1, {"a": drained(age=20), "b": drained(age=10)}, ["a"], ["b"]),
    ("A2 max 0", 0, {"a": drained()}, [], ["a"]),
    ("A3 all in use", 1, {"k": kept(), "a": drained()}, [], ["a"]),
    ("A3 in use by one that was asked for (point 6)", 1, {"k": kept(ASKED), "a": drained()}, [], ["a"]),
    ("A4 max 2, both", 2, {"a": drained(), "b": drained()}, ["a", "b"], []),
    ("A5 preserve=false, with a free slot", 1, {"a": drained(PreserveWish.NEVER)}, [], ["a"]),
    ("T2 T3 false, beside one that may be", 1, {"a": drained(PreserveWish.NEVER, age=9), "b": drained()}, ["b"], ["a"]),
    ("T1 preserved", 1, {"k": kept()}, [], []),
    (
        "preserved Running takes no slot (point 6)",
        1,
        {"k": kept()._replace(phase=Phase.RUNNING), "a": drained()},
        ["a"],
        [],
    ),
    ("granted, and not said yet", 1, {"k": drained(granted=AUTO, age=9), "a": drained()}, [], ["a"]),
    ("use case 4: a slot that was taken is free", 1, {"k": kept(released=Released.TOLD), "a": drained()}, ["a"], []),
    ("one on its way out has none", 1, {"k": kept(deleting=True), "a": drained()}, ["a"], []),
    ("one whose VM is gone has none", 1, {"k": kept(vm=Vm.GONE), "a": drained()}, ["a"], ["k"]),
    ("not drained yet", 1, {"a": drained()._replace(drained=False, keep=PreserveWish.UNDECIDED)}, [], []),
    ("not drained yet, whatever it has said", 1, {"a": drained()._replace(drained=False)}, [], []),
    ("it asks, and its VM is gone meanwhile", 1, {"a": drained(vm=Vm.GONE)}, [], ["a"]),
    ("never joined (creationTimeout)", 1, {"a": drained(trouble=Trouble.JOIN)}, ["a"], []),
    ("marked for deletion: it takes no slot", 1, {"a": drained(marked=EPOCH, age=9), "b": drained()}, ["b"], ["a"]),
    ("who waits longest, then by name", 2, {n: drained(age=5 if n == "c" else 0) for n in "abc"}, ["c", "a"], ["b"]),
]


@pytest.mark.parametrize(("most", "members", "preserved", "gone"), [r[1:] for r in SLOTS], ids=[r[0] for r in SLOTS])
def test_a_slot(most: int, members: dict[str, Member], preserved: list[str], gone: list[str]) -> None:
    made = look(pool(0, 5 - len(members)) | members, limited(most))
    assert both(made) == (preserved, gone)
    assert preserving(made, ASKED) == []


@pytest.mark.parametrize("most", [0, 1])
@pytest.mark.parametrize("others", [0, 2])
def test_t4_to_t7_who_is_asked_for_is_preserved_above_the_maximum_too(most: int, others: int) -> None:
    members = {f"k{n}": kept() for n in range(others)} | {"a": drained(PreserveWish.ASKED), "b": drained()}
    made = look(pool(0, 2) | members, limited(most, len(members) + 2))
    assert preserving(made, ASKED) == ["a"]
    assert both(made) == ([], ["b"]), "what was asked for takes the slot"


def test_what_it_says() -> None:
    made = look(
        pool(0, 1) | {"a": drained(PreserveWish.ASKED), "b": drained(age=9), "c": drained(), "k": kept()}, limited(3)
    )
    assert [s.message for s in made.steps] == [
        "Preserving 1 machine (a) that failed and are drained: somebody asked for it",
        "Preserving 1 machine (b) that failed and are drained: 2 of 3 (autoPreserveFailedMax) slots were in use",
        "Deleting 1 machine (c) that failed and are drained; no slot is free: 3 of 3 (autoPreserveFailedMax) in use",
        "Created 1 machine of revision 2: 5 of 6 allowed (replicas 5 + maxSurge 1)",
    ]
    (wait,) = [w for w in made.waits if w.reason == "FailedPreserved"]
    assert wait.message == (
        "Failed and kept for inspection, counted as replicas: a, b, k; 3 of 3 (autoPreserveFailedMax) slots in use"
    )


def test_the_slot_is_taken_in_the_plan_itself() -> None:
    """Two ask in the same task: what the first plan granted counts for the next one, reported or not."""
    members = pool(0, 4) | {"a": drained()}
    assert preserving(look(members, limited(1)), AUTO) == ["a"]
    members |= {"a": drained(granted=AUTO), "b": drained()}
    assert both(look(members, limited(1))) == ([], ["b"])


def test_a_decision_carried_out_comes_to_nothing() -> None:
    members = pool(0, 3) | {"a": drained(granted=AUTO), "b": kept(ASKED)}
    made = look(members, limited(1))
    assert (made.steps, waits(made), made.complete) == ((), {"FailedPreserved"}, True)


# -- what they count for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staying", [kept(), drained(granted=AUTO)], ids=["preserved", "granted"])
def test_point_9_they_count_as_replicas(staying: Member) -> None:
    made = look(pool(0, 2) | {"k": staying}, limited(1, 3))
    assert (created(made), deleted(made), made.complete) == (0, [], True)
    assert created(look(pool(0, 2) | {"k": staying}, limited(1, 4))) == 1


@pytest.mark.parametrize("staying", [kept(ASKED), drained(granted=ASKED)], ids=["preserved", "granted"])
def test_s4_s6_they_are_the_last_to_go(staying: Member) -> None:
    members = {"run": member(2), "k": staying}
    assert deleted(look(members, limited(1, 1))) == ["run"]
    assert sorted(deleted(look(members, limited(1, 0)))) == ["k", "run"]


def test_one_whose_slot_was_taken_is_the_first_to_go() -> None:
    members = {"run": member(2), "k": kept(released=Released.TOLD)}
    assert deleted(look(members, limited(0, 1))) == ["k"]


def test_they_are_neither_a_storm_nor_a_repair_in_flight() -> None:
    """mcm.md §5: otherwise two preserved machines would stop every repair for three days."""
    members = pool(0, 2) | {"k1": kept(), "k2": drained(granted=AUTO), "ill": asking()}
    made = look(members, limited(2))
    assert granted(made) == ["ill"]
    assert "TooManyUnhealthy" in waits(look(members | {"u": member(2, U), "v": member(2, U)}, limited(2, 7)))


def test_a_grant_destroys_nothing_and_needs_no_truth() -> None:
    members = pool(0, 3) | {"a": drained(age=9), "b": drained()}
    for made in (
        look(members, limited(1), reachable=False),
        look(members | {"u": member(2, U), "v": member(2, U), "w": member(2, U)}, limited(1, 8)),
    ):
        assert both(made) == (["a"], [])
    freed = look(pool(0, 4) | {"b": drained()}, limited(1), reachable=False)
    assert both(freed) == (["b"], []), "one that had to wait gets the slot that is free by then"


# -- what overrides ---------------------------------------------------------------------------------------------------

OVERRIDING: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("note 1: a rollout", {"old": 1}, {}, "Unhealthy"),
    ("a rollout whose last old one is gone", {"unfinished": True}, {}, "Unhealthy"),
    ("the same, past its canary", {"unfinished": True}, {"pauseAfter": 1}, "Unhealthy"),
    ("note 2: hibernation", {}, {"hibernated": True}, "Hibernated"),
    ("note 5: replicas 0", {}, {"replicas": 0}, "ScaledDown"),
    ("the pool's deletion", {"deleted": True}, {}, "PoolDeleted"),
]


@pytest.mark.parametrize(("seen", "given", "reason"), [r[1:] for r in OVERRIDING], ids=[r[0] for r in OVERRIDING])
def test_no_failed_machine_stays(seen: dict[str, Any], given: dict[str, Any], reason: str) -> None:
    """None does, whether it was preserved before or fails now, whoever asked for it."""
    failed = {"a": drained(PreserveWish.ASKED), "b": drained(), "k": kept(ASKED), "l": drained(granted=AUTO)}
    olds = pool(seen.pop("old", 0), 2)
    made = look(olds | failed, limited(9, **{"replicas": len(olds) + 4, **given}), **seen)
    assert (preserving(made, ASKED), preserving(made, AUTO)) == ([], [])
    assert sorted(set(deleted(made, reason)) & failed.keys()) == ["a", "b", "k", "l"]
    assert not any(s.repair for s in made.steps if isinstance(s, Delete)), "none may refuse"
    assert "FailedPreserved" not in waits(made)


def test_preserved_old_ones_are_replaced_and_running_new_ones_stay() -> None:
    olds = {"old": kept(ASKED)._replace(revision=1), "run": member(1, preserved_until=at(99), preserved_by=ASKED)}
    new = {"new": member(2, preserved_until=at(99), preserved_by=ASKED)}
    made = look(olds | new | pool(0, 1), limited(1, 3, unavailable=1))
    assert deleted(made) == ["old", "run"]


def test_after_an_undo_a_preserved_one_of_the_same_template_does_not_hold_it_up() -> None:
    """It counts as new, and would never be available."""
    members = {"run": member(2), "k": kept(ASKED), "tried": member(1, P)}
    rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=1)
    made = look(members, limited(1, 2), rollout=rollout, back=True)
    assert "k" in deleted(made, "Unhealthy")


def test_on_delete_overrides_nothing() -> None:
    """Its old machines stay as long as people want; no rollout runs then."""
    settings = MachineDeploymentSpec.model_validate(
        {**limited(1, 3).model_dump(by_alias=True), "strategy": {"type": "OnDelete"}}
    )
    made = look(pool(1, 1) | {"a": drained()}, settings, unfinished=True)
    assert both(made) == (["a"], [])


def test_after_hibernation_requests_count_again() -> None:
    assert preserving(look(pool(0, 4) | {"a": drained(PreserveWish.ASKED)}, limited(0)), ASKED) == ["a"]


def test_in_a_paused_cluster_nothing_is_granted_and_nobody_is_deleted() -> None:
    made = look(pool(0, 3) | {"a": drained(age=9), "b": drained()}, limited(1), cluster_paused=True)
    assert made.steps == ()
    assert "Preserving 1 machine (a)" in made.waits[0].message


# -- marked for deletion ----------------------------------------------------------------------------------------------

MARKED: list[tuple[str, Member, list[str]]] = [
    ("a mark alone", kept(ASKED, marked=EPOCH), []),
    ("of one in a slot", kept(marked=EPOCH), []),
    ("granted", drained(granted=ASKED, marked=EPOCH), []),
    ("Running", member(2, marked=EPOCH, preserved_until=at(99), preserved_by=ASKED), []),
    ("removed by name", kept(ASKED, marked=EPOCH, removed=True), ["k"]),
    ("its time is over", kept(ASKED, marked=EPOCH, preserved_until=at(0)), ["k"]),
    ("its slot was taken", kept(marked=EPOCH, released=Released.TOLD), ["k"]),
]


@pytest.mark.parametrize(("one", "gone"), [r[1:] for r in MARKED], ids=[r[0] for r in MARKED])
def test_one_that_is_marked(one: Member, gone: list[str]) -> None:
    """cluster-autoscaler also marks VMs that never registered: no mark deletes a preserved machine."""
    assert deleted(look(pool(0, 4) | {"k": one}, limited(2)), "MarkedForDeletion") == gone
    assert ("k" in deleted(look(pool(0, 4) | {"k": one}, limited(2, 4)))) == bool(gone)


# -- a repair that may be refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (drained(), "Unhealthy"),
        (drained(PreserveWish.NEVER), "Unhealthy"),
        (drained(trouble=Trouble.JOIN), "NeverJoined"),
    ],
    ids=["no slot", "false", "never joined"],
)
def test_what_failed_may_refuse(one: Member, reason: str) -> None:
    made = look(pool(0, 4) | {"a": one}, limited(0))
    (step,) = [s for s in made.steps if isinstance(s, Delete)]
    assert (step.names, step.reason, step.repair) == (("a",), reason, True)


def test_what_is_too_much_may_not() -> None:
    made = look({"a": drained(granted=ASKED), "b": member(2)}, limited(0, 1))
    assert [(s.names, s.repair) for s in made.steps if isinstance(s, Delete)] == [(("b",), False)]


def test_a_refused_one_that_came_too_late_pushes_out_its_own_replacement() -> None:
    members = pool(0, 4) | {"a": drained(PreserveWish.ASKED), "fresh": member(2, P)}
    made = look(members, limited(0))
    assert (preserving(made, ASKED), deleted(made)) == (["a"], ["fresh"])


# -- lowering ---------------------------------------------------------------------------------------------------------


def of_age(*ages: int, by: PreservedBy = AUTO, **more: Any) -> dict[str, Member]:
    return {f"{by}{age}": kept(by, age=age, **more) for age in ages}


LOWERED: list[tuple[str, dict[str, Member], int, int, list[str]]] = [
    ("A6 to 0", of_age(1), 1, 0, ["a1"]),
    ("note 4: the oldest first", of_age(1, 3, 2), 3, 1, ["a3", "a2"]),
    ("as many as are in use above it", of_age(1, 2), 5, 1, ["a2"]),
    ("room enough", of_age(1, 2), 5, 2, []),
    ("not lowered", of_age(1, 2), 1, 1, []),
    ("raised", of_age(1, 2), 0, 1, []),
    ("asked for: never", of_age(1, 2, by=ASKED), 2, 0, []),
    (
        "asked for count, and push out no more than it was lowered by",
        of_age(1, 2) | of_age(8, 9, by=ASKED),
        2,
        1,
        ["a2"],
    ),
    ("granted a moment ago", {"k": drained(granted=AUTO, age=9)} | of_age(1), 2, 1, ["k"]),
    ("already taken", {"k": kept(released=Released.TOLD, age=9)} | of_age(1), 1, 0, ["a1"]),
    ("a Running one has no slot", {"k": kept(age=9)._replace(phase=Phase.RUNNING)} | of_age(1), 1, 0, ["a1"]),
]


@pytest.mark.parametrize(("members", "former", "most", "names"), [r[1:] for r in LOWERED], ids=[r[0] for r in LOWERED])
def test_whose_slots_are_taken(members: dict[str, Member], former: int, most: int, names: list[str]) -> None:
    assert lowered(View(ObservedPool(members, 2), limited(most), EPOCH), former) == names


GIVEN_BACK: list[tuple[str, dict[str, Member], int, int, list[str]]] = [
    ("all", of_age(1, 2, released=Released.TAKEN), 0, 2, ["a1", "a2"]),
    ("the last that was chosen first", of_age(1, 2, released=Released.TAKEN), 0, 1, ["a1"]),
    ("as many as there is room for", of_age(1, released=Released.TAKEN) | of_age(2, by=ASKED), 0, 1, []),
    ("it knows already", of_age(1, released=Released.TOLD), 0, 1, []),
    ("granted", {"k": drained(granted=AUTO, released=Released.TAKEN)}, 0, 1, ["k"]),
    ("not raised", of_age(1, released=Released.TAKEN), 1, 1, []),
]


@pytest.mark.parametrize(
    ("members", "former", "most", "names"), [r[1:] for r in GIVEN_BACK], ids=[r[0] for r in GIVEN_BACK]
)
def test_whose_slots_are_given_back(members: dict[str, Member], former: int, most: int, names: list[str]) -> None:
    view = View(ObservedPool(members, 2), limited(most), EPOCH)
    assert given_back(view, former) == names
    assert {n for n, m in changed(view, former)[0].items() if m.released is Released.NO} >= set(names)


def test_they_are_told_once_and_when_they_know_that_they_are_preserved() -> None:
    due = {"k": kept(released=Released.TAKEN), "early": drained(granted=AUTO, released=Released.TAKEN)}
    made = look(pool(0, 3) | due, limited(0))
    assert (taking(made), deleted(made)) == (["k"], []), "they end on their own"
    assert made.steps[0].message == "Taking back 1 slot (k): autoPreserveFailedMax was lowered to 0"
    told = {"k": kept(released=Released.TOLD), "early": kept(released=Released.TAKEN)}
    assert taking(look(pool(0, 3) | told, limited(0))) == ["early"]


def test_raised_it_counts_for_those_that_wait() -> None:
    """One that failed in an outage is not decided yet."""
    members = pool(0, 4) | {"a": drained()}
    assert both(look(members, limited(0), reachable=False)) == ([], [])
    assert both(look(members, limited(1), reachable=False)) == (["a"], [])


# -- whole stories ----------------------------------------------------------------------------------------------------


def fall_ill(w: World, *names: str) -> None:
    for name in names:
        w.set(name, phase=U, since=w.now, trouble=Trouble.HEALTH, permit=Permit.ASKED)


def broken(seed: int | None, most: int = 1, **more: Any) -> World:
    w = World(limited(most, repair={"maxConcurrent": 2}), seed, **more)
    w.fill()
    fall_ill(w, "m01", "m02")
    return w


def test_two_that_fail_in_the_same_instant_with_one_slot() -> None:
    """It holds in order, and in 200 random orders."""
    staying = set()
    for seed in (None, *range(200)):
        w = run(broken(seed), [])
        (one,) = [n for n, m in w.members.items() if m.stays]
        staying.add(one)
        assert (len(w.members), w.made, len(w.view.available)) == (5, 6, 4), f"seed {seed}"
    assert staying == {"m01", "m02"}


def both_kept(w: World) -> bool:
    return [m.preserved_by for m in w.members.values() if m.preserved_until] == [AUTO, AUTO]


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_lowered_and_over(seed: int | None) -> None:
    """The older one goes because of a lower maximum, the other one when its time is over; each is replaced."""
    w = broken(seed, most=2)
    w.set("m02", created=EPOCH - timedelta(days=9))
    run(w, [("lower", both_kept, lambda w: w.lower(1))])
    assert (w.members["m01"].stays, "m02" in w.members, w.made) == (True, False, 6)
    w.expired.add("m01")
    run(w, [])
    assert (len(w.members), len(w.view.available), w.made) == (5, 5, 7)


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_a_rollout_replaces_them_and_ends(seed: int | None) -> None:
    w = run(
        broken(seed, most=2, asked_for={"m01"}),
        [("roll", lambda w: sum(m.preserved_until is not None for m in w.members.values()) == 2, lambda w: w.image(2))],
    )
    assert len(w.view.new) == len(w.view.available) == len(w.members) == 5
    fall_ill(w, sorted(w.members)[0])
    run(w, [])
    assert sum(m.stays for m in w.members.values()) == 1, "after the rollout slots count again"


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_an_undo_replaces_one_of_the_template_that_it_goes_back_to(seed: int | None) -> None:
    w = broken(seed, most=2)
    run(
        w,
        [
            ("roll", both_kept, lambda w: w.image(2)),
            ("undo", lambda w: bool(w.view.old) and bool(w.view.new), lambda w: w.undo()),
        ],
    )
    assert len(w.view.new) == len(w.view.available) == len(w.members) == 5


def test_a_dry_run_foresees_it() -> None:
    members = pool(0, 3) | {"a": drained(PreserveWish.ASKED), "k": kept(released=Released.TAKEN)}
    plans = list(rehearsed(ObservedPool(members, 2), limited(0), EPOCH))
    told = [s.reason for made in plans for s in made.steps]
    assert told == ["SlotsTaken", "PreservedOnRequest", "ReplicasMissing"]
    assert [w.reason for w in plans[-1].waits] == ["FailedPreserved"]


def test_a_dry_run_of_a_lower_maximum() -> None:
    """The rehearsal is the pool's own; the pool takes the slots when the manifest is applied."""
    world = World(limited(2, 3))
    members = pool(3) | {"old": kept(age=9)._replace(revision=1), "young": kept(age=1)._replace(revision=1)}
    state = PoolState(name="p1", spec=world.spec, revisions=list(world.revisions), members=members)
    told = [[x.message for x in made] for made in views.rehearse(state, PoolQuestion(spec=limited(1, 5)), EPOCH).plans]
    assert told[0] == ["Taking back 1 slot (old): autoPreserveFailedMax was lowered to 1"]
    assert views.rehearse(state, PoolQuestion(spec=limited(2, 5)), EPOCH).plans == []
    assert all(not m.released for m in state.members.values()), "nothing is done"


def test_a_dry_run_names_the_preserved_machines_that_go_all_the_same() -> None:
    """Seed 003, notes 1, 2 and 5: a rollout, hibernation and fewer replicas are stronger, and say so beforehand."""
    members = pool(3) | {"kept": kept(age=9)._replace(revision=1), "run": kept()._replace(revision=1)}
    members["run"] = members["run"]._replace(phase=Phase.RUNNING)
    world = World(limited(2, 5))
    state = PoolState(name="p1", spec=world.spec, revisions=list(world.revisions[:1]), members=members)

    def told(**question: Any) -> Rehearsal:
        return views.rehearse(state, PoolQuestion(**question), EPOCH)

    assert told(replicas=2).preserved == told(replicas=4).preserved == []
    assert told(replicas=1).preserved == ["kept"]
    assert set(told(replicas=0).preserved) == set(told(delete=True).preserved) == {"kept", "run"}
    asleep = told(spec=limited(2, 5, hibernated=True))
    assert set(asleep.preserved) == {"kept", "run"}
    assert "deletes 2 machines that are preserved: kept, run" in rehearsal.lines(asleep)
    restarted = told(restart=True)
    assert set(restarted.preserved) == {"kept", "run"}
    assert restarted.overrides

    assert not told().overrides
    assert rehearsal.deletes(told()) == told().preserved == []


def worth(state: PoolState, machine: str) -> str:
    class Pools:
        async def rehearse(self, _: str, question: PoolQuestion, **__: Any) -> Rehearsal:
            return views.rehearse(state, question, EPOCH)

    return asyncio.run(pool_rehearsal.but(cast(Any, Pools()), machine, state.name, cluster="prod"))


def test_what_a_preservation_would_be_worth() -> None:
    """Whoever preserves a machine during a rollout hears that it is replaced all the same."""
    world = World(limited(0, 3))
    members = pool(2, 1)
    state = PoolState(name="p1", spec=world.spec, revisions=list(world.revisions), members=members)
    old = next(n for n, m in members.items() if m.revision != state.revision)
    question = PoolQuestion(keep=[old])
    assert views.rehearse(state, question, EPOCH).preserved == [old]
    said = worth(state, old)
    assert said.startswith(f"but pool p1 deletes it all the same (Deleting 1 machine ({old}) of 1 of older revisions: ")
    assert said.endswith("; `hostler rollout pause p1 --cluster prod` holds it")
    new = next(n for n in members if n != old)
    assert worth(state, new).startswith("but while the rollout of pool p1 runs, a machine that fails is replaced")
    held = state.model_copy(update={"paused": True})
    assert worth(held, old) == worth(held, new) == worth(held, "stranger") == ""
    told = views.rehearse(held, question, EPOCH)
    assert (told.preserved, told.overrides) == ([], False)
    assert views.rehearse(held, PoolQuestion(keep=[old], resume=True), EPOCH).preserved == [old]
    assert views.rehearse(state, PoolQuestion(keep=["stranger"]), EPOCH).refused

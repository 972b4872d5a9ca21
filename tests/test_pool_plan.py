"""planners/pool: tables whose rows cite their source (S, U, M of machine-controller-manager's own tests; P field cases;
seeds), one plan at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from poolkit import EPOCH, member, spec

from planners.pool import pace, progress
from planners.pool.budget import limits, share
from planners.pool.order import in_deletion_order, proportional
from planners.pool.plan import Observed, Plan, plan
from planners.pool.rehearsal import rehearse
from planners.pool.steps import Create, Delete, Grant, MarkNodes
from resources.errors import ErrorClass
from resources.machine import Phase
from resources.machine_deployment import MachineDeploymentSpec
from resources.pool import Gate, Member, Pace, Permit, PreservedBy, Rollout, Trouble, Vm, priority_of

R, P, U, F, C = Phase.RUNNING, Phase.PENDING, Phase.UNKNOWN, Phase.FAILED, Phase.CRASH_LOOP_BACK_OFF
FAST = Pace(revision=2, window=pace.CAP)
LATER = EPOCH + timedelta(hours=1)


def at(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def pool(*counts: int, phase: Phase = R) -> dict[str, Member]:
    """So many machines of revisions 1, 2, …; the newest is the last."""
    made = [(r, n) for r, count in enumerate(counts, start=1) for n in range(count)]
    return {f"r{r}-{n:02d}": member(r, phase, age=1000 - r) for r, n in made}


def look(
    members: dict[str, Member], settings: MachineDeploymentSpec, now: datetime = EPOCH, revision: int = 2, **more: Any
) -> Plan:
    observed = Observed(members, revision, **{"pace": Pace(revision=revision, window=pace.CAP), **more})
    if "rollout" not in more:
        observed = Observed(**{**vars(observed), "rollout": progress.follow(observed, settings, now)})
    return plan(observed, settings, now)


def created(made: Plan) -> int:
    return sum(s.count for s in made.steps if isinstance(s, Create))


def deleted(made: Plan, reason: str = "") -> list[str]:
    return [n for s in made.steps if isinstance(s, Delete) and s.reason.startswith(reason) for n in s.names]


def granted(made: Plan) -> list[str]:
    return [n for s in made.steps if isinstance(s, Grant) for n in s.names]


def waits(made: Plan) -> set[str]:
    return {w.reason for w in made.waits}


# -- fenceposts -------------------------------------------------------------------------------------------------------

FENCES: list[tuple[str, int, Any, Any, int, int]] = [
    ("percentages: up and down", 10, "25%", "25%", 3, 2),
    ("both round to 0: one unavailable", 10, 0, "9%", 0, 1),
    ("both 0: one unavailable", 3, 0, 0, 0, 1),
    ("of a hundred percent", 4, "100%", "100%", 4, 4),
    ("a surge above the replicas", 2, 5, 0, 5, 0),
    ("U7: 1 of 5", 5, 0, 1, 0, 1),
    ("U7: 10 of 5 is 5", 5, 0, 10, 0, 5),
    ("U7: replicas 0", 0, 0, 1, 0, 0),
]


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "is_surge", "is_unavailable"),
    [r[1:] for r in FENCES],
    ids=[r[0] for r in FENCES],
)
def test_fenceposts(replicas: int, surge: Any, unavailable: Any, is_surge: int, is_unavailable: int) -> None:
    found = limits(spec(replicas, surge, unavailable))
    assert (found.surge, found.unavailable) == (is_surge, is_unavailable)
    assert (found.ceiling, found.floor) == (replicas + is_surge, replicas - is_unavailable)


def test_shares_round_as_they_are_told() -> None:
    assert [share("50%", n, up=True) for n in range(4)] == [0, 1, 1, 2]
    assert [share("50%", n, up=False) for n in range(4)] == [0, 0, 1, 1]
    assert share(7, 3, up=True) == 7


@pytest.mark.parametrize(
    ("repair", "replicas", "repairs", "storm"),
    [
        ({}, 10, 1, 4),
        ({}, 3, 1, 2),  # design: at least 2 machines
        ({"maxConcurrent": "10%"}, 25, 3, 10),
        ({"maxConcurrent": "1%"}, 1, 1, 2),
        ({"maxConcurrent": 0}, 10, 0, 4),
        ({"pauseAboveUnhealthy": "20%"}, 4, 1, 2),  # P55: 20 % of 4 would be 0
        ({"pauseAboveUnhealthy": 1}, 4, 1, 1),  # P55: a count is what it says
    ],
)
def test_repair_budgets(repair: dict[str, Any], replicas: int, repairs: int, storm: int) -> None:
    found = limits(spec(replicas, repair=repair))
    assert (found.repairs, found.storm) == (repairs, storm)


def test_a_canary_bounds_the_rollout_until_it_has_passed() -> None:
    settings = spec(10, 2, 0, pauseAfter="15%")
    assert limits(settings).rolled == 2
    assert limits(settings, canary_passed=True).rolled == 10
    assert limits(spec(3, pauseAfter=5)).rolled == 3


def test_of_a_hibernated_pool_everything_is_0() -> None:
    found = limits(spec(10, "20%", "20%", hibernated=True))
    assert (found.ceiling, found.floor, found.rolled) == (0, 0, 0)


# -- deletion order ---------------------------------------------------------------------------------------------------


def kept(by: PreservedBy, seconds: int = 3600, phase: Phase = R) -> Member:
    return member(phase=phase, preserved_by=by, preserved_until=at(seconds))


ORDERS: list[tuple[str, list[Member]]] = [
    ("S1 priority", [member(priority=1), member(), member(phase=Phase.TERMINATING, priority=5)]),
    ("S2 phase", [member(phase=p) for p in (Phase.TERMINATING, F, C, U, P, R)]),
    ("S3 age", [member(age=300), member(age=200), member(age=100)]),
    ("S4 preserved", [member(), kept(PreservedBy.AUTO)]),
    (
        "S5 all of it",
        [
            member(priority=1),
            member(marked=at(-20)),
            member(phase=F, marked=at(-10)),
            member(marked=at(-10)),
            member(),
        ],
    ),
    ("S6 a running one before a preserved one", [member(), kept(PreservedBy.ASKED, phase=F)]),
    ("MCM: auto before asked-for", [kept(PreservedBy.AUTO, 7200), kept(PreservedBy.ASKED, 60)]),
    ("MCM: earlier expiry", [kept(PreservedBy.ASKED, 60), kept(PreservedBy.ASKED, 61)]),
    ("a preservation that is over is none", [member(priority=2, preserved_until=at(-1)), member()]),
]


@pytest.mark.parametrize("order", [r[1] for r in ORDERS], ids=[r[0] for r in ORDERS])
def test_deletion_order(order: list[Member]) -> None:
    names = [f"m{i}" for i in range(len(order))]
    whole = dict(zip(names, order, strict=True))
    assert in_deletion_order(whole, EPOCH) == names
    assert in_deletion_order(dict(reversed(whole.items())), EPOCH) == names


def test_s5_four_of_five_go_and_the_last_stays() -> None:
    five = {f"m{i}": m._replace(revision=2) for i, m in enumerate(ORDERS[4][1])}
    # Those that somebody marked need no order: they go in any case. The one of low priority is the replicas' choice.
    assert deleted(look(five, spec(1))) == ["m1", "m2", "m3", "m0"]


def test_s6() -> None:
    two = {"run": member(2), "kept": kept(PreservedBy.ASKED, phase=F)._replace(revision=2, drained=True)}
    assert deleted(look(two, spec(1))) == ["run"]
    assert set(deleted(look(two, spec(0)))) == {"run", "kept"}


# -- scaling ----------------------------------------------------------------------------------------------------------

SHARES: list[tuple[str, list[int], int, list[int]]] = [
    ("U9: 7 to 3, at most 5", [1, 3, 5], 4, [1, 2, 2]),
    ("U10: 8 to 5, at most 7", [1, 3, 6], 3, [1, 2, 4]),
    ("U11: no change", [1, 3, 5], 0, [1, 3, 5]),
    ("all", [1, 3, 5], 9, [0, 0, 0]),
    ("more than all", [2, 2], 9, [0, 0]),
    ("the newer of equals bears the rest", [3, 3], 1, [3, 2]),
    ("none at all", [], 3, []),
]


@pytest.mark.parametrize(("sizes", "remove", "left"), [r[1:] for r in SHARES], ids=[r[0] for r in SHARES])
def test_proportional(sizes: list[int], remove: int, left: list[int]) -> None:
    parts = proportional(dict(enumerate(sizes)), remove)
    assert [size - parts[i] for i, size in enumerate(sizes)] == left


def left_of(members: dict[str, Member], made: Plan, revisions: int) -> list[int]:
    gone = set(deleted(made, "ScaledDown"))
    return [sum(1 for n, m in members.items() if m.revision == r and n not in gone) for r in range(1, revisions + 1)]


@pytest.mark.parametrize(
    ("sizes", "replicas", "left"), [([1, 3, 5], 3, [1, 2, 2]), ([1, 3, 6], 5, [1, 2, 4])], ids=["U9", "U10"]
)
def test_scale_in_keeps_the_relation_of_a_rollout(sizes: list[int], replicas: int, left: list[int]) -> None:
    members = pool(*sizes)
    assert left_of(members, look(members, spec(replicas, 2, 0), revision=3), 3) == left


def test_u8_scale_out_is_of_the_newest_revision_alone() -> None:
    made = look(pool(1, 3, 5), spec(10, 2, 0), revision=3)
    assert [(s.count, s.revision) for s in made.steps if isinstance(s, Create)] == [(3, 3)]


def test_scale_in_takes_none_in_use_below_the_floor() -> None:
    """I3: were the new ones bad, a fair share of the old would leave too few."""
    members = pool(4) | {f"n{i}": member(2, P) for i in range(5)}
    made = look(members, spec(3, 2, 0))
    assert len(deleted(made, "ScaledDown")) == 4
    assert sum(1 for n in members if n.startswith("r1") and n not in deleted(made)) >= 3


def test_marked_machines() -> None:
    """S7: they go without any change of replicas; S8: with one, they count and no further machine goes."""
    members = pool(0, 3) | {"marked": member(2, marked=at(-5))}
    assert deleted(look(members, spec(4))) == ["marked"]
    assert deleted(look(members, spec(3))) == ["marked"]
    assert deleted(look(members, spec(2))) == ["marked", "r2-00"]


def test_a_hundred_at_a_time() -> None:
    """S9, and as many deletions."""
    assert created(look({}, spec(250), revision=1)) == 100
    made = look(pool(0, 250), spec(10))
    assert len(deleted(made)) == 100
    assert made.steps[0].message == "Deleting 100 machines: 250 are more than 10 (replicas 10)"


def test_slow_start() -> None:
    """S10: 1, 2, 4, … while they get their VMs; none as long as the last ones have not."""
    speed, members, batches = Pace(), {}, []
    for _ in range(5):
        made = look(members, spec(20), revision=1, pace=speed)
        batches.append(created(made))
        fresh = {f"m{len(members) + i}": member(1, P) for i in range(created(made))}
        waiting = {n: m._replace(vm=Vm.UNBORN) for n, m in fresh.items()}
        assert created(look(members | waiting, spec(20), revision=1, pace=speed)) == 0
        members |= fresh
        speed = pace.born(pace.of(speed, 1), len(fresh))
    assert batches == [1, 2, 4, 8, 5]


def test_p67_an_empty_pool_is_done() -> None:
    assert look({}, spec(0)).complete
    assert look({}, spec(0)).steps == ()


def test_to_zero_and_hibernated_everything_goes_preserved_ones_too() -> None:
    """Design preservation.md: replicas are always honoured, hibernation overrides."""
    members = pool(1, 1) | {"kept": kept(PreservedBy.ASKED, phase=F)}
    for settings, reason in ((spec(0), "ScaledDown"), (spec(3, hibernated=True), "Hibernated")):
        assert set(deleted(look(members, settings), reason)) == set(members)
        assert deleted(look(members, settings, reachable=False)), "nothing is chosen, so no truth is needed"


def test_a_preserved_machine_counts_as_a_replica() -> None:
    """Seed 003, 9."""
    members = pool(0, 2) | {"kept": kept(PreservedBy.AUTO, phase=F)._replace(revision=2, drained=True)}
    assert look(members, spec(3)).steps == ()
    assert deleted(look(members, spec(3), now=at(3600)), "NeverJoined") == ["kept"]


def test_what_is_left_of_a_vm_counts_until_it_is_gone() -> None:
    """MCM #425: a Terminating machine that does not count lets the pool overshoot while deletions hang."""
    leaving = member(2, Phase.TERMINATING, deleting=True)
    members = pool(0, 2) | {"leaving": leaving}
    assert created(look(members, spec(3, 0, 1))) == 0
    assert waits(look(members, spec(3, 0, 1))) == {"WaitsForVMsToGo"}
    assert created(look(members, spec(3, 1, 0))) == 1
    assert created(look(members | {"leaving": leaving._replace(vm=Vm.GONE)}, spec(3, 0, 1))) == 1


def test_p07_a_machine_whose_vm_is_gone_is_replaced_without_a_permit() -> None:
    members = pool(0, 2) | {f"g{i}": member(2, F, vm=Vm.GONE, trouble=Trouble.GONE) for i in range(3)}
    made = look(members, spec(5))
    assert (sorted(deleted(made, "VMGone")), created(made)) == (["g0", "g1", "g2"], 3)


# -- rollouts ---------------------------------------------------------------------------------------------------------


def test_u1_u2() -> None:
    """replicas 5, surge 2: old 4 and new 2 make new 3; old 4 and new 3 stay."""
    assert created(look(pool(4, 2), spec(5, 2, 0))) == 1
    assert created(look(pool(4, 3), spec(5, 2, 0))) == 0


def test_a_step_says_why_with_numbers() -> None:
    (step,) = [s for s in look(pool(10), spec(10, 2, 0)).steps if isinstance(s, Create)]
    assert step.message == "Created 2 machines of revision 2: 10 of 12 allowed (replicas 10 + maxSurge 2)"


def test_unhealthy_old_machines_go_first_then_older_revisions() -> None:
    members = pool(2, 2, 4) | {"ill": member(2, C), "young": member(1, P)}
    made = look(members, spec(7, 3, 0), revision=3)
    assert deleted(made, "ReplacedUnavailable") == ["young", "ill"]
    assert deleted(made)[2:] == ["r1-00"]


def test_p65_new_machines_that_never_join_cost_the_surge_and_no_old_one() -> None:
    bad = {f"n{i}": member(2, F, trouble=Trouble.JOIN, drained=True) for i in range(2)}
    made = look(pool(10) | bad, spec(10, 2, 0))
    assert (deleted(made), created(made)) == ([], 0)
    assert "NewMachinesNeverJoin" in waits(made)


def test_p65_a_bad_image_does_not_eat_old_machines_that_are_ill() -> None:
    members = pool(9) | {"ill": member(1, U)} | {f"n{i}": member(2, P) for i in range(2)}
    assert deleted(look(members, spec(10, 2, 0))) == []
    assert deleted(look(members | {"n0": member(2), "n1": member(2)}, spec(10, 2, 0)))[0] == "ill"


def test_in_a_proven_rollout_a_flaky_machine_is_replaced() -> None:
    bad = {"bad": member(2, F, trouble=Trouble.JOIN, drained=True)}
    story = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=3, proven=True, available=1)
    for lost, replaced in ((0, ["bad"]), (1, ["bad"]), (2, [])):
        told = story.model_copy(update={"lost": lost})
        assert deleted(look(pool(3, 1) | bad, spec(4, 1, 0), rollout=told), "NeverJoined") == replaced
    assert deleted(look(pool(0, 3) | bad, spec(4, 1, 0)), "NeverJoined") == ["bad"], "outside a rollout always"


def test_the_progress_deadline() -> None:
    settings = spec(10, 2, 2, progressDeadlineSeconds=600)
    members = pool(8) | {f"n{i}": member(2, P) for i in range(2)}
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    before = look(members, settings, at(599), rollout=story)
    assert (before.next_look, "ProgressDeadlineExceeded" in waits(before)) == (at(600), False)
    after = look(members, settings, at(600), rollout=story)
    assert "ProgressDeadlineExceeded" in waits(after)
    assert (deleted(after), created(after)) == ([], 0)
    marked = {n: m._replace(node_marked=True) for n, m in members.items()}
    assert [s.on for s in look(marked, settings, at(600), rollout=story).steps if isinstance(s, MarkNodes)] == [False]


def test_an_old_machine_that_drains_for_hours_does_not_stop_a_rollout() -> None:
    settings = spec(2, 1, 0, progressDeadlineSeconds=600)
    members = {"old": member(1), "new": member(2), "leaving": member(1, Phase.TERMINATING, deleting=True)}
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    assert "ProgressDeadlineExceeded" not in waits(look(members, settings, at(7200), rollout=story))


def test_a_pause_stops_the_clock() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = pool(4) | {"new": member(2, P)}
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    paused = settings.model_copy(update={"paused": True})
    held = progress.follow(Observed(members, 2, story), paused, at(100))
    on = progress.follow(Observed(members, 2, held), settings, at(9000))
    assert on is not None
    assert (on.progress_at, on.held) == (at(9000), False)
    assert "ProgressDeadlineExceeded" not in waits(look(members, settings, at(9000), rollout=on))


@pytest.mark.parametrize("how", ["spec", Gate.PAUSED, Gate.ABORTED])
def test_held_by_a_person_replicas_are_kept_up_all_the_same(how: str) -> None:
    settings = spec(6, 2, 0, paused=how == "spec")
    members = pool(4, 1)
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    assert story is not None
    story = story.model_copy(update={"gate": how} if how != "spec" else {})
    made = look(members, settings, rollout=story)
    assert (created(made), deleted(made)) == (1, [])
    assert waits(made) & {"RolloutPaused", "RolloutAborted"}


def test_a_canary_waits_and_goes_on_when_resumed() -> None:
    settings = spec(6, 2, 0, pauseAfter=1)
    members = pool(5, 1)
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    assert story is not None
    made = look(members, settings, rollout=story)
    assert (waits(made), created(made), deleted(made)) == ({"Canary"}, 0, [])
    on = progress.resume(story, Observed(members, 2), EPOCH)
    assert created(look(members, settings, rollout=on)) == 2


def test_a_canary_takes_no_more_old_ones_than_it_replaces() -> None:
    assert len(deleted(look(pool(10), spec(10, 0, 3, pauseAfter=1)))) == 1
    assert len(deleted(look(pool(10), spec(10, 0, 3)))) == 3


def test_resumed_a_stopped_rollout_tries_again() -> None:
    settings = spec(3, 1, 0, progressDeadlineSeconds=600)
    members = pool(3) | {"bad": member(2, F, trouble=Trouble.JOIN, drained=True)}
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    assert story is not None
    assert deleted(look(members, settings, LATER, rollout=story)) == []
    on = progress.resume(story, Observed(members, 2), LATER)
    made = look(members, settings, LATER, rollout=on)
    assert deleted(made, "NeverJoined") == ["bad"]
    after = progress.lose(on, made.steps)
    assert after is not None
    assert after.lost == 0, "the one that was lost before is forgiven"


def test_min_ready_seconds() -> None:
    settings = spec(2, 1, 0, minReadySeconds=60)
    members = {"old": member(1, age=300), "old2": member(1, age=300), "new": member(2)}
    early = look(members, settings, at(59))
    assert (deleted(early), early.next_look) == ([], at(60))
    assert deleted(look(members, settings, at(60))) == ["old"]


def test_on_delete_replaces_what_somebody_deletes() -> None:
    """P71, within I2: there is no surge, so the replacement follows the VM."""
    settings = MachineDeploymentSpec.model_validate(
        {**spec(3).model_dump(by_alias=True), "strategy": {"type": "OnDelete"}}
    )
    assert look(pool(3), settings).steps == ()
    members = pool(1) | {f"d{i}": member(1, Phase.TERMINATING, deleting=True, vm=Vm.GONE) for i in range(2)}
    made = look(members, settings)
    assert [(s.count, s.revision) for s in made.steps if isinstance(s, Create)] == [(2, 2)]
    assert waits(made) == {"OnDelete"}


def test_marks_on_nodes() -> None:
    """MCM U13, #989; design: they go again in every ending."""
    marked = {n: m._replace(node_marked=True) for n, m in pool(2).items()}

    def marks(members: dict[str, Member], settings: MachineDeploymentSpec, **more: Any) -> list[tuple[bool, int]]:
        return [(s.on, len(s.names)) for s in look(members, settings, **more).steps if isinstance(s, MarkNodes)]

    assert marks(pool(2) | {"unborn": member(1, P)}, spec(3, 1, 0)) == [(True, 2)]
    assert marks(marked, spec(2, 1, 0)) == []
    assert marks(marked, spec(2, 1, 0), revision=1) == [(False, 2)], "undone: they are of the newest revision again"
    aborted = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=2, gate=Gate.ABORTED)
    assert marks(marked, spec(2, 1, 0), rollout=aborted) == [(False, 2)]
    assert marks(marked, spec(2, 1, 0, paused=True)) == [], "a pause is no ending"
    assert marks(pool(2), spec(2, 1, 0, paused=True)) == []


# -- repair -----------------------------------------------------------------------------------------------------------


def asking(seconds: int = 0) -> Member:
    return member(2, U, age=seconds, trouble=Trouble.HEALTH, permit=Permit.ASKED)


def failing(**more: Any) -> Member:
    return member(2, F, trouble=Trouble.HEALTH, permit=Permit.GRANTED, **more)


MATES: list[tuple[str, Member, bool]] = [
    ("M1 a mate in another pool", member(2), True),
    ("M3 Failed", failing(), False),
    ("M4 Terminating, of a repair", failing()._replace(phase=Phase.TERMINATING, deleting=True), False),
    ("Terminating for another reason", member(2, Phase.TERMINATING, deleting=True), True),
    ("M5 just made, no phase yet: does not block (design)", member(2, P, vm=Vm.UNBORN), True),
    ("M6 Pending: does not block (design)", member(2, P), True),
    ("M7 CrashLoopBackOff: does not block (design)", member(2, C, vm=Vm.UNBORN), True),
    ("M8 Pending of another revision", member(1, P), True),
    ("a repair whose VM is gone is over", failing(vm=Vm.GONE, deleting=True), True),
    ("preserved Failed is no repair (mcm 6.4)", failing(preserved_until=LATER, preserved_by=PreservedBy.AUTO), True),
    ("never joined is no repair", member(2, F, trouble=Trouble.JOIN), True),
]


@pytest.mark.parametrize(("mate", "may"), [r[1:] for r in MATES], ids=[r[0] for r in MATES])
def test_one_repair_at_a_time(mate: Member, may: bool) -> None:
    members = pool(0, 8) | {"ill": asking(), "mate": mate}
    settings = spec(10, paused=True)
    assert granted(look(members, settings)) == (["ill"] if may else [])


def test_m2_of_two_the_longer_unhealthy_one() -> None:
    made = look(pool(0, 8) | {"a": asking(10), "b": asking(20)}, spec(10))
    assert granted(made) == ["b"]
    assert waits(made) == {"RepairBudget"}
    both = spec(10, repair={"maxConcurrent": "20%"})
    assert granted(look(pool(0, 8) | {"a": asking(10), "b": asking(20)}, both)) == ["b", "a"]
    assert granted(look(pool(0, 9) | {"a": asking()}, spec(10, repair={"maxConcurrent": 0}))) == []


def test_p55_a_storm() -> None:
    two = pool(0, 2) | {"a": asking(1), "b": asking(2)}
    made = look(two, spec(4, repair={"pauseAboveUnhealthy": 1}))
    (wait,) = [w for w in made.waits if w.reason == "TooManyUnhealthy"]
    assert wait.message.startswith("2 unhealthy > allowed 1 of 4 machines (repair.pauseAboveUnhealthy 1)")
    assert granted(made) == []
    assert granted(look(two, spec(4, repair={"pauseAboveUnhealthy": "20%"}))) == ["b"], "one by one"


def test_in_a_storm_nothing_is_replaced_by_the_rollout_either() -> None:
    members = {n: m._replace(phase=U) for n, m in pool(6).items()} | pool(0, 4)
    made = look(members | {"f": failing(drained=True)}, spec(10, 2, 2))
    assert deleted(made) == []
    assert "TooManyUnhealthy" in waits(made)


def test_the_replacement_starts_when_the_failed_one_is_drained() -> None:
    """Design: not before, and not only when a VM stuck in shutting-down is gone."""
    settings = spec(3, 0, 1)
    assert look(pool(0, 2) | {"ill": failing()}, settings).steps == ()
    made = look(pool(0, 2) | {"ill": failing(drained=True)}, settings)
    assert (deleted(made, "Unhealthy"), created(made)) == (["ill"], 1)
    stuck = pool(0, 3) | {"ill": failing(drained=True, deleting=True)}
    assert look(stuck, settings).steps == ()


def test_rollout_and_repair_share_one_budget() -> None:
    """What is unhealthy already counts against maxUnavailable: no more goes down for the rollout."""
    members = pool(9) | {"ill": member(2, U)}
    assert deleted(look(members, spec(10, 0, 1))) == []
    assert len(deleted(look(pool(10), spec(10, 0, 1)))) == 1


def test_on_old_news_nothing_is_destroyed() -> None:
    """I5, MCM #657."""
    members = pool(4, 8) | {"ill": asking(), "f": failing(drained=True)}
    for settings in (spec(10, 2, 2), spec(3, 2, 2)):
        made = look(members, settings, reachable=False)
        assert (deleted(made), granted(made)) == ([], [])
        assert "Unreachable" in waits(made)


def test_in_a_paused_cluster_nothing_is_done_and_it_is_said_what_would_be() -> None:
    made = look(pool(0, 3), spec(5), cluster_paused=True)
    assert made.steps == ()
    assert made.waits[0].reason == "ClusterPaused"
    assert "Created 2 machines" in made.waits[0].message


# -- pace -------------------------------------------------------------------------------------------------------------


def test_one_back_off_per_pool_that_grows_by_window() -> None:
    """P19: failures within a window are one; the next window is longer; a success ends it."""
    speed = pace.create_failed(Pace(revision=2, window=8), ErrorClass.CAPACITY, "none left", EPOCH, 0)
    assert (speed.window, speed.until) == (1, at(600))
    assert pace.create_failed(speed, ErrorClass.CAPACITY, "none left", at(300), 0) == speed
    longer = pace.create_failed(speed, ErrorClass.CAPACITY, "none left", at(600), 0)
    assert longer.until == at(1800)
    for _ in range(20):
        longer = pace.create_failed(longer.model_copy(update={"until": None}), ErrorClass.CAPACITY, "", EPOCH, 1)
    assert longer.until == EPOCH + pace.LONGEST * (1 + pace.JITTER)
    assert pace.born(longer).until is None
    assert pace.create_failed(speed, ErrorClass.THROTTLED, "slow down", at(600), 0) == speed


def test_a_pool_that_backs_off_says_until_when_and_why() -> None:
    speed = pace.create_failed(Pace(revision=2), ErrorClass.QUOTA, "VCPU limit 100: 56 used, 64 needed", EPOCH, 0)
    made = look(pool(0, 1), spec(3), pace=speed)
    (wait,) = made.waits
    assert (made.steps, wait.reason, made.next_look) == ((), "QuotaExceeded", at(600))
    assert "VCPU limit 100" in wait.message
    assert created(look(pool(0, 1), spec(3), now=at(600), pace=speed)) == 1
    assert created(look(pool(0, 1), spec(3), revision=3, pace=speed)) == 1, "another revision begins anew"


def test_p13_the_third_in_a_row_that_never_joins() -> None:
    speed = Pace(revision=2, window=8)
    for _ in range(2):
        speed = pace.never_joined(speed, "no DNS", EPOCH, 0)
    assert speed.until is None
    assert pace.never_joined(pace.joined(speed), "no DNS", EPOCH, 0).until is None
    third = pace.never_joined(speed, "no DNS", EPOCH, 0)
    assert (third.until, third.reason) == (at(300), "MachinesNeverJoin")
    assert pace.born(third).until == third.until, "that VMs are made was never in doubt"


# -- what would be done -----------------------------------------------------------------------------------------------


def test_a_rehearsal_tells_a_rollout_to_its_end() -> None:
    plans = list(rehearse(Observed(pool(4), 2, pace=FAST), spec(4, 2, 0), EPOCH))
    told = [s.message for p in plans for s in p.steps if not isinstance(s, MarkNodes)]
    floor = "at least 4 (replicas 4 - maxUnavailable 0) needed"
    assert told == [
        "Created 2 machines of revision 2: 4 of 6 allowed (replicas 4 + maxSurge 2)",
        f"Deleting 2 machines (r1-00, r1-01) of 4 of older revisions: 6 available, {floor}",
        "Created 2 machines of revision 2: 4 of 6 allowed (replicas 4 + maxSurge 2)",
        f"Deleting 2 machines (r1-02, r1-03) of 2 of older revisions: 6 available, {floor}",
    ]
    assert plans[-1].complete


def test_a_rehearsal_ends_where_a_person_is_waited_for() -> None:
    plans = list(rehearse(Observed(pool(4), 2, pace=FAST), spec(4, 2, 0, pauseAfter=1), EPOCH))
    assert (plans[-1].complete, {w.reason for w in plans[-1].waits}) == (False, {"Canary"})


def test_a_rehearsal_repairs_one_by_one() -> None:
    plans = list(rehearse(Observed(pool(0, 8) | {"a": asking(1), "b": asking(2)}, 2, pace=FAST), spec(10), EPOCH))
    assert [granted(p) for p in plans if granted(p)] == [["b"], ["a"]]
    assert plans[-1].complete


def test_a_new_machine_that_falls_ill_starts_the_clock_anew() -> None:
    settings = spec(4, 1, 0, progressDeadlineSeconds=600)
    members = {"old": member(1), "leaving": member(1, Phase.TERMINATING), "ill": member(2, U, age=-7000)} | pool(0, 2)
    story = progress.follow(Observed(members, 2), settings, EPOCH)
    assert look(members, settings, at(7200), rollout=story).next_look == at(7600)


def test_priorities() -> None:
    assert priority_of({}) == 3
    assert priority_of({"machinepriority.machine.sapcloud.io": "1"}) == 1
    assert priority_of({"machinepriority.machine.sapcloud.io": "low"}) == 3, "MCM: unparsable is the default"

"""planners/pool: budgets, deletion order, too many and too few machines.

Rows cite their source: S, U, M of machine-controller-manager's own tests, P of the field cases, seeds.
"""

from __future__ import annotations

from typing import Any

import pytest
from pools.planner import EPOCH, C, F, P, R, U, at, created, deleted, look, member, pool, spec, waits

from planners.fleet import pace
from planners.fleet.order import in_deletion_order, proportional
from planners.fleet.steps import Create, Delete, Wait
from planners.pool.budget import limits, share
from planners.pool.plan import Plan
from resources.fleet.member import Member, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase


def test_it_says_which_machines_get_no_vm() -> None:
    """Each tries on its own; the pool's list would show no reason otherwise."""
    ill = {n: member(2, C, vm=Vm.UNBORN) for n in ("b", "a")}
    short = look(pool(0, 3) | ill, spec(5))
    words = "2 of 5 machines have no VM, as their creation fails: a, b"
    assert [(w.reason, w.message) for w in short.waits] == [("MachinesWithoutVM", words)]
    refused = Pace(revision=2, window=1, reason="OutOfCapacity", message="a: none left")
    told = look(pool(0, 3) | ill, spec(5), pace=refused)
    assert told.waits[0].message == f"{words}; the last try: a: none left"
    assert not look(pool(0, 3) | ill, spec(5), lasting=False).waits, "a run that began before decides as it did"


# -- fenceposts --------------------------------------------------------------------------------------------------------

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
        ({"pauseAboveUnhealthy": 1}, 4, 1, 1),  # P55: a count is taken literally
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


# -- deletion order ----------------------------------------------------------------------------------------------------


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
    # Those that somebody marked need no order: they go in any case. The one of low priority is chosen because of the
    # replicas.
    assert deleted(look(five, spec(1))) == ["m1", "m2", "m3", "m0"]


def test_s6() -> None:
    two = {"run": member(2), "kept": kept(PreservedBy.ASKED, phase=F)._replace(revision=2, drained=True)}
    assert deleted(look(two, spec(1))) == ["run"]
    assert set(deleted(look(two, spec(0)))) == {"run", "kept"}


# -- scaling -----------------------------------------------------------------------------------------------------------

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
    """S9; and that many deletions."""
    assert created(look({}, spec(250), revision=1)) == 100
    made = look(pool(0, 250), spec(10))
    assert len(deleted(made)) == 100
    assert (
        made.steps[0].message
        == "Deleting 100 machines (r2-00, r2-01, r2-02, r2-03, r2-04 and 95 more): 250 are more than 10 (replicas 10)"
    )
    marked = {f"m{i}": member(2, marked=EPOCH) for i in range(60)}
    both = look(pool(0, 190) | marked, spec(10))
    assert [len(s.names) for s in both.steps if isinstance(s, Delete)] == [60, 40]


@pytest.mark.parametrize(
    ("leaving", "goes", "words"),
    [
        (0, 100, ""),
        (399, 100, ""),
        (400, 100, "500 machines being deleted, the maximum at a time; 600 machines more to delete when some are gone"),
        (450, 50, "500 machines being deleted, the maximum at a time; 650 machines more to delete when some are gone"),
        (500, 0, "500 machines being deleted, the maximum at a time; 700 machines more to delete when some are gone"),
        (620, 0, "620 machines being deleted, the maximum at a time; 700 machines more to delete when some are gone"),
    ],
)
def test_five_hundred_are_on_their_way_out_at_once(leaving: int, goes: int, words: str) -> None:
    """There are 700 too many. Machines that leave by somebody else's decision count too."""
    going = {
        f"going-{n:03d}": member(2, Phase.TERMINATING if n % 2 else R, deleting=n % 2 == 0) for n in range(leaving)
    }
    made = look(going | pool(0, 700), spec(0))
    assert len(deleted(made)) == goes
    assert made.waits == ((Wait("MachinesLeaving", words),) if words else ())


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


def test_of_a_deleted_pool_everything_goes() -> None:
    members = pool(1, 1) | {"kept": kept(PreservedBy.ASKED)}
    assert set(deleted(look(members, spec(3), deleted=True), "PoolDeleted")) == set(members)
    leaving = {"last": member(2, Phase.TERMINATING, deleting=True, vm=Vm.GONE)}
    assert not look(leaving, spec(3), deleted=True).complete
    assert look({}, spec(3), deleted=True).complete


def test_a_preserved_machine_counts_as_a_replica() -> None:
    """Seed 003, 9."""
    members = pool(0, 2) | {"kept": kept(PreservedBy.AUTO, phase=F)._replace(revision=2, drained=True)}
    assert look(members, spec(3)).steps == ()
    assert look(members, spec(3), now=at(3600)).steps == (), "its end is its own clock's"
    members["kept"] = members["kept"]._replace(preserved_until=None, preserved_by=PreservedBy.NOBODY)
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
    """It is not drained either; more of them at once are repairs, and a storm (test_pool_brakes.py)."""
    members = pool(0, 4) | {"g": member(2, U, vm=Vm.GONE, trouble=Trouble.GONE)}
    made = look(members, spec(5))
    assert (deleted(made, "VMGone"), created(made)) == (["g"], 1)

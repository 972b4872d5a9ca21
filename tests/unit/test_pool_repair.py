"""planners/pool: permits, storms, and the pace of creation.

Rows cite their source: S, U, M of machine-controller-manager's own tests, P of the field cases, seeds.
"""

from __future__ import annotations

import pytest
from pools.planner import (
    EPOCH,
    C,
    F,
    P,
    U,
    asking,
    at,
    created,
    deleted,
    drained,
    failing,
    granted,
    kept,
    look,
    member,
    pool,
    spec,
    waits,
)

from planners.fleet import pace
from resources.errors import ErrorClass
from resources.fleet.member import Member, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase

# -- repair ------------------------------------------------------------------------------------------------------------

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
    ("preserved Failed is no repair (mcm 6.4)", kept(), True),
    ("granted to be preserved", drained(granted=PreservedBy.AUTO), True),
    ("preserved before it failed, and drained now", kept(drained=False), False),
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
    """What is already unhealthy counts against maxUnavailable: nothing more goes down for the rollout."""
    members = pool(9) | {"ill": member(2, U)}
    assert deleted(look(members, spec(10, 0, 1))) == []
    assert len(deleted(look(pool(10), spec(10, 0, 1)))) == 1


def test_what_the_cloud_says_against_living_kubelets_is_said_first_and_not_acted_on() -> None:
    members = pool(0, 3) | {n: member(2, contradicted=True) for n in "abcdefg"} | {"z": asking()}
    made = look(members, spec(11))
    assert (made.waits[0].reason, made.waits[0].message) == (
        "VMContradiction",
        "the cloud says that the VMs of 7 machines are gone or stopped, but their kubelets are alive: a, b, c, d, e "
        "and 2 more; nothing is done on the cloud's word alone",
    )
    assert (granted(made), deleted(made)) == (["z"], [])
    assert waits(look(pool(0, 3) | {"a": member(2, contradicted=True, deleting=True)}, spec(3))) == set()


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


# -- pace --------------------------------------------------------------------------------------------------------------


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


def test_a_refusal_is_the_wait_until_there_is_a_vm() -> None:
    """Also once the back-off is over, while the refused machine tries again: it is the same trouble."""
    there = pool(0, 1) | {"refused": member(2, C, vm=Vm.UNBORN)}
    speed = pace.create_failed(Pace(revision=2), ErrorClass.CAPACITY, "refused: none left", EPOCH, 0)
    for now in (at(599), at(600), at(3600)):
        (wait,) = look(there, spec(3), now=now, pace=speed).waits
        assert (wait.reason, "refused: none left" in wait.message) == ("OutOfCapacity", True)
    (wait,) = look(there, spec(3), now=at(600), pace=pace.born(speed).model_copy(update={"window": 1})).waits
    assert wait.reason == "SlowStart"
    (wait,) = look(there, spec(3), now=at(600), pace=speed, telling=False).waits
    assert wait.reason == "SlowStart", "a replay decides as it did"


def test_those_left_standing_say_what_was_refused() -> None:
    lost = {"lost": member(2, F, trouble=Trouble.JOIN, drained=True, vm=Vm.GONE)}
    speed = pace.create_failed(Pace(revision=2), ErrorClass.NOT_FOUND, "lost: no such image", EPOCH, 0)
    wait = look(pool(3, 0) | lost, spec(3), pace=speed).waits[0]
    assert wait.reason == "NewMachinesNeverJoin"
    assert "(lost); ReferenceNotFound: lost: no such image; of new machines" in wait.message


def test_p13_the_third_in_a_row_that_never_joins() -> None:
    joinless, speed = member(2, F, trouble=Trouble.JOIN), Pace(revision=2, window=8)
    for _ in range(2):
        speed = pace.failed_young(speed, joinless, "no DNS", 3, EPOCH, 0)
    assert speed.until is None
    third = pace.failed_young(pace.joined(speed), joinless, "no DNS", 3, EPOCH, 0)
    assert (third.until, third.reason) == (at(300), "MachinesNeverJoin"), "one that is Running may die yet"
    assert pace.failed_young(pace.forgive(speed), joinless, "no DNS", 3, EPOCH, 0).until is None
    assert pace.born(third).until == third.until, "that VMs are made was never in doubt"

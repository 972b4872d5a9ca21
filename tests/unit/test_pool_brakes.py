"""planners/pool: every replacement has a brake (I15), whatever fails, however fast, and however it is noticed.

First come rows, then whole stories in which something kills machines, with the VMs that each costs; last, no random
killer gets more than `pace.most_in_an_hour`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pools.planner import (
    EPOCH,
    C,
    F,
    P,
    U,
    World,
    asking,
    at,
    created,
    deleted,
    failing,
    granted,
    look,
    member,
    pool,
    spec,
    waits,
)

from planners.fleet import pace
from planners.fleet.steps import Create
from planners.pool import brake, progress
from planners.pool.plan import plan
from planners.pool.repair import in_flight
from planners.pool.view import ObservedPool, View
from resources.errors import ErrorClass
from resources.fleet.member import Member, Permit, Trouble, Vm
from resources.fleet.revision import Pace
from resources.machine.state import Phase
from resources.pool.state import Gate, Rollout


def gone(revision: int = 2, seconds: int = 0, **more: Any) -> Member:
    """A machine whose VM is gone. It had been Running, and long enough unless told otherwise."""
    given = {"vm": Vm.GONE, "trouble": Trouble.GONE, "lasted": True, **more}
    return member(revision, given.pop("phase", U), age=seconds, **given)


def backing_off(reason: str = pace.NEVER_JOIN) -> Pace:
    words = "3 machines in a row never joined; the last one: x"
    return Pace(
        revision=2, joins_failed=3, backoffs=1, until=at(300), reason=reason, message=words, suspect=True, newest=EPOCH
    )


# -- VMs that are gone ------------------------------------------------------------------------------------------------


def test_fifty_of_fifty_gone_is_a_storm_and_no_fifty_deletions() -> None:
    made = look({f"g{i}": gone() for i in range(50)}, spec(50, 1, 0))
    assert (deleted(made), created(made)) == ([], 0)
    assert "TooManyUnhealthy" in waits(made)


def test_nothing_that_is_said_to_be_gone_is_deleted_while_nothing_is_known() -> None:
    members = pool(0, 9) | {"g": gone()}
    made = look(members, spec(10), reachable=False)
    assert (deleted(made), created(made), waits(made)) == ([], 0, {"Unreachable"})
    assert deleted(look(members, spec(10))) == ["g"]


def test_they_are_replaced_one_by_one_by_the_budget_of_repairs() -> None:
    members = pool(0, 8) | {"a": gone(seconds=5), "b": gone(seconds=9)}
    made = look(members, spec(10))
    assert (deleted(made, "VMGone"), created(made)) == (["b"], 1), "who is gone longest"
    (wait,) = made.waits
    assert (wait.reason, "1 machine (a); in progress, of 1" in wait.message) == ("RepairBudget", True)
    both = look(members, spec(10, repair={"maxConcurrent": 2}))
    assert (deleted(both, "VMGone"), created(both)) == (["b", "a"], 2)
    assert deleted(look(members, spec(10, repair={"maxConcurrent": 0}))) == [], "none is to be repaired"


MATES: list[tuple[str, Member, bool]] = [
    ("a repair", failing(), False),
    ("another that was gone, until nothing is left of it", gone(deleting=True, permit=Permit.GRANTED), False),
    ("one that is gone and goes for another reason", gone(deleting=True), True),
    ("one that was ill, its VM gone now", failing(vm=Vm.GONE, deleting=True), True),
    ("one that never joined", member(2, F, trouble=Trouble.JOIN, vm=Vm.GONE, deleting=True), True),
]


@pytest.mark.parametrize(("mate", "may"), [r[1:] for r in MATES], ids=[r[0] for r in MATES])
def test_they_share_one_budget(mate: Member, may: bool) -> None:
    """I4. Neither a permit nor another one that is gone goes beyond it."""
    members = pool(0, 8) | {"mate": mate}
    assert deleted(look(members | {"g": gone()}, spec(10)), "VMGone") == (["g"] if may else [])
    assert granted(look(members | {"ill": asking()}, spec(10))) == (["ill"] if may else [])
    made = look(pool(0, 8) | {"g": gone(), "ill": asking()}, spec(10))
    assert (deleted(made, "VMGone"), granted(made)) == (["g"], [])


def test_until_it_has_its_turn_it_holds_its_place_and_goes_first_where_some_must() -> None:
    members = pool(0, 7) | {"a": gone(), "b": gone()}
    assert created(look(members, spec(9, repair={"maxConcurrent": 0}))) == 0
    assert deleted(look(members, spec(7, repair={"maxConcurrent": 0}))) == ["a", "b"]
    assert not look(pool(0, 2) | {"a": gone()}, spec(3, repair={"maxConcurrent": 0})).complete


def test_the_flow_of_a_spot_interruption_has_no_wait_of_its_own() -> None:
    """One of ten is deleted and replaced in the plan that hears of it, whatever its phase."""
    for phase in (Phase.RUNNING, U, F):
        made = look(pool(0, 9) | {"g": gone(phase=phase)}, spec(10))
        assert (deleted(made, "VMGone"), created(made)) == (["g"], 1)


def test_before_it_was_ever_running_it_has_not_joined() -> None:
    """It is no storm, and goes at once; the back-off governs what is made instead."""
    unjoined = {f"j{i}": member(2, P, vm=Vm.GONE, trouble=Trouble.JOIN) for i in range(3)}
    made = look(unjoined, spec(3))
    assert (sorted(deleted(made, "NeverJoined")), created(made)) == (["j0", "j1", "j2"], 3)
    braked = look(unjoined, spec(3), pace=backing_off())
    assert (len(deleted(braked, "NeverJoined")), created(braked)) == (3, 0)
    (wait,) = braked.waits
    assert wait.reason == "MachinesNeverJoin"
    assert wait.message.startswith("3 machines to be created wait until 2026-01-01 00:05:00 UTC: 3 machines in a row")


# -- after a storm, and after deaths ----------------------------------------------------------------------------------


def follow(members: dict[str, Member], speed: Pace, now: datetime, replicas: int = 10) -> Pace:
    return brake.follow(ObservedPool(members, 2, pace=speed), spec(replicas), now)


def test_repairs_rest_when_a_storm_is_over() -> None:
    ill = {f"i{n}": asking(n) for n in range(5)}
    calm = pool(0, 9) | {"i0": asking()}
    stormy = follow(pool(0, 5) | ill, Pace(revision=2), at(0))
    assert stormy.storm
    after = follow(calm, stormy, at(3600))
    assert (after.storm, after.repairs_from) == (False, at(3600 + 300)), "from its end on, not from when it began"
    assert follow(calm, after, at(3700)) == after
    early, due = look(calm, spec(10), at(3899), pace=after), look(calm, spec(10), at(3900), pace=after)
    assert (granted(early), waits(early), early.next_look) == ([], {"RepairsRest"}, at(3900))
    assert granted(due) == ["i0"]
    assert deleted(look(pool(0, 9) | {"g": gone()}, spec(10), at(3899), pace=after)) == []
    assert pace.of(after, 3).repairs_from == after.repairs_from, "another revision changes nothing of it"
    again = follow(pool(0, 5) | ill, after, at(3800))
    assert (again.storm, again.repairs_from) == (True, None)


def test_repairs_rest_while_what_is_made_instead_dies() -> None:
    """They rest longer each time, as the back-off grows."""
    for members in (pool(0, 9) | {"i": asking()}, pool(0, 9) | {"g": gone()}):
        held = look(members, spec(10), pace=backing_off())
        assert (held.steps, {w.reason for w in held.waits}) == ((), {"MachinesNeverJoin"})
        assert look(members, spec(10), at(300), pace=backing_off()).steps
    full = backing_off("OutOfCapacity").model_copy(update={"suspect": False})
    assert granted(look(pool(0, 9) | {"i": asking()}, spec(10), pace=full)) == ["i"], "a full cloud is no such thing"


def test_machines_in_trouble_are_no_storm_that_never_served() -> None:
    dead = {f"j{i}": member(2, F, trouble=Trouble.JOIN, drained=True) for i in range(6)}
    assert len(deleted(look(pool(0, 4) | dead, spec(10)), "NeverJoined")) == 6


# -- the pace ---------------------------------------------------------------------------------------------------------


def deaths(speed: Pace, *members: Member, now: datetime = EPOCH) -> Pace:
    for m in members:
        speed = pace.failed_young(speed, m, "it died", 3, now, 0)
    return speed


JOINLESS = member(2, F, trouble=Trouble.JOIN)
CRASHED = member(2, U, trouble=Trouble.GONE, vm=Vm.GONE)


def test_the_back_off_grows_to_an_hour_and_its_words_say_what_it_was() -> None:
    speed, spans = Pace(revision=2), []
    for _ in range(2):
        speed = deaths(speed, CRASHED)
    now = EPOCH
    for _ in range(6):
        speed = deaths(speed, CRASHED, now=now)
        assert speed.until
        spans.append((speed.until - now) // timedelta(minutes=1))
        assert deaths(speed, CRASHED, now=now).until == speed.until, "the same window"
        now = speed.until
    assert spans == [5, 10, 20, 40, 60, 60]
    assert speed.reason == "MachinesDieYoung"
    assert speed.message == "8 machines in a row failed before they had been Running for 10m; the last one: it died"


def test_a_window_that_the_cloud_made_the_pool_begin_hides_no_death() -> None:
    """Otherwise a VM of the one kind would release the brake for the other."""
    full = pace.create_failed(deaths(Pace(revision=2), JOINLESS, JOINLESS), ErrorClass.CAPACITY, "none", EPOCH, 0)
    both = deaths(full, JOINLESS, now=at(60))
    assert (both.reason, both.until) == ("MachinesNeverJoin", at(60 + 600)), "the second window of the pool is longer"
    assert pace.born(both).until == both.until


def test_only_one_that_was_made_later_and_lasts_forgives() -> None:
    speed = deaths(Pace(revision=2), *[JOINLESS._replace(created=at(100))] * 3, now=at(100))
    ran = {"phase": Phase.RUNNING, "since": at(110)}
    older, later = member(2)._replace(created=at(99), **ran), member(2)._replace(created=at(100), **ran)
    assert follow({"m": older}, speed, at(9000)) == speed
    assert follow({"m": later}, speed, at(709)) == speed
    view = View(ObservedPool({"m": later}, 2, pace=speed), spec(1), at(401))
    assert pace.proof_at(speed, view.new, view.now) == at(710)
    assert plan(view.observed, view.spec, view.now).next_look == at(710)
    forgiven = follow({"m": later}, speed, at(710))
    assert forgiven == Pace(revision=2)
    assert follow({"m": later._replace(phase=U, vm=Vm.GONE, trouble=Trouble.GONE)}, speed, at(710)) == speed
    assert follow({"m": later._replace(revision=1)}, speed, at(710)) == speed


def test_as_long_as_none_has_lasted_one_at_a_time_is_on_its_way_to_running() -> None:
    speed = backing_off()
    made = look({}, spec(5), at(300), pace=speed)
    assert created(made) == 1
    booting = {"m": member(2, P)}
    assert created(look(booting, spec(5), at(310), pace=pace.born(speed))) == 0, "a VM alone says nothing"
    wait = look(booting, spec(5), at(310), pace=pace.born(speed)).waits[-1]
    assert (wait.reason, "4 machines to be created wait for 1 to become Running" in wait.message) == (
        "MachinesDieYoung",
        True,
    )
    running = {"m": member(2)._replace(since=at(320))}
    assert created(look(running, spec(5), at(320), pace=pace.joined(speed))) == 2


def test_a_pool_of_machines_that_die_young_is_not_ready_while_they_are_there() -> None:
    members = {f"m{i}": member(2)._replace(created=at(300), since=at(310)) for i in range(2)}
    speed = backing_off("MachinesDieYoung").model_copy(update={"newest": at(200)})
    made = look(members, spec(2), at(320), pace=speed)
    assert (made.complete, waits(made), made.next_look) == (False, {"MachinesDieYoung"}, at(910))
    assert (
        "machines are created one at a time until one has, at 2026-01-01 00:15:10 UTC at the earliest"
        in made.waits[0].message
    )
    over = look(members, spec(2), at(910), pace=follow(members, speed, at(910), 2))
    assert (over.complete, over.waits) == (True, ())


def test_what_people_want_has_no_brake() -> None:
    """Fewer, none, deleted, one removed, back to what ran before: all in the midst of a back-off."""
    members = pool(0, 3) | {"g": gone(), "j": member(2, F, trouble=Trouble.JOIN, vm=Vm.GONE)}
    speed = {"pace": backing_off()}
    assert len(deleted(look(members, spec(0), **speed), "ScaledDown")) == 5
    assert len(deleted(look(members, spec(3), deleted=True, **speed), "PoolDeleted")) == 5
    assert deleted(look(pool(0, 3), spec(2), **speed), "ScaledDown") == ["r2-00"]
    assert deleted(look(pool(0, 3) | {"x": member(2, marked=EPOCH)}, spec(4), **speed)) == ["x"]
    assert created(look(pool(0, 1), spec(3), revision=3, **speed)) == 1, "another revision begins anew"


# -- rollouts ---------------------------------------------------------------------------------------------------------

YOUNG: list[tuple[str, Member]] = [
    ("never joined", member(2, F, trouble=Trouble.JOIN, drained=True)),
    ("its VM was gone before", member(2, F, trouble=Trouble.JOIN, drained=True, vm=Vm.GONE)),
    ("seen by the watch", member(2, P, trouble=Trouble.JOIN, vm=Vm.GONE)),
    ("ran for a moment, and its VM is gone", member(2, U, trouble=Trouble.GONE, vm=Vm.GONE)),
    ("ran for a moment, and its kubelet died", failing(drained=True, lasted=False)),
]


@pytest.mark.parametrize("lost", [r[1] for r in YOUNG], ids=[r[0] for r in YOUNG])
def test_a_rollout_spends_no_more_than_its_losses(lost: Member) -> None:
    """Whatever took the machines, beyond the losses the rollout stops; what is left then is no storm and holds up no
    repair."""
    settings = spec(4, 1, 0)
    made = look(pool(4) | {"new": lost}, settings)
    assert (deleted(made), created(made)) == ([], 0)
    assert "NewMachinesNeverJoin" in waits(made)
    members = pool(4) | {"new": lost}
    assert in_flight(View(ObservedPool(members, 2), settings, EPOCH)) == []
    proven = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=3, proven=True, available=1, lost=1)
    again = look(pool(3, 1) | {"new": lost}, settings, rollout=proven)
    assert deleted(again) == ["new"]
    after = progress.lose(proven, again.steps, pool(3, 1) | {"new": lost})
    assert after is not None
    assert after.lost == 2
    assert deleted(look(pool(3, 1) | {"new": lost}, settings, rollout=told(proven, lost=2))) == []


def told(story: Rollout, **fields: Any) -> Rollout:
    return story.model_copy(update=fields)


def test_machines_that_are_there_for_a_moment_eat_no_old_ones() -> None:
    """Without minReadySeconds each of them would be available at once."""
    members = pool(3, 1)
    assert len(deleted(look(members, spec(3, 1, 0)), "Replaced")) == 1
    made = look(members, spec(3, 1, 0), at(400), pace=backing_off("MachinesDieYoung"))
    assert (deleted(made), "MachinesDieYoung" in waits(made)) == ([], True)
    assert deleted(look(members | {"ill": member(1, U)}, spec(4, 1, 0), at(400), pace=backing_off())) == ["ill"]


def test_one_that_had_lasted_is_no_loss_of_the_rollout() -> None:
    made = look(pool(3, 1) | {"new": gone()}, spec(4, 1, 0))
    assert deleted(made) == ["new"]


def test_what_an_undo_made_new_is_no_loss_of_it() -> None:
    """It failed before, and would hold up the return to what is proven."""
    story = Rollout(revision=2, began=at(60), progress_at=at(60), old_left=1)
    before = {"f": failing(drained=True, lasted=False)}
    assert deleted(look(pool(1, 3) | before, spec(4, 1, 0), at(60), rollout=story, back=True)) == ["f"]


def test_the_deadline_of_progress_does_not_move_with_machines_that_are_made() -> None:
    settings = spec(3, 1, 0, progressDeadlineSeconds=600)
    story, stops = None, set()
    for second in range(0, 600, 100):  # each new machine is made when the one before is given up
        fresh = {"n": member(2, P)._replace(created=at(second), since=at(second))}
        for members in (pool(3) | fresh, pool(3)):
            story = progress.follow(ObservedPool(members, 2, story), settings, at(second))
            assert story is not None
            story = told(story, lost=1)
        assert progress.follow(ObservedPool(pool(3) | fresh, 2, story), settings, at(second)) == story
        stops.add(progress.stops_at(View(ObservedPool(pool(3) | fresh, 2, story), settings, at(second))))
    assert stops == {at(600)}
    available = progress.follow(ObservedPool(pool(3, 1), 2, story), settings, at(590))
    assert available is not None
    assert (available.progress_at, available.waiting_since, available.lost) == (at(590), None, 0)


def test_while_new_machines_die_nobody_is_told_to_wait_for_their_boot() -> None:
    story = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=4, lost=1, proven=True)
    made = look(pool(3, 1) | {"n": member(2, P)}, spec(4, 1, 0), rollout=story)
    (wait,) = made.waits
    assert (wait.reason, wait.message.endswith("; 1 machine of this revision failed early")) == (
        "NewMachinesFail",
        True,
    )
    assert waits(look(pool(3, 1) | {"n": member(2, P)}, spec(4, 1, 0))) == {"NewMachinesNotReady"}


def test_a_run_from_before_there_were_brakes_plans_as_it_did() -> None:
    members = pool(0, 2) | {f"g{i}": gone() for i in range(3)}
    made = look(members, spec(5), braked=False)
    assert (sorted(deleted(made, "VMGone")), created(made)) == (["g0", "g1", "g2"], 3)
    assert brake.follow(ObservedPool(members, 2, braked=False), spec(5), EPOCH) == Pace()


# -- stories ----------------------------------------------------------------------------------------------------------


class Killed(World):
    """A world in which something kills machines: each is considered at each turn."""

    kill: Callable[[Killed, Member], bool] = staticmethod(lambda w, m: False)
    births: list[datetime]

    def hour(self, hours: float = 1) -> Killed:
        end = self.now + timedelta(hours=hours)
        while self.now < end:
            before = self.made
            self.turn()
            self.births += [self.now] * (self.made - before)
            for name, m in list(self.members.items()):
                if m.vm is Vm.LIVES and not m.leaving and self.kill(self, m):
                    self.die(name, m)
        return self

    def die(self, name: str, m: Member) -> None:
        ran = m.phase not in (P, C)
        trouble = Trouble.GONE if ran else Trouble.JOIN
        self._enter(name, U if ran else F, vm=Vm.GONE, trouble=trouble, drained=not ran)

    def most_in_an_hour(self) -> int:
        hour = timedelta(hours=1)
        return max((sum(b <= t < b + hour for t in self.births) for b in self.births), default=0)


def killed(kill: Callable[[Killed, Member], bool], *args: Any, seed: int | None = None, **more: Any) -> Killed:
    made = Killed(spec(*args, **more), seed)
    made.kill, made.births = kill, []  # type: ignore[method-assign]
    return made


def at_once(_: Killed, m: Member) -> bool:
    return m.phase in (P, C)


def after_seconds(seconds: int) -> Callable[[Killed, Member], bool]:
    return lambda w, m: m.phase is Phase.RUNNING and w.now - m.since >= timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("kill", "first", "second"),
    [(at_once, 7, 1), (after_seconds(10), 11, 2)],
    ids=["each new VM at once", "each ten seconds after it is Running"],
)
def test_each_new_vm_terminated_at_once_costs_a_pool_of_two(
    kill: Callable[[Killed, Member], bool], first: int, second: int
) -> None:
    """The surge of failures before the first window, then one or two with each of 5, 10, 20 and 40 minutes."""
    w = killed(kill, 2).hour()
    assert len(w.births) <= first
    assert not plan(w.observed, w.spec, w.now).complete
    assert {r.reason for r in plan(w.observed, w.spec, w.now).waits} <= set(pace.DEATHS)
    before = len(w.births)
    w.hour()
    assert len(w.births) - before <= second
    w.kill = lambda w, m: False  # type: ignore[method-assign]
    w.hour(1.5)
    assert plan(w.observed, w.spec, w.now).complete, "what was done to it is over, and it comes back on its own"


def test_a_killer_costs_a_rollout_of_one_its_surge() -> None:
    w = killed(lambda w, m: m.revision == 2 and at_once(w, m), 1, 1, 0, progressDeadlineSeconds=600)
    w.fill()
    w.image(2)
    w.hour()
    assert len(w.births) == 1
    assert {r.reason for r in plan(w.observed, w.spec, w.now).waits} >= {"NewMachinesNeverJoin"}
    assert len(w.view.available) == 1
    w.undo()
    w.hour(0.5)
    assert plan(w.observed, w.spec, w.now).complete, "a proven revision begins anew"
    assert len(w.births) == 1


def test_a_flaky_image_fills_its_pool_all_the_same() -> None:
    """One in three never joins, of thirty."""
    chance = random.Random(5)
    doomed: dict[datetime, bool] = {}
    w = killed(lambda w, m: m.phase is P and doomed.setdefault(m.since, chance.random() < 0.3), 30)
    w.hour(4)
    assert plan(w.observed, w.spec, w.now).complete


# -- whatever kills ---------------------------------------------------------------------------------------------------


def killer(chance: random.Random) -> Callable[[Killed, Member], bool]:
    """Kills in phases of some minutes: none, each at once, after seconds, just before and just after it has lasted, all
    at the same time, some."""
    kinds: list[Callable[[Killed, Member], bool]] = [
        at_once,
        after_seconds(10),
        after_seconds(590),
        after_seconds(610),
        lambda w, m: m.phase in (P, Phase.RUNNING) and w.chance.random() < 0.02,
        lambda w, m: m.phase is Phase.RUNNING and w.now.minute % 20 == 19,
        lambda w, m: False,
    ]
    plans = [(chance.choice(kinds), chance.randint(1, 60)) for _ in range(20)]

    def kill(w: Killed, m: Member) -> bool:
        minute = (w.now - EPOCH) // timedelta(minutes=1)
        for kind, minutes in plans:
            if minute < minutes:
                return kind(w, m)
            minute -= minutes
        return False

    return kill


@pytest.mark.parametrize("seed", range(12))
def test_i15_no_killer_makes_a_pool_spend_more_than_its_back_off_allows(seed: int) -> None:
    chance = random.Random(seed)
    replicas, surge = chance.randint(1, 6), chance.randint(0, 2)
    w = killed(killer(chance), replicas, surge, 1, seed=seed, repair={"pauseAboveUnhealthy": "100%"})
    w.no_capacity = False
    for _ in range(8):
        w.no_capacity = chance.random() < 0.1
        w.hour(0.5)
    allowed = pace.most_in_an_hour(replicas, replicas + surge)
    assert w.most_in_an_hour() <= allowed + replicas, f"{w.most_in_an_hour()} VMs in an hour, {allowed} allowed"
    assert len(w.births) > replicas, "something was killed"


def test_i15_sees_a_pool_without_a_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "failed_young", lambda speed, *_: speed)
    w = killed(at_once, 2).hour()
    assert w.most_in_an_hour() > pace.most_in_an_hour(2, 2) + 2


def test_i15_a_rollout_is_no_way_round_it() -> None:
    """Losses belong to the rollout, and a machine that is available for a moment does not give it new ones without
    end."""
    for seconds in (0, 10, 60):
        kill = at_once if not seconds else after_seconds(seconds)
        w = killed(lambda w, m, kill=kill: m.revision == 2 and kill(w, m), 3, 1, 0)  # type: ignore[misc]
        w.fill()
        w.image(2)
        w.hour(3)
        assert len(w.births) <= 3 * 4, f"{seconds}: {len(w.births)}"
        assert all(isinstance(s, Create) is False for s in plan(w.observed, w.spec, w.now).steps)


def test_aborted_and_paused_it_makes_none_instead() -> None:
    for story in ({"gate": Gate.ABORTED}, {"gate": Gate.PAUSED}):
        rollout = Rollout(revision=2, began=EPOCH, progress_at=EPOCH, old_left=3, lost=9, **story)
        made = look(pool(3) | {"n": YOUNG[1][1]}, spec(3, 1, 0), rollout=rollout)
        assert (deleted(made), created(made)) == ([], 0)


def test_the_allowance_in_numbers() -> None:
    assert pace.patience(2) == pace.patience(79) == 3
    assert pace.patience(200) == 10
    assert pace.most_in_an_hour(2, 3) == 9 * (3 + 2) + 6 * 3

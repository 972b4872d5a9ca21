"""planners/pool: what holds for every possible pool."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from pools.planner import EPOCH, member, spec

from planners.fleet import pace
from planners.fleet.order import preserved
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, MarkNodes, Plan, TakeSlots
from planners.pool import progress
from planners.pool.plan import plan
from planners.pool.preservation import slots, staying_failed
from planners.pool.repair import in_flight
from planners.pool.view import ObservedPool, View
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.revision import Pace
from resources.fleet.state import FleetWait
from resources.machine.preservation import PreservedBy
from resources.machine.state import Phase
from resources.pool.intents import PoolSummary
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Gate, Rollout

REVISION = 3
VOLUNTARY = {"Replaced", "ReplacedUnavailable", "Unhealthy", "NeverJoined", "VMGone"}


def any_member(chance: random.Random) -> Member:
    """Any cell, even those that make no sense."""
    pick = chance.choice
    return member(
        pick((1, 2, REVISION, REVISION)),
        pick(list(Phase)),
        chance.randint(0, 300),
        vm=pick(list(Vm)),
        trouble=pick(list(Trouble)),
        permit=pick(list(Permit)),
        priority=chance.randint(1, 5),
        marked=pick((None, None, None, EPOCH)),
        preserved_until=pick((None, None, EPOCH - timedelta(hours=1), EPOCH + timedelta(hours=1))),
        preserved_by=pick(list(PreservedBy)),
        deleting=pick((True, False)),
        drained=pick((True, False)),
        node_marked=pick((True, False)),
        keep=pick(list(PreserveWish)),
        granted=pick(list(PreservedBy)),
        released=pick(list(Released)),
        removed=pick((True, False)),
        lasted=pick((True, False)),
    )


def likely_member(chance: random.Random) -> Member:
    """A member like most: so that pools are found in which something may be done."""
    phase = chance.choice((Phase.RUNNING,) * 6 + (Phase.PENDING, Phase.UNKNOWN, Phase.FAILED))
    ill = phase in (Phase.UNKNOWN, Phase.FAILED)
    return member(
        chance.choice((1, 2, REVISION)),
        phase,
        chance.randint(0, 300),
        trouble=chance.choice((Trouble.HEALTH, Trouble.JOIN)) if ill else Trouble.NONE,
        permit=chance.choice((Permit.ASKED, Permit.NONE)) if phase is Phase.UNKNOWN else Permit.NONE,
        drained=phase is Phase.FAILED,
        keep=chance.choice(list(PreserveWish)) if phase is Phase.FAILED else PreserveWish.UNDECIDED,
        deleting=chance.random() < 0.1,
    )


def any_spec(chance: random.Random) -> MachineDeploymentSpec:
    def amount() -> int | str:
        return chance.choice((0, 1, 2, 4, "0%", "20%", "50%", "100%"))

    made = spec(
        chance.randint(0, 12),
        amount(),
        amount(),
        pauseAfter=chance.choice((None, None, 1, "20%")),
        paused=chance.random() < 0.2,
        hibernated=chance.random() < 0.1,
        minReadySeconds=chance.choice((0, 60)),
        progressDeadlineSeconds=chance.choice((None, 100)),
        repair={"maxConcurrent": amount(), "pauseAboveUnhealthy": amount()},
        autoPreserveFailedMax=chance.choice((0, 1, 2, 9)),
    )
    if chance.random() < 0.8:
        return made
    return MachineDeploymentSpec.model_validate({**made.model_dump(by_alias=True), "strategy": {"type": "OnDelete"}})


def any_story(chance: random.Random) -> Rollout | None:
    if chance.random() < 0.3:
        return None
    return Rollout(
        revision=REVISION,
        began=EPOCH - timedelta(seconds=200),
        progress_at=EPOCH - timedelta(seconds=chance.randint(0, 200)),
        available=chance.randint(0, 3),
        old_left=chance.randint(0, 12),
        proven=chance.random() < 0.5,
        lost=chance.randint(-2, 4),
        gate=chance.choice((Gate.OPEN, Gate.OPEN, Gate.PAUSED, Gate.ABORTED)),
        canary_passed=chance.random() < 0.5,
    )


def any_pool(seed: int) -> tuple[ObservedPool, MachineDeploymentSpec]:
    chance = random.Random(seed)
    make = chance.choice((any_member, likely_member))
    whole = {f"m{i:02d}": make(chance) for i in range(chance.randint(0, 16))}
    until = EPOCH + timedelta(minutes=1) if chance.random() < 0.2 else None
    observed = ObservedPool(
        whole,
        REVISION,
        rollout=any_story(chance),
        pace=Pace(
            revision=chance.choice((2, 3)),
            window=chance.randint(1, 100),
            until=until,
            reason=chance.choice(("R", *pace.DEATHS)),
            message="m",
            suspect=chance.random() < 0.2,
            repairs_from=EPOCH + timedelta(minutes=1) if chance.random() < 0.2 else None,
        ),
        cluster_paused=chance.random() < 0.1,
        reachable=chance.random() < 0.8,
    )
    return observed, any_spec(chance)


# Drawn from a seed: hypothesis' own drawing of so many cells takes a hundred times as long as the plan.
SEEDS = st.integers(0, 2**32)
many = settings(max_examples=500)


def names(made: Plan, *reasons: str) -> list[str]:
    return [n for s in made.steps if isinstance(s, Delete) and (not reasons or s.reason in reasons) for n in s.names]


def carry_out(observed: ObservedPool, made: Plan) -> ObservedPool:
    whole = dict(observed.members)
    for step in made.steps:
        match step:
            case Create():
                fresh = len(whole)
                whole |= {f"new{fresh + i:03d}": Member(step.revision, EPOCH, EPOCH) for i in range(step.count)}
            case Delete():
                whole |= {n: whole[n]._replace(deleting=True) for n in step.names}
                if step.permitted:
                    whole |= {n: whole[n]._replace(permit=Permit.GRANTED) for n in step.names}
            case GrantPreservation():
                whole |= {n: whole[n]._replace(granted=step.by) for n in step.names}
            case TakeSlots():
                whole |= {n: whole[n]._replace(released=Released.TOLD) for n in step.names}
            case GrantPermit():
                whole |= {n: whole[n]._replace(permit=Permit.GRANTED) for n in step.names}
            case MarkNodes():
                whole |= {n: whole[n]._replace(node_marked=step.on) for n in step.names}
    story = progress.lose(observed.rollout, made.steps, whole)
    return ObservedPool(whole, REVISION, story, observed.pace, observed.cluster_paused, observed.reachable)


@many
@given(SEEDS)
def test_every_pool_has_a_plan_that_names_what_is_there(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    gone = names(made)
    assert len(gone) == len(set(gone)) <= pace.CAP
    assert all(not observed.members[n].deleting for n in gone)
    assert all(s.message and s.reason for s in (*made.steps, *made.waits))
    assert made.next_look is None or made.next_look > EPOCH
    assert all(0 < s.count <= pace.CAP for s in made.steps if isinstance(s, Create))


@many
@given(SEEDS)
def test_the_order_of_the_members_makes_no_difference(seed: int) -> None:
    observed, wanted = any_pool(seed)
    items = list(observed.members.items())
    random.Random(seed).shuffle(items)
    shuffled = ObservedPool(**{**vars(observed), "members": dict(items)})
    assert plan(shuffled, wanted, EPOCH) == plan(observed, wanted, EPOCH)


@many
@given(SEEDS)
def test_i2_no_vm_too_many_is_made(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    if not (any(isinstance(s, Create) for s in made.steps)):
        return
    after = View(carry_out(observed, made), wanted, EPOCH)
    assert after.vms <= after.limits.replicas + max(after.limits.surge, 1 if after.repairing else 0)


@many
@given(SEEDS)
def test_i3_nothing_voluntary_goes_below_the_floor(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made, before = plan(observed, wanted, EPOCH), View(observed, wanted, EPOCH)
    in_use = set(names(made, *VOLUNTARY)) & before.available
    if not (in_use):
        return
    after = View(carry_out(observed, made), wanted, EPOCH)
    assert len(after.available) >= after.limits.floor


@many
@given(SEEDS)
def test_replicas_are_never_undercut(seed: int) -> None:
    """Whatever goes because there are too many, and whatever rolls, as many stay as replicas less maxUnavailable."""
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    if not (names(made, "ScaledDown", "Replaced", "ReplacedUnavailable")):
        return
    after = View(carry_out(observed, made), wanted, EPOCH)
    assert len(after.active) >= after.limits.floor


@many
@given(SEEDS)
def test_i4_no_repair_too_many_is_begun(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    if not (any(isinstance(s, GrantPermit) for s in made.steps)):
        return
    assert (
        len(in_flight(View(carry_out(observed, made), wanted, EPOCH))) <= View(observed, wanted, EPOCH).limits.repairs
    )


@many
@given(SEEDS)
def test_i5_what_is_not_known_is_not_destroyed(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(ObservedPool(**{**vars(observed), "reachable": False}), wanted, EPOCH)
    if View(observed, wanted, EPOCH).limits.replicas:
        assert all(s.reason == "MarkedForDeletion" for s in made.steps if isinstance(s, Delete))
        assert not any(isinstance(s, GrantPermit | MarkNodes) for s in made.steps)


def overridden(observed: ObservedPool, made: Plan, wanted: MachineDeploymentSpec) -> bool:
    """A rollout runs, or does so by what the plan itself deletes, as the machine that had stopped it."""
    before = View(observed, wanted, EPOCH)
    after = replace(carry_out(observed, made), unfinished=before.unfinished)
    return progress.overrides(before) or progress.overrides(View(after, wanted, EPOCH))


@many
@given(SEEDS)
def test_i9_a_preserved_machine_stays_but_for_replicas_rollout_or_a_person(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    staying = {n for n, m in observed.members.items() if m.stays and m.vm is not Vm.GONE}
    assert not staying & set(names(made, "VMGone"))
    replaced = names(made, "Unhealthy", "NeverJoined", "NeverCreated", "Replaced", "ReplacedUnavailable")
    assert overridden(observed, made, wanted) or not staying & set(replaced)
    sure = {n for n, m in observed.members.items() if preserved(m, EPOCH) and not m.removed}
    assert not sure & set(names(made, "MarkedForDeletion"))


@many
@given(SEEDS)
def test_slots_are_never_granted_beyond_the_maximum(seed: int) -> None:
    observed, wanted = any_pool(seed)
    made = plan(observed, wanted, EPOCH)
    view = View(carry_out(observed, made), wanted, EPOCH)
    by = {n: s.by for s in made.steps if isinstance(s, GrantPreservation) for n in s.names}
    assert all(observed.members[n].drained and observed.members[n].phase is Phase.FAILED for n in by)
    assert all(observed.members[n].keep is not PreserveWish.NEVER for n in by), "`false` is never preserved"
    if PreservedBy.AUTO in by.values():
        assert len(slots(staying_failed(view))) <= wanted.auto_preserve_failed_max
    if progress.overrides(View(observed, wanted, EPOCH)):
        assert not by


@many
@given(SEEDS)
def test_who_asks_is_preserved_whatever_the_slots(seed: int) -> None:
    observed, wanted = any_pool(seed)
    before, made = View(observed, wanted, EPOCH), plan(observed, wanted, EPOCH)
    if overridden(observed, made, wanted) or observed.cluster_paused:
        return
    failed = {n: m for n, m in before.active.items() if m.phase is Phase.FAILED and m.vm is not Vm.GONE}
    asked = {n for n, m in failed.items() if m.drained and m.keep is PreserveWish.ASKED}
    after = carry_out(observed, made).members
    assert all(after[n].stays or n in names(made, "MarkedForDeletion") for n in asked)


@many
@given(SEEDS)
def test_a_paused_cluster_stands_still(seed: int) -> None:
    observed, wanted = any_pool(seed)
    assert plan(ObservedPool(**{**vars(observed), "cluster_paused": True}), wanted, EPOCH).steps == ()


@many
@given(SEEDS)
def test_carried_out_again_and_again_it_comes_to_rest(seed: int) -> None:
    """With nothing else moving, no two rules undo each other."""
    observed, wanted = any_pool(seed)
    for _ in range(4):
        made = plan(observed, wanted, EPOCH)
        if not made.steps:
            return
        observed = carry_out(observed, made)
    assert plan(observed, wanted, EPOCH).steps == ()


@many
@given(SEEDS)
def test_a_finished_pool_is_left_alone(seed: int) -> None:
    wanted = any_spec(random.Random(seed))
    count = View(ObservedPool({}, REVISION), wanted, EPOCH).limits.replicas
    made = plan(ObservedPool({f"m{i:02d}": member(REVISION, age=3600) for i in range(count)}, REVISION), wanted, EPOCH)
    assert (made.steps, made.waits, made.next_look, made.complete) == ((), (), None, True)


@many
@given(SEEDS)
def test_a_failed_machine_that_is_not_replaced_has_a_wait_that_says_why(seed: int) -> None:
    """The pool's summary says it, which is all that `hostler describe machine` asks for."""
    observed, spec = any_pool(seed)
    observed = replace(observed, rollout=progress.follow(observed, spec, EPOCH))
    made = plan(observed, spec, EPOCH)
    waits = [FleetWait(reason=w.reason, message=w.message, since=EPOCH) for w in made.waits]
    said = PoolSummary(name="p", cluster="c", machine_class="k", replicas=1, revision=REVISION, waits=waits)
    taken = {*names(made), *(n for s in made.steps if isinstance(s, GrantPreservation) for n in s.names)}
    for name, m in View(observed, spec, EPOCH).active.items():
        if m.phase is Phase.FAILED and m.drained and not m.stays and name not in taken:
            assert said.holding(m.revision, vm=m.vm is not Vm.GONE) is not None, (name, m, made.waits)

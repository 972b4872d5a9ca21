"""What a pool would do if all went well, step by step: the same plan, in a world where every machine joins.

This is for `--dry-run`. Capacity, drains and bad images are not foreseen; limits, order and pauses are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from planners.fleet import pace
from planners.fleet.order import preserved
from planners.fleet.steps import Create, Delete, GrantPermit, GrantPreservation, MarkNodes, Plan, TakeSlots
from planners.pool import progress
from planners.pool.plan import plan
from planners.pool.view import ObservedPool, View
from resources.base import later
from resources.fleet.member import Member, Permit, Trouble, Vm
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec

LONGEST = 500
"""The most plans that are told; a longer rollout goes on in the same way."""


def rehearsed(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> Iterator[Plan]:
    """The plans to come, from what is observed now; the last one, of LONGEST at most, has no steps and says what it
    waits for. Time stands still, and every machine on the way has arrived."""
    observed, numbers = _arrived(observed, spec, now), count(1)
    for _ in range(LONGEST):
        observed = replace(observed, rollout=progress.follow(observed, spec, now))
        made = plan(observed, spec, now)
        yield made
        if not made.steps:
            return
        observed = _arrived(_carried_out(observed, made, now, numbers), spec, now)


def resumed(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> ObservedPool:
    """The pool once a person has resumed its rollout."""
    rollout = progress.resume(observed.rollout, observed, spec, now) if observed.rollout else None
    speed = pace.forgive(observed.pace) if observed.pace.suspect else observed.pace
    return replace(observed, rollout=rollout, pace=speed)


def overridden(observed: ObservedPool, plans: Iterable[Plan], now: datetime) -> list[str]:
    """The preserved machines that these plans delete all the same: a rollout, fewer replicas or hibernation is stronger
    (seed 003, notes 1, 2 and 5). The first to go first."""
    kept = {n for n, m in observed.members.items() if not m.leaving and (m.stays or preserved(m, now))}
    steps = (step for made in plans for step in made.steps if isinstance(step, Delete | TakeSlots))
    return list(dict.fromkeys(n for step in steps for n in step.names if n in kept))


def _carried_out(observed: ObservedPool, made: Plan, now: datetime, numbers: Iterator[int]) -> ObservedPool:
    members = dict(observed.members)
    for step in made.steps:
        match step:
            case Create():
                members |= {f"new-{next(numbers)}": Member(step.revision, now, now) for _ in range(step.count)}
            case Delete():
                members |= {n: members[n]._replace(deleting=True) for n in step.names}
            case GrantPreservation():
                members |= {n: members[n]._replace(granted=step.by) for n in step.names}
            case TakeSlots():
                members |= {n: members[n]._replace(deleting=True) for n in step.names}
            case GrantPermit():
                members |= {n: members[n]._replace(permit=Permit.GRANTED) for n in step.names}
            case MarkNodes():
                members |= {n: members[n]._replace(node_marked=step.on) for n in step.names}
    return replace(observed, members=members, rollout=progress.lose(observed.rollout, made.steps, members))


def _arrived(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> ObservedPool:
    """The pool once those that leave are gone, those being made are available, and those that may be repaired are
    drained."""
    since = later(now, -timedelta(seconds=spec.min_ready_seconds))
    members = {}
    for name, m in observed.members.items():
        if m.leaving:
            continue
        if m.permit is Permit.GRANTED:
            members[name] = m._replace(phase=Phase.FAILED, trouble=Trouble.HEALTH, drained=True)
        elif m.phase in (Phase.PENDING, Phase.CRASH_LOOP_BACK_OFF, Phase.RUNNING):
            members[name] = m._replace(phase=Phase.RUNNING, vm=Vm.LIVES, since=min(m.since, since))
        else:
            members[name] = m
    born = sum(1 for n, m in members.items() if m.vm is not observed.members[n].vm)
    speed = pace.joined(pace.born(View(observed, spec, now).pace, born), born)
    return replace(observed, members=members, pace=speed)

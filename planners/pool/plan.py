"""The plan of a pool: one pure function, used by its workflow, by `--dry-run` and by tests.

Order matters only for words: each rule sees what the ones before it delete, and no rule creates and deletes for the
same reason. A plan that is carried out and made again comes to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from planners.fleet.steps import Plan, Wait
from planners.pool import brake, gates, preservation, progress, repair, rollout, scale
from planners.pool.view import Draft, ObservedPool, View
from resources.machine.state import Phase
from resources.pool.manifest import MachineDeploymentSpec

__all__ = ["ObservedPool", "Plan", "plan"]


def plan(observed: ObservedPool, spec: MachineDeploymentSpec, now: datetime) -> Plan:
    """What to do now, why, what to wait for, and when to look again. Total: every state of a pool has a plan.

    `observed.rollout` and `observed.pace` are what `progress.follow` and `brake.follow` made of the same members.
    """
    view = View(observed, spec, now)
    if view.rolling:  # also when this plan itself deletes the last old machine
        view = View(replace(observed, unfinished=True), spec, now)
    draft = Draft(view)
    repair.doubt(draft)  # first: where one wait is shown, it is this one
    if observed.deleted or view.limits.replicas == 0:
        scale.empty(draft)
    else:
        scale.delete_marked(draft)  # first: what a person wants gone takes no slot
        preservation.decide(draft)
        repair.replace_failed(draft)
        scale.trim(draft)
        rollout.replace_old(draft)
        repair.grant(draft)
        scale.create(draft)
        rollout.mark_nodes(draft)
        gates.say_updates(draft)
        brake.say(draft)
    if not observed.deleted:
        gates.say_approval(draft)
        scale.say_what_lacks(draft)  # last: only where there is nothing else to say
    waits = tuple(dict.fromkeys(draft.waits))
    look = _next_look(view)
    if observed.cluster_paused and draft.steps and not observed.deleted:  # a person who deletes a pool is obeyed
        would = "; ".join(s.message for s in draft.steps)
        return Plan((), (Wait("ClusterPaused", f"The cluster is paused. Otherwise: {would}"), *waits), look)
    return Plan(tuple(draft.steps), waits, look, not draft.steps and complete(view))


def complete(view: View) -> bool:
    """Whether nothing is left to do for the newest revision, or nothing at all is left of a deleted pool. Failed
    machines that are kept are part of what the pool shall have (seed 003, point 9), but not of what a rollout shall
    bring."""
    if view.observed.deleted:
        return not view.members
    if view.unapproved:
        return False
    if view.limits.replicas and view.pace.suspect:
        return False  # none has lasted yet
    done = view.available if view.unfinished else view.available | preservation.staying_failed(view).keys()
    return not view.old_left and len(view.new) == view.limits.replicas and len(done) == len(view.new)


def _next_look(view: View) -> datetime | None:
    """The earliest time at which waiting alone changes something."""
    times = [view.available_at(m) for m in view.active.values() if m.phase is Phase.RUNNING]
    times += brake.next_look(view) + gates.next_look(view)
    if (stop := progress.stops_at(view)) is not None:
        times.append(stop)
    return min((t for t in times if t > view.now), default=None)

"""What a control plane would do, if it were asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from temporalio import workflow

from workflows.fleet.entity import HISTORY
from workflows.fleet.revise import but_class

with workflow.unsafe.imports_passed_through():
    from planners.control_plane.alike import SetWanted
    from planners.control_plane.holding import with_hold
    from planners.control_plane.observe import observe
    from planners.control_plane.rehearsal import rehearsed
    from planners.fleet.revisions import Wanted, revise, wanted_by_undo
    from resources.control_plane.spec import ControlPlaneSpec, State, refusals
    from resources.control_plane.state import ControlPlaneState
    from resources.control_plane.summary import ControlPlaneQuestion
    from resources.fleet.rehearsal import Rehearsal, RehearsedStep
    from resources.machine.manifest import Hook, MachineTemplate


def rehearse(state: ControlPlaneState, question: ControlPlaneQuestion, hold: Hook, now: datetime) -> Rehearsal:
    """Rehearses a change by the planner that acts. `hold`: that of its machines."""
    spec = question.spec or state.spec
    if words := refusals(state.spec, spec):
        return Rehearsal(refused="; ".join(words))
    if strangers := sorted(set(question.delete) - set(state.members)):
        return Rehearsal(refused=f"the control plane has no machine {', '.join(strangers)}")
    try:
        wanted = _wanted(state, spec, question, hold)
    except ValueError as e:
        return Rehearsal(refused=str(e))
    then, hot, rolls = state.model_copy(update={"spec": spec}), 0, False
    if wanted is not None:
        revised = revise(state.revisions, state.members, wanted, HISTORY, now)
        then.revisions, then.members, rolls = list(revised.revisions), dict(revised.members), revised.rolls
        if but_class(wanted.template) != but_class(state.revisions[-1].template):
            hot = sum(not m.leaving for m in state.members.values())
    there = observe(then, now)
    hosts = [replace(h, leaving=True, held=True) if h.name in question.delete else h for h in there.hosts]
    there = replace(there, hosts=tuple(hosts), paused="" if question.resume else there.paused)
    plans = list(rehearsed(there, now))
    replaced = [h.name for h in there.hosts if h.outdated and not h.leaving]
    return Rehearsal(
        revision=then.revision,
        rolls=len(replaced) if rolls else 0,
        replaced=replaced,
        hot=hot,
        plans=[[RehearsedStep(reason=x.reason, message=x.message) for x in made.steps] for made in plans if made.steps],
        waits=[RehearsedStep(reason=w.reason, message=w.message) for w in plans[-1].waits],
    )


def _wanted(
    state: ControlPlaneState, spec: ControlPlaneSpec, question: ControlPlaneQuestion, hold: Hook
) -> Wanted | None:
    """What new machines would be made from, where that changes. Raises ValueError for an undo that is impossible."""
    if not state.revisions:
        return None
    newest, domains = state.revisions[-1], spec.failure_domains
    if question.undo:
        return SetWanted(**{**vars(wanted_by_undo(state.revisions, question.to)), "domains": domains})
    template = _held(spec, hold) if question.spec is not None else newest.template
    kept = SetWanted(template, newest.machine_class, newest.restart, domains=domains)
    given, known = question.machine_class, state.machine_class or newest.machine_class
    if given is None or SetWanted(template, given, newest.restart, domains=domains).made_like(known):
        return kept
    return SetWanted(template, given, newest.restart, domains=domains)


def _held(spec: ControlPlaneSpec, hold: Hook) -> MachineTemplate:
    return with_hold(spec.template, hold) if spec.state is State.ACTIVE else spec.template

"""What a pool answers: itself in numbers, and what it would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import islice

from temporalio import workflow

from workflows.fleet.revise import but_class

with workflow.unsafe.imports_passed_through():
    from planners.fleet import template as hot
    from planners.fleet.order import preserved
    from planners.fleet.pace import of
    from planners.fleet.revisions import Revised, Wanted, revise, summaries, wanted_by_undo
    from planners.machine.hot_update import HASH_VERSION, rolling_hash
    from planners.pool import gates, progress
    from planners.pool.plan import complete
    from planners.pool.preservation import changed, slots, staying_failed
    from planners.pool.rehearsal import LONGEST, overridden, rehearsed, resumed
    from planners.pool.repair import in_flight
    from planners.pool.undo import gone_back_to
    from planners.pool.view import ObservedPool, View
    from resources.base import later
    from resources.fleet.member import Vm
    from resources.fleet.rehearsal import Rehearsal, RehearsedStep
    from resources.machine.preservation import PreservedBy
    from resources.machine.state import ClassSnapshot, Phase
    from resources.names import WORKER_POOL_LABEL, ZONE_LABEL
    from resources.pool.intents import PoolQuestion, PoolSummary
    from resources.pool.state import PoolState

WORK = 200_000
"""How many machines times plans a rehearsal may look at: a query must answer within a second or two."""


def summary(state: PoolState, view: View) -> PoolSummary:
    members = state.members
    counts = Counter((m.revision, m.phase) for m in members.values())
    staying = [m for m in view.active.values() if m.stays or preserved(m, view.now)]
    return PoolSummary(
        name=state.name,
        cluster=state.cluster,
        created=state.created,
        machine_class=state.spec.template.spec.class_.name,
        replicas=view.limits.replicas,
        hibernated=state.spec.hibernated,
        paused=view.spec.paused,
        deleted=state.deleted,
        revision=state.revision,
        machines=view.vms,
        unborn=view.unborn,
        updated=len(view.new),
        available=len(view.available),
        unhealthy=sum(1 for m in view.active.values() if m.phase in (Phase.UNKNOWN, Phase.FAILED)),
        preserved=len(staying),
        preserved_auto=sum(1 for m in staying if PreservedBy.AUTO in (m.granted, m.preserved_by)),
        slots_used=len(slots(staying_failed(view))),
        slots=state.spec.auto_preserve_failed_max,
        leaving=sum(1 for m in members.values() if m.leaving and m.vm is not Vm.GONE),
        repairs=len(in_flight(view)),
        phases=[(revision, phase, n) for (revision, phase), n in sorted(counts.items())],
        rollout=state.rollout,
        rolled_out=not state.deleted and bool(state.revisions) and complete(view),
        template_pending=len(hot.pending(members, state.template)),
        template_busy=hot.busy(state.hearing, state.told, state.template, view.now),
        revisions=summaries(state),
        waits=state.waits,
        parked=state.parked,
        worker_pool=state.labels.get(WORKER_POOL_LABEL, ""),
        zone=state.labels.get(ZONE_LABEL, ""),
    )


def rehearse(state: PoolState, question: PoolQuestion, now: datetime, hashing: int = HASH_VERSION) -> Rehearsal:
    """Rehearses a change. `hashing`: the pool's, so that what it would do is what it does."""
    spec = question.spec or state.spec
    if question.replicas is not None:
        spec = spec.model_copy(update={"replicas": question.replicas})
    if strangers := sorted({*question.remove, *question.keep} - set(state.members)):
        return Rehearsal(refused=f"pool {state.name} has no machine {', '.join(strangers)}")
    try:
        wanted = _wanted(state, question, now, hashing)
    except ValueError as e:
        return Rehearsal(refused=str(e))
    revised = Revised(tuple(state.revisions), state.members, rolls=False)
    if wanted is not None:
        wanted = replace(wanted, hashing=hashing, enough=spec.replicas)
        limit, needed = state.spec.revision_history_limit, state.approved if spec.approval.required else 0
        revised = revise(state.revisions, state.members, wanted, limit, now, needed)
    members, rolls = {**revised.members}, revised.rolls
    for name in question.keep:
        members[name] = members[name]._replace(preserved_until=later(now, state.spec.machine_preserve_timeout))
    for name in question.remove:
        members[name] = members[name]._replace(marked=now, removed=True)
    revision = revised.revisions[-1].counter if revised.revisions else 0
    members, *_ = changed(View(ObservedPool(members, revision), spec, now), state.spec.auto_preserve_failed_max)
    observed = ObservedPool(
        members=members,
        revision=revision,
        rollout=state.rollout if not rolls else None,
        back=bool(revised.revisions) and revised.revisions[-1].back,
        gates=gates.of(state),
        unfinished=rolls or state.rolling_out,
        pace=of(state.pace, state.pace.revision),
        approved=revision if state.approved in revised.twins else state.approved,
        deleted=state.deleted or question.delete,
        cluster_paused=state.news is not None and state.news.paused,
        reachable=not state.unseen,
    )
    if question.resume:
        spec = spec.model_copy(update={"paused": False})
        observed = resumed(observed, spec, now)
    elif state.paused and not spec.paused:
        spec = spec.model_copy(update={"paused": True})
    longest = max(10, min(LONGEST, WORK // (len(members) + 1)))
    plans = list(islice(rehearsed(observed, spec, now), longest))
    olds = sum(1 for m in members.values() if m.revision != revision and not m.leaving)
    hotly = wanted is not None and but_class(wanted.template) != but_class(state.revisions[-1].template)
    return Rehearsal(
        revision=revision,
        rolls=olds if rolls else 0,
        hot=sum(1 for m in members.values() if not m.leaving) if hotly else 0,
        plans=[[RehearsedStep(reason=x.reason, message=x.message) for x in made.steps] for made in plans if made.steps],
        waits=[RehearsedStep(reason=w.reason, message=w.message) for w in plans[-1].waits] if plans else [],
        preserved=overridden(observed, plans, now),
        overrides=progress.overrides(View(replace(observed, rollout=progress.follow(observed, spec, now)), spec, now)),
    )


def _wanted(state: PoolState, question: PoolQuestion, now: datetime, hashing: int) -> Wanted | None:
    """What new machines would be made from, where that changes. Raises ValueError for an undo that is impossible."""
    newest = state.revisions[-1] if state.revisions else None
    if newest is None:
        return None
    if question.undo:
        wanted = wanted_by_undo(state.revisions, question.to)
        return replace(wanted, template=gone_back_to(wanted.template, state.spec))
    if question.restart:
        return Wanted(newest.template, newest.machine_class, now.isoformat())
    template = question.spec.template if question.spec else newest.template
    given, known = question.machine_class, state.machine_class or newest.machine_class
    if given is None or (given.name, _hash(given, hashing)) == (known.name, _hash(known, hashing)):
        return Wanted(template, newest.machine_class, newest.restart)
    return Wanted(template, given, newest.restart)


def _hash(machine_class: ClassSnapshot, hashing: int) -> str:
    return rolling_hash(machine_class.provider, machine_class.provider_spec, hashing)

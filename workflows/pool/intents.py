"""What a person's wish does to a pool, in words for the answer; and what is refused, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from temporalio import workflow

from workflows.fleet.revise import want
from workflows.pool.details import typed
from workflows.pool.entity import PoolEntity
from workflows.pool.revise import go_back, take_spec

with workflow.unsafe.imports_passed_through():
    from planners.fleet import pace
    from planners.fleet.revisions import Wanted, wanted_by_undo
    from planners.pool import progress
    from planners.pool.gates import expired, holding
    from planners.pool.preservation import changed
    from planners.pool.view import View
    from planners.words import named, some
    from resources.base import later, read_time
    from resources.intents import Intent
    from resources.machine.intents import DeleteIntent
    from resources.machine_class.state import concurrency_of
    from resources.maintenance import FreezeIntent, Opening
    from resources.names import TRIGGER_DELETION_ANNOTATION
    from resources.pool.intents import PoolIntent, ResumeIntent, ScaleIntent, UndoIntent, VerdictIntent
    from resources.pool.manifest import MachineDeploymentSpec, judge_updates_after
    from resources.pool.state import Gate
    from resources.words import by_whom, utc

ORDINARY = ("paused", "hibernated")
"""Fields of the spec that have words of their own."""


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse_change(pool: PoolEntity, intent: Intent) -> str | None:
    state = pool.s
    if state.deleted:
        return f"pool {state.name} is being deleted; apply it again when it is gone"
    return None


def refuse_annotations(annotations: Mapping[str, str], pool: str) -> str | None:
    try:
        concurrency_of(annotations)
        judge_updates_after(annotations, pool)
    except ValueError as e:
        return str(e)
    return None


def refuse_apply(pool: PoolEntity, intent: PoolIntent) -> str | None:
    if refusal := refuse_change(pool, intent):
        return refusal
    name, given = intent.spec.template.spec.class_.name, intent.machine_class.name
    if name != given:
        return f"pool {pool.s.name}: machineClass.name: the template names class {name}, not {given}"
    refusal = refuse_annotations(intent.annotations, pool.s.name)
    return f"pool {pool.s.name}: {refusal}" if refusal else None


def refuse_scale(pool: PoolEntity, intent: ScaleIntent) -> str | None:
    state = pool.s
    if refusal := refuse_change(pool, intent):
        return refusal
    if intent.current is not None and intent.current != state.spec.replicas:
        return f"pool {state.name} has {state.spec.replicas} replicas, not {intent.current}: nothing was changed"
    if strangers := sorted(set(intent.remove) - set(state.members)):
        all_of_it = f"`hostler get machines --pool {state.name} --cluster {state.cluster}`"
        return f"pool {state.name} has no machine {', '.join(strangers)}; {all_of_it} lists them"
    return None


def refuse_undo(pool: PoolEntity, intent: UndoIntent) -> str | None:
    if refusal := refuse_change(pool, intent):
        return refusal
    if not pool.s.revisions:
        return f"pool {pool.s.name} has no revision yet"
    try:
        wanted_by_undo(pool.s.revisions, intent.to)
    except ValueError as e:
        return f"pool {pool.s.name}: {e}"
    return None


def refuse_abort(pool: PoolEntity, intent: Intent) -> str | None:
    if refusal := refuse_change(pool, intent):
        return refusal
    if pool.s.rollout is None:
        return f"pool {pool.s.name} has no rollout to abort"
    return None


def refuse_verdict(pool: PoolEntity, intent: VerdictIntent) -> str | None:
    state, rollout = pool.s, pool.s.rollout
    if refusal := refuse_change(pool, intent):
        return refusal
    if rollout is None or rollout.consent is None:
        return f"pool {state.name} has no rollout that needs approval"
    if intent.revision not in (None, rollout.revision):
        return f"pool {state.name} asks for the approval of revision {rollout.revision}, not {intent.revision}"
    if rollout.consent.given is not None:
        return f"revision {rollout.revision} of pool {state.name} is already {rollout.consent.words}"
    if rollout.gate is Gate.ABORTED:
        again = typed(state, "rollout resume")
        return f"the rollout of revision {rollout.revision} of pool {state.name} is aborted; {again} asks anew"
    return None


def refuse_approve(pool: PoolEntity, intent: VerdictIntent) -> str | None:
    """An approval is in time before its deadline, whether or not the loop has acted on that."""
    if refusal := refuse_verdict(pool, intent):
        return refusal
    if expired(pool.view()):
        return f"nobody approved it in time; {typed(pool.s, 'rollout resume')} asks anew"
    return None


# -- wishes -----------------------------------------------------------------------------------------------------------


def apply(pool: PoolEntity, intent: PoolIntent) -> str:
    state = pool.s
    former = state.spec
    meta = intent.namespace, intent.labels, intent.annotations
    same_meta = meta == (state.namespace, state.labels, state.annotations)
    state.namespace, state.labels, state.annotations = meta
    marked = _mark_for_deletion(pool, intent.annotations)
    change = take_spec(pool, intent.spec, intent.machine_class, intent.requested_by, intent.reason)
    taken = _take_slots(pool, former)
    words = [*marked, *_changes(former, state.spec), *taken, *filter(None, [change.words])]
    if not words:
        return "unchanged" if same_meta and former == state.spec else "configured"
    _applied(pool, intent, "; ".join(words))
    falls_asleep = state.spec.hibernated and not former.hibernated
    return f"configured; {'; '.join(words)}{_but(pool, rolls=bool(change.rolls), falls_asleep=falls_asleep)}"


def _applied(pool: PoolEntity, intent: Intent, words: str) -> None:
    by = by_whom(intent.requested_by)
    why = f" ({intent.reason})" if intent.reason else ""
    pool.note("Applied", f"{words}{by}{why}")


def _changes(former: MachineDeploymentSpec, spec: MachineDeploymentSpec) -> list[str]:
    """Changes to what steers the pool."""
    words = []
    if former.replicas != spec.replicas:
        words.append(f"replicas {former.replicas} → {spec.replicas}")
    if former.hibernated != spec.hibernated:
        words.append("hibernated" if spec.hibernated else "woken")
    if former.paused != spec.paused:
        words.append("rollouts paused" if spec.paused else "rollouts no longer paused")
    for name, field in type(spec).model_fields.items():
        said = name in ("replicas", "hibernated", "paused", "template")
        if not said and getattr(former, name) != getattr(spec, name):
            words.append(f"{field.alias or name} changed")
    return words


def _take_slots(pool: PoolEntity, former: MachineDeploymentSpec) -> list[str]:
    """Takes the slots of a lower autoPreserveFailedMax. A higher one takes back what was not told yet, and does nothing
    else to what is there: machines that failed before are decided."""
    pool.s.members, lost, back = changed(pool.view(), former.auto_preserve_failed_max)
    words = [f"no longer preserved: {named(lost)}"] if lost else []
    return [*words, f"still preserved: {named(back)}"] if back else words


def _mark_for_deletion(pool: PoolEntity, annotations: Mapping[str, str]) -> list[str]:
    """cluster-autoscaler's list of machines that shall go, each with a time; one that cannot be read means now.
    Machines that it names and that are not there are already gone."""
    marked = []
    for entry in filter(None, annotations.get(TRIGGER_DELETION_ANNOTATION, "").split(",")):
        name, _, time = entry.strip().partition("~")
        if name in pool.s.members and pool.s.members[name].marked is None:
            pool.s.members[name] = pool.s.members[name]._replace(marked=read_time(time) or workflow.now())
            marked.append(name)
    return [f"marked for deletion: {', '.join(marked)}"] if marked else []


def scale(pool: PoolEntity, intent: ScaleIntent) -> str:
    state, now = pool.s, workflow.now()
    words = []
    if intent.replicas is not None and intent.replicas != state.spec.replicas:
        words.append(f"replicas {state.spec.replicas} → {intent.replicas}")
        state.spec = state.spec.model_copy(update={"replicas": intent.replicas})
    for name in intent.remove:
        state.members[name] = state.members[name]._replace(marked=state.members[name].marked or now, removed=True)
    if intent.remove:
        words.append(f"marked for deletion: {', '.join(intent.remove)}")
    if not words:
        return f"pool {state.name} already has {state.spec.replicas} replicas"
    _applied(pool, intent, "; ".join(words))
    return f"scaled; {'; '.join(words)}{_but(pool)}"


def _but(pool: PoolEntity, rolls: bool = False, falls_asleep: bool = False) -> str:
    """Why it has no effect for now."""
    state = pool.s
    words = []
    if state.spec.hibernated and not falls_asleep:
        words.append(f"it is hibernated, and this applies once it is woken: {typed(state, 'wake pool')}")
    if rolls and pool.spec.paused:
        words.append(f"its rollouts are paused: {typed(state, 'rollout resume')}")
    elif rolls:
        words += [f"it waits: {w.message}" for w in holding(_to_come(pool))]
    if state.news is not None and state.news.paused:
        words.append(f"the cluster is paused: `hostler resume cluster {state.cluster}`")
    return "".join(f"; {w}" for w in words)


def _to_come(pool: PoolEntity) -> View:
    """The pool with the rollout that begins now, before the loop has seen it."""
    now, observed = workflow.now(), pool.observed()
    return View(replace(observed, rollout=progress.follow(observed, pool.spec, now)), pool.spec, now)


def undo(pool: PoolEntity, intent: UndoIntent) -> str:
    wanted = wanted_by_undo(pool.s.revisions, intent.to)
    why = f"{wanted.reason}{f': {intent.reason}' if intent.reason else ''}"
    change = go_back(pool, replace(wanted, requested_by=intent.requested_by, reason=why))
    return "; ".join(filter(None, [wanted.reason, change.words])) + _but(pool, rolls=bool(change.rolls))


def restart(pool: PoolEntity, intent: Intent) -> str:
    """Makes new machines, though nothing else differs."""
    state = pool.s
    newest = state.revisions[-1] if state.revisions else None
    if newest is None:
        return "there is nothing to restart yet"
    why = intent.reason or "restarted"
    change = want(
        pool, Wanted(newest.template, newest.machine_class, workflow.now().isoformat(), intent.requested_by, why)
    )
    return f"restarted; {change.words}{_but(pool, rolls=bool(change.rolls))}"


def pause(pool: PoolEntity, intent: Intent) -> str:
    state = pool.s
    if state.paused:
        return f"rollouts of pool {state.name} are already paused{f' by {state.paused_by}' if state.paused_by else ''}"
    state.paused, state.paused_by = True, intent.requested_by
    _applied(pool, intent, "rollouts paused")
    return f"paused; no rollout of pool {state.name} begins or continues until {typed(state, 'rollout resume')}"


def resume(pool: PoolEntity, intent: ResumeIntent) -> str:
    """Goes past whatever holds the rollout up: a pause, the canary, an abort, lost machines, the deadline, a back-off
    because machines fail before they have lasted; `now`: the pool before it, and the time outside its windows. What a
    person must approve stays to be approved, and a freeze is ended by its own word."""
    state = pool.s
    held = [w.reason for w in state.waits]
    state.paused, state.paused_by = False, ""
    state.spec = state.spec.model_copy(update={"paused": False})
    tried = _try_again(pool) + _open(pool, intent) + _take_turn(pool, intent)
    if state.rollout is None:
        _applied(pool, intent, f"rollouts resumed{tried}")
        return f"resumed; pool {state.name} has no rollout in progress{tried}"
    state.rollout = progress.resume(state.rollout, pool.observed(), pool.spec, workflow.now(), intent.now)
    _applied(
        pool, intent, f"rollout of revision {state.rollout.revision} resumed{f' from {held[0]}' if held else ''}{tried}"
    )
    return f"resumed; the rollout of revision {state.rollout.revision} continues{tried}{_but(pool, rolls=True)}"


def _open(pool: PoolEntity, intent: ResumeIntent) -> str:
    """Opens a window now, where the pool has windows."""
    now = workflow.now()
    if not intent.now or not pool.spec.maintenance.windows:
        return ""
    pool.s.opened = Opening(begin=now, end=later(now, intent.span))
    return f"; rollouts and hot updates may begin until {utc(pool.s.opened.end)}"


def _take_turn(pool: PoolEntity, intent: ResumeIntent) -> str:
    """Waits no longer for the machines of the pool before."""
    turn = pool.turn
    if not intent.now or turn is None:
        return ""
    pool.s.turn = pool.s.template
    return f"; {some(turn.waiting)} take the changed template without waiting for those of pool {turn.pool}"


def _try_again(pool: PoolEntity) -> str:
    speed = pace.of(pool.s.pace, pool.making)
    if not (pool.braked and speed.suspect):
        return ""
    pool.s.pace = pace.forgive(speed)
    return f"; machines are created again, although the last {speed.joins_failed} failed early"


def abort(pool: PoolEntity, intent: Intent) -> str:
    state = pool.s
    assert state.rollout is not None
    state.rollout = state.rollout.model_copy(update={"gate": Gate.ABORTED})
    _applied(pool, intent, f"rollout of revision {state.rollout.revision} aborted")
    return (
        f"aborted; the machines of older revisions stay. {typed(state, 'rollout undo')} goes back, "
        f"{typed(state, 'rollout resume')} continues"
    )


def approve(pool: PoolEntity, intent: VerdictIntent) -> str:
    state = pool.s
    assert state.rollout is not None
    assert state.rollout.consent is not None
    consent = state.rollout.consent.model_copy(
        update={"given": workflow.now(), "by": intent.requested_by, "reason": intent.reason}
    )
    state.rollout = state.rollout.model_copy(update={"consent": consent, "progress_at": workflow.now()})
    pool.tell_story("Approved", f"revision {state.rollout.revision} is {consent.words}")
    return f"approved; the rollout of revision {state.rollout.revision} continues{_but(pool, rolls=True)}"


def reject(pool: PoolEntity, intent: VerdictIntent) -> str:
    state = pool.s
    assert state.rollout is not None
    assert state.rollout.consent is not None
    consent = state.rollout.consent.model_copy(
        update={"rejected": workflow.now(), "by": intent.requested_by, "reason": intent.reason}
    )
    state.rollout = state.rollout.model_copy(update={"gate": Gate.ABORTED, "consent": consent})
    pool.tell_story("Rejected", f"revision {state.rollout.revision} is {consent.words}; its rollout is aborted")
    return (
        f"rejected; the machines of older revisions stay. {typed(state, 'rollout undo')} goes back, "
        f"{typed(state, 'rollout resume')} asks for approval anew"
    )


def freeze(pool: PoolEntity, intent: FreezeIntent) -> str:
    state = pool.s
    former, state.freeze = state.freeze, intent.begun(workflow.now())
    pool.note("PoolFrozen", state.freeze.words)
    instead = f" (before: {former.words})" if former is not None and former.holds(workflow.now()) else ""
    return (
        f"frozen {state.freeze.words}{instead}; no rollout and no hot update of pool {state.name} begins or continues "
        f"until then or {typed(state, 'unfreeze pool')}"
    )


def unfreeze(pool: PoolEntity, intent: Intent) -> str:
    state = pool.s
    if state.freeze is None or not state.freeze.holds(workflow.now()):
        state.freeze = None
        return f"pool {state.name} is not frozen{_but(pool, rolls=True)}"
    state.freeze = None
    _applied(pool, intent, "no longer frozen")
    return f"no longer frozen{_but(pool, rolls=True)}"


def hibernate(pool: PoolEntity, intent: Intent) -> str:
    state = pool.s
    if state.spec.hibernated:
        return f"pool {state.name} is already hibernated"
    state.spec = state.spec.model_copy(update={"hibernated": True})
    _applied(pool, intent, "hibernated")
    return f"hibernated: {some(len(state.members))} to delete; they come back with {typed(state, 'wake pool')}"


def wake(pool: PoolEntity, intent: Intent) -> str:
    state = pool.s
    if not state.spec.hibernated:
        return f"pool {state.name} is not hibernated"
    state.spec = state.spec.model_copy(update={"hibernated": False})
    _applied(pool, intent, "woken")
    return f"woken: {some(state.spec.replicas)} to create{_but(pool)}"


def delete(pool: PoolEntity, intent: DeleteIntent) -> str:
    state = pool.s
    words = some(len(state.members))
    if state.deleted and (state.force or not intent.force):
        return f"pool {state.name} is already being deleted; {words} left"
    state.deleted, state.force = True, state.force or intent.force
    by = by_whom(intent.requested_by, intent.reason)
    pool.note("DeleteAsked", f"with {words}{by}")
    if intent.force:
        pool.deadlines["check"] = workflow.now()  # those on their way out hear of it too
    return f"pool {state.name} is being deleted{' with force' if intent.force else ''}, with {words}"

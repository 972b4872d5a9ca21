"""What a person's wish does to a pool, in words for the answer; and what is refused, with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from temporalio import workflow

from workflows.pool.details import typed
from workflows.pool.entity import PoolEntity
from workflows.pool.revise import go_back, take_spec, want

with workflow.unsafe.imports_passed_through():
    from planners.fleet import pace
    from planners.pool import progress
    from planners.pool.preservation import changed
    from planners.pool.revisions import Wanted
    from planners.pool.revisions import undo as wanted_by_undo
    from planners.words import named, some
    from resources.base import read_time
    from resources.intents import Intent
    from resources.machine.intents import DeleteIntent
    from resources.machine_class.state import concurrency_of
    from resources.names import TRIGGER_DELETION_ANNOTATION
    from resources.pool.intents import PoolIntent, ScaleIntent, UndoIntent
    from resources.pool.manifest import MachineDeploymentSpec
    from resources.pool.state import Gate

ORDINARY = ("paused", "hibernated")
"""Fields of the spec that have words of their own."""


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse_change(p: PoolEntity, intent: Intent) -> str | None:
    s = p.s
    if s.deleted:
        return f"pool {s.name} is being deleted; apply it again when it is gone"
    return None


def refuse_annotations(annotations: Mapping[str, str]) -> str | None:
    try:
        concurrency_of(annotations)
    except ValueError as e:
        return str(e)
    return None


def refuse_apply(p: PoolEntity, intent: PoolIntent) -> str | None:
    if refusal := refuse_change(p, intent):
        return refusal
    name, given = intent.spec.template.spec.class_.name, intent.machine_class.name
    if name != given:
        return f"pool {p.s.name}: machineClass.name: the template names class {name}, not {given}"
    refusal = refuse_annotations(intent.annotations)
    return f"pool {p.s.name}: {refusal}" if refusal else None


def refuse_scale(p: PoolEntity, intent: ScaleIntent) -> str | None:
    s = p.s
    if refusal := refuse_change(p, intent):
        return refusal
    if intent.current is not None and intent.current != s.spec.replicas:
        return f"pool {s.name} has {s.spec.replicas} replicas, not {intent.current}: nothing was changed"
    if strangers := sorted(set(intent.remove) - set(s.members)):
        all_of_it = f"`hostler get machines --pool {s.name} --cluster {s.cluster}`"
        return f"pool {s.name} has no machine {', '.join(strangers)}; {all_of_it} lists them"
    return None


def refuse_undo(p: PoolEntity, intent: UndoIntent) -> str | None:
    if refusal := refuse_change(p, intent):
        return refusal
    if not p.s.revisions:
        return f"pool {p.s.name} has no revision yet"
    try:
        wanted_by_undo(p.s.revisions, intent.to)
    except ValueError as e:
        return f"pool {p.s.name}: {e}"
    return None


def refuse_abort(p: PoolEntity, intent: Intent) -> str | None:
    if refusal := refuse_change(p, intent):
        return refusal
    if p.s.rollout is None:
        return f"pool {p.s.name} has no rollout to abort"
    return None


# -- wishes -----------------------------------------------------------------------------------------------------------


def apply(p: PoolEntity, intent: PoolIntent) -> str:
    s = p.s
    former = s.spec
    meta = intent.namespace, intent.labels, intent.annotations
    same_meta = meta == (s.namespace, s.labels, s.annotations)
    s.namespace, s.labels, s.annotations = meta
    marked = _mark_for_deletion(p, intent.annotations)
    change = take_spec(p, intent.spec, intent.machine_class, intent.requested_by, intent.reason)
    taken = _take_slots(p, former)
    words = [*marked, *_changes(former, s.spec), *taken, *filter(None, [change.words])]
    if not words:
        return "unchanged" if same_meta and former == s.spec else "configured"
    _applied(p, intent, "; ".join(words))
    falls_asleep = s.spec.hibernated and not former.hibernated
    return f"configured; {'; '.join(words)}{_but(p, rolls=bool(change.rolls), falls_asleep=falls_asleep)}"


def _applied(p: PoolEntity, intent: Intent, words: str) -> None:
    by = f" by {intent.requested_by}" if intent.requested_by else ""
    why = f" ({intent.reason})" if intent.reason else ""
    p.note("Applied", f"{words}{by}{why}")


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


def _take_slots(p: PoolEntity, former: MachineDeploymentSpec) -> list[str]:
    """Takes the slots of a lower autoPreserveFailedMax. A higher one takes back what was not told yet, and does nothing
    else to what is there: machines that failed before are decided."""
    p.s.members, lost, back = changed(p.view(), former.auto_preserve_failed_max)
    words = [f"no longer preserved: {named(lost)}"] if lost else []
    return [*words, f"still preserved: {named(back)}"] if back else words


def _mark_for_deletion(p: PoolEntity, annotations: Mapping[str, str]) -> list[str]:
    """cluster-autoscaler's list of machines that shall go, each with a time; one that cannot be read means now.
    Machines that it names and that are not there are already gone."""
    marked = []
    for entry in filter(None, annotations.get(TRIGGER_DELETION_ANNOTATION, "").split(",")):
        name, _, time = entry.strip().partition("~")
        if name in p.s.members and p.s.members[name].marked is None:
            p.s.members[name] = p.s.members[name]._replace(marked=read_time(time) or workflow.now())
            marked.append(name)
    return [f"marked for deletion: {', '.join(marked)}"] if marked else []


def scale(p: PoolEntity, intent: ScaleIntent) -> str:
    s, now = p.s, workflow.now()
    words = []
    if intent.replicas is not None and intent.replicas != s.spec.replicas:
        words.append(f"replicas {s.spec.replicas} → {intent.replicas}")
        s.spec = s.spec.model_copy(update={"replicas": intent.replicas})
    for name in intent.remove:
        s.members[name] = s.members[name]._replace(marked=s.members[name].marked or now, removed=True)
    if intent.remove:
        words.append(f"marked for deletion: {', '.join(intent.remove)}")
    if not words:
        return f"pool {s.name} already has {s.spec.replicas} replicas"
    _applied(p, intent, "; ".join(words))
    return f"scaled; {'; '.join(words)}{_but(p)}"


def _but(p: PoolEntity, rolls: bool = False, falls_asleep: bool = False) -> str:
    """Why it has no effect for now."""
    s = p.s
    words = []
    if s.spec.hibernated and not falls_asleep:
        words.append(f"it is hibernated, and this applies once it is woken: {typed(s, 'wake pool')}")
    if rolls and p.spec.paused:
        words.append(f"its rollouts are paused: {typed(s, 'rollout resume')}")
    if s.news is not None and s.news.paused:
        words.append(f"the cluster is paused: `hostler resume cluster {s.cluster}`")
    return "".join(f"; {w}" for w in words)


def undo(p: PoolEntity, intent: UndoIntent) -> str:
    wanted = wanted_by_undo(p.s.revisions, intent.to)
    why = f"{wanted.reason}{f': {intent.reason}' if intent.reason else ''}"
    change = go_back(p, replace(wanted, requested_by=intent.requested_by, reason=why))
    return "; ".join(filter(None, [wanted.reason, change.words])) + _but(p, rolls=bool(change.rolls))


def restart(p: PoolEntity, intent: Intent) -> str:
    """Makes new machines, though nothing else differs."""
    s = p.s
    newest = s.revisions[-1] if s.revisions else None
    if newest is None:
        return "there is nothing to restart yet"
    why = intent.reason or "restarted"
    change = want(
        p, Wanted(newest.template, newest.machine_class, workflow.now().isoformat(), intent.requested_by, why)
    )
    return f"restarted; {change.words}{_but(p, rolls=bool(change.rolls))}"


def pause(p: PoolEntity, intent: Intent) -> str:
    s = p.s
    if s.paused:
        return f"rollouts of pool {s.name} are already paused{f' by {s.paused_by}' if s.paused_by else ''}"
    s.paused, s.paused_by = True, intent.requested_by
    _applied(p, intent, "rollouts paused")
    return f"paused; no rollout of pool {s.name} begins or continues until {typed(s, 'rollout resume')}"


def resume(p: PoolEntity, intent: Intent) -> str:
    """Goes past whatever holds the rollout up: a pause, the canary, an abort, lost machines, the deadline, a back-off
    because machines fail before they have lasted."""
    s = p.s
    held = [w.reason for w in s.waits]
    s.paused, s.paused_by = False, ""
    s.spec = s.spec.model_copy(update={"paused": False})
    tried = _try_again(p)
    if s.rollout is None:
        _applied(p, intent, f"rollouts resumed{tried}")
        return f"resumed; pool {s.name} has no rollout in progress{tried}"
    s.rollout = progress.resume(s.rollout, p.observed(), p.spec, workflow.now())
    _applied(p, intent, f"rollout of revision {s.rollout.revision} resumed{f' from {held[0]}' if held else ''}{tried}")
    return f"resumed; the rollout of revision {s.rollout.revision} continues{tried}{_but(p)}"


def _try_again(p: PoolEntity) -> str:
    speed = pace.of(p.s.pace, p.s.revision)
    if not (p.braked and speed.suspect):
        return ""
    p.s.pace = pace.forgive(speed)
    return f"; machines are created again, although the last {speed.joins_failed} failed early"


def abort(p: PoolEntity, intent: Intent) -> str:
    s = p.s
    assert s.rollout is not None
    s.rollout = s.rollout.model_copy(update={"gate": Gate.ABORTED})
    _applied(p, intent, f"rollout of revision {s.rollout.revision} aborted")
    return (
        f"aborted; the machines of older revisions stay. {typed(s, 'rollout undo')} goes back, "
        f"{typed(s, 'rollout resume')} continues"
    )


def hibernate(p: PoolEntity, intent: Intent) -> str:
    s = p.s
    if s.spec.hibernated:
        return f"pool {s.name} is already hibernated"
    s.spec = s.spec.model_copy(update={"hibernated": True})
    _applied(p, intent, "hibernated")
    return f"hibernated: {some(len(s.members))} to delete; they come back with {typed(s, 'wake pool')}"


def wake(p: PoolEntity, intent: Intent) -> str:
    s = p.s
    if not s.spec.hibernated:
        return f"pool {s.name} is not hibernated"
    s.spec = s.spec.model_copy(update={"hibernated": False})
    _applied(p, intent, "woken")
    return f"woken: {some(s.spec.replicas)} to create{_but(p)}"


def delete(p: PoolEntity, intent: DeleteIntent) -> str:
    s = p.s
    words = some(len(s.members))
    if s.deleted and (s.force or not intent.force):
        return f"pool {s.name} is already being deleted; {words} left"
    s.deleted, s.force = True, s.force or intent.force
    by = f" by {intent.requested_by}" if intent.requested_by else ""
    p.note("DeleteAsked", f"with {words}{by}{f': {intent.reason}' if intent.reason else ''}")
    if intent.force:
        p.deadlines["check"] = workflow.now()  # those on their way out hear of it too
    return f"pool {s.name} is being deleted{' with force' if intent.force else ''}, with {words}"

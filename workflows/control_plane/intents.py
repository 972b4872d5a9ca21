"""What a person's wish does to a control plane, in words for the answer; and what is refused, with what to do
instead."""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

from workflows.control_plane.entity import ControlPlaneEntity
from workflows.fleet import revise

with workflow.unsafe.imports_passed_through():
    from planners.control_plane.holding import without_hold
    from planners.fleet import pace
    from planners.fleet.revisions import Wanted, wanted_by_undo
    from planners.words import named, some
    from resources.control_plane.intents import ApplyControlPlane
    from resources.control_plane.spec import ControlPlaneSpec, State, hold_of, refusals
    from resources.intents import Intent
    from resources.machine_class.state import concurrency_of
    from resources.pool.intents import UndoIntent
    from resources.words import by_whom


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse_change(cp: ControlPlaneEntity, intent: Intent) -> str | None:
    if cp.s.deleted:
        return f"the control plane of {cp.s.cluster} is being deleted; apply it again when it is gone"
    return None


def refuse_apply(cp: ControlPlaneEntity, intent: ApplyControlPlane) -> str | None:
    if refusal := refuse_change(cp, intent):
        return refusal
    name, given = intent.spec.template.spec.class_.name, intent.machine_class.name
    if name != given:
        return f"machineClass.name: the template names class {name}, not {given}"
    try:
        concurrency_of(intent.annotations)
    except ValueError as e:
        return str(e)
    return "; ".join(refusals(cp.s.spec, intent.spec)) or None


def refuse_undo(cp: ControlPlaneEntity, intent: UndoIntent) -> str | None:
    if refusal := refuse_change(cp, intent):
        return refusal
    if not cp.s.revisions:
        return "the control plane has no revision yet"
    try:
        wanted_by_undo(cp.s.revisions, intent.to)
    except ValueError as e:
        return f"the control plane: {e}"
    return None


def refuse_delete(cp: ControlPlaneEntity, intent: Intent) -> str | None:
    """One that is deleted lets its machines go, and with them those that it holds: their etcd members would go with no
    replacement."""
    held = [host.name for host in cp.observed().hosts if host.held]
    if not held or cp.s.deleted:
        return None
    return (
        f"{named(held)} is being deleted and waits for its replacement, which nobody would make any more: delete the "
        f"set when it has been replaced, or let it go: hostler delete machine {held[0]} --force --cluster "
        f"{cp.s.cluster}"
    )


# -- wishes -----------------------------------------------------------------------------------------------------------


def apply(cp: ControlPlaneEntity, intent: ApplyControlPlane) -> str:
    s = cp.s
    former, s.spec = s.spec, intent.spec
    meta = intent.namespace, intent.labels, intent.annotations
    same_meta = meta == (s.namespace, s.labels, s.annotations)
    s.namespace, s.labels, s.annotations = meta
    change = _take_spec(cp, former, intent)
    words = [*_changes(former, s.spec), *filter(None, [change.words])]
    if not words:
        return "unchanged" if same_meta and former == s.spec else "configured"
    _applied(cp, intent, "; ".join(words))
    return f"configured; {'; '.join(words)}{_but(cp)}"


def _take_spec(cp: ControlPlaneEntity, former: ControlPlaneSpec, intent: ApplyControlPlane) -> revise.Change:
    s, by, why = cp.s, intent.requested_by, intent.reason
    another = former.template.spec.class_ != s.spec.template.spec.class_
    rolls = revise.take_class(cp, cp.template, intent.machine_class, by, why, another)
    if rolls.revision or not s.revisions:
        return rolls
    newest = s.revisions[-1]
    return revise.want(cp, Wanted(cp.template, newest.machine_class, newest.restart, by, why))


def _changes(former: ControlPlaneSpec, spec: ControlPlaneSpec) -> list[str]:
    words = [] if former.state is spec.state else [f"{former.state} → {spec.state}"]
    words += [] if former.strategy is spec.strategy else [f"strategy {former.strategy} → {spec.strategy}"]
    for name, field in type(spec).model_fields.items():
        if name not in ("state", "strategy", "template") and getattr(former, name) != getattr(spec, name):
            words.append(f"{field.alias or name} changed")
    return words


def _applied(cp: ControlPlaneEntity, intent: Intent, words: str) -> None:
    by = by_whom(intent.requested_by)
    why = f" ({intent.reason})" if intent.reason else ""
    cp.note("Applied", f"{words}{by}{why}")


def _but(cp: ControlPlaneEntity) -> str:
    """Why it has no effect for now."""
    s = cp.s
    if s.spec.state is State.INACTIVE:
        return "; it is Inactive, and only looks on"
    if s.news is not None and s.news.paused:
        return f"; the cluster is paused: `hostler resume cluster {s.cluster}`"
    return f"; it is paused: `hostler rollout resume controlplane --cluster {s.cluster}`" if s.paused else ""


def undo(cp: ControlPlaneEntity, intent: UndoIntent) -> str:
    s = cp.s
    wanted = wanted_by_undo(s.revisions, intent.to)
    why = f"{wanted.reason}{f': {intent.reason}' if intent.reason else ''}"
    plain = without_hold(wanted.template, hold_of(cp.owner.user))
    s.spec = s.spec.model_copy(update={"template": plain})
    wanted = replace(wanted, template=cp.template, requested_by=intent.requested_by, reason=why)
    change = revise.go_back(cp, wanted)
    return "; ".join(filter(None, [wanted_by(intent), change.words])) + _but(cp)


def wanted_by(intent: UndoIntent) -> str:
    return f"back to revision {intent.to}" if intent.to is not None else "back to the revision before"


def pause(cp: ControlPlaneEntity, intent: Intent) -> str:
    s = cp.s
    if s.paused:
        return f"it is already paused{f' by {s.paused_by}' if s.paused_by else ''}"
    s.paused, s.paused_by = True, intent.requested_by
    _applied(cp, intent, "paused")
    return (
        "paused; no machine of the control plane is created or deleted until `hostler rollout resume controlplane "
        f"--cluster {s.cluster}`"
    )


def resume(cp: ControlPlaneEntity, intent: Intent) -> str:
    """Goes past a pause, and past a back-off because machines failed."""
    s = cp.s
    was, s.paused, s.paused_by = s.paused, False, ""
    speed = pace.of(s.pace, s.revision)
    again = ""
    if speed.suspect:
        s.pace = pace.forgive(speed)
        again = f"; machines are created again, although the last {speed.joins_failed} failed early"
    if not (was or again):
        return "it is not paused"
    _applied(cp, intent, f"resumed{again}")
    return f"resumed{again}{_but(cp)}"


def delete(cp: ControlPlaneEntity, intent: Intent) -> str:
    s = cp.s
    if s.deleted:
        return "the control plane is already being deleted; its machines stay"
    s.deleted = True
    by = by_whom(intent.requested_by, intent.reason)
    words = some(len(s.members))
    cp.note("DeleteAsked", f"its {words} stay{by}")
    return f"the control plane is deleted; its {words} stay, and belong to nobody"

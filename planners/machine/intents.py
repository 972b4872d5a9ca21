"""How an intent changes a machine's deletion and preservation, and why it is refused.

The machine's workflow calls this when an intent arrives; `starter.sdk.machines.recorded` calls it again for each intent
that it finds in a history, when there is no worker to ask. Both get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from planners.machine.preservation import ASKED_FOR, on_node
from resources.base import LONGEST, later
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.preservation import (
    ExtendIntent,
    Preservation,
    PreserveIntent,
    PreserveRequest,
    PreserveValue,
    Release,
    ReleaseIntent,
)
from resources.machine.state import Deletion, MachineState, Phase
from resources.names import PRESERVE_ANNOTATION
from resources.words import utc

PreservationIntent = PreserveIntent | ReleaseIntent | ExtendIntent


def deletion(former: Deletion | None, intent: DeleteIntent, now: datetime) -> Deletion:
    """The deletion after an intent. Force and abandoning the Node are never taken back; a delete after a recreate
    cancels the new life."""
    recreate = isinstance(intent, RecreateIntent)
    if former is None:
        return Deletion(
            time=now,
            requested_by=intent.requested_by,
            reason=intent.reason,
            force=intent.force,
            recreate=recreate,
            abandon_node=intent.abandon_node,
        )
    return former.model_copy(
        update={
            "force": former.force or intent.force,
            "recreate": former.recreate and recreate,
            "abandon_node": former.abandon_node or intent.abandon_node,
        }
    )


def preservation(p: Preservation, intent: PreservationIntent, now: datetime) -> Preservation:
    """The preservation after an intent that is not refused. What follows from it is preservation.py's to decide."""
    match intent:
        case PreserveIntent():
            release = p.release if intent.value == PreserveValue.FALSE else None
            return p.model_copy(update={"own": PreserveRequest.of(intent, now), "release": release})
        case ReleaseIntent():
            made = Release(time=now, requested_by=intent.requested_by, reason=intent.reason)
            return p.model_copy(update={"own": None, "release": made if has_effect(p) else p.release})
        case ExtendIntent():
            until = intent.until or later(now, intent.lasts or timedelta(0))
            return p.model_copy(update={"expiry_time": until, "warned": False})


def by_manifest(
    p: Preservation, former: Mapping[str, str], annotations: Mapping[str, str], who: str, now: datetime
) -> Preservation:
    """The preservation after a manifest, whose annotation `preserve` is the machine's own value; the Node's is stronger
    (seed 003, note 3).

    Only a change of it counts: a manifest that is applied again does not give anew what has been released or has
    expired. Where the annotation goes, its request goes, and not one that somebody has made since. A value that is none
    counts as no annotation (MCM P8).
    """
    before, after = (value_in(one) for one in (former, annotations))
    if before == after:
        return p
    if after is None:
        return p.model_copy(update={"own": None}) if p.own is not None and p.own.by_manifest else p
    intent = PreserveIntent(value=after, requested_by=who, reason="by the annotation of its manifest")
    asked = preservation(p, intent, now)
    assert asked.own is not None
    return asked.model_copy(update={"own": asked.own.model_copy(update={"by_manifest": True})})


def value_in(annotations: Mapping[str, str]) -> PreserveValue | None:
    """The value of the annotation `preserve`, where it is one."""
    value = annotations.get(PRESERVE_ANNOTATION)
    return PreserveValue(value) if value in tuple(PreserveValue) else None


def manifest_words(s: MachineState, annotations: Mapping[str, str]) -> str:
    """What a changed annotation `preserve` of a manifest means for the machine; "" where it has not changed."""
    value = value_in(annotations)
    if value == value_in(s.annotations):
        return ""
    own, there = s.status.preserve.own, on_node(s.status.preserve.node_value, s.status.preserve.last)
    if value is None:
        return f"preserve={own.value} is withdrawn" if own is not None and own.by_manifest else ""
    stronger = f", but its node's annotation preserve={there} takes precedence" if there not in ("", value) else ""
    return f"preserve={value} is the machine's own value{stronger}"


# -- why not ----------------------------------------------------------------------------------------------------------


def refusal(state: MachineState, intent: PreservationIntent, now: datetime) -> str:
    """Why an intent is refused, and what to do; "" where nothing speaks against it.

    A second arrival is never refused: it gets the first answer.
    """
    if intent.id and intent.id in state.intents:
        return ""
    match intent:
        case PreserveIntent():
            return _no_preservation(state, intent, now)
        case ReleaseIntent():
            return _no_release(state)
        case ExtendIntent():
            return _no_extension(state, intent, now)


def _no_preservation(state: MachineState, intent: PreserveIntent, now: datetime) -> str:
    p = state.status.preserve
    if state.deletion is not None:
        return f"machine {state.name} is being deleted; it can no longer be preserved"
    if wrong := _wrong_time(intent.lasts, intent.until, now):
        return wrong
    there, timed = on_node(p.node_value, p.last), intent.lasts is not None or intent.until is not None
    other = bool(there) and there != intent.value
    if p.expiry_time is not None and intent.value != PreserveValue.FALSE and (other or timed):
        return (
            f"machine {state.name} is preserved already, until {utc(p.expiry_time)}; to change that time: `hostler "
            f"extend {state.name} --cluster {state.cluster} --for 24h`"
        )
    return _stronger(state, there, intent.value, timed) if other else ""


def _stronger(s: MachineState, there: str, value: PreserveValue, timed: bool) -> str:
    """Says that the Node's annotation is stronger. It never says how to remove it: that would end what the annotation
    has caused, or what it keeps from being deleted."""
    node = s.node.name if s.node else ""
    then = ", then ask again" if timed else ""
    if value == PreserveValue.FALSE and preserved_failed(s):
        then = "; it has Failed, so its VM is deleted then"
    return (
        f"node {node} has the annotation preserve={there}, which takes precedence; change the annotation: `kubectl "
        f"annotate --overwrite node {node} {PRESERVE_ANNOTATION}={value}`{then}"
    )


def _no_release(s: MachineState) -> str:
    if s.deletion is not None:
        return f"machine {s.name} is already being deleted"
    if s.status.preserve.own is None and not has_effect(s.status.preserve):
        return f"machine {s.name} is not preserved, and nobody has asked for that; there is nothing to release"
    return ""


def _no_extension(s: MachineState, intent: ExtendIntent, now: datetime) -> str:
    if not can_be_extended(s):
        return f"machine {s.name} is not preserved; `hostler preserve {s.name} --cluster {s.cluster}` preserves it"
    if s.status.preserve.release is not None:
        return f"machine {s.name} is being released"
    if intent.lasts is None and intent.until is None:
        return "give either a duration or an end time"
    return _wrong_time(intent.lasts, intent.until, now)


def _wrong_time(lasts: timedelta | None, until: datetime | None, now: datetime) -> str:
    if lasts is not None and until is not None:
        return "both a duration and an end time are given; give one"
    if until is not None and until <= now:
        return f"{utc(until)} has passed"
    if until is not None and until > later(now, LONGEST):  # `lasts` is bounded by its type
        return f"a preservation can last at most {LONGEST.days} days"
    return ""


# -- what is there ----------------------------------------------------------------------------------------------------


def has_effect(p: Preservation) -> bool:
    """Whether there is more to release than the machine's own request: it is preserved, or its Node asks for it."""
    return p.expiry_time is not None or on_node(p.node_value, p.last) in ASKED_FOR


def can_be_extended(s: MachineState) -> bool:
    return s.deletion is None and s.status.preserve.expiry_time is not None


def preserved_failed(s: MachineState) -> bool:
    """Whether the end of its preservation deletes its VM."""
    return s.status.phase is Phase.FAILED and s.status.preserve.expiry_time is not None

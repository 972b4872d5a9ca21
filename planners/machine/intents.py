"""How an intent changes a machine's deletion and preservation, and why it is refused.

The machine's workflow calls this when an intent arrives; `starter.sdk.machines.recorded` calls it again for each intent
that it finds in a history, when there is no worker to ask. Both get the same answer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from planners.machine.preservation import ASKED_FOR, moment, on_node
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


# -- why not ----------------------------------------------------------------------------------------------------------


def refusal(s: MachineState, intent: PreservationIntent, now: datetime) -> str:
    """Why an intent is refused, and what to do; "" where nothing speaks against it.

    A second arrival is never refused: it gets the first answer.
    """
    if intent.id and intent.id in s.intents:
        return ""
    match intent:
        case PreserveIntent():
            return _no_preservation(s, intent, now)
        case ReleaseIntent():
            return _no_release(s)
        case ExtendIntent():
            return _no_extension(s, intent, now)


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
            f"machine {state.name} is preserved already, until {moment(p.expiry_time)}; to change that time: `hostler "
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
        return f"{moment(until)} has passed"
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

"""A machine's state after an intent, for readers of its history who have nobody to ask.

The workflow decides by the same planners when the intent arrives, and does what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.machine import hooks
    from planners.machine.intents import PreservationIntent, by_manifest, deletion, preservation, refusal
    from resources.intents import Intent
    from resources.machine.hooks import HookIntent
    from resources.machine.intents import DeleteIntent
    from resources.machine.preservation import ExtendIntent, Preservation, PreserveIntent, ReleaseIntent
    from resources.machine.state import ApplyIntent, MachineState
    from resources.orders import is_older


def taken(state: MachineState, intent: Intent, time: datetime) -> MachineState:
    """The state after an intent; unchanged if it is refused, or does not change what was asked for."""
    generation = state.machine_class.generation if state.machine_class else 0
    match intent:
        case ApplyIntent() if not is_older(intent.machine_class.generation, generation, time):
            changed = {k: getattr(intent, k) for k in ("spec", "machine_class", "labels", "annotations")}
            return _asked(state, intent.annotations, intent.requested_by, time).model_copy(update=changed)
        case HookIntent():
            return state.model_copy(update={"hooks": hooks.taken(state, intent, time)})
        case DeleteIntent():
            return state.model_copy(update={"deletion": deletion(state.deletion, intent, time)})
        case PreserveIntent() | ReleaseIntent() | ExtendIntent():
            return _once(state, intent, time)
    return state


def begun(state: MachineState, time: datetime) -> MachineState:
    """The state of a new machine with what its manifest asks for; unchanged for one that goes on in another run."""
    if state.created is not None or state.uid:
        return state
    bare = state.model_copy(update={"annotations": {}})
    return _asked(bare, state.annotations, str(state.owner or ""), time).model_copy(
        update={"annotations": state.annotations}
    )


def _asked(s: MachineState, annotations: Mapping[str, str], who: str, time: datetime) -> MachineState:
    preserve = by_manifest(s.status.preserve, s.annotations, annotations, who, time)
    return s.model_copy(update={"status": s.status.model_copy(update={"preserve": preserve})})


def _once(s: MachineState, intent: PreservationIntent, time: datetime) -> MachineState:
    """Applies an intent once: it may come by update and by signal, with another one in between."""
    if intent.id in s.intents or refusal(s, intent, time):
        return s
    intents = {**s.intents, intent.id: ""} if intent.id else s.intents
    preserve = preservation(s.status.preserve, intent, time)
    if preserve.expiry_time is None and preserve.release is not None:  # it has not begun, so its end will not be told
        preserve = Preservation(node_uid=preserve.node_uid)
    status = s.status.model_copy(update={"preserve": preserve})
    return s.model_copy(update={"intents": intents, "status": status})

"""What owners of machines have in common in their histories: a manifest that was applied, and news of their class."""

from __future__ import annotations

from typing import TypeVar

from resources.control_plane.intents import ApplyControlPlane
from resources.fleet.state import FleetState
from resources.machine.state import ClassSnapshot
from resources.pool.intents import PoolIntent

S = TypeVar("S", bound=FleetState)


def applied(state: S, said: PoolIntent | ApplyControlPlane) -> S:
    """The state after a manifest."""
    fields = ("spec", "machine_class", "namespace", "labels", "annotations")
    return state.model_copy(update={field: getattr(said, field) for field in fields})


def with_class(state: S, of: ClassSnapshot) -> S:
    """The state after news of its class; older news than what is known changes nothing."""
    known = state.machine_class
    newer = known is None or known.name != of.name or of.generation > known.generation
    return state.model_copy(update={"machine_class": of}) if newer else state

"""The state of one rollout's story, the only argument of RolloutWorkflow, and its result."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from resources.base import Count, Instant, Name, Text, Value
from resources.fleet.state import FleetWait
from resources.fleet.story import StoryState
from resources.journal import Happening
from resources.orders import OrderTime
from resources.pool.state import Gate, RolloutCounts

__all__ = [
    "RolloutCounts",
    "RolloutEnd",
    "RolloutNews",
    "RolloutOutcome",
    "RolloutResult",
    "RolloutState",
]


class RolloutOutcome(StrEnum):
    COMPLETE = "Complete"
    SUPERSEDED = "Superseded"
    """A newer revision came before it was complete."""
    UNDONE = "Undone"
    """A person went back to a former revision before it was complete."""
    FAILED = "Failed"
    """It cannot be completed: the pool was deleted, or no longer has machines."""


class RolloutNews(Value):
    """The pool's news (signal `news`): how far the rollout is; the steps are those since the last news."""

    counts: RolloutCounts
    steps: list[Happening] = Field(default_factory=list)
    waits: list[FleetWait] = Field(default_factory=list)
    gate: Gate = Gate.OPEN
    stops_at: Instant | None = None
    """When the progress deadline stops it, unless a new machine becomes available."""
    time: OrderTime


class RolloutEnd(Value):
    """The pool's last word (signal `end`)."""

    outcome: RolloutOutcome
    message: Text
    counts: RolloutCounts | None = None
    """None: the counts that were told last."""
    steps: list[Happening] = Field(default_factory=list)
    time: OrderTime


class RolloutState(StoryState):
    revision: Count
    former: list[Count] = Field(default_factory=list)
    """Revisions whose machines it replaces."""
    machine_class: Name = ""
    generation: Count = 0
    requested_by: Text = ""
    reason: Text = ""

    counts: RolloutCounts = Field(default_factory=RolloutCounts)
    gate: Gate = Gate.OPEN
    stops_at: Instant | None = None
    end: RolloutEnd | None = None


class RolloutResult(Value):
    """How a rollout ended."""

    pool: Name
    cluster: Name
    revision: Count
    outcome: RolloutOutcome
    message: Text
    began: Instant
    ended: Instant
    counts: RolloutCounts
    steps: list[Happening] = Field(default_factory=list)
    """The newest steps, each with its reason and numbers."""
    steps_dropped: Count = 0

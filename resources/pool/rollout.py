"""The state of one rollout's story, the only argument of RolloutWorkflow, and its result."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from resources.base import Count, Instant, Key, Model, Name, Text, Value
from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.names import DEFAULT_QUEUE
from resources.orders import OrderTime
from resources.pool.state import Gate, RolloutCounts
from resources.timings import Timings

__all__ = [
    "STEPS_KEPT",
    "RolloutCounts",
    "RolloutEnd",
    "RolloutNews",
    "RolloutOutcome",
    "RolloutResult",
    "RolloutState",
]

STEPS_KEPT = 200
FIRST_STEPS_KEPT = 20
"""How many of a rollout's first steps are kept, besides the newest; those in between are counted."""


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


class RolloutState(Model):
    pool: Name
    cluster: Name
    revision: Count
    former: list[Count] = Field(default_factory=list)
    """Revisions whose machines it replaces."""
    machine_class: Name = ""
    generation: Count = 0
    requested_by: Text = ""
    reason: Text = ""
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    began: Instant | None = None
    counts: RolloutCounts = Field(default_factory=RolloutCounts)
    waits: list[FleetWait] = Field(default_factory=list)
    gate: Gate = Gate.OPEN
    stops_at: Instant | None = None
    steps: list[Happening] = Field(default_factory=list)
    steps_dropped: Count = 0
    end: RolloutEnd | None = None
    news_at: Instant | None = None

    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    parked: Text | None = None
    messages: Count = 0


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

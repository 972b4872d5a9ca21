"""The state of one rollout's story, the only argument of RolloutWorkflow, and its result."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from resources.base import Model, Value
from resources.messages import Happening
from resources.names import DEFAULT_QUEUE
from resources.pool import Gate, PoolWait, RolloutCounts
from resources.timings import Timings

__all__ = [
    "STEPS_KEPT",
    "Outcome",
    "RolloutCounts",
    "RolloutEnd",
    "RolloutNews",
    "RolloutResult",
    "RolloutState",
]

STEPS_KEPT = 200
FIRST_STEPS_KEPT = 20
"""Of a rollout's steps so many of the first ones are kept, and the newest; those between are counted."""


class Outcome(StrEnum):
    COMPLETE = "Complete"
    SUPERSEDED = "Superseded"
    """A newer revision came before it was complete."""
    UNDONE = "Undone"
    """A former revision was gone back to before it was complete."""
    FAILED = "Failed"
    """It cannot be completed: the pool was deleted, or has no machines any more."""


class RolloutNews(Value):
    """From the pool (signal `news`): how far it is; the steps are those since the last news."""

    counts: RolloutCounts
    steps: list[Happening] = Field(default_factory=list)
    waits: list[PoolWait] = Field(default_factory=list)
    gate: Gate = Gate.OPEN
    stops_at: datetime | None = None
    """When the progress deadline stops it, unless a new machine becomes available."""
    time: datetime


class RolloutEnd(Value):
    """From the pool (signal `end`), the last word."""

    outcome: Outcome
    message: str
    counts: RolloutCounts | None = None
    """None: as they were told last."""
    steps: list[Happening] = Field(default_factory=list)
    time: datetime


class RolloutState(Model):
    pool: str
    cluster: str
    revision: int
    former: list[int] = Field(default_factory=list)
    """Revisions whose machines it replaces."""
    machine_class: str = ""
    generation: int = 0
    requested_by: str = ""
    reason: str = ""
    queue_prefix: str = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    began: datetime | None = None
    counts: RolloutCounts = Field(default_factory=RolloutCounts)
    waits: list[PoolWait] = Field(default_factory=list)
    gate: Gate = Gate.OPEN
    stops_at: datetime | None = None
    steps: list[Happening] = Field(default_factory=list)
    steps_dropped: int = 0
    end: RolloutEnd | None = None
    news_at: datetime | None = None

    journal: list[Happening] = Field(default_factory=list)
    intents: dict[str, str] = Field(default_factory=dict)
    deadlines: dict[str, datetime] = Field(default_factory=dict)
    parked: str | None = None
    messages: int = 0


class RolloutResult(Value):
    """What a rollout came to."""

    pool: str
    cluster: str
    revision: int
    outcome: Outcome
    message: str
    began: datetime
    ended: datetime
    counts: RolloutCounts
    steps: list[Happening] = Field(default_factory=list)
    """Each with its reason and numbers; the newest ones."""
    steps_dropped: int = 0

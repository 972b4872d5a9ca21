"""What the stories of rollouts have in common, whoever rolls out: a pool its machines, a config pool its nodes."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Instant, Key, Model, Name, Text
from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.names import DEFAULT_QUEUE
from resources.timings import Timings

STEPS_KEPT = 200
FIRST_STEPS_KEPT = 20
"""How many of a rollout's first steps are kept, besides the newest; those in between are counted."""


class StoryState(Model):
    """The part of a story's state that is told and kept alike."""

    pool: Name
    cluster: Name
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    began: Instant | None = None
    waits: list[FleetWait] = Field(default_factory=list)
    steps: list[Happening] = Field(default_factory=list)
    steps_dropped: Count = 0
    news_at: Instant | None = None

    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    parked: Text | None = None
    messages: Count = 0

"""The state of one cluster: which VM is which machine, and what is known of its API server."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from resources.base import Duration, Model
from resources.messages import Cursor, Happening, Reachability
from resources.names import DEFAULT_QUEUE


class ClusterState(Model):
    """The only argument of ClusterWorkflow. 5,000 machines take about 0.6 MiB."""

    name: str
    queue_prefix: str = DEFAULT_QUEUE
    heartbeat: Duration = timedelta(seconds=10)
    watch_duration: Duration = timedelta(minutes=50)
    machines: dict[str, str] = Field(default_factory=dict)
    """provider_key(providerID) to machine name."""
    cursor: Cursor = Field(default_factory=Cursor)
    api: Reachability | None = None
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[str, str] = Field(default_factory=dict)
    deadlines: dict[str, datetime] = Field(default_factory=dict)
    removed: bool = False
    parked: str | None = None
    """Why the life stands still: an error of our own code."""
    messages: int = 0

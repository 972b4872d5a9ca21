"""The state of one cluster: which VM is which machine, and what is known of its API server."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from resources.base import Duration, Model, Value
from resources.messages import Account, ClusterNews, Cursor, Happening, InstancesOutput, Reachability
from resources.names import DEFAULT_QUEUE
from resources.timings import Timings


class Pause(Value):
    """Everything voluntary of the cluster's pools stands still, because a person wants it."""

    time: datetime
    requested_by: str = ""
    reason: str = ""


class PoolsInput(Value):
    cluster: str


class PoolsFound(Value):
    names: list[str] = Field(default_factory=list)
    """Pools that run."""


class ClusterState(Model):
    """The only argument of ClusterWorkflow. 5,000 machines take about 0.6 MiB."""

    name: str
    queue_prefix: str = DEFAULT_QUEUE
    heartbeat: Duration = timedelta(seconds=10)
    watch_duration: Duration = timedelta(minutes=50)
    machines: dict[str, str] = Field(default_factory=dict)
    """provider_key(providerID) to machine name."""
    cursor: Cursor = Field(default_factory=Cursor)
    cloud_watch: Duration = timedelta(seconds=60)
    accounts: dict[str, Account] = Field(default_factory=dict)
    """Cloud accounts that machines were announced from, by Account.key."""
    vms: dict[str, InstancesOutput] = Field(default_factory=dict)
    """By account: what the last watch of its instances returned."""
    clouds: dict[str, Reachability] = Field(default_factory=dict)
    """By account: whether it answers."""
    api: Reachability | None = None
    pools: dict[str, datetime | None] = Field(default_factory=dict)
    """By name: the time of the news that it was told last; None: it is to be told."""
    searched: bool = False
    """Pools that were there before this workflow have been looked for."""
    pause: Pause | None = None
    news: ClusterNews | None = None
    """What pools are told, since its last change."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[str, str] = Field(default_factory=dict)
    deadlines: dict[str, datetime] = Field(default_factory=dict)
    removed: bool = False
    parked: str | None = None
    """Why the life stands still: an error of our own code."""
    messages: int = 0

    @classmethod
    def of(cls, name: str, queue_prefix: str, timings: Timings) -> ClusterState:
        """A cluster as whoever starts it has its settings."""
        return cls(name=name, queue_prefix=queue_prefix, heartbeat=timings.heartbeat, cloud_watch=timings.cloud_watch)

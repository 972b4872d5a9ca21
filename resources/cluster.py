"""The state of one cluster: whose VMs are in which accounts, what of all that answers, and who is told of it."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from resources.base import Count, Instant, Key, Model, Name, Span, Text, Value
from resources.messages import (
    Account,
    AccountUse,
    ClusterNews,
    Cursor,
    Happening,
    InstancesOutput,
    Intent,
    Reachability,
)
from resources.names import DEFAULT_QUEUE
from resources.timings import Timings


class Pause(Value):
    """Everything voluntary of the cluster's pools stands still, because a person wants it."""

    time: Instant
    requested_by: Text = ""
    reason: Text = ""


class PoolsInput(Value):
    cluster: Name


class PoolsFound(Value):
    names: list[Name] = Field(default_factory=list)
    """Pools that run."""


class UsesInput(Value):
    cluster: Name
    classes: list[Name] | None = None
    """Names of those that are asked about; None: every class that a machine or pool names."""


class UsesFound(Value):
    uses: list[AccountUse] = Field(default_factory=list)
    unused: list[Name] = Field(default_factory=list)
    """Classes that no machine and no pool names."""
    unread: list[Name] = Field(default_factory=list)
    """Classes of which nobody could say where their VMs are."""


class LeftInput(Value):
    cluster: Name


class Left(Value):
    """What a cluster still has, in words; "": nothing."""

    words: Text = ""


class ClusterState(Model):
    """The only argument of ClusterWorkflow. It grows with pools, classes and accounts; of machines it knows none: which
    VM is whose, the watch asks Temporal's list of workflows (HostlerProviderID)."""

    name: Name
    queue_prefix: Name = DEFAULT_QUEUE
    heartbeat: Span = timedelta(seconds=10)
    watch_duration: Span = timedelta(minutes=50)
    machines: dict[Name, Name] = Field(default_factory=dict)
    """provider_key(providerID) to machine name, of a run that an older worker began: the next one begins without."""
    cursor: Cursor = Field(default_factory=Cursor)
    cloud_watch: Span = timedelta(seconds=60)
    accounts: dict[Key, Account] = Field(default_factory=dict)
    """Cloud accounts that are watched, by Account.key: those of `classes`, and no others."""
    classes: dict[Name, list[Name]] = Field(default_factory=dict)
    """By MachineClass: keys of the accounts that its VMs are in. Under "": of machines whose class is not known."""
    unused: list[Name] = Field(default_factory=list)
    """Classes that nobody named at the last look. At the next one they are forgotten: visibility may lag."""
    looked: bool = False
    """Classes that were there before this workflow have been looked for."""
    vms: dict[Key, InstancesOutput] = Field(default_factory=dict)
    """By account: what the last watch of its instances returned."""
    clouds: dict[Key, Reachability] = Field(default_factory=dict)
    """By account: whether it answers."""
    api: Reachability | None = None
    pools: dict[Name, Instant | None] = Field(default_factory=dict)
    """By name: the time of the news that it was told last; None: it is to be told."""
    searched: bool = False
    """Pools that were there before this workflow have been looked for."""
    pause: Pause | None = None
    removal: Intent | None = None
    """Somebody wants its end, and it is not known yet whether something is left."""
    news: ClusterNews | None = None
    """What pools are told, since its last change."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    removed: bool = False
    parked: Text | None = None
    """Why the life stands still: an error of our own code."""
    messages: Count = 0

    @classmethod
    def of(cls, name: str, queue_prefix: str, timings: Timings) -> ClusterState:
        """A cluster as whoever starts it has its settings."""
        return cls(name=name, queue_prefix=queue_prefix, heartbeat=timings.heartbeat, cloud_watch=timings.cloud_watch)

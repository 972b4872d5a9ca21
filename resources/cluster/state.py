"""The state of one cluster: which accounts its VMs are in, what of all this answers, and who is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from resources.base import Count, Instant, Key, Model, Name, Span, Text, Value, Word
from resources.calls.cloud import InstancesOutput
from resources.calls.watch import Cursor
from resources.cluster.accounts import Account, AccountUse
from resources.cluster.news import CloudReachability, ClusterNews, Reachability
from resources.intents import Intent
from resources.journal import Happening
from resources.maintenance import Freeze, FreezeIntent
from resources.names import DEFAULT_QUEUE
from resources.timings import Timings
from resources.words import by_whom, utc


class Pause(Value):
    """Everything voluntary in the cluster's pools is paused, because a person wants it."""

    time: Instant
    requested_by: Text = ""
    reason: Text = ""

    @property
    def words(self) -> str:
        """The time since which it is paused, by whom and why."""
        by = by_whom(self.requested_by, self.reason)
        return f"since {utc(self.time)}{by}"


class Ended(Value):
    """The end of a workflow that did not come to its own end."""

    time: Instant | None = None
    """None where that is no longer known."""
    how: Word
    """Its status, as Temporal has it."""
    unread: bool = False
    """Whether what it knew could not be read."""


class PoolsInput(Value):
    cluster: Name


class PoolsFound(Value):
    names: list[Name] = Field(default_factory=list)
    """Running pools."""


class UsesInput(Value):
    cluster: Name
    classes: list[Name] | None = None
    """The classes in question; None: every class that a machine or pool names."""


class UsesFound(Value):
    uses: list[AccountUse] = Field(default_factory=list)
    unused: list[Name] = Field(default_factory=list)
    """Classes that no machine and no pool names."""
    unread: list[Name] = Field(default_factory=list)
    """Classes for which nobody could say where their VMs are."""
    unplaced: dict[Name, Text] = Field(default_factory=dict)
    """Classes that do not say where their VMs are, so that none of them is watched; and why, in words."""


class LeftInput(Value):
    cluster: Name


class Left(Value):
    """What a cluster still has, in words; "" if nothing."""

    words: Text = ""


class ClusterState(Model):
    """The only argument of ClusterWorkflow. It grows with pools, classes and accounts; it knows no machines: the watch
    asks Temporal's list of workflows (HostlerProviderID) which VM is whose."""

    name: Name
    queue_prefix: Name = DEFAULT_QUEUE
    heartbeat: Span = timedelta(seconds=10)
    watch_duration: Span = timedelta(minutes=50)
    machines: dict[Name, Name] = Field(default_factory=dict)
    """provider_key(providerID) to machine name, in a run that an older worker began: the next one begins without."""
    cursor: Cursor = Field(default_factory=Cursor)
    cloud_watch: Span = timedelta(seconds=60)
    accounts: dict[Key, Account] = Field(default_factory=dict)
    """The cloud accounts being watched, by Account.key: those of `classes`, and no others."""
    classes: dict[Name, list[Key]] = Field(default_factory=dict)
    """For each MachineClass, keys of the accounts that its VMs are in. The class "" stands for machines whose class is
    not known."""
    unused: list[Name] = Field(default_factory=list)
    """Classes that nobody named at the last look. The next one forgets them: visibility may lag."""
    looked: bool = False
    """Whether classes that were there before this workflow have been looked for."""
    vms: dict[Key, InstancesOutput] = Field(default_factory=dict)
    """What the last watch of an account's instances returned, by account."""
    clouds: dict[Key, Reachability] = Field(default_factory=dict)
    """Whether an account answers, by account."""
    api: Reachability | None = None
    pools: dict[Name, Instant | None] = Field(default_factory=dict)
    """The time of the news that a pool was told last, by name; None: it is to be told."""
    searched: bool = False
    """Whether pools that were there before this workflow have been looked for."""
    pause: Pause | None = None
    freeze: Freeze | None = None
    removal: Intent | None = None
    """Somebody wants its end, and it is not yet known whether something is left."""
    news: ClusterNews | None = None
    """What pools are told, since its last change."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    removed: bool = False
    parked: Text | None = None
    """Why the life is parked: an error of our own code."""
    messages: Count = 0
    ended: Ended | None = None
    """How a former workflow of this cluster was ended from outside: nobody was told what was seen since then."""

    def after(self, former: ClusterState | None, ended: Ended) -> ClusterState:
        """This state, to begin with after a former workflow that was ended from outside. What people, pools and
        classes have said to that one stays; what it saw and told is old, and is looked at afresh. None: it could not
        be read."""
        if former is None:
            return self.model_copy(update={"ended": ended.model_copy(update={"unread": True})})
        api = former.api if former.api is not None and not former.api.reachable else None
        return self.model_copy(
            update={
                "ended": ended,
                "journal": former.journal,
                "intents": former.intents,
                "pause": former.pause,
                "freeze": former.freeze,
                "pools": dict.fromkeys(former.pools),
                "classes": former.classes,
                "accounts": former.accounts,
                "api": api,
                "clouds": {key: cloud for key, cloud in former.clouds.items() if not cloud.reachable},
            }
        )

    def told(self, name: str, said: Any, time: datetime) -> ClusterState:
        """The state after one of the messages LAST_WORDS, as far as a later workflow must know it."""
        match said:
            case Intent() if name == "pause":
                pause = self.pause or Pause(time=time, requested_by=said.requested_by, reason=said.reason)
                return self.model_copy(update={"pause": pause})
            case FreezeIntent():
                return self.model_copy(update={"freeze": said.begun(time)})
            case Intent() if name == "unfreeze":
                return self.model_copy(update={"freeze": None})
            case Intent():
                return self.model_copy(update={"pause": None})
            case CloudReachability():
                cloud = Reachability(**said.model_dump(exclude={"account"}))
                return self.model_copy(update={"clouds": {**self.clouds, said.account: cloud}})
            case _:
                return self.model_copy(update={"api": said})

    @classmethod
    def of(cls, name: str, queue_prefix: str, timings: Timings) -> ClusterState:
        """A cluster with the settings of the caller that starts it."""
        return cls(name=name, queue_prefix=queue_prefix, heartbeat=timings.heartbeat, cloud_watch=timings.cloud_watch)


LAST_WORDS: dict[str, type] = {
    "pause": Intent,
    "resume": Intent,
    "freeze": FreezeIntent,
    "unfreeze": Intent,
    "reachability": Reachability,
    "cloud_reachability": CloudReachability,
}
"""Messages to a cluster that tell, together with the state its last run began with, what it knew in the end: its
history always answers, while a query needs a worker, and code that can answer."""

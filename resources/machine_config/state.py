"""The states of the workflows of machine configs: of a cluster, of one pool, and of one rollout; what the last two tell
each other. They hold names of rendered configs, and never what is in one.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from resources.base import Count, Instant, Key, Model, Name, Span, Text, Value
from resources.calls.machine_config import ConfigNews, ConfigsCursor, ConfigTrouble, PoolBrief
from resources.cluster.news import ClusterNews, Reachability
from resources.fleet.member import Flag, Stamp
from resources.fleet.state import FleetWait
from resources.fleet.story import StoryState
from resources.journal import Happening
from resources.machine_config.view import ConfigCounts, MachineSelection
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE
from resources.orders import OrderTime
from resources.packed import Packed
from resources.timings import Timings

NODES_KEPT = 500
"""How many nodes a rollout's story names; the others are counted."""


class Reservation(NamedTuple):
    """A node that this pool has given a config, from the moment of the decision until the node has finished with it.

    The decision is in state before anything is written. Until a look shows the node with the config, the node counts as
    unavailable whatever the look says: the write may still be on its way (I13).
    """

    uid: Key
    """The Node object's uid: another one of the same name is another node."""
    config: Name
    at: Stamp
    seen: Flag = False
    """Whether a look has shown the node with this config as its desired one: then the node speaks for itself."""
    failed: Flag = False
    """Whether it was seen to fail with it, and that was told."""


class ConfigDrain(NamedTuple):
    """What a node has asked for and has not got yet."""

    uid: Key
    wish: Key
    """`drain-<config>` or `uncordon-<config>`."""
    since: Stamp
    blocker: Text = ""
    """What has been in the way for longer than one pass."""


class Loan(Value):
    """A machine that the pool has borrowed from its owner, or asked for: while it updates, it counts as unavailable in
    the owner's budget too."""

    owner: Key
    """`Owner.listed`."""
    node: Name
    asked: Instant
    granted: Instant | None = None
    refused: Text = ""
    """The owner's words, until the next try; "" while it has not answered, or has granted it."""
    again: Instant | None = None
    """When the owner is asked again; for one that is lent, when the owner is told that it still is."""


class ConfigRolloutOutcome(StrEnum):
    COMPLETE = "Complete"
    SUPERSEDED = "Superseded"
    """The pool was given another config before every node had this one."""
    FAILED = "Failed"
    """It cannot be completed: the pool was deleted, or nobody looks after it any longer."""


class ConfigStory(Value):
    """The rollout of one rendered config, as it is told to its workflow."""

    config: Name
    former: Name = ""
    """The config that every node had before, as far as is known."""
    began: Instant
    progress_at: Instant
    """When a node last finished, or the rollout began or was resumed."""
    held_since: Instant | None = None
    """Since when its clock stands still: somebody holds it."""
    started: bool = False
    """Whether its workflow is there."""
    untold: list[Happening] = Field(default_factory=list)
    outcome: Text = ""
    """ConfigRolloutOutcome; "" while it goes on."""
    message: Text = ""


class ConfigRolloutNews(Value):
    """The pool's news (signal `news`): how far the rollout is; the steps are those since the last news."""

    counts: ConfigCounts
    steps: list[Happening] = Field(default_factory=list)
    waits: list[FleetWait] = Field(default_factory=list)
    paused: bool = False
    stalls_at: Instant | None = None
    """When the pool says that it stands still, unless a node finishes before."""
    time: OrderTime


class ConfigRolloutEnd(Value):
    """The pool's last word (signal `end`)."""

    outcome: ConfigRolloutOutcome
    message: Text
    counts: ConfigCounts | None = None
    """None: the counts that were told last."""
    steps: list[Happening] = Field(default_factory=list)
    time: OrderTime


class ConfigRolloutState(StoryState):
    """The only argument of ConfigRolloutWorkflow."""

    config: Name
    former: Name = ""

    counts: ConfigCounts = Field(default_factory=ConfigCounts)
    paused: bool = False
    stalls_at: Instant | None = None
    end: ConfigRolloutEnd | None = None


class ConfigRolloutResult(Value):
    """How the rollout of a rendered config ended."""

    pool: Name
    cluster: Name
    config: Name
    former: Name = ""
    outcome: ConfigRolloutOutcome
    message: Text
    began: Instant
    ended: Instant
    counts: ConfigCounts
    steps: list[Happening] = Field(default_factory=list)
    """The first and the newest steps, each with its reason: which node began when, and when it had finished."""
    steps_dropped: Count = 0


class MachineConfigPoolState(Model):
    """The only argument of MachineConfigPoolWorkflow. A person may start one with plain JSON:

    {"cluster": "demo", "name": "worker"}
    """

    name: Name
    cluster: Name = DEFAULT_CLUSTER
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    created: Instant | None = None
    uid: Key = ""
    """The uid of the MachineConfigPool object that was seen last: another one of its name has another story."""
    generation: Count = 0
    target: Name = ""
    """The rendered config that every node is to have, as it was seen last."""
    completed: Name = ""
    """The rendered config that every node had last."""
    paused: bool = False
    """The object's spec.paused."""
    most: Count = 0
    """maxUnavailable, in nodes."""
    counts: ConfigCounts = Field(default_factory=ConfigCounts)
    seen: Instant | None = None
    """When the nodes were looked at last."""
    version: Count = 0
    """The resourceVersion of that look: an older one decides nothing."""
    reservations: dict[Name, Reservation] = Field(default_factory=dict)
    """What was given to nodes and counts until a look shows it, by node."""
    drains: dict[Name, ConfigDrain] = Field(default_factory=dict)
    """Drains and uncordons under way, by node."""
    selections: list[MachineSelection] = Field(default_factory=list)
    """What the cluster's config pools select by machines."""
    machines: Packed = Field(default_factory=dict)
    """Which config pools select a machine, by its name; several names are joined by a comma."""
    selected: Instant | None = None
    """When those machines were looked up."""
    owners: dict[Name, Key] = Field(default_factory=dict)
    """The owners of machines that are to be borrowed, as `Owner.listed`; "" for one that belongs to nobody."""
    loans: dict[Name, Loan] = Field(default_factory=dict)
    """Machines that were lent by their owners, by machine."""
    returning: dict[Name, Key] = Field(default_factory=dict)
    """Machines that are given back, with their owner, until that has taken it."""
    story: ConfigStory | None = None
    """The rollout of the newest target."""
    former: list[ConfigStory] = Field(default_factory=list)
    """Rollouts that have ended, whose workflows are still to be told."""
    waits: list[FleetWait] = Field(default_factory=list)
    """The waits of the last plan."""
    news: ClusterNews | None = None
    """What the cluster said last."""
    registered: bool = False
    """Whether the cluster knows the pool, and sends it its news."""
    gone: bool = False
    """Whether the object is gone, or nobody looks after the cluster's configs any longer."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    parked: Text | None = None
    messages: Count = 0


class MachineConfigsState(Model):
    """The only argument of MachineConfigsWorkflow. A person may start one with plain JSON:

    {"name": "demo"}
    """

    name: Name = DEFAULT_CLUSTER
    """The cluster."""
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    render_delay: Span = timedelta(seconds=5)
    """How long changes are collected before anything is rendered."""
    watch_duration: Span = timedelta(hours=1)
    """How long one watch lasts; the next one continues it."""
    created: Instant | None = None
    cursor: ConfigsCursor = Field(default_factory=ConfigsCursor)
    pools: dict[Name, PoolBrief] = Field(default_factory=dict)
    """The cluster's MachineConfigPools, as they were seen last."""
    troubles: list[ConfigTrouble] = Field(default_factory=list)
    """What cannot be rendered, and why."""
    waits: list[FleetWait] = Field(default_factory=list)
    changed_at: Instant | None = None
    """When the first of the changes was seen that are not taken up yet."""
    news: ConfigNews | None = None
    """The watch's last word."""
    api: Reachability | None = None
    synced: Instant | None = None
    """When everything was last as it should be, apart from the troubles."""
    living: list[Name] = Field(default_factory=list)
    """Pools whose workflow is there, as far as is known."""
    drains: dict[Name, ConfigDrain] = Field(default_factory=dict)
    """What nodes of no pool have asked for, by node."""
    leaving: list[Name] = Field(default_factory=list)
    """Pools whose object is gone, until their workflow is told."""
    removed: bool = False
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    parked: Text | None = None
    messages: Count = 0

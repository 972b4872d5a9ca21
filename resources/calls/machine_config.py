"""What the activities of machine configs take and return: names and hashes only, never the contents of a config."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from resources.base import Count, Document, Instant, Key, Name, Span, Text, Texts, Value, Word, Words
from resources.calls.watch import Cursor
from resources.journal import Happening
from resources.orders import Order
from resources.packed import Packed
from resources.timings import Timings

# -- the watch --------------------------------------------------------------------------------------------------------


class ConfigsCursor(Value):
    """The position of a watch of machine configs, by kind. MachineConfigsWorkflow carries it, and never opens it."""

    of: dict[Name, Cursor] = Field(default_factory=dict, max_length=10)


class WatchConfigsInput(Value):
    cluster: Name
    workflow_id: Key
    cursor: ConfigsCursor = Field(default_factory=ConfigsCursor)
    duration: Span
    """How long the watch goes on before it returns on its own, so that new code reaches it."""


class ConfigNews(Value):
    """The watch's message to MachineConfigsWorkflow (signal `configs_changed`): something is to be rendered anew."""

    epoch: Order
    """When the watch began, in milliseconds since 1970."""
    seq: Order
    kinds: Words = Field(default_factory=list)
    """Kinds of which an object was made, changed or deleted."""
    pools: list[Name] = Field(default_factory=list, max_length=1000)
    """Every MachineConfigPool that there is."""


class NodesNews(Value):
    """The watch's message to the pools of a Node (signal `nodes_changed`): a fresh look finds something new."""

    epoch: Order
    seq: Order
    nodes: Words = Field(default_factory=list)
    """Names of some of them, for the journal."""


# -- rendering --------------------------------------------------------------------------------------------------------


class SyncInput(Value):
    cluster: Name


class StartPoolsInput(Value):
    """Starts the workflows of MachineConfigPools that have none; one that runs is left alone."""

    cluster: Name
    names: list[Name] = Field(max_length=1000)
    queue_prefix: Name
    timings: Timings


class PoolBrief(Value):
    """A MachineConfigPool as the last pass left it."""

    name: Name
    uid: Key
    target: Name = ""
    """The rendered config that its nodes are to have; "": none has been rendered yet."""
    paused: bool = False
    generation: Count = 0
    """The object's generation, so that its workflow hears of each change."""


class ConfigTrouble(Value):
    """What keeps an object from being rendered."""

    about: Word
    """Kind and name, e.g. `MachineConfigPool/worker`."""
    reason: Word
    message: Text


class SyncOutput(Value):
    pools: list[PoolBrief] = Field(default_factory=list, max_length=1000)
    written: Texts = Field(default_factory=list)
    """What was made, changed or deleted, in words."""
    troubles: list[ConfigTrouble] = Field(default_factory=list, max_length=1000)
    again: Span | None = None
    """When to look again even if nothing changes: a collection is due, or a pass ended before all was written."""


# -- a pool -----------------------------------------------------------------------------------------------------------


class ReadPoolInput(Value):
    cluster: Name
    pool: Name
    keep: list[Name] = Field(default_factory=list, max_length=1000)
    """Nodes that are to be named whatever they are like, where they are the pool's."""
    machines: Packed = Field(default_factory=dict)
    """Which config pools select a machine, by its name; several names are joined by a comma. For all pools of the
    cluster: a machine of another pool is not this one's."""


class ReadStraysInput(Value):
    """Which Nodes of no pool ask for a drain."""

    cluster: Name
    machines: Packed = Field(default_factory=dict)
    """As in ReadPoolInput."""


class NodeRef(Value):
    """A Node, as it was seen: another of its name is left alone."""

    name: Name
    uid: Key


class TargetNode(NodeRef):
    was: Name = ""
    """The config that it was to have when this was decided: where it is to have a third one by now, the call comes too
    late, and does nothing."""


class TargetInput(Value):
    cluster: Name
    pool: Name
    config: Name
    nodes: list[TargetNode] = Field(max_length=1000)


class TargetOutput(Value):
    targeted: list[Name] = Field(default_factory=list, max_length=1000)
    """Those that want the config now, also if an earlier attempt wrote it."""
    gone: list[Name] = Field(default_factory=list, max_length=1000)
    refused: dict[Name, Text] = Field(default_factory=dict, max_length=1000)
    """Why a Node was not written; it is as it was."""


class TaintInput(Value):
    """Which Nodes the scheduler is to avoid because their update is still to come (UpdateInProgress)."""

    cluster: Name
    on: list[NodeRef] = Field(default_factory=list, max_length=20_000)
    off: list[NodeRef] = Field(default_factory=list, max_length=20_000)


class TaintedNodes(Value):
    """The Nodes that have the taint UpdateInProgress and are a pool's, or nobody's."""

    nodes: list[NodeRef] = Field(default_factory=list, max_length=20_000)


class PoolStatusInput(Value):
    cluster: Name
    pool: Name
    uid: Key
    status: Document
    """The fields of the status that are not rendering's, as the API has them. Written only if they differ. Conditions
    come without lastTransitionTime: the one that is there stays where the status does."""
    story: list[Happening] = Field(default_factory=list, max_length=20)
    """Told as Events on the pool."""


class PoolStatusOutput(Value):
    written: bool = False
    gone: bool = False


# -- the drain --------------------------------------------------------------------------------------------------------


class ConfigDrainInput(Value):
    cluster: Name
    pool: Name = ""
    """"": the Node belongs to none."""
    node: NodeRef
    request: Name
    """desiredDrain: `drain-<config>` or `uncordon-<config>`. Another one on the Node ends the activity."""
    since: Instant | None = None
    """When this drain began; None: when the activity was scheduled."""
    poll: Span = timedelta(seconds=5)
    """The time between two passes."""


class ConfigDrainOutput(Value):
    answered: bool = False
    """lastAppliedDrain says so now, or said so before."""
    gone: bool = False
    """The Node is gone."""
    superseded: bool = False
    """Its daemon asks for something else by now."""
    pods: Count = 0
    left: Texts = Field(default_factory=list)
    """Pods and volumes that were not waited for, and why."""


class ConfigDrainBlocked(Value):
    """A drain's message to the workflow that began it (signal `drain_blocked`): what has been in the way for
    longer than one pass."""

    node: Name
    message: Text


# -- machines ---------------------------------------------------------------------------------------------------------


class SelectMachinesInput(Value):
    """Exactly one of the two is given."""

    cluster: Name
    selector: Document | None = None
    """A LabelSelector of Hostler's machines."""
    machine_set: Name = ""
    """Hostler's pool."""


class SelectMachinesOutput(Value):
    machines: list[Name] = Field(default_factory=list, max_length=20_000)
    trouble: Text = ""
    """Why the machines are not all known, e.g. no such pool."""


class FindOwnersInput(Value):
    """Asks the server's own records, not visibility, whose machines they are."""

    cluster: Name
    machines: list[Name] = Field(max_length=1000)


class FindOwnersOutput(Value):
    owners: dict[Name, Key] = Field(default_factory=dict, max_length=1000)
    """`Owner.listed` of each machine; "" for one that belongs to nobody, or has no running workflow."""

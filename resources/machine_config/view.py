"""What a pool's workflow sees of its MachineConfigPool and its nodes in one look: counts of all, and only those nodes
by name of which there is something to do or to say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from resources.base import Count, Document, Key, Name, Text, Texts, Value
from resources.machine_config.node import ConfigNode

LISTED = 100
"""The most nodes of each sort that one look names: candidates, busy ones, those that ask for a drain, and so on. The
counts have all of them, and the next look names the next ones."""


class ConfigCounts(Value):
    """A config pool in numbers of nodes: the first five are told, by the seed's definitions; the others decide, by
    OpenShift's stricter ones."""

    machines: Count = 0
    updated: Count = 0
    """Those with the pool's config as current and desired one, and Ready (seed 004)."""
    ready: Count = 0
    """Whose Node is Ready (seed 004)."""
    unavailable: Count = 0
    """Those that are updating, or not Ready (seed 004)."""
    degraded: Count = 0
    """Those that say that they cannot apply their config."""
    done: Count = 0
    """Whose daemon is done with the pool's config."""
    busy: Count = 0
    """Those that take no pods, or are neither finished nor failing (OpenShift's unavailable ones): each takes a place
    of maxUnavailable."""
    failing: Count = 0
    """Those that take pods, and fail with the pool's config: each takes a place too."""
    candidates: Count = 0
    """Those that could begin with the pool's config."""


def _amount(value: Any) -> Any:
    plain = value is None or (isinstance(value, int) and not isinstance(value, bool))
    return value if plain else str(value)[:100]


class ConfigPoolFacts(Value):
    """A MachineConfigPool, as its own workflow must know it."""

    name: Name
    uid: Key = ""
    generation: Count = 0
    paused: bool = False
    max_unavailable: Annotated[Count | Text | None, BeforeValidator(_amount)] = None
    """As it is written; None: not at all."""
    target: Name = ""
    """What its nodes are to have; "": nothing is rendered yet."""
    source: list[Name] = Field(default_factory=list, max_length=1000)
    """The MachineConfigs that it was merged from."""
    completed: Name = ""
    """What all of its nodes had last."""
    refused: Text = ""
    """Why its selectors select nothing that may be touched, and what to write instead."""
    render_trouble: Text = ""
    """The message of the condition RenderDegraded, where that is True."""
    control_plane: bool = False
    """Whether its nodes are the control plane's: then one updates at a time, whatever maxUnavailable says."""


class MachineSelection(Value):
    """What a pool selects by Hostler's machines, and not by labels of Nodes."""

    pool: Name
    selector: Document | None = None
    """spec.machineSelector, a LabelSelector; None: none."""
    machine_set: Name = ""
    """The name in spec.machineSetRef."""


class StrayNodes(Value):
    """The Nodes that belong to no pool and ask for a drain, or for its end."""

    nodes: list[ConfigNode] = Field(default_factory=list)
    """At most LISTED: the next look names the next ones."""
    selections: Annotated[list[MachineSelection], AfterValidator(lambda found: found[:100])] = Field(
        default_factory=list
    )
    """What the cluster's pools select by machines: where there are some, Nodes of machines may be theirs."""


class ConfigPoolView(Value):
    pool: ConfigPoolFacts | None = None
    """None: there is no such object."""
    version: Count = 0
    """The resourceVersion of the list of nodes; 0 where it is no number. A list is never older than one before it."""
    counts: ConfigCounts = Field(default_factory=ConfigCounts)
    nodes: list[ConfigNode] = Field(default_factory=list)
    """Those of which there is something to do or to say, at most LISTED of each sort, and those that were asked for."""
    contested: Texts = Field(default_factory=list)
    """Nodes that several pools select, and which therefore belong to none."""
    beside: Text = ""
    """For a pool of the control plane: what another pool of the control plane does, which comes first; "": nothing."""
    selections: Annotated[list[MachineSelection], AfterValidator(lambda found: found[:100])] = Field(
        default_factory=list
    )
    """What the cluster's pools select by machines. Where it is not what the reader has looked up, it looks them up and
    reads again."""

"""What the plan of a config pool consists of. Each step says why, with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from planners.fleet.steps import Wait
from resources.machine_config.node import ConfigNode


@dataclass(frozen=True)
class GiveConfig:
    """The desired config on nodes: what begins their update. Repeated for nodes whose last write may not have come."""

    nodes: tuple[ConfigNode, ...]
    config: str
    reason: str
    message: str
    again: bool = False
    """Whether they have a reservation already."""


@dataclass(frozen=True)
class SetUpdateTaint:
    """The taint UpdateInProgress on nodes that do not have the config yet, or its end."""

    nodes: tuple[ConfigNode, ...]
    on: bool


@dataclass(frozen=True)
class Borrow:
    """A machine that is to be lent by its owner before its node is given the config."""

    machine: str
    node: str
    owner: str


@dataclass(frozen=True)
class FindOwners:
    """Machines whose owners must be known before they can be borrowed."""

    machines: tuple[str, ...]


@dataclass(frozen=True)
class GiveBack:
    """Machines whose nodes are finished: they are their owners' again."""

    machines: tuple[str, ...]


ConfigStep = GiveConfig | SetUpdateTaint | Borrow | FindOwners | GiveBack


@dataclass(frozen=True)
class ConfigPlan:
    steps: tuple[ConfigStep, ...] = ()
    waits: tuple[Wait, ...] = ()
    most: int = 1
    """maxUnavailable, in nodes."""
    free: int = 0
    """How many more nodes could begin."""
    next_look: datetime | None = None
    """When time alone may change the plan; None: only news can."""

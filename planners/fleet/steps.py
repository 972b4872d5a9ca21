"""What a plan consists of. Each step says why, with numbers; so does what is not done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy


@dataclass(frozen=True)
class Create:
    """The creation of so many machines of the newest revision."""

    count: int
    revision: int
    reason: str
    message: str
    placement: Placement | None = None


@dataclass(frozen=True)
class Delete:
    """The deletion of machines by name, the first to go first."""

    names: tuple[str, ...]
    reason: str
    message: str
    repair: bool = False
    """A machine that is meanwhile to be preserved may refuse it."""
    permitted: bool = False
    """It is a repair that was not asked for before, and takes a permit."""


@dataclass(frozen=True)
class GrantPreservation:
    """The pool's word to Failed machines that they are preserved."""

    names: tuple[str, ...]
    by: PreservedBy
    reason: str
    message: str


@dataclass(frozen=True)
class TakeSlots:
    """The end of a preservation that nobody asked for: the maximum is lower now."""

    names: tuple[str, ...]
    reason: str
    message: str


@dataclass(frozen=True)
class GrantPermit:
    """The permit to be Failed, and so to be drained and replaced."""

    names: tuple[str, ...]
    reason: str
    message: str


@dataclass(frozen=True)
class MarkNodes:
    """The taint PreferNoSchedule and scale-down-disabled with our marker on the machines' Nodes; taken off where `on`
    is False."""

    names: tuple[str, ...]
    on: bool
    reason: str
    message: str


@dataclass(frozen=True)
class LiftHold:
    """The owner's word to machines that leave: they need not stay for its sake."""

    names: tuple[str, ...]
    reason: str
    message: str


Step = Create | Delete | GrantPreservation | TakeSlots | GrantPermit | MarkNodes | LiftHold


@dataclass(frozen=True)
class Wait:
    """Something that is wanted but not done now."""

    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...] = ()
    waits: tuple[Wait, ...] = ()
    next_look: datetime | None = None
    """When time alone may change the plan; None: only news can."""
    complete: bool = False
    """Whether there are as many machines as wanted, all available and of the newest revision, and no VM of an older one
    is left."""


STOPPED = ("ProgressDeadlineExceeded", "NewMachinesNeverJoin", "RolloutAborted", "TooManyUnhealthy", "MemberLost")
"""Reasons of waits that a person should look at."""
HELD = ("RolloutPaused", "Canary", "ClusterPaused", "Approval", "Frozen")
"""Reasons of waits that a person has wanted."""

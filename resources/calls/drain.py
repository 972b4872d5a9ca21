"""What the drain takes and returns."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from resources.base import Count, Instant, Span, Text, Texts, Value
from resources.calls.machine import AtNode
from resources.journal import Happening


class DrainInput(AtNode):
    """Every Node of the VM is drained: this one, and its twins."""

    force: bool = False
    """Whether what an eviction does not move is deleted without grace."""
    dead: bool = False
    """Whether the VM does not run: nobody will confirm that a pod has stopped."""
    keep: bool = False
    """Whether the machine may stay: then volumes are only waited for as part of a pod's move."""
    detach_timeout: Span = timedelta(minutes=2)
    """How long to wait for a pod's volumes after its grace period, and in the end for those of the node (MCM)."""
    reattach_timeout: Span = timedelta(seconds=90)
    """How long to then wait for a pod's volumes on another node (MCM: --machine-pv-reattach-timeout)."""
    since: Instant | None = None
    """When the drain of this Node began; None: not given."""
    again: bool = False
    """The Node was drained before: its volumes are waited for, and pods are drained again if somebody has given it work
    since."""
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node."""
    deadline: Instant | None = None
    """When the force pass comes, for the words."""
    poll: Span


class DrainBlocked(Value):
    """A drain's message to its machine (signal `drain_blocked`): what has been in the way for longer than one pass."""

    message: Text


class DrainOutput(Value):
    pods: Count = 0
    """How many pods there were to move."""
    left: Texts = Field(default_factory=list)
    """Pods and volumes that were not waited for, and why."""
    uncordoned: bool = False
    """Set for a Node that was drained before: somebody has lifted the cordon since, and nothing was done."""

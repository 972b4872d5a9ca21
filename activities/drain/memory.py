"""What one pass of a drain leaves for the next, in the heartbeat.

It may be lost with its worker. Then pods themselves show that they are going, and VolumeAttachments what is still on
its way; a refusal is asked for again. So nothing in here may be what keeps a pod from being evicted twice.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from resources.base import Duration, Model


class RefusedEviction(Model):
    """A pod whose eviction was refused."""

    words: str
    advice: str = ""
    wait: Duration
    """The last wait of its own back-off."""
    again: datetime
    """When the next request is due."""


class Move(Model):
    """A pod with volumes that is on its way. Until it has arrived, no other such pod is evicted."""

    pod: str = ""
    """"" where only its volumes are left of it."""
    volumes: dict[str, str] = Field(default_factory=dict)
    """Its own that were attached: PersistentVolume to disk (volumes.disk_of)."""
    outlive: list[str] = Field(default_factory=list)
    """Those volumes that another pod takes over after it."""
    until: datetime
    """When the wait for its volumes to detach ends."""
    attach_until: datetime | None = None
    """The same for their attaching elsewhere; None while they are here."""


class Memory(Model):
    attempt: int = 0
    """The last attempt that came to its end. If it is not the previous one, a worker died in the middle of a pass."""
    nodes: list[str] = Field(default_factory=list)
    """Names of the VM's other Nodes, once they have been looked for."""
    pods: int = 0
    """The largest number of pods so far."""
    refused: dict[str, RefusedEviction] = Field(default_factory=dict)
    """Refused evictions by the pod's uid, like the moves."""
    moves: dict[str, Move] = Field(default_factory=dict)
    shared: list[str] = Field(default_factory=list)
    """Claims of more than one pod."""
    unknown: str = ""
    """Why volumes are not known, in words."""
    told: list[str] = Field(default_factory=list)
    """What the machine was told that is in the way."""
    idle: datetime | None = None
    """Since when no pod is waited for."""

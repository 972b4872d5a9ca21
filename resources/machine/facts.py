"""What the watches tell a machine of its Node and of its VM."""

from __future__ import annotations

from pydantic import Field

from resources.base import Facts, Instant, Key, Name, Said, Text, Value, Word, Words
from resources.orders import Order


class NodeFacts(Value):
    """What the watch tells a machine about its Node: a whole snapshot, so that a lost or repeated one does no harm."""

    epoch: Order
    """The server's start time of the watch, in ms: a newer watch is never mistaken for an older one."""
    seq: Order
    exists: bool
    name: Name = ""
    provider_id: Key = Field(default="", alias="providerID")
    uid: Key = ""
    created: Instant | None = None
    ready: bool = False
    """Whether condition Ready is True."""
    conditions: Facts = Field(default_factory=dict)
    """Type to status, except for condition types that are as on a healthy node."""
    reason: Said = ""
    """Why it is not ready, in the words of the kubelet or the node lifecycle controller."""
    not_ready_taint: bool = False
    """Whether it has the instance-not-ready taint."""
    startup_taints: list[Name] = Field(default_factory=list)
    """Keys of its taints that others remove when they have done their part (names.STARTUP_TAINTS)."""
    unschedulable: bool = False
    deleting: bool = False
    addresses: Words = Field(default_factory=list)
    annotations: Facts = Field(default_factory=dict)
    """Those of its annotations that its machine reads."""
    twins: Words = Field(default_factory=list)
    """Names of other Nodes with the VM's providerID, which do not count."""
    unwritable: Text = ""
    """Why the API server refuses what the watch writes on it, again and again."""

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.seq

    @property
    def says(self) -> tuple[object, ...]:
        """What a machine's health is judged by, and which Node's it is."""
        return self.exists, self.uid, self.ready, self.conditions, self.provider_id


class VmFacts(Value):
    """What the watch of a cloud account tells a machine about its VM: a whole snapshot, like NodeFacts."""

    epoch: Order
    seq: Order
    provider_id: Key = Field(alias="providerID")
    state: Word
    """The driver's state: pending, running, stopping, stopped, terminating; `gone` when a fresh read by id confirmed
    it."""
    addresses: Words = Field(default_factory=list)

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.seq

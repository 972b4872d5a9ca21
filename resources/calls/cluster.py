"""What the activities of the role *cluster* take and return."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from resources.base import Count, Instant, Key, Name, Span, Text, Texts, Value, Word, few_of
from resources.calls.machine import AtNode, MachineRef, StaleNode
from resources.journal import Happening
from resources.machine.facts import NodeFacts
from resources.machine.manifest import NodeTemplate


class LookInput(Value):
    """A fresh read of what a machine's Node and its kubelet say."""

    machine: MachineRef
    node_name: Name | None = None
    """The name that it is known by or expected to have; a Node with the machine's name label is looked for too."""
    provider_id: Key = Field(alias="providerID")
    node_uid: Key = ""
    """The uid of the Node object that the machine knows: of several equal ones, it counts."""


class NodeLook(Value):
    node: NodeFacts
    """Its epoch and seq are 0: any news from the watch is newer. `exists` is False when there is no Node of this VM."""
    ready: Word = ""
    """The status of the condition Ready: True, False (the kubelet's own word), Unknown, or "" when absent."""
    lease_renewed: Instant | None = None
    """renewTime of the kubelet's Lease, by the node's own clock: only whether it moves means anything."""
    changed: Annotated[dict[Word, Instant], AfterValidator(few_of)] = Field(default_factory=dict)
    """lastTransitionTime by type of condition, by the clock of its writer: only whether it moves means anything."""
    without_provider_id: bool = False
    """A Node of the expected name exists without a providerID, so nobody can say whose it is."""


class ControlPlaneNodesInput(Value):
    cluster: Name


class ControlPlaneNode(Value):
    """A Node of the control plane."""

    name: Name
    machine: Name = ""
    """The machine whose Node it is; "" where no machine is known."""


class ControlPlaneNodes(Value):
    nodes: list[ControlPlaneNode] = Field(default_factory=list, max_length=1000)


class JoinInput(AtNode):
    attempt: Count
    node_template: NodeTemplate
    last_applied: NodeTemplate | None = None
    given: Text = ""
    """The template's request to preserve (its annotation) that has been made before, also on a former Node object."""
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node."""


class ReadyInput(AtNode):
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node when the taint is gone."""


class TellInput(AtNode):
    story: list[Happening]
    """Told as Events on the Node."""


class ReadyOutput(Value):
    removed: bool
    """False: the node never carried the taint."""


class PreserveInput(AtNode):
    """What the Node of a machine is to carry, or no longer carry. Idempotent."""

    on: bool
    """scale-down-disabled=true, with our marker, which remembers what a person had set."""
    clear: Text = ""
    """Removes the annotation `preserve` if it still has this value."""
    uncordon: bool = False
    """Lifts the cordon of our own drain; a person's stays."""
    story: list[Happening] = Field(default_factory=list)


class PreserveOutput(Value):
    value: Text = ""
    """The annotation `preserve` on the Node afterwards."""


class ForgetInput(Value):
    machine: MachineRef
    node_name: Name | None = None
    node_uid: Key = ""
    """The uid of the Node object that joined; without one only its providerID tells whether a Node is the machine's."""
    provider_id: Key | None = Field(default=None, alias="providerID")
    vms: dict[Key, Name] = Field(default_factory=dict)
    """What the deletion found, as in DeleteOutput."""
    former: list[Key] = Field(default_factory=list)
    """providerIDs of the VMs of its former lives."""
    attempts: Count = 0
    """How many attempts there were; each may have left a token."""
    classes: list[Name] = Field(default_factory=list)
    """Names of the classes that no longer have it as a user."""


class ForgetOutput(Value):
    left: Texts = Field(default_factory=list)
    """Nodes that may have been the machine's and that nobody can prove to be, with why, and what can be done."""


class StaleNodeInput(Value):
    """A Node whose VM no longer exists."""

    machine: MachineRef
    """The machine whose new VM would have been mistaken for it."""
    node: StaleNode
    silent_for: Span
    """How long its kubelet must have been silent for it to be removed."""


class StaleNodeOutput(Value):
    removed: bool = False
    message: Text = ""
    """Its last sign of life, or why it stays."""

"""What travels between workflows, activities and the way in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from resources.base import Duration, Model, Value
from resources.manifests import NodeTemplate, SecretRef


class Intent(Value):
    """What an operator wants. It may arrive by update and by signal; it counts once per id.

    The id is made by the sender and is the update's id too. One typed by hand may leave it out.
    """

    id: str = ""
    requested_by: str = ""
    reason: str = ""


class DeleteIntent(Intent):
    force: bool = False
    """Shortens the drain; never skips clean-up."""


class Answer(Value):
    """What will happen with an intent."""

    message: str


class Happening(Value):
    """One entry of the journal."""

    time: datetime
    reason: str
    message: str


# -- facts --------------------------------------------------------------------------------------------------------


class NodeFacts(Value):
    """What the watch tells a machine of its Node: a whole snapshot, so that a lost or repeated one does no harm."""

    epoch: int
    """The server's start time of the watch, in ms: a newer watch is never taken for an older one."""
    seq: int
    exists: bool
    name: str = ""
    provider_id: str = Field(default="", alias="providerID")
    uid: str = ""
    created: datetime | None = None
    ready: bool = False
    """Condition Ready is True."""
    conditions: dict[str, str] = Field(default_factory=dict)
    """Type to status, of all but the condition types that are as a healthy node has them."""
    reason: str = ""
    """Why it is not ready, in the kubelet's or the node lifecycle controller's words."""
    not_ready_taint: bool = False
    """The instance-not-ready taint is on it."""
    unschedulable: bool = False
    deleting: bool = False
    addresses: list[str] = Field(default_factory=list)

    def newer_than(self, other: NodeFacts | None) -> bool:
        return other is None or (self.epoch, self.seq) > (other.epoch, other.seq)


class VmFacts(Value):
    """What the watch of a cloud account tells a machine of its VM: a whole snapshot, like NodeFacts."""

    epoch: int
    seq: int
    provider_id: str = Field(alias="providerID")
    state: str
    """The driver's: pending, running, stopping, stopped, terminating; `gone` when a fresh read by id confirmed it."""
    addresses: list[str] = Field(default_factory=list)

    def newer_than(self, other: VmFacts | None) -> bool:
        return other is None or (self.epoch, self.seq) > (other.epoch, other.seq)


class Account(Value):
    """A cloud account and region as a machine's class names it: what is listed in one go."""

    provider: str
    region: str
    secret_ref: SecretRef
    """Of the credentials."""

    @property
    def key(self) -> str:
        return f"{self.provider}/{self.region}/{self.secret_ref.namespace}/{self.secret_ref.name}"


class Announcement(Value):
    """providerID → machine: from the create activity to the cluster, for the watches."""

    provider_id: str = Field(alias="providerID")
    machine: str
    account: Account | None = None


# -- activities of a machine ----------------------------------------------------------------------------------------


class MachineRef(Value):
    cluster: str
    name: str
    uid: str


class Target(Value):
    """Everything that a driver call needs to know of a machine. References only, never a secret's value."""

    machine: MachineRef
    provider: str
    provider_spec: dict[str, Any]
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None
    provider_id: str | None = Field(default=None, alias="providerID")
    token: str = ""
    """The idempotency token of the attempt."""
    consistency: Duration
    poll: Duration


class CreateInput(Value):
    target: Target
    attempt: int
    started: datetime
    """When the attempt began: a Node older than this is a stale one."""
    deadline: datetime
    """creationTimeout, absolute: the bootstrap token lives so long."""


class CreateOutput(Value):
    provider_id: str = Field(alias="providerID")
    node_name: str
    addresses: list[str] = Field(default_factory=list)
    adopted: bool = False
    stale_node: str | None = None
    """The Node that the VM was referring to; the VM is being deleted."""
    user_data_version: str = ""
    """resourceVersion of the Secret that the user data was rendered from."""


class UpdateInput(Value):
    target: Target
    last_applied: dict[str, Any] | None = None
    """None: the post-start update, once."""


class UpdateOutput(Value):
    changed: list[str] = Field(default_factory=list)
    """What was changed, in words, e.g. `sourceDestCheck=false on i-1`."""
    supported: bool = True
    """False: the driver said Unimplemented."""


class StatusInput(Value):
    target: Target
    since: datetime
    """When the VM was made: NotFound soon after is a suspicion only."""
    interval: Duration


class StatusOutput(Value):
    """The status watch ends only with bad news."""

    gone: bool = False
    message: str = ""


class JoinInput(Value):
    machine: MachineRef
    attempt: int
    node_name: str
    node_template: NodeTemplate
    last_applied: NodeTemplate | None = None
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node."""


class ReadyInput(Value):
    machine: MachineRef
    node_name: str
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node when the taint is gone."""


class TellInput(Value):
    machine: MachineRef
    node_name: str
    story: list[Happening]
    """Told as Events on the Node."""


class ReadyOutput(Value):
    removed: bool
    """False: the node never carried the taint."""


class DrainInput(Value):
    machine: MachineRef
    node_name: str
    provider_id: str | None = Field(default=None, alias="providerID")
    force: bool = False
    """What an eviction does not move is deleted with no grace."""
    dead: bool = False
    """The VM does not run: nobody will confirm that a pod has stopped."""
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node."""
    deadline: datetime | None = None
    """When the force pass comes, for the words."""
    poll: Duration


class DrainOutput(Value):
    pods: int = 0
    """How many there were to move."""
    left: list[str] = Field(default_factory=list)
    """Pods and volumes that were not waited for, with why."""


class DeleteInput(Value):
    target: Target


class DeleteOutput(Value):
    kept: list[str] = Field(default_factory=list)


class ForgetInput(Value):
    machine: MachineRef
    node_name: str | None = None
    joined: bool = True
    """False: whether a Node of this name is the machine's, only its providerID can tell."""
    provider_id: str | None = Field(default=None, alias="providerID")
    attempts: int = 0
    """Every attempt may have left a token."""


# -- the cluster's watch ----------------------------------------------------------------------------------------------


class Cursor(Model):
    """Where a watch of nodes stands: what it needs to go on without telling anybody the same again."""

    resource_version: str = ""
    told: dict[str, str] = Field(default_factory=dict)
    """Node name to `<digest> <machine>`: what its machine was told last, as 8 bytes in base64, and which machine."""


class WatchInput(Value):
    cluster: str
    workflow_id: str
    queue_prefix: str
    cursor: Cursor
    duration: Duration
    """The watch returns by itself after so long, so that new code reaches it."""


class InstancesInput(Value):
    cluster: str
    account: Account
    told: dict[str, str] = Field(default_factory=dict)
    """providerID to state, where a machine was told something bad."""
    interval: Duration
    duration: Duration
    """It returns after so long, so that the cluster's next run knows what was told."""


class InstancesOutput(Value):
    told: dict[str, str] = Field(default_factory=dict)


class VmsTold(InstancesOutput):
    account: str
    """Account.key"""


class Reachability(Value):
    reachable: bool
    message: str = ""
    time: datetime


class CloudReachability(Reachability):
    account: str
    """Account.key"""


class NewsInput(Value):
    cluster: str
    api: Reachability


class Note(Value):
    """Something odd that the watch saw, for the cluster's journal."""

    reason: str
    message: str

"""What the activities of the role *cloud* take and return."""

from __future__ import annotations

from pydantic import Field

from resources.base import Annotations, Count, Document, Instant, Key, Name, Span, Text, Texts, Value, Word, Words
from resources.calls.machine import StaleNode, Target
from resources.cluster.accounts import Account
from resources.errors import BegunOperation, ErrorInfo
from resources.packed import Packed


class CreateInput(Value):
    target: Target
    attempt: Count
    started: Instant
    """When the attempt began: a Node older than this is a stale one."""
    deadline: Instant
    """creationTimeout, absolute: the bootstrap token lives until then."""
    class_name: Name = ""
    """The class, which learns of its user here; "": none."""
    generation: Count = 1
    takes: Key = ""
    """The uid of a VM of the machine's name that a person has told it to take over."""
    annotations: Annotations = Field(default_factory=dict)
    """Those of the node template that the driver reads."""
    begun: BegunOperation | None = None
    """What a call before has left: the cloud is still at it, or has ended it since."""


class CreateOutput(Value):
    provider_id: Key = Field(alias="providerID")
    node_name: Name
    addresses: Words = Field(default_factory=list)
    adopted: bool = False
    uid: Key = ""
    """The VM's uid, if it differs from the one requested: the machine takes it from now on."""
    stale_node: Name | None = None
    """The Node that the VM would be mistaken for; the VM is being deleted."""
    stale: StaleNode | None = None
    """The same Node, with its uid and providerID."""
    gone: bool = False
    """The VM existed in a run that a reset has cut off, and no longer does: no second one was made."""
    doubts: Texts = Field(default_factory=list)
    """What looks wrong in the user data that the VM got, in words."""
    user_data_version: Key = ""
    """resourceVersion of the Secret that the user data was rendered from."""
    account_id: Key = ""
    """The account that the VM is in."""
    tagged: bool = False
    """The VM carries its installation's tag."""


class FindInput(Value):
    target: Target
    takes: Key = ""
    """As in CreateInput."""


class FoundVm(Value):
    """What carries a machine's tags, before the machine's end."""

    provider_id: Key | None = Field(default=None, alias="providerID")
    """None: nothing does."""
    gone: bool = False
    """As in CreateOutput; the Node of the machine's VM may be left."""
    account_id: Key = ""
    """The account that a VM which is gone was in."""
    uid: Key = ""
    """As in CreateOutput."""
    node_name: Name = ""
    addresses: Words = Field(default_factory=list)


class UpdateInput(Value):
    target: Target
    last_applied: Document | None = None
    """None: the post-start update, once."""
    tagged: bool = False
    """The VM is known to carry its installation's tag: it need not be looked at for that."""


class ResourceUpdate(Value):
    """What became of one resource of a machine in a hot update."""

    id: Key
    """The resource's id at the cloud."""
    kind: Name
    """instance, volume, network-interface."""
    changed: Texts = Field(default_factory=list)
    """What was changed, in words, e.g. `set cost`, `removed team`."""
    error: ErrorInfo | None = None

    @property
    def error_words(self) -> str:
        """The error, without the resource's id where that stands beside it."""
        return self.error.message.removeprefix(f"{self.id}: ") if self.error else ""


class UpdateOutput(Value):
    changed: Texts = Field(default_factory=list)
    """What was changed, in words, e.g. `sourceDestCheck=false on i-1`."""
    resources: list[ResourceUpdate] = Field(default_factory=list)
    """In a hot update: resources that were changed or failed."""
    supported: bool = True
    """False: the driver said Unimplemented."""


class StatusInput(Value):
    target: Target
    attempt: Count = 1
    """The attempt whose bootstrap token must still be there for the node to join."""
    node_name: Name | None = None
    """The name that the node is expected to have."""
    deadline: Instant | None = None
    """creationTimeout, absolute: the token must live until then."""
    since: Instant
    """When the VM was made: NotFound soon after that is only a suspicion."""
    interval: Span
    """The time between the first two looks; it grows."""


class StatusOutput(Value):
    """The status watch ends only with bad news."""

    gone: bool = False
    message: Text = ""


class VmLookInput(Value):
    target: Target
    diagnose: bool = False
    """Whether to also ask for the provider's health checks and the console's last lines."""
    attempt: Count | None = None
    """If given, the look also says why its node has not joined, as far as the API server knows; as in StatusInput."""
    node_name: Name | None = None
    deadline: Instant | None = None


class VmLook(Value):
    state: Word
    """The driver's state, or `gone`."""
    message: Text = ""
    """The state in words, with what a diagnosis found."""
    joining: Text = ""
    """Why its node has not joined, if that was asked."""
    account_id: Key = ""
    """The account that the VM is in; "" when it is gone."""


class DeleteInput(Value):
    target: Target
    asked: bool = True
    """As in MachineState."""


class DeleteOutput(Value):
    kept: Texts = Field(default_factory=list)
    vms: dict[Key, Name] = Field(default_factory=dict)
    """providerID of each VM that it has found and that is now gone, to the name that its kubelet registers with, or ""
    where no pass was told it: a create call without an answer may have made more, or others, than the machine knows."""


class InstancesInput(Value):
    cluster: Name
    account: Account
    told: Packed = Field(default_factory=dict)
    """providerID to state, where a machine was told something bad."""
    owner: Key = ""
    """The account in which its VMs were last seen, in the cloud's own words; "": none was, or there were none."""
    opened: Key = ""
    """The other account that its Secret opens instead, as the machines were told; "" if none."""
    remember: list[Name] = Field(default_factory=list)
    """Classes whose VMs are in this account and in no other, if it is not known what their machines were told: these
    are told about their VMs whatever their state."""
    interval: Span
    duration: Span
    """It returns after this long, so that the cluster's next run knows what was told."""


class InstancesOutput(Value):
    told: Packed = Field(default_factory=dict)
    owner: Key = ""
    """As in InstancesInput."""
    opened: Key = ""
    """As in InstancesInput."""


class VmsTold(InstancesOutput):
    account: Key
    """Account.key"""

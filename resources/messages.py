"""What travels between workflows, activities and the way in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from resources.base import (
    Count,
    Document,
    Facts,
    Instant,
    Key,
    Model,
    Name,
    Packing,
    Said,
    Span,
    Text,
    Texts,
    Value,
    Word,
    Words,
    few_of,
)
from resources.clouds import place_of, scope_of
from resources.errors import ErrorInfo
from resources.manifests import NodeTemplate, SecretRef
from resources.orders import Order, OrderTime
from resources.packed import Packed, pack, unpack


class Intent(Value):
    """What an operator wants. It may arrive by update and by signal; it counts once per id.

    The id is made by the sender and is the update's id too. One typed by hand may leave it out.
    """

    id: Key = ""
    requested_by: Text = ""
    reason: Said = ""


class DeleteIntent(Intent):
    force: bool = False
    """Shortens the drain; never skips clean-up."""
    abandon_node: bool = False
    """Once the VM is gone, a cluster that does not answer is not waited for: what is left there is named."""


class RepairIntent(DeleteIntent):
    """By a pool, of a machine that Failed and has no slot: it does not count when the machine is to be preserved by
    now, which then says so again."""


class RecreateIntent(DeleteIntent):
    """A delete to the end, then a new life under the same name, by the newest spec and class."""


class AdoptIntent(Intent):
    """To a machine that waits by NameTaken: the VM of this uid, which carries its name, is its own."""

    uid: Key = Field(min_length=1, max_length=100)


class Answer(Value):
    """What will happen with an intent."""

    message: Text


class Happening(Value):
    """One entry of the journal."""

    time: Instant
    reason: Word
    message: Text


# -- facts --------------------------------------------------------------------------------------------------------


class NodeFacts(Value):
    """What the watch tells a machine of its Node: a whole snapshot, so that a lost or repeated one does no harm."""

    epoch: Order
    """The server's start time of the watch, in ms: a newer watch is never taken for an older one."""
    seq: Order
    exists: bool
    name: Name = ""
    provider_id: Key = Field(default="", alias="providerID")
    uid: Key = ""
    created: Instant | None = None
    ready: bool = False
    """Condition Ready is True."""
    conditions: Facts = Field(default_factory=dict)
    """Type to status, of all but the condition types that are as a healthy node has them."""
    reason: Said = ""
    """Why it is not ready, in the kubelet's or the node lifecycle controller's words."""
    not_ready_taint: bool = False
    """The instance-not-ready taint is on it."""
    startup_taints: list[Name] = Field(default_factory=list)
    """Keys of the taints on it that others remove when they have done their part (names.STARTUP_TAINTS)."""
    unschedulable: bool = False
    deleting: bool = False
    addresses: Words = Field(default_factory=list)
    annotations: Facts = Field(default_factory=dict)
    """Of those on it the ones that its machine reads."""
    twins: Words = Field(default_factory=list)
    """Names of other Nodes with the VM's providerID, which do not count."""
    unwritable: Text = ""
    """Why the API server refuses what the watch writes on it, again and again."""

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.seq

    @property
    def says(self) -> tuple[object, ...]:
        """What a machine's health is judged by, and of which Node."""
        return self.exists, self.uid, self.ready, self.conditions, self.provider_id


class VmFacts(Value):
    """What the watch of a cloud account tells a machine of its VM: a whole snapshot, like NodeFacts."""

    epoch: Order
    seq: Order
    provider_id: Key = Field(alias="providerID")
    state: Word
    """The driver's: pending, running, stopping, stopped, terminating; `gone` when a fresh read by id confirmed it."""
    addresses: Words = Field(default_factory=list)

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.seq


FAIRNESS_KEY_BYTES = 64
"""Temporal's own limit; with a longer one it refuses the command."""


class Account(Value):
    """A cloud account as a machine's class names it: what is listed in one go, and shares the cloud's limits."""

    provider: Name
    scope: Name = Field(alias="region")
    """Where in the account, in the words of the provider's spec (resources.clouds.scope_of): its region, say. On the
    wire it has the name that it had when every cloud had regions."""
    secret_ref: SecretRef
    """Of the credentials."""

    @classmethod
    def of(
        cls, provider: str, provider_spec: dict[str, Any], secret_ref: SecretRef, credentials: SecretRef | None
    ) -> Account:
        """Raises UnknownScope for a spec that does not say where its machines are, or of a cloud that nobody knows:
        there is nothing that could be listed."""
        return cls(provider=provider, scope=scope_of(provider, provider_spec), secret_ref=credentials or secret_ref)

    @property
    def key(self) -> str:
        where = f"{self.provider}/{self.scope}" if self.scope else self.provider
        return f"{where}/{self.secret_ref.namespace}/{self.secret_ref.name}"

    @property
    def place(self) -> dict[str, Any]:
        """As much of a provider spec as a call needs that is about no single machine. Raises UnknownProvider."""
        return place_of(self.provider, self.scope)

    @property
    def fairness_key(self) -> str:
        """`key`, as long as Temporal takes it: a share of a task queue is kept for each."""
        if len(self.key.encode()) <= FAIRNESS_KEY_BYTES:
            return self.key
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:16]
        return f"{self.key.encode()[: FAIRNESS_KEY_BYTES - 17].decode(errors='ignore')}~{digest}"


class Announcement(Value):
    """In which account a machine's VM is. As a signal of the cluster (`announce`) it comes from older workers only."""

    provider_id: Key = Field(alias="providerID")
    machine: Name
    account: Account | None = None
    machine_class: Name = ""


class AccountUse(Value):
    """Whose VMs are where (signal `use_account` of a cluster): as many as there are classes, however many machines."""

    machine_class: Name
    """Name of the machines' class; "": not known."""
    account: Account


# -- activities of a machine ----------------------------------------------------------------------------------------


class MachineRef(Value):
    cluster: Name
    name: Name
    uid: Key


class Target(Value):
    """Everything that a driver call needs to know of a machine. References only, never a secret's value."""

    machine: MachineRef
    provider: Name
    provider_spec: Document
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None
    provider_id: Key | None = Field(default=None, alias="providerID")
    token: Key = ""
    """The idempotency token of the attempt."""
    account_id: Key = ""
    """The account that its VM was made in, or may have been by a call whose answer is not known, in the cloud's own
    words; "": not known, or there was no such call."""
    consistency: Span
    poll: Span


class CreateInput(Value):
    target: Target
    attempt: Count
    started: Instant
    """When the attempt began: a Node older than this is a stale one."""
    deadline: Instant
    """creationTimeout, absolute: the bootstrap token lives so long."""
    class_name: Name = ""
    """The class, which hears of its user here; "": none."""
    generation: Count = 1
    takes: Key = ""
    """The uid of a VM of the machine's name that a person has told it to take over."""


class StaleNode(Value):
    """A Node that a new VM would have been mistaken for."""

    name: Name
    uid: Key
    provider_id: Key = Field(default="", alias="providerID")
    """Of the VM that it was, where it says so."""


class CreateOutput(Value):
    provider_id: Key = Field(alias="providerID")
    node_name: Name
    addresses: Words = Field(default_factory=list)
    adopted: bool = False
    uid: Key = ""
    """The VM's, where that is another than was asked for: the machine has it from now on."""
    stale_node: Name | None = None
    """The Node that the VM was referring to; the VM is being deleted."""
    stale: StaleNode | None = None
    """The same."""
    gone: bool = False
    """There was this VM in a run that a reset has cut off, and there is none any more: no second one was made."""
    user_data_version: Key = ""
    """resourceVersion of the Secret that the user data was rendered from."""
    account_id: Key = ""
    """The account that the VM is in."""


class FindInput(Value):
    target: Target
    takes: Key = ""
    """As in CreateInput."""


class FoundVm(Value):
    """What carries a machine's tags, before its end."""

    provider_id: Key | None = Field(default=None, alias="providerID")
    """None: nothing does."""
    gone: bool = False
    """As in CreateOutput: of the machine's VM its Node may be left."""
    account_id: Key = ""
    """Of one that is gone: the account that it was in."""
    uid: Key = ""
    """As in CreateOutput."""
    node_name: Name = ""
    addresses: Words = Field(default_factory=list)


class UpdateInput(Value):
    target: Target
    last_applied: Document | None = None
    """None: the post-start update, once."""


class ResourceUpdate(Value):
    """What became of one resource of a machine in a hot update."""

    id: Key
    kind: Name
    """instance, volume, network-interface."""
    changed: Texts = Field(default_factory=list)
    """What was changed, in words, e.g. `set cost`, `removed team`."""
    error: ErrorInfo | None = None


class UpdateOutput(Value):
    changed: Texts = Field(default_factory=list)
    """What was changed, in words, e.g. `sourceDestCheck=false on i-1`."""
    resources: list[ResourceUpdate] = Field(default_factory=list)
    """Of a hot update: those that were changed or failed."""
    supported: bool = True
    """False: the driver said Unimplemented."""


class StatusInput(Value):
    target: Target
    attempt: Count = 1
    """Whose bootstrap token must still be there for the node to join."""
    node_name: Name | None = None
    """That the node is expected to have."""
    deadline: Instant | None = None
    """creationTimeout, absolute: the token must live so long."""
    since: Instant
    """When the VM was made: NotFound soon after is a suspicion only."""
    interval: Span
    """Between the first two looks; it grows."""


class StatusOutput(Value):
    """The status watch ends only with bad news."""

    gone: bool = False
    message: Text = ""


class LookInput(Value):
    """A fresh read of what a machine's Node and its kubelet say."""

    machine: MachineRef
    node_name: Name | None = None
    """The name that it is known by or expected to have; a Node with the machine's name label is looked for too."""
    provider_id: Key = Field(alias="providerID")
    node_uid: Key = ""
    """Of the Node object that the machine knows: of several equals it counts."""


class NodeLook(Value):
    node: NodeFacts
    """Of epoch and seq 0: any news of the watch is newer. `exists` False when no Node of this VM is there."""
    ready: Word = ""
    """Status of the condition Ready as it is: True, False (the kubelet's own word), Unknown, or "" when absent."""
    lease_renewed: Instant | None = None
    """renewTime of the kubelet's Lease, by the node's own clock: only whether it moves says anything."""
    changed: Annotated[dict[Word, Instant], AfterValidator(few_of)] = Field(default_factory=dict)
    """lastTransitionTime by type of condition, by the clock of whoever wrote it: only whether it moves says anything.
    """
    without_provider_id: bool = False
    """A Node of the expected name is there and has no providerID, so nobody can say whose it is."""


class VmLookInput(Value):
    target: Target
    diagnose: bool = False
    """Also the provider's health checks and the console's last lines."""
    attempt: Count | None = None
    """Given: also why its node has not joined, as far as the API server knows; as in StatusInput."""
    node_name: Name | None = None
    deadline: Instant | None = None


class VmLook(Value):
    state: Word
    """The driver's, or `gone`."""
    message: Text = ""
    """In words, with what a diagnosis found."""
    joining: Text = ""
    """Why its node has not joined, where that was asked for."""
    account_id: Key = ""
    """The account that the VM is in; "" when it is gone."""


class AtNode(Value):
    """Which Node an activity may touch: names are given again, so it must have this providerID, or be this object."""

    machine: MachineRef
    node_name: Name
    provider_id: Key | None = Field(default=None, alias="providerID")
    node_uid: Key = ""
    """Of the Node object that the machine knows as its own; "": of none."""


class JoinInput(AtNode):
    attempt: Count
    node_template: NodeTemplate
    last_applied: NodeTemplate | None = None
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
    """What the Node of a machine shall carry, or carry no more. Idempotent."""

    on: bool
    """scale-down-disabled=true, with our marker, which remembers what a person had set."""
    clear: Text = ""
    """Remove the annotation `preserve` if it still has this value."""
    uncordon: bool = False
    """Lift the cordon of our own drain; a person's stays."""
    story: list[Happening] = Field(default_factory=list)


class PreserveOutput(Value):
    value: Text = ""
    """The annotation `preserve` as it is on the Node after it."""


class DrainInput(AtNode):
    """Every Node of the VM is drained: this one, and its twins."""

    force: bool = False
    """What an eviction does not move is deleted with no grace."""
    dead: bool = False
    """The VM does not run: nobody will confirm that a pod has stopped."""
    keep: bool = False
    """The machine may stay: no volume is waited for but as part of a pod's move."""
    detach_timeout: Span = timedelta(minutes=2)
    """How long the volumes of a pod are waited for after its grace period, and in the end those of the node (MCM)."""
    reattach_timeout: Span = timedelta(seconds=90)
    """How long the volumes of a pod are then waited for on another node (MCM: --machine-pv-reattach-timeout)."""
    since: Instant | None = None
    """When the drain of this Node began; None: not said."""
    again: bool = False
    """The Node was drained before: its volumes are waited for, and pods are moved by another drain, if somebody has
    given it work since."""
    story: list[Happening] = Field(default_factory=list)
    """Told as Events on the Node."""
    deadline: Instant | None = None
    """When the force pass comes, for the words."""
    poll: Span


class DrainOutput(Value):
    pods: Count = 0
    """How many there were to move."""
    left: Texts = Field(default_factory=list)
    """Pods and volumes that were not waited for, with why."""
    uncordoned: bool = False
    """Of a Node that was drained before: somebody has lifted the cordon since, and nothing was done."""


class DeleteInput(Value):
    target: Target


class DeleteOutput(Value):
    kept: Texts = Field(default_factory=list)
    vms: dict[Key, Name] = Field(default_factory=dict)
    """providerID of each VM that it has found and that is gone now, to the name that its kubelet registers with, ""
    where no pass was told: a create call without an answer may have made more, or others, than the machine knows."""


class ForgetInput(Value):
    machine: MachineRef
    node_name: Name | None = None
    node_uid: Key = ""
    """Of the Node object that joined; without one only its providerID tells whether a Node is the machine's."""
    provider_id: Key | None = Field(default=None, alias="providerID")
    vms: dict[Key, Name] = Field(default_factory=dict)
    """What the deletion found, as in DeleteOutput."""
    former: list[Key] = Field(default_factory=list)
    """providerIDs of the VMs of its former lives."""
    attempts: Count = 0
    """Every attempt may have left a token."""
    classes: list[Name] = Field(default_factory=list)
    """Names of those whose user it is no more."""


class ForgetOutput(Value):
    left: Texts = Field(default_factory=list)
    """Nodes that may have been the machine's and that nobody can prove to be, with why, and what can be done."""


class StaleNodeInput(Value):
    """A Node whose VM does not exist any more."""

    machine: MachineRef
    """The one whose new VM would have been mistaken for it."""
    node: StaleNode
    silent_for: Span
    """It is removed when its kubelet has shown no life for so long."""


class StaleNodeOutput(Value):
    removed: bool = False
    message: Text = ""
    """What its last sign of life was, or why it stays."""


# -- machines without a workflow ------------------------------------------------------------------------------------


class OwnedVm(Value):
    """A VM that carries our owner tags."""

    provider_id: Key = Field(alias="providerID")
    machine: Key
    """By its tag, which anybody may have written."""
    uid: Key
    state: Word
    account: Key
    """Account.key"""
    account_id: Key = ""
    """The account that owns it, as the cloud names it."""
    tagged: bool = True
    """False: it carries no tag of an installation, and was made before there was one: by this one or another."""


class ListVmsInput(Value):
    cluster: Name
    account: Account


class ListVmsOutput(Value):
    vms: list[OwnedVm] = Field(default_factory=list)
    """Of this installation, and those without a tag of one."""
    others: Count = 0
    """VMs of a cluster of the same name that another installation has made."""


class OwnersInput(Value):
    cluster: Name
    vms: list[OwnedVm]


class Orphan(Value):
    """A VM that no running workflow owns."""

    vm: OwnedVm
    workflow: Key
    """How the machine's newest workflow ended (TERMINATED, …); "" when there is none."""
    closed: Instant | None = None

    @property
    def doubtful(self) -> bool:
        """Nothing says that it was ever this installation's: neither its tags nor a workflow."""
        return not self.workflow and not self.vm.tagged


class OwnersOutput(Value):
    orphans: list[Orphan] = Field(default_factory=list)


class SweepInput(Value):
    """The argument of OrphanSweepWorkflow."""

    cluster: Name
    accounts: list[Account]
    queue_prefix: Name
    heartbeat: Span


class SweepReport(Value):
    """The result of OrphanSweepWorkflow."""

    orphans: list[Orphan] = Field(default_factory=list)
    unread: dict[Key, Text] = Field(default_factory=dict)
    """Account.key to why it could not be listed: what it holds is not known."""
    others: dict[Key, Count] = Field(default_factory=dict)
    """Account.key to how many VMs of a cluster of the same name another installation has there."""
    untagged: Count = 0
    """VMs that carry no tag of an installation, with and without an owner."""


# -- the cluster's watch ----------------------------------------------------------------------------------------------


class Cursor(Model):
    """Where a watch of nodes stands: what it needs to go on without telling anybody the same again.

    The cluster's workflow carries it from one watch to the next and never opens it.
    """

    resource_version: Key = ""
    table: Packing = ""
    """Node name to `<digest> <machine>`: what its machine was told last, as 8 bytes in base64, and which machine;
    packed: 20,000 nodes with long names are 0.5 MiB instead of 2.3."""
    nodes: Count = 0
    """How many are in the table."""
    told: dict[Key, Key] = Field(default_factory=dict)
    """The table as an older worker has left it."""

    @property
    def marks(self) -> dict[str, str]:
        return {**self.told, **unpack(self.table)}

    @classmethod
    def at(cls, resource_version: str, marks: dict[str, str]) -> Cursor:
        return cls(resource_version=resource_version, table=pack(marks), nodes=len(marks))


class WatchInput(Value):
    cluster: Name
    workflow_id: Key
    queue_prefix: Name
    cursor: Cursor
    duration: Span
    """The watch returns by itself after so long, so that new code reaches it."""


class InstancesInput(Value):
    cluster: Name
    account: Account
    told: Packed = Field(default_factory=dict)
    """providerID to state, where a machine was told something bad."""
    owner: Key = ""
    """The cloud's name of the account that its VMs were seen in last; "": none was, or there were none."""
    opened: Key = ""
    """The other account that its Secret opens instead, as the machines were told; "": none."""
    remember: list[Name] = Field(default_factory=list)
    """Classes whose VMs are in this account and in no other, where what their machines were told is not known: they
    are told of their VMs whatever these are like."""
    interval: Span
    duration: Span
    """It returns after so long, so that the cluster's next run knows what was told."""


class InstancesOutput(Value):
    told: Packed = Field(default_factory=dict)
    owner: Key = ""
    """As in InstancesInput."""
    opened: Key = ""
    """As in InstancesInput."""


class VmsTold(InstancesOutput):
    account: Key
    """Account.key"""


class AccountNews(Value):
    """To each machine that has a VM in an account (signal `account_news`): which one its Secret opens now."""

    opened: Key = ""
    """In the cloud's own words; "": the right one again."""
    owner: Key
    """The one that the VMs are in."""
    secret_ref: SecretRef


class Reachability(Value):
    reachable: bool
    message: Text = ""
    time: Instant
    """When it was found."""
    since: Instant | None = None
    """Of an outage: when there was an answer for the last time, as far as whoever found it knows."""
    refused: bool = False
    """There are answers, and they say that our credentials are not accepted."""

    @property
    def began(self) -> datetime:
        """An outage is as long as nothing was heard, not as long as it is known."""
        return self.since or self.time

    @property
    def words(self) -> str:
        if self.reachable:
            return "answers"
        return f"answers, and refuses: {self.message}" if self.refused else f"cannot be reached: {self.message}"


class CloudReachability(Reachability):
    account: Key
    """Account.key"""


class NewsInput(Value):
    cluster: Name
    api: Reachability


class ClusterNews(Value):
    """From a cluster to its pools (signal `cluster_news`): whether it can be seen, whether a person has paused it."""

    reachable: bool = True
    """Everything answers: the API server and every account. What concerns one pool, `trouble` says."""
    message: Text = ""
    """Why it is not."""
    silent: dict[Name, Text] | None = None
    """By MachineClass, why its VMs cannot be listed; "": what concerns every pool, such as the API server. None: an
    older worker's news, in which everything concerns everybody."""
    paused: bool = False
    paused_by: Text = ""
    reason: Text = ""
    """Why it is paused, in the person's words."""
    time: OrderTime
    """News older than the last changes nothing."""

    def trouble(self, classes: Iterable[str]) -> str:
        """Why machines of these classes cannot be seen; "": they can."""
        if self.silent is None:
            return "" if self.reachable else self.message or "it cannot be seen"
        found = [self.silent[name] for name in ("", *sorted(classes)) if name in self.silent]
        return "; ".join(dict.fromkeys(found))


class Note(Value):
    """Something odd that the watch saw, for the cluster's journal."""

    reason: Word
    message: Text

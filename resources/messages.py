"""What travels between workflows, activities and their callers."""

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

    The sender makes the id, which is the update's id too. An intent typed by hand may leave it out.
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
    """A pool's intent for a machine that Failed and has no slot: it does not count if the machine is meanwhile to be
    preserved, and the machine then says so again."""


class RecreateIntent(DeleteIntent):
    """A complete delete, then a new life under the same name, by the newest spec and class."""


class AdoptIntent(Intent):
    """An intent for a machine that waits because of NameTaken: the VM of this uid, which carries its name, is its
    own."""

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


FAIRNESS_KEY_BYTES = 64
"""Temporal's own limit; it refuses a command with a longer one."""


class Account(Value):
    """A cloud account as a machine's class names it: what is listed in one go, and shares the cloud's limits."""

    provider: Name
    scope: Name = Field(alias="region")
    """The place within the account, in the words of the provider's spec (resources.clouds.scope_of), such as its
    region. On the wire it keeps the name from when every cloud had regions."""
    secret_ref: SecretRef
    """The Secret with the credentials."""

    @classmethod
    def of(
        cls, provider: str, provider_spec: dict[str, Any], secret_ref: SecretRef, credentials: SecretRef | None
    ) -> Account:
        """The account for a spec. Raises UnknownScope for a spec that does not say where its machines are, or that
        names an unknown cloud: there is nothing that could be listed."""
        return cls(provider=provider, scope=scope_of(provider, provider_spec), secret_ref=credentials or secret_ref)

    @property
    def key(self) -> str:
        where = f"{self.provider}/{self.scope}" if self.scope else self.provider
        return f"{where}/{self.secret_ref.namespace}/{self.secret_ref.name}"

    @property
    def place(self) -> dict[str, Any]:
        """As much of a provider spec as a call needs that concerns no single machine. Raises UnknownProvider."""
        return place_of(self.provider, self.scope)

    @property
    def fairness_key(self) -> str:
        """`key`, cut to the length that Temporal takes: a share of a task queue is kept for each."""
        if len(self.key.encode()) <= FAIRNESS_KEY_BYTES:
            return self.key
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:16]
        return f"{self.key.encode()[: FAIRNESS_KEY_BYTES - 17].decode(errors='ignore')}~{digest}"


class Announcement(Value):
    """Which account a machine's VM is in. As a signal of the cluster (`announce`) it only comes from older workers."""

    provider_id: Key = Field(alias="providerID")
    machine: Name
    account: Account | None = None
    machine_class: Name = ""


class AccountUse(Value):
    """Which account a class's VMs are in (signal `use_account` of a cluster): one per class, however many machines."""

    machine_class: Name
    """Name of the machines' class; "" if it is not known."""
    account: Account


# -- activities of a machine ----------------------------------------------------------------------------------------


class MachineRef(Value):
    cluster: Name
    name: Name
    uid: Key


class Target(Value):
    """Everything that a driver call needs to know about a machine. References only, never a secret's value."""

    machine: MachineRef
    provider: Name
    provider_spec: Document
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None
    provider_id: Key | None = Field(default=None, alias="providerID")
    token: Key = ""
    """The idempotency token of the attempt."""
    account_id: Key = ""
    """The account that its VM was made in, in the cloud's own words, or may have been made in by a call whose answer is
    not known; "": not known, or there was no such call."""
    consistency: Span
    poll: Span


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


class StaleNode(Value):
    """A Node that a new VM would have been mistaken for."""

    name: Name
    uid: Key
    provider_id: Key = Field(default="", alias="providerID")
    """The providerID of the VM that it was, where the Node says so."""


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
    user_data_version: Key = ""
    """resourceVersion of the Secret that the user data was rendered from."""
    account_id: Key = ""
    """The account that the VM is in."""


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


class AtNode(Value):
    """Which Node an activity may touch: names are reused, so it must have this providerID, or be this object."""

    machine: MachineRef
    node_name: Name
    provider_id: Key | None = Field(default=None, alias="providerID")
    node_uid: Key = ""
    """The uid of the Node object that the machine knows as its own; "" if it knows none."""


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


class DrainOutput(Value):
    pods: Count = 0
    """How many pods there were to move."""
    left: Texts = Field(default_factory=list)
    """Pods and volumes that were not waited for, and why."""
    uncordoned: bool = False
    """Set for a Node that was drained before: somebody has lifted the cordon since, and nothing was done."""


class DeleteInput(Value):
    target: Target


class DeleteOutput(Value):
    kept: Texts = Field(default_factory=list)
    vms: dict[Key, Name] = Field(default_factory=dict)
    """providerID of each VM that it has found and that is now gone, to the name that its kubelet registers with, or ""
    where no pass was told it: a create call without an answer may have made more, or others, than the machine knows."""


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


# -- machines without a workflow ------------------------------------------------------------------------------------


class OwnedVm(Value):
    """A VM that carries our owner tags."""

    provider_id: Key = Field(alias="providerID")
    machine: Key
    """The name in its tag, which anybody may have written."""
    uid: Key
    state: Word
    account: Key
    """Account.key"""
    account_id: Key = ""
    """The account that owns it, in the cloud's own words."""
    tagged: bool = True
    """False: it carries no installation's tag, and was made, by this one or another, before there was one."""


class ListVmsInput(Value):
    cluster: Name
    account: Account


class ListVmsOutput(Value):
    vms: list[OwnedVm] = Field(default_factory=list)
    """VMs of this installation, and those without a tag of one."""
    others: Count = 0
    """How many VMs another installation has made for a cluster of the same name."""


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
        """Whether nothing says that it was ever this installation's: neither its tags nor a workflow."""
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
    """How many VMs carry no tag of an installation, with or without an owner."""


# -- the cluster's watch ----------------------------------------------------------------------------------------------


class Cursor(Model):
    """The position of a watch of nodes: what it needs to continue without telling anybody the same again.

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
    """How long the watch goes on before it returns by itself, so that new code reaches it."""


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


class AccountNews(Value):
    """News for each machine that has a VM in an account (signal `account_news`): which one its Secret now opens."""

    opened: Key = ""
    """The account in the cloud's own words; "": it is the right one again."""
    owner: Key
    """The account that the VMs are in."""
    secret_ref: SecretRef


class Reachability(Value):
    reachable: bool
    message: Text = ""
    time: Instant
    """When it was found."""
    since: Instant | None = None
    """For an outage: the last time there was an answer, as far as its finder knows."""
    refused: bool = False
    """There are answers, but they say that our credentials are not accepted."""

    @property
    def began(self) -> datetime:
        """When it began. An outage lasts as long as nothing was heard, not as long as it is known."""
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
    """A cluster's news to its pools (signal `cluster_news`): whether it can be seen, whether a person has paused it."""

    reachable: bool = True
    """Whether everything answers: the API server and every account. `trouble` says what concerns one pool."""
    message: Text = ""
    """Why it is not reachable."""
    silent: dict[Name, Text] | None = None
    """Why the VMs of a MachineClass cannot be listed, by its name; "" stands for what concerns every pool, such as the
    API server. None: an older worker's news, in which everything concerns everybody."""
    paused: bool = False
    paused_by: Text = ""
    reason: Text = ""
    """Why it is paused, in the person's words."""
    time: OrderTime
    """News older than the last changes nothing."""

    def trouble(self, classes: Iterable[str]) -> str:
        """Why machines of these classes cannot be seen; "" if they can."""
        if self.silent is None:
            return "" if self.reachable else self.message or "it cannot be seen"
        found = [self.silent[name] for name in ("", *sorted(classes)) if name in self.silent]
        return "; ".join(dict.fromkeys(found))


class Note(Value):
    """Something odd that the watch saw, for the cluster's journal."""

    reason: Word
    message: Text

"""The state of one machine: the only argument of MachineWorkflow, and what `describe` shows."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import Field, computed_field, model_validator

from resources.base import (
    Annotations,
    Count,
    Document,
    Instant,
    Key,
    Labels,
    Model,
    Name,
    Span,
    Text,
    Texts,
    Value,
    Word,
    Words,
)
from resources.calls.cloud import ResourceUpdate, VmLook
from resources.calls.cluster import NodeLook
from resources.calls.machine import StaleNode
from resources.errors import BegunOperation, Code, ErrorInfo
from resources.intents import Intent
from resources.journal import Happening
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.hooks import HookOverrides
from resources.machine.intents import RepairIntent
from resources.machine.manifest import KeptMachineSpec, MachineSpec, NodeTemplate, SecretRef
from resources.machine.placement import Placement
from resources.machine.preservation import Preservation
from resources.manifests import MachineClass
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE
from resources.orders import Order
from resources.owner import POOL, Owner
from resources.timings import Timings

JOURNAL_LENGTH = 50
INTENTS_KEPT = 20
FORMER_KEPT = 10
"""The most VMs of former lives."""
ATTEMPTED_KEPT = 10
"""The most specs of hot updates without a success: more changes that all failed half-way are not expected."""


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    FAILED = "Failed"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    TERMINATING = "Terminating"


class OperationType(StrEnum):
    CREATE = "Create"
    UPDATE = "Update"
    HEALTH_CHECK = "HealthCheck"
    DRAIN = "Drain"
    PRESERVE = "Preserve"
    DELETE = "Delete"


class OperationState(StrEnum):
    PROCESSING = "Processing"
    SUCCESSFUL = "Successful"
    FAILED = "Failed"


class LastOperation(Value):
    """What was done last, or is being done, and how it went."""

    type: OperationType
    """What is or was done."""
    state: OperationState
    """How it went."""
    description: Text = ""
    """What it is about, in words."""
    error_code: Code | None = None
    """cluster-autoscaler reads ResourceExhausted here and backs off the node group."""
    time: Instant
    """When this was said."""


class WaitingFor(Value):
    """What the machine waits for."""

    reason: Word
    """CamelCase, for machines."""
    message: Text
    """With numbers and names, for people."""
    since: Instant
    """Since when it waits for this reason."""
    next_try: Instant | None = None
    """When the next try is made; null: something else ends the wait."""


class FailureStreak(Value):
    """Failures of one kind in a row."""

    reason: Word
    since: Instant
    failures: Count = 1


class Cause(Value):
    """An answer against a machine's creation that does not pass on its own."""

    reason: Word
    message: Text
    since: Instant
    """Since when that is the answer; calls without an answer in between change nothing."""


class Condition(Value):
    """Something that holds for a while and deserves attention."""

    type: Word
    """What it is about, in CamelCase."""
    reason: Word
    """The reason, which docs/runbook.md explains."""
    message: Text
    """The reason in words, with numbers and names."""
    since: Instant
    """Since when it has this reason."""


def generation_words(base: int, updatable: int) -> str:
    """Which generation of a class a spec is: `base` of what needs a new VM, `updatable` of the other fields."""
    older = 0 < base < updatable
    return f"generation {base}, with the updatable fields of {updatable}" if older else f"generation {updatable}"


class ClassSnapshot(Value):
    """A MachineClass as it was when this machine was told of it. It serves until the end, even when the class is
    gone."""

    name: Name
    generation: Order = Field(default=1, ge=1)
    provider: Name
    provider_spec: Document
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None
    base: Order = 0
    """The generation that its fields which need a new VM are of, where that is an older one: a machine of a pool takes
    only what is updatable of a newer one, and so does a revision that was gone back to. 0: all are `generation`'s."""

    @property
    def based_on(self) -> int:
        return self.base or self.generation

    @property
    def words(self) -> str:
        return f"{self.name}, {generation_words(self.based_on, self.generation)}"

    @classmethod
    def of(cls, manifest: MachineClass, generation: int = 1) -> ClassSnapshot:
        return cls(
            name=manifest.metadata.name,
            generation=generation,
            provider=manifest.provider,
            provider_spec=manifest.provider_spec,
            secret_ref=manifest.secret_ref,
            credentials_secret_ref=manifest.credentials_secret_ref,
        )


class Attempt(Value):
    """One attempt to create the VM: one token, one frozen request. It is in state before the cloud is called."""

    number: Count
    token: Key
    started: Instant
    machine_class: ClassSnapshot
    """The class that the request was made from. A later class needs a new attempt."""


class ApplyIntent(Intent):
    """The manifest as applied again: its spec and the class at that moment."""

    spec: MachineSpec
    machine_class: ClassSnapshot
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class UpdateTrouble(Value):
    """Why the last hot update failed. The machine itself is none the worse for it."""

    reason: Word
    """The reason, which docs/runbook.md explains."""
    message: Text
    """What went wrong, in words."""
    since: Instant
    """When the first failure of this reason in a row was."""
    time: Instant
    """When the last one was."""
    next_try: Instant | None
    """None: the driver cannot update a VM that runs, so it is not tried again."""
    resources: list[ResourceUpdate] = Field(default_factory=list)
    """What became of each resource: some may have been updated."""


class Mark(Value):
    """A mark for deletion that somebody has set on the machine's Node."""

    text: Text
    """The text as it was written."""
    time: Instant
    """The time that was meant; where it cannot be read, when it was first seen."""


class Illness(Value):
    """A spell of being unhealthy, and what is remembered of former ones."""

    began: Instant
    ended: Instant | None = None
    """None: it lasts."""
    spent: Span = timedelta(0)
    """How much of healthTimeout former spells have used."""
    spells: Count = 1


class Look(Value):
    """A fresh look at a machine's Node, Lease and VM."""

    time: Instant
    node: NodeLook
    vm: VmLook


class VmClaim(Value):
    """What the cloud says against the VM of a Node, until looks have shown whether its kubelet lives."""

    facts: VmFacts
    since: Instant
    look: Look | None = None
    """The last look at Node, Lease and VM, to compare the next one with."""
    next: Instant
    """When the next look is due."""
    moved: Count = 0
    """How many looks in a row saw the Lease move: a contradiction."""


class Deletion(Value):
    """The intent to delete; once given it stays."""

    time: Instant
    requested_by: Text = ""
    reason: Text = ""
    force: bool = False
    recreate: bool = False
    """A new life follows, under the same name."""
    abandon_node: bool = False
    """Once the VM is gone, do not wait for a cluster that does not answer."""


class AppliedSpec(Value):
    """The provider spec that the VM carries, and its hash (seed 002: last-updated-machineClass)."""

    hash: Key
    """The hash of the provider spec."""
    provider_spec: Document
    """The provider spec itself."""


class Status(Model):
    """What is and what was; written by the workflow only."""

    phase: Phase = Phase.PENDING
    """Where the machine is in its life."""
    phase_since: Instant | None = None
    """Since when it is in this phase."""
    last_operation: LastOperation | None = None
    provider_id: Key | None = Field(default=None, alias="providerID")
    """The VM's id; null: there is none yet."""
    node_name: Name | None = None
    """The Node's name; before it has joined, the one that the cloud promised."""
    addresses: Words = Field(default_factory=list)
    """The VM's addresses and host names."""
    last_applied_provider_spec: AppliedSpec | None = None
    applied_generation: Count = 0
    """The newest generation of the class whose updatable fields the VM carries."""
    update_trouble: UpdateTrouble | None = None
    last_applied_node_template: NodeTemplate | None = None
    conditions: list[Condition] = Field(default_factory=list)
    """What deserves attention now."""
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    """Absolute; one timer is armed for the earliest."""
    waiting_for: WaitingFor | None = None
    """What it waits for; null: for nothing."""
    preserve: Preservation = Field(default_factory=Preservation)
    kept: Texts = Field(default_factory=list)
    """Volumes and NICs that outlive the machine because its spec says so."""
    left: Texts = Field(default_factory=list)
    """What it leaves in the cluster, because nobody could remove it or say that it was the machine's."""

    @property
    def shown_phase(self) -> str:
        """The phase, with the sub-phase of a preserved machine (seed 003, point 2)."""
        return f"{self.phase}:Preserved" if self.preserve.expiry_time else str(self.phase)


class MachineState(Model):
    """Identity, intent, status and memory of one machine. A person may start one with plain JSON:

    {"cluster": "demo", "name": "m1", "spec": {"class": {"name": "c1"}}, "machineClass": {…}}
    """

    name: Name
    cluster: Name = DEFAULT_CLUSTER
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    spec: KeptMachineSpec
    machine_class: ClassSnapshot | None = None
    queue_prefix: Name = DEFAULT_QUEUE
    """The workflow's own task queue, from which the others are named."""
    timings: Timings = Field(default_factory=Timings)
    owner: Owner | None = None
    """The owner that made it, plans its end and hears of it; None: nobody. On the wire, `pool` also names an owner that
    is a pool."""
    revision: Count = 0
    """The owner's revision that it was made from."""
    template: Count = 0
    """The generation of the owner's template that its spec comes from."""
    placement: Placement | None = None
    """Its place among its owner's machines, where that gives it one."""
    domain: Document = Field(default_factory=dict)
    """The fields of its failure domain, within which it takes its class; {}: none."""

    status: Status = Field(default_factory=Status)

    uid: Key = ""
    life: Count = 0
    """Which life of its name this is in this chain of runs, from 1: `recreate` begins the next. 0: begun by hand, or by
    an older starter."""
    takes: Key = ""
    """The uid of a VM of its name that a person has told it to take over."""
    created: Instant | None = None
    attempt: Attempt | None = None
    made: Instant | None = None
    """When the cloud answered that there is a VM."""
    tagged: bool = False
    """Whether that VM is known to carry its installation's tag."""
    stale: StaleNode | None = None
    """The Node that its VM would have been mistaken for, until it is known whether it can be removed."""
    node: NodeFacts | None = None
    """The newest facts from the watch of nodes."""
    vm: VmFacts | None = None
    """The newest facts of the VM that are believed: bad news, and good news after bad."""
    claim: VmClaim | None = None
    """What the cloud says of it and is not believed, or not yet."""
    post_start_done: bool = False
    classes: list[Name] = Field(default_factory=list)
    """Names of the classes that count the machine among their users."""
    reported: list[Key] = Field(default_factory=list)
    """What its class was told last: generation, applied, state, reason."""
    account: Key = ""
    """Key of the account in which the cluster was told to look for the VM."""
    account_id: Key = ""
    """The account that the VM was made in, in the cloud's own words, or may have been made in by a create call whose
    answer is not known: Secrets may open another one later. "": there was no such call, or it was made before this was
    recorded, and the next read of the VM fills it in."""
    begun: BegunOperation | None = None
    """What the cloud is at for the attempt, as its last call has left it."""
    asked: bool = True
    """Whether a create call may have asked the cloud for a VM: not while each has failed for want of a Secret."""
    joined: bool = False
    """Whether the Node carries the template and the token is revoked."""
    joined_uid: Key | None = None
    """The uid of the Node object that carries the template."""
    ready_uid: Key | None = None
    """The uid of the Node object that was freed of the instance-not-ready taint; another one must be made ready
    first."""
    was_running: bool = False
    trouble: FailureStreak | None = None
    cause: Cause | None = None
    """The last answer against its creation that does not pass on its own; None: there was none since a step went well.
    """
    silent_since: Instant | None = None
    """Since when its API server or cloud account does not answer: meanwhile its creation deadline stands still."""
    stood_still: Span = timedelta(0)
    """For how long its creation deadline has stood still in outages that are over."""
    held_up: FailureStreak | None = None
    """What held a machine up that Failed at its creation deadline, where more is known than that it was late."""
    update_failures: Count = 0
    """Failures of the hot update, in a row."""
    attempted_specs: list[Document] = Field(default_factory=list)
    """Specs of hot updates begun since the last that succeeded, and of create calls of another class: the VM may carry
    parts of each."""
    healthy_since: Instant | None = None
    illness: Illness | None = None
    ill_for: Word = ""
    """The last reason given for being Unknown."""
    suspicion: Look | None = None
    """The first of the two looks without which no machine is Failed."""
    adopted: bool = False
    """Whether it began with a VM that was found by its owner tags."""
    asks_permit: bool = False
    """Whether it asks its pool to be Failed, having been found ill for healthTimeout."""
    permitted: bool = False
    """Whether the pool has permitted that."""
    mark: Mark | None = None
    """The mark on its Node."""
    template_applied: Count = 0
    """The newest generation of the pool's template that the Node carries, once there is one."""
    create_failure: ErrorInfo | None = None
    """The failure of the last create call, while there is no VM."""
    create_failures: Count = 0
    """How many create calls failed."""
    failures_told: Count = 0
    """How many of them the pool has heard of."""
    told_pool: Key = ""
    """A hash of the last report to the pool, without its number, to see whether there is anything new to say."""
    reports: Count = 0
    """The number of the last report to the pool."""
    repair: RepairIntent | None = None
    """Set when its pool wants it gone, unless a fresh look at its Node finds that it is to be preserved."""
    drain_began: Instant | None = None
    drained: bool = False
    look_again: bool = False
    """The drain was long before the deletion: the Node is looked at again before the VM goes."""
    vm_gone: bool = False
    vms: dict[Key, Name] = Field(default_factory=dict)
    """What the deletion found and has deleted, as in DeleteOutput: Nodes of theirs may be left."""
    former_vms: list[Key] = Field(default_factory=list)
    """providerIDs of the VMs of the last former lives."""
    deletion: Deletion | None = None
    hooks: HookOverrides = Field(default_factory=HookOverrides)
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    """The last intents, id to answer: a second arrival changes nothing and gets the first answer."""
    parked: Text | None = None
    """Why the life is parked: an error of our own code. `renew` tries the phase again."""
    messages: Count = 0
    """Messages since the last continue-as-new."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_pool(cls, data: Any) -> Any:
        """Fills the owner: a person only names the pool, and so does an older worker."""
        if isinstance(data, dict) and data.get("pool") and not data.get("owner"):
            return {**data, "owner": {"name": data["pool"]}}
        return data

    @property
    def counted(self) -> bool:
        """Whether its owner counts its machines through by index, as a control plane does."""
        return self.placement is not None and self.placement.counted

    @computed_field  # type: ignore[prop-decorator]
    @property
    def pool(self) -> str:
        """The owner's name, where it is a pool; else ""."""
        return self.owner.name if self.owner is not None and self.owner.kind == POOL.manifest else ""


class MachineResult(Value):
    """What is left of a machine that is gone."""

    name: Name
    cluster: Name
    uid: Key
    provider_id: Key | None = Field(default=None, alias="providerID")
    kept: Texts = Field(default_factory=list)
    left: Texts = Field(default_factory=list)
    """What is left in the cluster, by an operator's word or because nobody could say that it was the machine's."""
    journal: list[Happening] = Field(default_factory=list)

"""The state of one machine: the only argument of MachineWorkflow, and what `describe` shows."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import Field

from resources.base import Duration, Model, Value
from resources.errors import Code, ErrorInfo
from resources.hooks import Hooks
from resources.manifests import MachineClass, MachineSpec, NodeTemplate, SecretRef
from resources.messages import (
    Happening,
    Intent,
    NodeFacts,
    NodeLook,
    RepairIntent,
    ResourceUpdate,
    StaleNode,
    VmFacts,
    VmLook,
)
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE
from resources.preservation import Preservation
from resources.timings import Timings

JOURNAL_LENGTH = 50
INTENTS_KEPT = 20
FORMER_KEPT = 10
"""VMs of former lives."""
ATTEMPTED_KEPT = 10
"""Specs of hot updates without a success: more changes than that, all failed half-way, are not expected."""


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
    type: OperationType
    state: OperationState
    description: str = ""
    error_code: Code | None = None
    """cluster-autoscaler reads ResourceExhausted here and backs off the node group."""
    time: datetime


class WaitingFor(Value):
    reason: str
    """CamelCase, for machines."""
    message: str
    """With numbers and names, for people."""
    since: datetime
    next_try: datetime | None = None


class Trouble(Value):
    """Failures of one kind in a row."""

    reason: str
    since: datetime
    failures: int = 1


class Condition(Value):
    type: str
    reason: str
    message: str
    since: datetime


class ClassSnapshot(Value):
    """A MachineClass as it was when this machine was told of it. It serves to the end, also when the class is gone."""

    name: str
    generation: int = Field(default=1, ge=1)
    provider: str
    provider_spec: dict[str, Any]
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None = None

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
    """One try to create the VM: one token, one frozen request. It is in state before the cloud is called."""

    number: int
    token: str
    started: datetime
    machine_class: ClassSnapshot
    """The class that the request was made from. A later class is a new attempt's."""


class ApplyIntent(Intent):
    """The manifest as applied once more: its spec and the class of that moment."""

    spec: MachineSpec
    machine_class: ClassSnapshot
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class UpdateTrouble(Value):
    """Why the last hot update failed. The machine itself is none the worse for it."""

    reason: str
    message: str
    since: datetime
    """Of the first failure of this reason in a row."""
    time: datetime
    """Of the last one."""
    next_try: datetime | None
    """None: the driver cannot update a VM that runs, so it is not tried again."""
    resources: list[ResourceUpdate] = Field(default_factory=list)
    """What became of each resource: some may have been updated."""


class Mark(Value):
    """That somebody has marked the machine for deletion, on its Node."""

    text: str
    """As it was written."""
    time: datetime
    """As it was meant; where it cannot be read, when it was first seen."""


class Illness(Value):
    """A spell of being unhealthy, and what is remembered of former ones."""

    began: datetime
    ended: datetime | None = None
    """None: it lasts."""
    spent: Duration = timedelta(0)
    """Of healthTimeout, in former spells."""
    spells: int = 1


class Look(Value):
    """A fresh look at a machine's Node, Lease and VM."""

    time: datetime
    node: NodeLook
    vm: VmLook


class VmClaim(Value):
    """What the cloud says against the VM of a Node, until looks have shown whether its kubelet lives."""

    facts: VmFacts
    since: datetime
    look: Look | None = None
    """The last look at Node, Lease and VM, which the next one is compared with."""
    next: datetime
    """When it is looked at next."""
    moved: int = 0
    """Looks in a row that saw the Lease move: a contradiction."""


class Deletion(Value):
    """The intent to delete; once given it stays."""

    time: datetime
    requested_by: str = ""
    reason: str = ""
    force: bool = False
    recreate: bool = False
    """A new life follows, under the same name."""
    abandon_node: bool = False
    """Once the VM is gone, a cluster that does not answer is not waited for."""


class AppliedSpec(Value):
    """The provider spec that the VM carries, and its hash (seed 002: last-updated-machineClass)."""

    hash: str
    provider_spec: dict[str, Any]


class Status(Model):
    """What is and what was; written by the workflow only."""

    phase: Phase = Phase.PENDING
    phase_since: datetime | None = None
    last_operation: LastOperation | None = None
    provider_id: str | None = Field(default=None, alias="providerID")
    node_name: str | None = None
    addresses: list[str] = Field(default_factory=list)
    last_applied_provider_spec: AppliedSpec | None = None
    applied_generation: int = 0
    """The newest generation of the class whose updatable fields the VM carries."""
    update_trouble: UpdateTrouble | None = None
    last_applied_node_template: NodeTemplate | None = None
    conditions: list[Condition] = Field(default_factory=list)
    deadlines: dict[str, datetime] = Field(default_factory=dict)
    """Absolute; one timer is armed for the earliest."""
    waiting_for: WaitingFor | None = None
    preserve: Preservation = Field(default_factory=Preservation)
    kept: list[str] = Field(default_factory=list)
    """Volumes and NICs that outlive the machine because its spec says so."""
    left: list[str] = Field(default_factory=list)
    """What it leaves in the cluster, because nobody could remove it or say that it was the machine's."""

    @property
    def shown_phase(self) -> str:
        """With the sub-phase of one that is preserved (seed 003, point 2)."""
        return f"{self.phase}:Preserved" if self.preserve.expiry_time else str(self.phase)


class MachineState(Model):
    """Identity, intent, status and memory of one machine. A person may start one with plain JSON:

    {"cluster": "demo", "name": "m1", "spec": {"class": {"name": "c1"}}, "machineClass": {…}}
    """

    name: str
    cluster: str = DEFAULT_CLUSTER
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    spec: MachineSpec
    machine_class: ClassSnapshot | None = None
    queue_prefix: str = DEFAULT_QUEUE
    """The workflow's own task queue, from which the others are named."""
    timings: Timings = Field(default_factory=Timings)
    pool: str = ""
    """The pool that made it, plans its end and hears of it; "": none."""
    revision: int = 0
    """Of the pool, that it was made from."""
    template: int = 0
    """Generation of the pool's template that its spec is of."""

    status: Status = Field(default_factory=Status)

    uid: str = ""
    life: int = 0
    """Which one of its name in this chain of runs, from 1: `recreate` begins the next. 0: begun by hand, or by an older
    starter."""
    takes: str = ""
    """The uid of a VM of its name that a person has told it to take over."""
    created: datetime | None = None
    attempt: Attempt | None = None
    made: datetime | None = None
    """When the cloud answered that there is a VM."""
    stale: StaleNode | None = None
    """The Node that its VM would have been mistaken for, until it is known whether it can be removed."""
    node: NodeFacts | None = None
    """The newest that the watch of nodes told."""
    vm: VmFacts | None = None
    """The newest of the VM that is believed: bad news, and good news after bad."""
    claim: VmClaim | None = None
    """What the cloud says of it and is not believed, or not yet."""
    post_start_done: bool = False
    classes: list[str] = Field(default_factory=list)
    """Names of the classes that count the machine among their users."""
    reported: list[str] = Field(default_factory=list)
    """What its class was told last: generation, applied, state, reason."""
    account: str = ""
    """Key of the account in which the cluster was told to look for the VM."""
    account_id: str = ""
    """The account that the VM was made in, as the cloud names accounts, or may have been by a create call whose answer
    is not known: Secrets may open another one later. "": there was no such call, or it was made before this was asked,
    and is learnt when the VM is read next."""
    joined: bool = False
    """The Node carries the template and the token is revoked."""
    joined_uid: str | None = None
    """Of the Node object that carries the template."""
    ready_uid: str | None = None
    """Of the Node object that was freed of the instance-not-ready taint; another one must be made ready first."""
    was_running: bool = False
    trouble: Trouble | None = None
    update_failures: int = 0
    """Of the hot update, in a row."""
    attempted_specs: list[dict[str, Any]] = Field(default_factory=list)
    """Of hot updates that were begun since the last that succeeded, and of create calls of another class: the VM may
    carry parts of each."""
    healthy_since: datetime | None = None
    illness: Illness | None = None
    suspicion: Look | None = None
    """The first of the two looks without which no machine is Failed."""
    adopted: bool = False
    """Began with a VM that was found by its owner tags."""
    asks_permit: bool = False
    """Found ill for healthTimeout, it asks its pool whether it may be Failed."""
    permitted: bool = False
    """The pool has said so."""
    mark: Mark | None = None
    """On its Node."""
    template_applied: int = 0
    """The newest generation of the pool's template that the Node carries, once there is one."""
    create_failure: ErrorInfo | None = None
    """Of the last create call, while there is no VM."""
    create_failures: int = 0
    """Create calls that failed."""
    failures_told: int = 0
    """So many of them the pool has heard of."""
    told_pool: str = ""
    """The last report to the pool as a hash, without its number, to see whether there is anything new to say."""
    reports: int = 0
    """To the pool, so far."""
    repair: RepairIntent | None = None
    """Its pool wants it gone, unless a fresh look at its Node finds that it is to be preserved."""
    drain_began: datetime | None = None
    drained: bool = False
    look_again: bool = False
    """The drain was long before the deletion: the Node is looked at once more before the VM goes."""
    vm_gone: bool = False
    vms: dict[str, str] = Field(default_factory=dict)
    """What the deletion found and has deleted, as in DeleteOutput: Nodes of them may be left."""
    former_vms: list[str] = Field(default_factory=list)
    """providerIDs of the VMs of former lives, the last ones."""
    deletion: Deletion | None = None
    hooks: Hooks = Field(default_factory=Hooks)
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[str, str] = Field(default_factory=dict)
    """The last intents, id to answer: a second arrival changes nothing and gets the first answer."""
    parked: str | None = None
    """Why the life stands still: an error of our own code. `renew` tries the phase again."""
    messages: int = 0
    """Since the last continue-as-new."""


class MachineResult(Value):
    """What is left of a machine that is gone."""

    name: str
    cluster: str
    uid: str
    provider_id: str | None = Field(default=None, alias="providerID")
    kept: list[str] = Field(default_factory=list)
    left: list[str] = Field(default_factory=list)
    """In the cluster, by an operator's word or because nobody could say that it was the machine's."""
    journal: list[Happening] = Field(default_factory=list)

"""What a machine and its owner exchange: signals both ways, each a whole snapshot."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Document, Instant, Key, Name, Text, Value, Word
from resources.errors import ErrorClass
from resources.fleet.member import PreserveWish, Trouble, Vm
from resources.fleet.revision import KeptTemplate, Revision
from resources.fleet.state import FleetState
from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent, RepairIntent
from resources.machine.manifest import MachineSpec
from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.orders import Order
from resources.owner import Owner, OwnerRef


def member_state(
    state: FleetState, owner: Owner, name: str, revision: Revision, placement: Placement | None = None
) -> MachineState:
    """The state with which its owner makes a machine of this revision."""
    template = revision.template
    return MachineState(
        name=name,
        cluster=state.cluster,
        namespace=state.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        spec=MachineSpec.model_validate(template.spec.model_dump(by_alias=True)),
        machine_class=revision.machine_class,
        queue_prefix=state.queue_prefix,
        timings=state.timings,
        owner=owner,
        revision=revision.counter,
        template=state.template_of(revision.counter),
        placement=placement,
        life=1,
    )


class CreateFailure(Value):
    """The failure of a create call; the pool slows down for it."""

    error_class: ErrorClass
    message: Text
    reason: Word = ""
    """The machine's own, where it says more than the class: CredentialsMissing of `auth`. "": an older worker's."""


class PlaceNews(Value):
    """What a machine reports to an owner that counts its machines through by index, besides what others need."""

    joined: bool = False
    """Whether its Node has joined: it may have a member of etcd."""
    node_ready: bool = False
    """Whether its Node is Ready."""
    held: bool = False
    """Whether it is about to be drained, and its owner's hook holds it."""
    forced: bool = False
    """Whether a person has deleted it with force."""
    domain: Key = ""
    """A digest of the fields of its failure domain; "" where it has none."""
    wanted: bool = False
    """Whether somebody has asked to preserve it, also for when it fails."""


class MemberReport(Value):
    """A machine's report to its owner (signal `report`), when something has changed."""

    machine: Name
    seq: Order
    """The report's number, which grows with each; one that was overtaken on its way changes nothing."""
    phase: Phase
    since: Instant
    """When it entered the phase."""
    vm: Vm = Vm.UNBORN
    trouble: Trouble = Trouble.NONE
    message: Text = ""
    """The trouble's words, for people."""
    asks: bool = False
    """Two fresh looks after healthTimeout found it ill: it waits for the permit to be Failed."""
    drained: bool = False
    """Failed, and nothing is left on its Node that a drain would move."""
    priority: Count | None = None
    """The priority from the annotation on its Node; None: the template's."""
    marked: Instant | None = None
    """When it was marked for deletion, by the annotation on its Node."""
    preserved_until: Instant | None = None
    preserved_by: PreservedBy = PreservedBy.NOBODY
    keep: PreserveWish = PreserveWish.UNDECIDED
    """What it says is to become of it once it has Failed and is drained. The pool answers with `preserve_granted`, or
    deletes it."""
    failure: CreateFailure | None = None
    """The failure of the last create call, while there is no VM."""
    failures: Count = 0
    """How many create calls failed: the same error twice is two failures."""
    unanswered: bool = False
    """It got no VM within its creationTimeout, and its last create call had no clear answer: each may have made one
    that somebody has terminated since."""
    template: Order = 0
    """The newest generation of the pool's template that its spec and its Node have."""
    contradicted: bool = False
    """Whether the cloud says that its VM is gone or does not run, while its kubelet lives."""
    ended: bool = False
    """Nothing is left of it; the last report of all."""
    machine_class: Name = ""
    """The class that its VM was or will be made from. This and the hash are only there after `report_again`: a pool
    that does not know the machine finds its revision by them."""
    hash: Key = ""
    """planners.hot_update.rolling_hash of that class in version 1, for a pool on an older worker."""
    rolling_hash: Key = ""
    """The same in the newest version, which counts where it is given."""
    placement: Placement | None = None
    """Its place among its owner's machines, as it was given at its start."""
    place: PlaceNews | None = None
    """None: it has no index."""
    made_from: ClassSnapshot | None = None
    """The class that its VM was or will be made from, for an owner that takes it over; only after `owner_changed`."""


class PermitGranted(Value):
    """An owner's message to a machine (signal `permit`): it may be Failed, if one more fresh look finds it ill."""

    reason: Text


class PreserveGrant(Value):
    """An owner's message to a machine that is Failed and drained (signal `preserve_granted`): it is to be preserved.
    The machine's own clock and timeout set the expiry."""

    by: PreservedBy
    reason: Text


class SlotTaken(Value):
    """An owner's message to a machine that it had preserved on its own (signal `slot_taken`): autoPreserveFailedMax is
    lower now."""

    reason: Text


class OwnerNews(Value):
    """An owner's message to a machine (signal `owner_changed`): it takes the machine over, gives it a place, or lets it
    go. Nothing happens to a machine of another owner."""

    owner: Owner
    """The sender."""
    released: bool = False
    """The machine has no owner any more."""
    placement: Placement | None = None
    domain: Document = Field(default_factory=dict)
    """The fields of its failure domain."""
    machine_class: ClassSnapshot | None = None
    """The class that it has from now on: its VM is as if it had been made from it. None: its own stays."""


class TemplateNews(Value):
    """An owner's message to a machine (signal `template_changed`): the template as it is; an older generation is
    dropped."""

    generation: Order
    template: KeptTemplate
    requested_by: Text = ""


# -- activities of an owner -------------------------------------------------------------------------------------------


class StartMachinesInput(Value):
    """Machines to be started, which only differ in their names."""

    names: list[Name]
    state: MachineState
    """The state that each begins with; its name is one of those above."""


class StartMachinesOutput(Value):
    used: list[Name] = Field(default_factory=list)
    """Names that belonged to a machine that is gone: its workflow is not started again."""


class TellMachinesInput(Value):
    """One signal for many machines; at most one of the messages is given. Without any they are asked to report."""

    cluster: Name
    names: list[Name]
    delete: DeleteIntent | None = None
    repair: RepairIntent | None = None
    permit: PermitGranted | None = None
    preserve: PreserveGrant | None = None
    slot_taken: SlotTaken | None = None
    template: TemplateNews | None = None
    hook: HookIntent | None = None
    owner: OwnerNews | None = None


class TellMachinesOutput(Value):
    gone: list[Name] = Field(default_factory=list)
    """Machines whose workflow has ended in order: nothing is left of them."""
    lost: dict[Name, Word] = Field(default_factory=dict)
    """Machines whose workflow was ended from outside, with its status, or was never started (""): there may be a VM."""


class MembersFound(Value):
    names: list[Name] = Field(default_factory=list)
    """Running machines that say they are the owner's."""
    rollouts: list[Count] = Field(default_factory=list)
    """Revisions of its rollouts whose stories run."""


class MarkNodesInput(Value):
    """Marks of a rollout on the Nodes of these machines; taken off where `on` is False."""

    cluster: Name
    pool: Name
    machines: list[Name]
    on: bool


class ForgetPoolInput(OwnerRef):
    """An owner of any kind; the name is from when there were only pools."""

    classes: list[Name] = Field(default_factory=list)
    """Names of the classes that no longer have it as a user."""

"""What goes between a machine and the pool that made it: signals both ways, each a whole snapshot."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Instant, Key, Name, Text, Value, Word
from resources.errors import ErrorClass
from resources.machine import MachineState, Phase
from resources.machine_manifest import MachineSpec
from resources.member import Keep, Trouble, Vm
from resources.messages import DeleteIntent, RepairIntent
from resources.owner import Owner
from resources.pool import KeptTemplate, PoolState, Revision
from resources.preservation import PreservedBy


def member_state(pool: PoolState, name: str, revision: Revision) -> MachineState:
    """A machine as its pool makes those of this revision."""
    template = revision.template
    return MachineState(
        name=name,
        cluster=pool.cluster,
        namespace=pool.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        spec=MachineSpec.model_validate(template.spec.model_dump(by_alias=True)),
        machine_class=revision.machine_class,
        queue_prefix=pool.queue_prefix,
        timings=pool.timings,
        owner=Owner(name=pool.name),
        revision=revision.counter,
        template=pool.template_of(revision.counter),
        life=1,
    )


class CreateFailure(Value):
    """Of a create call; the pool slows down for it."""

    error_class: ErrorClass
    message: Text


class MemberReport(Value):
    """From a machine to its pool (signal `report`), when something of it has changed."""

    machine: Name
    seq: Count
    """Grows with each; one that was overtaken on its way changes nothing."""
    phase: Phase
    since: Instant
    """When it entered the phase."""
    vm: Vm = Vm.UNBORN
    trouble: Trouble = Trouble.NONE
    message: Text = ""
    """Of the trouble, for people."""
    asks: bool = False
    """Two fresh looks after healthTimeout found it ill: it waits for the permit to be Failed."""
    drained: bool = False
    """Failed, and nothing is left on its Node that a drain would move."""
    priority: Count | None = None
    """By the annotation on its Node; None: the template's."""
    marked: Instant | None = None
    """Marked for deletion, by the annotation on its Node."""
    preserved_until: Instant | None = None
    preserved_by: PreservedBy = PreservedBy.NOBODY
    keep: Keep = Keep.UNDECIDED
    """Failed and drained: what it says shall become of it. The pool answers with `preserve_granted`, or deletes it."""
    failure: CreateFailure | None = None
    """Of the last create call, while there is no VM."""
    failures: Count = 0
    """Create calls that failed: the same error twice is two failures."""
    unanswered: bool = False
    """It got no VM within its creationTimeout, and its last create call had no clear answer: each may have made one
    that somebody has terminated since."""
    template: Count = 0
    """The newest generation of the pool's template that its spec and its Node have."""
    contradicted: bool = False
    """The cloud says that its VM is gone or does not run, and its kubelet lives."""
    ended: bool = False
    """Nothing is left of it; the last report of all."""
    machine_class: Name = ""
    """The class that its VM was or will be made from. This and the hash only after `report_again`: a pool that does not
    know the machine finds its revision by them."""
    hash: Key = ""
    """planners.hot_update.rolling_hash of that class."""


class Permit(Value):
    """From a pool to a machine (signal `permit`): it may be Failed, if one more fresh look finds it ill."""

    reason: Text


class PreserveGrant(Value):
    """From a pool to a machine that is Failed and drained (signal `preserve_granted`): it is to be preserved. The
    machine's own clock and timeout make the expiry."""

    by: PreservedBy
    reason: Text


class SlotTaken(Value):
    """From a pool to a machine that it had preserved by itself (signal `slot_taken`): autoPreserveFailedMax is lower
    now."""

    reason: Text


class TemplateNews(Value):
    """From a pool to a machine (signal `template_changed`): the template as it is; an older generation is dropped."""

    generation: Count
    template: KeptTemplate
    requested_by: Text = ""


# -- activities of a pool ---------------------------------------------------------------------------------------------


class PoolRef(Value):
    cluster: Name
    name: Name


class StartMachinesInput(Value):
    """Machines to be started, that differ in their names only."""

    names: list[Name]
    state: MachineState
    """As each begins; its name is one of those above."""


class StartMachinesOutput(Value):
    used: list[Name] = Field(default_factory=list)
    """Names that a machine has had that is gone: its workflow is not started again."""


class TellMachinesInput(Value):
    """One signal for many machines; exactly one of the messages is given. Without any they are asked to report."""

    cluster: Name
    names: list[Name]
    delete: DeleteIntent | None = None
    repair: RepairIntent | None = None
    permit: Permit | None = None
    preserve: PreserveGrant | None = None
    slot_taken: SlotTaken | None = None
    template: TemplateNews | None = None


class TellMachinesOutput(Value):
    gone: list[Name] = Field(default_factory=list)
    """Those whose workflow has ended in order: nothing is left of them."""
    lost: dict[Name, Word] = Field(default_factory=dict)
    """Those whose workflow was ended from outside, with its status, or was never started (""): there may be a VM."""


class MembersFound(Value):
    names: list[Name] = Field(default_factory=list)
    """Running machines that say they are the pool's."""
    rollouts: list[Count] = Field(default_factory=list)
    """Revisions of the pool's rollouts whose stories run."""


class MarkNodesInput(Value):
    """Marks of a rollout on the Nodes of these machines; off where `on` is False."""

    cluster: Name
    pool: Name
    machines: list[Name]
    on: bool


class ForgetPoolInput(Value):
    cluster: Name
    name: Name
    classes: list[Name] = Field(default_factory=list)
    """Names of those whose user it is no more."""

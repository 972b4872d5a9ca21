"""What a control plane answers: itself in numbers and by index; and what it is asked."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Instant, Name, Text, Value
from resources.control_plane.spec import ControlPlaneSpec, State, UpdateStrategy
from resources.control_plane.state import SetCondition
from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.state import FleetWait
from resources.machine.state import ClassSnapshot, Phase
from resources.owner import CONTROL_PLANE

GOES_ON = ("ReplacementComing", "WaitsForReplacement", "ControlPlaneLeaving", "SurgeUsed", "CreatesSlowly")
"""Waits that end on their own, each with the next machine that is ready, or gone."""


class HostSummary(Value):
    """One machine of an index."""

    name: Name
    phase: Phase
    since: Instant
    """Since when it is in its phase."""
    ready: bool
    """Whether it is Running and its Node is Ready, or has been NotReady for a short time only."""
    outdated: Text = ""
    """What differs from what its index asks for, in words; "" where nothing does."""
    leaving: bool = False
    held: bool = False
    """Whether it leaves, and stays until the control plane lets it go."""
    failure: Text = ""
    """What keeps it from Running, in words; "" where nothing does."""
    failure_domain: Name = ""
    revision: Count = 0


class IndexSummary(Value):
    """One place of the control plane, with the machines that are there: one, or two while it is replaced."""

    index: Count
    failure_domain: Name = ""
    """The failure domain that it is to have; "" where the control plane has none."""
    hosts: list[HostSummary] = Field(default_factory=list)
    """Oldest first; none where it is empty."""
    done: bool = False
    """Whether it has one machine, which is ready and up to date, and nothing else."""
    waits: Text = ""
    """What it waits for, in a few words; "" where it is done."""


class ControlPlaneSummary(Value):
    """A control plane in numbers, and by index (query `summary`)."""

    name: Name
    cluster: Name
    created: Instant | None = None
    machine_class: Name
    generation: Count = 0
    """The newest generation of its class that it knows; 0: none yet."""
    state: State
    strategy: UpdateStrategy
    paused: bool = False
    paused_by: Text = ""
    deleted: bool = False
    """Whether it is being deleted; its machines stay."""
    revision: Count = 0
    replicas: Count
    """How many indexes there are to be."""
    machines: Count = 0
    ready: Count = 0
    updated: Count = 0
    """Ready and up to date, those that leave left out."""
    unavailable: Count = 0
    """How many indexes have no ready machine."""
    quorum: Count
    """How many ready machines a majority needs."""
    serving: Count = 0
    """How many machines are ready and have not been let go: their members of etcd vote."""
    rolled_out: bool = False
    """Whether each index is done."""
    template_pending: Count = 0
    """Machines that have not taken the newest node template and timeouts."""
    indexes: list[IndexSummary] = Field(default_factory=list)
    """In order; those that are empty are there."""
    conditions: list[SetCondition] = Field(default_factory=list)
    """Available, Degraded, Progressing."""
    unmanaged: list[Name] = Field(default_factory=list)
    """Nodes of the control plane that belong to no machine of it."""
    revisions: list[RevisionSummary] = Field(default_factory=list)
    """Oldest first."""
    waits: list[FleetWait] = Field(default_factory=list)
    parked: Text | None = None

    @property
    def noun(self) -> str:
        return CONTROL_PLANE.word

    @property
    def all_available(self) -> bool:
        """Whether each index has a ready machine."""
        return not self.unavailable

    @property
    def degraded(self) -> SetCondition | None:
        """The condition Degraded, where it is true."""
        return next((c for c in self.conditions if c.type == "Degraded" and c.status), None)

    def holding(self, revision: int, vm: bool) -> FleetWait | None:
        """The wait for which a machine that has Failed is not replaced; the first that holds up the whole set."""
        return next((w for w in self.waits if w.reason not in GOES_ON), None)


class ControlPlaneQuestion(Value):
    """A question: what would the control plane do (query `rehearse`)? What is not given stays as it is. Asking changes
    nothing; the answer is a `Rehearsal`."""

    at: Instant | None = None
    """When it is asked: a workflow's own time stands still while nothing happens to it. None: its own."""
    spec: ControlPlaneSpec | None = None
    machine_class: ClassSnapshot | None = None
    undo: bool = False
    to: Count | None = None
    """For undo: the revision."""
    resume: bool = False
    delete: list[Name] = Field(default_factory=list, max_length=100)
    """Machines that a person deletes."""

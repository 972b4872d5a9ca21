"""What people ask of a pool, and what it answers. Each intent is an update and a signal of the same name."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from resources.base import Annotations, Count, Duration, Instant, Labels, Name, Text, Value
from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.state import FleetWait
from resources.intents import Intent
from resources.machine.state import ClassSnapshot, Phase
from resources.owner import POOL
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.state import Rollout


class PoolIntent(Intent):
    """The manifest as applied (`apply`)."""

    spec: MachineDeploymentSpec
    machine_class: ClassSnapshot
    """The class that the template names, as it is now."""
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class ScaleIntent(Intent):
    """The intent `scale`."""

    replicas: Count | None = Field(default=None, ge=0, le=5000)
    """None: the replicas stay."""
    current: Count | None = None
    """Only if the replicas are this many now (`kubectl scale --current-replicas`)."""
    remove: list[Name] = Field(default_factory=list, max_length=5000)
    """Machines that go first."""


class UndoIntent(Intent):
    """The intent `undo`: back to a former revision."""

    to: Count | None = None
    """None: the one before the newest."""


class ResumeIntent(Intent):
    """The intent `resume`."""

    now: bool = False
    """Whether not to wait for a maintenance window, nor for the pool before (rollsAfter,
    hostler.io/updates-after)."""
    span: Duration = Field(default=timedelta(hours=4), gt=timedelta(0))
    """With `now`: for how long the pool is open."""


class VerdictIntent(Intent):
    """The intents `approve` and `reject`."""

    revision: Count | None = None
    """None: whichever waits for approval."""


# The other intents are plain ones: pause, abort (of a rollout), restart, hibernate, wake, unfreeze, delete, renew.


class PoolQuestion(Value):
    """A question: what would the pool do (query `rehearse`)? What is not given stays as it is. Asking changes
    nothing."""

    at: Instant | None = None
    """When it is asked: a workflow's own time stands still while nothing happens to it. None: its own."""
    spec: MachineDeploymentSpec | None = None
    machine_class: ClassSnapshot | None = None
    replicas: Count | None = None
    undo: bool = False
    to: Count | None = None
    """For undo: the revision."""
    restart: bool = False
    remove: list[Name] = Field(default_factory=list, max_length=5000)
    """Machines that go first, as in scale."""
    keep: list[Name] = Field(default_factory=list, max_length=5000)
    """Machines that count as preserved: somebody wants to know what that would be worth."""
    delete: bool = False
    resume: bool = False


HOLDS = ("Unreachable", "TooManyUnhealthy", "ClusterPaused")
"""Waits that keep a pool from replacing any machine (planners/pool/repair.py)."""
HOLDS_NEW = ("NewMachinesNeverJoin", "ProgressDeadlineExceeded", "RolloutAborted")
"""Those that leave the newest revision's standing."""
HOLDS_LOST = ("RepairBudget", "RepairsRest", "MachinesNeverJoin", "MachinesDieYoung")


class PoolSummary(Value):
    """A pool in numbers (query `summary`): small, whatever the pool's size."""

    name: Name
    cluster: Name
    created: Instant | None = None
    machine_class: Name
    replicas: Count
    """The number wanted now: 0 while it is hibernated."""
    hibernated: bool = False
    paused: bool = False
    """Whether its rollouts are paused, by the manifest or by a person."""
    deleted: bool = False
    revision: Count = 0
    machines: Count = 0
    """Machines whose VM is not confirmed gone, or that may get one."""
    unborn: Count = 0
    """Those of them that the cloud has not given a VM yet."""
    updated: Count = 0
    """Machines of the newest revision that stay."""
    available: Count = 0
    """Machines that have been Running for minReadySeconds, and stay."""
    unhealthy: Count = 0
    """Machines that are Unknown, or Failed."""
    preserved: Count = 0
    """Preserved machines, including Running ones, and Failed ones that are about to be."""
    preserved_auto: Count = 0
    """Those of them that nobody has asked for."""
    slots_used: Count = 0
    """Failed ones, no matter who asked for them: with those on request there may be more than there are slots."""
    slots: Count = 0
    """autoPreserveFailedMax."""
    leaving: Count = 0
    repairs: Count = 0
    """How many are in flight."""
    phases: list[tuple[Count, Phase, Count]] = Field(default_factory=list)
    """Revision, phase, and how many machines are in it."""
    rollout: Rollout | None = None
    rolled_out: bool = False
    """Whether there are as many machines as wanted, all available and of the newest revision, and nothing is left of
    older ones."""
    template_pending: Count = 0
    """Machines that have not taken the newest node template and timeouts."""
    template_busy: Count = 0
    """Those of them that are at work on it or yet to be told: for these another pool waits (hostler.io/updates-after).
    """
    revisions: list[RevisionSummary] = Field(default_factory=list)
    """Oldest first."""
    waits: list[FleetWait] = Field(default_factory=list)
    parked: Text | None = None
    worker_pool: Name = ""
    """The worker pool that it is a zone's pool of; "" for one that stands alone."""
    zone: Name = ""

    @property
    def noun(self) -> str:
        return POOL.word

    @property
    def all_available(self) -> bool:
        """Whether as many machines as wanted are available."""
        return self.available >= self.replicas

    def holding(self, revision: int, vm: bool) -> FleetWait | None:
        """The wait for which a machine that has Failed is not replaced, though it is drained and not preserved. `vm`:
        whether there is one: only machines that had been Running and lost theirs wait for their turn."""
        reasons = [*HOLDS, *(HOLDS_NEW if revision == self.revision else ()), *(() if vm else HOLDS_LOST)]
        return next((w for r in reasons for w in self.waits if w.reason == r), None)

"""What people ask of a pool, and what it answers. Each intent is an update and a signal of the same name."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from resources.base import Value
from resources.machine import ClassSnapshot, Phase
from resources.machine_deployment import MachineDeploymentSpec
from resources.messages import Intent
from resources.pool import PoolWait, Rollout


class PoolIntent(Intent):
    """The manifest as applied (`apply`)."""

    spec: MachineDeploymentSpec
    machine_class: ClassSnapshot
    """The class that the template names, as it is now."""
    namespace: str = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class ScaleIntent(Intent):
    """`scale`."""

    replicas: int | None = Field(default=None, ge=0, le=5000)
    """None: as they are."""
    current: int | None = None
    """Only if the replicas are this many now (`kubectl scale --current-replicas`)."""
    remove: list[str] = Field(default_factory=list)
    """Machines that go first."""


class UndoIntent(Intent):
    """`undo`: back to a former revision."""

    to: int | None = None
    """None: the one before the newest."""


# The other intents are plain ones: pause, resume, abort (of a rollout), restart, hibernate, wake, delete, renew.


class PoolQuestion(Value):
    """What would the pool do (query `rehearse`)? What is not given stays as it is. Nothing is changed by asking."""

    spec: MachineDeploymentSpec | None = None
    machine_class: ClassSnapshot | None = None
    replicas: int | None = None
    undo: bool = False
    to: int | None = None
    """Of undo."""
    restart: bool = False
    remove: list[str] = Field(default_factory=list)
    """Machines that go first, as of scale."""
    delete: bool = False


class RehearsedStep(Value):
    reason: str
    message: str


class Rehearsal(Value):
    """The plans to come if all goes well, each as its steps; by the same planner as the pool's own."""

    refused: str = ""
    """Why it would not be taken at all."""
    revision: int = 0
    rolls: int = 0
    """Machines that a new revision replaces."""
    hot: int = 0
    """Machines that are changed and stay."""
    plans: list[list[RehearsedStep]] = Field(default_factory=list)
    waits: list[RehearsedStep] = Field(default_factory=list)
    """What it comes to stand at: a canary, a pause."""


class RevisionSummary(Value):
    """One line of `hostler rollout history`."""

    revision: int
    created: datetime
    machine_class: str
    generation: int
    """Of the class."""
    machines: int
    requested_by: str = ""
    reason: str = ""


class PoolSummary(Value):
    """A pool in numbers (query `summary`): small, whatever the pool's size."""

    name: str
    cluster: str
    created: datetime | None = None
    machine_class: str
    replicas: int
    """Wanted now: 0 while it is hibernated."""
    hibernated: bool = False
    paused: bool = False
    """Its rollouts are, by the manifest or by a person."""
    deleted: bool = False
    revision: int = 0
    machines: int = 0
    """Whose VM is not confirmed gone."""
    updated: int = 0
    """Of the newest revision, and staying."""
    available: int = 0
    """Running for minReadySeconds, and staying."""
    unhealthy: int = 0
    """Unknown, or Failed."""
    preserved: int = 0
    """Running ones too, and Failed ones that are about to be."""
    preserved_auto: int = 0
    """Of those, for which nobody has asked."""
    slots_used: int = 0
    """Failed ones, whoever has asked for them: with those that were asked for it may be more than there are slots."""
    slots: int = 0
    """autoPreserveFailedMax."""
    leaving: int = 0
    repairs: int = 0
    """In flight."""
    phases: list[tuple[int, Phase, int]] = Field(default_factory=list)
    """Revision, phase, and how many machines are so."""
    rollout: Rollout | None = None
    rolled_out: bool = False
    """As many machines as wanted, all available and of the newest revision, and nothing left of older ones."""
    template_pending: int = 0
    """Machines that have not taken the newest node template and timeouts."""
    revisions: list[RevisionSummary] = Field(default_factory=list)
    """Oldest first."""
    waits: list[PoolWait] = Field(default_factory=list)
    parked: str | None = None

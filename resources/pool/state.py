"""The state of one pool: besides what every owner of machines knows, its revisions, its rollout and its pace."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from resources.base import Annotations, Count, Instant, Key, Labels, Text, Value
from resources.fleet.state import FleetState
from resources.journal import Happening
from resources.machine.manifest import as_kept
from resources.machine.state import ClassSnapshot
from resources.pool.manifest import MachineDeploymentSpec, MachineTemplate

KeptTemplate = Annotated[MachineTemplate, BeforeValidator(as_kept)]
"""A template in a state, or in news of one."""


class Revision(Value):
    """What machines are made from."""

    counter: Count = Field(ge=1)
    machine_class: ClassSnapshot
    """The class at that time: a class may be edited in place, and a rollout of that undone."""
    hash: Key
    """`rolling_hash` of its class when the revision was made. It is part of its machines' names; `Wanted.is_like`
    (planners/pool/revisions.py), not this, says whether two revisions are alike."""
    restart: Key = ""
    """Set by `hostler rollout restart`: new machines though nothing else differs."""
    template: KeptTemplate
    created: Instant
    requested_by: Text = ""
    reason: Text = ""
    back: bool = False
    """Whether an undo made it: what it brings has been looked at before, so no canary holds it."""


class Pace(Value):
    """How fast a pool may make machines of one revision, based on how the last ones fared. One per pool."""

    revision: Count = 0
    window: Count = Field(default=1, ge=0)
    """The most machines on the way to a VM at the same time."""
    joins_failed: Count = 0
    """How many machines failed before they had lasted, since one last did."""
    backoffs: Count = 0
    """How many back-offs in a row."""
    until: Instant | None = None
    """No machine is made before this time."""
    reason: Text = ""
    message: Text = ""
    newest: Instant | None = None
    """When the newest of those that `joins_failed` counts was made: one made no earlier that lasts forgives them."""
    suspect: bool = False
    """The pool has backed off because of them, and none has lasted since: only one at a time is on the way to
    Running."""
    storm: bool = False
    """Whether there was a storm when the pool last looked. A new revision keeps this and the next field."""
    repairs_from: Instant | None = None
    """No repair begins before this time."""


class Gate(StrEnum):
    """What a person wants of a rollout."""

    OPEN = ""
    PAUSED = "paused"
    ABORTED = "aborted"


class Rollout(Value):
    """How far the rollout of a revision is, and what is remembered of it."""

    revision: Count
    began: Instant
    progress_at: Instant
    """When a new machine last became available, an old one was gone, or the rollout was resumed."""
    available: Count = 0
    """How many new ones, at the best moment."""
    old_left: Count
    """How many old ones whose VM is not confirmed gone, at the best moment."""
    proven: bool = False
    """Whether a new machine has been available."""
    lost: Count = 0
    """New machines that failed before they had lasted and were replaced, since the last one that became available."""
    gate: Gate = Gate.OPEN
    held_since: Instant | None = None
    """Since when its clock stands still: it is paused, or nothing can be seen."""
    canary_passed: bool = False
    """Whether a person has let it go on beyond pauseAfter."""
    waiting_since: Instant | None = None
    """Since when new machines are awaited, whichever: one that replaces a lost one starts no new clock."""


class RolloutCounts(Value):
    """A rollout in numbers of machines."""

    replicas: Count = 0
    updated: Count = 0
    """Machines of its revision that stay."""
    available: Count = 0
    """Machines of its revision that are available."""
    old: Count = 0
    """Machines of older revisions whose VM is not confirmed gone."""
    lost: Count = 0
    """Machines of its revision that failed before they had lasted and were replaced."""


class RolloutStory(Value):
    """A rollout as it is told to its workflow: what is still to be told, and how it ended."""

    started: bool = False
    """Whether its workflow is there."""
    untold: list[Happening] = Field(default_factory=list)
    counts: RolloutCounts = Field(default_factory=RolloutCounts)
    """The last counts while it was the newest revision's."""
    outcome: Text = ""
    """RolloutOutcome; "" while it goes on."""
    message: Text = ""
    """The outcome's words."""
    undone: bool = False
    """Whether a person has gone back to a former revision."""


class PoolState(FleetState):
    """The only argument of a pool's workflow. A person may start one with plain JSON:

    {"cluster": "demo", "name": "p1", "spec": {"replicas": 3, "template": {…}}}
    """

    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    spec: Annotated[MachineDeploymentSpec, BeforeValidator(as_kept)]
    revisions: list[Revision] = Field(default_factory=list)
    """Oldest first; the last one is what new machines are made from."""
    rollout: Rollout | None = None
    pace: Pace = Field(default_factory=Pace)
    paused: bool = False
    """Whether a person has paused it (`hostler rollout pause`), besides what the manifest says."""
    paused_by: Text = ""
    stories: dict[Count, RolloutStory] = Field(default_factory=dict)
    """Rollouts that are told, by revision."""
    story: Count = 0
    """The newest revision whose rollout has been told, or is being told."""

    @property
    def revision(self) -> int:
        """The newest revision; 0 before there is one."""
        return self.revisions[-1].counter if self.revisions else 0

    @property
    def unseen(self) -> str:
        """Why the pool's machines cannot be seen; "" if they can. The accounts of other classes do not concern it."""
        if self.news is None or self.news.reachable:
            return ""
        had = {m.revision for m in self.members.values()} | {self.revision}
        classes = {r.machine_class.name for r in self.revisions if r.counter in had}
        return self.news.trouble({*classes, self.spec.template.spec.class_.name})

    @property
    def rolling_out(self) -> bool:
        """Whether the rollout of the newest revision has begun, and not come to its end."""
        return self.revision in self.stories and not self.stories[self.revision].outcome

    def find(self, counter: int) -> Revision | None:
        """The revision; None if it is no longer kept, or never was the pool's."""
        return next((r for r in self.revisions if r.counter == counter), None)

    def template_of(self, counter: int) -> int:
        """The generation of the template that a machine begins with: only the newest revision has it, others are
        told."""
        return self.template if counter == self.revision else 0

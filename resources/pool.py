"""The state of one pool: beside what every owner of machines knows, its revisions, its rollout and its pace."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from resources.base import Annotations, Count, Instant, Key, Labels, Text, Value
from resources.fleet import FleetState
from resources.machine import ClassSnapshot
from resources.machine_deployment import MachineDeploymentSpec, MachineTemplate
from resources.machine_manifest import as_kept
from resources.messages import Happening

KeptTemplate = Annotated[MachineTemplate, BeforeValidator(as_kept)]
"""In a state, or told of by one."""


class Revision(Value):
    """What machines are made from. Two with the same `key` are the same to a machine."""

    counter: Count = Field(ge=1)
    machine_class: ClassSnapshot
    """As it was then: a class may be edited in place, and a rollout of that undone."""
    hash: Key
    """Of the class's fields that are not updatable."""
    restart: Key = ""
    """Set by `hostler rollout restart`: new machines though nothing else differs."""
    template: KeptTemplate
    created: Instant
    requested_by: Text = ""
    reason: Text = ""
    back: bool = False
    """By an undo: what it brings has been looked at before, so no canary holds it."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.machine_class.name, self.hash, self.restart


class Pace(Value):
    """How fast a pool may make machines of one revision, from how the last ones fared. One per pool."""

    revision: Count = 0
    window: Count = Field(default=1, ge=0)
    """Machines on the way to a VM at the same time, at most."""
    joins_failed: Count = 0
    """Machines that failed before they had lasted, since one has."""
    backoffs: Count = 0
    """In a row."""
    until: Instant | None = None
    """No machine is made before it."""
    reason: Text = ""
    message: Text = ""
    newest: Instant | None = None
    """When the newest of those that `joins_failed` counts was made: one made no earlier that lasts forgives them."""
    suspect: bool = False
    """The pool has backed off for them, and none has lasted since: one at a time is on the way to Running."""
    storm: bool = False
    """There was one when the pool last looked. This and the next stay in a new revision."""
    repairs_from: Instant | None = None
    """No repair begins before it."""


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
    """When a new machine became available or an old one was gone, last; or the rollout was resumed."""
    available: Count = 0
    """New ones, at the best moment."""
    old_left: Count
    """Old ones whose VM is not confirmed gone, at the best moment."""
    proven: bool = False
    """A new machine has been available."""
    lost: Count = 0
    """New machines that failed before they had lasted and were replaced, since the last one that became available."""
    gate: Gate = Gate.OPEN
    held_since: Instant | None = None
    """Since then its clock stands still: it is paused, or nothing can be seen."""
    canary_passed: bool = False
    """A person has let it go on beyond pauseAfter."""
    waiting_since: Instant | None = None
    """Since then new machines are waited for, whichever: one that takes the place of a lost one starts no clock anew.
    """


class RolloutCounts(Value):
    """A rollout in machines."""

    replicas: Count = 0
    updated: Count = 0
    """Of its revision, and staying."""
    available: Count = 0
    """Of its revision, and available."""
    old: Count = 0
    """Of older revisions, whose VM is not confirmed gone."""
    lost: Count = 0
    """Of its revision, that failed before they had lasted and were replaced."""


class Story(Value):
    """A rollout as it is told to its workflow: what was not told yet, and how it ended."""

    started: bool = False
    """Its workflow is there."""
    untold: list[Happening] = Field(default_factory=list)
    counts: RolloutCounts = Field(default_factory=RolloutCounts)
    """As long as it was the newest revision's, last."""
    outcome: Text = ""
    """resources.rollout.Outcome; "": it goes on."""
    message: Text = ""
    """Of the outcome."""
    undone: bool = False
    """A person has gone back to a former revision."""


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
    """By a person (`hostler rollout pause`), beside what the manifest says."""
    paused_by: Text = ""
    stories: dict[Count, Story] = Field(default_factory=dict)
    """Rollouts that are told, by revision."""
    story: Count = 0
    """The newest revision whose rollout has been told, or is."""

    @property
    def revision(self) -> int:
        """The newest; 0 before there is one."""
        return self.revisions[-1].counter if self.revisions else 0

    @property
    def unseen(self) -> str:
        """Why the pool's machines cannot be seen; "": they can. What other classes' accounts do concerns others."""
        if self.news is None or self.news.reachable:
            return ""
        had = {m.revision for m in self.members.values()} | {self.revision}
        classes = {r.machine_class.name for r in self.revisions if r.counter in had}
        return self.news.trouble({*classes, self.spec.template.spec.class_.name})

    @property
    def rolling_out(self) -> bool:
        """The rollout of the newest revision has begun, and has not come to its end."""
        return self.revision in self.stories and not self.stories[self.revision].outcome

    def find(self, counter: int) -> Revision | None:
        """None: it is not kept any more, or never was the pool's."""
        return next((r for r in self.revisions if r.counter == counter), None)

    def template_of(self, counter: int) -> int:
        """Generation of the template that a machine begins with: it is in the newest revision only, others are told."""
        return self.template if counter == self.revision else 0

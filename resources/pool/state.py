"""The state of one pool: besides what every owner of machines knows, its manifest and its rollouts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from resources.base import Count, Instant, Name, Text, Value
from resources.fleet.state import FleetState
from resources.journal import Happening
from resources.machine.manifest import as_kept
from resources.maintenance import Calendar, Freeze, Opening
from resources.pool.manifest import MachineDeploymentSpec


class Gate(StrEnum):
    """What a person wants of a rollout."""

    OPEN = ""
    PAUSED = "paused"
    ABORTED = "aborted"


class Consent(Value):
    """A rollout's approval: since when it is asked for, and who has given or refused it."""

    asked: Instant
    given: Instant | None = None
    rejected: Instant | None = None
    expired: Instant | None = None
    """When nobody had answered in time."""
    by: Text = ""
    reason: Text = ""

    @property
    def words(self) -> str:
        """Who has given or refused it and why; "" while it is asked for."""
        if self.expired is not None:
            return "approved by nobody in time"
        verdict = "approved" if self.given is not None else "rejected" if self.rejected is not None else ""
        return f"{verdict}{f' by {self.by}' if self.by else ''}{f': {self.reason}' if self.reason else ''}"


class Predecessor(Value):
    """How the pool stands that this one is rolled out after, as it was last asked."""

    revision: Count
    """The own revision that waits for it."""
    pool: Name
    class_: Name = ""
    """The class that it is to be rolled out with; "": whichever it has."""
    complete: bool = False
    """Whether it is rolled out with that class."""
    gone: bool = False
    """Whether there is no such pool, or it is deleted."""
    message: Text = ""
    """What it waits for, or why it does not answer."""


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
    consent: Consent | None = None
    """None: it needs no approval."""
    unordered: bool = False
    """Whether a person has let it go on without the pool before it (rollsAfter)."""


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

    spec: Annotated[MachineDeploymentSpec, BeforeValidator(as_kept)]
    rollout: Rollout | None = None
    paused: bool = False
    """Whether a person has paused it (`hostler rollout pause`), besides what the manifest says."""
    paused_by: Text = ""
    stories: dict[Count, RolloutStory] = Field(default_factory=dict)
    """Rollouts that are told, by revision."""
    freeze: Freeze | None = None
    calendar: Calendar | None = None
    """What its maintenance windows come to, as far as that has been worked out."""
    opened: Opening | None = None
    """A maintenance window that a person has opened (`hostler rollout resume --now`)."""
    before: Predecessor | None = None
    """How the pool before it stands (rollsAfter), while a rollout waits for that."""
    approved: Count = 0
    """The newest revision that needs no person's approval, or has it: what is made while a newer one waits for that. 0:
    an older worker has not kept it."""
    turn: Count = 0
    """The newest generation of the template for which the pool before has finished, or was not waited for
    (hostler.io/updates-after)."""
    story: Count = 0
    """The newest revision whose rollout has been told, or is being told."""

    @property
    def unseen(self) -> str:
        """Why the pool's machines cannot be seen; "" if they can."""
        return self.unseen_of(self.spec.template.spec.class_.name)

    @property
    def rolling_out(self) -> bool:
        """Whether the rollout of the newest revision has begun, and not come to its end."""
        return self.revision in self.stories and not self.stories[self.revision].outcome

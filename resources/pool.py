"""The state of one pool: its machines as it knows them, its revisions, its rollout, its pace.

A member is a tuple with one-letter codes and times in milliseconds, so that 5,000 of them travel in one payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    computed_field,
    field_serializer,
    model_validator,
)

from resources.base import EARLIEST, LATEST, Annotations, Count, Instant, Key, Labels, Model, Name, Text, Value, Word
from resources.machine import ClassSnapshot, Phase
from resources.machine_deployment import MachineDeploymentSpec, MachineTemplate
from resources.machine_manifest import as_kept
from resources.messages import ClusterNews, Happening
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE, PRIORITY_ANNOTATION
from resources.preservation import PreservedBy
from resources.timings import Timings

DEFAULT_PRIORITY = 3
"""Of a machine without the annotation machinepriority.machine.sapcloud.io, or with one that is no number (MCM)."""


def priority_in(annotations: Mapping[str, str]) -> int | None:
    """None where there is none, or none that is a number of 32 bits (MCM: strconv.Atoi)."""
    text = annotations.get(PRIORITY_ANNOTATION, "").strip()
    try:
        found = int(text) if len(text) <= len(str(-(2**31))) else None
    except ValueError:
        return None
    return found if found is not None and -(2**31) <= found < 2**31 else None


def priority_of(annotations: Mapping[str, str]) -> int:
    """Of a machine, or of a template whose machines get it."""
    found = priority_in(annotations)
    return DEFAULT_PRIORITY if found is None else found


_CODES = {
    Phase.PENDING: "P",
    Phase.RUNNING: "R",
    Phase.UNKNOWN: "U",
    Phase.FAILED: "F",
    Phase.CRASH_LOOP_BACK_OFF: "C",
    Phase.TERMINATING: "T",
}
_PHASES = {code: phase for phase, code in _CODES.items()}


def _phase(value: Any) -> Any:
    return _PHASES.get(value, value) if isinstance(value, str) else value


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _stamp(value: Any) -> Any:
    """Within the times that there are, where pydantic takes a number for milliseconds, as it is: of few it would make
    seconds. One call for each of 20,000 in a payload."""
    if type(value) is int:
        return min(max(value, _EARLIEST), _LATEST)
    return value if isinstance(value, bool) else _instant.validate_python(value)


_EARLIEST, _LATEST = _milliseconds(EARLIEST), _milliseconds(LATEST)
_instant: TypeAdapter[datetime] = TypeAdapter(Instant)
Stamp = Annotated[datetime, BeforeValidator(_stamp), PlainSerializer(_milliseconds, return_type=int, when_used="json")]
"""A time, on the wire in ms since 1970."""
Flag = Annotated[bool, PlainSerializer(int, return_type=int, when_used="json")]
"""On the wire 0 or 1."""
PhaseCode = Annotated[
    Phase, BeforeValidator(_phase), PlainSerializer(_CODES.__getitem__, return_type=str, when_used="json")
]
"""On the wire one letter."""


class Vm(StrEnum):
    UNBORN = ""
    """The cloud has not answered yet that there is one; there may be."""
    LIVES = "v"
    """Made, and not confirmed gone. One that is stuck in shutting-down is this."""
    GONE = "g"
    """The cloud has confirmed it gone."""


class Trouble(StrEnum):
    """Why a machine is not what it should be, and so what is done about it."""

    NONE = ""
    JOIN = "j"
    """It was never Running: not within its creationTimeout, or its VM was gone or stopped before."""
    CREATE = "c"
    """It got no VM within its creationTimeout, and not for a fault of its own: the cloud had none to give."""
    HEALTH = "h"
    """It was Running and is not healthy any more."""
    GONE = "g"
    """It was Running, and somebody else deleted its VM."""


class Permit(StrEnum):
    """To be Failed for its health, and so to be replaced."""

    NONE = ""
    ASKED = "a"
    """Two fresh looks after healthTimeout found it unhealthy."""
    GRANTED = "g"


class Keep(StrEnum):
    """What shall become of a machine that Failed and is drained, as it says itself."""

    UNDECIDED = ""
    """It has not Failed, is not drained yet, or is preserved already."""
    ASKED = "u"
    """It is to be preserved: `now` or `when-failed`."""
    SLOT = "a"
    """Nobody asked for anything: preserved where a slot is free."""
    NEVER = "n"
    """`false`, or there is no VM to look at."""


class Released(StrEnum):
    """Whether a lower autoPreserveFailedMax has taken the slot of a machine that its pool had preserved by itself."""

    NO = ""
    TAKEN = "t"
    """It is told once it has reported that it is preserved: a word before that would be about nothing."""
    TOLD = "s"
    """It has not reported yet that it goes."""


class Member(NamedTuple):
    """What the pool knows of one machine; its name is the key."""

    revision: Count
    created: Stamp
    """When the pool decided to make it."""
    since: Stamp
    """When it entered its phase."""
    phase: PhaseCode = Phase.PENDING
    vm: Vm = Vm.UNBORN
    trouble: Trouble = Trouble.NONE
    permit: Permit = Permit.NONE
    priority: Count = DEFAULT_PRIORITY
    """Lower ones are deleted first."""
    marked: Stamp | None = None
    """When somebody, as a rule cluster-autoscaler, marked it for deletion."""
    preserved_until: Stamp | None = None
    preserved_by: PreservedBy = PreservedBy.NOBODY
    deleting: Flag = False
    """The pool has decided to delete it."""
    drained: Flag = False
    """Failed, and its node holds no pods any more that a drain would move."""
    node_marked: Flag = False
    """Its Node carries a rollout's marks: the taint PreferNoSchedule, and scale-down-disabled with our marker."""
    marks_due: Flag = False
    """Its Node is not known to be as `node_marked` says."""
    template: Count = 0
    """The newest generation of the pool's template that its spec and its Node have."""
    seq: Count = 0
    """Of its last report: an older one that was overtaken changes nothing."""
    keep: Keep = Keep.UNDECIDED
    kept: PreservedBy = PreservedBy.NOBODY
    """The pool has granted that it is preserved, and the machine has not reported yet that it is: a slot is taken."""
    released: Released = Released.NO
    repair: Flag = False
    """`deleting` is a RepairIntent, which the machine may refuse."""
    removed: Flag = False
    """A person has marked it for deletion by its name."""
    lasted: Flag = False
    """It has been Running for planners.pool.pace.LASTED at a stretch, and is not Running any more. One that is Running
    says so by `since`."""
    contradicted: Flag = False
    """The cloud says that its VM is gone or does not run, and its kubelet lives."""

    @property
    def leaving(self) -> bool:
        """By whosever decision; it comes back from there only when it refuses a repair."""
        return self.deleting or self.phase is Phase.TERMINATING

    @property
    def stays(self) -> bool:
        """It Failed and is not replaced: it is preserved by its own word, or has the pool's to be so. Until when is the
        machine's affair."""
        return self.phase is Phase.FAILED and bool(self.kept or self.preserved_until is not None)


_KNOWN = Member._fields.index("keep")
"""As many fields an older worker reads; the others travel apart, as text: five that one of the last version reads, and
each of the last two apart from those, a digit for each member."""
_NOTHING = ",,,0,0"
"""Those five, of a member of which they say nothing."""


def _digits(members: Mapping[str, Member], field: str) -> str:
    """A flag of the members by name, a digit each; "" where none has it."""
    found = "".join(f"{getattr(members[name], field):d}" for name in sorted(members))
    return found if "1" in found else ""


KeptTemplate = Annotated[MachineTemplate, BeforeValidator(as_kept)]
"""In a state, or told of by one."""


class Revision(Value):
    """What machines are made from."""

    counter: Count = Field(ge=1)
    machine_class: ClassSnapshot
    """As it was then: a class may be edited in place, and a rollout of that undone."""
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
    """By an undo: what it brings has been looked at before, so no canary holds it."""


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


class PoolWait(Value):
    """Something that the pool wants and does not do now."""

    reason: Word
    """CamelCase, of resources.reasons."""
    message: Text
    since: Instant


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


class PoolState(Model):
    """The only argument of a pool's workflow. A person may start one with plain JSON:

    {"cluster": "demo", "name": "p1", "spec": {"replicas": 3, "template": {…}}}
    """

    name: Name
    cluster: Name = DEFAULT_CLUSTER
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    spec: Annotated[MachineDeploymentSpec, BeforeValidator(as_kept)]
    machine_class: ClassSnapshot | None = None
    """The newest generation that the pool knows; without one it asks the class. What machines are made from is their
    revision's."""
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    requested_by: Text = ""
    """Who applied it first; the first revision says so."""
    reason: Text = ""

    created: Instant | None = None
    template: Count = Field(default=1, ge=1)
    """Generation of what may be changed of the template without new machines."""
    told: dict[Key, Instant] = Field(default_factory=dict)
    """When machines were told of it that have not taken it."""
    template_by: Text = ""
    """Who changed it last."""
    members: dict[Key, Member] = Field(default_factory=dict)
    """By machine name. On the wire their last fields are in `apart`."""
    revisions: list[Revision] = Field(default_factory=list)
    """Oldest first; the last one is what new machines are made from."""
    rollout: Rollout | None = None
    pace: Pace = Field(default_factory=Pace)
    paused: bool = False
    """By a person (`hostler rollout pause`), beside what the manifest says."""
    paused_by: Text = ""
    news: ClusterNews | None = None
    """What the cluster said last."""
    waits: list[PoolWait] = Field(default_factory=list)
    """By the last plan."""
    unstarted: list[Name] = Field(default_factory=list)
    """Machines whose start is not confirmed."""
    registered: bool = False
    """The cluster knows the pool, and sends it its news."""
    classes: list[Name] = Field(default_factory=list)
    """Names of those that count the pool among their users."""
    class_told: Key = ""
    """What its class was told last: name and generation."""
    searched: bool = False
    """Machines of the pool that were there before this workflow have been looked for."""
    expected: list[Name] = Field(default_factory=list)
    """Those that were found and have not said yet how they are: nothing is decided without them."""
    lost: dict[Name, Word] = Field(default_factory=dict)
    """Members whose workflow was ended from outside, with its status. They may have a VM, and count."""
    stories: dict[Count, Story] = Field(default_factory=dict)
    """Rollouts that are told, by revision."""
    story: Count = 0
    """The newest revision whose rollout has been told, or is."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    deleted: bool = False
    force: bool = False
    """Of the deletion: drains are short."""
    parked: Text | None = None
    messages: Count = 0
    """Since the last continue-as-new."""

    @field_serializer("members", mode="wrap", when_used="json")
    def _known(self, members: dict[str, Member], write: SerializerFunctionWrapHandler) -> dict[str, list[Any]]:
        return {name: fields[:_KNOWN] for name, fields in write(members).items()}

    @computed_field
    def apart(self) -> list[str]:
        """Of the members by name, what an older worker does not know and drops; [] where it is nothing."""
        members = [self.members[name] for name in sorted(self.members)]
        found = [f"{m.keep},{m.kept},{m.released},{m.repair:d},{m.removed:d}" for m in members]
        return found if set(found) - {_NOTHING} else []

    @computed_field
    def lasted(self) -> str:
        """Of the members by name, likewise, a digit each; "" where none has."""
        return _digits(self.members, "lasted")

    @computed_field
    def contradicted(self) -> str:
        """Likewise."""
        return _digits(self.members, "contradicted")

    @model_validator(mode="before")
    @classmethod
    def _together(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not any(given.get(field) for field in ("apart", "lasted", "contradicted")):
            return given
        members = given["members"]
        apart = given.get("apart") or [_NOTHING] * len(members)
        digits = (given.get(field) or "0" * len(members) for field in ("lasted", "contradicted"))
        more = {n: [*a.split(","), *d] for n, a, *d in zip(sorted(members), apart, *digits, strict=True)}
        return {**given, "members": {n: [*m[:_KNOWN], *more[n]] for n, m in members.items()}}

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

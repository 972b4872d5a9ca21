"""What the states of all owners of machines have in common: their machines as they know them, what they wait for, what
their class and their cluster said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, computed_field, field_serializer, model_validator

from resources.base import Annotations, Count, Instant, Key, Labels, Model, Name, Text, Value, Word
from resources.cluster.news import ClusterNews
from resources.fleet.lending import Lent
from resources.fleet.member import Member
from resources.fleet.revision import Pace, Revision
from resources.journal import Happening
from resources.machine.placement import Placement
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import UpdatesHeld
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE
from resources.timings import Timings

_KNOWN = Member._fields.index("keep")
"""How many fields an older worker reads; the others travel separately: five as text that a worker of the last version
reads, two as one digit per member each, and the placement as the number of one of few."""
_APART = ("apart", "lasted", "contradicted", "placed")
"""The fields that they travel in."""
_NOTHING = ",,,0,0"
"""Those five, for a member of which they say nothing."""


def _digits(members: Mapping[str, Member], field: str) -> str:
    """A flag of the members by name, a digit each; "" where none has it."""
    found = "".join(f"{getattr(members[name], field):d}" for name in sorted(members))
    return found if "1" in found else ""


class FleetWait(Value):
    """Something that an owner of machines wants but does not do now."""

    reason: Word
    """CamelCase, from resources.reasons."""
    message: Text
    since: Instant


class FleetState(Model):
    """The base of the states of pools, and of any other owner of machines."""

    name: Name
    cluster: Name = DEFAULT_CLUSTER
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    machine_class: ClassSnapshot | None = None
    """The newest generation that the owner knows; without one it asks the class. Machines are made from their
    revision's."""
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    requested_by: Text = ""
    """The one who applied it first."""
    reason: Text = ""

    created: Instant | None = None
    template: Count = Field(default=1, ge=1)
    """The generation of what may change in the template without new machines."""
    told: dict[Key, Instant] = Field(default_factory=dict)
    """When machines that have not taken it were told of it."""
    superseded: dict[Key, Instant] = Field(default_factory=dict)
    """When machines that are still at work on an older generation were told of that one."""
    template_by: Text = ""
    """The one who changed the template last."""
    revisions: list[Revision] = Field(default_factory=list)
    """Oldest first; the last one is what new machines are made from."""
    pace: Pace = Field(default_factory=Pace)
    members: dict[Key, Member] = Field(default_factory=dict)
    """Members by machine name. On the wire their last fields are in `apart`."""
    news: ClusterNews | None = None
    """What the cluster said last."""
    waits: list[FleetWait] = Field(default_factory=list)
    """The waits of the last plan."""
    unstarted: list[Name] = Field(default_factory=list)
    """Machines whose start is not confirmed."""
    registered: bool = False
    """Whether the cluster knows the owner, and sends it its news."""
    classes: list[Name] = Field(default_factory=list)
    """Names of the classes that count the owner among their users."""
    class_told: Key = ""
    """What its class was told last: name and generation."""
    held: UpdatesHeld | None = None
    """How many of its machines its class has not told of a change, because they wait for a window."""
    searched: bool = False
    """Whether machines of the owner that were there before this workflow have been looked for."""
    expected: list[Name] = Field(default_factory=list)
    """Machines that were found and have not yet said how they are: nothing is decided without them."""
    lost: dict[Name, Word] = Field(default_factory=dict)
    """Members whose workflow was ended from outside, with its status. They may have a VM, and count."""
    lent: dict[Name, Lent] = Field(default_factory=dict)
    """Machines that are lent to a config pool: they count as unavailable."""
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    deleted: bool = False
    force: bool = False
    """Whether the deletion is forced: drains are short."""
    parked: Text | None = None
    messages: Count = 0
    """Messages since the last continue-as-new."""

    @property
    def revision(self) -> int:
        """The newest revision; 0 before there is one."""
        return self.revisions[-1].counter if self.revisions else 0

    @property
    def hearing(self) -> dict[str, Member]:
        """Members that can be told something: their workflows are started, and nobody has ended them."""
        return {n: m for n, m in self.members.items() if n not in self.unstarted and n not in self.lost}

    def find(self, counter: int) -> Revision | None:
        """The revision; None if it is no longer kept, or never was the owner's."""
        return next((r for r in self.revisions if r.counter == counter), None)

    def template_of(self, counter: int) -> int:
        """The generation of the template that a machine begins with: only the newest revision has it, others are
        told."""
        return self.template if counter == self.revision else 0

    def unseen_of(self, class_name: str) -> str:
        """Why its machines cannot be seen; "" if they can. `class_name`: the class that new ones are made from. The
        accounts of other classes do not concern it."""
        if self.news is None or self.news.reachable:
            return ""
        had = {m.revision for m in self.members.values()} | {self.revision}
        classes = {r.machine_class.name for r in self.revisions if r.counter in had}
        return self.news.trouble({*classes, class_name})

    @field_serializer("members", mode="wrap", when_used="json")
    def _known(self, members: dict[str, Member], write: SerializerFunctionWrapHandler) -> dict[str, list[Any]]:
        return {name: fields[:_KNOWN] for name, fields in write(members).items()}

    @computed_field
    def apart(self) -> list[str]:
        """What an older worker does not know and drops, of the members by name; [] where it is nothing."""
        members = [self.members[name] for name in sorted(self.members)]
        found = [f"{m.keep},{m.granted},{m.released},{m.repair:d},{m.removed:d}" for m in members]
        return found if set(found) - {_NOTHING} else []

    @computed_field
    def lasted(self) -> str:
        """Which members have lasted, by name, a digit each; "" where none has."""
        return _digits(self.members, "lasted")

    @computed_field
    def contradicted(self) -> str:
        """Which members are contradicted, likewise."""
        return _digits(self.members, "contradicted")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def places(self) -> list[Placement]:
        """The placements of its members, each once."""
        return list(dict.fromkeys(m.placement for m in self.members.values() if m.placement is not None))

    @computed_field
    def placed(self) -> list[int]:
        """Which of `places` each member has, by name, from 1; 0 for none; [] where none has any."""
        numbers: dict[Placement | None, int] = {place: number for number, place in enumerate(self.places, start=1)}
        return [numbers.get(self.members[name].placement, 0) for name in sorted(self.members)] if numbers else []

    @model_validator(mode="before")
    @classmethod
    def _together(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not any(given.get(field) for field in _APART):
            return given
        members = given["members"]
        apart = given.get("apart") or [_NOTHING] * len(members)
        digits = (given.get(field) or "0" * len(members) for field in ("lasted", "contradicted"))
        places = dict(enumerate(given.get("places") or [], start=1))
        placed = (places.get(number) for number in given.get("placed") or [0] * len(members))
        more = {n: [*a.split(","), *d] for n, a, *d in zip(sorted(members), apart, *digits, placed, strict=True)}
        return {**given, "members": {n: [*m[:_KNOWN], *more[n]] for n, m in members.items()}}

"""The state of one MachineClass, the only argument of its workflow, and what travels between it and its users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from resources.base import (
    Annotations,
    Count,
    Document,
    Instant,
    Key,
    Labels,
    Model,
    Name,
    Span,
    Text,
    Texts,
    Value,
    Word,
    cut,
)
from resources.cluster.accounts import Announcement
from resources.intents import Intent
from resources.journal import Happening
from resources.machine.state import ClassSnapshot
from resources.maintenance import Opening
from resources.names import DEFAULT_CLUSTER, DEFAULT_QUEUE, UPDATE_CONCURRENCY_ANNOTATION, UPDATES_AFTER_ANNOTATION
from resources.orders import Order, OrderTime
from resources.owner import POOL, by_word, is_owner
from resources.timings import Timings

CHANGES_KEPT = 20
TROUBLES_KEPT = 100
"""How many failed users' messages the class keeps; the machines themselves keep the others."""
UPDATE_CONCURRENCY = 10
SILENCE = timedelta(minutes=2)
"""How long a told user may be silent before it no longer holds up the others, and is told again."""


def concurrency_of(annotations: Mapping[str, str]) -> int:
    """How many users of a class may be at work at the same time. Raises ValueError, in words for people."""
    text = annotations.get(UPDATE_CONCURRENCY_ANNOTATION, str(UPDATE_CONCURRENCY))
    if not (len(text) <= 6 and text.isascii() and text.isdigit() and int(text) >= 1):
        raise ValueError(
            f"annotation {UPDATE_CONCURRENCY_ANNOTATION}: {cut(text, 100)!r} is not a number of machines; write 1 or "
            "more"
        )
    return int(text)


def pools_of(users: Iterable[str]) -> list[str]:
    """The names of the pools among the users of a class, sorted."""
    return by_word(users)[POOL.word]


def user_words(user: str) -> str:
    """`machine m1`, `pool p1`."""
    return user.replace("/", " ", 1) if is_owner(user) else f"machine {user}"


def users_words(users: Iterable[str], named: int = 0) -> str:
    """Machines and owners separately, some of each by name: `1 pool (p1) and 7 machines (a, b, c, d, e, …)`."""
    kinds = by_word(users)
    return " and ".join(_counted(kind, names, named) for kind, names in kinds.items() if names) or "no machine"


def _counted(kind: str, names: list[str], named: int) -> str:
    listed = f" ({', '.join(names[:named])}{', …' if len(names) > named else ''})" if named else ""
    return f"{len(names)} {kind}{'s' if len(names) != 1 else ''}{listed}"


class UpdateState(StrEnum):
    """How far a user is with the newest generation that it was told."""

    UPDATED = "Updated"
    """Every updatable field is as that generation says."""
    PENDING = "Pending"
    """It is not applied now: there is no VM yet, or the machine is being deleted."""
    UPDATING = "Updating"
    """It is under way, or tried again soon."""
    FAILED = "Failed"
    """The last try failed; it is tried again."""
    OUTDATED = "Outdated"
    """Updatable fields are applied; others differ, which only a new VM can have."""
    NOT_SUPPORTED = "NotSupported"
    """The provider's driver cannot update a running VM."""


class ClassReport(Value):
    """A user's report to its class, which knows it as a user from the first one (signal `report`)."""

    user: Key
    """The name of the machine; for an owner of machines Owner.user."""
    generation: Order
    """The newest generation that it has."""
    applied: Count
    """The newest generation whose updatable fields it carries; 0 before there is a VM."""
    state: UpdateState
    reason: Word = ""
    """CamelCase, from resources.reasons."""
    message: Text = ""
    next_try: Instant | None = None
    """When a failed update is tried again."""
    openings: list[Opening] | None = None
    """From an owner: when its machines may be changed, as far as is known; None: always."""
    time: OrderTime
    """A report that is older than the one before it changes nothing."""


class ClassNews(Value):
    """A class's news to a user (signal `class_changed`): the whole snapshot; an older generation is dropped."""

    machine_class: ClassSnapshot
    requested_by: Text = ""
    reason: Text = ""


class ClassIntent(Intent):
    """The manifest as applied (update and signal `apply`). The workflow gives the generation."""

    machine_class: ClassSnapshot
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    after: list[Key] = Field(default_factory=list)
    """Owners, as Owner.user, that are about to take the new content together with a changed spec of their own: neither
    they nor their machines are told before they have it, since what they take may hold it up."""


class UpdatesHeld(Value):
    """A class's news to an owner (signal `updates_held`): how many of its machines wait for a window until they are
    told of a change. An older one is dropped."""

    machine_class: Name
    machines: Count
    """0: none waits any longer."""
    time: OrderTime


class ClassChange(Value):
    """One generation: who made it, when, and what it changed."""

    generation: Count
    time: Instant
    requested_by: Text = ""
    reason: Text = ""
    hot: Texts = Field(default_factory=list)
    """Paths of updatable fields."""
    rolls: Texts = Field(default_factory=list)
    """Paths of fields that only a new VM can have."""

    @property
    def words(self) -> str:
        """What it does to running machines."""
        if self.generation == 1:
            return "created"
        parts = [f"hot update of {', '.join(self.hot)}"] if self.hot else []
        parts += [f"needs replacement: {', '.join(self.rolls)}"] if self.rolls else []
        return "; ".join(parts) or self.reason or "nothing that affects a running VM"


class ClassQuestion(Value):
    """The question of query `preview`: what would a class change?"""

    machine_class: ClassSnapshot
    """The class as it would be applied."""
    instead_of: ClassSnapshot | None = None
    """The class to compare with; None: this class as it is; else the class that a machine has now."""


class ClassPreview(Value):
    """What a class would change, judged by the class's workflow; nothing is changed by asking."""

    hot: Texts = Field(default_factory=list)
    rolls: Texts = Field(default_factory=list)
    refused: Texts = Field(default_factory=list)
    """Why it would not be taken at all."""


# -- activities of a class, and of a machine that talks to its class --------------------------------------------------


class ClassId(Value):
    cluster: Name
    name: Name


class ReportInput(Value):
    machine_class: ClassId
    report: ClassReport
    left: list[ClassId] = Field(default_factory=list)
    """Classes that count the machine among their users, and should not."""
    announcement: Announcement | None = None
    """Set for a machine whose class now has other credentials: the account is listed with them from now on."""


class TellUsersInput(Value):
    cluster: Name
    users: list[Key]
    news: ClassNews


class TellUsersOutput(Value):
    gone: list[Key] = Field(default_factory=list)
    """Users without a running workflow."""


class TellHeldInput(Value):
    cluster: Name
    held: dict[Key, UpdatesHeld]
    """What is held, by Owner.user."""


class ClassProgress(Value):
    """How far a class's newest changes have come, for numbers (query `progress`)."""

    states: list[tuple[UpdateState, Key, Count]] = Field(default_factory=list)
    """State, reason, and how many machines are in it."""
    unfinished_since: Instant | None = None
    """When the oldest change that an unfinished user does not carry was made; None: there is none."""
    busy: Count = 0
    """How many machines are at work on a change, or are yet to be told of it. One that is silent holds up nobody."""


class UsersFound(Value):
    users: list[Key] = Field(default_factory=list)


# -- the class itself -------------------------------------------------------------------------------------------------


class User(NamedTuple):
    """What a class knows of one user: a tuple, so that 5,000 of them travel in one payload."""

    generation: Count = 0
    """The newest generation that it said it has; 0: it has said nothing yet."""
    applied: Count = 0
    state: UpdateState = UpdateState.UPDATING
    reason: Word = ""
    time: Instant | None = None
    """The time of its last report."""
    told: Count = 0
    """The generation that it was told last."""
    tells: Count = 0
    """How often it was told that generation without an answer."""
    patience: Instant | None = None
    """Until when its answer is awaited; absolute."""

    @property
    def settled(self) -> bool:
        """Whether it is done, for now, with the generation that it has."""
        return self.generation > 0 and self.state is not UpdateState.UPDATING


class Awaited(NamedTuple):
    """The word of an owner that takes a generation together with a changed spec (ClassIntent.after)."""

    generation: Count
    until: Instant
    """When it is told all the same: its change was never sent, or was refused."""


class UserTrouble(Value):
    """Why a user's last try failed."""

    message: Text
    next_try: Instant | None = None


class ClassState(Model):
    """A person may start a class with plain JSON:

    {"cluster": "demo", "name": "c1", "machineClass": {"name": "c1", "provider": "AWS", …}}
    """

    name: Name
    cluster: Name = DEFAULT_CLUSTER
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    machine_class: ClassSnapshot
    update_concurrency: Count = Field(default=UPDATE_CONCURRENCY, ge=1)
    """How many users may be told of a change and not have finished it."""
    silence: Span = SILENCE
    queue_prefix: Name = DEFAULT_QUEUE
    timings: Timings = Field(default_factory=Timings)

    created: Instant | None = None
    users: dict[Key, User] = Field(default_factory=dict)
    """Users by machine name, or by Owner.user for an owner of machines."""
    openings: dict[Key, list[Opening]] = Field(default_factory=dict)
    """When the machines of an owner may be changed, by Owner.user; those of others always."""
    awaited: dict[Key, Awaited] = Field(default_factory=dict)
    """Owners that neither are told nor have their machines told before they have said that they have it themselves."""
    held: dict[Key, Count] = Field(default_factory=dict)
    """How many machines of an owner wait for a window, as it was told."""
    turn: Count = 0
    """The newest generation that its machines may be told of, where those of another class come first."""
    troubles: dict[Key, UserTrouble] = Field(default_factory=dict)
    """The troubles of failed users, at most TROUBLES_KEPT."""
    carried: Document | None = None
    """The provider spec of the newest generation that a user carries: its must-tags are fixed while there are users."""
    changes: list[ClassChange] = Field(default_factory=list)
    journal: list[Happening] = Field(default_factory=list)
    intents: dict[Key, Text] = Field(default_factory=dict)
    deadlines: dict[Key, Instant] = Field(default_factory=dict)
    searched: bool = False
    """Whether machines that name the class and were there before this workflow have been looked for."""
    deleted: bool = False
    parked: Text | None = None
    messages: Count = 0

    @property
    def generation(self) -> int:
        return self.machine_class.generation

    @property
    def before(self) -> str:
        """The class whose machines are updated before its own; "" for none."""
        return self.annotations.get(UPDATES_AFTER_ANNOTATION, "")

    @property
    def touching(self) -> int:
        """The newest generation that changes running VMs."""
        return max((c.generation for c in self.changes if c.hot), default=0)

    @property
    def not_done(self) -> dict[str, User]:
        """Users that are not done with the newest generation, as far as they can be."""
        return {
            name: u
            for name, u in self.users.items()
            if u.generation < self.generation or not u.settled or u.state is UpdateState.FAILED
        }

    @property
    def updated(self) -> bool:
        return not self.not_done

    @property
    def states(self) -> list[tuple[UpdateState, str, int]]:
        """State, reason, and how many machines are in it. A user that has not said that it has the newest generation is
        not done with it, whatever it was before. An owner has nothing to update itself."""
        counts = Counter(
            (UpdateState.UPDATING, "") if u.generation < self.generation else (u.state, u.reason)
            for name, u in self.users.items()
            if not is_owner(name)
        )
        return [(state, reason, n) for (state, reason), n in sorted(counts.items())]

    @property
    def progress(self) -> ClassProgress:
        # If one carries nothing yet, or has said nothing yet, only the newest change is known to be missing.
        carried = min((u.applied or self.generation - 1 for u in self.not_done.values()), default=self.generation)
        missing = (c.time for c in self.changes if c.generation > carried)
        return ClassProgress(states=self.states, unfinished_since=min(missing, default=None))

    @property
    def last_updated_generation(self) -> int:
        """The newest that every user carries (seed 002: last-updated-machineClass); a user without a VM carries none
        yet and will be made from the newest. Without users the current one."""
        return min((u.applied for u in self.users.values() if u.applied), default=self.generation)

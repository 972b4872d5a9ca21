"""etcd as the guard of a control plane sees it: its members, whose they are and how they are, and what is done to them.

Only what decides is kept, so that two looks at an etcd in which nothing has happened are equal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from resources.base import Key, Name, Span, Text, Value, Word

MEMBERS_MOST = 50
"""More than any etcd has: five vote, seven at most (etcd's FAQ)."""


class EtcdMember(Value):
    id: Key
    """etcd's own, a number of 64 bits in decimal."""
    name: Word = ""
    """The name that it gives itself; "" until it has started."""
    machine: Name = ""
    """The machine that it runs on, or ran on when it was last seen there; "" where nobody knows."""
    node: Name = ""
    """Its machine's Node; "" where there is none (any more)."""
    leader: bool = False
    learner: bool = False
    """It does not vote yet."""
    trouble: Text = ""
    """Why it is not healthy, in words; "" where it is."""

    @property
    def healthy(self) -> bool:
        return not self.trouble

    @property
    def called(self) -> str:
        """The name, or the id as etcdctl prints it."""
        return self.name or f"{int(self.id):x}"

    @property
    def facts(self) -> tuple[object, ...]:
        """What decides; the trouble's words do not."""
        return self.id, self.machine, self.node, self.leader, self.learner, self.healthy


class EtcdView(Value):
    """One look at an etcd."""

    members: Annotated[list[EtcdMember], Field(max_length=MEMBERS_MOST)] = Field(default_factory=list)
    quorate: bool = True
    """Whether the list is what a quorum agrees on. Otherwise it is what one member remembers, and nothing can be
    changed."""
    trouble: Text = ""
    """Why nobody answers, in words: the members are those of the look before. "" where somebody does."""

    @property
    def voters(self) -> list[EtcdMember]:
        return [m for m in self.members if not m.learner]

    def like(self, other: EtcdView | None) -> bool:
        """Whether both looks lead to the same decisions."""
        return other is not None and self._facts == other._facts

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.quorate, bool(self.trouble), sorted(m.facts for m in self.members)


class EtcdAct(StrEnum):
    MOVE_LEADER = "MoveLeader"
    """The member that is named becomes the leader."""
    REMOVE = "Remove"
    """The member that is named is no member any more."""


# -- what the activities take -----------------------------------------------------------------------------------------


class EtcdLook(Value):
    """A look that lasts until there is something new to see."""

    cluster: Name
    seen: EtcdView | None = None
    """What was seen last. It also tells whose a member is whose Node is gone."""
    at_once: bool = False
    """It answers with its first look, whether that is new or not."""
    interval: Span
    """Between two looks."""


class EtcdChange(Value):
    """A change that was decided on after a look, and is made only while a fresh look finds the same."""

    cluster: Name
    seen: EtcdView
    act: EtcdAct
    member: Key
    """Its id: whom it is done to."""

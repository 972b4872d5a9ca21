"""The shape of an entry of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import NamedTuple


class Kind(Flag):
    """How a person meets a reason. Most also stand in the journal."""

    WAIT = auto()
    """In status.waitingFor."""
    FAILURE = auto()
    """It made the machine Failed."""
    CONDITION = auto()
    """In status.conditions."""
    HAPPENING = auto()
    """Only in the journal, the Events or the story that `hostler events` tells."""


class Reason(NamedTuple):
    """What is said about a reason, in the order of an entry of the runbook.

    All but the meaning may have placeholders, which `filled` fills in: `{machine}` (what has the reason, as a command
    names it), `{name}`, `{cluster}`, `{pool}` (a pool's name in a command), `{node}` (the command that shows the
    machine's Node), `{look}` (the command that describes it, or "this page"), `{seen}` (where to read the last look of
    an activity), `{doctor}` (the doctor, or the rest of its report), `{then}` (when it is tried again; the doctor shows
    no time), `{replace}` and `{inspect}` (what can be done with a machine that Failed, and what with its VM before,
    if it has one). How often something is tried is a setting: the wait itself says when the next try comes.
    """

    kind: Kind
    meaning: str
    """What the matter is, in one sentence."""
    see: str = ""
    """How to look closer."""
    by_itself: str = ""
    """What Hostler does, and when it tries next."""
    do: str = "Nothing."
    """What a person can do, in commands that can be copied. It begins with "Nothing" where it continues on its own, and
    then says when that is no longer normal."""
    cure: str = ""
    """What removes the cause, in sentences for which `{cure}` stands in `do`: for a machine that has Failed because of
    it, that is all that is left to do."""
    lasting: bool = False
    """Whether it only ends when somebody changes something: what is tried again is refused again."""
    worry: str = ""
    """When it is no longer normal."""
    more: str = ""
    """What the runbook adds, in Markdown."""
    warning: bool = False
    """Whether its Kubernetes Event is of type Warning."""

    @property
    def step(self) -> str:
        """`do`, with the cure in its place."""
        return self.do.replace("{cure}", self.cure)


class Group(NamedTuple):
    """A section of the runbook."""

    about: str
    """An introduction, in Markdown."""
    reasons: Mapping[str, Reason]

"""The shape of an entry of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto
from typing import NamedTuple


class Kind(Flag):
    """What a person meets a reason as. Most also stand in the journal."""

    WAIT = auto()
    """In status.waitingFor."""
    FAILURE = auto()
    """It made the machine Failed."""
    CONDITION = auto()
    """In status.conditions."""
    HAPPENING = auto()
    """Nowhere else than in the journal, the Events or the story that `hostler events` tells."""


class Reason(NamedTuple):
    """What is said of a reason, in the order of an entry of the runbook.

    All but the meaning may have placeholders, which `filled` fills in: `{machine}` (whatever it is that has the reason,
    as a command names it), `{name}`, `{cluster}`, `{pool}` (a pool's name in a command), `{node}` (the command that
    shows the machine's Node), `{seen}` (where the last look of an activity is read) and `{replace}` (what can be done
    with a machine that Failed).
    """

    kind: Kind
    meaning: str
    """What is so, in one sentence."""
    see: str = ""
    """How to look closer."""
    by_itself: str = ""
    """What Hostler does, and when it tries next."""
    do: str = "Nothing."
    """What a person can do, in commands that can be copied. It begins with "Nothing" where it goes on by itself, and
    then says when that is no longer normal."""
    worry: str = ""
    """When it is no longer normal."""
    more: str = ""
    """What the runbook adds, in Markdown."""
    warning: bool = False
    """Its Kubernetes Event is of type Warning."""


class Group(NamedTuple):
    """A section of the runbook."""

    about: str
    """In Markdown."""
    reasons: Mapping[str, Reason]

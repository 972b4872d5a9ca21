"""The shape of an entry of the registry."""

from __future__ import annotations

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
    kind: Kind
    meaning: str
    """What is so, in one sentence."""
    todo: str
    """What a person can do, in commands with `{machine}` (or whatever else it is that has the reason), `{cluster}`,
    `{node}`, and `{pool}`, a name only, to be filled in by `next_step`. It begins with "Nothing" where it goes on by
    itself, and then says when that is no longer normal."""
    warning: bool = False
    """Its Kubernetes Event is of type Warning."""

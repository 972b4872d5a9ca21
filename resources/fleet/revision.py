"""What an owner's machines are made from, and how fast it may make them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from resources.base import Count, Instant, Key, Text, Value
from resources.machine.manifest import MachineTemplate, as_kept
from resources.machine.state import ClassSnapshot

KeptTemplate = Annotated[MachineTemplate, BeforeValidator(as_kept)]
"""A template in a state, or in news of one."""


class Revision(Value):
    """What machines are made from."""

    counter: Count = Field(ge=1)
    machine_class: ClassSnapshot
    """The class at that time: a class may be edited in place, and a rollout of that undone."""
    hash: Key
    """`rolling_hash` of its class when the revision was made. It is part of its machines' names; `Wanted.is_like`
    (planners/fleet/revisions.py), not this, says whether two revisions are alike."""
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

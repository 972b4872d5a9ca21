"""What owners of machines answer about what they would do, and about what they have been made from."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Instant, Name, Text, Value


class RehearsedStep(Value):
    reason: Text
    message: Text


class Rehearsal(Value):
    """What an owner of machines would do if all goes well: its plans to come, each as its steps, by its own planner."""

    refused: Text = ""
    """Why it would not be taken at all."""
    revision: Count = 0
    rolls: Count = 0
    """How many machines a new revision replaces."""
    replaced: list[Name] = Field(default_factory=list)
    """Those of them that are named, where there are few."""
    hot: Count = 0
    """How many machines are changed and stay."""
    plans: list[list[RehearsedStep]] = Field(default_factory=list)
    waits: list[RehearsedStep] = Field(default_factory=list)
    """What it ends up waiting for: a canary, a pause, a person."""
    preserved: list[Name] = Field(default_factory=list)
    """Preserved machines that it deletes all the same."""
    overrides: bool = False
    """Whether a machine that fails now is not preserved, whatever was asked for: a rollout runs, or it shall have no
    machines."""


class RevisionSummary(Value):
    """One line of `hostler rollout history`."""

    revision: Count
    created: Instant
    machine_class: Name
    generation: Count
    """The generation of the class that its machines' VMs are made from; what is updatable may be a newer one's."""
    machines: Count
    requested_by: Text = ""
    reason: Text = ""

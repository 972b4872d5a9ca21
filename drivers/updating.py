"""A hot update over several resources, the same for every cloud: it goes on after an error, and says what became of
each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from drivers.base import UpdateMachineResponse
from drivers.errors import DriverError, PartialUpdate
from drivers.failures import combine
from drivers.tags import TagPlan
from resources.calls.cloud import ResourceUpdate
from resources.clouds import Tags

T = TypeVar("T")


@dataclass
class UpdateTarget:
    """A resource of the machine that is to be updated, and what becomes of it."""

    id: str
    kind: str
    """The cloud's name for the kind: instance, volume, network-interface."""
    tags: Tags
    """Tags as they were read."""
    plan: TagPlan = field(default_factory=TagPlan)
    changed: list[str] = field(default_factory=list)
    """What was changed, in words."""
    errors: list[DriverError] = field(default_factory=list)

    @property
    def update(self) -> ResourceUpdate:
        error = combine(self.errors).info if self.errors else None
        return ResourceUpdate(id=self.id, kind=self.kind, changed=self.changed, error=error)


def halves(keys: list[T]) -> tuple[list[T], list[T]]:
    """The first and the second half of what a cloud takes as a whole or not at all. Where one key may be the reason for
    a refusal, as for a policy about its values, each half is tried on its own: in the end the good ones are set, and
    the bad one is named."""
    half = len(keys) // 2
    return keys[:half], keys[half:]


def answer(targets: Iterable[UpdateTarget], errors: Sequence[DriverError] = ()) -> UpdateMachineResponse:
    """The answer for resources that were changed or failed. `errors` belong to no single resource, such as reads.

    Raises PartialUpdate when there was any error.
    """
    touched = [t for t in targets if t.changed or t.errors]
    updates, every = [t.update for t in touched], [*errors, *(e for t in touched for e in t.errors)]
    if every:
        raise PartialUpdate(combine(every), updates)
    return UpdateMachineResponse(changed=[f"{u.id}: {', '.join(u.changed)}" for u in updates], resources=updates)

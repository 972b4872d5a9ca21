"""Who wants cluster-autoscaler to leave a Node alone: a person, a rollout, a preservation.

All three share one annotation, `scale-down-disabled`. A rollout and a preservation each have a marker beside it: in
whatever order they come and go, what a person has set is there at the end (I10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resources.names import SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY, SCALE_DOWN_DISABLED_BY_PRESERVATION

ON = "true"
"""The only value that cluster-autoscaler reads as yes."""
BEFORE = "="
"""In the marker of a preservation: between the machine's name, which has no such sign, and what a person wants."""


@dataclass(frozen=True)
class Protection:
    person: str | None = None
    """What a person has set; "": took it away where it was a rollout's; None: nothing."""
    pool: str = ""
    """Whose rollout protects the Node."""
    machine: str = ""
    """Who is preserved on it."""


def protection(annotations: Mapping[str, str]) -> Protection:
    """As the annotations of a Node tell it. Who sets what we have set already changes nothing, and is not seen."""
    there = annotations.get(SCALE_DOWN_DISABLED)
    pool = annotations.get(SCALE_DOWN_DISABLED_BY, "")
    machine, said, before = annotations.get(SCALE_DOWN_DISABLED_BY_PRESERVATION, "").partition(BEFORE)
    if not (pool or machine):
        return Protection(there)
    if there == ON:
        return Protection(before if said else None, pool, machine)
    return Protection(there or ("" if pool else None), pool, machine)


def protection_patch(annotations: Mapping[str, str], wanted: Protection) -> dict[str, str | None]:
    """The changes that make the annotations say so. A preservation is stronger than a person's `false` (seed 003,
    note 6), and remembers it; a rollout is not."""
    ours = ON if wanted.pool and wanted.person is None else None
    said = "" if wanted.person is None else f"{BEFORE}{wanted.person}"
    should = {
        SCALE_DOWN_DISABLED: ON if wanted.machine else wanted.person or ours,
        SCALE_DOWN_DISABLED_BY: wanted.pool or None,
        SCALE_DOWN_DISABLED_BY_PRESERVATION: f"{wanted.machine}{said}" if wanted.machine else None,
    }
    return {key: value for key, value in should.items() if annotations.get(key) != value}

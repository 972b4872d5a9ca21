"""Protection of a Node from cluster-autoscaler, by a person, a rollout or a preservation.

All three share one annotation, `scale-down-disabled`. A rollout and a preservation each add a marker beside it: in
whatever order they come and go, what a person has set is there at the end (I10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resources.names import SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY, SCALE_DOWN_DISABLED_BY_PRESERVATION

ON = "true"
"""The only value that cluster-autoscaler reads as yes."""
BEFORE = "="
"""Separator in the marker of a preservation, between the machine's name, which has no such character, and what a person
wants."""


@dataclass(frozen=True)
class Protection:
    person: str | None = None
    """What a person has set; "": removed it where it was a rollout's; None: nothing."""
    pool: str = ""
    """The pool whose rollout protects the Node."""
    machine: str = ""
    """The machine that is preserved on it."""


def protection(annotations: Mapping[str, str]) -> Protection:
    """Reads the protection from a Node's annotations. Somebody who sets what we have set already changes nothing, and
    is not seen."""
    there = annotations.get(SCALE_DOWN_DISABLED)
    pool = annotations.get(SCALE_DOWN_DISABLED_BY, "")
    machine, said, before = annotations.get(SCALE_DOWN_DISABLED_BY_PRESERVATION, "").partition(BEFORE)
    if not (pool or machine):
        return Protection(there)
    if there == ON:
        return Protection(before if said else None, pool, machine)
    return Protection(there or ("" if pool else None), pool, machine)


def protection_patch(annotations: Mapping[str, str], wanted: Protection) -> dict[str, str | None]:
    """The changes that make the annotations say so. A preservation overrides a person's `false` (seed 003, note 6), and
    remembers it; a rollout does not."""
    ours = ON if wanted.pool and wanted.person is None else None
    said = "" if wanted.person is None else f"{BEFORE}{wanted.person}"
    should = {
        SCALE_DOWN_DISABLED: ON if wanted.machine else wanted.person or ours,
        SCALE_DOWN_DISABLED_BY: wanted.pool or None,
        SCALE_DOWN_DISABLED_BY_PRESERVATION: f"{wanted.machine}{said}" if wanted.machine else None,
    }
    return {key: value for key, value in should.items() if annotations.get(key) != value}

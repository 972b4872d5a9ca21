"""OnDelete: a machine is replaced when somebody deletes it, however many at once.

Source: seed 001, its text: the literal arrows of its chart would make machines for every healthy index for ever.
"""

from __future__ import annotations

from planners.control_plane.view import Observed
from planners.fleet.steps import Wait
from planners.words import named


def due(observed: Observed) -> list[tuple[int, str]]:
    """The indexes that get a replacement now, and why: all whose machines leave, each of them."""
    return [
        (index, f"{named([h.name for h in hosts])} is being deleted")
        for index, hosts in observed.indexes.items()
        if hosts and all(h.leaving for h in hosts)
    ]


def waits(observed: Observed) -> list[Wait]:
    """What waits for a person, and for replacements that come."""
    old = [h for h in observed.hosts if h.outdated and not h.leaving]
    coming = [h for h in observed.hosts if h.pending and not h.joined]
    found = []
    if old:
        found.append(
            Wait(
                "DeleteToReplace",
                f"{named([h.name for h in old])}: outdated ({old[0].outdated}). With OnDelete a person begins: hostler "
                f"delete machine {old[0].name}",
            )
        )
    if coming:
        found.append(Wait("ReplacementComing", f"{named([h.name for h in coming])}: not ready yet"))
    return found

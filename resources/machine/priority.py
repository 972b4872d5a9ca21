"""A machine's priority when its pool shrinks."""

from __future__ import annotations

from collections.abc import Mapping

from resources.names import PRIORITY_ANNOTATION

DEFAULT_PRIORITY = 3
"""The priority of a machine without the annotation machinepriority.machine.sapcloud.io, or with one that is not a
number (MCM)."""


def priority_in(annotations: Mapping[str, str]) -> int | None:
    """The priority that annotations give; None if they give none, or not a number of 32 bits (MCM: strconv.Atoi)."""
    text = annotations.get(PRIORITY_ANNOTATION, "").strip()
    try:
        found = int(text) if len(text) <= len(str(-(2**31))) else None
    except ValueError:
        return None
    return found if found is not None and -(2**31) <= found < 2**31 else None


def priority_of(annotations: Mapping[str, str]) -> int:
    """The priority of a machine, or of a template whose machines get it."""
    found = priority_in(annotations)
    return DEFAULT_PRIORITY if found is None else found

"""JSON merge patches (RFC 7396): what is to be sent so that an object becomes another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `after` of `before`; null removes a key. Empty where they are equal."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if below := merge_patch(old, value):
                patch[key] = below
        elif key not in before or old != value:
            patch[key] = value
    return patch

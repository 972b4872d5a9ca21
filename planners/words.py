"""Words for machines in a message."""

from __future__ import annotations

from collections.abc import Sequence

FEW = 5
"""How many machines a message names."""


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def some(count: int, what: str = "machine") -> str:
    """`1 machine`, `3 machines`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"

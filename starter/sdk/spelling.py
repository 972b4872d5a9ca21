"""Mistyped names, and numbers of things."""

from __future__ import annotations

from resources.spelling import did_you_mean

__all__ = ["counted", "did_you_mean"]


def counted(count: int) -> str:
    """`1 machine`, `2 machines`."""
    return f"{count} machine{'s' if count != 1 else ''}"

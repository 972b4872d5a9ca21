"""Whether a pool lends a machine to a config pool, whose update makes it unavailable for a while: the two keep one
budget, the pool's maxUnavailable, with room for one machine at least."""

from __future__ import annotations

from planners.pool.view import View
from planners.words import named, some


def refusal_to_lend(view: View, machine: str) -> str:
    """Why the machine is not lent now, in words; "" where it is."""
    if machine not in view.active:
        return f"{machine} leaves, or is not the pool's"
    most = max(1, view.limits.unavailable)
    away = sorted((view.active.keys() - view.available) | view.lent)
    others = [name for name in away if name != machine]
    missing = max(0, view.limits.replicas - len(view.active))
    if len(others) + missing < most:
        return ""
    words = [f"unavailable or lent: {named(others)}"] if others else []
    words += [f"{some(missing)} still to come"] if missing else []
    return f"maxUnavailable lets {some(most)} be unavailable, and {'; '.join(words)}"

"""What a class says of itself: its words for people, and its page in Temporal's web UI."""

from __future__ import annotations

from collections import Counter

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.class_rollout import behind
    from resources.machine import ClassSnapshot
    from resources.machine_class import ClassChange, ClassState

SOME = 5
"""Names in a message that are enough to go on with."""


def change_words(change: ClassChange) -> str:
    """What a change does to machines that run."""
    parts = [f"hot update of {', '.join(change.hot)}"] if change.hot else []
    parts += [f"needs replacement: {', '.join(change.rolls)}"] if change.rolls else []
    return "; ".join(parts) or change.reason or "nothing that a running VM carries"


def moves(former: ClassSnapshot, wanted: ClassSnapshot) -> str:
    return (
        f"provider: VMs cannot move from {former.provider} to {wanted.provider}; apply a class of another name, and "
        "machines that name it"
    )


def count(users: int) -> str:
    return f"{users} machine{'s' if users != 1 else ''}"


def some(names: list[str]) -> str:
    return ", ".join(names[:SOME]) + (", …" if len(names) > SOME else "")


def details(s: ClassState) -> str:
    """Where the class is, in Markdown for Temporal's web UI."""
    lines = [f"### Class {s.name}, generation {s.generation}"]
    if s.parked:
        lines.append(f"**Stands still**: {s.parked}")
    untold = sum(behind(u, s.generation) for u in s.users.values())
    facts = [
        f"Users: {len(s.users)}, of them without word of generation {s.generation}: {untold}",
        f"Newest generation that every user carries: {s.last_updated_generation}",
    ]
    states = Counter((str(u.state), u.reason) for u in s.users.values())
    facts += [f"{state}{f' ({reason})' if reason else ''}: {n}" for (state, reason), n in sorted(states.items())]
    facts += [f"{name}: {trouble.message}" for name, trouble in sorted(s.troubles.items())[:SOME]]
    lines.append("\n".join(f"- {fact}" for fact in facts))
    lines.append("Changes:\n\n" + "\n".join(f"- {_told(c)}" for c in reversed(s.changes[-SOME:])))
    return "\n\n".join(lines)


def _told(change: ClassChange) -> str:
    by = f", {change.requested_by}" if change.requested_by else ""
    return f"{change.generation}, {change.time:%Y-%m-%d %H:%M:%S}{by}: {change_words(change)}"

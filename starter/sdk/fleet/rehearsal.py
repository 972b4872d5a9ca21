"""The rehearsal of an owner of machines in words: what it would do, step by step."""

from __future__ import annotations

from resources.fleet.rehearsal import Rehearsal
from starter.sdk.spelling import counted

FEW = 20
"""How many machines a line names."""


def lines(found: Rehearsal, indent: str = "") -> list[str]:
    """What would happen: each plan with a number, what it does and the reasons. It is the same for `--dry-run` of every
    command that asks an owner."""
    if found.refused:
        return [f"{indent}refused: {found.refused}"]
    shown = [indent + line for line in [*deletes(found), *_head(found)]]
    for number, steps in enumerate(found.plans, start=1):
        for first, step in enumerate(steps):
            mark = f"{number}." if first == 0 else ""
            shown.append(f"{indent}  {mark:<4} {step.reason}: {step.message}")
    shown += [f"{indent}then waits: {w.reason}: {w.message}" for w in found.waits]
    return shown


def deletes(found: Rehearsal) -> list[str]:
    """Which preserved machines it deletes all the same: nobody who kept a machine for a look shall find out later."""
    if not found.preserved:
        return []
    more = f" and {len(found.preserved) - FEW} more" if len(found.preserved) > FEW else ""
    names = ", ".join(found.preserved[:FEW]) + more
    are = "is" if len(found.preserved) == 1 else "are"
    return [f"deletes {counted(len(found.preserved))} that {are} preserved: {names}"]


def _head(found: Rehearsal) -> list[str]:
    parts = [f"rolls {counted(found.rolls)} to revision {found.revision}"] if found.rolls else []
    parts += [f"hot update of {counted(found.hot)}, none is replaced"] if found.hot else []
    if found.plans:
        parts.append(f"{len(found.plans)} step{'s' if len(found.plans) != 1 else ''}, if nothing fails:")
    elif not parts:
        parts.append("no machine is created, changed or replaced")
    return ["; ".join(parts)]

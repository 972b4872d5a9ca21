"""What the pages of all owners of machines have: silence, the machine to look at first, waits, revisions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from starter.commands.page import table

if TYPE_CHECKING:
    from starter.sdk.fleet.results import FleetDescription, Numbers
    from starter.sdk.fleet.trouble import MachineTrouble

REVISIONS = 5
"""The newest ones, and those that have machines; `hostler rollout history` has them all."""


def silence(found: FleetDescription[Any, Any]) -> list[str]:
    """Why a workflow does not answer, or cannot."""
    from starter.output import unanswered

    lines: list[str] = []
    if found.no_answer:
        lines += unanswered(found.no_answer, "The following is what Temporal knows without a worker.")
    if found.running and found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows the failure."]
    return lines


def troubles(s: Numbers, first: MachineTrouble | None, now: datetime, page: str) -> list[str]:
    """What it waits for, and the machine to look at: the gravest first."""
    machine, waiting = trouble(first, now, s, page), waits(s, first, now)
    return machine + waiting if first is not None and first.grave else waiting + machine


def trouble(first: MachineTrouble | None, now: datetime, s: Numbers, page: str = "") -> list[str]:
    """The machine to look at first, in its own words: the cloud's own message is there. `page`: as in Situation."""
    from resources.machine.advice import has_vm, is_up_to_its_owner, step
    from starter.output import fields, moment

    if first is None or not first.reason:
        return []
    waiting = first.state.status.waiting_for
    held = s.holding(first.state.revision, has_vm(first.state)) if is_up_to_its_owner(first.state) else None
    todo = step(first.state, first.reason, page=page, held=held.reason if held else "")
    pairs = [
        ("Machine", f"{first.machine.name}, {first.state.status.shown_phase}"),
        ("Reason", first.reason),
        ("Message", first.message),
        ("Seen last", first.seen),
        ("Since", moment(waiting.since, now) if waiting else ""),
        ("Next try", moment(waiting.next_try, now) if waiting else ""),
        ("What can be done", todo),
    ]
    return ["", "First machine to look at:", *fields(pairs, 2)]


def waits(s: Numbers, first: MachineTrouble | None, now: datetime) -> list[str]:
    """Everything that it waits for, each with what can be done."""
    from starter.output import fields, moment

    lines = []
    for wait in s.waits:
        pairs = [
            ("Reason", wait.reason),
            ("Message", wait.message),
            ("Since", moment(wait.since, now)),
            ("What can be done", waits_step(wait.reason, s, first, page=s.noun)),
        ]
        lines += ["", "Waiting for:", *fields(pairs, 2)]
    return lines


def waits_step(reason: str, s: Numbers, first: MachineTrouble | None, page: str = "") -> str:
    """What can be done about a wait of the pool. What only a person ends outranks what takes its time."""
    from resources.reasons import Situation, next_step, nothing_to_do

    if first is not None and first.lasting and nothing_to_do(reason):
        return f"what machine {first.machine.name} needs, see above"
    return next_step(reason, s.cluster, s.name, s.noun, Situation(page=page))


def revisions(s: Numbers, now: datetime) -> list[str]:
    """The newest revisions, and those that have machines."""
    from starter.output import age

    shown = [r for i, r in enumerate(reversed(s.revisions)) if i < REVISIONS or r.machines]
    rows = [
        (
            str(r.revision),
            f"{r.machine_class}, generation {r.generation}",
            str(r.machines),
            age(now - r.created),
            r.requested_by,
            r.reason,
        )
        for r in shown
    ]
    return table("Revisions:", ("REVISION", "CLASS", "MACHINES", "AGE", "WHO", "WHY"), rows)

"""hostler describe machine: what it is, what it waits for and why, and what only its workflow knows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from starter.commands.kinds import MACHINE
from starter.commands.page import ABOVE, columns, journal_lines, once, pending_lines, said, table

if TYPE_CHECKING:
    from resources.machine.state import MachineState, UpdateTrouble, WaitingFor
    from starter.sdk.results import Description, PendingActivity


def page(found: Description, now: datetime) -> list[str]:
    """The whole answer, as lines."""
    from starter.output import fields, unanswered

    lines = fields(_head(found, now))
    if found.no_answer:
        lines += unanswered(found.no_answer, "The following is what Temporal knows without a worker.")
    if found.life.running and found.life.task_attempt > 1:
        lines += [
            "",
            f"The workflow's own code fails (attempt {found.life.task_attempt}); the web UI shows the failure.",
        ]
    if found.result is not None or found.failure:
        lines += _left(found)
    waiting = None
    if found.state is not None and not found.no_answer:
        waiting = found.state.status.waiting_for if found.life.running else None
        lines += _status(found.state, waiting, found, now)
    lines += pending_lines(found.life.pending, now, above=waiting is not None)
    journal = found.state.journal if found.state else found.result.journal if found.result else []
    lines += journal_lines(journal, now, waiting)
    if found.web:
        lines += ["", f"Web UI: {found.web}"]
    return lines


def _head(found: Description, now: datetime) -> list[tuple[str, str]]:
    from resources.machine.advice import carried
    from starter.output import moment

    summary, state = found.life.summary, found.state
    asked = state if state is not None and not found.no_answer else None
    phase = asked.status.shown_phase if asked else summary.phase
    if not found.life.running:
        phase = f"{phase}, when its workflow ended" if found.failure and phase else "(gone)"
    snapshot = state.machine_class if state else None
    machine_class = snapshot.words if snapshot else summary.machine_class
    created = state.created if state and state.created else summary.created
    return [
        ("Name", summary.name),
        ("Cluster", summary.cluster),
        ("Phase", phase),
        ("Reason", summary.reason if found.no_answer else ""),
        _owner(state, summary.pool),
        ("Class", machine_class),
        ("VM carries", carried(asked) if asked else ""),
        ("Node", _node(asked) if asked else summary.node),
        ("Provider ID", (asked.status.provider_id if asked else None) or summary.provider_id),
        ("Addresses", ", ".join(asked.status.addresses) if asked else ""),
        ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items())) if state else ""),
        ("UID", state.uid if state else found.result.uid if found.result else ""),
        ("Created", moment(created, now)),
        ("Deadline", moment(summary.deadline, now) if found.no_answer else ""),
        ("Preserved until", moment(summary.preserved_until, now) if found.no_answer else ""),
        ("Ended", moment(found.life.closed, now)),
    ]


def _owner(state: MachineState | None, listed: str) -> tuple[str, str]:
    """`Pool: demo, revision 2`; without a worker, what HostlerPool says."""
    from resources.owner import Owner

    owner = state.owner if state else Owner.read(listed) if listed else None
    revision = f", revision {state.revision}" if state else ""
    return (owner.word.capitalize(), f"{owner.name}{revision}") if owner else ("Pool", "")


def _node(state: MachineState) -> str:
    """The node. Until it joins, its name is what the cloud has promised."""
    name = state.status.node_name
    there = state.joined or (state.node is not None and state.node.exists)
    return f"{name} (expected, not joined)" if name and not there else name or ""


def _status(state: MachineState, waiting: WaitingFor | None, found: Description, now: datetime) -> list[str]:
    """What only the workflow knows. A machine that has ended waits for nothing."""
    from starter.commands import preserved
    from starter.commands.hook import hook_lines
    from starter.output import age, fields, moment

    status, life, lines = state.status, found.life, []
    held = found.held.reason if found.held else ""
    if waiting is not None:
        lines += ["", "Waiting for:", *fields(_waiting(state, waiting, life.pending, now, held), 2)]
    if found.held is not None:
        words = f"{state.owner} waits: {found.held.reason}, {moment(found.held.since, now)}\n{found.held.message}"
        lines += ["", *fields([("Not replaced", words)])]
    if (last := status.last_operation) is not None:
        code = f", {last.error_code}" if last.error_code else ""
        words = f"{last.type} {last.state}{code}, {moment(last.time, now)}"
        more = "" if said(last.description, waiting) else last.description
        lines += ["", *fields([("Last operation", f"{words}\n{more}".rstrip())])]
    lines += preserved.section(state, now) if life.running else []
    lines += _hot_update(status.update_trouble, waiting, now) if life.running else []
    if state.parked:
        lines += ["", f"Parked: {state.parked}", f"Once a fixed worker runs: hostler renew machine {state.name}"]
    if (deletion := state.deletion) is not None:
        by = f" by {deletion.requested_by}" if deletion.requested_by else ""
        why = f": {deletion.reason}" if deletion.reason else ""
        lines += [
            "",
            f"Deletion: requested{by}, {moment(deletion.time, now)}{', with force' if deletion.force else ''}{why}",
        ]
    lines += hook_lines(state, now) if life.running else []
    if status.conditions:
        trouble = status.update_trouble
        rows = [
            (
                c.type,
                c.reason,
                age(now - c.since),
                ABOVE if trouble and c.message == trouble.message else once(c.message, waiting),
            )
            for c in status.conditions
        ]
        lines += table("Conditions:", ("TYPE", "REASON", "SINCE", "MESSAGE"), rows)
        lines += _advice(state, held) if life.running else []
    if life.running and (times := _times(status.deadlines, waiting, now)):
        lines += ["", "Times:", *fields(times, 2)]
    if status.kept:
        lines += ["", "Kept:", *(f"  {k}" for k in status.kept)]
    return lines


def _hot_update(trouble: UpdateTrouble | None, waiting: WaitingFor | None, now: datetime) -> list[str]:
    """A hot update that has failed: why, and what became of each resource."""
    from starter.output import fields, moment

    if trouble is None:
        return []
    pairs = [
        ("Reason", trouble.reason),
        ("Message", once(trouble.message, waiting)),
        ("Since", moment(trouble.since, now)),
        ("Tried", moment(trouble.time, now)),
        ("Next try", moment(trouble.next_try, now) or "when the class changes"),
    ]
    rows = [(r.id, r.kind, ", ".join(r.changed), r.error_words) for r in trouble.resources]
    return ["", "Hot update:", *fields(pairs, 2), *columns(("RESOURCE", "KIND", "CHANGED", "ERROR"), rows)]


def _waiting(
    state: MachineState, waiting: WaitingFor, pending: tuple[PendingActivity, ...], now: datetime, held: str
) -> list[tuple[str, str]]:
    from starter.output import moment

    return [
        ("Reason", waiting.reason),
        ("Message", waiting.message),
        ("Seen last", "\n".join(p.last_failure for p in pending if p.last_failure and not p.aside)),
        ("Since", moment(waiting.since, now)),
        ("Next try", moment(waiting.next_try, now)),
        ("What can be done", _step(state, waiting.reason, held)),
    ]


def _times(deadlines: dict[str, datetime], waiting: WaitingFor | None, now: datetime) -> list[tuple[str, str]]:
    """What comes when, soonest first; the next try of a wait has a line there."""
    from resources.reasons import TIMES
    from starter.output import moment

    said = waiting.next_try if waiting else None
    due = sorted((time, name) for name, time in deadlines.items() if name not in ("retry", "update") or time != said)
    return [(TIMES.get(name, name), moment(time, now)) for time, name in due]


def _advice(state: MachineState, held: str) -> list[str]:
    """What can be done about conditions that do not go away on their own; the wait has its own line."""
    from resources.reasons import nothing_to_do

    waiting = state.status.waiting_for
    shown = [
        c
        for c in state.status.conditions
        if not nothing_to_do(c.reason)
        and not (waiting and waiting.reason == c.reason)
        and not (c.type == "Failed" and said(c.message, waiting))
    ]
    return [f"  What can be done about {c.reason}: {_step(state, c.reason, held)}" for c in shown]


def _step(state: MachineState, reason: str, held: str) -> str:
    from resources.machine.advice import step

    return step(state, reason, page=MACHINE, held=held)


def _left(found: Description) -> list[str]:
    from resources.owner import Owner
    from resources.reasons import Situation, next_step

    summary, result = found.life.summary, found.result
    if result is None:
        reason = {"TERMINATED": "Terminated", "FAILED": "WorkflowFailed"}.get(found.life.status)
        lines = ["", f"{found.failure[:1].upper()}{found.failure[1:]}."]
        at = Situation(Owner.words(summary.pool))
        todo = next_step(reason, summary.cluster, summary.name, at=at) if reason else ""
        return [*lines, f"What can be done: {todo}"] if todo else lines
    if not result.kept:
        return ["", "Nothing is left."]
    return ["", "Kept, because its spec says so:", *(f"  {k}" for k in result.kept)]

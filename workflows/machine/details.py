"""What Temporal's web UI shows of a machine: current details, in Markdown."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.machine.preservation import effective
    from resources.calls.cloud import ResourceUpdate
    from resources.machine.advice import carried, failed_of, step
    from resources.machine.preservation import Preservation
    from resources.machine.state import Condition, MachineState
    from resources.markdown import Markdown, heading, items, join, page, plain, prose, strong
    from resources.reasons import nothing_to_do
    from resources.reasons.times import TIMES
    from resources.words import utc, utc_clock


def details(state: MachineState) -> Markdown:
    """The state of the machine and what it waits for, in Markdown for Temporal's web UI."""
    status = state.status
    lines = [heading(f"{state.name}: {status.shown_phase}")]
    if status.waiting_for:
        w = status.waiting_for
        again = f", next try {utc_clock(w.next_try)}" if w.next_try else ""
        what = "Failed by" if failed_of(state, w.reason) else "Waits for"
        lines.append(join(what, " ", strong(w.reason), f" since {utc(w.since)}{again}: {w.message}"))
        lines.append(join("What can be done: ", prose(step(state, w.reason))))
    o = status.last_operation
    if o and not (status.waiting_for and o.description in status.waiting_for.message):
        lines.append(join(f"Last operation: {o.type} {o.state} at {utc_clock(o.time)}: {o.description}"))
    owner = state.owner
    facts: list[tuple[str, str | None]] = [
        (owner.word.capitalize(), f"{owner.name}, revision {state.revision}") if owner else ("Pool", None),
        ("VM", status.provider_id),
        ("Node", status.node_name),
        ("Preserved", status.preserve.why if status.preserve.expiry_time else None),
        ("To be preserved", asked(status.preserve) if state.deletion is None else None),
        ("Class", state.machine_class.words if state.machine_class else None),
        ("VM carries", carried(state)),
    ]
    said = status.waiting_for.next_try if status.waiting_for else None
    facts += [
        (TIMES.get(n, n), utc(t))
        for n, t in sorted(status.deadlines.items(), key=_time)
        if n not in ("retry", "update") or t != said
    ]
    facts += [(c.type, words) for c in status.conditions if (words := _condition(state, c))]
    facts += [
        (f"{r.kind} {r.id}", _became(r)) for r in (status.update_trouble.resources if status.update_trouble else ())
    ]
    return page(*lines, items(join(f"{what}: ", value) for what, value in facts if value))


def _condition(state: MachineState, c: Condition) -> Markdown:
    """A condition, without what already stands above as the wait."""
    waiting = state.status.waiting_for
    above = waiting is not None and waiting.message == c.message
    if above and waiting is not None and waiting.reason == c.reason:
        return Markdown()
    said = [c.reason] if c.reason != c.type else []
    said.append("as above" if above else c.message)
    words = ": ".join(said).rstrip(".")
    if nothing_to_do(c.reason) or (above and c.type == "Failed"):  # the cause above has the advice
        return plain(words)
    return join(words, ". What can be done: ", prose(step(state, c.reason)))


def _became(resource: ResourceUpdate) -> str:
    """What became of one resource in a hot update that failed."""
    error = resource.error_words
    return "; ".join(filter(None, [*resource.changed, f"failed: {error}" if error else ""]))


def _time(item: tuple[str, datetime]) -> datetime:
    return item[1]


def asked(p: Preservation) -> str | None:
    """A request that has no effect yet, in words."""
    if p.expiry_time is not None or not (value := effective(p.node_value, p.own, p.last)):
        return None
    if value == p.node_value:
        return f"{value}, by the annotation on its node"
    own = p.own
    by = f" by {own.requested_by}" if own and own.requested_by else ""
    why = f": {own.reason}" if own and own.reason else ""
    return f"{value}, requested{by}{why}"

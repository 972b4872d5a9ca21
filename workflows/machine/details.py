"""What Temporal's web UI shows of a machine: current details, in Markdown."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.machine.preservation import effective
    from resources.calls.cloud import ResourceUpdate
    from resources.machine.preservation import Preservation
    from resources.machine.state import Condition, MachineState, Phase
    from resources.markdown import Markdown, heading, items, join, page, plain, prose, strong
    from resources.reasons import next_step, nothing_to_do
    from resources.reasons.times import TIMES


def details(state: MachineState) -> Markdown:
    """The state of the machine and what it waits for, in Markdown for Temporal's web UI."""
    status = state.status
    lines = [heading(f"{state.name}: {status.shown_phase}")]
    if status.waiting_for:
        w = status.waiting_for
        again = f", next try {w.next_try:%H:%M:%S}" if w.next_try else ""
        failed = any(c.type == "Failed" and c.reason == w.reason for c in status.conditions)
        what = "Failed by" if failed and status.phase == Phase.FAILED else "Waits for"
        lines.append(join(what, " ", strong(w.reason), f" since {w.since:%Y-%m-%d %H:%M:%S}{again}: {w.message}"))
        lines.append(join("What can be done: ", prose(_step(state, w.reason))))
    o = status.last_operation
    if o and not (status.waiting_for and o.description in status.waiting_for.message):
        lines.append(join(f"Last operation: {o.type} {o.state} at {o.time:%H:%M:%S}: {o.description}"))
    applied = status.last_applied_provider_spec
    facts: list[tuple[str, str | None]] = [
        ("Pool", f"{state.pool}, revision {state.revision}" if state.pool else None),
        ("VM", status.provider_id),
        ("Node", status.node_name),
        ("Preserved", status.preserve.why if status.preserve.expiry_time else None),
        ("To be preserved", asked(status.preserve) if state.deletion is None else None),
        (
            "Class",
            f"{state.machine_class.name} (generation {state.machine_class.generation})"
            if state.machine_class
            else None,
        ),
        ("VM carries", f"generation {status.applied_generation}, spec hash {applied.hash}" if applied else None),
    ]
    said = status.waiting_for.next_try if status.waiting_for else None
    facts += [
        (TIMES.get(n, n), f"{t:%Y-%m-%d %H:%M:%S}")
        for n, t in sorted(status.deadlines.items(), key=_time)
        if n not in ("retry", "update") or t != said
    ]
    facts += [(c.type, words) for c in status.conditions if (words := _condition(state, c))]
    facts += [
        (f"{r.kind} {r.id}", _became(r)) for r in (status.update_trouble.resources if status.update_trouble else ())
    ]
    return page(*lines, items(join(f"{what}: ", value) for what, value in facts if value))


def _step(s: MachineState, reason: str) -> str:
    return next_step(reason, s.cluster, s.name, pool=s.pool, kept=s.status.preserve.expiry_time is not None)


def _condition(s: MachineState, c: Condition) -> Markdown:
    """A condition, without what already stands above as the wait."""
    waiting = s.status.waiting_for
    above = waiting is not None and waiting.message == c.message
    if above and waiting is not None and waiting.reason == c.reason:
        return Markdown()
    said = [c.reason] if c.reason != c.type else []
    said.append("as above" if above else c.message)
    words = ": ".join(said).rstrip(".")
    if nothing_to_do(c.reason):
        return plain(words)
    return join(words, ". What can be done: ", prose(_step(s, c.reason)))


def _became(resource: ResourceUpdate) -> str:
    """What became of one resource in a hot update that failed."""
    error = error_of(resource)
    return "; ".join(filter(None, [*resource.changed, f"failed: {error}" if error else ""]))


def error_of(resource: ResourceUpdate) -> str:
    """The error, without the resource's id where that stands beside it."""
    return resource.error.message.removeprefix(f"{resource.id}: ") if resource.error else ""


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

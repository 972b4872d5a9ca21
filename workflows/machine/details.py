"""What Temporal's web UI shows of a machine: current details, in Markdown."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from resources.machine import MachineState, Phase
    from resources.reasons import next_step, nothing_to_do
    from resources.reasons.times import TIMES


def details(s: MachineState) -> str:
    """Where the machine is and what it waits for, in Markdown for Temporal's web UI."""
    status = s.status
    lines = [f"### {s.name}: {status.phase}"]
    if status.waiting_for:
        w = status.waiting_for
        again = f", next try {w.next_try:%H:%M:%S}" if w.next_try else ""
        what = "Failed by" if status.phase == Phase.FAILED else "Waits for"
        lines.append(f"{what} **{w.reason}** since {w.since:%Y-%m-%d %H:%M:%S}{again}: {w.message}")
        lines.append(f"What can be done: {next_step(w.reason, s.cluster, s.name)}")
    o = status.last_operation
    if o and not (status.waiting_for and o.description in status.waiting_for.message):
        lines.append(f"Last operation: {o.type} {o.state} at {o.time:%H:%M:%S}: {o.description}")
    facts = [
        ("VM", status.provider_id),
        ("Node", status.node_name),
        ("Class", f"{s.machine_class.name} (generation {s.machine_class.generation})" if s.machine_class else None),
    ]
    facts += [(TIMES.get(n, n), f"{t:%Y-%m-%d %H:%M:%S}") for n, t in sorted(status.deadlines.items(), key=_time)]
    for c in status.conditions:
        if status.waiting_for and (c.reason, c.message) == (status.waiting_for.reason, status.waiting_for.message):
            continue  # it stands above
        todo = "" if nothing_to_do(c.reason) else f" What can be done: {next_step(c.reason, s.cluster, s.name)}"
        facts.append((c.type, c.message + todo))
    return "\n\n".join(lines) + "\n\n" + "\n".join(f"- {what}: {value}" for what, value in facts if value)


def _time(item: tuple[str, datetime]) -> datetime:
    return item[1]

"""A pool's page in Temporal's web UI: where it is, what it waits for, what can be done."""

from __future__ import annotations

from collections import Counter

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.pool.preservation import slots, staying_failed
    from planners.pool.repair import in_flight
    from planners.pool.view import View
    from planners.words import named
    from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
    from resources.pool.state import PoolState
    from resources.reasons import next_step

LINES = 10
"""How many lines of the journal the page shows."""


def typed(s: PoolState, command: str) -> Markdown:
    """A command on the pool, ready to copy: it must not hit another cluster."""
    return code(f"hostler {command} {s.name} --cluster {s.cluster}")


def details(s: PoolState, view: View) -> Markdown:
    lines = [heading(f"Pool {s.name}, revision {s.revision}")]
    if s.parked:
        lines.append(join(strong("Parked"), f": {s.parked}"))
        lines.append(join("Once a fixed worker runs: ", typed(s, "renew pool")))
    lines.append(items(_facts(s, view)))
    if s.waits:
        waits = [join(strong(w.reason), f" since {w.since:%Y-%m-%d %H:%M:%S}: {w.message}") for w in s.waits]
        steps = dict.fromkeys(next_step(w.reason, s.cluster, s.name, kind="pool") for w in s.waits)
        lines += [plain("Waits:"), items(waits), plain("What can be done:"), items(map(prose, steps))]
    if s.lost:
        lost = [f"{name} ({status})" for name, status in sorted(s.lost.items())[:LINES]]
        lines += [plain("Machines whose workflow was ended by somebody:"), items(lost)]
    story = [f"{h.time:%Y-%m-%d %H:%M:%S} {h.reason}: {h.message}" for h in reversed(s.journal[-LINES:])]
    return page(*lines, "Last:", items(story))


def _facts(s: PoolState, view: View) -> list[str]:
    limits = view.limits
    facts: list[str] = [
        f"{len(view.active)} of {limits.replicas} machines, {len(view.available)} available; {view.vms} VMs of "
        f"{limits.ceiling} allowed"
    ]
    if s.deleted:
        facts.append(join(strong("It is being deleted"), ", and its machines with it"))
    if s.spec.hibernated:
        facts.append(join(f"Hibernated: its {s.spec.replicas} replicas come back with ", typed(s, "wake pool")))
    if s.rollout is not None:
        done = len(view.new.keys() & view.available)
        facts.append(
            f"Rollout of revision {s.rollout.revision} since {s.rollout.began:%Y-%m-%d %H:%M:%S}: "
            f"{bar(done, limits.replicas)} {done} of {limits.replicas} available, {len(view.old)} of older revisions "
            "left"
        )
    for (revision, phase), n in sorted(Counter((m.revision, str(m.phase)) for m in s.members.values()).items()):
        facts.append(f"Revision {revision}, {phase}: {n}")
    if staying := staying_failed(view):
        facts.append(
            f"Failed and kept for inspection: {named(sorted(staying))}; {len(slots(staying))} of "
            f"{s.spec.auto_preserve_failed_max} slots (autoPreserveFailedMax) in use"
        )
    if busy := in_flight(view):
        facts.append(f"Repairs in progress: {', '.join(busy)}")
    if s.unseen:
        facts.append(f"Not reachable: {s.unseen}")
    return facts


def bar(done: int, of: int, width: int = 20) -> str:
    filled = width if of <= 0 else min(width, done * width // of)
    return "█" * filled + "░" * (width - filled)

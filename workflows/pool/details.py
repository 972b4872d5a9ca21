"""A pool's page in Temporal's web UI: where it is, what it waits for, what can be done."""

from __future__ import annotations

from collections import Counter

from temporalio import workflow

from workflows.page import bar

with workflow.unsafe.imports_passed_through():
    from planners.pool.preservation import slots, staying_failed
    from planners.pool.repair import in_flight
    from planners.pool.view import View
    from planners.words import named
    from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
    from resources.pool.state import PoolState
    from resources.reasons import next_step
    from resources.words import utc
    from workflows.fleet.details import refused

LINES = 10
"""How many lines of the journal the page shows."""


def typed(pool: PoolState, command: str) -> Markdown:
    """A command on the pool, ready to copy: it must not hit another cluster."""
    return code(f"hostler {command} {pool.name} --cluster {pool.cluster}")


def details(pool: PoolState, view: View) -> Markdown:
    lines = [heading(f"Pool {pool.name}, revision {pool.revision}")]
    if pool.parked:
        lines.append(join(strong("Parked"), f": {pool.parked}"))
        lines.append(join("Once a fixed worker runs: ", typed(pool, "renew pool")))
    lines.append(items(_facts(pool, view)))
    lines += refused(pool, "pool")
    if pool.waits:
        waits = [join(strong(w.reason), f" since {utc(w.since)}: {w.message}") for w in pool.waits]
        steps = dict.fromkeys(next_step(w.reason, pool.cluster, pool.name, kind="pool") for w in pool.waits)
        lines += [plain("Waits:"), items(waits), plain("What can be done:"), items(map(prose, steps))]
    if pool.lost:
        lost = [f"{name} ({status})" for name, status in sorted(pool.lost.items())[:LINES]]
        lines += [plain("Machines whose workflow was ended by somebody:"), items(lost)]
    story = [f"{utc(h.time)} {h.reason}: {h.message}" for h in reversed(pool.journal[-LINES:])]
    return page(*lines, "Last:", items(story))


def _facts(pool: PoolState, view: View) -> list[str]:
    limits = view.limits
    to_come = f" and {view.unborn} still to come," if view.unborn else ""
    facts: list[str] = [
        f"{len(view.active)} of {limits.replicas} machines, {len(view.available)} available; "
        f"{view.vms - view.unborn} VMs{to_come} of {limits.ceiling} allowed"
    ]
    if pool.deleted:
        facts.append(join(strong("It is being deleted"), ", and its machines with it"))
    if pool.spec.hibernated:
        facts.append(join(f"Hibernated: its {pool.spec.replicas} replicas come back with ", typed(pool, "wake pool")))
    if pool.rollout is not None:
        done = len(view.new.keys() & view.available)
        facts.append(
            f"Rollout of revision {pool.rollout.revision} since {utc(pool.rollout.began)}: "
            f"{bar(done, limits.replicas)} {done} of {limits.replicas} available, {len(view.old)} of older revisions "
            "left"
        )
    for (revision, phase), n in sorted(Counter((m.revision, str(m.phase)) for m in pool.members.values()).items()):
        facts.append(f"Revision {revision}, {phase}: {n}")
    if staying := staying_failed(view):
        facts.append(
            f"Failed and kept for inspection: {named(sorted(staying))}; {len(slots(staying))} of "
            f"{pool.spec.auto_preserve_failed_max} slots (autoPreserveFailedMax) in use"
        )
    if busy := in_flight(view):
        facts.append(f"Repairs in progress: {', '.join(busy)}")
    if pool.unseen:
        facts.append(f"Not reachable: {pool.unseen}")
    return facts

"""The pages of machine configs in Temporal's web UI: who is where, who blocks, what can be done."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import workflow

from workflows.page import bar

with workflow.unsafe.imports_passed_through():
    from planners.machine_config.steps import ConfigPlan
    from resources.fleet.state import FleetWait
    from resources.journal import Happening
    from resources.machine_config.state import (
        ConfigRolloutState,
        MachineConfigPoolState,
        MachineConfigsState,
        Reservation,
    )
    from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
    from resources.reasons import next_step
    from resources.words import utc

LINES = 10
"""How many lines of the journal, or of a list of nodes, a page shows."""
STEPS = 15
STANDS = ("ConfigRolloutStalled", "MaxUnavailableInvalid", "NodesContested", "ConfigNodesSilent")
HELD = ("ConfigPoolPaused", "ClusterPaused", "Frozen")


def phase_of(s: MachineConfigPoolState) -> str:
    """The pool in one word."""
    reasons = {w.reason for w in s.waits}
    if s.parked:
        return "Parked"
    if s.gone:
        return "Gone"
    if "ConfigPoolRefused" in reasons:
        return "Refused"
    if reasons.intersection(HELD) or s.paused:
        return "Paused"
    if s.counts.degraded:
        return "Degraded"
    if reasons.intersection(STANDS):
        return "Stalled"
    if s.seen is None or not s.target:
        return "Pending"
    return "Updated" if s.counts.done == s.counts.machines and s.story is None else "Updating"


def waits_of(waits: Sequence[FleetWait], cluster: str, name: str, kind: str) -> list[Markdown]:
    """What it waits for, and what can be done."""
    if not waits:
        return []
    lines = [join(strong(w.reason), f" since {utc(w.since)}: {w.message}") for w in waits]
    steps = dict.fromkeys(next_step(w.reason, cluster, name, kind=kind) for w in waits)
    return [plain("Waits:"), items(lines), plain("What can be done:"), items(map(prose, steps))]


def told(happenings: Sequence[Happening], lines: int = LINES) -> Markdown:
    return items(f"{utc(h.time)} {h.reason}: {h.message}" for h in reversed(happenings[-lines:]))


def details(s: MachineConfigPoolState, made: ConfigPlan | None) -> Markdown:
    lines = [heading(f"Config pool {s.name}: {phase_of(s)}")]
    if s.parked:
        lines.append(join(strong("Parked"), f": {s.parked}"))
        lines.append(join("Once a fixed worker runs: ", code(f"hostler renew mcp {s.name} --cluster {s.cluster}")))
    lines.append(items(_facts(s, made)))
    lines += waits_of(s.waits, s.cluster, s.name, "mcp")  # before the nodes, of which there may be many
    if under_way := [_under_way(name, r, s) for name, r in sorted(s.reservations.items())[:LINES]]:
        more = len(s.reservations) - len(under_way)
        lines += [plain("Under way:"), items([*under_way, *([f"and {more} more"] if more else [])])]
    if asked := [
        f"{name} since {utc(d.since)}: {d.wish}{f'; {d.blocker}' if d.blocker else ''}"
        for name, d in sorted(s.drains.items())[:LINES]
    ]:
        lines += [plain("Drains:"), items(asked)]
    return page(*lines, "Last:", told(s.journal))


def _facts(s: MachineConfigPoolState, made: ConfigPlan | None) -> list[str]:
    c = s.counts
    facts = [f"{bar(c.done, c.machines)} {c.done} of {c.machines} nodes have {s.target or 'no config yet'}"]
    facts.append(
        f"{c.ready} Ready, {c.unavailable} unavailable, {c.degraded} degraded; at most {s.most} may be unavailable"
        + (f", {made.free} more could begin" if made is not None and made.free else "")
    )
    if s.completed and s.completed != s.target:
        facts.append(f"All nodes last had {s.completed}")
    if s.story is not None:
        facts.append(f"Rollout since {utc(s.story.began)}, last progress at {utc(s.story.progress_at)}")
    if s.loans:
        facts.append(f"Borrowed, or asked for: {', '.join(sorted(s.loans)[:LINES])}")
    if s.seen is not None:
        facts.append(f"Looked at {utc(s.seen)}")
    return facts


def _under_way(name: str, r: Reservation, s: MachineConfigPoolState) -> str:
    what = "fails with" if r.failed else "is on its way to" if r.seen else "is being given"
    return f"{name} {what} {r.config}, since {utc(r.at)}"


def rollout_page(s: ConfigRolloutState, phase: str) -> Markdown:
    c = s.counts
    facts: list[str] = [
        f"Since {utc(s.began)}{f'; before: {s.former}' if s.former else ''}",
        f"{bar(c.done, c.machines)} {c.done} of {c.machines} nodes have it, {c.unavailable} unavailable, "
        f"{c.degraded} degraded",
    ]
    if s.stalls_at is not None and s.end is None:
        facts.append(f"Said to stand still at {utc(s.stalls_at)}, unless a node finishes before")
    if s.end is not None:
        facts.append(join(strong(s.end.outcome), f": {s.end.message}"))
    lines = [heading(f"Rollout of {s.config} over config pool {s.pool}: {phase}"), items(facts)]
    lines += waits_of(s.waits, s.cluster, s.pool, "mcp")
    return page(*lines, "Steps:" if s.steps else "", told(s.steps, STEPS))


def configs_page(s: MachineConfigsState, phase: str) -> Markdown:
    lines = [heading(f"Machine configs of cluster {s.name}: {phase}")]
    if s.parked:
        lines.append(join(strong("Parked"), f": {s.parked}"))
    facts = [f"{len(s.pools)} config pools; all was as it should be at {utc(s.synced)}"]
    if s.api is not None and not s.api.reachable:
        facts.append(f"The API server {s.api.words}")
    lines.append(items(facts))
    pools = [
        f"{b.name}: {b.target or 'nothing is rendered'}{', paused' if b.paused else ''}"
        for b in sorted(s.pools.values(), key=lambda b: b.name)[:LINES]
    ]
    lines += [items(pools)] if pools else []
    asked = [
        f"{name}, of no pool: {drain.wish}{f': {drain.blocker}' if drain.blocker else ''}"
        for name, drain in sorted(s.drains.items())
    ]
    lines += [items(asked[:LINES])] if asked else []
    if s.troubles:
        lines += [plain("Troubles:"), items(f"{t.about}: {t.reason}: {t.message}" for t in s.troubles[:LINES])]
    lines += waits_of(s.waits, s.name, s.name, "cluster")
    return page(*lines, "Last:", told(s.journal))

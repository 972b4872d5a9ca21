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


def phase_of(state: MachineConfigPoolState) -> str:
    """The pool in one word."""
    reasons = {w.reason for w in state.waits}
    if state.parked:
        return "Parked"
    if state.gone:
        return "Gone"
    if "ConfigPoolRefused" in reasons:
        return "Refused"
    if reasons.intersection(HELD) or state.paused:
        return "Paused"
    if state.counts.degraded:
        return "Degraded"
    if reasons.intersection(STANDS):
        return "Stalled"
    if state.seen is None or not state.target:
        return "Pending"
    return "Updated" if state.counts.done == state.counts.machines and state.story is None else "Updating"


def waits_of(waits: Sequence[FleetWait], cluster: str, name: str, kind: str) -> list[Markdown]:
    """What it waits for, and what can be done."""
    if not waits:
        return []
    lines = [join(strong(w.reason), f" since {utc(w.since)}: {w.message}") for w in waits]
    steps = dict.fromkeys(next_step(w.reason, cluster, name, kind=kind) for w in waits)
    return [plain("Waits:"), items(lines), plain("What can be done:"), items(map(prose, steps))]


def told(happenings: Sequence[Happening], lines: int = LINES) -> Markdown:
    return items(f"{utc(h.time)} {h.reason}: {h.message}" for h in reversed(happenings[-lines:]))


def details(state: MachineConfigPoolState, made: ConfigPlan | None) -> Markdown:
    lines = [heading(f"Config pool {state.name}: {phase_of(state)}")]
    if state.parked:
        lines.append(join(strong("Parked"), f": {state.parked}"))
        lines.append(
            join("Once a fixed worker runs: ", code(f"hostler renew mcp {state.name} --cluster {state.cluster}"))
        )
    lines.append(items(_facts(state, made)))
    lines += waits_of(state.waits, state.cluster, state.name, "mcp")  # before the nodes, of which there may be many
    if under_way := [_under_way(name, r, state) for name, r in sorted(state.reservations.items())[:LINES]]:
        more = len(state.reservations) - len(under_way)
        lines += [plain("Under way:"), items([*under_way, *([f"and {more} more"] if more else [])])]
    if asked := [
        f"{name} since {utc(d.since)}: {d.wish}{f'; {d.blocker}' if d.blocker else ''}"
        for name, d in sorted(state.drains.items())[:LINES]
    ]:
        lines += [plain("Drains:"), items(asked)]
    return page(*lines, "Last:", told(state.journal))


def _facts(state: MachineConfigPoolState, made: ConfigPlan | None) -> list[str]:
    c = state.counts
    facts = [f"{bar(c.done, c.machines)} {c.done} of {c.machines} nodes have {state.target or 'no config yet'}"]
    facts.append(
        f"{c.ready} Ready, {c.unavailable} unavailable, {c.degraded} degraded; at most {state.most} may be unavailable"
        + (f", {made.free} more could begin" if made is not None and made.free else "")
    )
    if state.completed and state.completed != state.target:
        facts.append(f"All nodes last had {state.completed}")
    if state.story is not None:
        facts.append(f"Rollout since {utc(state.story.began)}, last progress at {utc(state.story.progress_at)}")
    if state.loans:
        facts.append(f"Borrowed, or asked for: {', '.join(sorted(state.loans)[:LINES])}")
    if state.seen is not None:
        facts.append(f"Looked at {utc(state.seen)}")
    return facts


def _under_way(name: str, r: Reservation, s: MachineConfigPoolState) -> str:
    what = "fails with" if r.failed else "is on its way to" if r.seen else "is being given"
    return f"{name} {what} {r.config}, since {utc(r.at)}"


def rollout_page(state: ConfigRolloutState, phase: str) -> Markdown:
    c = state.counts
    facts: list[str] = [
        f"Since {utc(state.began)}{f'; before: {state.former}' if state.former else ''}",
        f"{bar(c.done, c.machines)} {c.done} of {c.machines} nodes have it, {c.unavailable} unavailable, "
        f"{c.degraded} degraded",
    ]
    if state.stalls_at is not None and state.end is None:
        facts.append(f"Counts as stuck at {utc(state.stalls_at)}, unless a node finishes before")
    if state.end is not None:
        facts.append(join(strong(state.end.outcome), f": {state.end.message}"))
    lines = [heading(f"Rollout of {state.config} over config pool {state.pool}: {phase}"), items(facts)]
    lines += waits_of(state.waits, state.cluster, state.pool, "mcp")
    return page(*lines, "Steps:" if state.steps else "", told(state.steps, STEPS))


def configs_page(state: MachineConfigsState, phase: str) -> Markdown:
    lines = [heading(f"Machine configs of cluster {state.name}: {phase}")]
    if state.parked:
        lines.append(join(strong("Parked"), f": {state.parked}"))
    facts = [f"{len(state.pools)} config pools; all was as it should be at {utc(state.synced)}"]
    if state.api is not None and not state.api.reachable:
        facts.append(f"The API server {state.api.words}")
    lines.append(items(facts))
    pools = [
        f"{b.name}: {b.target or 'nothing is rendered'}{', paused' if b.paused else ''}"
        for b in sorted(state.pools.values(), key=lambda b: b.name)[:LINES]
    ]
    lines += [items(pools)] if pools else []
    asked = [
        f"{name}, of no pool: {drain.wish}{f': {drain.blocker}' if drain.blocker else ''}"
        for name, drain in sorted(state.drains.items())
    ]
    lines += [items(asked[:LINES])] if asked else []
    if state.troubles:
        lines += [plain("Troubles:"), items(f"{t.about}: {t.reason}: {t.message}" for t in state.troubles[:LINES])]
    lines += waits_of(state.waits, state.name, state.name, "cluster")
    return page(*lines, "Last:", told(state.journal))

"""A control plane's page in Temporal's web UI: each index, what it waits for, what can be done."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.control_plane.status import status
    from planners.control_plane.summary import awaited
    from planners.control_plane.view import Host, Observed
    from resources.control_plane.spec import State
    from resources.control_plane.state import ControlPlaneState
    from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
    from resources.reasons import next_step
    from resources.words import utc
    from workflows.fleet.details import refused

LINES = 10
"""How many lines of the journal the page shows."""


def details(state: ControlPlaneState, seen: Observed) -> Markdown:
    lines = [heading(f"Control plane of {state.cluster}, revision {state.revision}")]
    if state.parked:
        lines.append(join(strong("Parked"), f": {state.parked}"))
        lines.append(join("Once a fixed worker runs: ", code(f"hostler renew controlplane --cluster {state.cluster}")))
    lines.append(items(_facts(state, seen)))
    lines.append(items(join(strong(f"Index {index}"), f": {_index(seen, index)}") for index in seen.indexes))
    lines += refused(state, "controlplane")
    if state.waits:
        waits = [join(strong(w.reason), f" since {utc(w.since)}: {w.message}") for w in state.waits]
        steps = dict.fromkeys(next_step(w.reason, state.cluster, state.name, kind="controlplane") for w in state.waits)
        lines += [plain("Waits:"), items(waits), plain("What can be done:"), items(map(prose, steps))]
    story = [f"{utc(h.time)} {h.reason}: {h.message}" for h in reversed(state.journal[-LINES:])]
    return page(*lines, "Last:", items(story))


def _facts(state: ControlPlaneState, seen: Observed) -> list[str | Markdown]:
    count = status(seen)
    facts: list[str | Markdown] = [
        f"{seen.strategy}; {count.ready} of {seen.replicas} ready, {count.updated} up to date; a quorum is "
        f"{seen.quorum}, and {seen.serving} serve"
    ]
    if state.deleted:
        facts.append(join(strong("It is being deleted"), ", and its machines stay"))
    if state.spec.state is State.INACTIVE:
        facts.append(join(strong("Inactive"), ": it only looks on"))
    facts += [f"{c.type}: {c.status}, {c.reason}{f': {c.message}' if c.message else ''}" for c in count.conditions]
    return facts


def _index(seen: Observed, index: int) -> str:
    domain = f" ({seen.domains[index]})" if index in seen.domains else ""
    hosts = ", ".join(_host(h) for h in seen.indexes[index]) or "no machine"
    waits = awaited(seen, index)
    return f"{hosts}{domain}{f'; waits for {waits}' if waits else ''}"


def _host(host: Host) -> str:
    words = ["ready" if host.ready else "not ready"]
    words += [f"outdated ({host.outdated})"] if host.outdated else []
    words += [f"leaving{', held' if host.held else ''}"] if host.leaving else []
    return f"{host.name} {', '.join(words)}"

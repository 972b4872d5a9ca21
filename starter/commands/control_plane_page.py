"""hostler describe controlplane: what stands where, what each index waits for, and what can be done, on one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from starter.commands.fleet_page import revisions, silence, troubles
from starter.commands.page import next_steps, table

if TYPE_CHECKING:
    from resources.control_plane.state import ControlPlaneState
    from resources.control_plane.summary import ControlPlaneSummary, HostSummary, IndexSummary
    from starter.sdk.control_plane.results import ControlPlaneDescription


def about(found: ControlPlaneDescription, now: datetime) -> list[str]:
    """The lines that only a control plane has: first what is wrong, with what can be done, then each index."""
    from starter.output import fields

    lines = fields(_head(found, now)) + silence(found) + _ended(found)
    s = found.summary
    if found.running and s is not None:
        lines += _parked(s) + troubles(s, found.trouble, now, "controlplane") + indexes(s) + _conditions(s, now)
    if s is not None:
        lines += revisions(s, now)
    return lines


def commands(found: ControlPlaneDescription) -> list[str]:
    """Commands to go on with, ready to be copied."""
    s, of = found.summary, f"controlplane --cluster {found.listed.cluster}"
    if not found.running or s is None:
        return []
    shown = [(f"hostler tree {of}", "its indexes and machines")]
    if not s.rolled_out:
        shown.append((f"hostler rollout status {of}", "follow its update"))
    if len(s.revisions) > 1:
        shown.append((f"hostler rollout undo {of} --dry-run", "what going back would do"))
    if s.paused:
        shown.append((f"hostler rollout resume {of}", "let it replace machines again"))
    elif not s.rolled_out:
        shown.append((f"hostler rollout pause {of}", "stop before the next machine"))
    return next_steps(shown)


# -- the head ---------------------------------------------------------------------------------------------------------


def _head(found: ControlPlaneDescription, now: datetime) -> list[tuple[str, str]]:
    from starter.output import moment

    listed, state, s = found.listed, found.state, found.summary
    phase = listed.phase if found.running else f"{listed.phase}, when its workflow ended" if found.failure else "(gone)"
    return [
        ("Name", listed.name),
        ("Cluster", listed.cluster),
        ("Phase", phase),
        ("Reason", listed.reason if found.running else ""),
        ("Not reachable", state.unseen if state and found.running else ""),
        ("Update", _update(state) if state else ""),
        ("Machines", _numbers(found)),
        ("Class", f"{s.machine_class}, generation {s.generation}" if s and s.generation else listed.machine_class),
        ("Revision", str(s.revision) if s and s.revision else ""),
        ("Paused", _paused(state)),
        ("etcd", "Hostler removes a member before its machine is drained" if state and state.spec.etcd_guard else ""),
        ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items())) if state else ""),
        ("Created", moment(listed.created, now)),
        ("Ended", moment(found.ended, now)),
    ]


def _update(state: ControlPlaneState) -> str:
    from resources.control_plane.spec import State, UpdateStrategy

    if state.spec.state is State.INACTIVE:
        return "Inactive: it only looks on; nothing is created, replaced or deleted"
    if state.spec.strategy is UpdateStrategy.ON_DELETE:
        return "Active, OnDelete: an old machine is replaced when somebody deletes it"
    return "Active, RollingUpdate: one index at a time, the new machine first"


def _numbers(found: ControlPlaneDescription) -> str:
    """Its own numbers; without them, the number of machines by visibility."""
    s = found.summary
    if s is None or not found.running:
        return f"{found.machines}, according to the list of workflows"
    parts = [f"{s.ready} of {s.replicas} ready (quorum {s.quorum})", f"{s.updated} up to date", f"{s.machines} in all"]
    if s.template_pending:
        parts.append(f"{s.template_pending} without the newest node template yet")
    return ", ".join(parts)


def _paused(state: ControlPlaneState | None) -> str:
    if state is None or not state.paused:
        return ""
    by = f" by {state.paused_by}" if state.paused_by else ""
    return f"nothing is replaced{by}"


def _ended(found: ControlPlaneDescription) -> list[str]:
    if found.running:
        return []
    stay = f"{found.machines} machine{'s' if found.machines != 1 else ''}" if found.machines else "none of its machines"
    todo = "apply its manifest again (hostler apply -f FILE), which takes over the machines that are there"
    if not found.failure:
        return ["", f"Its machines stay, and are replaced by nobody. To look after them again: {todo}."]
    words = f"{found.failure[:1].upper()}{found.failure[1:]}."
    return ["", words, f"What can be done: {todo}: {stay} by the list of workflows."]


# -- how it stands ----------------------------------------------------------------------------------------------------


def _parked(s: ControlPlaneSummary) -> list[str]:
    if not s.parked:
        return []
    renew = f"hostler renew controlplane --cluster {s.cluster}"
    return ["", f"Parked: {s.parked}", f"Once a fixed worker runs: {renew}"]


def indexes(s: ControlPlaneSummary) -> list[str]:
    """A line for each machine, and below them what each index waits for, and what differs."""
    rows = [row for index in s.indexes for row in _rows(index)]
    domains = any(row[-1] for row in rows)
    header = ("INDEX", "MACHINE", "PHASE", "READY", "UPDATED", "DOMAIN")
    cells = rows if domains else [row[:-1] for row in rows]
    lines = table("Indexes:", header if domains else header[:-1], cells)
    for index in s.indexes:
        lines += [f"  Index {index.index} waits for {index.waits}"] * bool(index.waits)
        lines += [f"    {h.name} differs: {h.outdated}" for h in index.hosts if h.outdated]
    return lines


def _rows(index: IndexSummary) -> Iterator[tuple[str, ...]]:
    if not index.hosts:
        yield str(index.index), "(none)", "", "", "", index.failure_domain
    for h in index.hosts:
        updated = "no" if h.outdated else "yes"
        moves = f"{h.failure_domain} -> {index.failure_domain}" if h.outdated else index.failure_domain
        domain = moves if h.failure_domain not in ("", index.failure_domain) else h.failure_domain
        yield str(index.index), h.name, _phase(h), "yes" if h.ready else "no", updated, domain


def _phase(h: HostSummary) -> str:
    """Its phase; of one that leaves, whether it has been let go."""
    return f"{h.phase}, held" if h.held else str(h.phase)


def _conditions(s: ControlPlaneSummary, now: datetime) -> list[str]:
    from starter.output import age

    told = {w.message for w in s.waits}
    rows: Sequence[tuple[str, ...]] = [
        (
            c.type,
            str(c.status),
            c.reason,
            age(now - c.since) if c.since else "",
            "as above" if c.message in told else c.message,
        )
        for c in s.conditions
    ]
    return table("Conditions:", ("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)

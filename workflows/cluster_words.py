"""What a cluster says of itself: its words for people, and its page in Temporal's web UI."""

from __future__ import annotations

from collections.abc import Collection

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from resources.cluster import ClusterState, Pause

SOME = 5
"""Names in a message that are enough to go on with."""


def phase_of(s: ClusterState) -> str:
    if s.api is not None and not s.api.reachable:
        return "APIRefused" if s.api.refused else "APIUnreachable"
    return "Parked" if s.parked else "Paused" if s.pause else "Watching"


def refusal(s: ClusterState) -> str | None:
    """Why it cannot be removed."""
    left = [_some(set(s.machines.values()), len(s.machines), "machine")] if s.machines else []
    left += [_some(s.pools, len(s.pools), "pool")] if s.pools else []
    return f"cluster {s.name} still has {' and '.join(left)}; delete them first" if left else None


def _some(names: Collection[str], number: int, kind: str) -> str:
    some = ", ".join(sorted(names)[:SOME]) + (", …" if len(names) > SOME else "")
    return f"{number} {kind}{'s' if number > 1 else ''} ({some})"


def pause_words(pause: Pause) -> str:
    """Since when, by whom and why."""
    by = f" by {pause.requested_by}" if pause.requested_by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"since {pause.time:%Y-%m-%d %H:%M:%S} UTC{by}{why}"


def held(pools: int) -> str:
    """What a pause means, as the answer to it."""
    which = {0: "it has no pools now; those to come do nothing", 1: "its pool does nothing"}
    return which.get(pools, f"its {pools} pools do nothing")


def details(s: ClusterState) -> str:
    """Where the cluster is, in Markdown for Temporal's web UI."""
    api = s.api
    words = "not known yet" if api is None else api.words
    lines = [f"### Cluster {s.name}: {phase_of(s)}", ""]
    if s.pause:
        lines += [f"**Paused** {pause_words(s.pause)}. To go on: `hostler resume cluster {s.name}`", ""]
    lines += [f"- API server: {words}", f"- VMs announced: {len(s.machines)}"]
    lines += [f"- Nodes told to their machines: {len(s.cursor.told)}"]
    lines += [f"- Pools: {', '.join(sorted(s.pools))}"] if s.pools else []
    for key, cloud in sorted(s.clouds.items()):
        lines.append(f"- {key}: {cloud.words}")
    return "\n".join(lines)

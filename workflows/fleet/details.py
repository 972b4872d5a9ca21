"""What the pages of all owners of machines say in Temporal's web UI."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from resources.fleet.state import FleetState
    from resources.markdown import Markdown, join, prose, strong
    from resources.reasons import next_step


def refused(s: FleetState, kind: str) -> list[Markdown]:
    """What the cloud said last about new machines, where no wait says it: it outranks whatever takes its time. `kind`:
    the owner's word in commands."""
    if not s.pace.reason or any(s.pace.message in w.message for w in s.waits):
        return []
    todo = prose(next_step(s.pace.reason, s.cluster, s.name, kind=kind))
    words = f": {s.pace.message}. What can be done: "
    return [join("New machines failed last by ", strong(s.pace.reason), words, todo)]

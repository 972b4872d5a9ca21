"""Tell a cluster of a VM, for its watches: by whom it is, and in which account it is listed. And of a pool."""

from __future__ import annotations

from temporalio.common import WorkflowIDConflictPolicy

from activities.deps import Deps
from resources import starts
from resources.cluster import ClusterState
from resources.messages import Announcement


async def announce(deps: Deps, cluster: str, announcement: Announcement) -> None:
    await tell_cluster(deps, cluster, "announce", announcement)


async def tell_cluster(deps: Deps, cluster: str, signal: str, argument: object) -> None:
    """Idempotent. Starts the cluster's workflow, and so its watches, if need be."""
    state = ClusterState.of(cluster, deps.settings.queue_prefix, deps.settings.timings)
    await deps.client.start_workflow(
        "ClusterWorkflow",
        state,
        **starts.of_cluster(state),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=signal,
        start_signal_args=[argument],
    )

"""Tell a cluster of a VM, for its watches: by whom it is, and in which account it is listed."""

from __future__ import annotations

from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy

from activities.deps import Deps
from resources.attributes import CLUSTER
from resources.cluster import ClusterState
from resources.messages import Announcement
from resources.names import cluster_id, workflow_queue


async def announce(deps: Deps, cluster: str, announcement: Announcement) -> None:
    """Idempotent. Starts the cluster's workflow, and so its watches, if need be."""
    prefix = deps.settings.queue_prefix
    await deps.client.start_workflow(
        "ClusterWorkflow",
        ClusterState.of(cluster, prefix, deps.settings.timings),
        id=cluster_id(cluster),
        task_queue=workflow_queue(prefix),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        static_summary=f"Cluster {cluster}: watches its nodes",
        search_attributes=TypedSearchAttributes([SearchAttributePair(CLUSTER, cluster)]),
        start_signal="announce",
        start_signal_args=[announcement],
    )

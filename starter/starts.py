"""Starting the workflows of machines, classes and clusters, for everything that does it on the way in."""

from __future__ import annotations

from datetime import datetime

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from resources import attributes, names
from resources.cluster import ClusterState
from resources.machine import MachineState, Phase
from resources.machine_class import ClassState
from resources.messages import Announcement
from resources.settings import Settings
from starter.live import MEMO_CREATED


async def start_machine(
    temporal: Client, state: MachineState, *, reason: str, created: datetime, reuse: WorkflowIDReusePolicy
) -> None:
    """Raises WorkflowAlreadyStartedError when a workflow of this name runs, or when `reuse` forbids another one."""
    found = [
        SearchAttributePair(attributes.CLUSTER, state.cluster),
        SearchAttributePair(attributes.PHASE, str(Phase.PENDING)),
        SearchAttributePair(attributes.REASON, reason),
        SearchAttributePair(attributes.CLASS, state.spec.class_.name),
    ]
    if state.status.provider_id:
        found.append(SearchAttributePair(attributes.PROVIDER_ID, state.status.provider_id))
    await temporal.start_workflow(
        "MachineWorkflow",
        state,
        id=names.machine_id(state.cluster, state.name),
        task_queue=names.workflow_queue(state.queue_prefix),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        id_reuse_policy=reuse,
        search_attributes=TypedSearchAttributes(found),
        memo={MEMO_CREATED: created.isoformat()},
        static_summary=f"Machine {state.name} of cluster {state.cluster}",
    )


async def start_class(temporal: Client, state: ClassState) -> None:
    """Raises WorkflowAlreadyStartedError when there is one that runs; one that is gone gets a new life."""
    await temporal.start_workflow(
        "MachineClassWorkflow",
        state,
        id=names.class_id(state.cluster, state.name),
        task_queue=names.workflow_queue(state.queue_prefix),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(attributes.CLUSTER, state.cluster),
                SearchAttributePair(attributes.CLASS, state.name),
                SearchAttributePair(attributes.PHASE, "Updated"),
            ]
        ),
        static_summary=f"Class {state.name} of cluster {state.cluster}",
    )


async def start_cluster(
    temporal: Client, settings: Settings, name: str, announcement: Announcement | None = None
) -> None:
    """No error when it runs; with an announcement, which VM is which machine is told in the same call."""
    await temporal.start_workflow(
        "ClusterWorkflow",
        ClusterState.of(name, settings.queue_prefix, settings.timings),
        id=names.cluster_id(name),
        task_queue=names.workflow_queue(settings.queue_prefix),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=TypedSearchAttributes([SearchAttributePair(attributes.CLUSTER, name)]),
        static_summary=f"Cluster {name}: watches its nodes",
        start_signal="announce" if announcement else None,
        start_signal_args=[announcement] if announcement else [],
    )

"""How each kind of workflow is started: its id, its queue, and what visibility knows of it from the first moment.

This is in one place because both the starter and activities start machines and clusters. Each answer is the keyword
arguments of `Client.start_workflow`, except for the policies, which are the caller's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from temporalio.client import WorkflowExecutionStatus
from temporalio.common import Priority, SearchAttributePair, TypedSearchAttributes

from resources import attributes, names
from resources.clouds import indexed
from resources.cluster.state import ClusterState
from resources.machine.state import MachineState, Phase
from resources.machine_config.state import ConfigRolloutState, MachineConfigPoolState, MachineConfigsState
from resources.markdown import page, plain, prose
from resources.pool.rollout import RolloutState

MACHINE = Priority(priority_key=4)
"""One below Temporal's default: there are many machines, and queries to their pool, class or cluster must not wait for
the machines' tasks while all of them are busy."""

FROM_OUTSIDE = (
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.CANCELED,
    WorkflowExecutionStatus.TIMED_OUT,
    WorkflowExecutionStatus.FAILED,
)
"""The statuses of a workflow that did not come to its own end."""

UNANSWERED = page(
    prose(
        "Where Current Details stays empty, no worker answers for this workflow: `hostler doctor` names the one "
        "that is silent, and says what to do with it. Lists show what was last known."
    )
)
"""What the web UI's page says beside the details, which only a worker can give."""


def shown(summary: str) -> dict[str, Any]:
    """What the web UI shows of a workflow whether a worker answers or not."""
    return {"static_summary": plain(summary), "static_details": UNANSWERED}


def of_machine(state: MachineState, *, reason: str, created: datetime) -> dict[str, Any]:
    """The start of a machine. `reason` is what it waits for first."""
    found = [
        SearchAttributePair(attributes.CLUSTER, state.cluster),
        SearchAttributePair(attributes.PHASE, str(Phase.PENDING)),
        SearchAttributePair(attributes.REASON, reason),
        SearchAttributePair(attributes.CLASS, state.spec.class_.name),
    ]
    if state.owner is not None:
        found.append(SearchAttributePair(attributes.POOL, state.owner.listed))
    if state.status.provider_id:
        found.append(SearchAttributePair(attributes.PROVIDER_ID, indexed(state.status.provider_id)))
    return {
        "id": names.machine_id(state.cluster, state.name),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes(found),
        "memo": {attributes.MEMO_CREATED: created.isoformat()},
        **shown(f"Machine {state.name} of cluster {state.cluster}"),
        "priority": MACHINE,
    }


def of_cluster(state: ClusterState) -> dict[str, Any]:
    return {
        "id": names.cluster_id(state.name),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes([SearchAttributePair(attributes.CLUSTER, state.name)]),
        **shown(f"Cluster {state.name}: watches its nodes"),
    }


def of_rollout(state: RolloutState) -> dict[str, Any]:
    return {
        "id": names.rollout_id(state.cluster, state.pool, state.revision),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(attributes.CLUSTER, state.cluster),
                SearchAttributePair(attributes.POOL, state.pool),
                SearchAttributePair(attributes.PHASE, "Rolling"),
            ]
        ),
        **shown(f"Rollout of pool {state.pool} of cluster {state.cluster} to revision {state.revision}"),
    }


def of_machine_configs(state: MachineConfigsState) -> dict[str, Any]:
    return {
        "id": names.machine_configs_id(state.name),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes([SearchAttributePair(attributes.CLUSTER, state.name)]),
        **shown(f"Machine configs of cluster {state.name}: renders them"),
    }


def of_config_pool(state: MachineConfigPoolState) -> dict[str, Any]:
    return {
        "id": names.config_pool_id(state.cluster, state.name),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(attributes.CLUSTER, state.cluster),
                SearchAttributePair(attributes.POOL, names.config_pool_listed(state.name)),
            ]
        ),
        **shown(f"Config pool {state.name} of cluster {state.cluster}"),
    }


def of_config_rollout(state: ConfigRolloutState) -> dict[str, Any]:
    return {
        "id": names.config_rollout_id(state.cluster, state.pool, state.config),
        "task_queue": names.workflow_queue(state.queue_prefix),
        "search_attributes": TypedSearchAttributes(
            [
                SearchAttributePair(attributes.CLUSTER, state.cluster),
                SearchAttributePair(attributes.POOL, names.config_pool_listed(state.pool)),
                SearchAttributePair(attributes.PHASE, "Rolling"),
            ]
        ),
        **shown(f"Rollout of {state.config} to config pool {state.pool} of cluster {state.cluster}"),
    }

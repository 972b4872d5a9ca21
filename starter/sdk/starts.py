"""Starts the workflows of machines, pools, control planes, classes and clusters, for all entry points."""

from __future__ import annotations

from datetime import datetime

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from resources import attributes, names, starts
from resources.cluster.accounts import AccountUse
from resources.control_plane.spec import State
from resources.control_plane.state import ControlPlaneState
from resources.fleet.state import FleetState
from resources.histories import cluster_begins
from resources.machine.state import MachineState
from resources.machine_class.state import ClassState
from resources.machine_config.state import MachineConfigsState
from resources.owner import CONTROL_PLANE, POOL, Owner, OwnerKind
from resources.pool.state import PoolState
from resources.settings import Settings
from starter.sdk import live


async def start_machine(
    temporal: Client, state: MachineState, *, reason: str, created: datetime, reuse: WorkflowIDReusePolicy
) -> None:
    """Starts a machine. Raises WorkflowAlreadyStartedError when a workflow of this name runs, or when `reuse` forbids
    another one."""
    await temporal.start_workflow(
        "MachineWorkflow",
        state,
        **starts.of_machine(state, reason=reason, created=created),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        id_reuse_policy=reuse,
    )


async def start_class(temporal: Client, state: ClassState) -> None:
    """Starts a class. Raises WorkflowAlreadyStartedError when one runs; one that is gone gets a new life."""
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
        **starts.shown(f"Class {state.name} of cluster {state.cluster}"),
    )


async def start_pool(temporal: Client, state: PoolState, *, created: datetime) -> None:
    """Starts a pool. Raises WorkflowAlreadyStartedError when one runs; one that is gone gets a new life."""
    of, words = state.spec.template.spec.class_.name, f"Pool {state.name} of cluster {state.cluster}"
    await _start_owner(temporal, POOL, state, of, "Scaling", words, created)


async def start_control_plane(temporal: Client, state: ControlPlaneState, *, created: datetime) -> None:
    """Starts a control plane. Raises WorkflowAlreadyStartedError when one runs; one that is gone gets a new life."""
    phase = "Rolling" if state.spec.state is State.ACTIVE else "Inactive"
    words = f"Control plane of cluster {state.cluster}"
    await _start_owner(temporal, CONTROL_PLANE, state, state.class_name, phase, words, created)


async def _start_owner(
    temporal: Client, kind: OwnerKind, state: FleetState, of: str, phase: str, words: str, created: datetime
) -> None:
    await temporal.start_workflow(
        kind.workflow,
        state,
        id=kind.id(state.cluster, state.name),
        task_queue=names.workflow_queue(state.queue_prefix),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(attributes.CLUSTER, state.cluster),
                SearchAttributePair(attributes.POOL, Owner(kind=kind.manifest, name=state.name).listed),
                SearchAttributePair(attributes.CLASS, of),
                SearchAttributePair(attributes.PHASE, phase),
            ]
        ),
        memo={attributes.MEMO_CREATED: created.isoformat()},
        **starts.shown(words),
    )


async def start_cluster(temporal: Client, settings: Settings, name: str, use: AccountUse | None = None) -> None:
    """Starts a cluster's workflow; no error when it runs. A use, which says in which account a class's VMs are, is sent
    in the same call. After a workflow that somebody has ended from outside, it goes on with what that one knew, such as
    a pause."""
    found = await live.described(temporal.get_workflow_handle(names.cluster_id(name)))
    state = await cluster_begins(temporal, name, settings, found)
    await temporal.start_workflow(
        "ClusterWorkflow",
        state,
        **starts.of_cluster(state),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal="use_account" if use else None,
        start_signal_args=[use] if use else [],
    )


async def start_machine_configs(temporal: Client, settings: Settings, cluster: str) -> None:
    """Starts the workflow that renders a cluster's machine configs; no error when it runs."""
    state = MachineConfigsState(
        name=cluster,
        queue_prefix=settings.queue_prefix,
        timings=settings.timings,
        render_delay=settings.cluster(cluster).machine_configs.render_delay,
    )
    await temporal.start_workflow(
        "MachineConfigsWorkflow",
        state,
        **starts.of_machine_configs(state),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )

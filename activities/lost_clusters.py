"""Clusters whose workflow somebody has ended from outside: found by the workers that would serve its watch, and begun
again.

Nobody else would notice soon: pools and machines hear from their cluster, and seldom speak to it. It costs a call per
cluster and minute, whatever the number of machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio.client import WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy

from activities.announce import beginning, described
from activities.deps import Deps
from resources import starts
from resources.base import format_duration
from resources.cluster import Ended

log = logging.getLogger("hostler.lost")

EVERY = timedelta(minutes=1)
OF = "WorkflowType IN ('MachineWorkflow', 'MachineDeploymentWorkflow') AND ExecutionStatus = 'Running'"


async def look(deps: Deps) -> list[str]:
    """Clusters of the settings that were begun again. One that a person has removed stays so, and one of which nothing
    is left. Raises RPCError."""
    return [name for name in sorted(deps.settings.clusters) if await _begun_again(deps, name)]


async def _begun_again(deps: Deps, cluster: str) -> bool:
    found = await described(deps, cluster)
    if not (found is None or found.status in starts.FROM_OUTSIDE) or not await _left(deps, cluster, found):
        return False
    state = await beginning(deps, cluster, found)
    if found is None:
        state = state.after(None, Ended(how="its record is deleted"))
    await deps.client.start_workflow(
        "ClusterWorkflow", state, **starts.of_cluster(state), id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
    )
    log.warning("the workflow of cluster %s was ended from outside, and is begun again", cluster)
    return True


async def _left(deps: Deps, cluster: str, found: WorkflowExecutionDescription | None) -> bool:
    """By visibility. Where there is no trace of a workflow, machines that have a Node have had one: a first machine is
    about to begin it."""
    had = "" if found else " AND HostlerNode IS NOT NULL"
    return (await deps.client.count_workflows(f"{OF} AND HostlerCluster = '{cluster}'{had}")).count > 0


async def _run(deps: Deps) -> None:
    """Until it is cancelled. A failure is said once and tried again."""
    failing = False
    while True:
        try:
            await look(deps)
            failing = False
        except Exception as e:  # it must never stop a worker
            if not failing:
                words = "whether clusters have lost their workflow cannot be seen: %s; tried again every %s"
                log.warning(words, e or type(e).__name__, format_duration(EVERY))
            failing = True
        await asyncio.sleep(EVERY.total_seconds())


@contextlib.asynccontextmanager
async def looking(deps: Deps) -> AsyncIterator[None]:
    """The look beside what runs inside."""
    task = asyncio.create_task(_run(deps), name="lost clusters")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])

"""Workflows that are to be there and are not, most of them because somebody has ended them from outside: a worker looks
for them, and tells those concerned or begins the workflow.

Nobody else would notice soon: pools and machines hear from their cluster, and seldom speak to it; and a machine that is
gone says nothing. It costs one call per cluster and one for all machines a minute, whatever their number.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy

from activities.beside import beside
from activities.deps import Deps
from activities.temporal.workflows import CLUSTER, CONFIGS, MACHINE, described, running, tell
from resources import attributes as at
from resources import starts
from resources.base import format_duration
from resources.cluster.state import Ended
from resources.histories import cluster_begins
from resources.machine_config.state import MachineConfigsState
from resources.names import cluster_id, machine_configs_id, machine_id, workflow_queue
from resources.owner import Owner, workflows_of_owners

log = logging.getLogger("hostler.lost")

EVERY = timedelta(minutes=1)
NEWEST = 200
"""Machines in one look; if more were ended within a minute, their pools find the rest on their own."""


class Lost:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps
        self._known: set[str] = set()
        """Runs of machines that were seen at the last look."""

    async def look(self) -> None:
        """Looks once. Raises RPCError."""
        await self.clusters()
        await self.configs()
        await self.machines()

    # -- clusters -----------------------------------------------------------------------------------------------------

    async def clusters(self) -> list[str]:
        """Restarts the workflows of clusters in the settings, and returns those clusters. One that a person has removed
        stays removed, as does one of which nothing is left. Raises RPCError."""
        return [name for name in sorted(self.deps.settings.clusters) if await self._begun_again(name)]

    async def _begun_again(self, cluster: str) -> bool:
        found = await described(self.deps.client, cluster_id(cluster))
        if not (found is None or found.status in starts.FROM_OUTSIDE) or not await self._left(cluster, found):
            return False
        state = await cluster_begins(self.deps.client, cluster, self.deps.settings, found)
        if found is None:
            state = state.after(None, Ended(how="its record is deleted"))
        await self.deps.client.start_workflow(
            CLUSTER,
            state,
            **starts.of_cluster(state),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        log.warning("somebody ended the workflow of cluster %s; it is started again", cluster)
        return True

    async def _left(self, cluster: str, found: WorkflowExecutionDescription | None) -> bool:
        """Whether anything of the cluster is left, by visibility. Where there is no trace of a workflow, only machines
        that have a Node count, for they had one: a first machine is about to begin it."""
        kinds, joined = (MACHINE, *workflows_of_owners()), "" if found else "HostlerNode IS NOT NULL"
        left = running(*kinds, cluster=cluster, where=joined)
        return (await self.deps.client.count_workflows(left)).count > 0

    # -- machine configs ----------------------------------------------------------------------------------------------

    async def configs(self) -> list[str]:
        """Begins the workflows of machine configs, and returns the clusters whose workflow was not there: the settings
        say which clusters have one, and no other is touched. What one of them knew is all in the cluster. Raises
        RPCError."""
        begun = []
        for name, given in sorted(self.deps.settings.clusters.items()):
            if not given.machine_configs.enabled:
                continue
            found = await described(self.deps.client, machine_configs_id(name))
            if found is not None and found.status is WorkflowExecutionStatus.RUNNING:
                continue
            state = MachineConfigsState(
                name=name,
                queue_prefix=self.deps.settings.queue_prefix,
                timings=self.deps.settings.timings,
                render_delay=given.machine_configs.render_delay,
            )
            await self.deps.client.start_workflow(
                CONFIGS,
                state,
                **starts.of_machine_configs(state),
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            begun.append(name)
        return begun

    # -- machines -----------------------------------------------------------------------------------------------------

    async def machines(self) -> list[str]:
        """Owned machines that were ended since the last look; their owners are told to look for them. By visibility,
        which proves nothing: the owner asks the server. Raises RPCError."""
        statuses = ", ".join(f"'{name}'" for name in ("Terminated", "Canceled", "TimedOut", "Failed"))
        query = (
            f"WorkflowType = '{MACHINE}' AND ExecutionStatus IN ({statuses}) AND HostlerPool IS NOT NULL "
            f"AND TaskQueue = '{workflow_queue(self.deps.settings.queue_prefix)}'"
        )
        found = [execution async for execution in self.deps.client.list_workflows(query, limit=NEWEST)]
        told = []
        for execution in found:
            said = execution.typed_search_attributes
            cluster, owner = said.get(at.CLUSTER) or "", Owner.read(said.get(at.POOL) or "")
            if execution.run_id in self._known or cluster not in self.deps.settings.clusters:
                continue
            name = execution.id.removeprefix(machine_id(cluster, ""))
            await tell(self.deps.client, owner.workflow_id(cluster), "member_ended", name)
            told.append(name)
        self._known = {execution.run_id for execution in found}
        return told


@contextlib.asynccontextmanager
async def looking(deps: Deps) -> AsyncIterator[None]:
    """Looks again and again beside what runs inside."""
    trouble = (
        f"workflows that somebody has ended cannot be searched for: %s; tried again every {format_duration(EVERY)}"
    )
    async with beside(Lost(deps).look, EVERY, log, trouble, "workflows that somebody has ended are searched for again"):
        yield

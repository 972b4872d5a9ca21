"""What concerns every machine of a cluster that waits: told once when it changes, so that each can say so."""

from __future__ import annotations

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from activities.batch import each
from activities.deps import Deps
from resources.messages import NewsInput


class NewsActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def tell_machines(self, input: NewsInput) -> int:
        """How many were told. Those that wait are found by visibility: it serves what people read, no decision."""
        waiting = (
            "WorkflowType = 'MachineWorkflow' AND ExecutionStatus = 'Running' AND HostlerReason IS NOT NULL "
            f"AND HostlerCluster = '{input.cluster}'"
        )

        async def tell(machine: str) -> bool:
            try:
                await self.deps.client.get_workflow_handle(machine).signal("cluster_news", input.api)
            except RPCError as e:
                if e.status != RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    raise
                return False
            return True

        machines = [found.id async for found in self.deps.client.list_workflows(waiting)]
        return sum(await each(machines, tell, lambda n: f"{n} of {len(machines)} machines told"))

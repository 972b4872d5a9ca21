"""News that concerns every waiting machine of a cluster: told once when it changes, so that each machine can show
it."""

from __future__ import annotations

from temporalio import activity

from activities.base import Activities
from activities.batch import each
from activities.temporal.workflows import MACHINE, running, tell
from resources.cluster.news import NewsInput


class NewsActivities(Activities):
    role = "workflows"

    @activity.defn
    async def tell_machines(self, input: NewsInput) -> int:
        """Tells the machines that wait; returns how many were told. Visibility finds them, which is enough for what
        people read and no decision depends on."""
        client = self.deps.client
        waiting = running(MACHINE, cluster=input.cluster, where="HostlerReason IS NOT NULL")
        machines = [found.id async for found in client.list_workflows(waiting)]
        told = await each(
            machines,
            lambda machine: tell(client, machine, "cluster_news", input.api),
            lambda n: f"{n} of {len(machines)} machines told",
        )
        return sum(told)

"""Clusters as HostlerClient sees them: what watches them, whether their API answers, and their end.

for cluster in await hostler.clusters.list():
    print(cluster.name, cluster.phase, cluster.machines, cluster.pools)
"""

from __future__ import annotations

import asyncio
import builtins
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from resources import attributes, names
from resources.cluster import ClusterState
from resources.messages import Intent
from resources.starts import FROM_OUTSIDE
from starter.sdk import intents, live
from starter.sdk.errors import NoAnswer, NotFound, Refused, translated
from starter.sdk.results import ClusterDescription, ClusterSummary, Sent
from starter.sdk.spelling import did_you_mean
from starter.sdk.starts import start_cluster

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

NOT_WATCHED = "NotWatched"
"""The phase of a cluster that the settings have and nobody watches: its first machine begins the watch."""
SOME = 5
"""Names in a message that are enough to go on with."""


class Clusters:
    """`HostlerClient.clusters`."""

    def __init__(self, client: HostlerClient) -> None:
        self._client = client
        self._temporal = client.temporal

    async def list(self) -> builtins.list[ClusterSummary]:
        """Those that are watched and those of the settings, by name. From visibility, about a second behind."""
        query = "WorkflowType='ClusterWorkflow' AND ExecutionStatus='Running'"
        phases: dict[str, str] = dict.fromkeys(self._client.settings.clusters, NOT_WATCHED)
        with translated():
            async for execution in self._temporal.list_workflows(query):
                name = execution.id.removeprefix(names.cluster_id(""))
                phases[name] = execution.typed_search_attributes.get(attributes.PHASE, "")
            ordered = sorted(phases)
            return builtins.list(await asyncio.gather(*(self._summary(name, phases[name]) for name in ordered)))

    async def _summary(self, name: str, phase: str) -> ClusterSummary:
        machines, pools = await asyncio.gather(
            self._temporal.count_workflows(live.machines_of(name)), self._temporal.count_workflows(_pools_of(name))
        )
        configured = name in self._client.settings.clusters
        return ClusterSummary(name, phase, machines.count, configured, pools.count)

    async def describe(self, name: str) -> ClusterDescription:
        """Also without a worker, and also of one that nobody watches. Raises NotFound for one that nobody knows."""
        handle = self._handle(name)
        with translated():
            found = await live.described(handle)
            if found is None and name not in self._client.settings.clusters:
                raise await self._unknown(name)
            if found is None or not _runs(found):
                closed = found.close_time if found else None
                lost = found.status.name if found and found.status in FROM_OUTSIDE else ""
                return ClusterDescription(await self._summary(name, NOT_WATCHED), ended=closed, lost=lost)
            phase = found.typed_search_attributes.get(attributes.PHASE, "")
            state, no_answer = None, ""
            try:
                state = await live.query(handle, ClusterState)
            except NoAnswer as e:
                no_answer = f"{await live.absence(self._temporal, found.task_queue, datetime.now(UTC))}; {e}"
            return ClusterDescription(
                await self._summary(name, phase),
                state=state,
                no_answer=no_answer,
                task_attempt=found.raw_description.pending_workflow_task.attempt or 1,
                pending=await live.pending_of(found),
                web=live.web_link(self._client.settings.temporal.ui, self._temporal.namespace, handle.id, found.run_id),
            )

    async def renew(self, name: str, *, reason: str = "") -> Sent:
        """Asks the cluster's workflow to go on with the newest code, and to try again what stands still. One that
        somebody has ended from outside is begun again."""
        with translated():
            found = await live.described(self._handle(name))
            if found is not None and found.status in FROM_OUTSIDE:
                await start_cluster(self._temporal, self._client.settings, name)
                return Sent(message="its workflow, which was ended from outside, is begun again")
        return await self._send(name, "renew", reason)

    async def pause(self, name: str, *, reason: str = "") -> Sent:
        """Stops everything voluntary: its pools make, delete and replace no machines until it is resumed. Raises
        NotFound when nobody watches it."""
        return await self._send(name, "pause", reason)

    async def resume(self, name: str, *, reason: str = "") -> Sent:
        """The end of a pause. Raises NotFound when nobody watches it."""
        return await self._send(name, "resume", reason)

    async def remove(self, name: str, *, reason: str = "") -> Sent:
        """Asks for the end of the watch; nothing of the cluster itself is touched. Raises as `removable`."""
        await self.removable(name)
        return await self._send(name, "remove", reason)

    async def removable(self, name: str) -> None:
        """Raises Refused while the cluster has pools or machines, NotFound when nobody watches it."""
        await self._watched(name, "remove")
        with translated():
            pools = await self._some(_pools_of(name), "pool")
            machines = await self._some(live.machines_of(name), "machine")
        if pools:
            left = f"{pools} and {machines}" if machines else pools
            raise Refused(
                f"cluster {name} still has {left}: delete the pools first (hostler delete pool NAME --cluster {name})"
            )
        if machines:
            raise Refused(
                f"cluster {name} still has {machines}: delete them first (hostler delete machine --all --cluster "
                f"{name})"
            )

    async def _some(self, query: str, kind: str) -> str:
        """How many there are, with some of their names; "" for none."""
        there = [e async for e in self._temporal.list_workflows(query, limit=SOME)]
        if not there:
            return ""
        count = (await self._temporal.count_workflows(query)).count
        some = ", ".join(sorted(e.id.rsplit("/", 1)[-1] for e in there)) + (", …" if count > len(there) else "")
        return f"{count} {kind}{'s' if count > 1 else ''} ({some})"

    async def _send(self, name: str, intent_name: str, reason: str) -> Sent:
        handle = await self._watched(name, intent_name)
        intent = Intent(id=intents.new_id(), requested_by=self._client.requested_by, reason=reason)
        queue = names.workflow_queue(self._client.settings.queue_prefix)
        with translated():
            return await intents.send(handle, intent_name, intent, queue, f"cluster {name}")

    async def _watched(self, name: str, purpose: str) -> Any:
        handle = self._handle(name)
        with translated():
            found = await live.described(handle)
        if found is None and name not in self._client.settings.clusters:
            raise await self._unknown(name)
        if found is not None and found.status in FROM_OUTSIDE:  # a worker would begin it within a minute
            with translated():
                await start_cluster(self._temporal, self._client.settings, name)
            return handle
        if found is None or not _runs(found):
            raise NotFound(f"cluster {name} is not watched: there is nothing to {purpose}")
        return handle

    async def _unknown(self, name: str) -> NotFound:
        known = [c.name for c in await self.list()]
        return NotFound(
            f"cluster {name!r} is not known: `hostler get clusters` lists those that are{did_you_mean(name, known)}"
        )

    def _handle(self, name: str) -> Any:
        if not names.is_name(name):
            raise Refused(f"{name!r} is no name: use lower-case letters, digits, '-' and '.'")
        return self._temporal.get_workflow_handle(names.cluster_id(name))


def _pools_of(cluster: str) -> str:
    return f"WorkflowType='MachineDeploymentWorkflow' AND ExecutionStatus='Running' AND HostlerCluster='{cluster}'"


def _runs(found: WorkflowExecutionDescription) -> bool:
    return found.status == WorkflowExecutionStatus.RUNNING

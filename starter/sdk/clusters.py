"""Clusters as HostlerClient sees them: what watches them, whether their API answers, and their end.

for cluster in await hostler.clusters.list():
    print(cluster.name, cluster.phase, cluster.machines, cluster.pools)
"""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta
from functools import partial

from resources import attributes, names
from resources.cluster.state import ClusterState
from resources.histories import last_words
from resources.intents import Intent
from resources.maintenance import FreezeIntent
from resources.starts import FROM_OUTSIDE
from starter.sdk import live, parallel
from starter.sdk.connection import word
from starter.sdk.entity import EntityClient, runs
from starter.sdk.errors import NotFound, Refused, translated
from starter.sdk.machines.records import machines_of
from starter.sdk.results import ClusterDescription, ClusterSummary, Sent, since
from starter.sdk.spelling import did_you_mean
from starter.sdk.starts import start_cluster

NOT_WATCHED = "NotWatched"
"""The phase of a cluster in the settings that nobody watches: its first machine begins the watch."""
SOME = 5
"""Names that are enough for a message."""


class Clusters(EntityClient[ClusterState]):
    """`HostlerClient.clusters`. A cluster is in no other, so `cluster` is not given."""

    noun, plural, workflow = "cluster", "clusters", "ClusterWorkflow"
    model = ClusterState
    id_of = staticmethod(lambda cluster, name: names.cluster_id(name))

    async def list(self) -> builtins.list[ClusterSummary]:
        """Clusters that are watched and those of the settings, by name. From visibility, about a second behind."""
        phases: dict[str, str] = dict.fromkeys(self.settings.clusters, NOT_WATCHED)
        with translated():
            async for execution in self.temporal.list_workflows(live.running(self.workflow)):
                name = execution.id.removeprefix(names.cluster_id(""))
                phases[name] = execution.typed_search_attributes.get(attributes.PHASE, "")
            return await parallel.each(partial(self._summary, name, phase) for name, phase in sorted(phases.items()))

    async def _summary(self, name: str, phase: str) -> ClusterSummary:
        machines = await self.temporal.count_workflows(machines_of(name))
        pools = await self.temporal.count_workflows(_pools_of(name))
        return ClusterSummary(name, phase, machines.count, name in self.settings.clusters, pools.count)

    async def describe(self, name: str) -> ClusterDescription:
        """Everything that is known of a cluster, even without a worker, and even if nobody watches it. Raises NotFound
        for an unknown one."""
        found = await self._described(name, None)
        if found is None and name not in self.settings.clusters:
            raise await self.unknown(name)
        with translated():
            if found is None or not runs(found):
                closed = found.close_time if found else None
                lost = found.status.name if found and found.status in FROM_OUTSIDE else ""
                return ClusterDescription(await self._summary(name, NOT_WATCHED), ended=closed, lost=lost)
            state, no_answer = await self._answer(found)
            return ClusterDescription(
                await self._summary(name, found.typed_search_attributes.get(attributes.PHASE, "")),
                state=state,
                no_answer=no_answer,
                task_attempt=live.task_attempt(found),
                pending=await live.pending_of(found),
                web=self._web(found.id, found.run_id),
            )

    async def is_watched(self, name: str) -> bool:
        """Whether its workflow runs."""
        found = await self._described(name, None)
        return found is not None and runs(found)

    async def renders_configs(self, name: str) -> bool:
        """Whether the workflow runs that renders its machine configs."""
        with translated():
            found = await live.described(self.temporal.get_workflow_handle(names.machine_configs_id(name)))
        return found is not None and runs(found)

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks the cluster's workflow to go on with the newest code, and to try again what is stuck. One that somebody
        has ended from outside is begun again."""
        found = await self._described(name, None)
        if found is not None and found.status in FROM_OUTSIDE:
            await self._begin(name)
            return Sent(message="its workflow, which somebody had ended, is started again")
        return await self._ask(name, "renew", reason)

    async def pause(self, name: str, *, reason: str = "") -> Sent:
        """Stops everything voluntary: its pools make, delete and replace no machines until it is resumed. Raises
        NotFound when nobody watches it."""
        return await self._ask(name, "pause", reason)

    async def resume(self, name: str, *, reason: str = "") -> Sent:
        """Ends a pause. Raises NotFound when nobody watches it."""
        return await self._ask(name, "resume", reason)

    async def freeze(self, name: str, span: timedelta | None = None, *, reason: str = "") -> Sent:
        """Stops rollouts and hot updates in all its pools until `unfreeze`, or for this long; unlike in a pause,
        machines that fail are replaced. Raises NotFound when nobody watches it."""
        await self._watched(name, "freeze")
        return await self.send(name, "freeze", FreezeIntent(**self.connection.by(reason), span=span))

    async def unfreeze(self, name: str, *, reason: str = "") -> Sent:
        """Ends a freeze. Raises NotFound when nobody watches it."""
        return await self._ask(name, "unfreeze", reason)

    async def remove(self, name: str, *, reason: str = "") -> Sent:
        """Asks for the end of the watch; nothing of the cluster itself is touched. Raises what `removable` raises."""
        await self.removable(name)
        return await self._ask(name, "remove", reason)

    async def removable(self, name: str) -> None:
        """Raises Refused while the cluster has pools or machines, NotFound when nobody watches it."""
        await self._watched(name, "remove")
        with translated():
            pools = await self._some(_pools_of(name), "pool")
            machines = await self._some(machines_of(name), "machine")
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
        there = [e async for e in self.temporal.list_workflows(query, limit=SOME)]
        if not there:
            return ""
        count = (await self.temporal.count_workflows(query)).count
        some = ", ".join(sorted(e.id.rsplit("/", 1)[-1] for e in there)) + (", …" if count > len(there) else "")
        return f"{count} {kind}{'s' if count > 1 else ''} ({some})"

    async def _ask(self, name: str, intent_name: str, reason: str) -> Sent:
        await self._watched(name, intent_name)
        return await self.send(name, intent_name, Intent(**self.connection.by(reason)))

    async def _watched(self, name: str, purpose: str) -> None:
        found = await self._described(name, None)
        if found is None and name not in self.settings.clusters:
            raise await self.unknown(name)
        if found is not None and found.status in FROM_OUTSIDE:  # a worker would begin it within a minute
            await self._begin(name)
        elif found is None or not runs(found):
            raise NotFound(f"cluster {name} is not watched: there is nothing to {purpose}")

    async def _begin(self, name: str) -> None:
        with translated():
            await start_cluster(self.temporal, self.settings, name)

    async def _recorded(self, workflow_id: str, run_id: str) -> ClusterState:
        if (state := await last_words(self.temporal, workflow_id, run_id)) is None:
            raise NotFound(f"{workflow_id}: its history is gone")
        return state

    def _gone(self, name: str, cluster: str | None, closed: datetime | None) -> NotFound:
        return NotFound(f"cluster {name} is not watched{since(closed)}")

    async def stranger(self, name: str) -> NotFound | None:
        """The error for a cluster that nothing knows: neither the settings, nor a workflow, nor a machine or pool. A
        mistyped one would look empty."""
        if name in self.settings.clusters or await self._described(name, None) is not None:
            return None
        with translated():
            there = await self.temporal.count_workflows(f"ExecutionStatus='Running' AND HostlerCluster='{word(name)}'")
        return None if there.count else await self.unknown(name)

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        if name in self.settings.clusters:
            return NotFound(f"cluster {name} is not watched yet: its first machine or pool starts the watch")
        known = [c.name for c in await self.list()]
        there = (
            f"the known clusters are {', '.join(known[:SOME])}{', …' if len(known) > SOME else ''}"
            if known
            else "none is"
        )
        return NotFound(f"cluster {name!r} is not known; {there} (hostler get clusters){did_you_mean(name, known)}")


def _pools_of(cluster: str) -> str:
    return f"{live.running('MachineDeploymentWorkflow')} AND HostlerCluster='{cluster}'"

"""Config pools as HostlerClient sees them: the objects of the cluster's API, and what their workflows say of them.

found = await hostler.config_pools.describe("worker", cluster="prod")
await hostler.config_pools.wait("worker", cluster="prod")
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import WorkflowExecution
from temporalio.common import TypedSearchAttributes

from planners.machine_config import membership
from planners.machine_config.nodes import turn
from resources import attributes, names
from resources.machine_config.keys import MACHINE_CONFIG_POOL, ConfigKind
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.state import MachineConfigPoolState, MachineConfigsState
from starter.sdk import live, parallel
from starter.sdk.entity import EntityClient, EntityKey, runs
from starter.sdk.errors import NoAnswer, NotFound, Refused, translated
from starter.sdk.fleet.waiting import Stand
from starter.sdk.machine_config import rollouts
from starter.sdk.machine_config.results import (
    ConfigPoolDescription,
    ConfigPoolListed,
    ConfigPoolShown,
    ConfigRolloutListed,
    judge,
    where,
)
from starter.sdk.patience import look_until

if TYPE_CHECKING:
    from starter.sdk.machine_config.objects import ConfigObjects


class ConfigPools(EntityClient[MachineConfigPoolState]):
    """`HostlerClient.config_pools`. Where `cluster` is not given, it is the client's own; it must be in the settings,
    for its own API is asked too. `HostlerClient.apply` takes the manifests."""

    noun, plural, workflow = "config pool", "mcp", "MachineConfigPoolWorkflow"
    model = MachineConfigPoolState
    id_of = staticmethod(names.config_pool_id)

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(self, *, selector: str = "", cluster: str | None = None) -> builtins.list[ConfigPoolListed]:
        """Every MachineConfigPool of a cluster, by name; `selector`: only those with these labels."""
        from starter.sdk.machine_config.objects import readable

        where = self.connection.where(cluster)
        async with self._objects(where) as objects:
            found = await objects.every(MACHINE_CONFIG_POOL, selector)
        with translated():
            executions = {self.key(e.id)[1]: e async for e in self.temporal.list_workflows(self._those(where))}
        shown = []
        for whole in found:
            pool = readable(MachineConfigPool, whole)
            execution = executions.get(pool.name)
            said = execution.typed_search_attributes if execution is not None else TypedSearchAttributes.empty
            phase, reason = said.get(attributes.PHASE, ""), said.get(attributes.REASON, "")
            shown.append(ConfigPoolListed(where, pool, whole, phase, reason))
        return sorted(shown, key=lambda p: p.name)

    async def known(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[EntityKey]:
        """Cluster and name of those that have a workflow; from visibility."""
        with translated():
            found = self.temporal.list_workflows(self._those(cluster, all_clusters))
            return sorted([self.key(e.id) async for e in found])

    async def states(self, *, cluster: str | None = None, all_clusters: bool = False) -> builtins.list[ConfigPoolShown]:
        """Those that have a workflow, as that says; by cluster and name. The cluster's API is not asked."""
        with translated():
            found = [e async for e in self.temporal.list_workflows(self._those(cluster, all_clusters))]

        async def one(e: WorkflowExecution) -> ConfigPoolShown:
            said = e.typed_search_attributes
            try:
                state = await live.query(self.temporal.get_workflow_handle(e.id), MachineConfigPoolState)
            except NoAnswer:
                state = None
            (where, name), phase = self.key(e.id), said.get(attributes.PHASE, "")
            return ConfigPoolShown(name, phase, said.get(attributes.REASON, ""), state, where)

        with translated():
            return sorted(await parallel.each(partial(one, e) for e in found), key=lambda p: (p.cluster, p.name))

    async def describe(self, name: str, *, cluster: str | None = None) -> ConfigPoolDescription:
        """All about one: the object, its nodes, and what its workflow says. Raises NotFound."""
        where = self.connection.where(cluster)
        described = await self._described(name, where)
        state, no_answer = (await self._answer(described)) if described and runs(described) else (None, "")
        async with self._objects(where) as objects:
            found = await self._look(objects, name, dict(state.machines) if state else {})
        attended, renders = await self._rendering(where, found.pool)
        running = described is not None and runs(described)
        return ConfigPoolDescription(
            where,
            found.pool,
            found.nodes,
            found.contested,
            state,
            no_answer,
            running,
            attended,
            renders,
            await live.pending_of(described) if described is not None and running else (),
            self._web(described.id, described.run_id) if described is not None else None,
        )

    async def remembered(self, name: str, why: str, *, cluster: str | None = None) -> ConfigPoolDescription | None:
        """What its workflow knows of one whose cluster's API cannot be asked, which `why` says. None: no workflow
        answers."""
        where = self.connection.where(cluster)
        described = await self._described(name, where)
        if described is None or not runs(described):
            return None
        state, _ = await self._answer(described)
        if state is None:
            return None
        web, pending = self._web(described.id, described.run_id), await live.pending_of(described)
        return ConfigPoolShown(name, "", "", state, where).description(why, pending=pending, web=web)

    async def _look(self, objects: ConfigObjects, name: str, machines: dict[str, str]) -> ConfigPoolDescription:
        pools = await objects.pools()
        own = next((pool for pool in pools if pool.name == name), None)
        if own is None:
            await objects.get(MACHINE_CONFIG_POOL, name)  # raises NotFound, with the name that may be meant
            raise NotFound(f"cluster {objects.cluster} has no MachineConfigPool {name} any longer")
        mine, contested = [], []
        for node in await objects.nodes(set(membership.label_keys(pools))):
            home, contenders = membership.pool_of(node, pools, machines)
            if home == name:
                mine.append(node)
            elif name in contenders:
                contested.append(f"{node.name} ({', '.join(contenders)})")
        return ConfigPoolDescription(objects.cluster, own, tuple(sorted(mine, key=turn)), tuple(contested))

    async def _rendering(self, cluster: str, pool: MachineConfigPool) -> tuple[bool, str]:
        """Whether the workflow that renders runs; and what of the pool is not rendered yet, as far as it says so."""
        handle = self.temporal.get_workflow_handle(names.machine_configs_id(cluster))
        with translated():
            found = await live.described(handle)
            if found is None or not runs(found):
                return False, ""
            try:
                state = await live.query(handle, MachineConfigsState)
            except NoAnswer:
                return True, ""
        pending = state.changed_at is not None and not pool.spec.paused
        return True, "changes are being rendered" if pending else ""

    # -- rollouts -----------------------------------------------------------------------------------------------------

    async def rollouts(self, name: str, *, cluster: str | None = None) -> builtins.list[ConfigRolloutListed]:
        """The rollouts of rendered configs over a pool, the newest first, while Temporal keeps them."""
        with translated():
            return await rollouts.every(self.temporal, self.connection.where(cluster), name)

    async def wait(
        self,
        name: str,
        *,
        timeout: timedelta | None = None,
        progress: Callable[[ConfigPoolDescription], Awaitable[None]] | None = None,
        cluster: str | None = None,
    ) -> ConfigPoolDescription:
        """Waits until every node has the pool's config. `progress` gets each look before. Raises Refused where it stops
        until a person acts, WaitTimeout where it is not done in time."""
        stood = False

        async def look() -> ConfigPoolDescription:
            return await self.describe(name, cluster=cluster)

        async def reached(found: ConfigPoolDescription, _: ConfigPoolDescription) -> bool:
            nonlocal stood
            verdict = judge(found)
            if verdict.stand is Stand.STANDS and stood:
                # Only at the second look: a person may have acted a moment ago, and nobody has taken that up yet.
                raise Refused(verdict.words)
            stood = verdict.stand is Stand.STANDS
            return verdict.stand is Stand.DONE

        return await look_until(look, reached, where, timeout=timeout, progress=progress)

    # -- what people ask ----------------------------------------------------------------------------------------------

    async def pause(self, name: str, *, cluster: str | None = None) -> str:
        """Sets spec.paused: nothing is rendered for it, and no further node is given a config."""
        return await self._pause(name, True, cluster)

    async def resume(self, name: str, *, cluster: str | None = None) -> str:
        return await self._pause(name, False, cluster)

    async def _pause(self, name: str, paused: bool, cluster: str | None) -> str:
        async with self._objects(self.connection.where(cluster)) as objects:
            changed = await objects.pause(name, paused)
        if not changed:
            return "is paused already" if paused else "is not paused"
        if not paused:
            return "resumed: what has changed meanwhile is rendered, and goes to its nodes"
        return "paused: nothing is rendered for it; nodes that have begun go on, and no other one begins"

    async def foretell(self, of: ConfigKind, name: str, *, cluster: str | None = None) -> builtins.list[str]:
        """What the deletion of a pool, or of a config that pools select, means for their nodes, in lines; nothing is
        deleted. Raises NotFound, and Refused where nobody should delete it."""
        from starter.sdk.machine_config.deletion import foretell

        where = self.connection.where(cluster)
        async with self._objects(where) as objects:
            return await foretell(objects, self.settings, of, name, await self._machines(where))

    async def delete(self, of: ConfigKind, name: str, *, cluster: str | None = None) -> builtins.list[str]:
        """Deletes it, and says what that means. Raises what `foretell` raises."""
        where = self.connection.where(cluster)
        lines = await self.foretell(of, name, cluster=where)
        async with self._objects(where) as objects:
            await objects.delete(of, name)
        return lines

    async def _machines(self, cluster: str) -> dict[str, str]:
        """Which pools select a machine, as far as one of their workflows says so."""
        states = (shown.state for shown in await self.states(cluster=cluster))
        return next((dict(state.machines) for state in states if state is not None), {})

    # -- inside -------------------------------------------------------------------------------------------------------

    def _objects(self, cluster: str) -> AbstractAsyncContextManager[ConfigObjects]:
        """The cluster's own API, which only some calls need: its client takes a second to import."""
        from starter.sdk.machine_config.objects import config_objects

        return config_objects(self.settings, cluster)

    async def _recorded(self, workflow_id: str, run_id: str) -> MachineConfigPoolState:
        return await live.folded(self.temporal, workflow_id, run_id, MachineConfigPoolState, _as_it_began)


async def _as_it_began(state: MachineConfigPoolState, *_: object) -> MachineConfigPoolState:
    """Nobody asks a pool for anything: its object says what is wanted."""
    return state

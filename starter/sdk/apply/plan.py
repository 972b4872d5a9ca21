"""What `apply` would do: everything is read and judged before anything is sent, so that nothing is half done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from resources.control_plane.expansion import Expanded, expand
from resources.control_plane.manifest import ControlPlaneMachineSet
from resources.manifests import ClusterManifest, Loaded
from resources.pool.manifest import MachineDeployment
from resources.worker_pool.manifest import WorkerPool
from starter.sdk.apply.classes import CLASS_KIND, ClassPlan, ClassPlanner
from starter.sdk.apply.configs import ConfigPlanner
from starter.sdk.apply.control_planes import CONTROL_PLANE_KIND, ControlPlanePlanner
from starter.sdk.apply.machines import MachinePlanner
from starter.sdk.apply.pools import POOL_KIND, PoolPlanner
from starter.sdk.apply.secrets import SecretPlanner
from starter.sdk.apply.steps import ApplyPlan, ApplyStep, gather
from starter.sdk.apply.time_zones import unknown_zones
from starter.sdk.apply.worker_pools import (
    WORKER_POOL_KIND,
    WorkerPoolPlan,
    WorkerPoolPlanner,
    expanded,
    leaving,
    resolved,
)
from starter.sdk.classes import Classes
from starter.sdk.clusters import Clusters
from starter.sdk.control_plane.shelf import ControlPlanes
from starter.sdk.entity import EntityKey
from starter.sdk.errors import Refused
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Applied, Verb
from starter.sdk.starts import start_cluster
from starter.sdk.worker_pools import WorkerPools, ZoneFound


class Planner:
    """Makes one plan. `cluster` overrides what the manifests say."""

    def __init__(
        self,
        machines: Machines,
        workers: WorkerPools,
        control_planes: ControlPlanes,
        classes: Classes,
        clusters: Clusters,
        cluster: str | None,
        force: bool = False,
    ) -> None:
        """`force`: fields of custom resources that others have are taken over."""
        self._connection = machines.connection
        self._settings = machines.settings
        self._clusters = clusters
        self._cluster = cluster
        self._secrets = SecretPlanner(machines.settings)
        self._classes = ClassPlanner(classes, machines, workers.pools)
        self._machines = MachinePlanner(machines, self._classes)
        self._pools = PoolPlanner(workers.pools)
        self._workers = WorkerPoolPlanner(workers)
        self._control_planes = ControlPlanePlanner(control_planes)
        self._configs = ConfigPlanner(clusters, force)

    async def plan(self, loaded: Loaded) -> ApplyPlan:
        """Makes the plan. Raises Refused with everything that is wrong, one line each."""
        if unknown := unknown_zones(loaded):
            raise Refused("\n".join(unknown))
        workers = await self._worker_pools(resolved(loaded))
        loaded = expanded(loaded, workers)
        machines = {(self._cluster_of(m), m.metadata.name): m for m in loaded.machines}
        pools = {(self._cluster_of(p), p.metadata.name): p for p in loaded.pools}
        sets = {(self._cluster_of(s), s.metadata.name): (s, expand(s)) for s in loaded.control_planes}
        made = [e.machine_class for _, e in sets.values() if e.machine_class is not None]
        loaded = replace(loaded, classes=[*loaded.classes, *made])
        manifests = {(self._cluster_of(c), c.metadata.name): c for c in loaded.classes}
        self._no_twins(loaded)
        clusters = {cluster for cluster, _ in (*machines, *pools, *sets, *manifests)}
        self._known({*clusters, *self._config_clusters(loaded)})
        plan = ApplyPlan(secrets=await self._secrets.steps(loaded.secrets))
        named = {(cluster, m.spec.class_.name) for (cluster, _), m in machines.items()}
        named |= {(cluster, p.spec.template.spec.class_.name) for (cluster, _), p in pools.items()}
        named |= {(cluster, e.spec.template.spec.class_.name) for (cluster, _), (_, e) in sets.items()}
        await gather(partial(self._classes.add, *key, manifests.get(key)) for key in sorted(named | set(manifests)))
        plan.classes = [await self._class_step(self._classes.plans[key], pools, sets) for key in manifests]
        plan.pools = await gather(partial(self._pool_step, key, pool) for key, pool in pools.items())
        plan.control_planes = await gather(partial(self._control_plane_step, key, *of) for key, of in sets.items())
        plan.machines = await gather(partial(self._machines.step, key, machine) for key, machine in machines.items())
        plan.clusters = await gather(partial(self._cluster_step, c) for c in sorted(clusters))
        plan.clusters = [s for s in plan.clusters if s.verb is not Verb.UNCHANGED]
        plan.configs, alone = await self._config_steps(loaded)
        plan.worker_pools = [
            ApplyStep(WORKER_POOL_KIND, of.name, of.verb, worker_pool=of, note=f"{len(of.expansion.zones)} zones")
            for of in workers
        ]
        plan.removals = [step for of in workers for step in self._removals(of)]
        shares = [f"workerpool {of.name}: {line}" for of in workers for line in of.expansion.warnings]
        plan.warnings = [*shares, *alone, *await self._secrets.missing(loaded)]
        return plan

    def _cluster_of(self, manifest: ClusterManifest) -> str:
        return self._connection.cluster_of(manifest, self._cluster)

    def _known(self, clusters: set[str]) -> None:
        """Checks the cluster. A machine of a mistyped one would wait for ever: no worker polls its queues."""
        if self._settings.clusters:
            for name in sorted(clusters):
                self._settings.cluster(name)

    def _no_twins(self, loaded: Loaded) -> None:
        keys = [f"machine {m.metadata.name} of cluster {self._cluster_of(m)}" for m in loaded.machines]
        keys += [f"pool {p.metadata.name} of cluster {self._cluster_of(p)}" for p in loaded.pools]
        keys += [f"the control plane of cluster {self._cluster_of(s)}" for s in loaded.control_planes]
        keys += [f"machineclass {c.metadata.name} of cluster {self._cluster_of(c)}" for c in loaded.classes]
        keys += [f"{c.KIND.singular} {c.name} of cluster {self._cluster_of(c)}" for c in loaded.configs]
        keys += [f"secret {s.metadata.namespace}/{s.metadata.name}" for s in loaded.secrets]
        twins = [key for key, count in Counter(keys).items() if count > 1]
        if twins:
            raise Refused(f"{', '.join(twins)}: given more than once; keep only one of them")

    # -- the cluster --------------------------------------------------------------------------------------------------

    async def _cluster_step(self, name: str) -> ApplyStep:
        running = await self._clusters.is_watched(name)

        async def run() -> Applied:
            await start_cluster(self._connection.temporal, self._settings, name)
            return Applied("cluster", name, Verb.CREATED)

        return ApplyStep("cluster", name, Verb.UNCHANGED if running else Verb.CREATED, run=None if running else run)

    # -- machine configs ----------------------------------------------------------------------------------------------

    async def _config_steps(self, loaded: Loaded) -> tuple[list[ApplyStep], list[str]]:
        """The steps of custom resources of machine configs, and warnings."""
        of = {
            cluster: [m for m in loaded.configs if self._cluster_of(m) == cluster]
            for cluster in self._config_clusters(loaded)
        }
        plans = [p for cluster, manifests in of.items() for p in await self._configs.plan(cluster, manifests)]
        alone = [words for cluster in of if (words := self._configs.unattended(cluster))]
        return [ApplyStep(p.kind, p.name, p.verb, run=p.run, lines=p.lines) for p in plans], alone

    def _config_clusters(self, loaded: Loaded) -> list[str]:
        return sorted({self._cluster_of(m) for m in loaded.configs})

    # -- classes ------------------------------------------------------------------------------------------------------

    async def _class_step(
        self, plan: ClassPlan, pools: Mapping[EntityKey, MachineDeployment], sets: Collection[EntityKey]
    ) -> ApplyStep:
        run = None if plan.verb is Verb.UNCHANGED else partial(self._classes.carry_out, plan)
        touched = (*await self._pools.touched(plan, pools), *await self._control_planes.touched(plan, sets))
        return ApplyStep("machineclass", plan.name, plan.verb, run=run, machine_class=plan, owners=touched)

    # -- pools --------------------------------------------------------------------------------------------------------

    async def _pool_step(self, key: EntityKey, manifest: MachineDeployment) -> ApplyStep:
        """The step of a pool. Raises Refused in the pool's name."""
        cluster, name = key
        of = self._classes.plans.get((cluster, manifest.spec.template.spec.class_.name))
        try:
            plan = await self._pools.plan(key, manifest, of)
        except Refused as e:
            raise Refused(f"pool {name}: {e}") from None
        run = partial(self._pools.carry_out, plan) if plan.told else None
        return ApplyStep(POOL_KIND, name, plan.verb, plan.note, run, plan.of, pool=plan)

    # -- control planes -----------------------------------------------------------------------------------------------

    async def _control_plane_step(
        self, key: EntityKey, manifest: ControlPlaneMachineSet, comes_to: Expanded
    ) -> ApplyStep:
        """The step of a control plane. Raises Refused in its name."""
        of = self._classes.plans.get((key[0], comes_to.spec.template.spec.class_.name))
        try:
            plan = await self._control_planes.plan(key, manifest, comes_to, of)
        except Refused as e:
            raise Refused(f"controlplane {key[1]}: {e}") from None
        run = partial(self._control_planes.carry_out, plan) if plan.told else None
        return ApplyStep(CONTROL_PLANE_KIND, plan.name, plan.verb, plan.note, run, plan.of, control_plane=plan)

    # -- worker pools -------------------------------------------------------------------------------------------------

    async def _worker_pools(self, manifests: Sequence[WorkerPool]) -> list[WorkerPoolPlan]:
        keys = [(self._cluster_of(m), m.metadata.name) for m in manifests]
        self._known({cluster for cluster, _ in keys})
        if twins := [f"workerpool {name} of cluster {c}" for (c, name), n in Counter(keys).items() if n > 1]:
            raise Refused(f"{', '.join(twins)}: given more than once; keep only one of them")
        return await gather(partial(self._workers.plan, k, m) for k, m in zip(keys, manifests, strict=True))

    def _removals(self, of: WorkerPoolPlan) -> list[ApplyStep]:
        """The pools of zones that were taken out, and the classes that nobody uses any longer."""

        async def pool(zone: ZoneFound) -> Applied:
            why = f"zone {zone.zone} was taken out of worker pool {of.name}"
            sent = await self._pools.pools.delete(zone.name, reason=why, cluster=of.cluster)
            return Applied(POOL_KIND, zone.name, Verb.DELETED, sent.message)

        async def unused(name: str) -> Applied:
            await self._classes.classes.delete(name, reason="nobody uses it any longer", cluster=of.cluster)
            return Applied(CLASS_KIND, name, Verb.DELETED, "nobody uses it any longer")

        return [
            *(
                ApplyStep(POOL_KIND, zone.name, Verb.DELETED, leaving(of, zone), partial(pool, zone), removed=zone)
                for zone in of.removed
            ),
            *(
                ApplyStep(CLASS_KIND, name, Verb.DELETED, "nobody uses it any longer", partial(unused, name))
                for name in of.unused
            ),
        ]

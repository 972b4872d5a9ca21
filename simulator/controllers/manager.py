"""All controllers of one process, over shared informers: what kube-controller-manager and kube-scheduler are."""

from __future__ import annotations

import asyncio

from simulator.client import ConnectionPool, KubeClient, from_kubeconfig
from simulator.controllers.config_daemons import ConfigDaemons, DaemonSettings, serve_kinds
from simulator.controllers.daemonset import DaemonSets
from simulator.controllers.disruption import Disruption
from simulator.controllers.eviction import TaintEviction
from simulator.controllers.garbage import OwnerCollector, PodCollector, TokenCleaner
from simulator.controllers.informer import Informer
from simulator.controllers.node_lifecycle import NodeLifecycle
from simulator.controllers.scheduler import Scheduler
from simulator.controllers.storage import AttachDetach, Protection
from simulator.controllers.workloads import Deployments, ReplicaSets

_RESOURCES = (
    "nodes",
    "pods",
    "leases",
    "poddisruptionbudgets",
    "replicasets",
    "deployments",
    "daemonsets",
    "secrets",
    "persistentvolumes",
    "persistentvolumeclaims",
    "volumeattachments",
)


class Controllers:
    """The controllers of the cluster that a kubeconfig with an administrator's rights leads to.

    `grace` is the node monitor grace period in seconds; a deleted node's pods are kept as long. `resync` bounds the
    seconds between two passes of each controller when nothing happens.
    """

    def __init__(
        self, kubeconfig: str, *, grace: float, resync: float = 10.0, config_daemons: DaemonSettings | None = None
    ) -> None:
        """`config_daemons`: how machine-config daemons behave; None: there are none."""
        self._kubeconfig = kubeconfig
        self._config_daemons = config_daemons
        self._grace = grace
        self._resync = resync
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all of them; returns at once. They go on, with retries, while the API server cannot be reached."""
        self._pool = ConnectionPool()
        client = from_kubeconfig(self._pool, self._kubeconfig, user_agent="controllers")
        of = {resource: Informer(client, resource) for resource in _RESOURCES}
        nodes, pods, leases, sets, resync = of["nodes"], of["pods"], of["leases"], of["replicasets"], self._resync
        volumes, claims = of["persistentvolumes"], of["persistentvolumeclaims"]
        owners = {"Node": nodes, "ReplicaSet": sets, "Deployment": of["deployments"], "DaemonSet": of["daemonsets"]}
        controllers = [
            NodeLifecycle(client, nodes, leases, pods, grace=self._grace, resync=resync),
            TaintEviction(client, pods, nodes, resync=resync),
            Disruption(client, of["poddisruptionbudgets"], pods, sets, of["deployments"], resync=resync),
            Deployments(client, of["deployments"], sets, resync=resync),
            ReplicaSets(client, sets, pods, resync=resync),
            DaemonSets(client, of["daemonsets"], nodes, pods, resync=resync),
            Scheduler(client, pods, nodes, resync=resync),
            OwnerCollector(client, (pods, sets, leases), owners, resync=resync),
            PodCollector(client, pods, nodes, quarantine=self._grace, resync=resync),
            TokenCleaner(client, of["secrets"], resync=resync),
            AttachDetach(client, pods, nodes, claims, volumes, of["volumeattachments"], resync=resync),
            Protection(client, pods, claims, volumes, resync=resync),
        ]
        self._tasks = [asyncio.create_task(i.run(), name=f"informer {i.resource}") for i in of.values()]
        self._tasks += [asyncio.create_task(c.run(), name=type(c).__name__) for c in controllers]
        if self._config_daemons is not None:
            daemons = self._run_config_daemons(client, nodes, self._config_daemons)
            self._tasks.append(asyncio.create_task(daemons, name="ConfigDaemons"))

    async def _run_config_daemons(self, client: KubeClient, nodes: Informer, settings: DaemonSettings) -> None:
        """Runs the daemons once the kinds are served: a list of what is not there would be asked for again and
        again."""
        await serve_kinds(client)
        pools = Informer(client, "machineconfigpools")
        async with asyncio.TaskGroup() as group:
            group.create_task(pools.run())
            daemons = ConfigDaemons(client, nodes, pools, settings=settings, resync=self._resync)
            group.create_task(daemons.run())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            self._tasks.clear()
            await self._pool.close()

"""HostlerClient: what the `hostler` command can do with machines and pools, for programs.

    async with HostlerClient.connect(load_settings(), cluster="demo") as hostler:
        for applied in await hostler.apply(machine_class, machine):
            print(applied)
        await hostler.wait("m1", "Running")

Errors are those of starter.sdk.errors; each has the words that the command line prints.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio.client import Client

from resources.machine.manifest import Machine
from resources.machine.state import ApplyIntent
from resources.manifests import AnyManifest, Loaded, MachineClass
from resources.orphans import SweepReport
from resources.pool.manifest import MachineDeployment
from resources.settings import Settings, load_settings
from starter.sdk import adoption, intents, orphans
from starter.sdk.apply.plan import ApplyPlan, Planner
from starter.sdk.classes import Classes
from starter.sdk.clusters import Clusters
from starter.sdk.connection import Connection, connected
from starter.sdk.errors import translated
from starter.sdk.machines.hooks import Hooks
from starter.sdk.machines.records import life_of
from starter.sdk.machines.shelf import Machines
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Adopted, Applied, Sent


class HostlerClient(Machines):
    """Machines, and all else, over a connection to Temporal with `pydantic_data_converter`; `connect` makes one.

    `cluster` is the default of every method; `requested_by` is written in the machines' journals.
    """

    def __init__(
        self, temporal: Client, settings: Settings, *, cluster: str | None = None, requested_by: str | None = None
    ) -> None:
        where, who = cluster or settings.default_cluster, requested_by or intents.whoami()
        super().__init__(Connection(temporal, settings, where, who))
        self.cluster = where
        self.requested_by = who
        self.clusters = Clusters(self.connection)
        self.classes = Classes(self.connection)
        self.pools = Pools(self.connection, self.classes)
        self.hooks = Hooks(self)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, settings: Settings | None = None, *, cluster: str | None = None, requested_by: str | None = None
    ) -> AsyncIterator[HostlerClient]:
        """A client on a connection of its own. Raises Unreachable when Temporal does not answer."""
        settings = settings or load_settings()
        try:
            temporal = await connected(settings)
            yield cls(temporal, settings, cluster=cluster, requested_by=requested_by)
        finally:
            # The SDK's core may crash when the process ends right after its last call, a failed connect included
            # (sdk-python#300).
            await asyncio.sleep(0.1)

    # -- apply --------------------------------------------------------------------------------------------------------

    async def apply(self, *manifests: AnyManifest) -> builtins.list[Applied]:
        """Creates or changes what the manifests describe; all are judged before anything is sent.

        Raises Refused with everything that is wrong, or with what failed after the others were done.
        """
        plan = await self.plan(*manifests)
        return [applied async for applied in plan.execute()]

    async def plan(self, *manifests: AnyManifest, cluster: str | None = None) -> ApplyPlan:
        """What `apply` would do. `cluster` overrides the manifests' own."""
        loaded = Loaded()
        for m in manifests:
            if isinstance(m, Machine):
                loaded.machines.append(m)
            elif isinstance(m, MachineClass):
                loaded.classes.append(m)
            elif isinstance(m, MachineDeployment):
                loaded.pools.append(m)
            else:
                loaded.secrets.append(m)
        with translated():
            return await Planner(self, self.pools, self.classes, self.clusters, cluster).plan(loaded)

    def cluster_of(self, manifest: Machine | MachineClass | MachineDeployment, cluster: str | None = None) -> str:
        """The cluster: `cluster`, else the manifest's annotation, else the settings' map of its namespace, else the
        default."""
        return self.connection.cluster_of(manifest, cluster)

    async def update_class(
        self, name: str, machine_class: str, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """Gives a machine another class, or the newest generation of its own; otherwise its spec stays as it is.

        Raises NotFound for a machine or class that does not exist, Refused with the machine's own words.
        """
        state = await self.state(await life_of(await self._running(name, cluster)))
        found = await self.classes.current(machine_class, cluster=cluster)
        if found is None:
            raise await self.classes.unknown(machine_class, cluster)
        of = state.spec.class_.model_copy(update={"name": machine_class})
        intent = ApplyIntent(
            **self.connection.by(reason),
            spec=state.spec.model_copy(update={"class_": of}),
            machine_class=found.machine_class,
            labels=state.labels,
            annotations=state.annotations,
        )
        return await self.send(name, "apply", intent, cluster=cluster)

    # -- machines without a workflow ----------------------------------------------------------------------------------

    async def orphans(self, *classes: MachineClass, cluster: str | None = None) -> SweepReport:
        """VMs that carry the cluster's owner tags and that no running workflow owns; what could not be read, in
        `unread`. It looks into the accounts of the classes, and those that the cluster's workflow knows.

        Raises NotFound, Refused when there is no account to look into, NoAnswer without a worker.
        """
        where = cluster or self.cluster
        return await orphans.sweep(self.connection, where, await orphans.accounts(self.clusters, where, classes))

    async def adopt(
        self, name: str, *manifests: AnyManifest, uid: str | None = None, cluster: str | None = None
    ) -> Adopted:
        """Gives a machine whose workflow was ended from outside a new one, with the VM that carries its tags. For a
        pool's machine without a VM, the pool is told, and makes another.

        Spec and class come from the manifests, else from what is recorded of the former workflow. `uid` chooses among
        VMs of several lives. Raises Refused with the reason, NoAnswer without a worker.
        """
        return await adoption.adopt(self, self.pools, name, manifests, uid, self.connection.where(cluster))

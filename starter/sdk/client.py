"""HostlerClient: what the `hostler` command can do with machines and pools, for programs.

    async with HostlerClient.connect(load_settings(), cluster="demo") as hostler:
        for applied in await hostler.apply(machine_class, machine):
            print(applied)
        await hostler.wait("m1", "Running")

Errors are those of starter.sdk.errors; each has the words that the command line prints.

The shelves, and what only some calls need, are imported when they are used: a command that lists machines takes twice
the time with them (tests/component/test_startup.py).
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from temporalio.client import Client

from resources.settings import Settings, load_settings
from resources.validation import Validate
from starter.sdk import intents
from starter.sdk.connection import Connection, connected
from starter.sdk.errors import Refused, translated
from starter.sdk.machines.records import life_of
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Adopted, Applied, Sent

if TYPE_CHECKING:
    from resources.manifests import AnyManifest, ClusterManifest, MachineClass
    from resources.orphans import SweepReport
    from starter.sdk.apply.steps import ApplyPlan
    from starter.sdk.classes import Classes
    from starter.sdk.clusters import Clusters
    from starter.sdk.control_plane.shelf import ControlPlanes
    from starter.sdk.machine_config.pools import ConfigPools
    from starter.sdk.machine_config.renderer import MachineConfigs
    from starter.sdk.machines.hooks import Hooks
    from starter.sdk.pools.shelf import Pools
    from starter.sdk.worker_pools import WorkerPools


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

    # -- shelves ------------------------------------------------------------------------------------------------------

    @cached_property
    def clusters(self) -> Clusters:
        from starter.sdk.clusters import Clusters

        return Clusters(self.connection)

    @cached_property
    def classes(self) -> Classes:
        from starter.sdk.classes import Classes

        return Classes(self.connection)

    @cached_property
    def pools(self) -> Pools:
        from starter.sdk.pools.shelf import Pools

        return Pools(self.connection, self.classes)

    @cached_property
    def worker_pools(self) -> WorkerPools:
        from starter.sdk.worker_pools import WorkerPools

        return WorkerPools(self.pools, self.classes)

    @cached_property
    def control_planes(self) -> ControlPlanes:
        from starter.sdk.control_plane.shelf import ControlPlanes

        return ControlPlanes(self.connection, self.classes)

    @cached_property
    def config_pools(self) -> ConfigPools:
        from starter.sdk.machine_config.pools import ConfigPools

        return ConfigPools(self.connection)

    @cached_property
    def machine_configs(self) -> MachineConfigs:
        from starter.sdk.machine_config.renderer import MachineConfigs

        return MachineConfigs(self.connection)

    @cached_property
    def hooks(self) -> Hooks:
        from starter.sdk.machines.hooks import Hooks

        return Hooks(self)

    # -- apply --------------------------------------------------------------------------------------------------------

    async def apply(
        self, *manifests: AnyManifest, validate: Validate = Validate.STRICT, force_conflicts: bool = False
    ) -> builtins.list[Applied]:
        """Creates or changes what the manifests describe; all are judged before anything is sent, the names of their
        fields by `validate`. `force_conflicts`: fields of machine configs that others have written are taken over.

        Raises Refused with everything that is wrong, or with what failed after the others were done.
        """
        plan = await self.plan(*manifests, validate=validate, force_conflicts=force_conflicts)
        return [applied async for applied in plan.execute()]

    async def plan(
        self,
        *manifests: AnyManifest,
        cluster: str | None = None,
        validate: Validate = Validate.STRICT,
        force_conflicts: bool = False,
    ) -> ApplyPlan:
        """What `apply` would do. `cluster` overrides the manifests' own. Raises Refused like `apply`."""
        from resources.manifests import Loaded, complaints
        from starter.sdk.apply.plan import Planner

        if wrong := [line for m in manifests for line in complaints(m, validate)]:
            raise Refused("\n".join(wrong))
        loaded = Loaded()
        for m in manifests:
            loaded.add(m)
        with translated():
            shelves = (self.worker_pools, self.control_planes, self.classes, self.clusters)
            return await Planner(self, *shelves, cluster, force_conflicts).plan(loaded)

    def cluster_of(self, manifest: ClusterManifest, cluster: str | None = None) -> str:
        """The cluster: `cluster`, else the manifest's annotation, else the settings' map of its namespace, else the
        default."""
        return self.connection.cluster_of(manifest, cluster)

    async def update_class(
        self, name: str, machine_class: str, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """Gives a machine another class, or the newest generation of its own; otherwise its spec stays as it is.

        Raises NotFound for a machine or class that does not exist, Refused with the machine's own words.
        """
        from resources.machine.state import ApplyIntent

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
        from starter.sdk import orphans

        where = cluster or self.cluster
        return await orphans.sweep(self.connection, where, await orphans.accounts(self.clusters, where, classes))

    async def adopt(
        self, name: str, *manifests: AnyManifest, uid: str | None = None, cluster: str | None = None
    ) -> Adopted:
        """Gives a machine whose workflow was ended from outside a new one, with the VM that carries its tags. For a
        pool's machine without a VM, the pool is told, and makes another; so is any other owner.

        Spec and class come from the manifests, else from what is recorded of the former workflow. `uid` chooses among
        VMs of several lives. Raises Refused with the reason, NoAnswer without a worker.
        """
        from starter.sdk import adoption

        return await adoption.adopt(self, name, manifests, uid, self.connection.where(cluster))

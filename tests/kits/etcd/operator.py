"""A stand-in for OpenShift's etcd operator, as far as machines notice it: the preDrain hook `EtcdQuorumOperator` on
every machine of the control plane, and one member for each.

Source: openshift/cluster-etcd-operator, machinedeletionhooks and clustermemberremovalcontroller.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

from faults.control_plane_flows import LiveControlPlane
from lifekit import asked
from pools.lives import machine_handle

from resources.machine.hooks import HookIntent

HOOK, OWNER = "EtcdQuorumOperator", "clusteroperator/etcd"


class EtcdOperator:
    """A machine that runs gets the hook, and then a member that votes. A member of a machine that leaves is removed,
    one at a time and only when there are more than there should be; then its hook goes."""

    def __init__(self, cp: LiveControlPlane, desired: int) -> None:
        self.cp, self.desired = cp, desired
        self.members: list[str] = []
        self.removed: list[str] = []
        self.fewest = desired
        """How few members voted at any time, once there were as many as there should be."""

    async def watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        names = list((await self.cp.state()).members)
        machines: dict[str, Any] = {n: await asked(machine_handle(self.cp.stack, n), "describe") for n in names}
        leaving = [n for n, m in machines.items() if m["deletion"] is not None]
        for name, machine in machines.items():
            if name not in (*self.members, *leaving) and machine["status"]["phase"] == "Running":
                await self._hook(name)
                self.members.append(name)
        for name in self.members:
            assert name in machines, f"{name} is gone, and its member votes"
            assert not machines[name]["drained"], f"{name} is drained, and its member votes"
        due = next((n for n in self.members if n in leaving), None)
        if due is not None and len(self.members) > self.desired:
            self.members.remove(due)
            self.removed.append(due)
            await self._hook(due, remove=True)
        if len(self.members) >= self.desired or self.removed:
            self.fewest = min(self.fewest, len(self.members))

    async def _hook(self, name: str, **more: Any) -> None:
        intent = HookIntent(id=uuid.uuid4().hex, name=HOOK, owner=OWNER, **more)
        await machine_handle(self.cp.stack, name).execute_update("hook", intent, id=intent.id)


@contextlib.asynccontextmanager
async def etcd_operator(cp: LiveControlPlane, desired: int) -> AsyncIterator[EtcdOperator]:
    """What it finds wrong is raised at the end."""
    operator = EtcdOperator(cp, desired)
    watching = asyncio.create_task(operator.watch())
    try:
        yield operator
    finally:
        if watching.done():
            watching.result()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

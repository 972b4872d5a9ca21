"""VMs without a workflow: what carries our owner tags, and which of it no running workflow owns. Nothing is changed."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.accounts import Cloud
from activities.clock import Clock
from activities.deps import Deps
from activities.records import uid_of
from drivers.base import ListMachinesRequest, is_of
from resources.attributes import PROVIDER_ID
from resources.clouds import provider_key
from resources.machine import MachineResult
from resources.messages import (
    ListVmsInput,
    ListVmsOutput,
    Orphan,
    OwnedVm,
    OwnersInput,
    OwnersOutput,
)
from resources.names import machine_id

PARALLEL = 10
"""Machines that are asked for at the same time."""
LATE = timedelta(minutes=5)
"""After its machine's end a VM may still be in a listing; no listing is so old, and no read lags so long."""


class OrphanActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def list_vms(self, input: ListVmsInput) -> ListVmsOutput:
        """The VMs of one account and region that carry the cluster's owner tags, those that are going included.

        One whose tag of name or uid somebody removed is told as well, with an empty one. What another installation has
        made is only counted.
        """
        account = input.account
        driver = self.deps.driver(account.provider)

        async def request() -> ListMachinesRequest:
            return ListMachinesRequest(
                cluster=input.cluster,
                provider_spec=account.place,
                secret=await self.deps.credentials(account.provider, account.secret_ref),
            )

        caller = self.deps.caller(account.provider, account.place, account.secret_ref)
        cloud = Cloud(driver, caller, account.secret_ref)
        found = await cloud.call(driver.list_machines, request)
        installation = await self.deps.installation()
        ours = [vm for vm in found.machines if is_of(vm.installation, installation)]
        return ListVmsOutput(
            others=len(found.machines) - len(ours),
            vms=[
                OwnedVm(
                    provider_id=vm.provider_id,
                    machine=vm.name or "",
                    uid=vm.uid or "",
                    state=str(vm.state),
                    account=account.key,
                    account_id=vm.account_id,
                    tagged=bool(vm.installation) or not installation,
                )
                for vm in ours
            ],
        )

    @activity.defn
    async def find_owners(self, input: OwnersInput) -> OwnersOutput:
        """Those of the VMs that no running workflow owns, by the server's own records and not by visibility.

        The cloud was listed before. A machine's workflow exists before its VM, and is asked for after the VM was seen:
        so that none runs is sure at the first sight. No grace for young VMs is needed, as it is where the record of a
        VM comes after it (Karpenter's 30 seconds, field case P11).
        """
        slots = asyncio.Semaphore(PARALLEL)

        async def one(vm: OwnedVm) -> Orphan | None:
            async with slots:
                return await self._orphan(input.cluster, vm)

        found = await asyncio.gather(*(one(vm) for vm in input.vms))
        return OwnersOutput(orphans=[orphan for orphan in found if orphan is not None])

    async def _orphan(self, cluster: str, vm: OwnedVm) -> Orphan | None:
        """None for a VM that has an owner."""
        try:
            found = await self.deps.client.get_workflow_handle(machine_id(cluster, vm.machine)).describe()
        except RPCError as e:
            if e.status != RPCStatusCode.NOT_FOUND:
                raise
            return Orphan(vm=vm, workflow="")
        if found.status == WorkflowExecutionStatus.RUNNING:
            owned = await self._owns(found, vm)
        else:
            # It may have ended after the cloud was listed, or the listing lags: what a life that came to its end had
            # is gone. A VM of another uid was left by a life before it; one that is there long after the end was made
            # after it, by a call that nobody had an answer to.
            just = found.close_time is not None and Clock().now() - found.close_time < LATE
            completed = found.status == WorkflowExecutionStatus.COMPLETED
            owned = just and completed and await self._ended(found) == vm.uid
        if owned:
            return None
        status = found.status.name if found.status else ""
        return Orphan(vm=vm, workflow=status, closed=found.close_time)

    async def _owns(self, found: WorkflowExecutionDescription, vm: OwnedVm) -> bool:
        """By the providerID that it has published; one that has none yet, or another, by its uid."""
        published = found.typed_search_attributes.get(PROVIDER_ID)
        if published and provider_key(published) == provider_key(vm.provider_id):
            return True
        return bool(vm.uid) and await uid_of(self.deps.client, found.id, found.run_id) == vm.uid

    async def _ended(self, found: WorkflowExecutionDescription) -> str:
        """The uid of a life that came to its end."""
        handle = self.deps.client.get_workflow_handle(found.id, run_id=found.run_id, result_type=MachineResult)
        result: MachineResult = await handle.result(follow_runs=False)
        return result.uid

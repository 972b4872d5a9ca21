"""VMs without a workflow: what carries our owner tags, and which of it no running workflow owns. Nothing is changed."""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.accounts import Cloud
from activities.deps import Deps
from activities.machine import MachineActivities
from drivers.base import ListMachinesRequest
from resources.attributes import PROVIDER_ID
from resources.machine import MachineResult, MachineState
from resources.messages import (
    CreateInput,
    ListVmsInput,
    ListVmsOutput,
    Orphan,
    OwnedVm,
    OwnersInput,
    OwnersOutput,
)
from resources.names import machine_id, provider_key

PARALLEL = 10
"""Machines that are asked for at the same time."""


class OrphanActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def list_vms(self, input: ListVmsInput) -> ListVmsOutput:
        """The VMs of one account and region that carry the cluster's owner tags, those that are going included.

        One whose tag of name or uid somebody removed is told as well, with an empty one.
        """
        account = input.account
        driver = self.deps.driver(account.provider)

        async def request() -> ListMachinesRequest:
            return ListMachinesRequest(
                cluster=input.cluster,
                provider_spec={"region": account.region},
                secret=await self.deps.credentials(account.provider, account.secret_ref),
            )

        cloud = Cloud(driver, self.deps.blocking, account.secret_ref)
        found = await cloud.call(driver.list_machines, request)
        return ListVmsOutput(
            vms=[
                OwnedVm(
                    provider_id=vm.provider_id,
                    machine=vm.name or "",
                    uid=vm.uid or "",
                    state=str(vm.state),
                    account=account.key,
                    account_id=vm.account_id,
                )
                for vm in found.machines
            ]
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
            # is gone. A VM of another uid was left by a life before it.
            owned = found.status == WorkflowExecutionStatus.COMPLETED and await self._ended(found) == vm.uid
        if owned:
            return None
        status = found.status.name if found.status else ""
        return Orphan(vm=vm, workflow=status, closed=found.close_time)

    async def _owns(self, found: WorkflowExecutionDescription, vm: OwnedVm) -> bool:
        """By the providerID that it has published; one that has none yet, or another, by its uid."""
        published = found.typed_search_attributes.get(PROVIDER_ID)
        if published and provider_key(published) == provider_key(vm.provider_id):
            return True
        return bool(vm.uid) and await self._uid(found) == vm.uid

    async def _uid(self, found: WorkflowExecutionDescription) -> str:
        """Of a running life; "" when it has not asked a cloud for anything yet.

        From its history, which answers always: a query needs a worker, and code that can answer.
        """
        client = self.deps.client
        handle = client.get_workflow_handle(found.id, run_id=found.run_id)
        async for event in handle.fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                (state,) = await client.data_converter.decode(list(payloads), [MachineState])
                if state.uid:
                    return str(state.uid)
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                call = event.activity_task_scheduled_event_attributes
                if call.activity_type.name == MachineActivities.create_machine.__name__:
                    (asked,) = await client.data_converter.decode(list(call.input.payloads), [CreateInput])
                    return str(asked.target.machine.uid)
        return ""

    async def _ended(self, found: WorkflowExecutionDescription) -> str:
        """The uid of a life that came to its end."""
        handle = self.deps.client.get_workflow_handle(found.id, run_id=found.run_id, result_type=MachineResult)
        result: MachineResult = await handle.result(follow_runs=False)
        return result.uid

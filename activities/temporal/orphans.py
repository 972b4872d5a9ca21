"""VMs without a workflow: those that carry our owner tags and that no running workflow owns. Nothing is changed."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from activities.base import Activities
from activities.batch import each
from activities.clock import ServerClock
from activities.temporal.records import uid_of
from activities.temporal.workflows import described
from resources.attributes import PROVIDER_ID
from resources.clouds import provider_key
from resources.machine.state import MachineResult
from resources.names import machine_id
from resources.orphans import Orphan, OwnedVm, OwnersInput, OwnersOutput

LATE = timedelta(minutes=5)
"""A VM may still be in a listing for this long after its machine's end; no listing is so old, and no read lags so
long."""


class OrphanActivities(Activities):
    role = "workflows"

    @activity.defn
    async def find_owners(self, input: OwnersInput) -> OwnersOutput:
        """Those of the VMs that no running workflow owns, by the server's own records and not by visibility.

        The cloud was listed before. A machine's workflow exists before its VM, and is asked for after the VM was seen:
        so one look is proof that none runs. Young VMs need no grace period, unlike where the record of a VM comes after
        it (Karpenter's 30 seconds, field case P11).
        """
        found = await each(input.vms, lambda vm: self._orphan(input.cluster, vm))
        return OwnersOutput(orphans=[orphan for orphan in found if orphan is not None])

    async def _orphan(self, cluster: str, vm: OwnedVm) -> Orphan | None:
        """The VM as an orphan; None where it has an owner."""
        found = await described(self.deps.client, machine_id(cluster, vm.machine))
        if found is None:
            return Orphan(vm=vm, workflow="")
        if found.status == WorkflowExecutionStatus.RUNNING:
            owned = await self._owns(found, vm)
        else:
            # The machine may have ended after the cloud was listed, or the listing lags: what a completed life had is
            # gone. A VM of another uid was left by an earlier life; one that is there long after the end was made after
            # it, by a call that nobody had an answer to.
            just = found.close_time is not None and ServerClock().now() - found.close_time < LATE
            completed = found.status == WorkflowExecutionStatus.COMPLETED
            owned = just and completed and await self._ended(found) == vm.uid
        if owned:
            return None
        status = found.status.name if found.status else ""
        return Orphan(vm=vm, workflow=status, closed=found.close_time)

    async def _owns(self, found: WorkflowExecutionDescription, vm: OwnedVm) -> bool:
        """Whether the machine owns the VM: by the providerID that it has published; one that has none yet, or another,
        by its uid."""
        published = found.typed_search_attributes.get(PROVIDER_ID)
        if published and provider_key(published) == provider_key(vm.provider_id):
            return True
        return bool(vm.uid) and await uid_of(self.deps.client, found.id, found.run_id) == vm.uid

    async def _ended(self, found: WorkflowExecutionDescription) -> str:
        """The uid of a life that was completed."""
        handle = self.deps.client.get_workflow_handle(found.id, run_id=found.run_id, result_type=MachineResult)
        result: MachineResult = await handle.result(follow_runs=False)
        return result.uid

"""OrphanSweepWorkflow: one look for VMs that carry our owner tags and that no running workflow owns.

Identity: `orphans/<cluster>/<id>`. Started by the command line or SDK; its result is the report. It changes nothing.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, TimeoutError, TimeoutType

from workflows.calls import SHORT, Urgency, failure_of, share
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from activities.cloud.listing import ListingActivities
    from activities.temporal.orphans import OrphanActivities
    from resources.cluster.accounts import Account
    from resources.markdown import items, page, plain
    from resources.names import cloud_queue, workflow_queue
    from resources.orphans import ListVmsInput, ListVmsOutput, Orphan, OwnedVm, OwnersInput, SweepInput, SweepReport

CALL = timedelta(minutes=5)
TAKEN = timedelta(minutes=2)
"""A listing that no worker takes by then is given up, and reported so. Machines wait for a worker forever; a report
that somebody waits for does not."""
BATCH = 1000
"""VMs in one argument: about 0.2 MiB of the 2 that a payload may have."""


@workflow.defn
class OrphanSweepWorkflow:
    @workflow.run
    async def run(self, input: SweepInput) -> SweepReport:
        """Reads first the cloud, then the owners: this order makes "no workflow" certain (see find_owners)."""
        show(plain(f"Lists {len(input.accounts)} cloud accounts of cluster {input.cluster}"))
        listed = await asyncio.gather(*(self._list(input, account) for account in input.accounts))
        by_account = dict(zip([a.key for a in input.accounts], listed, strict=True))
        unread = {key: found for key, found in by_account.items() if isinstance(found, str)}
        read = {key: found for key, found in by_account.items() if not isinstance(found, str)}
        # Two Secrets may open the same account, which is then listed twice.
        vms = {vm.provider_id: vm for found in read.values() for vm in found.vms}
        show(plain(f"Looks for the owners of {len(vms)} VMs of cluster {input.cluster}"))
        orphans: list[Orphan] = []
        every = list(vms.values())
        for start in range(0, len(every), BATCH):
            orphans += await self._orphans(input, every[start : start + BATCH])
        silent = items(f"{key} could not be listed: {why}" for key, why in unread.items())
        show(page(f"{len(orphans)} of {len(vms)} VMs have no owner", silent))
        return SweepReport(
            orphans=orphans,
            unread=unread,
            others={key: found.others for key, found in read.items() if found.others},
            untagged=sum(not vm.tagged for vm in every),
        )

    async def _list(self, input: SweepInput, account: Account) -> ListVmsOutput | str:
        """The VMs, or why they cannot be listed: what the account holds is not known then, and that must be said."""
        try:
            output = await workflow.execute_activity_method(
                ListingActivities.list_vms,
                ListVmsInput(cluster=input.cluster, account=account),
                task_queue=cloud_queue(account.provider, input.queue_prefix),
                schedule_to_start_timeout=TAKEN,
                start_to_close_timeout=CALL,
                heartbeat_timeout=input.heartbeat,
                retry_policy=SHORT,
                summary=f"list the VMs of {account.key}",
                priority=share(Urgency.POLL, account),
            )
        except ActivityError as e:
            if isinstance(e.cause, TimeoutError) and e.cause.type == TimeoutType.SCHEDULE_TO_START:
                who = "`hostler doctor` says who polls the cloud's task queues"
                return f"no worker took the listing within {TAKEN.total_seconds():.0f} s: {who}"
            return failure_of(e).info.message
        return output

    async def _orphans(self, input: SweepInput, vms: list[OwnedVm]) -> list[Orphan]:
        output = await workflow.execute_activity_method(
            OrphanActivities.find_owners,
            OwnersInput(cluster=input.cluster, vms=vms),
            task_queue=workflow_queue(input.queue_prefix),
            start_to_close_timeout=CALL,
            heartbeat_timeout=input.heartbeat,
            retry_policy=SHORT,
            summary=f"find the owners of {len(vms)} VMs",
            priority=Urgency.POLL,
        )
        return output.orphans

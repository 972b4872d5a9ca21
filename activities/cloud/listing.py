"""The VMs of an account, for a sweep: the cloud's half of looking for those that nobody owns."""

from __future__ import annotations

from temporalio import activity

from activities.accounts import Cloud
from activities.base import Activities
from drivers.base import ListMachinesRequest, is_of
from resources.orphans import ListVmsInput, ListVmsOutput, OwnedVm


class ListingActivities(Activities):
    role = "cloud"

    @activity.defn
    async def list_vms(self, input: ListVmsInput) -> ListVmsOutput:
        """Lists the VMs of one account and region that carry the cluster's owner tags, including those that are going.

        One whose name or uid tag somebody removed is listed too, with an empty one. What another installation has made
        is only counted.
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

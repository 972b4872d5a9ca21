"""The watch of one cloud account: finds the VM that died or was deleted behind our back, with one listing a minute.

It tells machines bad news, and good news after bad: an undisturbed life hears nothing of it. A retrying activity, one
listing per attempt; what was seen and told is in its heartbeat details.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from activities.boundary import NotYet, last_progress, progress
from activities.clock import Clock
from activities.deps import Deps
from activities.secrets import SecretMissing
from drivers.base import GetMachineStatusRequest, Identity, ListMachinesRequest, MachineStatus, VmState
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.messages import CloudReachability, InstancesInput, InstancesOutput, VmFacts, VmsTold
from resources.names import cluster_id, machine_id
from resources.packed import closed, opened

WELL = (VmState.PENDING, VmState.RUNNING)
GONE = "gone"
TURN = 100_000  # signals that one attempt may send, for a sequence that grows over attempts


GIVE_UP = timedelta(hours=1)
"""Then a Secret that is not there will not come back: its classes have another, or the account has no machine."""


class InstancesActivities:
    def __init__(self, deps: Deps) -> None:
        self.deps = deps

    @activity.defn
    async def watch_instances(self, input: InstancesInput) -> InstancesOutput:
        """One listing. NotFound by it is a suspicion; a fresh read by id decides."""
        before = last_progress()
        look = _Look(self.deps, input, before)
        try:
            await look.run()
        except (DriverError, SecretMissing) as e:
            missing = _missing_since(before) if isinstance(e, SecretMissing) else None
            if missing is not None and look.clock.now() - missing > GIVE_UP:
                raise
            await look.remember()  # some may have been told before the call that failed
            await look.reach(False, str(e))
            since = {"missingSince": missing.timestamp()} if missing else {}
            progress(message=str(e), **look.details(), reachable=False, **since)
            raise NotYet(f"{input.account.key} cannot be listed: {e}", input.interval) from None
        await look.reach(True, "")
        await look.remember()
        words = f"{len(look.known)} VMs of {input.account.key}"
        progress(message=words, **look.details(), reachable=True)
        if activity.info().started_time - activity.info().scheduled_time > input.duration:
            return InstancesOutput(told=look.told)
        raise NotYet(words, input.interval)


def _missing_since(before: dict[str, Any]) -> datetime:
    """When the Secret was first not there, at looks in a row."""
    return datetime.fromtimestamp(before.get("missingSince", Clock().now().timestamp()), UTC)


class _Look:
    def __init__(self, deps: Deps, input: InstancesInput, before: dict[str, Any]) -> None:
        self.deps, self.input, self.clock = deps, input, Clock()
        self.driver = deps.driver(input.account.provider)
        self.known: dict[str, str] = opened(before.get("known", {}))
        """providerID to machine, of the VMs that were there at the last look. It stays with the activity: thousands of
        them would be too much for the cluster's state, and a VM that goes between two runs makes its node silent."""
        self.former: dict[str, str] = opened(before.get("told", input.told))
        self.told: dict[str, str] = dict(self.former)
        """providerID to state, where a machine was told something bad."""
        self.reachable: bool | None = before.get("reachable")
        info = activity.info()
        self.epoch = int(info.scheduled_time.timestamp() * 1000)
        self.seq = info.attempt * TURN

    def details(self) -> dict[str, Any]:
        """For the next look. Packed where there are many: Temporal takes 2 MiB for a heartbeat's details too."""
        return {"known": closed(self.known), "told": closed(self.told)}

    async def run(self) -> None:
        account = self.input.account
        self.secret = await self.deps.credentials(account.provider, account.secret_ref)
        self.spec = {"region": account.region}
        request = ListMachinesRequest(cluster=self.input.cluster, provider_spec=self.spec, secret=self.secret)
        listed = {m.provider_id: m for m in (await self.deps.blocking(self.driver.list_machines, request)).machines}
        for vm in listed.values():
            if vm.name:
                self.known[vm.provider_id] = vm.name
                await self._news(vm.provider_id, vm.name, vm.state, vm)
        for provider_id in [p for p in self.known if p not in listed]:
            await self._suspect(provider_id)

    async def _suspect(self, provider_id: str) -> None:
        name = self.known[provider_id]
        request = GetMachineStatusRequest(
            machine=Identity(cluster=self.input.cluster, name=name, uid=""),
            provider_spec=self.spec,
            secret=self.secret,
            provider_id=provider_id,
        )
        try:
            vm = await self.deps.blocking(self.driver.get_machine_status, request)
        except DriverError as e:
            if e.error_class != ErrorClass.NOT_FOUND:
                raise
            await self._news(provider_id, name, GONE, None)
            del self.known[provider_id]
            self.told.pop(provider_id, None)
            return
        await self._news(provider_id, name, vm.state, vm)

    async def _news(self, provider_id: str, machine: str, state: str, vm: MachineStatus | None) -> None:
        former = self.told.get(provider_id)
        if state == former or (former is None and state in WELL):
            return
        self.seq += 1
        facts = VmFacts(
            epoch=self.epoch,
            seq=self.seq,
            provider_id=provider_id,
            state=str(state),
            addresses=vm.addresses if vm else [],
        )
        handle = self.deps.client.get_workflow_handle(machine_id(self.input.cluster, machine))
        try:
            await handle.signal("observe_vm", facts)
        except RPCError as e:
            if e.status != RPCStatusCode.NOT_FOUND:  # a machine that has ended is no error
                raise
        if state in WELL:
            self.told.pop(provider_id, None)
        else:
            self.told[provider_id] = str(state)

    async def remember(self) -> None:
        """The cluster keeps what was told for the watch of its next run. A watch that is asked to return between two
        looks cannot answer: without this, who heard of a stop before would never hear that the VM runs again."""
        if self.told != self.former:
            cluster = self.deps.client.get_workflow_handle(cluster_id(self.input.cluster))
            await cluster.signal("vms_told", VmsTold(account=self.input.account.key, told=self.told))

    async def reach(self, reachable: bool, message: str) -> None:
        """Told to the cluster when it changes; nothing is decided against a machine meanwhile."""
        if self.reachable is reachable:
            return
        self.reachable = reachable
        news = CloudReachability(
            account=self.input.account.key, reachable=reachable, message=message, time=self.clock.now()
        )
        await self.deps.client.get_workflow_handle(cluster_id(self.input.cluster)).signal("cloud_reachability", news)

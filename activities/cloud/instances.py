"""The watch of one cloud account: it finds a VM that died or was deleted behind our back, with one listing a minute.

It tells machines bad news, and good news after bad: a machine without trouble hears nothing from it. It is a retrying
activity; what was seen and told is in its heartbeat details. Between two listings it reads one VM every few seconds, so
that a cloud that stops answering is noticed within half a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pydantic import SecretStr
from temporalio import activity

from activities.accounts import Cloud
from activities.base import Activities
from activities.batch import each
from activities.boundary import NotYet, last_progress, progress
from activities.clock import ServerClock
from activities.deps import Deps
from activities.kube.client import KubeError
from activities.kube.patience import patiently
from activities.secrets import SecretMissing
from activities.temporal.records import has_vm
from activities.temporal.vm_owners import all_machines
from activities.temporal.workflows import MACHINE, running, tell
from drivers.base import GetMachineStatusRequest, Identity, ListMachinesRequest, MachineStatus, VmState, is_of
from drivers.errors import DriverError, WrongAccount
from resources.calls.cloud import InstancesInput, InstancesOutput, VmsTold
from resources.clouds import at_place
from resources.cluster.news import AccountNews, CloudReachability
from resources.errors import PASSING, ErrorClass
from resources.machine.facts import VmFacts
from resources.names import cluster_id, machine_id
from resources.packed import closed, opened

WELL = (VmState.PENDING, VmState.RUNNING)
GONE = "gone"
FORGOTTEN = "?"
"""Stands in place of a state: what its machine was told last is no longer known."""
TURN = 100_000  # signals that one attempt may send, for a sequence that grows over attempts


PROBE_EVERY = timedelta(seconds=8)
PROBE_PATIENCE = 8.0  # seconds for the answer; a listing in its place may hang for the driver's own timeout, 20 s
GIVE_UP = timedelta(hours=1)
"""After this time a missing Secret will not come back: its classes have another, or the account has no machine."""


class InstancesActivities(Activities):
    role = "cloud"

    @activity.defn
    async def watch_instances(self, input: InstancesInput) -> InstancesOutput:
        """Makes a listing when one is due; otherwise one small read, and in an outage that read comes first. NotFound
        by a listing is a suspicion; a fresh read by id, in the same account, decides."""
        before = last_progress()
        look = _Look(self.deps, input, before)
        if input.remember and not before:
            await look.recall()
        try:
            if not look.due or look.reachable is False:
                await look.probe()
            if not look.due:
                raise NotYet(look.words, look.pause)
            await look.run()
        except (DriverError, SecretMissing, KubeError) as e:
            missing = _missing_since(before) if isinstance(e, SecretMissing) else None
            if missing is not None and look.clock.now() - missing > GIVE_UP:
                raise
            await look.remember()  # some may have been told before the call that failed
            await look.reach(False, _words(e), f"{type(e).__name__} {getattr(e, 'error_class', '')}", _unasked(e))
            since = {"missingSince": missing.timestamp()} if missing else {}
            since |= {"answered": look.answered.timestamp()} if look.answered else {}
            progress(message=_words(e), reachable=False, trouble=look.trouble, **look.details(), **since)
            passing = not isinstance(e, SecretMissing) and e.error_class in PASSING
            pause = look.pause if passing else input.interval
            raise NotYet(f"{input.account.key} cannot be listed: {_words(e)}", pause) from None
        await look.reach(True, "")
        await look.remember()
        words = look.words
        progress(message=words, reachable=True, **look.details(), listed=look.clock.started.timestamp())
        if activity.info().started_time - activity.info().scheduled_time > input.duration:
            return InstancesOutput(told=look.told, owner=look.owner, opened=look.opened)
        raise NotYet(words, look.pause)


def _words(e: Exception) -> str:
    """Only the Secret is read in Kubernetes."""
    return f"its Secret cannot be read: {e}" if isinstance(e, KubeError) else str(e)


def _unasked(e: Exception) -> bool:
    return isinstance(e, KubeError) and e.silent


def _missing_since(before: dict[str, Any]) -> datetime:
    """When the Secret was first missing, over consecutive looks."""
    return datetime.fromtimestamp(before.get("missingSince", ServerClock().now().timestamp()), UTC)


def _time(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)


class _Look:
    def __init__(self, deps: Deps, input: InstancesInput, before: dict[str, Any]) -> None:
        self.deps, self.input, self.clock = deps, input, ServerClock()
        self.driver = deps.driver(input.account.provider)
        self.spec = input.account.place
        self.known: dict[str, str] = opened(before["known"]) if "owner" in before else {}
        """providerID to machine, for the VMs that were there at the last look. It stays with the activity: thousands of
        them would be too much for the cluster's state, and a VM that goes between two runs makes its node silent."""
        self.owner: str = before.get("owner", input.owner)
        """The account that the cluster's VMs are in. While there are any, another account's listing says nothing about
        them."""
        self.opened: str = before.get("opened", input.opened)
        """The other account that the Secret opens, as machines were told; "": none."""
        self.former_owner, self.former_opened = self.owner, self.opened
        self.former: dict[str, str] = opened(before.get("told", input.told))
        self.told: dict[str, str] = dict(self.former)
        """providerID to state, where a machine was told something bad."""
        self.reachable: bool | None = before.get("reachable")
        self.trouble: str = before.get("trouble", "")
        """What kind of trouble the cluster was told of last."""
        info = activity.info()
        self.pause = min(input.interval, PROBE_EVERY)
        self.answered = _time(before.get("answered"))
        """When the cloud last answered. After an attempt that went well that is a pause before this one."""
        if self.reachable:
            self.answered = info.current_attempt_scheduled_time - self.pause
        listed = _time(before.get("listed"))
        self.due = listed is None or self.clock.started - listed >= input.interval
        self.epoch = int(info.scheduled_time.timestamp() * 1000)
        self.seq = info.attempt * TURN

    @property
    def words(self) -> str:
        count = len(self.known)
        return f"{count} VM{'' if count == 1 else 's'} of {self.input.account.key}"

    async def probe(self) -> None:
        """Asks the cloud for a small read. Raises DriverError, transient, when there is no answer. Any answer will do:
        a listing says what it means."""
        vm = next(iter(self.known), None)
        if vm is None:
            self.due = True  # a listing with nothing in it is as small a read
            return
        request = await self._status(vm)
        try:
            await patiently(self._cloud().once(self.driver.get_machine_status, request), PROBE_PATIENCE)
        except TimeoutError:
            raise DriverError(ErrorClass.TRANSIENT, f"no answer within {PROBE_PATIENCE:g} s") from None
        except DriverError as e:
            if e.error_class == ErrorClass.TRANSIENT:
                raise
            self.due |= e.error_class != ErrorClass.THROTTLED  # a busy cloud answers

    async def recall(self) -> None:
        """Recalls, after a watch that was lost with all that it knew, which machines have a VM. Raises RPCError."""
        async for machine in all_machines(self.deps.client, self.input.cluster):
            if machine.machine_class in self.input.remember:
                vm = at_place(machine.provider_id, self.spec)
                self.known[vm] = machine.name
                self.told[vm] = FORGOTTEN

    def _forget(self) -> None:
        """Forgets the VMs that are only remembered: that none are here says nothing about VMs that nobody knows to have
        been in this account."""
        for vm in [vm for vm, state in self.told.items() if state == FORGOTTEN]:
            del self.told[vm]
            self.known.pop(vm, None)

    async def run(self) -> None:
        listing = await self._cloud().call(self.driver.list_machines, self._list)
        ours = await self.deps.installation()
        listed = {vm.provider_id: vm for vm in listing.machines if is_of(vm.installation, ours)}
        owner = next((vm.account_id for vm in listing.machines), "")
        if not (owner or self.owner or listing.machines):
            self._forget()
        await self._prove(owner)
        self.owner = owner or self.owner
        for vm in listed.values():
            if vm.name:
                self.known[vm.provider_id] = vm.name
                await self._news(vm.provider_id, vm.name, vm.state, vm)
        for provider_id in [p for p in self.known if p not in listed]:
            await self._suspect(provider_id)
        if not (owner or self.known):
            self.owner = ""  # the Secret may open another account from now on
        await self._tell_account("")

    async def _prove(self, owner: str) -> None:
        """Raises WrongAccount where the listing is of another account than the VMs are in, as long as there are any;
        each of their machines is told so."""
        cloud = self._cloud(next(iter(self.known), f"a VM of cluster {self.input.cluster}"))
        try:
            if owner:
                cloud.check(owner)
            elif self.owner:
                await cloud.prove(await self._list())  # "none there" is true only in the account that they were in
        except WrongAccount as e:
            if await self._some_left():
                await self._tell_account(e.opened)
                raise
            self.owner = ""

    async def _some_left(self) -> bool:
        """Whether machines have VMs in the account that cannot be seen at the moment. A machine has its VM until the
        account that it is in has said that it is gone; those that are past that are forgotten."""
        if not self.known:  # the watch has begun again since
            machines = running(MACHINE, cluster=self.input.cluster, where="HostlerProviderID IS NOT NULL")
            return (await self.deps.client.count_workflows(machines)).count > 0
        for provider_id, name in list(self.known.items()):
            if await has_vm(self.deps.client, machine_id(self.input.cluster, name), provider_id):
                return True
            del self.known[provider_id]
            self.told.pop(provider_id, None)
        return False

    async def _tell_account(self, opened: str) -> None:
        """Tells each machine that has a VM in the account, once, that the Secret opens another one ("": no longer). All
        are told before it is remembered: after an error they are told again, which changes nothing."""
        if opened == self.opened:
            return
        news = AccountNews(opened=opened, owner=self.owner, secret_ref=self.input.account.secret_ref)
        machines = sorted(set(self.known.values()))
        await each(machines, lambda machine: self._tell(machine, "account_news", news))
        self.opened = opened

    def details(self) -> dict[str, Any]:
        """What the next look needs. Packed where there are many: Temporal takes 2 MiB for a heartbeat's details too."""
        accounts = {"owner": self.owner, "opened": self.opened}
        return {"known": closed(self.known), "told": closed(self.told), **accounts}

    def _cloud(self, vm: str = "") -> Cloud:
        account = self.input.account
        caller = self.deps.caller(account.provider, self.spec, account.secret_ref)
        return Cloud(self.driver, caller, account.secret_ref, self.owner, vm)

    async def _secret(self) -> Mapping[str, SecretStr]:
        return await self.deps.credentials(self.input.account.provider, self.input.account.secret_ref)

    async def _list(self) -> ListMachinesRequest:
        return ListMachinesRequest(cluster=self.input.cluster, provider_spec=self.spec, secret=await self._secret())

    async def _status(self, provider_id: str) -> GetMachineStatusRequest:
        return GetMachineStatusRequest(
            machine=Identity(cluster=self.input.cluster, name=self.known[provider_id], uid=""),
            provider_spec=self.spec,
            secret=await self._secret(),
            provider_id=provider_id,
        )

    async def _suspect(self, provider_id: str) -> None:
        name = self.known[provider_id]
        try:
            vm = await self._cloud(provider_id).call(self.driver.get_machine_status, partial(self._status, provider_id))
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
        await self._tell(machine, "observe_vm", facts)
        if state in WELL:
            self.told.pop(provider_id, None)
        else:
            self.told[provider_id] = str(state)

    async def _tell(self, machine: str, signal: str, news: VmFacts | AccountNews) -> None:
        await tell(self.deps.client, machine_id(self.input.cluster, machine), signal, news)

    async def remember(self) -> None:
        """Has the cluster keep what was told, for the watch of its next run. A watch that is asked to return between
        two looks cannot answer: without this, a machine that was told of a stop would never hear that its VM runs
        again."""
        if (self.told, self.owner, self.opened) != (self.former, self.former_owner, self.former_opened):
            cluster = self.deps.client.get_workflow_handle(cluster_id(self.input.cluster))
            told = VmsTold(account=self.input.account.key, told=self.told, owner=self.owner, opened=self.opened)
            await cluster.signal("vms_told", told)

    async def reach(self, reachable: bool, message: str, trouble: str = "", unasked: bool = False) -> None:
        """Tells the cluster whether the cloud can be reached, when that changes or has another cause; meanwhile nothing
        is decided against a machine."""
        if (self.reachable, self.trouble) == (reachable, trouble):
            return
        self.reachable, self.trouble = reachable, trouble
        news = CloudReachability(
            account=self.input.account.key,
            reachable=reachable,
            message=message,
            time=self.clock.now(),
            since=None if reachable else self.answered,
            unasked=unasked,
        )
        await self.deps.client.get_workflow_handle(cluster_id(self.input.cluster)).signal("cloud_reachability", news)

"""A machine's activities at the cloud: create, post-start update, status watch, delete."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

from temporalio import activity

from activities.base import Activities
from activities.boundary import ACCOUNT, NotWanted, NotYet, last_progress
from activities.clock import ServerClock
from activities.cloud.creating import Creation, begun_before, carry_on, under_way
from activities.cloud.deleting import delete_until_gone, make_pass, until_next_look
from activities.cloud.instances import GONE
from activities.cloud.joining import why_not_joined
from activities.kube.client import Kube, KubeError, node_path
from activities.kube.tokens import ensure_token, render, revoke_tokens
from activities.kube.whose import is_of, provider_id_of
from activities.temporal.announce import account_of, use_account
from activities.temporal.classes import report_progress
from activities.temporal.records import began_here, cut_off, former_vm, standing
from activities.userdata import user_data_of
from drivers.base import (
    GetMachineStatusRequest,
    MachineStatus,
    NameTaken,
    UpdateMachineRequest,
    VmState,
)
from drivers.errors import DriverError, Unimplemented
from resources.calls.cloud import (
    CreateInput,
    CreateOutput,
    DeleteInput,
    DeleteOutput,
    FindInput,
    FoundVm,
    StatusInput,
    StatusOutput,
    UpdateInput,
    UpdateOutput,
    VmLook,
    VmLookInput,
)
from resources.calls.machine import StaleNode, Target
from resources.cluster.accounts import AccountUse
from resources.errors import ErrorClass
from resources.machine_class.state import ClassId, ClassReport, UpdateState
from resources.names import TAG_UID
from resources.userdata import doubts

RAREST = 4
"""Looks at a VM whose node does not join become rarer, up to this many intervals: many such VMs would use up the
account's calls."""
MESSAGE_LENGTH = 1000
"""Characters that say what is wrong with a VM, before the word "console"."""
_NO_ID = (
    "the {provider} driver answered without a providerID, so it is not known which VM it created: the next try "
    "looks for the VM by its tag with uid {uid}; if that does not help, look for it in the cloud's console, and "
    "report the driver's error"
)


class MachineActivities(Activities):
    role = "cloud"

    @activity.defn
    async def create_machine(self, input: CreateInput) -> CreateOutput:
        """Token, user data, status, create, stale node, announcement: one idempotent step.

        The status is read first, always: a VM that carries the machine's uid is adopted, and on any error other than
        "not found" nothing is created (seed 000, triggerCreationFlow). Nothing is created beside a living VM that
        carries its name either; that one is adopted only where it is known to be this workflow's. Only where an earlier
        try has left an operation of its token's, which began after such a read, it goes on with that one.
        """
        target, clock = input.target, ServerClock()
        former, begun = target.account_id or last_progress().get(ACCOUNT, ""), begun_before(input)
        carry_on(former, begun)
        # Before anything can fail: a corrected class must reach a machine whose creation fails.
        await self._report(input, UpdateState.PENDING, 0, clock.now())
        kube = await self.deps.clusters.get(target.machine.cluster)
        token = await ensure_token(kube, target.machine, input.attempt, input.deadline)
        secret = await self.deps.secrets.get(target.secret_ref)
        given = user_data_of(secret, target.secret_ref)
        user_data = replace(given, text=render(given.text, target.machine, token))
        target = target.model_copy(update={"account_id": former})
        begun = await under_way(self.deps, begun)
        # Not by its token: the call that would make it answers with the VM that an earlier call of the token has made.
        vm = None if begun else await self._find(target.model_copy(update={"token": ""}), input.takes)
        now = None if vm or begun else await standing(self.deps.client)
        if now is not None and now.leaving:  # a try after the deletion or the deadline, which no call hears of
            vm = await self._landed(target, input.takes)
            if vm is None:
                raise NotWanted(f"{now.leaving}: no VM is created any longer")
        adopted = vm is not None
        if vm is not None:
            target = await self._adopt(kube, input, target, vm)
        elif now is not None and now.was_reset and (lost := await self._lost(target)):
            return lost
        else:
            vm = await Creation(self.deps, target, user_data, input.annotations).run(begun)
        if not vm.provider_id:  # machine-controller-manager fails on this one too; an empty node name is none
            raise DriverError(ErrorClass.UNKNOWN, _NO_ID.format(provider=target.provider, uid=target.machine.uid))
        stale = await self._stale_node(kube, input, vm)
        if stale is not None:
            await make_pass(self.deps, target, vm.provider_id)
        else:
            await self._announce(input)
            await self._report(input, UpdateState.UPDATED, input.generation, clock.now())
        return CreateOutput(
            provider_id=vm.provider_id,
            node_name=vm.node_name,
            addresses=vm.addresses,
            adopted=adopted,
            uid=target.machine.uid if target.machine.uid != input.target.machine.uid else "",
            stale_node=stale.name if stale else None,
            stale=stale,
            doubts=[] if adopted else doubts(given.text.get_secret_value()),
            user_data_version=secret.version,
            account_id=vm.account_id,
            tagged=bool(vm.installation),
        )

    @activity.defn
    async def find_machine(self, input: FindInput) -> FoundVm:
        """Finds the VM of a machine that knows none, as create_machine would adopt it; otherwise what a run that was
        reset knew of one. A VM that only shares its name and is another's is no error here: it stays."""
        try:
            vm = await self._find(input.target, input.takes)
        except NameTaken:
            vm = None
        if vm is None:
            lost = await self._lost(input.target) if (await standing(self.deps.client)).was_reset else None
            if lost is None:
                return FoundVm()
            vm_id, account_id = lost.provider_id, lost.account_id
            return FoundVm(provider_id=vm_id, gone=True, node_name=lost.node_name, account_id=account_id)
        uid = vm.uid if vm.uid and vm.uid != input.target.machine.uid else ""
        return FoundVm(provider_id=vm.provider_id, uid=uid, node_name=vm.node_name, addresses=vm.addresses)

    @activity.defn
    async def update_machine(self, input: UpdateInput) -> UpdateOutput:
        """Makes the post-start update or a hot update; the driver reads what it changes. A VM that may lack its
        installation's tag is looked at first.

        A driver that has none says so in the answer: then the post-start update is done, and a hot update is not.
        """
        target = input.target
        vm = await self._look(target) if input.last_applied is None and not input.tagged else None
        try:
            response = await self.deps.call(
                self.deps.driver(target.provider).update_machine,
                UpdateMachineRequest,
                target,
                provider_id=target.provider_id,
                last_applied_provider_spec=input.last_applied,
                untagged=vm is not None and not vm.installation,
            )
        except Unimplemented:
            return UpdateOutput(supported=False)
        return UpdateOutput(changed=response.changed, resources=response.resources)

    @activity.defn
    async def watch_machine(self, input: StatusInput) -> StatusOutput:
        """Looks at the VM of a Pending machine until it is cancelled; it ends only with bad news.

        The message has the VM's state, why its node has not joined, the provider's own health checks, and the console's
        last lines. The attempt's bootstrap token is kept alive until `input.deadline`.
        """
        target = input.target
        try:
            vm = await self._look(target, diagnose=True)
        except DriverError as e:
            if e.error_class != ErrorClass.NOT_FOUND:
                raise
            # By the server's clock, taken before the read.
            if activity.info().started_time - input.since < target.consistency:
                raise NotYet(f"{target.provider_id} is not visible yet: {e.message}", input.interval) from None
            return StatusOutput(gone=True, message=e.message)
        if vm.state in (VmState.STOPPING, VmState.STOPPED, VmState.TERMINATING):
            return StatusOutput(gone=vm.state == VmState.TERMINATING, message=f"{vm.provider_id} is {vm.state}")
        joining = await why_not_joined(self.deps.clusters, input, vm.provider_id)
        again = until_next_look(activity.info().attempt, RAREST * input.interval, first=input.interval)
        raise NotYet(_words(vm, joining), again)

    @activity.defn
    async def look_at_vm(self, input: VmLookInput) -> VmLook:
        """Looks at the VM afresh, by id; without this no machine is Failed. Only the cloud's own "not found" is `gone`:
        whatever else goes wrong is an error."""
        try:
            vm = await self._look(input.target, diagnose=input.diagnose)
        except DriverError as e:
            if e.error_class != ErrorClass.NOT_FOUND:
                raise
            return VmLook(state=GONE, message=e.message)
        joining = "" if input.attempt is None else await why_not_joined(self.deps.clusters, input, vm.provider_id)
        return VmLook(state=str(vm.state), message=_words(vm), joining=joining, account_id=vm.account_id)

    @activity.defn
    async def delete_machine(self, input: DeleteInput) -> DeleteOutput:
        """Makes one pass per attempt, or a look while the VM shuts down, until it is gone. Where no VM was ever asked
        for, none is looked for: what kept it from being asked for, a missing Secret, would keep it from being looked
        for, too."""
        known = input.asked or input.target.provider_id is not None
        if not known and await began_here(self.deps.client):
            return DeleteOutput()
        return await delete_until_gone(self.deps, input.target)

    async def _report(self, input: CreateInput, state: UpdateState, applied: int, time: datetime) -> None:
        """Reports how far the machine is with its class; a machine that nobody applied as a class has nobody to tell.

        `time` comes from one clock for both reports of an activity: with two, the later report may carry the earlier
        time.
        """
        if not input.class_name:
            return
        machine = input.target.machine
        report = ClassReport(user=machine.name, generation=input.generation, applied=applied, state=state, time=time)
        await report_progress(self.deps.client, ClassId(cluster=machine.cluster, name=input.class_name), report)

    async def _look(self, target: Target, diagnose: bool = False) -> MachineStatus:
        return await self.deps.call(
            self.deps.driver(target.provider).get_machine_status,
            GetMachineStatusRequest,
            target,
            provider_id=target.provider_id,
            token=target.token,
            diagnose=diagnose,
        )

    async def _find(self, target: Target, takes: str) -> MachineStatus | None:
        """The VM that is there already: found by its uid; or by its name, the one that a run of this workflow made
        before it was reset, or that a person wants to be taken over."""
        try:
            return await self._look(target)
        except NameTaken as e:
            vm, *more = e.vms
            if more or not vm.uid or not (vm.uid == takes or await cut_off(self.deps.client, vm.uid)):
                raise
            return vm
        except DriverError as e:
            if e.error_class == ErrorClass.NOT_FOUND:
                return None
            raise

    async def _lost(self, target: Target) -> CreateOutput | None:
        """The VM that the machine knew before it was reset and that the account which made it no longer finds: no
        second one is made under its uid. None where it never knew one.

        Raises DriverError where that account cannot be asked, and where it does find the VM, without the machine's
        tags.
        """
        known = await former_vm(self.deps.client, target.machine.uid)
        if known is None:
            return None
        where = {"provider_id": known.provider_id, "account_id": known.account_id or target.account_id}
        try:
            vm = await self._look(target.model_copy(update=where))
        except DriverError as e:
            if e.error_class != ErrorClass.NOT_FOUND:
                raise
            return known.model_copy(update={"gone": True, "stale_node": None, "stale": None})
        words = f"{vm.provider_id} belonged to this machine before the reset, but its tags no longer say so"
        raise DriverError(ErrorClass.CONFLICT, f"{words}: correct its tag {TAG_UID} to {target.machine.uid}")

    async def _landed(self, target: Target, takes: str) -> MachineStatus | None:
        """What the call of an earlier try has made after all: it may be on its way for as long as a driver waits for an
        answer. After that the deletion's own looks go on for the lag of the cloud's reads."""
        if activity.info().attempt == 1:
            return None
        await asyncio.sleep(self.deps.cloud_settings(target.provider).call_timeout.total_seconds())
        return await self._find(target, takes)

    async def _adopt(self, kube: Kube, input: CreateInput, target: Target, vm: MachineStatus) -> Target:
        """The target with the uid that the VM carries: a VM whose node has not joined yet needs the token of that
        uid."""
        if vm.uid in (None, "", target.machine.uid):
            return target
        await revoke_tokens(kube, target.machine, input.attempt)
        target = target.model_copy(update={"machine": target.machine.model_copy(update={"uid": vm.uid})})
        await ensure_token(kube, target.machine, input.attempt, input.deadline)
        return target

    async def _stale_node(self, kube: Kube, input: CreateInput, vm: MachineStatus) -> StaleNode | None:
        """The Node that a new VM would be mistaken for: clouds reuse the private DNS names of dead VMs (MCM #633).

        None when the name is the machine's own: such a node may have joined before the create call answered (MCM #707).
        """
        if not vm.node_name or vm.node_name == input.target.machine.name:
            return None
        try:
            node = await kube.find(node_path(vm.node_name))
        except KubeError as e:  # the one thing that nobody else can say at this point
            words = f"{e.message}; {vm.provider_id} exists, and counts once node {vm.node_name} has been checked"
            raise KubeError(e.status, e.reason, words, e.retry_after) from None
        if node is None:
            return None
        created = datetime.fromisoformat(node["metadata"]["creationTimestamp"])
        if is_of(node, vm.provider_id):
            return None
        provider_id = provider_id_of(node)
        if created >= input.started.replace(microsecond=0):  # the API server cuts its times to whole seconds
            return None
        return StaleNode(name=vm.node_name, uid=node["metadata"]["uid"], provider_id=provider_id)

    async def _announce(self, input: CreateInput) -> None:
        """Tells the cluster in which account the VM is, for its watches."""
        use = AccountUse(machine_class=input.class_name, account=account_of(input.target))
        await use_account(self.deps, input.target.machine.cluster, use)


def _words(vm: MachineStatus, *more: str) -> str:
    """The VM's state, what else is known, the cloud's health checks, and last, as it is the longest, the console.

    They become a failure's message, which every look writes again: the console's beginning is cut first.
    """
    words = [f"{vm.provider_id} is {vm.state}", *more]
    if vm.impaired:
        words.append(f"the cloud says: {vm.impaired}")
    text = "; ".join(words)[:MESSAGE_LENGTH]
    room = MESSAGE_LENGTH - len(text)
    return f"{text}; console: {vm.console[-room:]}" if vm.console and room > 0 else text

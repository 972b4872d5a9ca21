"""One pass of a deletion: release what the spec keeps, terminate, clear what stayed behind, say what is left.

Level-triggered: each pass reads what may matter and does what is due, so that it may stop anywhere and be repeated.
What is kept is protected before anything dies: TAG_RELEASED is written and *read back* before the VM is terminated.
After that EC2 no longer says which volume was to be kept, and a lost reply or lagging tags must not turn it into a
leftover.

Calls are an account's scarcest good, so volumes and interfaces are read only where they can matter: before the VM is
terminated if any of them may outlive it, and once it has ended. Meanwhile a pass reads instances alone.
"""

from __future__ import annotations

from typing import Any

from drivers.aws import belongings, instances
from drivers.aws.belongings import Belonging
from drivers.aws.calls import Ec2, Resource
from drivers.aws.tags import tags_of
from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Evidence
from drivers.errors import DriverError
from drivers.failures import combine
from drivers.tags import released_value
from resources.clouds.aws.spec import TAG_RULES
from resources.clouds.base import OUR_TAGS
from resources.errors import ErrorClass
from resources.names import TAG_RELEASED, TAG_UID


def delete_machine(ec2: Ec2, request: DeleteMachineRequest) -> DeleteMachineResponse:
    """Makes one pass. After an error it goes on with the other resources, and raises one combined error at the end."""
    return _Pass(ec2, request).run()


class _Pass:
    def __init__(self, ec2: Ec2, request: DeleteMachineRequest) -> None:
        self.ec2 = ec2
        self.request = request
        self.machine = request.machine
        self.left: list[str] = []
        self.going: list[str] = []
        self.errors: list[DriverError] = []

    def run(self) -> DeleteMachineResponse:
        found = self._instances()
        there = [i for i in found if instances.state_of(i) != instances.TERMINATED]
        if self._only_time(there):
            self.left += [f"{i['InstanceId']} {instances.state_of(i)}" for i in there]
            return self._response(found, kept=self.request.kept, going=self.request.going)
        mine = self._belongings(there)
        mine = self._release([b for b in mine if self._is_kept(b, bool(there))], mine)
        kept = [b for b in mine if b.is_released(self.machine)]
        protected = not any(self._is_kept(b, bool(there)) for b in mine)
        for instance in there:
            self._terminate(instance, protected)
        for belonging in mine:
            if belonging not in kept:
                self._clear(belonging, deletable=not there and protected)
        if self.errors:
            raise combine(self.errors)
        going = self.going if len(self.going) == len(there) else []
        return self._response(found, kept=[b.id for b in kept], going=going)

    def _response(self, found: list[Resource], kept: list[str], going: list[str]) -> DeleteMachineResponse:
        return DeleteMachineResponse(
            evidence=self._evidence(found),
            left=self.left,
            kept=kept,
            account_id=next((i[instances.OWNER_ID] for i in found), ""),
            vms={self._id(i): instances.node_name(i) for i in found},
            going=going,
        )

    def _id(self, instance: Resource) -> str:
        return instances.provider_id(instance, self.ec2.region)

    def _only_time(self, there: list[Resource]) -> bool:
        """Whether all that is there is on its way out, and an earlier pass has protected what outlives it."""
        return bool(there) and not any(instances.is_living(i) or self._id(i) not in self.request.going for i in there)

    def _belongings(self, there: list[Resource]) -> list[Belonging]:
        """What the machine has beside its VMs, as far as it matters now.

        While a VM is there nothing is cleared, and what dies with it needs no protection: then only what may outlive it
        is read. What was released before carries no uid any more. It is looked for, so that it is named, unless an
        earlier pass has seen that there is none.
        """
        spec = self.request.provider_spec
        keeps = any(belongings.spec_keeps(spec, kind) for kind in belongings.KINDS)
        if there and not keeps and not any(map(belongings.outlive, there)):
            return []
        released = keeps or bool(self.request.kept) or not self.request.going
        return belongings.of_machine(self.ec2, self.machine, released)

    def _instances(self) -> list[Resource]:
        """The machine's instances, by uid; and by token and by id those that this misses, as tags may be visible later
        than their VM.

        Raises DriverError of class conflict for another machine's VM.
        """
        uid, token = self.machine.uid, self.request.token
        found = instances.by_uid(self.ec2, uid)
        if token and not any(i.get("ClientToken") == token for i in found.values()):
            found |= instances.by_token(self.ec2, token)
        wanted = instances.instance_id(self.request.provider_id) if self.request.provider_id else None
        if wanted and wanted not in found:
            instance = instances.by_id(self.ec2, wanted)
            if instance is not None:
                found[wanted] = instance
        for instance in found.values():
            owner = tags_of(instance).get(TAG_UID, uid)
            if owner != uid and instances.state_of(instance) != instances.TERMINATED:
                raise DriverError(
                    ErrorClass.CONFLICT,
                    f"{instance['InstanceId']} is not deleted: its tag {TAG_UID}={owner} says that it belongs to "
                    f"another machine, not to {self.machine.name} (uid {uid}); correct the tag or the providerID",
                )
        return [found[k] for k in sorted(found)]

    def _is_kept(self, belonging: Belonging, vm_there: bool) -> bool:
        """Whether the belonging outlives the machine and is not released yet.

        While something holds it, the attachment decides: it is what EC2 itself will do. When nothing does, the VM died
        behind our back or a person detached it. EC2 would have deleted it with the VM unless it was to be kept, so it
        is kept where the spec keeps any of its kind: a volume too many is named and tagged, one too few is lost.
        """
        if belonging.is_released(self.machine):
            return False
        if belonging.dies_with_vm is not None:
            return not belonging.dies_with_vm
        return not vm_there and belongings.spec_keeps(self.request.provider_spec, belonging.kind)

    def _release(self, keep: list[Belonging], mine: list[Belonging]) -> list[Belonging]:
        """Tags what is kept, reads it back, then takes our own tags off. Returns what is there now."""
        if keep:
            pair = {"Key": TAG_RELEASED, "Value": released_value(TAG_RULES, self.machine)}
            self._try("CreateTags", Resources=[b.id for b in keep], Tags=[pair])
            mine = belongings.of_machine(self.ec2, self.machine)
        ours = [b.id for b in mine if b.is_released(self.machine) and b.has_our_tags]
        if ours:
            self._try("DeleteTags", Resources=ours, Tags=[{"Key": key} for key in OUR_TAGS])
        return mine

    def _try(self, operation: str, **parameters: Any) -> None:
        try:
            self.ec2.call(operation, **parameters)
        except DriverError as e:
            if e.error_class is not ErrorClass.NOT_FOUND:  # somebody else deleted it; the next pass sees that
                self.errors.append(e)

    def _terminate(self, instance: Resource, protected: bool) -> None:
        vm = instance["InstanceId"]
        state = instances.state_of(instance)
        if not protected:
            state += ", waits for the tags of what is kept"
        elif instances.is_living(instance):
            try:
                state = self._told_to_go(vm) or state
            except DriverError as e:
                self.errors.append(e)
        self.left.append(f"{vm} {state}")
        if state == instances.SHUTTING_DOWN:
            self.going.append(self._id(instance))

    def _told_to_go(self, vm: str) -> str | None:
        """The state that TerminateInstances answers; None when EC2 does not know the VM, as the next pass will see."""
        try:
            changes = self.ec2.call("TerminateInstances", InstanceIds=[vm]).get("TerminatingInstances", ())
            return next((c["CurrentState"]["Name"] for c in changes if c["InstanceId"] == vm), None)
        except DriverError as e:
            if e.provider_code == instances.NOT_FOUND:
                return None
            failure = self._explained(vm, e)
        if failure is not None:
            raise failure
        return None

    def _explained(self, vm: str, error: DriverError) -> DriverError | None:
        # Never switched off by us: somebody has said that this VM must not go.
        if error.provider_code == "OperationNotPermitted" and "disableApiTermination" in error.message:
            return DriverError(
                ErrorClass.CONFLICT,
                f"{vm} has termination protection, so EC2 does not end it: whoever set it must remove it, with `aws "
                f"ec2 modify-instance-attribute --region {self.ec2.region} --instance-id {vm} "
                "--no-disable-api-termination`; then the deletion continues on its own",
                provider_code=error.provider_code,
            )
        # Where IAM allows termination by tag, EC2 says "unauthorized" for a VM that is gone (runs-on#60): look again.
        if error.error_class is ErrorClass.AUTH and not self._is_there(vm):
            return None
        return error

    def _is_there(self, vm: str) -> bool:
        instance = instances.by_uid(self.ec2, self.machine.uid).get(vm) or instances.by_id(self.ec2, vm)
        return instance is not None and instances.state_of(instance) != instances.TERMINATED

    def _clear(self, belonging: Belonging, deletable: bool) -> None:
        """Deletes a leftover: what nothing holds any longer, once no VM is there. During a launch a volume is held by
        nothing for a moment; what dies with the VM is EC2's to delete."""
        if deletable and belonging.dies_with_vm is None and belonging.state not in ("deleting", "in-use"):
            try:
                belongings.delete(self.ec2, belonging)
                self.left.append(f"{belonging.id} deleting")
                return
            except DriverError as e:
                if e.provider_code in belongings.GONE:
                    return
                if e.provider_code not in belongings.IN_USE:
                    self.errors.append(e)
        self.left.append(str(belonging))

    def _evidence(self, found: list[Resource]) -> Evidence:
        """The evidence. `terminated` comes only from the very VM: that of an earlier attempt says nothing about one
        that reads do not show yet."""
        if self.left:
            return Evidence.PRESENT
        provider_id, token = self.request.provider_id, self.request.token
        if provider_id:
            proven = any(i["InstanceId"] == instances.instance_id(provider_id) for i in found)
        else:
            proven = any(token and i.get("ClientToken") == token for i in found)
        return Evidence.TERMINATED if proven else Evidence.NOT_FOUND

"""One pass of a deletion: release what the spec keeps, delete the VM, clear what stayed behind, say what is left.

Level-triggered: each pass reads what may matter and does what is due, so that it may stop anywhere and be repeated.
What is kept is protected before anything dies: it carries the mark of a released disk, and no longer the machine's
uid, before its VM is deleted. After that nobody says any more which disk was to be kept.

Calls are an account's scarcest good: a VM whose disks all go with it costs one read and one call, and disks are looked
for only once it has ended. Meanwhile it is seen in a listing of all VMs that go (`going`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Evidence
from drivers.errors import DriverError
from drivers.failures import about, combine
from drivers.gcp import belongings, instances, operations
from drivers.gcp.belongings import DiskOfMachine
from drivers.gcp.calls import NOT_READY, Gce, Resource
from drivers.gcp.instances import STOPPING, VmId
from drivers.gcp.tags import KEY_UID
from drivers.operations import Deletions
from resources.clouds.gcp.names import is_name
from resources.errors import ErrorClass


def delete_machine(gce: Gce, request: DeleteMachineRequest) -> DeleteMachineResponse:
    """Makes one pass. After an error it goes on with the other resources, and raises one combined error at the end."""
    return _Pass(gce, request).run()


class _Pass:
    def __init__(self, gce: Gce, request: DeleteMachineRequest) -> None:
        self.gce = gce
        self.request = request
        self.machine = request.machine
        self.zone = instances.zone_of(request.provider_spec, request.provider_id)
        self.left: list[str] = []
        self.going: list[str] = []
        self.deletions = Deletions(request.begun, partial(operations.course, gce, self.zone))
        self.errors: list[DriverError] = []

    def run(self) -> DeleteMachineResponse:
        vms = self._instances()
        if vms and all(instances.status_of(i) == STOPPING and self._id(i) in self.request.going for i in vms):
            self.left += [f"{i['name']} {STOPPING}" for i in vms]
            for instance in vms:
                self.deletions.keep(instance["name"])
            return self._response(vms, kept=self.request.kept, going=self.request.going)
        mine = self._disks(vms)
        keep = [d for d in mine if self._is_kept(d, vms)]
        for disk in keep:
            self._release(disk)
        unprotected = bool(keep)  # the next pass reads them back
        kept = [d.name for d in mine if d.is_released(self.machine)]
        for instance in vms:
            self._delete(instance, unprotected)
        for disk in mine:
            if disk.name not in kept:
                self._clear(disk, deletable=not vms and disk not in keep)
        if self.errors:
            raise combine(self.errors)
        return self._response(vms, kept=kept, going=self.going if len(self.going) == len(vms) else [])

    def _response(self, vms: list[Resource], kept: list[str], going: list[str]) -> DeleteMachineResponse:
        return DeleteMachineResponse(
            evidence=self._evidence(),
            left=self.left,
            kept=kept,
            account_id=self.gce.project if vms else "",
            vms={self._id(i): i["name"] for i in vms},
            going=going,
            begun=self.deletions.begun,
        )

    def _id(self, instance: Resource) -> str:
        return str(VmId(self.gce.project, self.zone, instance["name"]))

    def _instances(self) -> list[Resource]:
        """The machine's VM: that of the providerID, and the one with the machine's name, where it carries the uid.

        Raises DriverError of class conflict where the providerID is another machine's VM.
        """
        given, found = self.request.provider_id, {}
        if given and (instance := instances.by_id(self.gce, given)):
            owner = instances.uid_of(instance) or self.machine.uid
            if owner != self.machine.uid:
                raise DriverError(
                    ErrorClass.CONFLICT,
                    f"{instance['name']} is not deleted: its label {KEY_UID}={owner} says that it belongs to "
                    f"another machine, not to {self.machine.name} (uid {self.machine.uid}); correct the label or the "
                    "providerID",
                )
            found[instance["name"]] = instance
        name = self.machine.name
        if is_name(name) and (not given or VmId.of(given).name != name):
            instance = instances.by_name(self.gce, self.zone, name)
            if instance is not None and instances.uid_of(instance) == self.machine.uid:
                found[name] = instance
        return [found[k] for k in sorted(found)]

    def _disks(self, vms: list[Resource]) -> list[DiskOfMachine]:
        """What the machine has beside its VM, as far as it matters now: while the VM is there, only what may outlive
        it."""
        keeps = belongings.spec_keeps(self.request.provider_spec) or bool(self.request.kept)
        if vms and not keeps and not any(name for i in vms for name in belongings.outlive(i)):
            return []
        return belongings.of_machine(self.gce, self.zone, self.machine)

    def _is_kept(self, disk: DiskOfMachine, vms: list[Resource]) -> bool:
        """Whether the disk outlives the machine and is not released yet.

        While a VM has it, its attachment decides: it is what Google itself will do. When none does, the VM died behind
        our back or a person detached it. Google would have deleted it with the VM unless it was to be kept, so it is
        kept where the spec keeps any, and a VM has ever had it: a disk too many is named and labelled, one too few is
        lost.
        """
        if disk.is_released(self.machine):
            return disk.has_our_labels
        if disk.attached:
            return any(disk.name in belongings.outlive(i) for i in vms)
        return not vms and disk.was_used and belongings.spec_keeps(self.request.provider_spec)

    def _release(self, disk: DiskOfMachine) -> None:
        try:
            belongings.set_labels(self.gce, self.zone, disk, disk.released_labels(self.machine))
        except DriverError as e:
            if e.error_class is not ErrorClass.NOT_FOUND:  # somebody else deleted it; the next pass sees that
                self.errors.append(about(e, [disk.name]))

    def _delete(self, instance: Resource, unprotected: bool) -> None:
        name, status = instance["name"], instances.status_of(instance)
        if unprotected:
            self.left.append(f"{name} {status}, waits for the labels of what is kept")
            return
        try:
            if self._told_to_go(instance):
                status = STOPPING
                self.going.append(self._id(instance))
        except DriverError as e:
            self.errors.append(about(e, [name]))
        self.left.append(f"{name} {status}")

    def _told_to_go(self, instance: Resource) -> bool:
        """Whether it goes now; False for a VM that is gone already, as the next pass will see.

        It is named by its number, which no other VM ever has: its name may be the next life's a moment later.
        """
        if instance.get("deletionProtection"):
            self._lift_protection(instance)
        status = instances.status_of(instance)
        if status != STOPPING and self.deletions.goes_on(instance["name"]):
            return True  # its status is late
        try:
            begun = self.gce.call("instances.delete", zone=self.zone, instance=str(instance["id"]))
            self.deletions.add(operations.begun_by("instances.delete", instance["name"], begun))
        except DriverError as e:
            if e.provider_code in belongings.GONE:
                return False
            if e.provider_code not in NOT_READY or status != STOPPING:
                raise
        self.gce.dying.put(str(instance["id"]), True)
        return True

    def _lift_protection(self, instance: Resource) -> None:
        """Lifts the protection from deletion where the class has set it: it was against others. One that the class does
        not ask for is a person's, who has said that this VM must not go."""
        spec: dict[str, Any] = self.request.provider_spec
        if True not in (spec.get("deletionProtection"), spec.get("deletion_protection")):
            name, place = instance["name"], f"--project {self.gce.project} --zone {self.zone}"
            raise DriverError(
                ErrorClass.CONFLICT,
                f"{name} has deletion protection, and not by its class, so it is not deleted: whoever set it must "
                f"remove it, with `gcloud compute instances update {name} {place} --no-deletion-protection`; then the "
                "deletion continues on its own",
            )
        operation, number = "instances.setDeletionProtection", str(instance["id"])
        begun = self.gce.call(operation, zone=self.zone, resource=number, deletion_protection=False)
        self.gce.finish(operation, begun, self.zone)

    def _clear(self, disk: DiskOfMachine, deletable: bool) -> None:
        """Deletes a leftover: what nothing holds any longer, once no VM is there."""
        if deletable and not disk.attached and disk.state != "DELETING":
            try:
                if not self.deletions.goes_on(disk.name):
                    self.deletions.add(belongings.delete(self.gce, self.zone, disk))
                self.left.append(f"{disk.name} deleting")
                return
            except DriverError as e:
                if e.provider_code in belongings.GONE:
                    return
                if e.provider_code not in belongings.IN_USE:
                    self.errors.append(about(e, [disk.name]))
        self.left.append(str(disk))

    def _evidence(self) -> Evidence:
        """The evidence. `terminated` comes only from the operation that deleted the very VM that the token made: where
        Google shows no VM, it may be another life's that is gone, or ours that reads do not show yet."""
        if self.left:
            return Evidence.PRESENT
        given, token = self.request.provider_id, self.request.token
        elsewhere = given is not None and VmId.of(given).project != self.gce.project
        if not token or elsewhere or not is_name(self.machine.name):
            return Evidence.NOT_FOUND
        name = VmId.of(given).name if given else self.machine.name
        proven = operations.deletion_of(self.gce, self.zone, name, token)
        return Evidence.TERMINATED if proven else Evidence.NOT_FOUND

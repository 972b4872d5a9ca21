"""The disks of a VM's body: which are made for it, which are attached, and what goes with the VM at its end."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.disks import EMPTY_SIZE, Disk, Disks, read_sku
from simulator.clouds.arm.errors import ArmError, invalid, unsupported
from simulator.clouds.arm.identifiers import DISKS, Id, key_of, parse_as
from simulator.clouds.arm.images import Images
from simulator.clouds.arm.machines import Machine
from simulator.clouds.arm.wire import Row
from simulator.clouds.arm.world import VmSize


@dataclass
class NewDisk:
    id: Id
    size: int
    sku: str
    creation: Row
    os_type: str | None = None
    encryption_set: str | None = None


@dataclass
class Storage:
    """A storage profile, checked and completed: nothing of it has been done yet."""

    profile: Row
    made: list[NewDisk] = field(default_factory=list)
    attached: list[Disk] = field(default_factory=list)


class StorageReader:
    def __init__(self, context: Context, disks: Disks, images: Images) -> None:
        self._context = context
        self._disks = disks
        self._images = images

    def read(self, vm: Id, zones: list[str], profile: Row, size: VmSize, before: Machine | None) -> Storage:
        storage = Storage(profile={k: v for k, v in profile.items() if k not in ("osDisk", "dataDisks")})
        reference = profile.get("imageReference") or {}
        storage.profile["osDisk"] = self._os_disk(storage, vm, profile.get("osDisk") or {}, reference, size, before)
        data = profile.get("dataDisks") or []
        if len(data) > size.data_disks:
            raise ArmError(
                "OperationNotAllowed",
                f"The maximum number of data disks allowed to be attached to a VM of this size is {size.data_disks}.",
                target="dataDisks",
            )
        luns = [d.get("lun") for d in data]
        for lun in luns:
            if lun is None or not 0 <= lun < 64 or luns.count(lun) > 1:
                raise invalid(
                    "dataDisk.lun", f"A data disk at LUN {lun} is given twice, or the LUN is not from 0 to 63."
                )
        rows = [self._data_disk(storage, vm, zones, d, size, before) for d in data if not d.get("toBeDetached")]
        storage.profile["dataDisks"] = rows
        return storage

    def make(self, storage: Storage, vm: Machine, before: list[Row], tags: dict[str, str]) -> None:
        """Makes and attaches. A disk that is made gets the tags that its VM has at that time; later ones are its own
        (seen by many users of Azure, who have to tag disks on their own)."""
        for new in storage.made:
            disk = self._disks.make(
                new.id,
                location=vm.location,
                zones=vm.zones,
                tags=tags,
                size=new.size,
                sku=new.sku,
                creation=new.creation,
                os_type=new.os_type,
                encryption_set=new.encryption_set,
            )
            disk.vm_id = vm.id
        for disk in storage.attached:
            disk.vm_id = vm.id
        kept = {disk.key for disk in self._disks.of(vm.disks)}
        for disk in self._disks.of(before):
            if disk.key not in kept:
                disk.vm_id = None

    def _os_disk(
        self, storage: Storage, vm: Id, given: Row, reference: Row, size: VmSize, before: Machine | None
    ) -> Row:
        if before is not None:
            has: Row = before.disks[0]
            row = {**has, **{k: v for k, v in given.items() if k in ("deleteOption", "caching", "diskSizeGB")}}
            storage.profile.setdefault("imageReference", before.properties["storageProfile"]["imageReference"])
            return row
        option = given.get("createOption")
        if option != "FromImage":
            raise unsupported(f"the createOption '{option}' of OS disks")
        image = self._images.platform(reference)
        if image is not None:
            storage.profile["imageReference"] = {**reference, "exactVersion": _exact(reference, image.versions)}
            if image.architecture != size.architecture:
                raise ArmError(
                    "BadRequest",
                    f"The selected VM size cannot boot with OS image architecture '{image.architecture}': it is a "
                    "size of "
                    f"'{size.architecture}'.",
                )
        least = self._images.size_of(reference)
        gb = int(given.get("diskSizeGB") or least)
        if gb < least:
            raise invalid(
                "osDisk.diskSizeGB",
                f"The specified disk size {gb} GB is smaller than the size of the corresponding disk in the VM image: "
                f"{least} GB. This is not allowed.",
            )
        name = given.get("name") or f"{vm.name}_OsDisk_1_{secrets.token_hex(16)}"
        new = self._new(vm, name, gb, given, size, {"createOption": "FromImage", "imageReference": dict(reference)})
        new.os_type = "Linux"
        storage.made.append(new)
        return _completed(given, new, osType="Linux")

    def _data_disk(
        self, storage: Storage, vm: Id, zones: list[str], given: Row, size: VmSize, before: Machine | None
    ) -> Row:
        has = [d for d in before.disks[1:] if d["lun"] == given["lun"]] if before else []
        wanted = (given.get("managedDisk") or {}).get("id")
        if has and (wanted is None or key_of(wanted) == key_of(has[0]["managedDisk"]["id"])):
            return {**has[0], **{k: v for k, v in given.items() if k in ("deleteOption", "caching")}}
        match given.get("createOption"):
            case "Empty":
                if not given.get("diskSizeGB"):
                    raise invalid("dataDisk.diskSizeGB", "Required parameter 'dataDisk.diskSizeGB' is missing (null).")
                gb = max(EMPTY_SIZE, int(given["diskSizeGB"]))
                name = given.get("name") or f"{vm.name}_disk{given['lun'] + 2}_{secrets.token_hex(16)}"
                new = self._new(vm, name, gb, given, size, {"createOption": "Empty"})
                storage.made.append(new)
                return _completed(given, new)
            case "Attach":
                disk = self._attachable(vm, zones, wanted)
                storage.attached.append(disk)
                managed = {"id": disk.id, "storageAccountType": disk.sku}
                row = {"caching": "None", "deleteOption": "Detach", **given, "name": disk.name, "managedDisk": managed}
                return {**row, "diskSizeGB": disk.size_gb}
            case other:
                raise unsupported(f"the createOption '{other}' of data disks")

    def _new(self, vm: Id, name: str, gb: int, given: Row, size: VmSize, creation: Row) -> NewDisk:
        id = Id(vm.subscription, vm.group, DISKS, name)
        if id.key in self._disks.store.records:
            raise ArmError(
                "ConflictingUserInput",
                f"Disk {name} already exists in resource group {vm.group.upper()}. Only CreateOption.Attach is "
                "supported.",
                target=str(id),
            )
        managed = given.get("managedDisk") or {}
        sku = read_sku(managed.get("storageAccountType") or ("Premium_LRS" if size.premium_disks else "Standard_LRS"))
        if sku.startswith("Premium") and not size.premium_disks:
            raise invalid("managedDisk.storageAccountType", f"Requested operation cannot be performed: {sku}.")
        return NewDisk(id, gb, sku, creation, encryption_set=(managed.get("diskEncryptionSet") or {}).get("id"))

    def _attachable(self, vm: Id, zones: list[str], wanted: object) -> Disk:
        id = parse_as(DISKS, wanted)
        disk = self._disks.store.records.get(id.key)
        if disk is None:
            raise ArmError("NotFound", f"Managed disk {id} is not found.")
        if disk.vm_id and key_of(disk.vm_id) != vm.key:
            raise ArmError(
                "ConflictingUserInput",
                f"Disk '{disk.id}' cannot be attached as the disk is already owned by VM '{disk.vm_id}'.",
            )
        if disk.provisioning not in ("Succeeded", "Updating"):
            raise ArmError("OperationNotAllowed", f"Disk {disk.name} cannot be attached: it is {disk.provisioning}.")
        if disk.zones != zones and not disk.sku.endswith("ZRS"):
            raise ArmError(
                "BadRequest",
                f"Disk {disk.id} cannot be attached to the VM because it is not in zone '{','.join(zones)}' of the VM.",
            )
        return disk


def _completed(given: Row, new: NewDisk, **more: str) -> Row:
    managed = {**(given.get("managedDisk") or {}), "id": str(new.id), "storageAccountType": new.sku}
    row = {"caching": "None", "deleteOption": "Detach", **given, "name": new.id.name, "diskSizeGB": new.size}
    return {**row, "managedDisk": managed, **more}


def _exact(reference: Row, versions: tuple[str, ...]) -> str:
    return versions[-1] if reference.get("version") == "latest" else str(reference["version"])

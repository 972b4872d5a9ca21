"""Managed disks: made with VMs and on their own, kept or deleted when their VM goes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, invalid, unsupported
from simulator.clouds.arm.identifiers import DISKS, Id, check_name, key_of, parse_as
from simulator.clouds.arm.images import Images
from simulator.clouds.arm.operations import Operation, Operations
from simulator.clouds.arm.resources import ArmResource, ArmStore, check_conditions, check_location, read_tags
from simulator.clouds.arm.wire import Answer, ArmCall, Row, page, timestamp

SKUS = (
    "Standard_LRS",
    "StandardSSD_LRS",
    "StandardSSD_ZRS",
    "Premium_LRS",
    "Premium_ZRS",
    "PremiumV2_LRS",
    "UltraSSD_LRS",
)
LARGEST = 65536
"""GB."""
EMPTY_SIZE = 1


class Disk(ArmResource):
    size_gb: int
    sku: str
    creation: Row
    """creationData, as it was given or as the VM implies it."""
    os_type: str | None = None
    unique_id: str = ""
    vm_id: str | None = None
    running: bool = True
    """Whether its VM holds it in use, which it does unless it is deallocated."""
    encryption_set: str | None = None

    @property
    def state(self) -> str:
        if self.vm_id is None:
            return "Unattached"
        return "Attached" if self.running else "Reserved"


class Disks:
    def __init__(self, context: Context, operations: Operations, images: Images) -> None:
        self._context = context
        self._operations = operations
        self._images = images
        self.store: ArmStore[Disk] = ArmStore(context, DISKS)

    def row(self, disk: Disk, written: bool = False) -> Row:
        properties: Row = {
            "provisioningState": disk.provisioning,
            "diskSizeGB": disk.size_gb,
            "diskSizeBytes": disk.size_gb * 2**30,
            "diskState": disk.state,
            "creationData": disk.creation,
            "timeCreated": timestamp(disk.created.at),
            "uniqueId": disk.unique_id,
        }
        if disk.os_type:
            properties["osType"] = disk.os_type
        if disk.encryption_set:
            properties["encryption"] = {
                "type": "EncryptionAtRestWithCustomerKey",
                "diskEncryptionSetId": disk.encryption_set,
            }
        row = {
            **self.store.head(disk, written),
            "sku": {"name": disk.sku, "tier": disk.sku.split("_")[0]},
            "properties": properties,
        }
        if disk.vm_id:
            row["managedBy"] = disk.vm_id
        return row

    # -------------------------------------------------------------------------------------------- operations

    def get(self, call: ArmCall) -> Answer:
        return Answer(body=self.row(self.store.find(call.id(DISKS))))

    def list_all(self, call: ArmCall) -> Answer:
        return page(self.store.listed(call), call, self._context.page, lambda d: d.key, self.row)

    def create_or_update(self, call: ArmCall) -> Answer:
        """A PUT on one that exists changes what `update` does."""
        id = call.id(DISKS)
        check_name(DISKS, id.name)
        existing = self.store.records.get(id.key)
        check_conditions(call, existing)
        location = check_location(call, self._context, existing)
        if existing is not None:
            return self._change(call, existing, read_tags(call.body))
        tags, properties = read_tags(call.body), call.body.get("properties") or {}
        creation = properties.get("creationData") or {}
        least = self._least(creation)
        disk = self.make(
            id,
            location=location,
            zones=read_zones(call.body, self._context),
            tags=tags,
            size=_read_size(properties, least),
            sku=read_sku((call.body.get("sku") or {}).get("name", "Standard_LRS")),
            creation=creation,
            os_type=properties.get("osType"),
            encryption_set=(properties.get("encryption") or {}).get("diskEncryptionSetId"),
        )
        return self._begin(call, disk, "create", 202)

    def update(self, call: ArmCall) -> Answer:
        disk = self.store.find(call.id(DISKS))
        check_conditions(call, disk)
        return self._change(call, disk, read_tags(call.body) if "tags" in call.body else disk.tags)

    def delete(self, call: ArmCall) -> Answer:
        disk = self.store.records.get(call.id(DISKS).key)
        if disk is None:
            return Answer(204)
        if disk.vm_id:
            raise ArmError("OperationNotAllowed", f"Disk {disk.name} is attached to VM {disk.vm_id}.")
        operation = self._operations.going(disk.key)
        if operation is None or operation.verb != "delete":
            disk.provisioning = "Deleting"
            operation = self._operations.begin("delete", disk.key, self._context.delays.resource, call.fails)
        return Answer(202, headers=self._operations.links(operation, call), changed=[disk.id])

    def _change(self, call: ArmCall, disk: Disk, tags: dict[str, str]) -> Answer:
        if disk.provisioning == "Deleting":
            raise ArmError("OperationNotAllowed", f"Disk {disk.name} is being deleted.")
        properties = call.body.get("properties") or {}
        size = _read_size(properties, disk.size_gb)
        sku = read_sku((call.body.get("sku") or {}).get("name", disk.sku))
        if sku != disk.sku and disk.state == "Attached":
            raise ArmError(
                "OperationNotAllowed", f"Cannot change the sku of disk {disk.name} while it is attached to running VM."
            )
        disk.size_gb, disk.sku = size, sku
        disk.write_tags(tags, self._context.tagged())
        return self._begin(call, disk, "update", 202)

    def _begin(self, call: ArmCall, disk: Disk, verb: str, status: int) -> Answer:
        disk.provisioning = "Updating"
        operation = self._operations.begin(verb, disk.key, self._context.delays.resource, call.fails)
        self._operations.settle()
        return Answer(status, self.row(disk, written=True), self._operations.links(operation, call), changed=[disk.id])

    def finish(self, operation: Operation) -> None:
        disk = self.store.records.get(operation.target)
        if disk is None:
            return
        if operation.error is not None:
            disk.provisioning = "Failed"
        elif operation.verb == "delete":
            self.drop(disk.key)
        else:
            disk.provisioning = "Succeeded"

    def drop(self, key: str) -> None:
        self.store.records.pop(key, None)
        self._operations.forget_target(key)

    def _least(self, creation: Row) -> int:
        """GB that a disk of this origin has at the least."""
        match creation.get("createOption"):
            case "Empty":
                return EMPTY_SIZE
            case "FromImage":
                reference = creation.get("imageReference") or creation.get("galleryImageReference") or {}
                return self._images.size_of(reference)
            case "Copy":
                source = self.store.records.get(parse_as(DISKS, creation.get("sourceResourceId")).key)
                if source is None:
                    raise ArmError("NotFound", f"Resource {creation['sourceResourceId']} is not found.")
                return source.size_gb
            case None:
                raise invalid("disk.creationData.createOption", "Required parameter 'createOption' is missing (null).")
            case other:
                raise unsupported(f"creationData.createOption '{other}' of disks")

    # ------------------------------------------------------------------------------------------ for their VMs

    def make(
        self,
        id: Id,
        *,
        location: str,
        zones: list[str],
        tags: dict[str, str],
        size: int,
        sku: str,
        creation: Row,
        os_type: str | None = None,
        encryption_set: str | None = None,
    ) -> Disk:
        disk = Disk(
            id=str(id),
            created=self._context.created(),
            location=location,
            zones=zones,
            size_gb=size,
            sku=sku,
            creation=creation,
            os_type=os_type,
            unique_id=str(uuid.uuid4()),
            encryption_set=encryption_set,
        )
        disk.write_tags(tags, self._context.tagged())
        self.store.records[disk.key] = disk
        return disk

    def of(self, rows: Iterable[Row]) -> list[Disk]:
        """Those that a storage profile names."""
        found = (self.store.records.get(key_of(row["managedDisk"]["id"])) for row in rows)
        return [disk for disk in found if disk is not None]

    def release(self, rows: Iterable[Row], doomed: set[str]) -> None:
        """Their VM is gone: some are deleted, the others stay on their own."""
        for disk in self.of(rows):
            if disk.key in doomed:
                self.drop(disk.key)
            else:
                disk.vm_id = None


def read_zones(body: Row, context: Context) -> list[str]:
    zones = [str(z) for z in body.get("zones") or []]
    for zone in zones:
        if zone not in context.world.zones:
            raise ArmError(
                "InvalidAvailabilityZone",
                f"The zone(s) '{zone}' for resource is not supported. The supported zones for location "
                f"'{context.world.location}' are '{','.join(context.world.zones)}'",
            )
    if len(zones) > 1:
        raise ArmError("InvalidParameter", "Only one zone may be given.", target="zones")
    return zones


def _read_size(properties: Row, least: int) -> int:
    size = int(properties.get("diskSizeGB") or least)
    if size < least:
        raise invalid(
            "disk.diskSizeGB", f"The specified disk size {size} GB is smaller than the size {least} GB it has."
        )
    if size > LARGEST:
        raise invalid("disk.diskSizeGB", f"Disk size {size} GB is more than the largest of {LARGEST} GB.")
    return size


def read_sku(name: object) -> str:
    for sku in SKUS:
        if isinstance(name, str) and sku.lower() == name.lower():
            return sku
    raise invalid("disk.sku", f"The value '{name}' of parameter 'disk.sku' is invalid: {', '.join(SKUS)}.")

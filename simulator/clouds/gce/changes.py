"""Changes of an instance: labels, tags, metadata, interfaces, disks, protection, and what only a stopped one takes.

What is guarded by a fingerprint is compared twice, when the call comes (412 conditionNotMet) and when its operation
ends (CONDITION_NOT_MET): two callers that have read the same do not both succeed.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.clouds.gce.context import Context, Fingerprinted, Row
from simulator.clouds.gce.disks import STALE_LABELS, Disks, in_use
from simulator.clouds.gce.errors import GceError, OperationError, invalid, unsupported
from simulator.clouds.gce.fields import (
    AttachedDiskBody,
    InterfaceBody,
    LabelsBody,
    MachineResourcesBody,
    MachineTypeBody,
    MetadataBody,
    SchedulingBody,
    ServiceAccountBody,
    TagsBody,
    read,
)
from simulator.clouds.gce.images import Images
from simulator.clouds.gce.instances import Attachment, Instance, Instances
from simulator.clouds.gce.launch import accelerators_of, schedule
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import check_labels, check_metadata, check_tags, resolve
from simulator.clouds.gce.network import Interface, Networks
from simulator.clouds.gce.operations import Operation, Operations

STALE = {
    "setLabels": STALE_LABELS,
    "setTags": "Supplied fingerprint does not match current tags fingerprint.",
    "setMetadata": "Supplied fingerprint does not match current metadata fingerprint.",
    "updateNetworkInterface": "Supplied fingerprint does not match current network interface fingerprint.",
}


class Changes:
    def __init__(
        self, context: Context, operations: Operations, instances: Instances, disks: Disks, networks: Networks,
        images: Images,
    ) -> None:  # fmt: skip
        self._context = context
        self._operations = operations
        self._instances = instances
        self._disks = disks
        self._networks = networks
        self._images = images
        self.effects: dict[str, Callable[[Instance, Row], None]] = {
            "setLabels": lambda i, r: self._guarded("setLabels", i, r),
            "setTags": lambda i, r: self._guarded("setTags", i, r),
            "setMetadata": lambda i, r: self._guarded("setMetadata", i, r),
            "updateNetworkInterface": self._interface_updated,
            "setMachineType": lambda i, r: setattr(i, "machine_type", r["value"]),
            "setMachineResources": lambda i, r: setattr(i, "accelerators", r["value"]),
            "setServiceAccount": lambda i, r: setattr(i, "service_accounts", r["value"]),
            "setScheduling": lambda i, r: setattr(i, "scheduling", r["value"]),
            "setDeletionProtection": lambda i, r: setattr(i, "protected", r["value"]),
            "setDiskAutoDelete": self._auto_delete_set,
            "attachDisk": self._attached,
            "detachDisk": self._detached,
            "reset": lambda i, r: None,
        }

    def done(self, operation: Operation) -> None:
        """What a change's operation does at its end. Raises OperationError."""
        instance = self._instances.target(operation)
        if operation.error is None:
            self.effects[operation.type](instance, operation.request)

    def _begin(self, call: MethodCall, instance: Instance, **request: object) -> Operation:
        kind = call.method.id.partition(".")[2]
        return self._operations.begin(
            kind, instance.path, instance.id, delay=self._context.change_delay, query=call.query, request=request
        )

    # -- guarded by a fingerprint

    def set_labels(self, call: MethodCall) -> Operation:
        body = read(LabelsBody, call.body)
        check_labels(body.labels, "resource.labels")
        return self._set(call, body.labels, body.label_fingerprint)

    def set_tags(self, call: MethodCall) -> Operation:
        body = read(TagsBody, call.body)
        return self._set(call, check_tags(body.items), body.fingerprint)

    def set_metadata(self, call: MethodCall) -> Operation:
        body = read(MetadataBody, call.body)
        return self._set(call, check_metadata(body.row()["items"]), body.fingerprint)

    def _set(self, call: MethodCall, value: object, fingerprint: str | None) -> Operation:
        instance = self._instances.find_changeable(call)
        kind = call.method.id.partition(".")[2]
        if fingerprint != self._fingerprinted(kind, instance).fingerprint:
            raise GceError("conditionNotMet", STALE[kind])
        return self._begin(call, instance, value=value, fingerprint=fingerprint)

    def _guarded(self, kind: str, instance: Instance, request: Row) -> None:
        target = self._fingerprinted(kind, instance)
        if request["fingerprint"] != target.fingerprint:
            raise OperationError("CONDITION_NOT_MET", STALE[kind])
        self._context.write(target, request["value"])

    @staticmethod
    def _fingerprinted(kind: str, instance: Instance) -> Fingerprinted:
        return {"setLabels": instance.labels, "setTags": instance.tags, "setMetadata": instance.metadata}[kind]

    def update_network_interface(self, call: MethodCall) -> Operation:
        """Alias ranges alone are emulated. As of any PATCH, what is not given stays."""
        instance, body = self._instances.find_changeable(call), read(InterfaceBody, call.body)
        interface = self._interface(instance, call.query.get("networkInterface", ""))
        others = body.row("alias_ip_ranges", "fingerprint", "name", "kind")
        if others:
            raise unsupported(f"a change of an interface's {', '.join(sorted(others))}")
        if body.fingerprint != interface.fingerprint:
            raise GceError("conditionNotMet", STALE["updateNetworkInterface"])
        given = body.alias_ip_ranges is not None
        aliases = self._networks.aliases(body, interface.subnetwork, "resource") if given else interface.aliases
        return self._begin(call, instance, name=interface.name, value=aliases, fingerprint=body.fingerprint)

    def _interface_updated(self, instance: Instance, request: Row) -> None:
        interface = self._interface(instance, request["name"])
        if request["fingerprint"] != interface.fingerprint:
            raise OperationError("CONDITION_NOT_MET", STALE["updateNetworkInterface"])
        interface.aliases = request["value"]

    @staticmethod
    def _interface(instance: Instance, name: str) -> Interface:
        found = next((i for i in instance.interfaces if i.name == name), None)
        if found is None:
            raise invalid("networkInterface", name, "The instance has no such network interface.")
        return found

    # -- of a stopped instance

    def set_machine_type(self, call: MethodCall) -> Operation:
        instance, body = self._stopped(call), read(MachineTypeBody, call.body)
        path = self._images.machine_type_path(body.machine_type, instance.project, instance.zone)
        return self._begin(call, instance, value=path)

    def set_machine_resources(self, call: MethodCall) -> Operation:
        instance, body = self._stopped(call), read(MachineResourcesBody, call.body)
        given = body.row()["guestAccelerators"]
        value = accelerators_of(given, instance.project, instance.zone, self._context)
        return self._begin(call, instance, value=value)

    def set_service_account(self, call: MethodCall) -> Operation:
        instance, body = self._stopped(call), read(ServiceAccountBody, call.body)
        return self._begin(call, instance, value=[body.row()])

    def _stopped(self, call: MethodCall) -> Instance:
        instance = self._instances.find_changeable(call)
        if instance.status != "TERMINATED":
            raise GceError(
                "invalidResourceUsage", "Invalid resource usage: 'The instance must be stopped before this change.'."
            )
        return instance

    # -- at any time

    def set_scheduling(self, call: MethodCall) -> Operation:
        instance, body = self._instances.find_changeable(call), read(SchedulingBody, call.body)
        return self._begin(call, instance, value=schedule(body, bool(instance.accelerators)))

    def set_deletion_protection(self, call: MethodCall) -> Operation:
        instance = self._instances.find_changeable(call)
        return self._begin(call, instance, value=_truth(call.query.get("deletionProtection", "true")))

    # -- disks

    def set_disk_auto_delete(self, call: MethodCall) -> Operation:
        instance = self._instances.find_changeable(call)
        attachment = self._attachment(instance, call.query.get("deviceName", ""))
        value = _truth(call.query.get("autoDelete", "false"))
        return self._begin(call, instance, device=attachment.device_name, value=value)

    def _auto_delete_set(self, instance: Instance, request: Row) -> None:
        self._attachment(instance, request["device"]).auto_delete = request["value"]

    def attach_disk(self, call: MethodCall) -> Operation:
        instance, body = self._instances.find_changeable(call), read(AttachedDiskBody, call.body)
        if not body.source or body.initialize_params or body.boot:
            raise unsupported("the attachment of a disk that is new, or that is the boot disk")
        source = resolve(body.source, instance.project, f"zones/{instance.zone}/disks", "resource.source")
        disk = self._disks.find(source)
        if disk.users:
            raise GceError("resourceInUseByAnotherResource", in_use(disk))
        attachment = Attachment(
            disk=source,
            device_name=body.device_name or f"persistent-disk-{len(instance.disks)}",
            boot=False,
            auto_delete=body.auto_delete,
            echoed={"type": body.type, "mode": body.mode, "diskSizeGb": str(disk.size_gb)},
        )
        return self._begin(call, instance, value=attachment.model_dump())

    def _attached(self, instance: Instance, request: Row) -> None:
        attachment = Attachment.model_validate(request["value"])
        disk = self._disks.records.get(attachment.disk)
        if disk is None:
            raise OperationError("RESOURCE_NOT_FOUND", f"The resource '{attachment.disk}' was not found")
        if disk.users:
            raise OperationError("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", in_use(disk))
        disk.users.append(instance.path)
        instance.disks.append(attachment)

    def detach_disk(self, call: MethodCall) -> Operation:
        instance = self._instances.find_changeable(call)
        attachment = self._attachment(instance, call.query.get("deviceName", ""))
        if attachment.boot and instance.status != "TERMINATED":
            raise GceError(
                "invalidResourceUsage", "Invalid resource usage: 'Cannot detach the boot disk of a running instance.'."
            )
        return self._begin(call, instance, device=attachment.device_name)

    def _detached(self, instance: Instance, request: Row) -> None:
        attachment = self._attachment(instance, request["device"])
        instance.disks.remove(attachment)
        disk = self._disks.records.get(attachment.disk)
        if disk is not None:
            disk.users = [user for user in disk.users if user != instance.path]

    @staticmethod
    def _attachment(instance: Instance, device: str) -> Attachment:
        found = next((a for a in instance.disks if a.device_name == device), None)
        if found is None:
            raise invalid("deviceName", device, "No attached disk found with device name.")
        return found


def _truth(value: str) -> bool:
    return value.lower() == "true"

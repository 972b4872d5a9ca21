"""instances.insert: what it takes, what it refuses, and what becomes of an instance meanwhile."""

from __future__ import annotations

from typing import Any

from simulator.clouds.gce.context import Context, Row
from simulator.clouds.gce.disks import Disk, Disks, in_use
from simulator.clouds.gce.errors import GceError, invalid
from simulator.clouds.gce.fields import AttachedDiskBody, InstanceBody, SchedulingBody, read
from simulator.clouds.gce.images import Images
from simulator.clouds.gce.instances import Attachment, Instance, Instances
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import (
    check_labels,
    check_metadata,
    check_name,
    check_tags,
    last,
    link,
    new_id,
    resolve,
)
from simulator.clouds.gce.network import Networks
from simulator.clouds.gce.operations import Operation, Operations

ECHOED = ("description", "canIpForward", "minCpuPlatform", "shieldedInstanceConfig", "advancedMachineFeatures")
LOCAL_SSD = 375
"""GB of a local SSD."""


class Launcher:
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

    def insert(self, call: MethodCall) -> Operation:
        body = read(InstanceBody, call.body)
        path = f"{call.scope}/instances/{check_name(body.name)}"
        if self._instances.living(path) is not None:
            raise GceError("alreadyExists", f"The resource '{path}' already exists")
        instance, made = self._instance(path, body)
        for disk in made:
            self._disks.records[disk.path] = disk
        for attachment in instance.disks:
            if attachment.disk:
                self._disks.records[attachment.disk].users.append(path)
        self._instances.records[instance.id] = instance
        self._instances.changed(instance)
        return self._operations.begin(
            "insert",
            path,
            instance.id,
            delay=self._context.insert_delay,
            query=call.query,
            request={"disks": [disk.path for disk in made]},
        )

    def staged(self, operation: Operation) -> None:
        """Halfway, when what it runs on has been found."""
        instance = self._instances.records.get(operation.target_id)
        if instance is not None and instance.status == "PROVISIONING" and operation.fails is None:
            self._instances.enter(instance, "STAGING")

    def inserted(self, operation: Operation) -> None:
        """An insert that fails leaves nothing: neither the instance nor the disks that were made for it."""
        instance = self._instances.target(operation)
        if operation.error is None:
            if instance.status in ("PROVISIONING", "STAGING"):
                self._instances.boot(instance)
            return
        made = operation.request["disks"]
        for attachment in instance.disks:
            attachment.auto_delete = attachment.disk in made
        self._instances.remove(instance)

    # -- the instance

    def _instance(self, path: str, body: InstanceBody) -> tuple[Instance, list[Disk]]:
        """The instance, and the disks that are made for it. Nothing is recorded yet."""
        project, zone = path.split("/")[1], path.split("/")[3]
        if not body.machine_type:
            raise GceError("required", "Required field 'resource.machineType' not specified")
        machine_type = self._images.machine_type_path(body.machine_type, project, zone)
        accelerators = accelerators_of(body.row().get("guestAccelerators", []), project, zone, self._context)
        fresh, given = self._context.fresh, body.row()
        labels = fresh(check_labels(body.labels, "resource.labels"))
        tags = fresh(check_tags(body.tags.items))
        metadata = fresh(check_metadata(given["metadata"]["items"]))
        scheduling = schedule(body.scheduling, bool(accelerators))
        attachments, made = self._attachments(path, body.disks)
        if not body.network_interfaces:
            raise invalid("resource.networkInterfaces", "", "At least one network interface is required.")
        instance = Instance(
            path=path,
            id=new_id(),
            created=self._context.created(),
            machine_type=machine_type,
            labels=labels,
            tags=tags,
            metadata=metadata,
            interfaces=[self._networks.interface(n, nic, project) for n, nic in enumerate(body.network_interfaces)],
            disks=attachments,
            scheduling=scheduling,
            service_accounts=given["serviceAccounts"],
            accelerators=accelerators,
            protected=body.deletion_protection,
            echoed={key: given[key] for key in ECHOED if key in given},
        )
        return instance, made

    def _attachments(self, path: str, bodies: list[AttachedDiskBody]) -> tuple[list[Attachment], list[Disk]]:
        if not bodies or not any(body.boot for body in bodies):
            raise invalid("resource.disks", "", "A boot disk must be specified.")
        if sum(body.boot for body in bodies) > 1 or not bodies[0].boot:
            raise invalid("resource.disks", "", "The first disk, and no other, must be the boot disk.")
        attachments: list[Attachment] = []
        made: list[Disk] = []
        for n, body in enumerate(bodies):
            disk, size = self._disk(path, n, body, made)
            kept: dict[str, Any] = {"type": body.type, "mode": body.mode, "diskSizeGb": str(size)}
            if body.interface:
                kept["interface"] = body.interface
            if body.disk_encryption_key:
                kept["diskEncryptionKey"] = body.disk_encryption_key.row()
            attachments.append(
                Attachment(
                    disk=disk,
                    device_name=body.device_name or (f"persistent-disk-{n}" if disk else f"local-ssd-{n}"),
                    boot=body.boot,
                    auto_delete=body.auto_delete,
                    echoed=kept,
                )
            )
        return attachments, made

    def _disk(self, path: str, n: int, body: AttachedDiskBody, made: list[Disk]) -> tuple[str, int]:
        """The path (empty for a local SSD) and size of a disk; one that does not exist yet is added to `made`."""
        field, scope = f"resource.disks[{n}]", path.rsplit("/", 2)[0]
        params = body.initialize_params
        if body.type == "SCRATCH":
            return "", LOCAL_SSD
        if bool(body.source) == (params is not None):
            raise invalid(field, "", "Exactly one of source and initializeParams must be specified.")
        if params is None:
            source = resolve(body.source or "", path.split("/")[1], f"{scope}/disks", f"{field}.source")
            disk = self._disks.find(source)
            if disk.users and body.mode == "READ_WRITE":
                raise GceError("resourceInUseByAnotherResource", in_use(disk))
            return source, disk.size_gb
        named = params.disk_name or (last(path) if body.boot else f"{last(path)}-{n}")
        made_path = f"{scope}/disks/{named}"
        disk = self._disks.make(
            made_path, params, size=params.disk_size_gb, kind=params.disk_type, field=f"{field}.initializeParams"
        )
        if body.disk_encryption_key:
            disk.echoed["diskEncryptionKey"] = body.disk_encryption_key.row()
        made.append(disk)
        return made_path, disk.size_gb


def schedule(body: SchedulingBody, accelerated: bool) -> Row:
    """What is scheduled, with defaults. Raises invalid for what contradicts itself."""
    spot = body.provisioning_model == "SPOT" or bool(body.preemptible)
    moves = body.on_host_maintenance or ("TERMINATE" if spot or accelerated else "MIGRATE")
    restarts = (not spot) if body.automatic_restart is None else body.automatic_restart
    if spot and restarts:
        raise invalid(
            "resource.scheduling.preemptible",
            "true",
            "Scheduling must have preemptible be false when AutomaticRestart is true.",
        )
    if spot and moves == "MIGRATE":
        raise invalid("resource.scheduling.onHostMaintenance", moves, "Preemptible instances cannot be migrated.")
    if accelerated and moves == "MIGRATE":
        raise invalid(
            "resource.scheduling.onHostMaintenance",
            moves,
            "Instances with guest accelerators do not support live migration.",
        )
    found: Row = {
        "automaticRestart": restarts,
        "onHostMaintenance": moves,
        "preemptible": spot,
        "provisioningModel": body.provisioning_model or "STANDARD",
    }
    if body.instance_termination_action:
        found["instanceTerminationAction"] = body.instance_termination_action
    return found


def accelerators_of(given: list[Row], project: str, zone: str, context: Context) -> list[Row]:
    found = []
    for accelerator in given:
        field = "resource.guestAccelerators.acceleratorType"
        path = resolve(accelerator["acceleratorType"], project, f"zones/{zone}/acceleratorTypes", field)
        if last(path) not in context.world.accelerator_types or path.split("/")[3] != zone:
            raise invalid(field, accelerator["acceleratorType"], "The referenced resource does not exist.")
        found.append({**accelerator, "acceleratorType": link(path)})
    return found

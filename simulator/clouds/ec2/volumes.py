"""EBS volumes: made by launches and on their own, kept or deleted when their instance ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from simulator.clouds.ec2.context import Context, Written
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.identifiers import VOLUME, find, find_one, new_id
from simulator.clouds.ec2.listing import describe
from simulator.clouds.ec2.tags import Tags
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import Image, World

MAX_SIZE = {"gp2": 16384, "gp3": 65536, "io1": 16384, "io2": 65536, "st1": 16384, "sc1": 16384, "standard": 1024}
"""GiB by volume type (EBS user guide, "Amazon EBS volume types")."""
IOPS = {"gp3": (3000, 80000), "io1": (100, 64000), "io2": (100, 256000)}
"""Least and most IOPS of the types that take them; gp3 need not say any."""
THROUGHPUT = {"gp3": (125, 2000)}
"""Least and most MiB/s of the types that take it."""
FILTERS = {
    "volume-id": "VolumeId",
    "status": "State",
    "attachment.instance-id": "Attachments.InstanceId",
    "attachment.device": "Attachments.Device",
    "attachment.status": "Attachments.State",
    "attachment.delete-on-termination": "Attachments.DeleteOnTermination",
    "availability-zone": "AvailabilityZone",
    "encrypted": "Encrypted",
    "size": "Size",
    "snapshot-id": "SnapshotId",
    "volume-type": "VolumeType",
}


@dataclass(frozen=True)
class VolumeSpec:
    """A volume that a launch asks for, checked and completed."""

    device: str
    size: int
    """GiB."""
    type: str
    iops: int | None
    throughput: int | None
    """MiB/s."""
    encrypted: bool
    kms_key: str | None
    snapshot_id: str | None
    delete_on_termination: bool


class Volume(BaseModel):
    id: str
    created: Written
    zone: str
    size: int
    type: str
    iops: int | None
    throughput: int | None
    encrypted: bool
    kms_key: str | None
    snapshot_id: str | None
    instance_id: str | None
    """None: the volume is `available`."""
    device: str
    delete_on_termination: bool


class Volumes:
    def __init__(self, context: Context, tags: Tags) -> None:
        self._context = context
        self._tags = tags
        self.records: dict[str, Volume] = {}

    def lookup(self, volume_id: str) -> Volume | None:
        """The volume if calls see it already."""
        volume = self.records.get(volume_id)
        return volume if volume is not None and self._context.sees(volume.created) else None

    def create(self, spec: VolumeSpec, instance_id: str | None, zone: str, tags: dict[str, str]) -> Volume:
        volume = Volume(
            id=new_id(VOLUME.prefix), created=self._context.created(), zone=zone, instance_id=instance_id, **vars(spec)
        )
        self.records[volume.id] = volume
        self._tags.write(volume.id, tags)
        return volume

    def release(self, volume_ids: Iterable[str]) -> None:
        """The instance has ended: its volumes are deleted, or stay as `available`."""
        for volume_id in volume_ids:
            volume = self.records.get(volume_id)
            if volume is None:
                continue
            if volume.delete_on_termination:
                self._delete(volume)
            else:
                volume.instance_id = None

    def _delete(self, volume: Volume) -> None:
        del self.records[volume.id]
        self._tags.forget(volume.id)

    def row(self, volume: Volume) -> Row:
        attachment = {
            "VolumeId": volume.id,
            "InstanceId": volume.instance_id,
            "Device": volume.device,
            "State": "attached",
            "AttachTime": volume.created.at,
            "DeleteOnTermination": volume.delete_on_termination,
        }
        return {
            "VolumeId": volume.id,
            "AvailabilityZone": volume.zone,
            "CreateTime": volume.created.at,
            "State": "in-use" if volume.instance_id else "available",
            "Size": volume.size,
            "VolumeType": volume.type,
            "Iops": volume.iops,
            "Throughput": volume.throughput,
            "Encrypted": volume.encrypted,
            "KmsKeyId": volume.kms_key,
            "SnapshotId": volume.snapshot_id or "",
            "MultiAttachEnabled": False,
            "Attachments": [attachment] if volume.instance_id else [],
            "Tags": self._tags.rows(volume.id),
        }

    def describe_volumes(self, params: Params) -> Row:
        ids = params.get("VolumeIds")
        if ids:
            volumes = find(VOLUME, ids, self.lookup)
        else:
            volumes = [v for v in self._tags.candidates(self.records.values(), params) if self.lookup(v.id)]
        return describe("Volumes", [self.row(v) for v in volumes], params, FILTERS, ("VolumeId",), "VolumeIds")

    def delete_volume(self, params: Params) -> Row:
        volume = find_one(VOLUME, params["VolumeId"], self.lookup)
        if volume.instance_id:
            raise Ec2Error("VolumeInUse", f"Volume {volume.id} is currently attached to {volume.instance_id}")
        self._delete(volume)
        return {}


# ------------------------------------------------------------------------------------------------ block devices


def read_block_devices(params: Params, image: Image, world: World) -> list[VolumeSpec]:
    """The volumes of a launch: its mappings, and the image's root volume unless they change it."""
    mappings = params.get("BlockDeviceMappings", [])
    devices = [m.get("DeviceName", "") for m in mappings]
    if not all(devices):
        raise Ec2Error("MissingParameter", "The request must contain the parameter DeviceName for each block device")
    for device in devices:
        if devices.count(device) > 1:
            raise Ec2Error("InvalidBlockDeviceMapping", f"The device '{device}' is used in more than one mapping")
    if image.root_device_name not in devices:
        mappings = [{"DeviceName": image.root_device_name, "Ebs": {}}, *mappings]
    return [_read_mapping(m, image, world) for m in mappings if "NoDevice" not in m]


def _read_mapping(mapping: Row, image: Image, world: World) -> VolumeSpec:
    ebs, device = mapping.get("Ebs", {}), mapping["DeviceName"]
    root = device == image.root_device_name
    snapshot = ebs.get("SnapshotId")
    if snapshot is not None and snapshot not in world.snapshots:
        raise Ec2Error("InvalidSnapshot.NotFound", f"The snapshot '{snapshot}' does not exist.")
    least = world.snapshots[snapshot] if snapshot else image.root_volume_size if root else 1
    if "VolumeSize" not in ebs and not root and not snapshot:
        raise Ec2Error("MissingParameter", "The request must contain the parameter size or snapshotId")
    volume_type = ebs.get("VolumeType", "gp3")
    size = ebs.get("VolumeSize", least)
    if size < least:
        raise Ec2Error("InvalidBlockDeviceMapping", f"Volume of size {size}GB is smaller than expected size {least}GB")
    if size > MAX_SIZE[volume_type]:
        raise Ec2Error("InvalidParameterValue", f"Volume of {size}GiB is too large for volume type {volume_type}")
    if "KmsKeyId" in ebs and not ebs.get("Encrypted"):
        raise Ec2Error(
            "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set."
        )
    if volume_type in ("io1", "io2") and "Iops" not in ebs:
        raise Ec2Error("MissingParameter", f"The parameter iops must be specified for {volume_type} volumes.")
    return VolumeSpec(
        device=device,
        size=size,
        type=volume_type,
        iops=_performance(ebs, "Iops", volume_type, IOPS),
        throughput=_performance(ebs, "Throughput", volume_type, THROUGHPUT),
        encrypted=ebs.get("Encrypted", False),
        kms_key=ebs.get("KmsKeyId"),
        snapshot_id=snapshot,
        delete_on_termination=ebs.get("DeleteOnTermination", True),
    )


def _performance(ebs: Row, name: str, volume_type: str, bounds: dict[str, tuple[int, int]]) -> int | None:
    if volume_type not in bounds:
        if name in ebs:
            raise Ec2Error(
                "InvalidParameterCombination",
                f"The parameter {name.lower()} is not supported for {volume_type} volumes.",
            )
        return None
    least, most = bounds[volume_type]
    value = int(ebs.get(name, least))
    if not least <= value <= most:
        raise Ec2Error("InvalidParameterValue", f"Volume {name.lower()} must be from {least} to {most}; it is {value}.")
    return value

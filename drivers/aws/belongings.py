"""Volumes and network interfaces of a machine, and whether they go with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from drivers.aws.calls import Ec2, Resource
from drivers.aws.tags import tags_of
from drivers.base import Identity
from drivers.tags import released_value
from resources.clouds.aws.spec import TAG_RULES
from resources.clouds.base import OUR_TAGS, Tags
from resources.names import TAG_RELEASED, TAG_UID

BelongingKind = Literal["volume", "network interface"]
KINDS: tuple[BelongingKind, ...] = ("volume", "network interface")
IN_USE = ("VolumeInUse", "InvalidNetworkInterface.InUse")
GONE = ("InvalidVolume.NotFound", "InvalidNetworkInterfaceID.NotFound")


@dataclass(frozen=True)
class Belonging:
    kind: BelongingKind
    id: str
    state: str
    """EC2's: available, in-use, deleting, …"""
    tags: Tags
    dies_with_vm: bool | None
    """DeleteOnTermination of its attachment; None when nothing holds it."""

    def __str__(self) -> str:
        return f"{self.id} {self.state}"

    def is_released(self, machine: Identity) -> bool:
        return self.tags.get(TAG_RELEASED) == released_value(TAG_RULES, machine)

    @property
    def has_our_tags(self) -> bool:
        return any(key in self.tags for key in OUR_TAGS)


def of_machine(ec2: Ec2, machine: Identity, released: bool = True) -> list[Belonging]:
    """What carries the machine's uid and, with `released`, what it has released before."""
    found: dict[str, Belonging] = {}
    before = [{f"tag:{TAG_RELEASED}": released_value(TAG_RULES, machine)}] if released else []
    for filters in ({f"tag:{TAG_UID}": machine.uid}, *before):
        found |= {b.id: b for b in _volumes(ec2, filters)}
        found |= {b.id: b for b in _network_interfaces(ec2, filters)}
    return [found[k] for k in sorted(found)]


def _volumes(ec2: Ec2, filters: dict[str, str]) -> Iterator[Belonging]:
    for volume in ec2.find("DescribeVolumes", "Volumes", filters):
        if volume.get("State") == "deleted":
            continue
        attachments = volume.get("Attachments") or []
        # A volume attached several times goes only if no attachment keeps it.
        dies = all(a.get("DeleteOnTermination") for a in attachments) if attachments else None
        yield Belonging("volume", volume["VolumeId"], volume.get("State", ""), tags_of(volume), dies)


def _network_interfaces(ec2: Ec2, filters: dict[str, str]) -> Iterator[Belonging]:
    for nic in ec2.find("DescribeNetworkInterfaces", "NetworkInterfaces", filters):
        attachment: Resource | None = nic.get("Attachment")
        dies = bool(attachment.get("DeleteOnTermination")) if attachment else None
        yield Belonging("network interface", nic["NetworkInterfaceId"], nic.get("Status", ""), tags_of(nic), dies)


def tagged(ec2: Ec2, kind: BelongingKind, machine: Identity) -> list[Belonging]:
    """What carries the machine's uid."""
    read = _volumes if kind == "volume" else _network_interfaces
    return list(read(ec2, {f"tag:{TAG_UID}": machine.uid}))


def by_id(ec2: Ec2, kind: BelongingKind, wanted: str) -> Belonging | None:
    """The resource of this id; None when EC2 does not know it. Read with a filter, for which that is no error."""
    read, name = (_volumes, "volume-id") if kind == "volume" else (_network_interfaces, "network-interface-id")
    return next(read(ec2, {name: wanted}), None)


def outlive(instance: Resource) -> bool:
    """Whether anything that is attached to an instance stays when it ends, in the instance's own words."""
    disks = [d.get("Ebs") or {} for d in instance.get("BlockDeviceMappings") or ()]
    nics = [n.get("Attachment") or {} for n in instance.get("NetworkInterfaces") or ()]
    return not all(attachment.get("DeleteOnTermination") for attachment in (*disks, *nics))


def spec_keeps(provider_spec: dict[str, Any], kind: BelongingKind) -> bool:
    """Whether the spec keeps any of this kind. The spec may be stale or wrong, so it is not parsed, only looked at."""
    if kind == "volume":
        devices = _items(provider_spec, "blockDevices", "block_devices")
        holders = [device.get("ebs") for device in devices]
    else:
        holders = list(_items(provider_spec, "networkInterfaces", "network_interfaces"))
    found = [h for h in holders if isinstance(h, dict)]
    return any(h.get(key) is False for h in found for key in ("deleteOnTermination", "delete_on_termination"))


def _items(provider_spec: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """What is listed under any of the names; models also accept a field's Python name."""
    lists = [v for v in map(provider_spec.get, names) if isinstance(v, list)]
    return [item for items in lists for item in items if isinstance(item, dict)]


def delete(ec2: Ec2, belonging: Belonging) -> None:
    """Deletes it. Raises DriverError; its provider_code is one of IN_USE or GONE when that is why."""
    if belonging.kind == "volume":
        ec2.call("DeleteVolume", VolumeId=belonging.id)
    else:
        ec2.call("DeleteNetworkInterface", NetworkInterfaceId=belonging.id)

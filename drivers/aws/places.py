"""Where on an instance the volumes and network interfaces of its spec are."""

from __future__ import annotations

from drivers.aws.calls import Resource
from resources.clouds.aws.spec import AwsProviderSpec

ROOT = (None, "", "/root")
"""What a spec writes for whatever device the image boots from."""


def network_interfaces(spec: AwsProviderSpec, instance: Resource) -> list[str]:
    """Ids of what is attached at the network cards and device indexes that the spec names."""
    return [nic["NetworkInterfaceId"] for nic in by_place(spec, instance.get("NetworkInterfaces") or []).values()]


def volumes(spec: AwsProviderSpec, instance: Resource) -> list[str]:
    """Ids of what is attached at the devices that the spec names, and at the root device, which every launch makes."""
    root = instance.get("RootDeviceName")
    devices = {root, *(d.device_name for d in spec.block_devices if d.device_name not in ROOT)}
    attached = instance.get("BlockDeviceMappings") or ()
    return [d["Ebs"]["VolumeId"] for d in attached if d.get("Ebs") and d.get("DeviceName") in devices]


def by_place(spec: AwsProviderSpec, attached: list[Resource]) -> dict[int, Resource]:
    """What is attached for each network interface of the spec, by network card and device index."""
    places = {}
    for nic in attached:
        attachment = nic.get("Attachment") or {}
        places[attachment.get("NetworkCardIndex") or 0, attachment.get("DeviceIndex")] = nic
    found = {}
    for place, wanted in enumerate(spec.network_interfaces):
        device = place if wanted.device_index is None else wanted.device_index
        key = (wanted.network_card_index or 0, device)
        if key in places:
            found[place] = places[key]
    return found

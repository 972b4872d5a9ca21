"""The requests that make a machine: pure functions of spec and names.

Fields: machine-controller-manager-provider-azure, pkg/azure/provider/helpers/driver.go; Azure's API reference, *Virtual
Machines - Create Or Update* and *Network Interfaces - Create Or Update*.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from drivers.azure import places
from drivers.base import CreateMachineRequest, parsed
from drivers.errors import DriverError
from drivers.tags import launch_tags
from resources.clouds.azure.spec import AzureProviderSpec
from resources.clouds.azure.vm import DataDisk, ImageReference, OsProfile, VmProperties
from resources.errors import ErrorClass

MAX_USER_DATA = 65535
"""Bytes before base64 (API reference, OSProfile.customData)."""
Body = dict[str, Any]


def parse_spec(provider_spec: dict[str, Any]) -> AzureProviderSpec:
    """Parses the spec. Raises DriverError of class invalid."""
    return parsed(AzureProviderSpec, provider_spec)


def check(spec: AzureProviderSpec, request: CreateMachineRequest) -> None:
    """Raises DriverError of class invalid for what Azure would refuse, before anything is made: a class may have come
    by another door, and user data and tags have limits."""
    if mistakes := spec.mistakes():
        raise DriverError(ErrorClass.INVALID, "; ".join(f"providerSpec.{path}: {words}" for path, words in mistakes))
    user_data(request)
    for resource in spec.tag_sets():
        launch_tags(spec, request.machine, resource)


def network_interface(spec: AzureProviderSpec, request: CreateMachineRequest, name: str, subnet: str) -> Body:
    profile = spec.properties.network_profile
    address = {"subnet": {"id": subnet}, "privateIPAllocationMethod": "Dynamic", "primary": True}
    properties = _some(
        enableAcceleratedNetworking=profile.accelerated_networking,
        enableIPForwarding=forwards(spec),
        ipConfigurations=[{"name": name, "properties": address}],
    )
    return {"location": spec.location, "tags": launch_tags(spec, request.machine, "nic"), "properties": properties}


def forwards(spec: AzureProviderSpec) -> bool:
    """Whether the interface forwards packets: true when absent, as MCM."""
    return spec.properties.network_profile.ip_forwarding is not False


def data_disk(spec: AzureProviderSpec, request: CreateMachineRequest, disk: DataDisk) -> Body:
    """A disk that is made before the VM: that from an image, which Azure cannot make with the VM."""
    image = _image(disk.image_ref) if disk.image_ref else {}
    properties = _some(
        creationData={"createOption": "FromImage", "galleryImageReference": image},
        diskSizeGB=disk.disk_size_gb,
    )
    body = _some(
        location=spec.location,
        tags=launch_tags(spec, request.machine, "disk"),
        sku=_some(name=disk.storage_account_type),
        properties=properties,
    )
    zone = spec.properties.zone
    return body if zone is None else {**body, "zones": [str(zone)]}


def virtual_machine(
    spec: AzureProviderSpec, request: CreateMachineRequest, name: str, nic: str, disks: dict[int, str], plan: Body
) -> Body:
    """The VM; `nic` and `disks` (by lun) are ids of what was made before, `plan` is that of a marketplace image. Raises
    DriverError of class invalid for user data or tags beyond Azure's limits."""
    vm = spec.properties
    security, diagnostics, reservation = vm.security_profile, vm.diagnostics_profile, vm.capacity_reservation
    uefi = security.uefi_settings if security else None
    spot = vm.priority == "Spot"
    availability, scale = _sets(vm)
    properties = _some(
        hardwareProfile={"vmSize": vm.hardware_profile.vm_size},
        storageProfile=_storage(vm, name, disks),
        osProfile={**_os(vm.os_profile, name), "customData": user_data(request)},
        networkProfile={"networkInterfaces": [{"id": nic, "properties": {"primary": True, "deleteOption": "Delete"}}]},
        availabilitySet=availability and {"id": availability},
        virtualMachineScaleSet=scale and {"id": scale},
        securityProfile=security
        and _some(
            securityType=security.security_type,
            uefiSettings=uefi and _some(vTpmEnabled=uefi.vtpm_enabled, secureBootEnabled=uefi.secure_boot_enabled),
            encryptionAtHost=security.encryption_at_host,
        ),
        diagnosticsProfile=diagnostics
        and {"bootDiagnostics": _some(enabled=diagnostics.enabled, storageUri=diagnostics.storage_uri)},
        capacityReservation=reservation
        and _some(capacityReservationGroup=_some(id=reservation.capacity_reservation_group_id)),
        priority=vm.priority,
        evictionPolicy=(vm.eviction_policy or "Delete") if spot else None,
        billingProfile={"maxPrice": -1} if spot else None,  # up to the price of a regular VM
    )
    identity = {"type": "UserAssigned", "userAssignedIdentities": {vm.identity_id: {}}} if vm.identity_id else None
    return _some(
        location=spec.location,
        tags=launch_tags(spec, request.machine, "vm", "virtual machine"),
        zones=None if vm.zone is None else [str(vm.zone)],
        identity=identity,
        plan=plan,
        properties=properties,
    )


def _storage(vm: VmProperties, name: str, disks: dict[int, str]) -> Body:
    storage, os_disk = vm.storage_profile, vm.storage_profile.os_disk
    security = os_disk.managed_disk.security_profile
    return _some(
        imageReference=_image(storage.image_reference),
        osDisk=_some(
            name=places.os_disk_name(name),
            caching=os_disk.caching,
            createOption=os_disk.create_option or "FromImage",
            diskSizeGB=os_disk.disk_size_gb,
            deleteOption="Delete",
            managedDisk=_some(
                storageAccountType=os_disk.managed_disk.storage_account_type,
                securityProfile=security and _some(securityEncryptionType=security.security_encryption_type),
            ),
        ),
        dataDisks=[_attached(disk, name, disks.get(disk.lun)) for disk in storage.data_disks],
        diskControllerType=storage.disk_controller_type,
    )


def _attached(disk: DataDisk, vm: str, made: str | None) -> Body:
    common = _some(lun=disk.lun, caching=disk.caching, deleteOption="Delete")
    name = places.data_disk_name(vm, disk.lun, disk.name)
    if made is not None:
        return {**common, "name": name, "createOption": "Attach", "managedDisk": {"id": made}}
    managed = _some(storageAccountType=disk.storage_account_type)
    return _some(**common, name=name, createOption="Empty", diskSizeGB=disk.disk_size_gb, managedDisk=managed)


def _sets(vm: VmProperties) -> tuple[str | None, str | None]:
    """The availability set and the scale set, wherever the spec has them."""
    old = vm.machine_set
    availability = vm.availability_set.id if vm.availability_set else None
    scale = vm.virtual_machine_scale_set.id if vm.virtual_machine_scale_set else None
    if old is not None:
        return (None, old.id) if old.kind == "vmo" else (old.id, None)
    return availability, scale


def _os(profile: OsProfile, name: str) -> Body:
    linux, key = profile.linux_configuration, profile.linux_configuration.ssh.public_keys
    path = key.path or f"/home/{profile.admin_username}/.ssh/authorized_keys"
    return {
        "computerName": name,
        "adminUsername": profile.admin_username,
        "linuxConfiguration": {
            "disablePasswordAuthentication": linux.disable_password_authentication is not False,
            "ssh": {"publicKeys": [{"path": path, "keyData": key.key_data or nobodys_key()}]},
        },
    }


def nobodys_key() -> str:
    """A key for SSH whose private half nobody has: Azure makes no Linux VM without a key or a password."""
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def user_data(request: CreateMachineRequest) -> str:
    text = request.user_data.get_secret_value().encode()
    data = gzip.compress(text, mtime=0) if request.compressed else text
    if len(data) > MAX_USER_DATA:
        what, way = ("compressed user data", "") if request.compressed else ("user data", ", or compress it with gzip")
        raise DriverError(
            ErrorClass.INVALID,
            f"{what} has {len(data)} bytes, but Azure accepts at most {MAX_USER_DATA}: fetch the rest at boot{way}",
        )
    return base64.b64encode(data).decode()


def _image(image: ImageReference) -> Body:
    if image.urn:
        publisher, offer, sku, version = image.urn.split(":")
        return {"publisher": publisher, "offer": offer, "sku": sku, "version": version}
    return _some(
        id=image.id,
        communityGalleryImageId=image.community_gallery_image_id,
        sharedGalleryImageId=image.shared_gallery_image_id,
    )


def _some(**values: Any) -> Body:
    """The values that are given."""
    return {k: v for k, v in values.items() if v is not None and v != "" and v != {} and v != []}

"""Worker pools on Azure: Gardener's WorkerConfig (gardener-extension-provider-azure, pkg/apis/azure/v1alpha1,
types_worker.go), and the provider spec of each zone's class as its extension makes it (pkg/controller/worker,
machines.go)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from resources.base import Key, Manifest, Name
from resources.clouds.azure.spec import SubnetInfo, plain_location
from resources.clouds.azure.vm import DiagnosticsProfile, ImageReference
from resources.clouds.workers import (
    AMD64,
    Architecture,
    ImageVersion,
    TaggedWorkerConfig,
    Unfit,
    WorkerInfrastructure,
    WorkerPlug,
    WorkerTemplate,
    fitting,
    gibibytes,
    given,
    plain,
    versions_of,
)
from resources.effects import Effect

LUNS_MOST = 64
_ZONE = re.compile(r"[1-9]")


class AzureWorkerVolume(Manifest):
    """What the OS disk has besides size and type."""

    caching: Literal["None", "ReadOnly", "ReadWrite"] | None = None
    """How the host caches it; null: for reading, as Gardener."""


class AzureDataVolume(Manifest):
    """What one of the worker's data volumes has besides size and type."""

    name: Key = Field(min_length=1)
    """The data volume that is meant."""
    image_ref: ImageReference | None = None
    """The image that it is made from; null: it is empty."""


class AzureReservation(Manifest):
    """Reserved capacity."""

    capacity_reservation_group: Key | None = None
    """The group of reservations, by its resource id."""


class AzureWorkerConfig(TaggedWorkerConfig):
    """`providerConfig` of a worker pool whose provider is Azure."""

    diagnostics_profile: DiagnosticsProfile | None = None
    """The boot diagnostics."""
    volume: AzureWorkerVolume | None = None
    """What the OS disk has besides size and type."""
    data_volumes: list[AzureDataVolume] = Field(default_factory=list)
    """What data volumes have besides size and type."""
    capacity_reservation: AzureReservation | None = None
    """Reserved capacity."""


class AzureImageVersion(ImageVersion):
    """A version of an image; give exactly one of id, urn, communityGalleryImageID and sharedGalleryImageID."""

    id: Key | None = None
    """An image or a gallery's image version, by its resource id."""
    urn: Key | None = None
    """An image of the marketplace, `publisher:offer:sku:version`."""
    community_gallery_image_id: Key | None = Field(default=None, alias="communityGalleryImageID")
    """An image of a community gallery, `/CommunityGalleries/…`."""
    shared_gallery_image_id: Key | None = Field(default=None, alias="sharedGalleryImageID")
    """An image of a gallery that is shared with the subscription, `/SharedGalleries/…`."""
    skip_marketplace_agreement: bool | None = None
    """True: the image of the marketplace is free of a plan, and is not asked for one."""
    architecture: Architecture = AMD64
    """The architecture of the CPU that it runs on."""
    accelerated_networking: bool = False
    """Whether it supports accelerated networking."""

    @property
    def reference(self) -> dict[str, Any]:
        """The image as a provider spec names it."""
        fields = ("id", "urn", "community_gallery_image_id", "shared_gallery_image_id", "skip_marketplace_agreement")
        return self.model_dump(mode="json", by_alias=True, include={*fields}, exclude_none=True)

    @model_validator(mode="after")
    def one_of(self) -> Self:
        ImageReference.model_validate(self.reference)
        return self


class AzureWorkerImage(Manifest):
    """A named image, as in the machineImages of Gardener's CloudProfileConfig. A version that is there for two
    architectures is listed twice."""

    name: Key
    """The name by which workers ask for it."""
    versions: list[AzureImageVersion]
    """Its versions."""


class AzureMachineType(Manifest):
    """What a machine type can, as in Gardener's CloudProfileConfig."""

    name: Key
    """The machine type, e.g. Standard_D4s_v5."""
    accelerated_networking: bool = False
    """Whether it supports accelerated networking, which is used where the image does too."""


class AzureInfrastructure(WorkerInfrastructure):
    """What a worker pool on Azure needs to know of the subscription and the network."""

    resource_group: Name = Field(min_length=1, max_length=90)
    """The resource group that VMs, interfaces and disks are made in; it must be there."""
    subnet_info: SubnetInfo
    """The subnet of the VMs."""
    subnets: dict[Name, Key] = Field(default_factory=dict)
    """Other subnets of the same network by zone, `"1": nodes-z1`, for clusters with a NAT gateway in each zone."""
    availability_set: Key | None = None
    """The availability set of a pool without zones, by its resource id."""
    identity_id: Key | None = Field(default=None, alias="identityID")
    """The managed identity that VMs have, by its resource id."""
    ssh_public_key: Key | None = None
    """The key for logins by SSH, `ssh-rsa …`."""
    ip_forwarding: Annotated[bool | None, Effect.HOT] = None
    """Whether interfaces take packets for other addresses, as routes to pods need it; true when absent, as MCM."""
    machine_images: list[AzureWorkerImage] = Field(min_length=1)
    """Images by name and version."""
    machine_types: list[AzureMachineType] = Field(default_factory=list)
    """What machine types can."""


def provider_spec(
    settings: WorkerTemplate, config: AzureWorkerConfig, infrastructure: AzureInfrastructure, zone: str
) -> dict[str, Any]:
    """The provider spec of the zone's class. Raises Unfit."""
    if zone and not _ZONE.fullmatch(zone):
        raise Unfit("zones", f"{zone} is no zone of this cloud: they are called 1, 2 and 3")
    image = _image(settings, infrastructure)
    types = {t.name: t for t in infrastructure.machine_types}
    fast = image.accelerated_networking and settings.machine.type in types
    subnet = plain(infrastructure.subnet_info) or {}
    return given(
        location=infrastructure.region,
        resourceGroup=infrastructure.resource_group,
        properties=given(
            zone=int(zone) if zone else None,
            availabilitySet=_by_id(None if zone else infrastructure.availability_set),
            hardwareProfile={"vmSize": settings.machine.type},
            storageProfile=_storage(settings, config, image),
            osProfile=_login(infrastructure),
            networkProfile=given(
                acceleratedNetworking=True if fast and types[settings.machine.type].accelerated_networking else None,
                ipForwarding=infrastructure.ip_forwarding,
            ),
            identityID=infrastructure.identity_id,
            diagnosticsProfile=plain(config.diagnostics_profile),
            capacityReservation=_reservation(config),
        ),
        subnetInfo={**subnet, **given(subnetName=infrastructure.subnets.get(zone))},
        **config.given_tags,
    )


def _image(settings: WorkerTemplate, infrastructure: AzureInfrastructure) -> AzureImageVersion:
    found = versions_of(settings, [(image.name, image.versions) for image in infrastructure.machine_images])
    return fitting(settings, [(version.architecture, version) for version in found])


def _storage(settings: WorkerTemplate, config: AzureWorkerConfig, image: AzureImageVersion) -> dict[str, Any]:
    known = settings.known({volume.name: volume for volume in config.data_volumes})
    if len(settings.data_volumes) > LUNS_MOST:
        raise Unfit("dataVolumes", f"{len(settings.data_volumes)} are more than the {LUNS_MOST} that a VM has")
    root = settings.volume
    disks = [
        given(
            lun=lun,
            name=volume.name,
            caching="None",
            storageAccountType=volume.type,
            diskSizeGB=gibibytes(volume.size),
            imageRef=plain(known[volume.name].image_ref) if volume.name in known else None,
        )
        for lun, volume in enumerate(settings.sorted_volumes)
    ]
    return given(
        imageReference=image.reference,
        osDisk=given(
            caching=(config.volume and config.volume.caching) or "ReadOnly",
            createOption="FromImage",
            diskSizeGB=gibibytes(root.size) if root else None,
            managedDisk={"storageAccountType": root.type} if root and root.type else None,
        ),
        dataDisks=disks or None,
    )


def _login(infrastructure: AzureInfrastructure) -> dict[str, Any] | None:
    key = infrastructure.ssh_public_key
    return {"linuxConfiguration": {"ssh": {"publicKeys": {"keyData": key}}}} if key else None


def _reservation(config: AzureWorkerConfig) -> dict[str, Any] | None:
    group = config.capacity_reservation and config.capacity_reservation.capacity_reservation_group
    return {"capacityReservationGroupID": group} if group else None


def _by_id(resource: str | None) -> dict[str, str] | None:
    return {"id": resource} if resource else None


def zone_labels(infrastructure: AzureInfrastructure, zone: str) -> dict[str, str]:
    """Labels by which disks find a Node of their zone."""
    return {"topology.disk.csi.azure.com/zone": f"{plain_location(infrastructure.region)}-{zone}"} if zone else {}


WORKERS = WorkerPlug(AzureWorkerConfig, AzureInfrastructure, provider_spec, zone_labels, zoneless=True)

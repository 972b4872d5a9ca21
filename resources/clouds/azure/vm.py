"""The VM of Azure's provider spec, with its disks and its network interface."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from resources.base import Count, Document, Key, Manifest
from resources.effects import Effect


class SubResource(Manifest):
    """A resource of Azure, by its id."""

    id: Key = Field(min_length=1)
    """`/subscriptions/…/resourceGroups/…/providers/…`."""


class ImageReference(Manifest):
    """The image; give exactly one of id, urn, communityGalleryImageID and sharedGalleryImageID."""

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

    @model_validator(mode="after")
    def one_of(self) -> Self:
        given = [self.id, self.urn, self.community_gallery_image_id, self.shared_gallery_image_id]
        if sum(bool(v) for v in given) != 1:
            raise ValueError("give exactly one of id, urn, communityGalleryImageID and sharedGalleryImageID")
        if self.urn and (self.urn.count(":") != 3 or not all(self.urn.split(":"))):
            raise ValueError("urn: write it like publisher:offer:sku:version")
        return self


class HardwareProfile(Manifest):
    """The size of the VM."""

    vm_size: Key = Field(min_length=1)
    """E.g. Standard_D4s_v5."""


class DiskSecurity(Manifest):
    """How the OS disk of a confidential VM is encrypted."""

    security_encryption_type: Key | None = None
    """DiskWithVMGuestState, VMGuestStateOnly or NonPersistedTPM."""


class ManagedDisk(Manifest):
    """The managed disk behind the OS disk."""

    id: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect: the disk is made with the VM."""
    storage_account_type: Key | None = None
    """Premium_LRS, StandardSSD_LRS, …; Azure's default for the size when absent."""
    security_profile: DiskSecurity | None = None
    """For confidential VMs."""


class OsDisk(Manifest):
    """The disk that the VM boots from."""

    name: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect: the name follows from the VM's."""
    caching: Literal["None", "ReadOnly", "ReadWrite"] | None = None
    """How the host caches it."""
    create_option: Key | None = None
    """FromImage, also when absent."""
    disk_size_gb: Count | None = Field(default=None, alias="diskSizeGB", ge=1)
    """GiB; the image's own size when absent."""
    managed_disk: ManagedDisk = Field(default_factory=ManagedDisk)
    """What kind of disk it is."""


class DataDisk(Manifest):
    """A further disk of the VM."""

    lun: Count = Field(ge=0, le=63)
    """The place where the VM sees it; each disk needs its own."""
    name: Key | None = None
    """Becomes a part of the disk's name."""
    caching: Literal["None", "ReadOnly", "ReadWrite"] | None = None
    """How the host caches it."""
    storage_account_type: Key | None = None
    """Premium_LRS, UltraSSD_LRS, …; Azure's default when absent."""
    disk_size_gb: Count = Field(alias="diskSizeGB", ge=1)
    """GiB."""
    image_ref: ImageReference | None = None
    """The image that the disk is made from, before the VM; null: it is empty."""


class StorageProfile(Manifest):
    """The image and the disks."""

    image_reference: ImageReference
    """What the OS disk is made from."""
    os_disk: OsDisk = Field(default_factory=OsDisk)
    """The disk that the VM boots from."""
    data_disks: list[DataDisk] = Field(default_factory=list)
    """Further disks, which go with the VM."""
    disk_controller_type: Literal["SCSI", "NVMe"] | None = None
    """How the VM reaches its disks; the size's default when absent."""


class SshPublicKey(Manifest):
    """A key for the administrator's login."""

    path: Key | None = None
    """The file that it is written to; `/home/<adminUsername>/.ssh/authorized_keys` when absent."""
    key_data: Key | None = None
    """The key, `ssh-rsa …`."""


class Ssh(Manifest):
    """Logins by SSH."""

    public_keys: SshPublicKey = Field(default_factory=SshPublicKey)
    """One key, as Gardener's manifests have it."""


class LinuxConfiguration(Manifest):
    """How Linux is set up."""

    disable_password_authentication: bool | None = None
    """True, also when absent: no password is ever set."""
    ssh: Ssh = Field(default_factory=Ssh)
    """Logins by SSH."""


class OsProfile(Manifest):
    """The operating system at its first start."""

    admin_username: Key = Field(default="core", min_length=1)
    """The administrator's name."""
    linux_configuration: LinuxConfiguration = Field(default_factory=LinuxConfiguration)
    """How Linux is set up."""
    computer_name: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect: it is the VM's name."""
    admin_password: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect."""
    custom_data: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect: user data comes from the Secret."""


class NetworkProfile(Manifest):
    """The network interface of the VM."""

    accelerated_networking: bool | None = None
    """Whether the VM reaches its network without the host's switch; the size must support it."""
    ip_forwarding: Annotated[bool | None, Effect.HOT] = None
    """Whether the interface takes packets for other addresses, as routes to pods need it; true when absent, as MCM."""
    network_interfaces: Annotated[Document | None, Effect.NONE] = None
    """Deprecated: accepted; it has no effect."""


class UefiSettings(Manifest):
    """The firmware of a trusted or confidential VM."""

    vtpm_enabled: bool | None = None
    """Whether there is a virtual TPM."""
    secure_boot_enabled: bool | None = None
    """Whether only signed systems boot."""


class SecurityProfile(Manifest):
    """The security type of the VM."""

    security_type: Literal["TrustedLaunch", "ConfidentialVM"] | None = None
    """The security type; null: a standard VM."""
    uefi_settings: UefiSettings | None = None
    """The firmware."""
    encryption_at_host: bool | None = None
    """Whether the host encrypts caches and temporary disks."""


class DiagnosticsProfile(Manifest):
    """The boot diagnostics: console and screenshot."""

    enabled: bool | None = None
    """Whether Azure keeps them."""
    storage_uri: Key | None = Field(default=None, alias="storageURI")
    """The storage account that keeps them; null: one of Azure's own."""


class ReservedCapacity(Manifest):
    """The capacity that was reserved for the VM."""

    capacity_reservation_group_id: Key | None = Field(default=None, alias="capacityReservationGroupID")
    """The group of reservations, by its resource id."""


class MachineSet(Manifest):
    """Deprecated: use availabilitySet or virtualMachineScaleSet."""

    id: Key = Field(min_length=1)
    """The resource id of the set."""
    kind: Literal["availabilityset", "vmo"]
    """An availability set, or a scale set in flexible mode."""


class VmProperties(Manifest):
    """The VM."""

    hardware_profile: HardwareProfile
    """Its size."""
    storage_profile: StorageProfile
    """Its image and disks."""
    os_profile: OsProfile = Field(default_factory=OsProfile)
    """Its operating system at the first start."""
    network_profile: NetworkProfile = Field(default_factory=NetworkProfile)
    """Its network interface."""
    zone: Count | None = Field(default=None, ge=1)
    """The availability zone; or one of the two sets below; null: Azure chooses."""
    availability_set: SubResource | None = None
    """The availability set."""
    virtual_machine_scale_set: SubResource | None = None
    """The scale set, in flexible mode."""
    machine_set: MachineSet | None = None
    """Deprecated: use availabilitySet or virtualMachineScaleSet."""
    identity_id: Key | None = Field(default=None, alias="identityID")
    """The managed identity that the VM has, by its resource id."""
    security_profile: SecurityProfile | None = None
    """Its security type."""
    diagnostics_profile: DiagnosticsProfile | None = None
    """Its boot diagnostics."""
    capacity_reservation: ReservedCapacity | None = None
    """Reserved capacity."""
    priority: Literal["Regular", "Spot"] | None = None
    """`Spot`: cheaper, and Azure may take it away at any time."""
    eviction_policy: Literal["Delete", "Deallocate"] | None = None
    """What becomes of a spot VM that is taken away; `Delete` when absent."""

    @model_validator(mode="after")
    def one_place(self) -> Self:
        sets = (self.availability_set, self.virtual_machine_scale_set, self.machine_set)
        if sum(s is not None for s in sets) > 1:
            raise ValueError("give one of availabilitySet, virtualMachineScaleSet and machineSet")
        return self

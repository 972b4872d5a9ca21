"""OpenShift's AzureMachineProviderSpec (openshift/api, machine/v1beta1, types_azureprovider.go), as a provider spec of
ours. What upstream's actuator does with it: machine-api-provider-azure, pkg/cloud/azure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from resources.base import Count, Key, Manifest, Name
from resources.clouds.azure.domain import AzureFailureDomain
from resources.clouds.azure.spec import TAG_RULES
from resources.clouds.base import Tags
from resources.clouds.domain import FailureDomain
from resources.clouds.openshift import DEFAULT, Becomes, Mistake, OpenShiftSpec, Rejected, some
from resources.names import CLUSTER_PREFIX

_BALANCERS = (
    "Hostler registers no machines at load balancers, so that new ones would get no traffic: have something else do "
    "that (the cloud's controller manager), and remove this field"
)
_GROUPS = "a network interface gets no groups of its own: attach them to the subnet, and remove this field"
_KEYS = "disks are encrypted with the platform's keys only; remove this field"
Switch = Literal["Enabled", "Disabled"]


class AzureImage(Manifest):
    """The image."""

    resource_id: Annotated[
        Key | None,
        Becomes("properties.storageProfile.imageReference.id", "one that begins with /resourceGroups is completed"),
    ] = Field(default=None, alias="resourceID")
    publisher: Annotated[Key | None, Becomes("properties.storageProfile.imageReference.urn")] = None
    offer: Annotated[Key | None, Becomes("properties.storageProfile.imageReference.urn")] = None
    sku: Annotated[Key | None, Becomes("properties.storageProfile.imageReference.urn")] = None
    version: Annotated[Key | None, Becomes("properties.storageProfile.imageReference.urn")] = None
    type: Annotated[
        Literal["ID", "MarketplaceWithPlan", "MarketplaceNoPlan"] | None,
        Becomes("properties.storageProfile.imageReference.skipMarketplaceAgreement", "true without a plan"),
    ] = None


class AzureDiskKeys(Manifest):
    """A set of keys of one's own."""

    id: Annotated[Key | None, Rejected(_KEYS)] = None


class AzureDiskSecurity(Manifest):
    """How the disk of a confidential VM is encrypted."""

    disk_encryption_set: AzureDiskKeys | None = None
    security_encryption_type: Annotated[
        Key | None, Becomes("properties.storageProfile.osDisk.managedDisk.securityProfile.securityEncryptionType")
    ] = None


class AzureOsManagedDisk(Manifest):
    """What kind of disk it is."""

    storage_account_type: Annotated[
        Key | None, Becomes("properties.storageProfile.osDisk.managedDisk.storageAccountType")
    ] = None
    disk_encryption_set: AzureDiskKeys | None = None
    security_profile: AzureDiskSecurity = Field(default_factory=AzureDiskSecurity)


class AzureDiskSettings(Manifest):
    """Whether it is on the VM's host."""

    ephemeral_storage_location: Annotated[
        Key | None, Rejected("the OS disk is a managed one: a control plane keeps etcd on it; remove this field")
    ] = None


class AzureOsDisk(Manifest):
    """The disk that the VM boots from."""

    os_type: Annotated[Literal["Linux"] | None, DEFAULT] = None
    managed_disk: AzureOsManagedDisk = Field(default_factory=AzureOsManagedDisk)
    disk_size_gb: Annotated[Count | None, Becomes("properties.storageProfile.osDisk.diskSizeGB")] = Field(
        default=None, alias="diskSizeGB"
    )
    disk_settings: AzureDiskSettings = Field(default_factory=AzureDiskSettings)
    caching_type: Annotated[
        Literal["None", "ReadOnly", "ReadWrite", ""] | None, Becomes("properties.storageProfile.osDisk.caching")
    ] = None


class AzureDataManagedDisk(Manifest):
    """What kind of disk it is."""

    storage_account_type: Annotated[
        Key | None,
        Becomes("properties.storageProfile.dataDisks[].storageAccountType", "Premium_LRS when absent, as upstream"),
    ] = None
    disk_encryption_set: AzureDiskKeys | None = None


class AzureDataDisk(Manifest):
    """A further disk."""

    name_suffix: Annotated[Key, Becomes("properties.storageProfile.dataDisks[].name")]
    disk_size_gb: Annotated[Count, Becomes("properties.storageProfile.dataDisks[].diskSizeGB")] = Field(
        alias="diskSizeGB"
    )
    managed_disk: AzureDataManagedDisk = Field(default_factory=AzureDataManagedDisk)
    lun: Annotated[Count, Becomes("properties.storageProfile.dataDisks[].lun")] = 0
    caching_type: Annotated[
        Literal["None", "ReadOnly", "ReadWrite", ""] | None, Becomes("properties.storageProfile.dataDisks[].caching")
    ] = None
    deletion_policy: Annotated[Literal["Delete"] | None, DEFAULT] = None


class AzureSpot(Manifest):
    """How a spot VM is asked for."""

    max_price: Annotated[
        Key | None, Rejected("a spot VM is paid for up to the price of a regular one; remove this field")
    ] = None


class AzureUefi(Manifest):
    """The firmware."""

    secure_boot: Annotated[Switch | None, Becomes("properties.securityProfile.uefiSettings.secureBootEnabled")] = None
    virtualized_trusted_platform_module: Annotated[
        Switch | None, Becomes("properties.securityProfile.uefiSettings.vtpmEnabled")
    ] = None


class AzureSecured(Manifest):
    """A VM of this security type."""

    uefi_settings: AzureUefi = Field(default_factory=AzureUefi)


class AzureSecuritySettings(Manifest):
    """The security type, and its firmware."""

    security_type: Annotated[
        Literal["ConfidentialVM", "TrustedLaunch"] | None, Becomes("properties.securityProfile.securityType")
    ] = None
    confidential_vm: AzureSecured | None = Field(default=None, alias="confidentialVM")
    trusted_launch: AzureSecured | None = None


class AzureSecurity(Manifest):
    """The VM's security."""

    encryption_at_host: Annotated[bool | None, Becomes("properties.securityProfile.encryptionAtHost")] = None
    settings: AzureSecuritySettings = Field(default_factory=AzureSecuritySettings)


class AzureCustomersDiagnostics(Manifest):
    """A storage account of one's own."""

    storage_account_uri: Annotated[Key | None, Becomes("properties.diagnosticsProfile.storageURI")] = Field(
        default=None, alias="storageAccountURI"
    )


class AzureBootDiagnostics(Manifest):
    """Console and screenshot."""

    storage_account_type: Annotated[
        Literal["AzureManaged", "CustomerManaged"] | None, Becomes("properties.diagnosticsProfile.enabled", "true")
    ] = None
    customer_managed: AzureCustomersDiagnostics | None = None


class AzureDiagnostics(Manifest):
    """What Azure keeps for a diagnosis."""

    boot: AzureBootDiagnostics | None = None


class AzureMachineProviderSpec(OpenShiftSpec):
    """OpenShift's spec of a machine on Azure."""

    KIND: ClassVar = "AzureMachineProviderSpec"

    location: Annotated[Name | None, Becomes("location")] = None
    """Where the machines are."""
    vm_size: Annotated[Key, Becomes("properties.hardwareProfile.vmSize")] = Field(min_length=1)
    """The size of the VM."""
    image: AzureImage
    """The image."""
    os_disk: AzureOsDisk = Field(default_factory=AzureOsDisk)
    """The disk that the VM boots from."""
    data_disks: list[AzureDataDisk] = Field(default_factory=list)
    """Further disks."""
    ssh_public_key: Annotated[Key | None, Becomes("properties.osProfile.linuxConfiguration.ssh.publicKeys.keyData")] = (
        Field(default=None, alias="sshPublicKey")
    )
    """The key for SSH."""
    public_ip: Annotated[
        bool, Rejected("a machine gets no public address; reach it through the network, and write false")
    ] = Field(default=False, alias="publicIP")
    """Whether it gets a public address."""
    tags: Annotated[Tags, Becomes("vmTags, nicTags, diskTags", "with kubernetes.io-cluster-<id>: owned")] = Field(
        default_factory=dict
    )
    """Tags of the machine's resources."""
    security_group: Annotated[Key | None, Rejected(_GROUPS)] = None
    """The network security group of the interface."""
    application_security_groups: Annotated[list[Key], Rejected(_GROUPS)] = Field(default_factory=list)
    """The application security groups of the interface."""
    subnet: Annotated[Key | None, Becomes("subnetInfo.subnetName")] = None
    """The subnet, unless each failure domain has its own."""
    public_load_balancer: Annotated[Key | None, Rejected(_BALANCERS)] = None
    """The public load balancer that machines join."""
    internal_load_balancer: Annotated[Key | None, Rejected(_BALANCERS)] = None
    """The internal load balancer that machines join."""
    nat_rule: Annotated[Count | None, Rejected(_BALANCERS)] = None
    """The load balancer's rule for inbound connections."""
    managed_identity: Annotated[
        Key | None, Becomes("properties.identityID", "a name is one of the resource group's")
    ] = None
    """The managed identity of the VM."""
    vnet: Annotated[Key | None, Becomes("subnetInfo.vnetName")] = None
    """The virtual network."""
    zone: Annotated[Key | None, Becomes("properties.zone", "as a number")] = None
    """The availability zone."""
    network_resource_group: Annotated[Key | None, Becomes("subnetInfo.vnetResourceGroup")] = None
    """The network's resource group."""
    resource_group: Annotated[Name | None, Becomes("resourceGroup")] = None
    """The VM's resource group."""
    spot_vm_options: AzureSpot | None = Field(default=None, alias="spotVMOptions")
    """How a spot VM is asked for: properties.priority: Spot."""
    security_profile: AzureSecurity | None = None
    """The VM's security type."""
    ultra_ssd_capability: Annotated[
        Key | None,
        Rejected("the VM has it where a data disk is an ultra disk, and not for others; remove this field"),
    ] = Field(default=None, alias="ultraSSDCapability")
    """Whether ultra disks can be attached."""
    accelerated_networking: Annotated[bool, Becomes("properties.networkProfile.acceleratedNetworking")] = False
    """Whether the VM reaches its network without the host's switch."""
    availability_set: Annotated[
        Key | None, Becomes("properties.availabilitySet.id", "a name is one of the resource group's")
    ] = None
    """The availability set."""
    diagnostics: AzureDiagnostics = Field(default_factory=AzureDiagnostics)
    """Boot diagnostics."""
    capacity_reservation_group_id: Annotated[
        Key | None, Becomes("properties.capacityReservation.capacityReservationGroupID")
    ] = Field(default=None, alias="capacityReservationGroupID")
    """The group of capacity reservations."""

    def translated(self, cluster_id: str) -> dict[str, Any]:
        tags = {**self.tags, TAG_RULES.key(f"{CLUSTER_PREFIX}{cluster_id}"): "owned"}
        return some(
            location=self.location,
            resourceGroup=self.resource_group,
            subnetInfo={
                "vnetName": self.vnet or "",
                "subnetName": self.subnet or "",
                **some(vnetResourceGroup=self.network_resource_group),
            },
            vmTags=tags,
            nicTags=tags,
            diskTags=tags,
            properties=some(
                hardwareProfile={"vmSize": self.vm_size},
                storageProfile=self._storage(),
                osProfile=self._system(),
                networkProfile={"acceleratedNetworking": self.accelerated_networking},
                zone=int(self.zone) if self.zone and self.zone.isdecimal() else None,
                availabilitySet=some(id=self._id("Microsoft.Compute/availabilitySets", self.availability_set)),
                identityID=self._id("Microsoft.ManagedIdentity/userAssignedIdentities", self.managed_identity),
                securityProfile=self._security(),
                diagnosticsProfile=self._diagnostics(),
                capacityReservation=some(capacityReservationGroupID=self.capacity_reservation_group_id),
                priority="Spot" if self.spot_vm_options is not None else None,
            ),
        )

    def _id(self, kind: str, name: str | None) -> str | None:
        """The id of a resource of the VM's group, of which OpenShift gives the name; the driver adds the
        subscription."""
        if not name or "/" in name:
            return name
        return f"/resourceGroups/{self.resource_group}/providers/{kind}/{name}"

    def _storage(self) -> dict[str, Any]:
        image, disk = self.image, self.os_disk
        urn = ":".join(part or "" for part in (image.publisher, image.offer, image.sku, image.version))
        free = None if image.type == "MarketplaceWithPlan" else True
        return some(
            imageReference={"id": image.resource_id}
            if image.resource_id
            else some(urn=urn, skipMarketplaceAgreement=free),
            osDisk=some(
                caching=disk.caching_type,
                diskSizeGB=disk.disk_size_gb or None,
                managedDisk=some(
                    storageAccountType=disk.managed_disk.storage_account_type,
                    securityProfile=some(
                        securityEncryptionType=disk.managed_disk.security_profile.security_encryption_type
                    ),
                ),
            ),
            dataDisks=[
                some(
                    name=one.name_suffix,
                    lun=one.lun,
                    diskSizeGB=one.disk_size_gb,
                    caching=one.caching_type,
                    storageAccountType=one.managed_disk.storage_account_type or "Premium_LRS",
                )
                for one in self.data_disks
            ],
        )

    def _system(self) -> dict[str, Any]:
        key = some(keyData=self.ssh_public_key)
        return {"linuxConfiguration": {"ssh": {"publicKeys": key}}} if key else {}

    def _security(self) -> dict[str, Any]:
        given = self.security_profile
        if given is None:
            return {}
        secured = given.settings.confidential_vm or given.settings.trusted_launch or AzureSecured()
        uefi = secured.uefi_settings
        return some(
            encryptionAtHost=given.encryption_at_host,
            securityType=given.settings.security_type,
            uefiSettings=some(
                secureBootEnabled=_switched(uefi.secure_boot),
                vtpmEnabled=_switched(uefi.virtualized_trusted_platform_module),
            ),
        )

    def _diagnostics(self) -> dict[str, Any]:
        boot = self.diagnostics.boot
        if boot is None:
            return {}
        customers = boot.customer_managed
        return some(enabled=True, storageURI=customers.storage_account_uri if customers else None)

    def mistakes(self, domains: Sequence[FailureDomain]) -> list[Mistake]:
        found: list[Mistake] = []
        image = self.image
        if not image.resource_id and not all((image.publisher, image.offer, image.sku, image.version)):
            found.append(("image", "missing: give resourceID, or publisher, offer, sku and version"))
        for path, value in (
            ("location", self.location),
            ("resourceGroup", self.resource_group),
            ("vnet", self.vnet),
        ):
            if not value:
                found.append((path, "missing: Hostler does not make it up from the cluster's name"))
        if self.zone and not self.zone.isdecimal():
            found.append(("zone", 'an availability zone of Azure is a number; write it like "1"'))
        subnets = [d.subnet for d in domains if isinstance(d, AzureFailureDomain)]
        if not self.subnet and not (subnets and all(subnets)):
            found.append(("subnet", "missing: give it here, or give each failure domain its own"))
        return found


def _switched(given: str | None) -> bool | None:
    return None if given is None else given == "Enabled"

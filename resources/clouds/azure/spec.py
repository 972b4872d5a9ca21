"""The provider spec of Azure: every field of Gardener's AzureProviderSpec (machine-controller-manager-provider-azure,
pkg/azure/api/providerspec.go), including those that MCM ignores, plus vmTags, nicTags and diskTags (seed 002), IP
forwarding and spot VMs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from resources.base import Key, Manifest, Name
from resources.canonical import Empty
from resources.clouds.azure.domain import AzureFailureDomain
from resources.clouds.azure.vm import VmProperties
from resources.clouds.base import TaggedApart, TagRules, Tags, shown_key
from resources.effects import Effect

OF_SUBSCRIPTION = "/resourceGroups/"
_FORBIDDEN = re.compile(r"[<>%&\\?/]")
"""Characters that no tag's name may have (Azure Resource Manager, *Use tags*, Limitations)."""


def written_key(key: str) -> str:
    """A key as Azure takes it: a hyphen for each character that Azure forbids, so that `kubernetes.io/cluster/x` is
    `kubernetes.io-cluster-x`, as Gardener's tools expect it. Two keys of one class that would become the same are
    refused (AzureProviderSpec.mistakes)."""
    return _FORBIDDEN.sub("-", key)


TAG_RULES = TagRules(
    limit=50,
    key=written_key,
    key_length=512,
    value_length=256,
    uncounted=("microsoft", "azure", "windows"),
)
"""Azure Resource Manager, *Use tags to organize your Azure resources*, Limitations. Names that begin with one of these
words are Azure's own."""


@dataclass(frozen=True)
class Realm:
    """One of the Azures, which know nothing of each other."""

    name: str
    """As cloudConfiguration names it."""
    endpoint: str
    authority: str
    audience: str


PUBLIC = Realm(
    "AzurePublic",
    endpoint="https://management.azure.com",
    authority="https://login.microsoftonline.com",
    audience="https://management.azure.com",
)
REALMS = {
    "usgov": Realm(
        "AzureGovernment",
        endpoint="https://management.usgovcloudapi.net",
        authority="https://login.microsoftonline.us",
        audience="https://management.usgovcloudapi.net",
    ),
    "china": Realm(
        "AzureChina",
        endpoint="https://management.chinacloudapi.cn",
        authority="https://login.chinacloudapi.cn",
        audience="https://management.chinacloudapi.cn",
    ),
}
"""Realms by how the names of their locations begin. A place says where it is without any class."""
REALMS["usdod"] = REALMS["usgov"]


def plain_location(location: str) -> str:
    """`West Europe` as `westeurope`: Azure takes both."""
    return location.replace(" ", "").lower()


def realm_of(location: str) -> Realm:
    return REALMS.get(plain_location(location)[:5], PUBLIC)


class SubnetInfo(Manifest):
    """The subnet of the VM's network interface."""

    vnet_name: Key = Field(min_length=1)
    """The virtual network."""
    vnet_resource_group: Key | None = None
    """The network's resource group; the VM's own when absent."""
    subnet_name: Key = Field(min_length=1)
    """The subnet."""


class CloudConfiguration(Manifest):
    """Which Azure it is."""

    name: Literal["AzurePublic", "AzureGovernment", "AzureChina"] | None = None
    """The one that the location is in, also when absent."""


class AzureProviderSpec(TaggedApart):
    """`providerSpec` of a MachineClass whose provider is Azure."""

    SCOPE: ClassVar = ("location", "resourceGroup")
    TAGS: ClassVar = TAG_RULES

    api_version: Annotated[Key | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    kind: Annotated[Name | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    location: Name = Field(min_length=1)
    """E.g. westeurope."""
    resource_group: Name = Field(min_length=1, max_length=90)
    """The resource group that VMs, interfaces and disks are made in; it must be there."""
    cloud_configuration: CloudConfiguration | None = None
    """Which Azure it is."""
    properties: VmProperties
    """The VM."""
    subnet_info: SubnetInfo
    """The subnet of its network interface."""
    tags: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Deprecated: goes to VM, NIC and disks alike. A specific field, even empty, replaces it for its resource."""
    vm_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the VM."""
    nic_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the network interface."""
    disk_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the disks."""

    @model_validator(mode="after")
    def luns(self) -> Self:
        luns = [d.lun for d in self.properties.storage_profile.data_disks]
        if len(set(luns)) != len(luns):
            raise ValueError("properties.storageProfile.dataDisks: two disks have the same lun")
        return self

    def in_domain(self, fields: Mapping[str, Any]) -> Self:
        domain = AzureFailureDomain.model_validate(fields)
        zone = int(domain.zone) if domain.zone.isdecimal() else None
        placed: dict[str, Any] = {"properties": self.properties.model_copy(update={"zone": zone})}
        if domain.subnet:
            placed["subnet_info"] = self.subnet_info.model_copy(update={"subnet_name": domain.subnet})
        return self.model_copy(update=placed)

    def domain(self) -> AzureFailureDomain:
        return AzureFailureDomain(zone=str(self.properties.zone or ""), subnet=self.subnet_info.subnet_name)

    def imaged_as(self, other: Self) -> Self:
        image = {"image_reference": other.properties.storage_profile.image_reference}
        storage = self.properties.storage_profile.model_copy(update=image)
        return self.model_copy(update={"properties": self.properties.model_copy(update={"storage_profile": storage})})

    def in_subscription(self, subscription: str) -> Self:
        """The spec with whole ids: one that begins with `/resourceGroups/`, as OpenShift writes them, is of the
        credentials' subscription."""
        vm, storage = self.properties, self.properties.storage_profile

        def whole(given: str | None) -> str | None:
            return f"/subscriptions/{subscription}{given}" if given and given.startswith(OF_SUBSCRIPTION) else given

        image = storage.image_reference.model_copy(update={"id": whole(storage.image_reference.id)})
        of = vm.availability_set
        fields = {
            "storage_profile": storage.model_copy(update={"image_reference": image}),
            "identity_id": whole(vm.identity_id),
            "availability_set": of and of.model_copy(update={"id": whole(of.id)}),
        }
        return self.model_copy(update={"properties": vm.model_copy(update=fields)})

    def mistakes(self) -> list[tuple[str, str]]:
        found = super().mistakes()
        for resource, tags in self.given_tags().items():
            found += [(self.tag_fields(resource), words) for words in _twins(tags)]
        vm, disks = self.properties, "properties.storageProfile.dataDisks"
        cloud, realm = self.cloud_configuration, realm_of(self.location)
        if cloud is not None and cloud.name not in (None, realm.name):
            found.append(("cloudConfiguration.name", f"{cloud.name} has no location {self.location}; remove it"))
        if vm.priority != "Spot" and vm.eviction_policy is not None:
            found.append(("properties.evictionPolicy", "only a VM with priority: Spot has one"))
        if vm.zone is not None and (vm.availability_set or (vm.machine_set and vm.machine_set.kind != "vmo")):
            found.append(("properties.zone", "an availability set is in no zone; remove one of the two"))
        for n, disk in enumerate(vm.storage_profile.data_disks):
            if disk.image_ref is not None and disk.image_ref.urn:
                words = "a data disk is made from an image by id, communityGalleryImageID or sharedGalleryImageID"
                found.append((f"{disks}[{n}].imageRef.urn", words))
        return list(dict.fromkeys(found))

    def deprecations(self) -> list[tuple[str, str]]:
        vm = self.properties
        found: list[tuple[str, str]] = []
        if self.tags:
            found.append(("tags", "deprecated: use vmTags, nicTags and diskTags (tags goes to all three)"))
        if vm.machine_set is not None:
            found.append(
                ("properties.machineSet", "deprecated: use availabilitySet or virtualMachineScaleSet (its id)")
            )
        if vm.network_profile.network_interfaces:
            found.append(("properties.networkProfile.networkInterfaces", "deprecated: it has no effect"))
        given = {
            "storageProfile.osDisk.name": vm.storage_profile.os_disk.name,
            "storageProfile.osDisk.managedDisk.id": vm.storage_profile.os_disk.managed_disk.id,
            "osProfile.computerName": vm.os_profile.computer_name,
            "osProfile.adminPassword": vm.os_profile.admin_password,
            "osProfile.customData": vm.os_profile.custom_data,
        }
        words = "accepted, but it has no effect: nothing is sent to Azure for it"
        return found + [(f"properties.{path}", words) for path, value in given.items() if value]


def _twins(tags: Tags) -> Iterator[str]:
    """Keys that Azure would take for one another, in words: it has no slash, and does not tell A from a."""
    seen: dict[str, str] = {}
    for key in tags:
        first = seen.setdefault(written_key(key).lower(), key)
        if first != key:
            yield (
                f"the keys {shown_key(first)} and {shown_key(key)} are the same to Azure, which writes a hyphen for "
                "a character that it forbids and does not tell capital letters from small ones; remove one"
            )

"""The provider spec of Google Cloud: every field of Gardener's GCPProviderSpec (mcm-provider-gcp,
pkg/api/v1alpha1/provider_spec.go), plus vmTags and diskTags (seed 002) and how spot VMs are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from resources.base import Count, Key, Manifest, Name
from resources.canonical import Empty
from resources.clouds.base import ProviderSpec, Tags, shown_key
from resources.clouds.gcp.domain import GcpFailureDomain
from resources.clouds.gcp.names import LABEL_RULES, NETWORK_TAGS_MOST, network_tag
from resources.effects import Effect
from resources.names import MUST_PREFIXES

USER_DATA_KEYS = ("user-data", "startup-script", "user-data-encoding")
"""Keys of an instance's metadata that carry its user data: Hostler alone writes them."""
LOCAL_SSD = "SCRATCH"
"""The type of a disk that is part of the VM's host: no resource of its own, so without labels."""
METADATA_VALUE_MOST = 256 * 1024
T = TypeVar("T")


class GcpDiskEncryption(Manifest):
    """The key that a disk is encrypted with."""

    kms_key_name: Key = Field(min_length=1)
    """The key in Cloud KMS, `projects/…/cryptoKeys/…`."""
    kms_key_service_account: Key | None = None
    """The service account that may use the key; null: Compute Engine's own."""


class GcpDisk(Manifest):
    """A disk of the VM, made with it."""

    type: Key = Field(min_length=1)
    """`pd-ssd`, `pd-balanced`, `hyperdisk-balanced`, …; `SCRATCH`: a local SSD."""
    auto_delete: bool | None = None
    """Whether it goes with the VM; default true, as MCM."""
    boot: bool = False
    """Whether the VM boots from it; exactly one disk is for that."""
    size_gb: Count | None = Field(default=None, ge=1)
    """GiB; null: the image's size."""
    interface: Literal["NVME", "SCSI"] | None = None
    """The interface of a local SSD, which needs one."""
    image: Key | None = None
    """The image that it is made from, `projects/…/global/images/…`; a boot disk needs it."""
    encryption: GcpDiskEncryption | None = None
    labels: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Labels of this disk alone, over those of diskTags."""
    provisioned_iops: Count | None = Field(default=None, ge=0)
    """I/O operations a second, for types of disk that take them."""
    provisioned_throughput: Count | None = Field(default=None, ge=0)
    """MiB a second, for types of disk that take it."""
    storage_pool: Key | None = None
    """The storage pool that it is made in."""


class GcpGpu(Manifest):
    """GPUs of the VM."""

    accelerator_type: Key = Field(min_length=1)
    """The type, e.g. nvidia-l4."""
    count: Count = Field(ge=1)
    """How many."""


class GcpNetworkInterface(Manifest):
    """A network interface of the VM; it is part of the VM and carries no labels."""

    network: Key | None = None
    """The network; null: the subnetwork's."""
    subnetwork: Key | None = None
    """The subnetwork, by name or as `regions/…/subnetworks/…`."""
    disable_external_ip: bool = Field(default=False, alias="disableExternalIP")
    """True: it gets no external address."""
    stack_type: Literal["IPV4_ONLY", "IPV4_IPV6", "IPV6_ONLY"] | None = None
    """Which kinds of addresses it gets; null: IPv4 alone."""
    ipv6_access_type: Literal["EXTERNAL", "INTERNAL"] | None = Field(default=None, alias="ipv6accessType")
    """Whether its IPv6 addresses are reachable from outside; null: as its subnetwork has it."""
    use_alias_ips: Annotated[bool, Effect.HOT] = Field(default=False, alias="useAliasIPs")
    """Whether it gets an alias IP range, for pods."""
    ip_cidr_range: Annotated[Key | None, Effect.HOT] = None
    """The alias IP range: its size, `/24`, or the range itself."""
    subnetwork_range_name: Annotated[Name | None, Effect.HOT] = None
    """The subnetwork's secondary range that the alias IP range is taken from; null: the primary one."""

    @model_validator(mode="after")
    def one_of(self) -> Self:
        if not self.network and not self.subnetwork:
            raise ValueError("give network, subnetwork, or both")
        if self.use_alias_ips and not self.ip_cidr_range:
            raise ValueError("useAliasIPs needs ipCidrRange, e.g. /24")
        return self


class GcpScheduling(Manifest):
    """What becomes of the VM when its host is maintained, fails, or is wanted by others."""

    automatic_restart: bool | None = None
    """Whether Google starts it again after its host has failed; null: yes, but never a spot VM."""
    on_host_maintenance: Literal["MIGRATE", "TERMINATE"] | None = None
    """Null: it migrates, or is stopped where it cannot (spot, GPUs)."""
    preemptible: bool = False
    """The former kind of spot VM, which lives for 24 hours at most."""
    provisioning_model: Literal["STANDARD", "SPOT"] | None = None
    """`SPOT`: cheaper, and Google may take it back at any time."""
    instance_termination_action: Literal["STOP", "DELETE"] | None = None
    """What Google does with a spot VM that it takes back; null: it is stopped, and Hostler replaces and deletes it."""

    @property
    def is_spot(self) -> bool:
        return self.preemptible or self.provisioning_model == "SPOT"


class GcpServiceAccount(Manifest):
    """The service account that programs on the VM run under."""

    email: Key = Field(min_length=1)
    """Its address, or `default`."""
    scopes: list[Key] = Field(default_factory=list)
    """What its tokens may be used for."""


class GcpShieldedInstance(Manifest):
    """What protects the VM's boot."""

    enable_secure_boot: bool | None = None
    """Whether only signed boot loaders and kernels are started."""
    enable_vtpm: bool | None = None
    """Whether it has a virtual TPM."""
    enable_integrity_monitoring: bool | None = None
    """Whether its boot is measured."""


class GcpAdvancedFeatures(Manifest):
    """Rarer properties of the VM's processors."""

    enable_nested_virtualization: bool | None = None
    """Whether it may run VMs itself."""
    enable_uefi_networking: bool | None = None
    """Whether it may boot from the network."""
    performance_monitoring_unit: Literal["ARCHITECTURAL", "ENHANCED", "STANDARD"] | None = None
    """Which performance counters it sees."""
    threads_per_core: Count | None = Field(default=None, ge=1, le=2)
    """1 switches hyper-threading off."""
    turbo_mode: Key | None = None
    """`ALL_CORE_MAX`: all cores run as fast as they can."""
    visible_core_count: Count | None = Field(default=None, ge=1)
    """How many cores it sees."""


def _by_key(given: Any) -> Any:
    """Metadata as Gardener writes it, a list of `key` and `value`, as a table. Raises ValueError for a key that stands
    there twice."""
    if not isinstance(given, list) or not all(isinstance(item, dict) and {*item} <= {"key", "value"} for item in given):
        return given
    table: dict[Any, Any] = {}
    for item in given:
        if (key := item.get("key")) in table:
            raise ValueError(f"the key {shown_key(str(key))} is given twice")
        table[key] = item.get("value") or ""
    return table


Metadata = Annotated[dict[Key, Annotated[str, Field(max_length=METADATA_VALUE_MOST)]], BeforeValidator(_by_key)]


class GcpProviderSpec(ProviderSpec):
    """`providerSpec` of a MachineClass whose provider is GCP."""

    SCOPE: ClassVar = ("zone",)
    TAGS: ClassVar = LABEL_RULES

    api_version: Annotated[Key | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    kind: Annotated[Name | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    region: Name = Field(min_length=1)
    """E.g. europe-west1."""
    zone: Name = Field(min_length=1)
    """A zone of the region, e.g. europe-west1-b."""
    machine_type: Key = Field(min_length=1)
    """E.g. n2-standard-4."""
    disks: list[GcpDisk] = Field(min_length=1)
    """The disks of the VM."""
    network_interfaces: list[GcpNetworkInterface] = Field(min_length=1)
    """The network interfaces of the VM, the first one being its primary."""
    can_ip_forward: bool = False
    """Whether it may send and receive packets for other addresses, as pods of a routed network need."""
    deletion_protection: bool = False
    """Whether nobody else can delete the VM. Hostler lifts it when the machine goes."""
    description: Annotated[Key | None, Effect.HASH] = None
    """A description, shown by Google."""
    gpu: GcpGpu | None = None
    min_cpu_platform: Key | None = None
    """The oldest processors that it may run on, e.g. Intel Ice Lake."""
    scheduling: GcpScheduling = Field(default_factory=GcpScheduling)
    service_accounts: list[GcpServiceAccount] = Field(default_factory=list)
    """At most one; none: programs on the VM have no rights."""
    shielded_instance_configuration: GcpShieldedInstance | None = None
    advanced_machine_features: GcpAdvancedFeatures | None = None
    metadata: Annotated[Metadata, Effect.HOT] = Field(default_factory=dict)
    """Metadata of the VM by key, or as Gardener's list of `key` and `value`; not its user data."""
    tags: Annotated[list[Key], Effect.HOT] = Field(default_factory=list)
    """Network tags, which firewall rules and routes go by."""
    labels: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Deprecated: labels of the VM. vmTags, even empty, takes its place."""
    vm_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Labels of the VM."""
    disk_tags: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Labels of every disk; those of one disk stand over them."""
    nic_tags: Annotated[Tags | None, Effect.NONE] = None
    """Refused: network interfaces carry no labels here."""

    # -- labels and network tags

    @property
    def persistent(self) -> dict[int, GcpDisk]:
        """The disks that are resources of their own, by their place in the list."""
        return {n: disk for n, disk in enumerate(self.disks) if disk.type != LOCAL_SSD}

    @property
    def network_tags(self) -> list[str]:
        """The class's network tags as Google has them, each once."""
        return list(dict.fromkeys(map(network_tag, self.tags)))

    def tag_sets(self) -> dict[str, Tags]:
        vm = self.labels if self.vm_tags is None else self.vm_tags
        disks = {f"disks[{n}]": {**self.disk_tags, **disk.labels} for n, disk in self.persistent.items()}
        return {resource: self.TAGS.written(labels) for resource, labels in {"vm": vm, **disks}.items()}

    def tag_fields(self, resource: str) -> str:
        return "vmTags or labels" if resource == "vm" else f"diskTags or {resource}.labels"

    def must_tags(self) -> Tags:
        """The must-tags wherever the class has them: Gardener's have them among the network tags."""
        tables = [self.labels, self.vm_tags or {}, self.disk_tags, *(disk.labels for disk in self.disks)]
        every = {k: v for table in tables for k, v in self.TAGS.written(table).items()}
        named = dict.fromkeys(self.network_tags, "1")
        return {k: v for k, v in {**named, **every}.items() if self.TAGS.is_must(k)}

    def settled(self) -> Self:
        """The spec with vmTags, and with all labels of a disk at the disk. `labels` keeps the must-tags, which the
        class may have only there."""
        disks = [disk.model_copy(update={"labels": {**self.disk_tags, **disk.labels}}) for disk in self.disks]
        vm = self.labels if self.vm_tags is None else self.vm_tags
        must = {k: v for k, v in self.labels.items() if self.TAGS.is_must(self.TAGS.key(k))}
        return self.model_copy(update={"vm_tags": dict(vm), "labels": must, "disks": disks, "disk_tags": {}})

    def in_one_spelling(self) -> Self:
        """The spec as drivers/gcp reads it: what Google does by default is left out."""
        fields = {
            "disks": [_plain_disk(disk) for disk in self.disks],
            "network_interfaces": [_plain_nic(nic) for nic in self.network_interfaces],
            "scheduling": _plain_scheduling(self.scheduling, self.gpu is not None),
            "service_accounts": [
                account.model_copy(update={"scopes": sorted(set(account.scopes))}) for account in self.service_accounts
            ],
            "tags": sorted(self.network_tags),
        }
        return self.model_copy(update=fields)

    # -- of a control plane

    def in_domain(self, fields: Mapping[str, Any]) -> Self:
        return self.model_copy(update={"zone": GcpFailureDomain.model_validate(fields).zone})

    def domain(self) -> GcpFailureDomain:
        return GcpFailureDomain(zone=self.zone)

    def imaged_as(self, other: Self) -> Self:
        """Boot disks take the images of the other's boot disks, of which each has one."""
        image = next((disk.image for disk in other.disks if disk.boot), None)
        disks = [disk.model_copy(update={"image": image}) if disk.boot else disk for disk in self.disks]
        return self.model_copy(update={"disks": disks}) if image else self

    # -- what is wrong

    def mistakes(self) -> list[tuple[str, str]]:
        return [*super().mistakes(), *self._wrong()]

    def _wrong(self) -> Iterator[tuple[str, str]]:
        if self.zone.rpartition("-")[0] != self.region:
            yield "zone", f"{self.zone} is not a zone of the region {self.region}"
        if self.nic_tags is not None:
            yield "nicTags", "network interfaces of Google Cloud carry no labels; remove it, and use vmTags or diskTags"
        if len(boot := [n for n, disk in enumerate(self.disks) if disk.boot]) != 1:
            yield "disks", f"exactly one disk needs boot: true, not {len(boot)}"
        for n, disk in enumerate(self.disks):
            yield from _wrong_of_disk(f"disks[{n}]", disk)
        if len(self.service_accounts) > 1:
            yield "serviceAccounts", "a VM has one service account at most"
        if self.scheduling.on_host_maintenance == "MIGRATE" and (self.scheduling.is_spot or self.gpu):
            kind = "a spot VM" if self.scheduling.is_spot else "a VM with GPUs"
            yield "scheduling.onHostMaintenance", f"{kind} cannot migrate; write TERMINATE"
        if self.scheduling.is_spot and self.scheduling.automatic_restart:
            yield "scheduling.automaticRestart", "a spot VM is not started again; remove it, or write false"
        if self.scheduling.instance_termination_action and not self.scheduling.is_spot:
            yield "scheduling.instanceTerminationAction", "only for spot VMs; add provisioningModel: SPOT or remove it"
        for key in self.metadata:
            if key in USER_DATA_KEYS:
                yield f"metadata.{key}", "Hostler writes the user data there; give it in the Secret that has userData"
            elif not key or not key.isascii() or not key.replace("-", "").replace("_", "").isalnum() or len(key) > 128:
                yield "metadata", f"the key {shown_key(key)} may have 128 letters, digits, - and _"
        if (count := len(self.network_tags)) > NETWORK_TAGS_MOST:
            yield "tags", f"{count} network tags, the cloud takes {NETWORK_TAGS_MOST}"

    def crowding(self) -> list[tuple[str, str]]:
        own = [tag for tag in self.network_tags if not self.TAGS.is_must(tag)]
        over = len(own) + len(MUST_PREFIXES) - NETWORK_TAGS_MOST
        words = (
            f"{len(own)} network tags, and {len(MUST_PREFIXES)} that are on every VM, are more than the "
            f"{NETWORK_TAGS_MOST} that the cloud takes: remove {over}"
        )
        return [*super().crowding(), *([("tags", words)] if over > 0 else [])]

    def deprecations(self) -> list[tuple[str, str]]:
        if not self.labels:
            return []
        return [("labels", "deprecated: use vmTags (the network tags in `tags` are another thing, and stay)")]


def _wrong_of_disk(path: str, disk: GcpDisk) -> Iterator[tuple[str, str]]:
    if disk.type != LOCAL_SSD:
        if disk.boot and not disk.image:
            yield f"{path}.image", "missing: a boot disk is made from an image"
        if not disk.boot and not disk.image and not disk.size_gb:
            yield f"{path}.sizeGb", "missing: an empty disk needs a size"
        return
    if disk.interface is None:
        yield f"{path}.interface", "missing: a local SSD (SCRATCH) needs NVME or SCSI"
    if disk.boot:
        yield f"{path}.boot", "a VM does not boot from a local SSD (SCRATCH)"
    if disk.auto_delete is False:
        yield f"{path}.autoDelete", "a local SSD (SCRATCH) always goes with its VM"
    if disk.labels:
        yield f"{path}.labels", "a local SSD (SCRATCH) carries no labels; remove them"


# -- one spelling ------------------------------------------------------------------------------------------------------


def _unless(value: T | None, usual: T) -> T | None:
    return None if value == usual else value


def _plain_disk(disk: GcpDisk) -> GcpDisk:
    fields = {
        "auto_delete": _unless(disk.auto_delete, True),
        "provisioned_iops": disk.provisioned_iops or None,
        "provisioned_throughput": disk.provisioned_throughput or None,
        "interface": disk.interface if disk.type == LOCAL_SSD else None,  # MCM too gives it to local SSDs alone
    }
    return disk.model_copy(update=fields)


def _plain_nic(nic: GcpNetworkInterface) -> GcpNetworkInterface:
    fields = {
        "stack_type": _unless(nic.stack_type, "IPV4_ONLY"),
        "ip_cidr_range": nic.ip_cidr_range if nic.use_alias_ips else None,
        "subnetwork_range_name": nic.subnetwork_range_name if nic.use_alias_ips else None,
    }
    return nic.model_copy(update=fields)


def _plain_scheduling(given: GcpScheduling, gpu: bool) -> GcpScheduling:
    fields = {
        "automatic_restart": _unless(given.automatic_restart, not given.is_spot),
        "on_host_maintenance": _unless(given.on_host_maintenance, "TERMINATE" if given.is_spot or gpu else "MIGRATE"),
        "provisioning_model": _unless(given.provisioning_model, "STANDARD"),
        "instance_termination_action": _unless(given.instance_termination_action, "STOP"),
    }
    return given.model_copy(update=fields)

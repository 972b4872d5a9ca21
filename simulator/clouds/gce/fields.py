"""The bodies of requests, field by field: what the simulator emulates. Any other field is refused with its path, so
that nothing that Compute Engine would do is silently left undone."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from simulator.clouds.gce.context import Row
from simulator.clouds.gce.errors import GceError, unsupported

B = TypeVar("B", bound="Body")


class Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", populate_by_name=True)

    def row(self, *without: str) -> Row:
        """What was given, as JSON shows it."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(without))


class TagsBody(Body):
    items: list[str] = []
    fingerprint: str | None = None


class MetadataItem(Body):
    key: str
    value: str = ""


class MetadataBody(Body):
    items: list[MetadataItem] = []
    fingerprint: str | None = None
    kind: str | None = None


class AliasIpRange(Body):
    ip_cidr_range: str
    subnetwork_range_name: str | None = None


class AccessConfig(Body):
    name: str | None = None
    type: Literal["ONE_TO_ONE_NAT", "DIRECT_IPV6"] | None = None
    network_tier: Literal["PREMIUM", "STANDARD"] | None = None
    kind: str | None = None


class InterfaceBody(Body):
    name: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    network_ip: str | None = Field(default=None, alias="networkIP")
    stack_type: Literal["IPV4_ONLY", "IPV4_IPV6", "IPV6_ONLY"] | None = None
    ipv6_access_type: Literal["INTERNAL", "EXTERNAL"] | None = None
    nic_type: Literal["GVNIC", "VIRTIO_NET"] | None = None
    access_configs: list[AccessConfig] | None = None
    ipv6_access_configs: list[AccessConfig] | None = None
    alias_ip_ranges: list[AliasIpRange] | None = None
    fingerprint: str | None = None
    kind: str | None = None


class EncryptionKey(Body):
    kms_key_name: str | None = None
    kms_key_service_account: str | None = None


class DiskParams(Body):
    """initializeParams: a disk that is made with its instance."""

    disk_name: str | None = None
    source_image: str | None = None
    disk_size_gb: int | None = Field(default=None, ge=1)
    disk_type: str | None = None
    description: str | None = None
    labels: dict[str, str] = {}
    provisioned_iops: int | None = None
    provisioned_throughput: int | None = None
    storage_pool: str | None = None


class AttachedDiskBody(Body):
    boot: bool = False
    auto_delete: bool = False
    device_name: str | None = None
    type: Literal["PERSISTENT", "SCRATCH"] = "PERSISTENT"
    mode: Literal["READ_WRITE", "READ_ONLY"] = "READ_WRITE"
    interface: Literal["SCSI", "NVME"] | None = None
    source: str | None = None
    initialize_params: DiskParams | None = None
    disk_encryption_key: EncryptionKey | None = None
    disk_size_gb: int | None = None
    index: int | None = None
    kind: str | None = None


class ServiceAccountBody(Body):
    email: str
    scopes: list[str] = []


class SchedulingBody(Body):
    automatic_restart: bool | None = None
    on_host_maintenance: Literal["MIGRATE", "TERMINATE"] | None = None
    preemptible: bool | None = None
    provisioning_model: Literal["STANDARD", "SPOT"] | None = None
    instance_termination_action: Literal["STOP", "DELETE"] | None = None


class Accelerator(Body):
    accelerator_type: str
    accelerator_count: int = Field(ge=0)


class ShieldedBody(Body):
    enable_secure_boot: bool | None = None
    enable_vtpm: bool | None = None
    enable_integrity_monitoring: bool | None = None


class AdvancedBody(Body):
    enable_nested_virtualization: bool | None = None
    enable_uefi_networking: bool | None = None
    performance_monitoring_unit: str | None = None
    threads_per_core: int | None = None
    turbo_mode: str | None = None
    visible_core_count: int | None = None


class InstanceBody(Body):
    name: str | None = None
    description: str | None = None
    machine_type: str | None = None
    can_ip_forward: bool = False
    deletion_protection: bool = False
    labels: dict[str, str] = {}
    tags: TagsBody = TagsBody()
    metadata: MetadataBody = MetadataBody()
    disks: list[AttachedDiskBody] = []
    network_interfaces: list[InterfaceBody] = []
    service_accounts: list[ServiceAccountBody] = []
    scheduling: SchedulingBody = SchedulingBody()
    guest_accelerators: list[Accelerator] = []
    min_cpu_platform: str | None = None
    shielded_instance_config: ShieldedBody | None = None
    advanced_machine_features: AdvancedBody | None = None
    zone: str | None = None
    kind: str | None = None


class DiskBody(Body):
    name: str | None = None
    description: str | None = None
    size_gb: int | None = Field(default=None, ge=1)
    type: str | None = None
    source_image: str | None = None
    labels: dict[str, str] = {}
    disk_encryption_key: EncryptionKey | None = None
    provisioned_iops: int | None = None
    provisioned_throughput: int | None = None
    storage_pool: str | None = None
    zone: str | None = None
    kind: str | None = None


class LabelsBody(Body):
    labels: dict[str, str] = {}
    label_fingerprint: str | None = None


class MachineTypeBody(Body):
    machine_type: str


class MachineResourcesBody(Body):
    guest_accelerators: list[Accelerator] = []


class NetworkBody(Body):
    name: str | None = None
    description: str | None = None
    auto_create_subnetworks: bool = False


class SecondaryRange(Body):
    range_name: str
    ip_cidr_range: str


class SubnetworkBody(Body):
    name: str | None = None
    description: str | None = None
    network: str
    ip_cidr_range: str
    secondary_ip_ranges: list[SecondaryRange] = []
    stack_type: Literal["IPV4_ONLY", "IPV4_IPV6"] = "IPV4_ONLY"
    ipv6_access_type: Literal["INTERNAL", "EXTERNAL"] | None = None


def read(model: type[B], body: Any) -> B:
    """The body of a request. Raises what Google answers to one that is malformed, and refuses unknown fields."""
    try:
        return model.model_validate(body)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        path = ".".join(["resource", *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise unsupported(f"the field '{path}'") from None
        if first["type"] == "missing":
            raise GceError("required", f"Required field '{path}' not specified") from None
        raise GceError("invalid", f"Invalid value for field '{path}': {first['msg']}") from None

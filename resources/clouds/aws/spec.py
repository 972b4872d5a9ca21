"""The provider spec of AWS: every field of Gardener's AWSProviderSpec (machine-controller-manager-provider-aws,
pkg/aws/apis/aws_provider_spec.go), including those that MCM ignores, plus vmTags, nicTags and diskTags (seed 002)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from resources.base import Count, Key, Manifest, Name
from resources.canonical import Empty
from resources.clouds.aws.domain import AwsDomainPlacement, AwsFailureDomain, AwsReference
from resources.clouds.base import TaggedApart, TagRules, Tags, shown_key
from resources.effects import Effect

TAG_RULES = TagRules(limit=50, key_length=128, value_length=256, name="Name", uncounted=("aws:",))
"""EC2 user guide, Tag restrictions. Keys and values of manifests may be written as they are."""


IOPS_NEEDED = ("io1", "io2")
"""Types of volume that EC2 makes only with a number of IOPS (API reference, *EbsBlockDevice*)."""


class Iam(Manifest):
    """The instance profile, by name or by ARN."""

    name: Name | None = None
    """The name of the instance profile."""
    arn: Key | None = Field(default=None, alias="arn")
    """The ARN of the instance profile."""

    @model_validator(mode="after")
    def one_of(self) -> Self:
        if bool(self.name) == bool(self.arn):
            raise ValueError("give exactly one of name and arn")
        return self


class Ebs(Manifest):
    """The volume of a block device."""

    delete_on_termination: bool | None = None
    """Default true, as MCM."""
    encrypted: bool | None = None
    """The account's default when absent."""
    iops: Count | None = Field(default=None, ge=0)
    """I/O operations a second, for types of volume that take them; io1 and io2 need it."""
    throughput: Count | None = Field(default=None, ge=0)
    """MiB/s, gp3 only."""
    kms_key_id: Key | None = Field(default=None, alias="kmsKeyID")
    """The key that the volume is encrypted with, by id, alias or ARN; it asks for encryption."""
    snapshot_id: Key | None = Field(default=None, alias="snapshotID")
    """The snapshot that the volume is made from; null: the image's own, or none."""
    volume_size: Count | None = Field(default=None, ge=1)
    """GiB; the image's own size when absent."""
    volume_type: Key | None = None
    """gp3, gp2, io2, …; EC2's default when absent."""


class BlockDevice(Manifest):
    """A disk of the VM."""

    device_name: Key | None = None
    """`/root` stands for the image's root device."""
    ebs: Ebs = Field(default_factory=Ebs)
    no_device: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect."""
    virtual_name: Annotated[Key | None, Effect.NONE] = None
    """Accepted; it has no effect."""


class NetworkInterface(Manifest):
    """A network interface of the VM."""

    subnet_id: Key = Field(alias="subnetID")
    """The subnet that the interface is in, `subnet-…`."""
    security_group_ids: list[Key] = Field(default_factory=list, alias="securityGroupIDs")
    """Its security groups, `sg-…`; none: the VPC's default group."""
    associate_public_ip_address: bool | None = Field(default=None, alias="associatePublicIPAddress")
    """Whether it gets a public IPv4 address; null: as its subnet has it."""
    delete_on_termination: bool | None = None
    """Default true."""
    description: Key | None = None
    """A description, shown by EC2."""
    device_index: Count | None = Field(default=None, ge=0)
    """Default: its place in the list."""
    network_card_index: Count | None = Field(default=None, ge=0)
    """The network card that it is on; default 0."""
    interface_type: Literal["interface", "efa", "efa-only"] | None = None
    """The type of interface: interface, or one for an Elastic Fabric Adapter."""
    ipv6_address_count: Count | None = Field(default=None, ge=0)
    """At launch."""
    primary_ipv6: bool | None = None
    """Default true where there is an IPv6 address."""
    ipv6_prefix_count: Annotated[Count | None, Effect.POST_START] = Field(default=None, ge=0)
    """After the start, by AssignIpv6Addresses (seed 000)."""


class MetadataOptions(Manifest):
    """How a VM reads its instance metadata."""

    http_endpoint: Literal["enabled", "disabled"] | None = None
    """Whether the metadata service can be reached."""
    http_put_response_hop_limit: Count | None = Field(default=None, ge=1, le=64)
    """How many hops an answer with a token may travel; pods need 2."""
    http_tokens: Literal["required", "optional"] | None = None
    """`required`: IMDSv2 only, which asks for a token first."""
    instance_metadata_tags: Literal["enabled", "disabled"] | None = None
    """`disabled`, also when absent: with `enabled` EC2 takes no tag with a slash, and must-tags have one."""


class CpuOptions(Manifest):
    """How many cores and threads the VM has."""

    core_count: Count | None = Field(default=None, ge=1)
    """The number of cores."""
    threads_per_core: Count | None = Field(default=None, ge=1, le=2)
    """Threads of each core: 1 switches hyper-threading off."""
    amd_sev_snp: Literal["enabled", "disabled"] | None = None
    """Whether AMD SEV-SNP is on."""

    @model_validator(mode="after")
    def both(self) -> Self:
        if (self.core_count is None) != (self.threads_per_core is None):
            raise ValueError("give coreCount and threadsPerCore together")
        return self


class CapacityReservation(Manifest):
    """The capacity reservation that the VM may or must use; give one of the fields."""

    capacity_reservation_preference: Literal["open", "none", "capacity-reservations-only"] | None = None
    """Whether any reservation that fits is used."""
    capacity_reservation_id: Key | None = None
    """The reservation to use, by id."""
    capacity_reservation_resource_group_arn: Key | None = None
    """The group of reservations to use, by ARN."""

    @model_validator(mode="after")
    def one_target(self) -> Self:
        given = [self.capacity_reservation_preference, self.capacity_reservation_id]
        given.append(self.capacity_reservation_resource_group_arn)
        if sum(v is not None for v in given) > 1:
            raise ValueError("give one of preference, id and resource group ARN")
        return self


class InstanceMarketOptions(Manifest):
    """How the VM is bought; null: on demand."""

    market_type: Literal["spot", "capacity-block"] | None = None
    """`spot`, or `capacity-block` for a reserved block."""


class Ec2Placement(Manifest):
    """Where within EC2 the VM is placed."""

    affinity: Literal["default", "host"] | None = None
    """`host`: a stopped VM starts again on the same dedicated host."""
    availability_zone: Key | None = None
    """The availability zone; null: the subnet's."""
    group_id: Key | None = None
    """The placement group, by id."""
    group_name: Key | None = None
    """The placement group, by name."""
    host_id: Key | None = None
    """The dedicated host."""
    host_resource_group_arn: Key | None = None
    """The group of dedicated hosts, by ARN."""
    partition_number: Count | None = Field(default=None, ge=1, le=7)
    """The partition of the placement group."""
    tenancy: Literal["default", "dedicated", "host"] | None = None
    """Whether the hardware is shared, `dedicated`, or a `host` of its own."""


PLACEMENT = "machine.sapcloud.io/awsPlacement"
"""An annotation of a node template: EC2's placement as JSON (machine-controller-manager-provider-aws, core.go,
getPlacementObj). Where it is given, it takes the place of the class's `placement`."""


def read_placement(text: str) -> Ec2Placement | None:
    """The placement of the annotation; None for an empty one. Names may be written in any case, `Tenancy` or `tenancy`,
    as MCM reads them. Raises ValueError, without quoting a value."""
    if not text:
        return None
    try:
        given = json.loads(text)
    except ValueError:
        raise ValueError('it is not JSON; write it like {"tenancy": "dedicated"}') from None
    if not isinstance(given, dict):
        raise ValueError('it is no JSON object; write it like {"tenancy": "dedicated"}')
    names = {(f.alias or n).lower(): f.alias or n for n, f in Ec2Placement.model_fields.items()}
    if unknown := [k for k in given if k.lower() not in names]:
        raise ValueError(f"a placement has no {shown_key(unknown[0])}; it has {', '.join(names.values())}")
    try:
        return Ec2Placement.model_validate({names[k.lower()]: v for k, v in given.items() if v is not None})
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


class AwsProviderSpec(TaggedApart):
    """`providerSpec` of a MachineClass whose provider is AWS."""

    SCOPE: ClassVar = ("region",)
    TAGS: ClassVar = TAG_RULES

    api_version: Annotated[Key | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    kind: Annotated[Name | None, Effect.NONE] = None
    """Accepted for manifests of Gardener; it has no effect."""
    ami: Key = Field(min_length=1)
    """The image, `ami-…`."""
    region: Name = Field(min_length=1)
    """E.g. eu-west-1."""
    machine_type: Key = Field(min_length=1)
    """Instance type, e.g. m5.large."""
    key_name: Key | None = None
    """EC2 key pair for SSH."""
    iam: Iam | None = None
    """The instance profile that the VM runs under."""
    block_devices: list[BlockDevice] = Field(default_factory=list)
    """The disks of the VM; none: those of its image."""
    network_interfaces: list[NetworkInterface] = Field(min_length=1)
    """The network interfaces of the VM, the first one being its primary."""
    tags: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Deprecated: goes to VM, NICs and disks alike. A specific field, even empty, replaces it for its resource."""
    vm_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the VM."""
    nic_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the network interfaces."""
    disk_tags: Annotated[Tags | None, Effect.HOT, Empty.COUNTS] = None
    """Tags of the disks."""
    src_and_dst_checks_enabled: Annotated[bool | None, Effect.POST_START] = None
    """False switches the source/destination check off after the start, as a NAT or CNI needs (seed 000)."""
    instance_metadata_options: Annotated[MetadataOptions | None, Effect.HOT] = None
    """Updatable, more than seed 002 asks for: IMDSv2 is enforced without replacing machines
    (ModifyInstanceMetadataOptions). An option that is taken out of the spec stays on VMs that run."""
    cpu_options: CpuOptions | None = None
    capacity_reservation: CapacityReservation | None = None
    instance_market_options: InstanceMarketOptions | None = None
    spot_price: Annotated[Key | None, Empty.COUNTS] = None
    """Deprecated: a one-time spot request; empty means the on-demand price. Use instanceMarketOptions."""
    placement: Ec2Placement | None = None
    ebs_optimized: Annotated[bool | None, Effect.NONE] = None
    """Accepted; it has no effect."""
    monitoring: Annotated[bool | None, Effect.NONE] = None
    """Accepted; it has no effect."""
    kms_key_id: Annotated[Key | None, Effect.NONE] = Field(default=None, alias="kmsKeyID")
    """Accepted; it has no effect: give it under blockDevices."""

    @model_validator(mode="after")
    def device_indexes(self) -> Self:
        pairs = [
            (n.network_card_index or 0, i if n.device_index is None else n.device_index)
            for i, n in enumerate(self.network_interfaces)
        ]
        if len(set(pairs)) != len(pairs):
            raise ValueError("networkInterfaces: two interfaces have the same networkCardIndex and deviceIndex")
        roots = [d for d in self.block_devices if d.device_name == "/root"]
        if len(roots) > 1:
            raise ValueError("blockDevices: more than one has the deviceName /root")
        if len(self.block_devices) > 1 and any(not d.device_name for d in self.block_devices):
            raise ValueError("blockDevices: every device needs a deviceName when there is more than one")
        return self

    def in_domain(self, fields: Mapping[str, Any]) -> Self:
        domain = AwsFailureDomain.model_validate(fields)
        placed: dict[str, Any] = {}
        if domain.zone:
            place = {"availability_zone": domain.zone}
            placed["placement"] = (self.placement or Ec2Placement()).model_copy(update=place)
        if domain.subnet_id:
            there, moved = self.network_interfaces[0].subnet_id, {"subnet_id": domain.subnet_id}
            placed["network_interfaces"] = [
                nic.model_copy(update=moved) if nic.subnet_id == there else nic for nic in self.network_interfaces
            ]
        return self.model_copy(update=placed)

    def domain(self) -> AwsFailureDomain:
        zone = self.placement.availability_zone if self.placement else None
        return AwsFailureDomain(
            placement=AwsDomainPlacement(availability_zone=zone) if zone else None,
            subnet=AwsReference(type="ID", id=self.network_interfaces[0].subnet_id),
        )

    def imaged_as(self, other: Self) -> Self:
        return self.model_copy(update={"ami": other.ami})

    def in_one_spelling(self) -> Self:
        """The spec as RunInstances and the post-start update read it (drivers/aws): what they do by default is left
        out, and lists whose order means nothing are sorted."""
        disks = sorted((_plain_disk(d) for d in self.block_devices), key=lambda d: d.device_name or "")
        nics = sorted((_plain_nic(n, i) for i, n in enumerate(self.network_interfaces)), key=_place)
        fields = {
            "block_devices": disks,
            "network_interfaces": [
                n.model_copy(update={"device_index": _unless(n.device_index, i)}) for i, n in enumerate(nics)
            ],
            "src_and_dst_checks_enabled": _unless(self.src_and_dst_checks_enabled, True),
            "instance_metadata_options": _plain_metadata(self.instance_metadata_options),
        }
        return self.model_copy(update=fields)

    def mistakes(self) -> list[tuple[str, str]]:
        found = super().mistakes()
        for n, disk in enumerate(self.block_devices):
            path, ebs = f"blockDevices[{n}].ebs", disk.ebs
            if ebs.volume_type in IOPS_NEEDED and not ebs.iops:
                found.append((f"{path}.iops", f"missing: a volume of type {ebs.volume_type} needs it"))
            if ebs.kms_key_id and ebs.encrypted is False:
                found.append((f"{path}.kmsKeyID", "a volume with encrypted: false has no key; remove one of the two"))
        if self.instance_metadata_options and self.instance_metadata_options.instance_metadata_tags == "enabled":
            words = "enabled: EC2 then takes no tag whose key has a slash, and those that say whose a VM is have one"
            found.append(("instanceMetadataOptions.instanceMetadataTags", words))
        return found

    def _without_effect(self) -> Iterator[str]:
        """Paths of what is given and has no effect; apiVersion and kind, which every manifest has, are left out."""
        given: dict[str, object] = {"ebsOptimized": self.ebs_optimized, "monitoring": self.monitoring}
        given["kmsKeyID"] = self.kms_key_id
        for n, disk in enumerate(self.block_devices):
            given[f"blockDevices[{n}].noDevice"] = disk.no_device
            given[f"blockDevices[{n}].virtualName"] = disk.virtual_name
        yield from (path for path, value in given.items() if value)

    def deprecations(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if self.tags:
            found.append(("tags", "deprecated: use vmTags, nicTags and diskTags (tags goes to all three)"))
        if self.spot_price is not None:
            found.append(("spotPrice", "deprecated: use instanceMarketOptions.marketType: spot"))
        found += [
            (path, "accepted, but it has no effect: nothing is sent to EC2 for it") for path in self._without_effect()
        ]
        if any("Name" in (tags or {}) for tags in (self.tags, self.vm_tags, self.nic_tags, self.disk_tags)):
            found.append(("tags.Name", "overridden: the tag Name is always the machine's name"))
        return found


# -- one spelling ------------------------------------------------------------------------------------------------------

T = TypeVar("T")


def _unless(value: T | None, usual: T) -> T | None:
    return None if value == usual else value


def _plain_disk(disk: BlockDevice) -> BlockDevice:
    ebs = {
        "delete_on_termination": _unless(disk.ebs.delete_on_termination, True),
        "encrypted": True if disk.ebs.kms_key_id else disk.ebs.encrypted,
        "iops": disk.ebs.iops or None,
        "throughput": disk.ebs.throughput or None,
    }
    return disk.model_copy(update={"device_name": disk.device_name or "/root", "ebs": disk.ebs.model_copy(update=ebs)})


def _plain_nic(nic: NetworkInterface, place: int) -> NetworkInterface:
    addresses = nic.ipv6_address_count or None
    fields = {
        "security_group_ids": sorted(set(nic.security_group_ids)),
        "delete_on_termination": _unless(nic.delete_on_termination, True),
        "device_index": place if nic.device_index is None else nic.device_index,
        "network_card_index": nic.network_card_index or None,
        "interface_type": _unless(nic.interface_type, "interface"),
        "ipv6_address_count": addresses,
        "primary_ipv6": _unless(nic.primary_ipv6, True) if addresses else None,
        "ipv6_prefix_count": nic.ipv6_prefix_count or None,
    }
    return nic.model_copy(update=fields)


def _plain_metadata(options: MetadataOptions | None) -> MetadataOptions | None:
    if options is None:
        return None
    tags = _unless(options.instance_metadata_tags, "disabled")
    return options.model_copy(update={"instance_metadata_tags": tags})


def _place(nic: NetworkInterface) -> tuple[int, int]:
    return nic.network_card_index or 0, nic.device_index or 0

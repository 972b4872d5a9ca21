"""Worker pools on AWS: Gardener's WorkerConfig (gardener-extension-provider-aws, pkg/apis/aws/v1alpha1,
types_worker.go), and the provider spec of each zone's class as its extension makes it (pkg/controller/worker,
machines.go)."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from resources.base import Count, Key, Manifest, Name
from resources.clouds.aws.spec import (
    CapacityReservation,
    CpuOptions,
    Ec2Placement,
    Iam,
    InstanceMarketOptions,
    MetadataOptions,
)
from resources.clouds.workers import (
    AMD64,
    Architecture,
    ImageVersion,
    TaggedWorkerConfig,
    Unfit,
    WorkerInfrastructure,
    WorkerPlug,
    WorkerTemplate,
    WorkerVolume,
    fitting,
    gibibytes,
    given,
    plain,
    versions_of,
)
from resources.effects import Effect

DEVICES = "fghijklmnop"
"""Letters of the devices of data volumes, `/dev/sdf` to `/dev/sdp` (EC2 user guide, *Device names*)."""
METADATA = {"httpTokens": "required", "httpPutResponseHopLimit": 2}
"""Where the WorkerConfig gives no options: IMDSv2 alone, and two hops, for pods."""


class AwsWorkerVolume(Manifest):
    """What the root disk has besides size and type."""

    iops: Count | None = Field(default=None, ge=0)
    """I/O operations a second, for types of volume that take them; io1 and io2 need it."""
    throughput: Count | None = Field(default=None, ge=0)
    """MiB/s, gp3 only."""


class AwsDataVolume(AwsWorkerVolume):
    """What one of the worker's data volumes has besides size and type."""

    name: Key = Field(min_length=1)
    """The data volume that is meant."""
    snapshot_id: Key | None = Field(default=None, alias="snapshotID")
    """The snapshot that it is made from; null: it is empty."""


class AwsWorkerConfig(TaggedWorkerConfig):
    """`providerConfig` of a worker pool whose provider is AWS."""

    volume: AwsWorkerVolume | None = None
    """What the root disk has besides size and type."""
    data_volumes: list[AwsDataVolume] = Field(default_factory=list)
    """What data volumes have besides size and type."""
    iam_instance_profile: Iam | None = None
    """The instance profile of the VMs; null: the infrastructure's."""
    instance_metadata_options: Annotated[MetadataOptions | None, Effect.HOT] = None
    """How VMs read their metadata; null: IMDSv2 alone, and two hops, as Gardener. Updatable, unlike in Gardener."""
    cpu_options: CpuOptions | None = None
    capacity_reservation: CapacityReservation | None = None
    placement: Ec2Placement | None = None
    instance_market_options: InstanceMarketOptions | None = None


class AwsRegionImage(Manifest):
    """An image in a region."""

    name: Name
    """The region."""
    ami: Key = Field(min_length=1)
    """`ami-…`."""
    architecture: Architecture = AMD64
    """The architecture of the CPU that it runs on."""


class AwsImageVersion(ImageVersion):
    """A version of an image."""

    regions: list[AwsRegionImage] = Field(min_length=1)
    """The image in each region, and for each architecture."""


class AwsWorkerImage(Manifest):
    """A named image, as in the machineImages of Gardener's CloudProfileConfig."""

    name: Key
    """The name by which workers ask for it."""
    versions: list[AwsImageVersion]
    """Its versions."""


class AwsInfrastructure(WorkerInfrastructure):
    """What a worker pool on AWS needs to know of the account and the network."""

    subnets: dict[Name, Key] = Field(min_length=1)
    """The subnet of each zone, `eu-west-1a: subnet-…`."""
    security_group_ids: list[Key] = Field(default_factory=list, alias="securityGroupIDs")
    """The security groups of the VMs, `sg-…`."""
    key_name: Key | None = None
    """EC2 key pair for SSH."""
    iam_instance_profile: Iam | None = None
    """The instance profile of VMs whose WorkerConfig names none."""
    src_and_dst_checks_enabled: Annotated[bool, Effect.POST_START] = False
    """Whether a VM may only take packets for its own addresses; pods have others, so false, as Gardener."""
    machine_images: list[AwsWorkerImage] = Field(min_length=1)
    """Images by name, version and region."""

    @model_validator(mode="after")
    def in_the_region(self) -> Self:
        if strange := sorted(zone for zone in self.subnets if not zone.startswith(self.region)):
            raise ValueError(f"subnets: {', '.join(strange)}: no zone of the region {self.region}")
        return self


def provider_spec(
    settings: WorkerTemplate, config: AwsWorkerConfig, infrastructure: AwsInfrastructure, zone: str
) -> dict[str, Any]:
    """The provider spec of the zone's class. Raises Unfit."""
    if zone not in infrastructure.subnets:
        known = ", ".join(infrastructure.subnets)
        raise Unfit("zones", f"the infrastructure has no subnet in {zone}; it has some in {known}")
    profile = config.iam_instance_profile or infrastructure.iam_instance_profile
    options = config.instance_metadata_options
    return given(
        ami=_image(settings, infrastructure),
        region=infrastructure.region,
        machineType=settings.machine.type,
        keyName=infrastructure.key_name,
        iam=plain(profile),
        blockDevices=_devices(settings, config),
        networkInterfaces=[
            {"subnetID": infrastructure.subnets[zone], "securityGroupIDs": infrastructure.security_group_ids}
        ],
        srcAndDstChecksEnabled=infrastructure.src_and_dst_checks_enabled,
        instanceMetadataOptions=METADATA if options is None else plain(options),
        cpuOptions=plain(config.cpu_options),
        capacityReservation=plain(config.capacity_reservation),
        instanceMarketOptions=plain(config.instance_market_options),
        placement=plain(config.placement),
        **config.given_tags,
    )


def _image(settings: WorkerTemplate, infrastructure: AwsInfrastructure) -> str:
    found = versions_of(settings, [(image.name, image.versions) for image in infrastructure.machine_images])
    here = [r for version in found for r in version.regions if r.name == infrastructure.region]
    return fitting(settings, [(r.architecture, r.ami) for r in here])


def _devices(settings: WorkerTemplate, config: AwsWorkerConfig) -> list[dict[str, Any]]:
    known = settings.known({volume.name: volume for volume in config.data_volumes})
    volumes = settings.sorted_volumes
    if len(volumes) > len(DEVICES):
        raise Unfit("dataVolumes", f"{len(volumes)} are more than the {len(DEVICES)} that a VM has devices for")
    root = [] if settings.volume is None else [_device("/root", settings.volume, config.volume)]
    return root + [
        _device(f"/dev/sd{letter}", volume, known.get(volume.name))
        for letter, volume in zip(DEVICES, volumes, strict=False)
    ]


def _device(name: str, volume: WorkerVolume, more: AwsWorkerVolume | None) -> dict[str, Any]:
    ebs = given(
        volumeSize=gibibytes(volume.size),
        volumeType=volume.type,
        encrypted=True if volume.encrypted is None else volume.encrypted,
        deleteOnTermination=True,
        **({} if more is None else given(iops=more.iops, throughput=more.throughput)),
        **given(snapshotID=more.snapshot_id if isinstance(more, AwsDataVolume) else None),
    )
    return {"deviceName": name, "ebs": ebs}


def zone_labels(infrastructure: AwsInfrastructure, zone: str) -> dict[str, str]:
    """Labels by which EBS volumes find a Node of their zone."""
    return {"topology.ebs.csi.aws.com/zone": zone, "topology.kubernetes.io/zone": zone}


WORKERS = WorkerPlug(AwsWorkerConfig, AwsInfrastructure, provider_spec, zone_labels)

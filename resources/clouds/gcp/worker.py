"""Worker pools on Google Cloud: Gardener's WorkerConfig (gardener-extension-provider-gcp, pkg/apis/gcp/v1alpha1,
types_worker.go), and the provider spec of each zone's class as its extension makes it (pkg/controller/worker,
machines.go)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from resources.base import Count, Key, Manifest
from resources.clouds.base import Tags
from resources.clouds.gcp.spec import (
    LOCAL_SSD,
    GcpDiskEncryption,
    GcpGpu,
    GcpScheduling,
    GcpServiceAccount,
    Metadata,
)
from resources.clouds.workers import (
    AMD64,
    Architecture,
    ImageVersion,
    Unfit,
    WorkerConfig,
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

USUAL_DISK = "pd-balanced"
"""The type of a volume that names none: a GCPProviderSpec needs one."""
METADATA = {"block-project-ssh-keys": "TRUE"}
COMPUTE_SCOPE = "https://www.googleapis.com/auth/compute"


class GcpWorkerVolume(Manifest):
    """What all disks have besides size and type."""

    interface: Literal["NVME", "SCSI"] | None = None
    """The interface of local SSDs (volumes of type SCRATCH), which need one."""
    encryption: GcpDiskEncryption | None = None
    """The key that disks are encrypted with; local SSDs have none."""


class GcpDiskSettings(Manifest):
    """What a disk has besides size and type."""

    provisioned_iops: Count | None = Field(default=None, ge=0)
    """I/O operations a second, for types of disk that take them."""
    provisioned_throughput: Count | None = Field(default=None, ge=0)
    """MiB a second, for types of disk that take it."""
    storage_pool: Key | None = None
    """The storage pool that it is made in."""


class GcpDataVolume(GcpDiskSettings):
    """What one of the worker's data volumes has besides size and type."""

    name: Key = Field(min_length=1)
    """The data volume that is meant."""
    source_image: Key | None = None
    """The image that it is made from; null: it is empty."""


class GcpWorkerConfig(WorkerConfig):
    """`providerConfig` of a worker pool whose provider is GCP. Labels of VM and disks are vmTags and diskTags (seed
    002), updatable and no part of the hash; network interfaces carry none here."""

    gpu: GcpGpu | None = None
    volume: GcpWorkerVolume | None = None
    """What all disks have besides size and type."""
    boot_volume: GcpDiskSettings | None = None
    """What the boot disk has besides size and type."""
    data_volumes: list[GcpDataVolume] = Field(default_factory=list)
    """What data volumes have besides size and type."""
    min_cpu_platform: Key | None = None
    """The oldest processors that VMs may run on, e.g. Intel Ice Lake."""
    service_account: GcpServiceAccount | None = None
    """The service account of the VMs; null: the infrastructure's."""
    scheduling: GcpScheduling | None = None
    """What becomes of a VM when its host is maintained, fails, or is wanted by others."""
    vm_tags: Annotated[Tags | None, Effect.HOT] = None
    """Labels of the VM."""
    disk_tags: Annotated[Tags, Effect.HOT] = Field(default_factory=dict)
    """Labels of every disk."""


class GcpImageVersion(ImageVersion):
    """A version of an image."""

    image: Key = Field(min_length=1)
    """`projects/…/global/images/…`."""
    architecture: Architecture = AMD64
    """The architecture of the CPU that it runs on."""


class GcpWorkerImage(Manifest):
    """A named image, as in the machineImages of Gardener's CloudProfileConfig. A version that is there for two
    architectures is listed twice."""

    name: Key
    """The name by which workers ask for it."""
    versions: list[GcpImageVersion]
    """Its versions."""


class GcpInfrastructure(WorkerInfrastructure):
    """What a worker pool on Google Cloud needs to know of the project and the network."""

    network: Key | None = None
    """The network; null: the subnetwork's."""
    subnetwork: Key = Field(min_length=1)
    """The subnetwork of the VMs, by name or as `regions/…/subnetworks/…`."""
    disable_external_ip: bool = Field(default=True, alias="disableExternalIP")
    """Whether VMs get no external address; true, as Gardener."""
    can_ip_forward: bool = True
    """Whether VMs may send and receive packets for other addresses, as pods of a routed network need; true, as
    Gardener."""
    service_account: GcpServiceAccount | None = None
    """The service account of VMs whose WorkerConfig names none."""
    network_tags: Annotated[list[Key], Effect.HOT] = Field(default_factory=list)
    """Network tags of the VMs, which firewall rules and routes go by."""
    metadata: Annotated[Metadata, Effect.HOT] = Field(default_factory=lambda: dict(METADATA))
    """Metadata of the VMs; when absent, keys for SSH of the whole project are kept out, as Gardener does."""
    machine_images: list[GcpWorkerImage] = Field(min_length=1)
    """Images by name and version."""


def provider_spec(
    settings: WorkerTemplate, config: GcpWorkerConfig, infrastructure: GcpInfrastructure, zone: str
) -> dict[str, Any]:
    """The provider spec of the zone's class. Raises Unfit."""
    account = config.service_account or infrastructure.service_account
    return given(
        region=infrastructure.region,
        zone=zone,
        machineType=settings.machine.type,
        disks=_disks(settings, config, infrastructure),
        networkInterfaces=[
            given(
                network=infrastructure.network,
                subnetwork=infrastructure.subnetwork,
                disableExternalIP=infrastructure.disable_external_ip,
            )
        ],
        canIpForward=infrastructure.can_ip_forward,
        gpu=plain(config.gpu),
        minCpuPlatform=config.min_cpu_platform,
        scheduling=plain(config.scheduling),
        serviceAccounts=[{"email": account.email, "scopes": account.scopes or [COMPUTE_SCOPE]}] if account else None,
        metadata=infrastructure.metadata,
        tags=infrastructure.network_tags or None,
        vmTags=config.vm_tags,
        diskTags=config.disk_tags or None,
    )


def _disks(
    settings: WorkerTemplate, config: GcpWorkerConfig, infrastructure: GcpInfrastructure
) -> list[dict[str, Any]]:
    known = settings.known({volume.name: volume for volume in config.data_volumes})
    root = settings.volume
    boot: dict[str, Any] = {"boot": True, "type": USUAL_DISK} if root is None else _disk(root, True, config)
    boot |= {"image": _image(settings, infrastructure), **_more(config.boot_volume)}
    return [boot, *(_data(volume, known.get(volume.name), config) for volume in settings.sorted_volumes)]


def _data(volume: WorkerVolume, more: GcpDataVolume | None, config: GcpWorkerConfig) -> dict[str, Any]:
    return _disk(volume, False, config) | _more(more) | given(image=more.source_image if more else None)


def _disk(volume: WorkerVolume, boot: bool, config: GcpWorkerConfig) -> dict[str, Any]:
    if volume.encrypted is False:
        raise Unfit("volume.encrypted", "false: the cloud encrypts every disk; remove it, or write true")
    local, more = volume.type == LOCAL_SSD, config.volume
    return given(
        boot=boot,
        autoDelete=True,
        type=volume.type or USUAL_DISK,
        sizeGb=gibibytes(volume.size),
        interface=more.interface if more and local else None,
        encryption=plain(more.encryption) if more and not local else None,
    )


def _more(settings: GcpDiskSettings | None) -> dict[str, Any]:
    if settings is None:
        return {}
    return given(
        provisionedIops=settings.provisioned_iops,
        provisionedThroughput=settings.provisioned_throughput,
        storagePool=settings.storage_pool,
    )


def _image(settings: WorkerTemplate, infrastructure: GcpInfrastructure) -> str:
    found = versions_of(settings, [(image.name, image.versions) for image in infrastructure.machine_images])
    return fitting(settings, [(version.architecture, version.image) for version in found])


def zone_labels(infrastructure: GcpInfrastructure, zone: str) -> dict[str, str]:
    """Labels by which persistent disks find a Node of their zone."""
    return {"topology.gke.io/zone": zone, "topology.kubernetes.io/zone": zone}


WORKERS = WorkerPlug(GcpWorkerConfig, GcpInfrastructure, provider_spec, zone_labels)

"""OpenShift's GCPMachineProviderSpec (openshift/api, machine/v1beta1, types_gcpprovider.go), as a provider spec of
ours. What upstream's actuator does with it: machine-api-provider-gcp, pkg/cloud/gcp/actuators/machine/reconciler.go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from resources.base import Count, Key, Manifest, Name
from resources.clouds.base import Tags
from resources.clouds.domain import FailureDomain
from resources.clouds.gcp.names import label_key
from resources.clouds.gcp.spec import METADATA_VALUE_MOST
from resources.clouds.openshift import Becomes, Mistake, OpenShiftSpec, Rejected, Unused, some
from resources.names import CLUSTER_PREFIX

_POOLS = (
    "Hostler registers no machines at load balancers, so that new ones would get no traffic: have something else do "
    "that (an instance group's controller), and remove this field"
)
Switched = Literal["Enabled", "Disabled"]


class GcpKey(Manifest):
    """A key of Cloud KMS."""

    name: Annotated[Key, Becomes("disks[].encryption.kmsKeyName")]
    key_ring: Annotated[Key, Becomes("disks[].encryption.kmsKeyName")]
    project_id: Annotated[Key | None, Becomes("disks[].encryption.kmsKeyName", "the spec's own when absent")] = Field(
        default=None, alias="projectID"
    )
    location: Annotated[Key, Becomes("disks[].encryption.kmsKeyName")]


class GcpEncryptionKey(Manifest):
    """The key that a disk is encrypted with."""

    kms_key: GcpKey | None = None
    kms_key_service_account: Annotated[Key | None, Becomes("disks[].encryption.kmsKeyServiceAccount")] = None


class GcpMachineDisk(Manifest):
    """A disk."""

    auto_delete: Annotated[bool, Becomes("disks[].autoDelete")] = False
    boot: Annotated[bool, Becomes("disks[].boot")] = False
    size_gb: Annotated[Count | None, Becomes("disks[].sizeGb")] = None
    type: Annotated[Key, Becomes("disks[].type")] = Field(min_length=1)
    image: Annotated[Key | None, Becomes("disks[].image", "a name is an image of the project")] = None
    labels: Annotated[Tags | None, Becomes("disks[].labels")] = None
    encryption_key: GcpEncryptionKey | None = None


class GcpMetadataItem(Manifest):
    """An entry of the metadata."""

    key: Key
    """The key."""
    value: Annotated[str, Field(max_length=METADATA_VALUE_MOST)] | None = None
    """The value; null: an empty one."""


class GcpMachineInterface(Manifest):
    """A network interface."""

    public_ip: Annotated[bool, Becomes("networkInterfaces[].disableExternalIP", "the contrary")] = Field(
        default=False, alias="publicIP"
    )
    network: Annotated[Key | None, Becomes("networkInterfaces[].network")] = None
    project_id: Annotated[Key | None, Becomes("networkInterfaces[].network, networkInterfaces[].subnetwork")] = Field(
        default=None, alias="projectID"
    )
    subnetwork: Annotated[Key | None, Becomes("networkInterfaces[].subnetwork")] = None


class GcpMachineAccount(Manifest):
    """A service account."""

    email: Annotated[Key, Becomes("serviceAccounts[].email")]
    scopes: Annotated[list[Key], Becomes("serviceAccounts[].scopes")] = Field(default_factory=list)


class GcpGpuConfig(Manifest):
    """GPUs."""

    count: Annotated[Count, Becomes("gpu.count")]
    type: Annotated[Key, Becomes("gpu.acceleratorType")]


class GcpShielded(Manifest):
    """What protects the VM's boot."""

    secure_boot: Annotated[Switched | None, Becomes("shieldedInstanceConfiguration.enableSecureBoot")] = None
    virtualized_trusted_platform_module: Annotated[
        Switched | None, Becomes("shieldedInstanceConfiguration.enableVtpm")
    ] = None
    integrity_monitoring: Annotated[
        Switched | None, Becomes("shieldedInstanceConfiguration.enableIntegrityMonitoring")
    ] = None


class GcpResourceTag(Manifest):
    """A tag of the resource manager."""

    parent_id: Key | None = Field(default=None, alias="parentID")
    """The project or organisation that has the tag."""
    key: Key
    """The key."""
    value: Key
    """The value."""


class GCPMachineProviderSpec(OpenShiftSpec):
    """OpenShift's spec of a machine on Google Cloud."""

    KIND: ClassVar = "GCPMachineProviderSpec"

    can_ip_forward: Annotated[bool, Becomes("canIpForward")] = Field(default=False, alias="canIPForward")
    """Whether the VM may send and receive packets for other addresses."""
    deletion_protection: Annotated[bool, Becomes("deletionProtection")] = False
    """Whether nobody else can delete the VM."""
    disks: list[GcpMachineDisk] = Field(default_factory=list)
    """The disks."""
    labels: Annotated[Tags | None, Becomes("vmTags", "with kubernetes-io-cluster-<id>: owned")] = None
    """Labels of the VM."""
    gcp_metadata: Annotated[list[GcpMetadataItem], Becomes("metadata")] = Field(default_factory=list)
    """Metadata of the VM."""
    network_interfaces: list[GcpMachineInterface] = Field(default_factory=list)
    """The network interfaces."""
    service_accounts: list[GcpMachineAccount] = Field(default_factory=list)
    """The service account that programs on the VM run under."""
    tags: Annotated[list[Key], Becomes("tags")] = Field(default_factory=list)
    """Network tags."""
    target_pools: Annotated[list[Key], Rejected(_POOLS)] = Field(default_factory=list)
    """Pools of load balancers that machines join."""
    machine_type: Annotated[Key, Becomes("machineType")] = Field(min_length=1)
    """The machine type."""
    region: Annotated[Name, Becomes("region")] = Field(min_length=1)
    """The region."""
    zone: Annotated[Name | None, Becomes("zone")] = None
    """The zone, unless failure domains name it."""
    project_id: Annotated[
        Key | None,
        Unused("the project is the one that the Secret's credentials open, or its key projectID"),
    ] = Field(default=None, alias="projectID")
    """The project."""
    gpus: list[GcpGpuConfig] = Field(default_factory=list)
    """GPUs of one type."""
    preemptible: Annotated[bool, Becomes("scheduling.preemptible")] = False
    """Whether Google may take the VM back within a day."""
    provisioning_model: Annotated[Literal["Spot"] | None, Becomes("scheduling.provisioningModel")] = None
    """How the VM is asked for."""
    on_host_maintenance: Annotated[Literal["Migrate", "Terminate"] | None, Becomes("scheduling.onHostMaintenance")] = (
        None
    )
    """What becomes of the VM when its host is maintained."""
    restart_policy: Annotated[
        Literal["Always", "Never"] | None, Becomes("scheduling.automaticRestart", "Always is true")
    ] = None
    """Whether the VM is started again after its host has failed."""
    shielded_instance_config: GcpShielded = Field(default_factory=GcpShielded)
    """What protects the VM's boot."""
    confidential_compute: Annotated[
        Literal["Disabled", ""] | None, Unused("no VM is a confidential one; any other value is rejected")
    ] = None
    """Whether the VM's memory is encrypted."""
    resource_manager_tags: Annotated[
        list[GcpResourceTag], Rejected("resources get labels only; remove this field, or set the tags at the project")
    ] = Field(default_factory=list)
    """Tags of the resource manager."""

    def translated(self, cluster_id: str) -> dict[str, Any]:
        ours = {label_key(f"{CLUSTER_PREFIX}{cluster_id}"): "owned"}
        gpu = self.gpus[0] if self.gpus else None
        return some(
            region=self.region,
            zone=self.zone or self.region,  # a stand-in: failure domains name it
            machineType=self.machine_type,
            canIpForward=self.can_ip_forward or None,
            deletionProtection=self.deletion_protection or None,
            disks=[self._disk(disk) for disk in self.disks],
            networkInterfaces=[self._interface(nic) for nic in self.network_interfaces],
            serviceAccounts=[some(email=a.email, scopes=a.scopes) for a in self.service_accounts],
            gpu=some(acceleratorType=gpu.type, count=gpu.count) if gpu else None,
            scheduling=some(
                preemptible=self.preemptible or None,
                provisioningModel="SPOT" if self.provisioning_model else None,
                onHostMaintenance=self.on_host_maintenance.upper() if self.on_host_maintenance else None,
                automaticRestart=self.restart_policy == "Always" if self.restart_policy else None,
            ),
            shieldedInstanceConfiguration=self._shielded(),
            metadata={item.key: item.value or "" for item in self.gcp_metadata},
            tags=self.tags,
            vmTags={**(self.labels or {}), **ours},
            diskTags=ours,
        )

    def _disk(self, disk: GcpMachineDisk) -> dict[str, Any]:
        key = disk.encryption_key.kms_key if disk.encryption_key else None
        image = disk.image if not disk.image or "/" in disk.image else self._of_project(f"global/images/{disk.image}")
        return some(
            type=disk.type,
            autoDelete=disk.auto_delete,
            boot=disk.boot,
            sizeGb=disk.size_gb or None,
            image=image,
            labels=disk.labels,
            encryption=some(
                kmsKeyName=f"projects/{key.project_id or self.project_id}/locations/{key.location}/keyRings/"
                f"{key.key_ring}/cryptoKeys/{key.name}",
                kmsKeyServiceAccount=disk.encryption_key.kms_key_service_account if disk.encryption_key else None,
            )
            if key
            else None,
        )

    def _of_project(self, path: str) -> str:
        return f"projects/{self.project_id}/{path}" if self.project_id else path

    def _interface(self, nic: GcpMachineInterface) -> dict[str, Any]:
        host = f"projects/{nic.project_id}/" if nic.project_id else ""

        def shared(collection: str, name: str | None) -> str | None:
            return f"{host}{collection}/{name}" if host and name and "/" not in name else name

        return some(
            network=shared("global/networks", nic.network),
            subnetwork=shared(f"regions/{self.region}/subnetworks", nic.subnetwork),
            disableExternalIP=not nic.public_ip,
        )

    def _shielded(self) -> dict[str, Any]:
        given = self.shielded_instance_config
        return some(
            enableSecureBoot=_switched(given.secure_boot),
            enableVtpm=_switched(given.virtualized_trusted_platform_module),
            enableIntegrityMonitoring=_switched(given.integrity_monitoring),
        )

    def mistakes(self, domains: Sequence[FailureDomain]) -> list[Mistake]:
        found: list[Mistake] = []
        if not self.zone and not domains:
            found.append(("zone", "missing: give it here, or give failure domains"))
        if len(self.gpus) > 1:
            found.append(("gpus", "a VM has GPUs of one type; keep one entry, with their count"))
        for n, disk in enumerate(self.disks):
            key = disk.encryption_key.kms_key if disk.encryption_key else None
            if key and not key.project_id and not self.project_id:
                path = f"disks[{n}].encryptionKey.kmsKey.projectID"
                found.append((path, "missing: it says in which project the key is"))
        return found


def _switched(given: str | None) -> bool | None:
    return None if given is None else given == "Enabled"

"""OpenShift's AWSMachineProviderConfig (openshift/api, machine/v1beta1, types_awsprovider.go), as a provider spec of
ours. What upstream's actuator does with it: machine-api-provider-aws, pkg/actuators/machine/instances.go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from resources.base import Count, Document, Key, Manifest
from resources.clouds.aws.domain import AwsFailureDomain, AwsReference
from resources.clouds.aws.spec import TAG_RULES
from resources.clouds.domain import FailureDomain
from resources.clouds.openshift import DEFAULT, Becomes, Mistake, OpenShiftSpec, Rejected, some
from resources.names import CLUSTER_PREFIX

_NO_LOOKUP = "ARN and filters are rejected"
_NEVER_REGISTERED = (
    "Hostler registers no machines at load balancers, so that new ones would get no traffic: have something else do "
    "that (the cloud's controller manager, target groups by tag), and remove this field"
)


class AwsCpu(Manifest):
    """Settings of the processors."""

    confidential_compute: Annotated[
        Literal["Disabled", "AMDEncryptedVirtualizationNestedPaging"] | None,
        Becomes("cpuOptions.amdSevSnp", "enabled for AMDEncryptedVirtualizationNestedPaging"),
    ] = None


class AwsTag(Manifest):
    """A tag."""

    name: Key
    """The key."""
    value: Key = ""
    """The value."""


class AwsWhere(Manifest):
    """Where the instance is made."""

    region: Annotated[Key | None, Becomes("region")] = None
    availability_zone: Annotated[Key | None, Becomes("placement.availabilityZone")] = None
    tenancy: Annotated[Literal["default", "dedicated", "host"] | None, Becomes("placement.tenancy")] = None
    host: Annotated[
        Document | None,
        Rejected("write a MachineClass with placement.hostId, and name it in template.spec.class"),
    ] = None


class AwsVolume(Manifest):
    """The volume of a disk."""

    delete_on_termination: Annotated[bool | None, DEFAULT] = None
    encrypted: Annotated[bool | None, Becomes("blockDevices[].ebs.encrypted")] = None
    kms_key: Annotated[
        AwsReference | None, Becomes("blockDevices[].ebs.kmsKeyID", "id or ARN; filters are rejected")
    ] = None
    iops: Annotated[Count | None, Becomes("blockDevices[].ebs.iops")] = None
    throughput: Annotated[Count | None, Becomes("blockDevices[].ebs.throughput")] = None
    volume_size: Annotated[Count | None, Becomes("blockDevices[].ebs.volumeSize")] = None
    volume_type: Annotated[Key | None, Becomes("blockDevices[].ebs.volumeType")] = None


class AwsDevice(Manifest):
    """A disk."""

    device_name: Annotated[
        Key | None, Becomes("blockDevices[].deviceName", "one without a name is the root device, `/root`")
    ] = None
    ebs: AwsVolume = Field(default_factory=AwsVolume)
    no_device: Annotated[Key | None, Rejected("a device of the image cannot be left out; remove it")] = None
    virtual_name: Annotated[Key | None, Rejected("instance stores are not mapped; remove the device")] = None


class AwsLoadBalancer(Manifest):
    """A load balancer."""

    name: Key
    """Its name."""
    type: Key | None = None
    """Its type."""


class AwsSpot(Manifest):
    """How a spot instance is asked for."""

    max_price: Key | None = None
    """The most to pay for an hour; null: the price on demand."""


class AwsMetadataService(Manifest):
    """How the instance reads its metadata."""

    authentication: Annotated[
        Literal["Required", "Optional"] | None, Becomes("instanceMetadataOptions.httpTokens", "in lower case")
    ] = None


class AWSMachineProviderConfig(OpenShiftSpec):
    """OpenShift's spec of a machine on AWS."""

    KIND: ClassVar = "AWSMachineProviderConfig"

    ami: Annotated[AwsReference, Becomes("ami", _NO_LOOKUP)]
    """The image."""
    instance_type: Annotated[Key, Becomes("machineType")] = Field(min_length=1)
    """The type of instance."""
    cpu_options: AwsCpu | None = None
    """Settings of the processors."""
    tags: Annotated[list[AwsTag], Becomes("vmTags, nicTags, diskTags", "with kubernetes.io/cluster/<id>: owned")] = (
        Field(default_factory=list)
    )
    """Tags of the instance and its volumes."""
    iam_instance_profile: Annotated[AwsReference | None, Becomes("iam", "the id is the name; filters are rejected")] = (
        None
    )
    """The instance profile."""
    key_name: Annotated[Key | None, Becomes("keyName")] = None
    """The key pair for SSH."""
    device_index: Annotated[Count, Becomes("networkInterfaces[0].deviceIndex")] = 0
    """The place of the network interface."""
    public_ip: Annotated[bool | None, Becomes("networkInterfaces[0].associatePublicIPAddress")] = None
    """Whether it gets a public address."""
    network_interface_type: Annotated[
        Literal["ENA", "EFA"] | None, Becomes("networkInterfaces[0].interfaceType", "interface or efa")
    ] = None
    """The type of network interface."""
    security_groups: Annotated[list[AwsReference], Becomes("networkInterfaces[0].securityGroupIDs", _NO_LOOKUP)] = (
        Field(default_factory=list)
    )
    """The security groups."""
    subnet: Annotated[AwsReference, Becomes("networkInterfaces[0].subnetID", _NO_LOOKUP)] = Field(
        default_factory=AwsReference
    )
    """The subnet, unless each failure domain has its own."""
    placement: AwsWhere = Field(default_factory=AwsWhere)
    """Where it is made."""
    load_balancers: Annotated[list[AwsLoadBalancer], Rejected(_NEVER_REGISTERED)] = Field(default_factory=list)
    """Load balancers that machines join."""
    block_devices: list[AwsDevice] = Field(default_factory=list)
    """The disks."""
    spot_market_options: Annotated[
        AwsSpot | None, Becomes("instanceMarketOptions", "marketType: spot; maxPrice becomes spotPrice")
    ] = None
    """How a spot instance is asked for."""
    metadata_service_options: AwsMetadataService = Field(default_factory=AwsMetadataService)
    """How the instance reads its metadata."""
    placement_group_name: Annotated[Key | None, Becomes("placement.groupName")] = None
    """The placement group."""
    placement_group_partition: Annotated[Count | None, Becomes("placement.partitionNumber")] = None
    """The partition of the placement group."""
    capacity_reservation_id: Annotated[Key | None, Becomes("capacityReservation.capacityReservationId")] = None
    """The capacity reservation."""
    market_type: Annotated[
        Literal["OnDemand", "Spot", "CapacityBlock"] | None,
        Becomes("instanceMarketOptions.marketType", "spot or capacity-block; OnDemand is the default"),
    ] = None
    """How the instance is bought."""

    def translated(self, cluster_id: str) -> dict[str, Any]:
        tags = {tag.name: tag.value for tag in self.tags} | {f"{CLUSTER_PREFIX}{cluster_id}": "owned"}
        tags.pop(TAG_RULES.name, None)
        profile, sev = self.iam_instance_profile, self.cpu_options.confidential_compute if self.cpu_options else None
        tokens = self.metadata_service_options.authentication
        return some(
            ami=self.ami.id,
            region=self.placement.region,
            machineType=self.instance_type,
            keyName=self.key_name,
            iam=some(name=profile.id, arn=None if profile.id else profile.arn) if profile else None,
            blockDevices=[_device(device) for device in self.block_devices],
            networkInterfaces=[self._interface()],
            vmTags=tags,
            nicTags=tags,
            diskTags=tags,
            instanceMetadataOptions=some(httpTokens=tokens.lower()) if tokens else None,
            cpuOptions=some(amdSevSnp="disabled" if sev == "Disabled" else "enabled") if sev else None,
            capacityReservation=some(capacityReservationId=self.capacity_reservation_id),
            placement=some(
                availabilityZone=self.placement.availability_zone,
                tenancy=self.placement.tenancy,
                groupName=self.placement_group_name,
                partitionNumber=self.placement_group_partition,
            ),
            **self._market(),
        )

    def _interface(self) -> dict[str, Any]:
        kind = {"ENA": "interface", "EFA": "efa"}.get(self.network_interface_type or "")
        groups = [group.id for group in self.security_groups if group.id]
        return {
            "subnetID": self.subnet.id or "",
            **some(
                securityGroupIDs=groups,
                associatePublicIPAddress=self.public_ip,
                deviceIndex=self.device_index or None,
                interfaceType=kind,
            ),
        }

    def _market(self) -> dict[str, Any]:
        kind = self.market_type or ("Spot" if self.spot_market_options else None)
        price = self.spot_market_options.max_price if self.spot_market_options else None
        words = {"Spot": "spot", "CapacityBlock": "capacity-block"}
        if kind == "Spot" and price:
            return {"spotPrice": price}
        return {"instanceMarketOptions": {"marketType": words[kind]}} if kind in words else {}

    def mistakes(self, domains: Sequence[FailureDomain]) -> list[Mistake]:
        found = self.ami.mistakes("ami") + self.subnet.mistakes("subnet")
        for n, group in enumerate(self.security_groups):
            found += group.mistakes(f"securityGroups[{n}]")
        for n, device in enumerate(self.block_devices):
            if device.ebs.kms_key:
                found += device.ebs.kms_key.mistakes(f"blockDevices[{n}].ebs.kmsKey", arn_too=True)
        if self.iam_instance_profile:
            found += self.iam_instance_profile.mistakes("iamInstanceProfile", arn_too=True)
        if not found and not self.ami.id:
            found.append(("ami.id", "missing: it says which image the VMs boot from"))
        if not self.placement.region:
            found.append(("placement.region", "missing: it says where the machines are"))
        subnets = [d.subnet_id for d in domains if isinstance(d, AwsFailureDomain)]
        if not self.subnet.mistakes("subnet") and not self.subnet.id and not (subnets and all(subnets)):
            found.append(("subnet.id", "missing: give it here, or give each failure domain its own"))
        return found


def _device(given: AwsDevice) -> dict[str, Any]:
    ebs, key = given.ebs, given.ebs.kms_key
    return {
        "deviceName": given.device_name or "/root",
        "ebs": some(
            encrypted=ebs.encrypted,
            kmsKeyID=(key.id or key.arn) if key else None,
            iops=ebs.iops or None,
            throughput=ebs.throughput or None,
            volumeSize=ebs.volume_size,
            volumeType=ebs.volume_type,
        ),
    }

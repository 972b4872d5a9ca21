"""What is emulated: the operations, and of each the parameters. Anything else is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.clouds.ec2.errors import Ec2Error, unsupported
from simulator.clouds.ec2.wire import Params, field_paths

_PAGE = "MaxResults NextToken"
_FILTER = "Filters.Name Filters.Values"
_TAGS = "TagSpecifications.ResourceType TagSpecifications.Tags.Key TagSpecifications.Tags.Value"

_RUN_INSTANCES = """
    ImageId InstanceType MinCount MaxCount ClientToken UserData KeyName EbsOptimized DisableApiTermination
    SubnetId SecurityGroupIds SecurityGroups Ipv6AddressCount Ipv6Addresses.Ipv6Address EnablePrimaryIpv6
    NetworkInterfaces.AssociatePublicIpAddress NetworkInterfaces.DeleteOnTermination NetworkInterfaces.Description
    NetworkInterfaces.DeviceIndex NetworkInterfaces.Groups NetworkInterfaces.InterfaceType
    NetworkInterfaces.Ipv6AddressCount NetworkInterfaces.Ipv6Addresses.Ipv6Address NetworkInterfaces.Ipv6PrefixCount
    NetworkInterfaces.NetworkCardIndex NetworkInterfaces.PrimaryIpv6 NetworkInterfaces.SubnetId
    BlockDeviceMappings.DeviceName BlockDeviceMappings.NoDevice BlockDeviceMappings.Ebs.DeleteOnTermination
    BlockDeviceMappings.Ebs.Encrypted BlockDeviceMappings.Ebs.Iops BlockDeviceMappings.Ebs.KmsKeyId
    BlockDeviceMappings.Ebs.SnapshotId BlockDeviceMappings.Ebs.Throughput BlockDeviceMappings.Ebs.VolumeSize
    BlockDeviceMappings.Ebs.VolumeType
    IamInstanceProfile.Arn IamInstanceProfile.Name Monitoring.Enabled
    Placement.Affinity Placement.AvailabilityZone Placement.GroupId Placement.GroupName Placement.HostId
    Placement.PartitionNumber Placement.Tenancy
    CpuOptions.CoreCount CpuOptions.ThreadsPerCore CpuOptions.AmdSevSnp
    MetadataOptions.HttpEndpoint MetadataOptions.HttpProtocolIpv6 MetadataOptions.HttpPutResponseHopLimit
    MetadataOptions.HttpTokens MetadataOptions.InstanceMetadataTags
    CapacityReservationSpecification.CapacityReservationPreference
    CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId
    CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn
    InstanceMarketOptions.MarketType InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior
    InstanceMarketOptions.SpotOptions.MaxPrice InstanceMarketOptions.SpotOptions.SpotInstanceType
    TagSpecifications.ResourceType TagSpecifications.Tags.Key TagSpecifications.Tags.Value
"""

_FIELDS = {
    "RunInstances": _RUN_INSTANCES,
    "DescribeInstances": f"InstanceIds {_FILTER} {_PAGE}",
    "DescribeInstanceStatus": f"InstanceIds IncludeAllInstances {_FILTER} {_PAGE}",
    "DescribeInstanceAttribute": "InstanceId Attribute",
    "TerminateInstances": "InstanceIds Force SkipOsShutdown",
    "StopInstances": "InstanceIds Force SkipOsShutdown",
    "StartInstances": "InstanceIds",
    "ModifyInstanceAttribute": "InstanceId SourceDestCheck.Value DisableApiTermination.Value",
    "ModifyInstanceMetadataOptions": (
        "InstanceId HttpEndpoint HttpProtocolIpv6 HttpPutResponseHopLimit HttpTokens InstanceMetadataTags"
    ),
    "GetConsoleOutput": "InstanceId Latest",
    "DescribeImages": f"ImageIds Owners IncludeDeprecated IncludeDisabled {_FILTER} {_PAGE}",
    "DescribeSubnets": f"SubnetIds {_FILTER} {_PAGE}",
    "DescribeSecurityGroups": f"GroupIds {_FILTER} {_PAGE}",
    "DescribeNetworkInterfaces": f"NetworkInterfaceIds {_FILTER} {_PAGE}",
    "ModifyNetworkInterfaceAttribute": "NetworkInterfaceId SourceDestCheck.Value",
    "CreateNetworkInterface": f"SubnetId Groups Description ClientToken {_TAGS}",
    "AttachNetworkInterface": "InstanceId NetworkInterfaceId DeviceIndex NetworkCardIndex",
    "DeleteNetworkInterface": "NetworkInterfaceId",
    "AssignIpv6Addresses": "NetworkInterfaceId Ipv6Addresses Ipv6AddressCount Ipv6Prefixes Ipv6PrefixCount",
    "DescribeVolumes": f"VolumeIds {_FILTER} {_PAGE}",
    "CreateVolume": f"AvailabilityZone Size VolumeType ClientToken {_TAGS}",
    "AttachVolume": "Device InstanceId VolumeId",
    "DetachVolume": "InstanceId VolumeId",
    "DeleteVolume": "VolumeId",
    "CreateTags": "Resources Tags.Key Tags.Value",
    "DeleteTags": "Resources Tags.Key Tags.Value",
    "DescribeTags": f"{_FILTER} {_PAGE}",
}

FIELDS: Mapping[str, frozenset[str]] = {
    action: frozenset(fields.split()) | {"DryRun"} for action, fields in _FIELDS.items()
}
"""Allowed fields by operation: dotted member names of the service model, list indices left out."""

MUTATING = frozenset(a for a in FIELDS if not a.startswith(("Describe", "Get")))


def check_action(action: str) -> None:
    if action not in FIELDS:
        raise Ec2Error(
            "InvalidAction",
            f"The action {action} is not valid for this web service: the simulator does not emulate it.",
        )


def check_fields(action: str, params: Params) -> None:
    unknown = sorted(field_paths(params) - FIELDS[action])
    if unknown:
        raise unsupported(f"the parameter {', '.join(unknown)} of {action}")

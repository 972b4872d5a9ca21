"""The one RunInstances request of a machine: a pure function of its inputs, so that a repeated call matches its token.

Fields: reference of machine-controller-manager-provider-aws, pkg/aws/core.go (CreateMachine) and core_util.go.
"""

from __future__ import annotations

import gzip
from typing import Any

from drivers.aws.places import ROOT
from drivers.aws.tags import tag_specifications
from drivers.base import CreateMachineRequest, parsed
from drivers.errors import DriverError
from resources.clouds.aws.spec import (
    PLACEMENT,
    AwsProviderSpec,
    BlockDevice,
    CapacityReservation,
    Ec2Placement,
    MetadataOptions,
    NetworkInterface,
    read_placement,
)
from resources.errors import ErrorClass

MAX_USER_DATA = 16 * 1024
"""Bytes before base64 (EC2 API reference, RunInstances)."""
Parameters = dict[str, Any]


def parse_spec(provider_spec: dict[str, Any]) -> AwsProviderSpec:
    """Parses the spec. Raises DriverError of class invalid."""
    return parsed(AwsProviderSpec, provider_spec)


def check(spec: AwsProviderSpec) -> None:
    """Raises DriverError of class invalid for what EC2 would refuse: a class may have come by another door."""
    if mistakes := spec.mistakes():
        raise DriverError(ErrorClass.INVALID, "; ".join(f"providerSpec.{path}: {words}" for path, words in mistakes))


def needs_root_device(spec: AwsProviderSpec) -> bool:
    """Whether a block device is the image's root device, whose name only the image knows."""
    return any(d.device_name in ROOT for d in spec.block_devices)


def run_instances(request: CreateMachineRequest, spec: AwsProviderSpec, root_device: str | None) -> Parameters:
    """The parameters of RunInstances. Raises DriverError of class invalid for user data or tags beyond EC2's limits."""
    user_data = _user_data(request)
    parameters: Parameters = {
        "ImageId": spec.ami,
        "InstanceType": spec.machine_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": request.token,
        "KeyName": spec.key_name,
        "UserData": user_data,  # botocore encodes it in base64
        "IamInstanceProfile": _some(Name=spec.iam.name, Arn=spec.iam.arn) if spec.iam else None,
        "BlockDeviceMappings": [_block_device(d, root_device) for d in spec.block_devices],
        "NetworkInterfaces": [_network_interface(i, n) for i, n in enumerate(spec.network_interfaces)],
        "TagSpecifications": tag_specifications(spec, request.machine),
        "CapacityReservationSpecification": _capacity_reservation(spec.capacity_reservation),
        "InstanceMarketOptions": _market(spec),
    }
    options = spec.instance_metadata_options or MetadataOptions()
    parameters["MetadataOptions"] = _some(
        HttpEndpoint=options.http_endpoint,
        HttpPutResponseHopLimit=options.http_put_response_hop_limit,
        HttpTokens=options.http_tokens,
        # Always said: an account whose default is "enabled" would refuse every must-tag for its slash.
        InstanceMetadataTags=options.instance_metadata_tags or "disabled",
    )
    if (cpu := spec.cpu_options) is not None:
        parameters["CpuOptions"] = _some(
            CoreCount=cpu.core_count, ThreadsPerCore=cpu.threads_per_core, AmdSevSnp=cpu.amd_sev_snp
        )
    if (place := _placement(request, spec)) is not None:
        parameters["Placement"] = _some(
            Affinity=place.affinity,
            AvailabilityZone=place.availability_zone,
            GroupId=place.group_id,
            GroupName=place.group_name,
            HostId=place.host_id,
            HostResourceGroupArn=place.host_resource_group_arn,
            PartitionNumber=place.partition_number,
            Tenancy=place.tenancy,
        )
    return {k: v for k, v in parameters.items() if v not in (None, "", [], {})}


def _user_data(request: CreateMachineRequest) -> str | bytes:
    text = request.user_data.get_secret_value()
    # Without the time: a repeated call must match its token.
    packed = gzip.compress(text.encode(), mtime=0) if request.compressed else None
    size = len(text.encode() if packed is None else packed)
    if size > MAX_USER_DATA:
        what, way = ("user data", ", or compress it with gzip") if packed is None else ("compressed user data", "")
        raise DriverError(
            ErrorClass.INVALID,
            f"{what} has {size} bytes, but EC2 accepts at most {MAX_USER_DATA}: fetch the rest at boot{way}",
        )
    return text if packed is None else packed


def _placement(request: CreateMachineRequest, spec: AwsProviderSpec) -> Ec2Placement | None:
    try:
        return read_placement(request.annotations.get(PLACEMENT, "")) or spec.placement
    except ValueError as e:
        raise DriverError(ErrorClass.INVALID, f"annotation {PLACEMENT} of the node template: {e}") from None


def _some(**values: Any) -> Parameters:
    """The values that are given: EC2 takes an empty value for a value."""
    return {k: v for k, v in values.items() if v is not None and v != ""}


def _block_device(device: BlockDevice, root_device: str | None) -> Parameters:
    ebs = device.ebs
    name = root_device if device.device_name in ROOT else device.device_name
    return {
        "DeviceName": name,
        "Ebs": _some(
            DeleteOnTermination=ebs.delete_on_termination is not False,
            Encrypted=True if ebs.kms_key_id else ebs.encrypted,
            KmsKeyId=ebs.kms_key_id,
            Iops=ebs.iops or None,  # MCM: 0 is "not given"
            Throughput=ebs.throughput or None,
            SnapshotId=ebs.snapshot_id,
            VolumeSize=ebs.volume_size,
            VolumeType=ebs.volume_type,
        ),
    }


def _network_interface(place: int, nic: NetworkInterface) -> Parameters:
    """ipv6PrefixCount is not here: it is assigned after the start (seed 000)."""
    addresses = nic.ipv6_address_count or None
    return _some(
        SubnetId=nic.subnet_id,
        Groups=nic.security_group_ids or None,
        DeviceIndex=place if nic.device_index is None else nic.device_index,
        NetworkCardIndex=nic.network_card_index,
        InterfaceType=nic.interface_type,
        Description=nic.description,
        AssociatePublicIpAddress=nic.associate_public_ip_address,
        DeleteOnTermination=nic.delete_on_termination is not False,
        Ipv6AddressCount=addresses,
        PrimaryIpv6=nic.primary_ipv6 is not False if addresses else None,
    )


def _capacity_reservation(reservation: CapacityReservation | None) -> Parameters | None:
    if reservation is None:
        return None
    target = _some(
        CapacityReservationId=reservation.capacity_reservation_id,
        CapacityReservationResourceGroupArn=reservation.capacity_reservation_resource_group_arn,
    )
    return _some(
        CapacityReservationPreference=reservation.capacity_reservation_preference,
        CapacityReservationTarget=target or None,
    )


def _market(spec: AwsProviderSpec) -> Parameters | None:
    """spotPrice is a one-time spot request, an empty one at the on-demand price (deprecated, as in MCM)."""
    market = spec.instance_market_options.market_type if spec.instance_market_options else None
    if spec.spot_price is None or market == "capacity-block":
        return {"MarketType": market} if market else None
    return {
        "MarketType": "spot",
        "SpotOptions": _some(SpotInstanceType="one-time", MaxPrice=spec.spot_price or None),
    }

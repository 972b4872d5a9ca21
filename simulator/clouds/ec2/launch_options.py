"""Options of a launch that the simulator checks and shows, but that change nothing else: they are echoed."""

from __future__ import annotations

import hashlib
from typing import Any

from simulator.clouds.ec2.errors import Ec2Error, unsupported
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import InstanceType, World

MAX_HOPS = 64
METADATA_DEFAULTS = {
    "State": "applied",
    "HttpTokens": "optional",
    "HttpPutResponseHopLimit": 1,
    "HttpEndpoint": "enabled",
    "HttpProtocolIpv6": "disabled",
    "InstanceMetadataTags": "disabled",
}


def read_options(params: Params, world: World, itype: InstanceType, zone: str) -> tuple[dict[str, Any], str | None]:
    """Members of the description of every instance of a launch, and the kind of Spot request if it is one."""
    spot = _read_spot(params.get("InstanceMarketOptions", {}))
    reservation = _read_capacity_reservation(params.get("CapacityReservationSpecification", {}), world)
    echoed: dict[str, Any] = {
        "Placement": _read_placement(params.get("Placement", {}), world, zone),
        "CpuOptions": _read_cpu(params.get("CpuOptions", {}), itype),
        "MetadataOptions": read_metadata(params.get("MetadataOptions", {}), METADATA_DEFAULTS),
        "CapacityReservationSpecification": reservation,
        "CapacityReservationId": reservation.get("CapacityReservationTarget", {}).get("CapacityReservationId"),
        "Monitoring": {"State": "enabled" if params.get("Monitoring", {}).get("Enabled") else "disabled"},
        "EbsOptimized": params.get("EbsOptimized", False),
        "KeyName": params.get("KeyName"),
        "IamInstanceProfile": _read_profile(params.get("IamInstanceProfile"), world),
        "InstanceLifecycle": "spot" if spot else None,
    }
    return {name: value for name, value in echoed.items() if value is not None}, spot


def _read_profile(profile: Row | None, world: World) -> Row | None:
    if not profile:
        return None
    if "Arn" in profile and "Name" in profile:
        raise Ec2Error(
            "InvalidParameterCombination",
            "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'",
        )
    by, value = ("arn", profile["Arn"]) if "Arn" in profile else ("name", profile.get("Name", ""))
    arn = value if by == "arn" and value in world.instance_profiles.values() else world.instance_profiles.get(value)
    if arn is None or (by == "arn" and arn != value):
        raise Ec2Error(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{by} is invalid. "
            f"Invalid IAM Instance Profile {'ARN' if by == 'arn' else 'name'}",
        )
    return {"Arn": arn, "Id": f"AIPA{hashlib.sha256(arn.encode()).hexdigest()[:17].upper()}"}


def _read_placement(placement: Row, world: World, zone: str) -> Row:
    groups = {g.id: g for g in world.placement_groups}
    group = None
    if "GroupId" in placement or "GroupName" in placement:
        if "GroupId" in placement and "GroupName" in placement:
            raise Ec2Error(
                "InvalidParameterCombination", "A placement group is given by its id or by its name, not both."
            )
        by_name = {g.name: g for g in world.placement_groups}
        group = groups.get(placement.get("GroupId", "")) or by_name.get(placement.get("GroupName", ""))
        if group is None:
            raise Ec2Error("InvalidPlacementGroup.Unknown", f"The placement group in {placement} is unknown.")
    if "PartitionNumber" in placement and group is None:
        raise Ec2Error("InvalidParameterCombination", "A partition number requires a placement group.")
    if "HostId" in placement:
        if placement["HostId"] not in world.hosts:
            raise Ec2Error("InvalidHostID.NotFound", f"The specified host ID '{placement['HostId']}' does not exist")
        if placement.get("Tenancy", "host") != "host":
            raise Ec2Error("InvalidParameterCombination", "A host ID requires the tenancy 'host'.")
    row = {**placement, "AvailabilityZone": zone}
    row.setdefault("Tenancy", "host" if "HostId" in placement else "default")
    row["GroupName"] = group.name if group else ""
    if group:
        row["GroupId"] = group.id
    return row


def _read_cpu(cpu: Row, itype: InstanceType) -> Row:
    most = itype.vcpus // itype.threads_per_core
    if ("CoreCount" in cpu) != ("ThreadsPerCore" in cpu):
        raise Ec2Error("InvalidParameterCombination", "CoreCount and ThreadsPerCore must be specified together.")
    row = {"CoreCount": most, "ThreadsPerCore": itype.threads_per_core, **cpu}
    if not 1 <= row["CoreCount"] <= most:
        raise Ec2Error("InvalidParameterValue", f"CoreCount must be from 1 to {most} for this instance type.")
    if not 1 <= row["ThreadsPerCore"] <= itype.threads_per_core:
        raise Ec2Error("InvalidParameterValue", f"ThreadsPerCore must be from 1 to {itype.threads_per_core}.")
    if cpu.get("AmdSevSnp") == "enabled" and not itype.amd_sev_snp:
        raise Ec2Error("InvalidParameterCombination", "The instance type does not support AMD SEV-SNP.")
    return row


def read_metadata(options: Row, before: Row) -> Row:
    """The metadata options after a launch or a change: what is not given stays as it was."""
    hops = options.get("HttpPutResponseHopLimit", 1)
    if not 1 <= hops <= MAX_HOPS:
        raise Ec2Error("InvalidParameterValue", f"HttpPutResponseHopLimit must be from 1 to {MAX_HOPS}.")
    return {**before, **options}


def _read_capacity_reservation(specification: Row, world: World) -> Row:
    target = specification.get("CapacityReservationTarget", {})
    if target and "CapacityReservationPreference" in specification:
        raise Ec2Error(
            "InvalidParameterCombination", "A capacity reservation target and a preference exclude each other."
        )
    if len(target) > 1:
        raise Ec2Error(
            "InvalidParameterCombination", "A capacity reservation is given by its id or by a group, not both."
        )
    reservation = target.get("CapacityReservationId")
    if reservation is not None and reservation not in world.capacity_reservations:
        raise Ec2Error(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{reservation}' does not exist"
        )
    return specification or {"CapacityReservationPreference": "open"}


def _read_spot(options: Row) -> str | None:
    market = options.get("MarketType")
    if market is None:
        if options:
            raise Ec2Error("MissingParameter", "The request must contain the parameter MarketType")
        return None
    if market != "spot":
        raise unsupported(f"the market type '{market}'")
    spot = options.get("SpotOptions", {})
    kind = str(spot.get("SpotInstanceType", "one-time"))
    if kind == "persistent":
        # A persistent request launches a new instance on its own when this one ends.
        raise unsupported("persistent Spot requests")
    if spot.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        raise Ec2Error(
            "InvalidParameterCombination",
            "A one-time Spot request can only have the interruption behavior 'terminate'.",
        )
    price = spot.get("MaxPrice")
    try:
        valid = price is None or float(price) > 0
    except ValueError:
        valid = False
    if not valid:
        raise Ec2Error("InvalidParameterValue", f"Invalid value '{price}' for MaxPrice.")
    return kind

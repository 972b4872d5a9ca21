"""The network interfaces that a launch asks for: NetworkInterfaces, or the short form with one subnet."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.clouds.ec2.addresses import check_ipv6
from simulator.clouds.ec2.errors import Ec2Error, unsupported
from simulator.clouds.ec2.identifiers import GROUP, SUBNET, find, find_one
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import InstanceType, Subnet, World

SHORT_FORM = (
    "SubnetId",
    "SecurityGroupIds",
    "SecurityGroups",
    "Ipv6AddressCount",
    "Ipv6Addresses",
    "EnablePrimaryIpv6",
)


@dataclass(frozen=True)
class InterfaceSpec:
    """An interface, checked and completed."""

    subnet: Subnet
    groups: tuple[str, ...]
    device_index: int
    card_index: int
    type: str
    description: str
    delete_on_termination: bool
    public_ip: bool
    ipv6_count: int
    ipv6_addresses: tuple[str, ...]
    ipv6_prefix_count: int
    primary_ipv6: bool


def read_interfaces(params: Params, world: World, itype: InstanceType) -> list[InterfaceSpec]:
    """Raises what EC2 answers to interfaces that cannot be made."""
    given = params.get("NetworkInterfaces")
    if given and any(params.get(name) for name in SHORT_FORM):
        raise Ec2Error(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID, security groups or IPv6 addresses "
            "may not be specified on the same request",
        )
    zone = params.get("Placement", {}).get("AvailabilityZone")
    if zone is not None and zone not in world.zones:
        raise Ec2Error("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    specs = [_read(s, world, zone) for s in given or [_short_form(params, world)]]
    _check_slots(specs, itype)
    if len({s.subnet.zone for s in specs}) > 1:
        raise Ec2Error("InvalidParameterCombination", "Network interfaces must be in the same availability zone.")
    if len(specs) > 1 and any(s.public_ip for s in specs):
        raise Ec2Error(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple interfaces.",
        )
    if params["MaxCount"] > 1 and any(s.ipv6_addresses for s in specs):
        raise Ec2Error("InvalidParameterCombination", "IPv6 addresses cannot be named for more than one instance.")
    named = [a for s in specs for a in s.ipv6_addresses]
    if len(set(named)) < len(named):
        raise Ec2Error("InvalidParameterValue", "An IPv6 address can be assigned to one interface only.")
    for s in specs:
        if len(s.ipv6_addresses) + s.ipv6_count + s.ipv6_prefix_count > itype.ipv6_per_interface:
            raise Ec2Error(
                "InvalidParameterValue",
                f"The number of IPv6 addresses exceeds the limit of {itype.ipv6_per_interface} per interface.",
            )
    return specs


def _short_form(params: Params, world: World) -> Row:
    names = params.get("SecurityGroups", [])
    by_name = {g.name: g.id for g in world.security_groups}
    unknown = [n for n in names if n not in by_name]
    if unknown:
        raise Ec2Error("InvalidGroup.NotFound", f"The security group '{unknown[0]}' does not exist")
    spec = {
        "DeviceIndex": 0,
        "SubnetId": params.get("SubnetId"),
        "Groups": [*params.get("SecurityGroupIds", []), *(by_name[n] for n in names)],
        "Ipv6AddressCount": params.get("Ipv6AddressCount"),
        "Ipv6Addresses": params.get("Ipv6Addresses"),
        "PrimaryIpv6": params.get("EnablePrimaryIpv6"),
    }
    return {k: v for k, v in spec.items() if v is not None}


def _read(spec: Row, world: World, zone: str | None) -> InterfaceSpec:
    if "DeviceIndex" not in spec:
        raise Ec2Error("InvalidParameterValue", "Each network interface requires a device index.")
    if "SubnetId" in spec:
        subnet = find_one(SUBNET, spec["SubnetId"], world.subnet)
    else:  # every zone's first subnet serves as its default one
        subnet = next(s for s in world.subnets if zone in (None, s.zone))
    if zone is not None and subnet.zone != zone:
        raise Ec2Error("InvalidParameterValue", f"The subnet '{subnet.id}' is in {subnet.zone}, not in {zone}")
    if spec.get("InterfaceType", "interface") not in ("interface", "efa"):
        raise unsupported(f"the interface type '{spec['InterfaceType']}'")
    ipv6 = tuple(check_ipv6(subnet, a["Ipv6Address"]) for a in spec.get("Ipv6Addresses", []) if "Ipv6Address" in a)
    count = spec.get("Ipv6AddressCount", 0)
    if ipv6 and count:
        raise Ec2Error("InvalidParameterCombination", "Specify either IPv6 addresses or their number, not both.")
    if (count or spec.get("Ipv6PrefixCount")) and subnet.ipv6_cidr is None:
        raise Ec2Error("InvalidParameterValue", f"The subnet '{subnet.id}' does not have an IPv6 CIDR block")
    if spec.get("PrimaryIpv6") and not (ipv6 or count):
        raise Ec2Error("InvalidParameterCombination", "A primary IPv6 address requires an IPv6 address.")
    return InterfaceSpec(
        subnet=subnet,
        groups=_read_groups(spec.get("Groups", []), subnet, world),
        device_index=spec["DeviceIndex"],
        card_index=spec.get("NetworkCardIndex", 0),
        type=spec.get("InterfaceType", "interface"),
        description=spec.get("Description", ""),
        delete_on_termination=spec.get("DeleteOnTermination", True),
        public_ip=spec.get("AssociatePublicIpAddress", False),
        ipv6_count=count,
        ipv6_addresses=ipv6,
        ipv6_prefix_count=spec.get("Ipv6PrefixCount", 0),
        primary_ipv6=spec.get("PrimaryIpv6", False),
    )


def _read_groups(ids: list[str], subnet: Subnet, world: World) -> tuple[str, ...]:
    if not ids:
        return tuple(g.id for g in world.security_groups if g.name == "default" and g.vpc_id == subnet.vpc_id)
    groups = find(GROUP, ids, world.security_group)
    for g in groups:
        if g.vpc_id != subnet.vpc_id:
            raise Ec2Error(
                "InvalidParameter", f"Security group {g.id} and subnet {subnet.id} belong to different networks."
            )
    return tuple(g.id for g in groups)


def _check_slots(specs: list[InterfaceSpec], itype: InstanceType) -> None:
    slots = [(s.card_index, s.device_index) for s in specs]
    if len(set(slots)) < len(slots):
        raise Ec2Error("InvalidParameterValue", "Each network interface requires a unique device index.")
    if (0, 0) not in slots:
        raise Ec2Error(
            "InvalidParameterValue", "The primary network interface must have device index 0 on network card 0."
        )
    if len(specs) > itype.interfaces:
        raise Ec2Error(
            "AttachmentLimitExceeded",
            f"Interface count {len(specs)} exceeds the limit of {itype.interfaces} for the type",
        )
    efas = sum(s.type == "efa" for s in specs)
    if efas > itype.efas:
        raise Ec2Error("AttachmentLimitExceeded", f"EFA interface count {efas} exceeds the limit of {itype.efas}")
    for s in specs:
        if not 0 <= s.card_index < itype.network_cards:
            raise Ec2Error("InvalidParameterValue", f"The type has no network card with index {s.card_index}.")

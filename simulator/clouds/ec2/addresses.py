"""Addresses of network interfaces: which are free in a subnet, and the choice among them."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable, Set

from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.world import Subnet

RESERVED_FIRST, RESERVED_LAST = 4, 1
"""Addresses at either end of a subnet that AWS keeps (VPC user guide, "Subnet sizing")."""
PREFIX_LENGTH = 80
"""Length of the IPv6 prefixes that an interface can be given."""
PUBLIC = ipaddress.IPv4Network("198.18.0.0/15")
"""Public addresses come from a range that is routed nowhere (RFC 2544)."""


def capacity(subnet: Subnet) -> int:
    return ipaddress.IPv4Network(subnet.cidr).num_addresses - RESERVED_FIRST - RESERVED_LAST


def next_ipv4(subnet: Subnet, used: Set[str], last: str | None) -> str:
    """The first free address after the one given out last, going round: an address rests before it is used again."""
    network = ipaddress.IPv4Network(subnet.cidr)
    size = capacity(subnet)
    start = int(ipaddress.IPv4Address(last)) - int(network.network_address) - RESERVED_FIRST + 1 if last else 0
    for step in range(size):
        candidate = str(network[RESERVED_FIRST + (start + step) % size])
        if candidate not in used:
            return candidate
    raise no_free_addresses(subnet)


def no_free_addresses(subnet: Subnet) -> Ec2Error:
    return Ec2Error(
        "InsufficientFreeAddressesInSubnet",
        f"The specified subnet does not have enough free addresses to satisfy the request. ({subnet.id})",
    )


def next_public(used: Set[str]) -> str:
    while (candidate := str(PUBLIC[1 + secrets.randbelow(PUBLIC.num_addresses - 2)])) in used:
        pass
    return candidate


def ipv6_network(subnet: Subnet) -> ipaddress.IPv6Network:
    if subnet.ipv6_cidr is None:
        raise Ec2Error("InvalidParameterValue", f"The subnet '{subnet.id}' does not have an IPv6 CIDR block")
    return ipaddress.IPv6Network(subnet.ipv6_cidr)


def next_ipv6(subnet: Subnet, used: Set[str], prefixes: Iterable[str]) -> str:
    """A random free address of the subnet, outside the prefixes that are given out."""
    network = ipv6_network(subnet)
    taken = [ipaddress.IPv6Network(p) for p in prefixes]
    while True:
        candidate = network[secrets.randbits(network.max_prefixlen - network.prefixlen)]
        if str(candidate) not in used and not any(candidate in p for p in taken):
            return str(candidate)


def next_prefix(subnet: Subnet, used: Set[str]) -> str:
    """A random free /80 of the subnet."""
    network = ipv6_network(subnet)
    shift = network.max_prefixlen - PREFIX_LENGTH
    while True:
        number = secrets.randbits(PREFIX_LENGTH - network.prefixlen)
        candidate = f"{network[number << shift]}/{PREFIX_LENGTH}"
        if candidate not in used:
            return candidate


def check_ipv6(subnet: Subnet, address: str) -> str:
    """The canonical form of an address that a call names. Raises unless it lies in the subnet."""
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        raise Ec2Error("InvalidParameterValue", f"'{address}' is not a valid IPv6 address") from None
    if parsed not in ipv6_network(subnet):
        raise Ec2Error("InvalidParameterValue", f"Address {address} does not fall within the subnet's address range")
    return str(parsed)


def check_prefix(subnet: Subnet, prefix: str) -> str:
    """The canonical form of a prefix that a call names. Raises unless it is a /80 of the subnet."""
    try:
        parsed = ipaddress.IPv6Network(prefix)
    except ValueError:
        raise Ec2Error("InvalidParameterValue", f"'{prefix}' is not a valid IPv6 prefix") from None
    if parsed.prefixlen != PREFIX_LENGTH or not parsed.subnet_of(ipv6_network(subnet)):
        raise Ec2Error(
            "InvalidParameterValue", f"Prefix {prefix} is not a /{PREFIX_LENGTH} of the subnet's address range"
        )
    return str(parsed)

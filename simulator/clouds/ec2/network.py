"""Network interfaces and their addresses; subnets and security groups as they are described."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from pydantic import BaseModel

from simulator.clouds.ec2 import addresses
from simulator.clouds.ec2.context import Context, Written
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.identifiers import GROUP, INTERFACE, SUBNET, find, find_one, new_id
from simulator.clouds.ec2.listing import describe
from simulator.clouds.ec2.network_specs import InterfaceSpec
from simulator.clouds.ec2.tags import Tags
from simulator.clouds.ec2.wire import Params, Row
from simulator.clouds.ec2.world import InstanceType, SecurityGroup, Subnet

INTERFACE_FILTERS = {
    "network-interface-id": "NetworkInterfaceId",
    "attachment.attachment-id": "Attachment.AttachmentId",
    "attachment.delete-on-termination": "Attachment.DeleteOnTermination",
    "attachment.device-index": "Attachment.DeviceIndex",
    "attachment.instance-id": "Attachment.InstanceId",
    "attachment.status": "Attachment.Status",
    "availability-zone": "AvailabilityZone",
    "description": "Description",
    "group-id": "Groups.GroupId",
    "group-name": "Groups.GroupName",
    "interface-type": "InterfaceType",
    "ipv6-addresses.ipv6-address": "Ipv6Addresses.Ipv6Address",
    "mac-address": "MacAddress",
    "owner-id": "OwnerId",
    "private-dns-name": "PrivateDnsName",
    "private-ip-address": "PrivateIpAddress",
    "source-dest-check": "SourceDestCheck",
    "status": "Status",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
}
SUBNET_FILTERS = {
    "availability-zone": "AvailabilityZone",
    "cidr-block": "CidrBlock",
    "ipv6-cidr-block-association.ipv6-cidr-block": "Ipv6CidrBlockAssociationSet.Ipv6CidrBlock",
    "owner-id": "OwnerId",
    "state": "State",
    "subnet-id": "SubnetId",
    "vpc-id": "VpcId",
}
GROUP_FILTERS = {"group-id": "GroupId", "group-name": "GroupName", "owner-id": "OwnerId", "vpc-id": "VpcId"}


class Interface(BaseModel):
    id: str
    created: Written
    subnet_id: str
    groups: list[str]
    """Ids of security groups."""
    description: str
    type: str
    """interface or efa."""
    mac: str
    private_ip: str
    public_ip: str | None
    auto_public_ip: bool
    """Whether it has a public address while its instance runs."""
    ipv6: list[str]
    ipv6_prefixes: list[str]
    primary_ipv6: bool
    """Whether the first IPv6 address is the primary one, which can never be taken away."""
    source_dest_check: bool = True
    instance_id: str | None
    """None: the interface is `available`."""
    attachment_id: str
    device_index: int
    card_index: int
    delete_on_termination: bool
    ipv6_limit: int
    """The most IPv6 addresses and prefixes, by the instance's type."""


class Network:
    def __init__(self, context: Context, tags: Tags) -> None:
        self._context = context
        self._tags = tags
        self.records: dict[str, Interface] = {}
        self.last_ipv4: dict[str, str] = {}
        """The address given out last, by subnet."""

    def lookup(self, interface_id: str) -> Interface | None:
        """The interface if calls see it already."""
        interface = self.records.get(interface_id)
        return interface if interface is not None and self._context.sees(interface.created) else None

    def subnet(self, interface: Interface) -> Subnet:
        subnet = self._context.world.subnet(interface.subnet_id)
        if subnet is None:
            raise Ec2Error("InternalError", f"The world no longer has subnet {interface.subnet_id}")
        return subnet

    def dns_name(self, private_ip: str) -> str:
        return f"ip-{private_ip.replace('.', '-')}.{self._context.world.region}.compute.internal"

    # ------------------------------------------------------------------------------------- with an instance

    def check_room(self, specs: Iterable[InterfaceSpec], instances: int) -> None:
        """Raises when a subnet has too few free addresses for a launch, before anything of it is made."""
        specs = list(specs)
        for subnet in {s.subnet.id: s.subnet for s in specs}.values():
            wanted = instances * sum(s.subnet.id == subnet.id for s in specs)
            if wanted > addresses.capacity(subnet) - len(self._used_ipv4(subnet.id)):
                raise addresses.no_free_addresses(subnet)
        for spec in specs:
            for address in spec.ipv6_addresses:
                self._check_unassigned(address, None)

    def create(
        self, spec: InterfaceSpec, instance_id: str | None, itype: InstanceType, tags: dict[str, str]
    ) -> Interface:
        subnet = spec.subnet
        ip = addresses.next_ipv4(subnet, self._used_ipv4(subnet.id), self.last_ipv4.get(subnet.id))
        self.last_ipv4[subnet.id] = ip
        interface = Interface(
            id=new_id(INTERFACE.prefix),
            created=self._context.created(),
            subnet_id=subnet.id,
            groups=list(spec.groups),
            description=spec.description,
            type=spec.type,
            mac="06:" + ":".join(f"{b:02x}" for b in secrets.token_bytes(5)),
            private_ip=ip,
            public_ip=addresses.next_public(self._used_public()) if spec.public_ip else None,
            auto_public_ip=spec.public_ip,
            ipv6=[],
            ipv6_prefixes=[],
            primary_ipv6=spec.primary_ipv6,
            instance_id=instance_id,
            attachment_id=new_id("eni-attach"),
            device_index=spec.device_index,
            card_index=spec.card_index,
            delete_on_termination=spec.delete_on_termination,
            ipv6_limit=itype.ipv6_per_interface,
        )
        self.records[interface.id] = interface
        self._assign(interface, spec.ipv6_addresses, spec.ipv6_count, (), spec.ipv6_prefix_count)
        self._tags.write(interface.id, tags)
        return interface

    def release(self, interface_ids: Iterable[str]) -> None:
        """The instance has ended: its interfaces are deleted, or stay as `available`."""
        for interface_id in interface_ids:
            interface = self.records.get(interface_id)
            if interface is None:
                continue
            if interface.delete_on_termination:
                self._delete(interface)
            else:
                interface.instance_id = None
                interface.public_ip, interface.auto_public_ip = None, False

    def change_public_ips(self, interface_ids: Iterable[str], running: bool) -> None:
        """A stopped instance gives its public address back and gets another when it starts (EC2 user guide)."""
        for interface in (self.records[i] for i in interface_ids if i in self.records):
            if not running:
                interface.public_ip = None
            elif interface.auto_public_ip and interface.public_ip is None:
                interface.public_ip = addresses.next_public(self._used_public())

    def _delete(self, interface: Interface) -> None:
        del self.records[interface.id]
        self._tags.forget(interface.id)

    # -------------------------------------------------------------------------------------------- addresses

    def _used_ipv4(self, subnet_id: str) -> set[str]:
        return {n.private_ip for n in self.records.values() if n.subnet_id == subnet_id}

    def _used_public(self) -> set[str]:
        return {n.public_ip for n in self.records.values() if n.public_ip}

    def _used_ipv6(self) -> set[str]:
        return {a for n in self.records.values() for a in n.ipv6}

    def _used_prefixes(self) -> set[str]:
        return {p for n in self.records.values() for p in n.ipv6_prefixes}

    def _check_unassigned(self, address: str, owner: Interface | None) -> None:
        for other in self.records.values():
            if other is not owner and (address in other.ipv6 or address in other.ipv6_prefixes):
                raise Ec2Error(
                    "InvalidParameterValue", f"The address {address} is already assigned to another interface"
                )

    def _assign(
        self, interface: Interface, ipv6: Iterable[str], count: int, prefixes: Iterable[str], prefix_count: int
    ) -> tuple[list[str], list[str]]:
        """Adds addresses and prefixes: those named (repeating does no harm) and that many new ones. All or nothing."""
        subnet = self.subnet(interface)
        ipv6 = [addresses.check_ipv6(subnet, a) for a in ipv6]
        prefixes = [addresses.check_prefix(subnet, p) for p in prefixes]
        for named in (*ipv6, *prefixes):
            self._check_unassigned(named, interface)
        held = {*interface.ipv6, *interface.ipv6_prefixes}
        total = len(held | {*ipv6, *prefixes}) + count + prefix_count
        if total > interface.ipv6_limit:
            raise Ec2Error(
                "PrivateIpAddressLimitExceeded",
                f"{total} IPv6 addresses and prefixes exceed the limit of {interface.ipv6_limit} per interface.",
            )
        for _ in range(count):
            ipv6.append(addresses.next_ipv6(subnet, {*self._used_ipv6(), *ipv6}, self._used_prefixes()))
        for _ in range(prefix_count):
            prefixes.append(addresses.next_prefix(subnet, {*self._used_prefixes(), *prefixes}))
        interface.ipv6 += [a for a in ipv6 if a not in interface.ipv6]
        interface.ipv6_prefixes += [p for p in prefixes if p not in interface.ipv6_prefixes]
        return ipv6, prefixes

    # ------------------------------------------------------------------------------------------------- rows

    def group_rows(self, ids: Iterable[str]) -> list[Row]:
        groups = (self._context.world.security_group(g) for g in ids)
        return [{"GroupId": g.id, "GroupName": g.name} for g in groups if g is not None]

    def row(self, interface: Interface) -> Row:
        return {
            **self.instance_row(interface),
            "Attachment": self._attachment(interface, {"InstanceId": interface.instance_id}),
            "AvailabilityZone": self.subnet(interface).zone,
            "RequesterManaged": False,
            "TagSet": self._tags.rows(interface.id),
        }

    def instance_row(self, interface: Interface) -> Row:
        """The interface as DescribeInstances shows it within its instance."""
        dns = self.dns_name(interface.private_ip)
        public = self._association(interface)
        return {
            "NetworkInterfaceId": interface.id,
            "SubnetId": interface.subnet_id,
            "VpcId": self.subnet(interface).vpc_id,
            "Description": interface.description,
            "OwnerId": self._context.account_id,
            "Status": "in-use" if interface.instance_id else "available",
            "SourceDestCheck": interface.source_dest_check,
            "InterfaceType": interface.type,
            "MacAddress": interface.mac,
            "Groups": self.group_rows(interface.groups),
            "PrivateIpAddress": interface.private_ip,
            "PrivateDnsName": dns,
            "PrivateIpAddresses": [
                {
                    "PrivateIpAddress": interface.private_ip,
                    "PrivateDnsName": dns,
                    "Primary": True,
                    "Association": public,
                }
            ],
            "Ipv6Addresses": [
                {"Ipv6Address": a, "IsPrimaryIpv6": interface.primary_ipv6 and n == 0}
                for n, a in enumerate(interface.ipv6)
            ],
            "Ipv6Prefixes": [{"Ipv6Prefix": p} for p in interface.ipv6_prefixes] or None,
            "Association": public,
            "Attachment": self._attachment(interface, {}),
        }

    def _attachment(self, interface: Interface, more: Row) -> Row | None:
        if interface.instance_id is None:
            return None
        return {
            "AttachmentId": interface.attachment_id,
            "AttachTime": interface.created.at,
            "DeleteOnTermination": interface.delete_on_termination,
            "DeviceIndex": interface.device_index,
            "NetworkCardIndex": interface.card_index,
            "Status": "attached",
            **more,
        }

    def public_dns(self, public_ip: str) -> str:
        return f"ec2-{public_ip.replace('.', '-')}.{self._context.world.region}.compute.amazonaws.com"

    def _association(self, interface: Interface) -> Row | None:
        if not interface.public_ip:
            return None
        dns = self.public_dns(interface.public_ip)
        return {"IpOwnerId": "amazon", "PublicIp": interface.public_ip, "PublicDnsName": dns}

    # -------------------------------------------------------------------------------------------- operations

    def describe_network_interfaces(self, params: Params) -> Row:
        ids = params.get("NetworkInterfaceIds")
        if ids:
            found = find(INTERFACE, ids, self.lookup)
        else:
            found = [n for n in self._tags.candidates(self.records.values(), params) if self.lookup(n.id)]
        rows = [self.row(n) for n in found]
        return describe(
            "NetworkInterfaces", rows, params, INTERFACE_FILTERS, ("NetworkInterfaceId",), "NetworkInterfaceIds"
        )

    def delete_network_interface(self, params: Params) -> Row:
        interface = find_one(INTERFACE, params["NetworkInterfaceId"], self.lookup)
        if interface.instance_id:
            # Seen from the real service with this generic code, e.g. gruntwork-io/cloud-nuke#1132; launches and
            # attachments answer InvalidNetworkInterface.InUse instead.
            raise Ec2Error("InvalidParameterValue", f"Network interface '{interface.id}' is currently in use.")
        self._delete(interface)
        return {}

    def modify_network_interface_attribute(self, params: Params) -> Row:
        interface = find_one(INTERFACE, params["NetworkInterfaceId"], self.lookup)
        if "SourceDestCheck" not in params:
            raise Ec2Error("InvalidParameterCombination", "No attributes specified.")
        interface.source_dest_check = params["SourceDestCheck"].get("Value", True)
        return {}

    def assign_ipv6_addresses(self, params: Params) -> Row:
        """Counts are increments: the same call twice assigns twice as many (EC2 API reference)."""
        interface = find_one(INTERFACE, params["NetworkInterfaceId"], self.lookup)
        named, counted = params.get("Ipv6Addresses", []), params.get("Ipv6AddressCount", 0)
        prefixes, prefix_count = params.get("Ipv6Prefixes", []), params.get("Ipv6PrefixCount", 0)
        if not (named or counted or prefixes or prefix_count):
            raise Ec2Error(
                "MissingParameter", "Either the number of IPv6 addresses or the addresses must be specified."
            )
        if (named and counted) or (prefixes and prefix_count):
            raise Ec2Error("InvalidParameterCombination", "Specify either IPv6 addresses or their number, not both.")
        assigned, assigned_prefixes = self._assign(interface, named, counted, prefixes, prefix_count)
        return {
            "NetworkInterfaceId": interface.id,
            "AssignedIpv6Addresses": assigned,
            "AssignedIpv6Prefixes": assigned_prefixes,
        }

    def describe_subnets(self, params: Params) -> Row:
        world, ids = self._context.world, params.get("SubnetIds")
        subnets = find(SUBNET, ids, world.subnet) if ids else world.subnets
        return describe(
            "Subnets", [self._subnet_row(s) for s in subnets], params, SUBNET_FILTERS, ("SubnetId",), "SubnetIds"
        )

    def _subnet_row(self, subnet: Subnet) -> Row:
        world = self._context.world
        ipv6 = {"Ipv6CidrBlock": subnet.ipv6_cidr, "Ipv6CidrBlockState": {"State": "associated"}}
        return {
            "SubnetId": subnet.id,
            "SubnetArn": f"arn:aws:ec2:{world.region}:{world.account_id}:subnet/{subnet.id}",
            "VpcId": subnet.vpc_id,
            "State": "available",
            "AvailabilityZone": subnet.zone,
            "OwnerId": world.account_id,
            "CidrBlock": subnet.cidr,
            "AvailableIpAddressCount": addresses.capacity(subnet) - len(self._used_ipv4(subnet.id)),
            "Ipv6CidrBlockAssociationSet": [ipv6] if subnet.ipv6_cidr else [],
            "AssignIpv6AddressOnCreation": False,
            "MapPublicIpOnLaunch": False,
            "Tags": self._tags.rows(subnet.id),
        }

    def describe_security_groups(self, params: Params) -> Row:
        world, ids = self._context.world, params.get("GroupIds")
        groups = find(GROUP, ids, world.security_group) if ids else world.security_groups
        rows = [self._group_row(g) for g in groups]
        return describe("SecurityGroups", rows, params, GROUP_FILTERS, ("GroupId",), "GroupIds")

    def _group_row(self, group: SecurityGroup) -> Row:
        return {
            "GroupId": group.id,
            "GroupName": group.name,
            "Description": group.name,
            "OwnerId": self._context.account_id,
            "VpcId": group.vpc_id,
            "Tags": self._tags.rows(group.id),
        }

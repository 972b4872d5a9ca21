"""Network interfaces, their addresses, and the VMs that they are kept for."""

from __future__ import annotations

import ipaddress
import secrets
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, Field

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import NICS, SUBNETS, Id, check_name, key_of, parse_as
from simulator.clouds.arm.network import NetworkProvider, Networks, SubnetRecord, busy, not_provisioned
from simulator.clouds.arm.operations import Operations
from simulator.clouds.arm.resources import ArmResource, check_conditions, check_location, keys_of, read_tags
from simulator.clouds.arm.wire import Answer, ArmCall, Row

RESERVED = 4
"""The first addresses of a subnet that Azure keeps; so it does the last one."""


class IpConfiguration(BaseModel):
    name: str
    subnet_id: str
    version: str = "IPv4"
    primary: bool = False
    address: str = ""
    static: bool = False
    pools: list[dict[str, Any]] = []
    """Backend pools of load balancers, as they were given."""


class Interface(ArmResource):
    configurations: list[IpConfiguration] = Field(default_factory=list)
    ip_forwarding: bool = False
    accelerated: bool = False
    mac: str = ""
    guid: str = ""
    group_id: str | None = None
    """The network security group."""
    dns_servers: list[str] = Field(default_factory=list)
    vm_id: str | None = None
    primary: bool = False
    delete_with_vm: bool = False
    reserved_for: str = ""
    """The id of the VM that could not be made with it."""
    reserved_until: float = 0.0

    @property
    def private_ip(self) -> str:
        return next((c.address for c in self.configurations if c.version == "IPv4"), "")


class Interfaces(NetworkProvider[Interface]):
    """Network interfaces of all subscriptions."""

    def __init__(self, context: Context, operations: Operations, networks: Networks) -> None:
        super().__init__(context, operations, NICS)
        self._networks = networks
        networks.users = lambda subnet: (f"{n.id}/ipConfigurations/{c.name}" for n, c in self._users(subnet))
        self.accelerates: Callable[[str], bool] = lambda vm_id: True
        """Whether the size of a VM allows for accelerated networking."""

    def _users(self, subnet: str) -> Iterable[tuple[Interface, IpConfiguration]]:
        for interface in self.store.records.values():
            for configuration in interface.configurations:
                if key_of(configuration.subnet_id) == subnet:
                    yield interface, configuration

    def row(self, resource: Interface, written: bool = False) -> Row:
        properties: Row = {
            "provisioningState": resource.provisioning,
            "resourceGuid": resource.guid,
            "ipConfigurations": [self._configuration_row(resource, c) for c in resource.configurations],
            "dnsSettings": {"dnsServers": list(resource.dns_servers), "appliedDnsServers": []},
            "macAddress": resource.mac,
            "enableAcceleratedNetworking": resource.accelerated,
            "enableIPForwarding": resource.ip_forwarding,
            "hostedWorkloads": [],
            "tapConfigurations": [],
            "nicType": "Standard",
        }
        if resource.group_id:
            properties["networkSecurityGroup"] = {"id": resource.group_id}
        if resource.vm_id:
            properties |= {"virtualMachine": {"id": resource.vm_id}, "primary": resource.primary}
        return {
            **self.store.head(resource, written),
            "etag": resource.etag,
            "kind": "Regular",
            "properties": properties,
        }

    def _configuration_row(self, nic: Interface, c: IpConfiguration) -> Row:
        return {
            "name": c.name,
            "id": f"{nic.id}/ipConfigurations/{c.name}",
            "etag": nic.etag,
            "type": f"{NICS}/ipConfigurations",
            "properties": {
                "provisioningState": "Succeeded",
                "privateIPAddress": c.address,
                "privateIPAllocationMethod": "Static" if c.static else "Dynamic",
                "privateIPAddressVersion": c.version,
                "subnet": {"id": c.subnet_id},
                "primary": c.primary,
                **({"loadBalancerBackendAddressPools": c.pools} if c.pools else {}),
            },
        }

    def create_or_update(self, call: ArmCall) -> Answer:
        """Replaces what can be changed of a NIC that exists."""
        id = call.id(NICS)
        check_name(NICS, id.name)
        existing = self.store.records.get(id.key)
        check_conditions(call, existing)
        location, tags = check_location(call, self._context, existing), read_tags(call.body)
        if existing is not None and existing.provisioning == "Deleting":
            raise busy(existing)
        properties = call.body.get("properties") or {}
        nic = existing or Interface(
            id=str(id),
            created=self._context.created(),
            location=location,
            mac="00-0D-3A-" + "-".join(f"{b:02X}" for b in secrets.token_bytes(3)),
            guid=str(uuid.uuid4()),
        )
        configurations = self._read_configurations(nic, properties)
        accelerated = bool(properties.get("enableAcceleratedNetworking", False))
        if accelerated and nic.vm_id and not self.accelerates(nic.vm_id):
            raise ArmError(
                "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
                f"VM size of {nic.vm_id} is not in the list of sizes that support accelerated networking.",
            )
        group = (properties.get("networkSecurityGroup") or {}).get("id")
        nic.configurations, nic.accelerated = configurations, accelerated
        nic.ip_forwarding = bool(properties.get("enableIPForwarding", False))
        nic.group_id = self._check_group(id, group)
        nic.dns_servers = list((properties.get("dnsSettings") or {}).get("dnsServers") or [])
        return self.written(call, nic, tags, existing is not None)

    def update_tags(self, call: ArmCall) -> Answer:
        """Sets the tags at once, in place of all that it had."""
        nic = self.store.find(call.id(NICS))
        check_conditions(call, nic)
        if nic.provisioning == "Deleting":
            raise busy(nic)
        nic.write_tags(read_tags(call.body), self._context.tagged())
        nic.touch()
        return Answer(body=self.row(nic, written=True), headers={"ETag": nic.etag}, changed=[nic.id])

    def delete(self, call: ArmCall) -> Answer:
        nic = self.store.records.get(call.id(NICS).key)
        if nic is None:
            return Answer(204)
        if nic.vm_id:
            raise ArmError(
                "NicInUse",
                f"Network Interface {nic.id} is used by existing resource {nic.vm_id}. In order to delete the network "
                "interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.",
            )
        self.check_reserved(nic, "")
        return self.going(call, nic)

    def _read_configurations(self, nic: Interface, properties: Row) -> list[IpConfiguration]:
        given = properties.get("ipConfigurations") or []
        if not given:
            raise ArmError(
                "NetworkInterfaceMustHaveAtLeastOneIpConfiguration",
                f"Network interface {nic.id} must have at least one IP configuration.",
            )
        read: list[IpConfiguration] = []
        for row in given:
            of = row.get("properties") or {}
            subnet = self._subnet_of(nic, row.get("name"), of)
            before = next((c for c in nic.configurations if c.name == row["name"]), None)
            configuration = IpConfiguration(
                name=row["name"],
                subnet_id=str((of.get("subnet") or {})["id"]),
                version=of.get("privateIPAddressVersion", "IPv4"),
                primary=bool(of.get("primary", len(given) == 1)),
                static=of.get("privateIPAllocationMethod") == "Static",
                pools=list(of.get("loadBalancerBackendAddressPools") or []),
            )
            wanted = of.get("privateIPAddress") if configuration.static else before.address if before else None
            configuration.address = self._allocate(nic, configuration, subnet, wanted, read)
            read.append(configuration)
        if sum(c.primary for c in read) != 1:
            raise ArmError(
                "NetworkInterfaceMustHaveOnePrimaryIpConfiguration",
                f"Network interface {nic.id} must have exactly one primary IP configuration.",
            )
        if all(c.version == "IPv6" for c in read):
            raise ArmError("Ipv6ConfigurationRequiresIpv4", f"Network interface {nic.id} needs an IPv4 configuration.")
        return read

    def _subnet_of(self, nic: Interface, name: object, of: Row) -> SubnetRecord:
        if not name:
            raise ArmError("InvalidRequestFormat", "Cannot parse the request: an ipConfiguration has no name.")
        given = (of.get("subnet") or {}).get("id")
        if given is None:
            raise ArmError(
                "SubnetMissing", f"The IP configuration {name} of {nic.id} must have a reference to a subnet."
            )
        id = parse_as(SUBNETS, given)
        network = self._networks.store.records.get(key_of(id.parent_id))
        subnet = network.subnet(id.name) if network else None
        if subnet is None or network is None:
            raise ArmError(
                "InvalidResourceReference",
                f"Resource {id} referenced by resource {nic.id} was not found. Please make sure that the referenced "
                "resource exists, and that both resources are in the same region.",
            )
        if network.provisioning != "Succeeded":
            raise not_provisioned(str(id), nic.id, network.provisioning)
        return subnet

    def _allocate(
        self,
        nic: Interface,
        of: IpConfiguration,
        subnet: SubnetRecord,
        wanted: str | None,
        read: list[IpConfiguration],
    ) -> str:
        version = 6 if of.version == "IPv6" else 4
        nets = [n for n in map(ipaddress.ip_network, subnet.prefixes) if n.version == version]
        if not nets:
            raise ArmError(
                "SubnetWithoutPrefixOfVersion", f"Subnet {of.subnet_id} has no address prefix for {of.version}."
            )
        others = {c.address for n, c in self._users(key_of(of.subnet_id)) if n.key != nic.key}
        taken = others | {c.address for c in read}
        if wanted:
            if ipaddress.ip_address(wanted) not in nets[0]:
                raise ArmError(
                    "PrivateIPAddressNotInSubnet",
                    f"Private static IP address {wanted} does not belong to the range of subnet prefix {nets[0]}.",
                )
            if wanted in taken:
                raise ArmError("PrivateIPAddressInUse", f"IP configuration {of.name} is using the private IP {wanted}.")
            return wanted
        for n in range(RESERVED, nets[0].num_addresses - 1):
            address = str(nets[0][n])
            if address not in taken:
                return address
        raise ArmError(
            "SubnetIsFull",
            f"Subnet {subnet.name} with address prefix {nets[0]} does not have enough capacity for 1 IP addresses.",
        )

    def _check_group(self, nic: Id, given: str | None) -> str | None:
        if given is None:
            return None
        group = parse_as("Microsoft.Network/networkSecurityGroups", given)
        if group.name not in self._context.world.security_groups:
            raise ArmError("InvalidResourceReference", f"Resource {group} referenced by resource {nic} was not found.")
        return given

    # ------------------------------------------------------------------------------------------- for their VMs

    def fast_forward(self) -> None:
        for nic in self.store.records.values():
            nic.reserved_until = 0.0

    def check_reserved(self, nic: Interface, vm_id: str) -> None:
        """Raises NicReservedForAnotherVm while a NIC is kept for a VM that could not be made with it."""
        if nic.reserved_until > time.time() and key_of(nic.reserved_for) != key_of(vm_id):
            seconds = round(self._context.delays.reservation)
            raise ArmError(
                "NicReservedForAnotherVm",
                f"Nic(s) in request is reserved for another Virtual Machine for {seconds} seconds. Please provide "
                "another "
                f"nic(s) or retry after {seconds} seconds. Reserved VM: {nic.reserved_for}",
            )

    def reserve(self, nics: Iterable[str], vm_id: str) -> None:
        """A VM could not be made: its NICs are kept for it for a while."""
        for key in keys_of(nics):
            nic = self.store.records.get(key)
            if nic is not None and nic.vm_id in (None, vm_id):
                nic.reserved_for = vm_id
                nic.reserved_until = time.time() + self._context.delays.reservation

    def attach(self, nics: list[Row], vm_id: str, before: Iterable[Row]) -> None:
        """The VM has exactly these."""
        for row in nics:
            nic, of = self.store.records[key_of(row["id"])], row.get("properties") or {}
            nic.vm_id, nic.reserved_until = vm_id, 0.0
            nic.primary = bool(of.get("primary", len(nics) == 1))
            nic.delete_with_vm = of.get("deleteOption") == "Delete"
        kept = keys_of(row["id"] for row in nics)
        for nic in self._of(before):
            if nic.key not in kept:
                nic.vm_id = None

    def release(self, rows: Iterable[Row]) -> None:
        """Their VM is gone: some are deleted, the others stay on their own."""
        for nic in self._of(rows):
            if nic.delete_with_vm:
                self.drop(nic.key)
            else:
                nic.vm_id = None

    def _of(self, rows: Iterable[Row]) -> list[Interface]:
        found = (self.store.records.get(key_of(row["id"])) for row in rows)
        return [nic for nic in found if nic is not None]

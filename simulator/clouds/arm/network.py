"""What the provider of networks makes: how it answers writes and ends; virtual networks and their subnets."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, invalid
from simulator.clouds.arm.identifiers import NETWORKS, SUBNETS, Id, check_name, key_of
from simulator.clouds.arm.operations import Operation, Operations
from simulator.clouds.arm.resources import ArmResource, ArmStore, check_conditions, check_location, read_tags
from simulator.clouds.arm.wire import Answer, ArmCall, Row, page
from simulator.clouds.arm.world import Network as WorldNetwork

N = TypeVar("N", bound=ArmResource)


class NetworkProvider(Generic[N]):
    """What its virtual networks and its network interfaces have in common: a write shows `Updating` until its operation
    ends, also for what is new."""

    def __init__(self, context: Context, operations: Operations, kind: str) -> None:
        self._context = context
        self._operations = operations
        self.store: ArmStore[N] = ArmStore(context, kind)

    def row(self, resource: N, written: bool = False) -> Row:
        raise NotImplementedError

    def get(self, call: ArmCall) -> Answer:
        resource = self.store.find(call.id(self.store.kind))
        return Answer(body=self.row(resource), headers={"ETag": resource.etag})

    def list_all(self, call: ArmCall) -> Answer:
        return page(self.store.listed(call), call, self._context.page, lambda r: r.key, self.row)

    def written(self, call: ArmCall, resource: N, tags: dict[str, str], existed: bool) -> Answer:
        self.store.records[resource.key] = resource
        resource.provisioning = "Updating"
        resource.write_tags(tags, self._context.tagged())
        resource.touch()
        verb = "update" if existed else "create"
        operation = self._operations.begin(verb, resource.key, self._context.delays.resource, call.fails)
        self._operations.settle()
        headers = {**self._operations.links(operation, call), "ETag": resource.etag}
        del headers["Location"]  # a PUT is polled by its operation, and read at its own address
        return Answer(200 if existed else 201, self.row(resource, written=True), headers, changed=[resource.id])

    def going(self, call: ArmCall, resource: N) -> Answer:
        operation = self._operations.going(resource.key)
        if operation is None or operation.verb != "delete":
            resource.provisioning = "Deleting"
            operation = self._operations.begin("delete", resource.key, self._context.delays.resource, call.fails)
        return Answer(202, headers=self._operations.links(operation, call), changed=[resource.id])

    def finish(self, operation: Operation) -> None:
        resource = self.store.records.get(operation.target)
        if resource is None:
            return
        if operation.error is not None:
            resource.provisioning = "Failed"
        elif operation.verb == "delete":
            self.drop(resource.key)
        else:
            resource.provisioning = "Succeeded"
            resource.touch()

    def drop(self, key: str) -> None:
        self.store.records.pop(key, None)
        self._operations.forget_target(key)


class SubnetRecord(BaseModel):
    name: str
    prefixes: list[str]


class VirtualNetwork(ArmResource):
    prefixes: list[str] = Field(default_factory=list)
    subnets: list[SubnetRecord] = Field(default_factory=list)

    def subnet(self, name: str) -> SubnetRecord | None:
        return next((s for s in self.subnets if s.name.lower() == name.lower()), None)


class Networks(NetworkProvider[VirtualNetwork]):
    """Virtual networks of all subscriptions."""

    def __init__(self, context: Context, operations: Operations) -> None:
        super().__init__(context, operations, NETWORKS)
        self.users: Callable[[str], Iterable[str]] = lambda subnet: ()
        """The ids of what uses a subnet, by its key: IP configurations of network interfaces."""

    def seed(self, subscription: str, network: WorldNetwork) -> None:
        id = Id(subscription, network.group, NETWORKS, network.name)
        at = self._context.created().model_copy(update={"lag": 0.0})
        record = VirtualNetwork(
            id=str(id),
            created=at,
            location=self._context.world.location,
            prefixes=list(network.prefixes),
            subnets=[SubnetRecord(name=s.name, prefixes=list(s.prefixes)) for s in network.subnets],
        )
        record.touch()
        self.store.records[record.key] = record

    # ------------------------------------------------------------------------------------ networks and subnets

    def row(self, resource: VirtualNetwork, written: bool = False) -> Row:
        subnets = [self.subnet_row(resource, s) for s in resource.subnets]
        return {
            **self.store.head(resource, written),
            "etag": resource.etag,
            "properties": {
                "provisioningState": resource.provisioning,
                "addressSpace": {"addressPrefixes": list(resource.prefixes)},
                "subnets": subnets,
            },
        }

    def subnet_row(self, network: VirtualNetwork, subnet: SubnetRecord) -> Row:
        first, *more = subnet.prefixes
        prefixes: Row = {"addressPrefixes": list(subnet.prefixes)} if more else {"addressPrefix": first}
        id = f"{network.id}/subnets/{subnet.name}"
        users = [{"id": user} for user in self.users(key_of(id))]
        return {
            "id": id,
            "name": subnet.name,
            "type": SUBNETS,
            "etag": network.etag,
            "properties": {
                "provisioningState": network.provisioning,
                **prefixes,
                **({"ipConfigurations": users} if users else {}),
            },
        }

    def create_or_update(self, call: ArmCall) -> Answer:
        id = call.id(NETWORKS)
        check_name(NETWORKS, id.name)
        existing = self.store.records.get(id.key)
        check_conditions(call, existing)
        location, tags = check_location(call, self._context, existing), read_tags(call.body)
        properties = call.body.get("properties") or {}
        prefixes = (properties.get("addressSpace") or {}).get("addressPrefixes") or []
        subnets = [_read_subnet(s) for s in properties.get("subnets") or []]
        _check_prefixes(id, prefixes, subnets)
        network = existing or VirtualNetwork(id=str(id), created=self._context.created(), location=location)
        network.prefixes, network.subnets = prefixes, subnets
        return self.written(call, network, tags, existing is not None)

    def delete(self, call: ArmCall) -> Answer:
        id = call.id(NETWORKS)
        network = self.store.records.get(id.key)
        if network is None:
            return Answer(204)
        for subnet in network.subnets:
            users = list(self.users(key_of(f"{network.id}/subnets/{subnet.name}")))
            if users:
                raise ArmError(
                    "InUseSubnetCannotBeDeleted",
                    f"Subnet {subnet.name} is in use by {users[0]} and cannot be deleted. In order to delete the "
                    "subnet, "
                    "delete all the resources within the subnet.",
                )
        return self.going(call, network)

    def get_subnet(self, call: ArmCall) -> Answer:
        of = call.id(SUBNETS)
        network = self._parent(of)
        subnet = network.subnet(of.name)
        if subnet is None:
            raise ArmError("NotFound", f"Resource {of} not found.")
        return Answer(body=self.subnet_row(network, subnet), headers={"ETag": network.etag})

    def list_subnets(self, call: ArmCall) -> Answer:
        network = self._parent(call.id(SUBNETS))
        rows = [self.subnet_row(network, s) for s in network.subnets]
        return page(rows, call, self._context.page, lambda row: str(row["id"]).lower(), lambda row: row)

    def _parent(self, of: Id) -> VirtualNetwork:
        network = self.store.lookup(key_of(of.parent_id))
        if network is None:
            raise ArmError(
                "ParentResourceNotFound",
                f"Failed to perform 'read' on resource(s) of type 'virtualNetworks/subnets', because the parent "
                "resource "
                f"'{of.parent_id}' could not be found.",
            )
        return network


def _read_subnet(row: Row) -> SubnetRecord:
    of = row.get("properties") or {}
    prefixes = of.get("addressPrefixes") or [of["addressPrefix"]] if of else []
    if not row.get("name") or not prefixes:
        raise ArmError("InvalidRequestFormat", "A subnet needs a name and an address prefix.")
    return SubnetRecord(name=row["name"], prefixes=list(prefixes))


def _check_prefixes(id: Id, prefixes: list[str], subnets: list[SubnetRecord]) -> None:
    if not prefixes:
        raise invalid("addressSpace", f"The address space of {id} is empty.")
    try:
        space: list[Any] = [ipaddress.ip_network(p) for p in prefixes]
        parts: list[tuple[str, Any]] = [(s.name, ipaddress.ip_network(p)) for s in subnets for p in s.prefixes]
    except ValueError as e:
        raise ArmError("InvalidAddressPrefixFormat", f"An address prefix of {id} has an invalid format: {e}") from None
    for name, part in parts:
        if not any(part.version == s.version and part.subnet_of(s) for s in space):
            raise ArmError("NetcfgInvalidSubnet", f"Subnet '{name}' is not valid in virtual network '{id.name}'.")


def busy(resource: ArmResource) -> ArmError:
    return ArmError(
        "AnotherOperationInProgress",
        f"Another operation on this or dependent resource is in progress: {resource.id} is {resource.provisioning}.",
    )


def not_provisioned(of: str, by: str, state: str) -> ArmError:
    """The refusal of a reference to something that an operation still goes on with."""
    message = (
        f"Cannot proceed with operation because resource {of} used by resource {by} is not in Succeeded state. "
        "Resource "
        f"is in {state} state."
    )
    details = [{"code": "ReferencedResourceNotProvisioned", "message": message}]
    return ArmError("RetryableError", "A retryable error occurred.", details=details)

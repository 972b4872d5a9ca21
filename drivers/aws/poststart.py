"""What EC2 cannot be told at launch: applied once after the start (seed 000), and only where it differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivers.aws import belongings, instances
from drivers.aws.calls import Ec2, Resource
from drivers.aws.places import by_place
from drivers.base import Identity
from drivers.errors import DriverError
from drivers.failures import combine
from resources.clouds.aws.spec import AwsProviderSpec
from resources.errors import ErrorClass
from resources.names import TAG_INSTALLATION

_OFF = {"Value": False}


@dataclass(frozen=True)
class _Change:
    what: str
    operation: str
    parameters: dict[str, Any]


def post_start(ec2: Ec2, spec: AwsProviderSpec, instance_id: str) -> list[str]:
    """Applies it; returns what was changed, in words.

    Idempotent: the instance is read first; after a lost reply only the rest is changed. An error in one change does not
    stop the others; all errors are raised as one, of the class with the longest wait.
    """
    if spec.src_and_dst_checks_enabled is not False and not any(n.ipv6_prefix_count for n in spec.network_interfaces):
        return []  # not even a read
    found = instances.by_id(ec2, instance_id)
    instance = instances.the_one([found] if found else [], instance_id)
    errors: list[DriverError] = []
    changed = []
    for change in [*_source_dest_check(spec, instance), *_ipv6_prefixes(spec, instance, errors)]:
        try:
            ec2.call(change.operation, **change.parameters)
            changed.append(change.what)
        except DriverError as e:
            errors.append(e)
    if errors:
        raise combine(errors)
    return changed


def _source_dest_check(spec: AwsProviderSpec, instance: Resource) -> Iterator[_Change]:
    """Switches the check off. Only False does so; true and absent leave it.

    With one NIC, by the instance, as the seed says; EC2 refuses that for several, so each NIC has its own call, except
    EFA devices, which have no such check (MCM). NICs that the spec does not name are left alone: a CNI attaches its
    own.
    """
    if spec.src_and_dst_checks_enabled is not False:
        return
    attached = instance.get("NetworkInterfaces") or []
    if len(attached) == 1:
        if attached[0].get("SourceDestCheck") is not False:
            vm = instance["InstanceId"]
            parameters = {"InstanceId": vm, "SourceDestCheck": _OFF}
            yield _Change(f"{vm}: source/destination check off", "ModifyInstanceAttribute", parameters)
        return
    for nic in by_place(spec, attached).values():
        efa = str(nic.get("InterfaceType", "")).startswith("efa")
        if not efa and nic.get("SourceDestCheck") is not False:
            eni = nic["NetworkInterfaceId"]
            parameters = {"NetworkInterfaceId": eni, "SourceDestCheck": _OFF}
            yield _Change(f"{eni}: source/destination check off", "ModifyNetworkInterfaceAttribute", parameters)


def _ipv6_prefixes(spec: AwsProviderSpec, instance: Resource, errors: list[DriverError]) -> Iterator[_Change]:
    """Assigns only the missing number of prefixes: the call has no idempotency token, and a lost reply must still end
    with exactly that many."""
    actual = by_place(spec, instance.get("NetworkInterfaces") or [])
    for place, wanted in enumerate(spec.network_interfaces):
        count = wanted.ipv6_prefix_count or 0
        if not count:
            continue
        if place not in actual:
            message = f"{instance['InstanceId']}: networkInterfaces[{place}] is not attached, so it gets no IPv6 prefix"
            errors.append(DriverError(ErrorClass.CONFLICT, message))
            continue
        missing = count - len(actual[place].get("Ipv6Prefixes") or ())
        if missing > 0:
            eni = actual[place]["NetworkInterfaceId"]
            parameters = {"NetworkInterfaceId": eni, "Ipv6PrefixCount": missing}
            yield _Change(f"{eni}: IPv6 prefixes assigned: {missing}", "AssignIpv6Addresses", parameters)


def tag_installation(ec2: Ec2, machine: Identity, instance_id: str) -> list[str]:
    """Puts the installation's tag on a VM from before there was such a tag, and on what carries its uid; returns that
    in words.

    Without it the machine lives as before, and the right to tag may be given for launches alone: an error is no
    trouble.
    """
    if not machine.installation:
        return []
    try:
        mine = [*belongings.tagged(ec2, "volume", machine), *belongings.tagged(ec2, "network interface", machine)]
        untagged = [instance_id, *(b.id for b in mine if TAG_INSTALLATION not in b.tags)]
        ec2.call("CreateTags", Resources=untagged, Tags=[{"Key": TAG_INSTALLATION, "Value": machine.installation}])
    except DriverError as e:
        return [f"{instance_id}: without the tag {TAG_INSTALLATION}: {e.message}"]
    return [f"{', '.join(untagged)}: set {TAG_INSTALLATION}"]

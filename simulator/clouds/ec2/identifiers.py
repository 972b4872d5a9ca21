"""Ids of resources: how they look, what EC2 says when they are malformed or unknown."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simulator.clouds.ec2.errors import Ec2Error

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A type of resource, with its error codes (EC2 API reference, "Error codes")."""

    prefix: str
    type: str
    """The type's name in tags, e.g. `network-interface`."""
    noun: str
    not_found: str
    malformed: str


INSTANCE = Kind("i", "instance", "instance ID", "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
VOLUME = Kind("vol", "volume", "volume", "InvalidVolume.NotFound", "InvalidParameterValue")
INTERFACE = Kind(
    "eni",
    "network-interface",
    "networkInterface ID",
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidNetworkInterfaceId.Malformed",
)
SUBNET = Kind("subnet", "subnet", "subnet ID", "InvalidSubnetID.NotFound", "InvalidSubnetID.Malformed")
GROUP = Kind("sg", "security-group", "security group", "InvalidGroup.NotFound", "InvalidGroupId.Malformed")
IMAGE = Kind("ami", "image", "image id", "InvalidAMIID.NotFound", "InvalidAMIID.Malformed")
KINDS = (INSTANCE, VOLUME, INTERFACE, SUBNET, GROUP, IMAGE)


def new_id(prefix: str) -> str:
    """A fresh id in the long format: the prefix and 17 hexadecimal digits."""
    return f"{prefix}-0{secrets.token_hex(8)}"


def kind_of(resource_id: str) -> Kind:
    """Raises InvalidID for an id whose prefix nobody here knows."""
    prefix = resource_id.rpartition("-")[0]
    for kind in KINDS:
        if kind.prefix == prefix:
            return kind
    raise Ec2Error("InvalidID", f"The ID '{resource_id}' is not valid")


def check_format(kind: Kind, ids: Sequence[str]) -> None:
    for i in ids:
        if not re.fullmatch(rf"{kind.prefix}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", i):
            raise Ec2Error(kind.malformed, f'Invalid id: "{i}" (expecting "{kind.prefix}-...")')


def find(kind: Kind, ids: Sequence[str], lookup: Callable[[str], T | None]) -> list[T]:
    """What the ids name, in their order. One unknown id fails the whole call, as in EC2."""
    check_format(kind, ids)
    found = [(i, lookup(i)) for i in dict.fromkeys(ids)]
    missing = [i for i, thing in found if thing is None]
    if missing:
        plural, verb = ("s", "do") if len(missing) > 1 else ("", "does")
        raise Ec2Error(kind.not_found, f"The {kind.noun}{plural} '{', '.join(missing)}' {verb} not exist")
    return [thing for _, thing in found if thing is not None]


def find_one(kind: Kind, resource_id: str, lookup: Callable[[str], T | None]) -> T:
    return find(kind, [resource_id], lookup)[0]

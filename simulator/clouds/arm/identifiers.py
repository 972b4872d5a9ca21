"""Ids of resources: how they look, which of two spellings are the same one, what Azure says of malformed ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.clouds.arm.errors import ArmError

VMS = "Microsoft.Compute/virtualMachines"
DISKS = "Microsoft.Compute/disks"
NICS = "Microsoft.Network/networkInterfaces"
NETWORKS = "Microsoft.Network/virtualNetworks"
SUBNETS = "Microsoft.Network/virtualNetworks/subnets"
GROUPS = "Microsoft.Resources/resourceGroups"

_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)/providers/(?P<namespace>[^/]+)"
    r"/(?P<type>[^/]+)/(?P<name>[^/]+)(?:/(?P<child_type>[^/]+)/(?P<child>[^/]+))?/?",
    re.IGNORECASE,
)
_NAMES = {
    VMS: re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])?"),
    DISKS: re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?"),
    NICS: re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?"),
    NETWORKS: re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_])"),
    GROUPS: re.compile(r"[\w().-]{0,89}[\w()-]"),
}
"""What a name may be ("Naming rules and restrictions for Azure resources")."""


def key_of(resource_id: str) -> str:
    """What is the same for every spelling of an id: Azure takes ids in any case."""
    return resource_id.rstrip("/").lower()


def group_id(subscription: str, group: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}"


@dataclass(frozen=True)
class Id:
    """The parts of a resource's id, as they were spelt."""

    subscription: str
    group: str
    type: str
    """Namespace and types: `Microsoft.Network/virtualNetworks/subnets`."""
    name: str
    parent: str = ""
    """The name of the virtual network of a subnet."""

    def __str__(self) -> str:
        head = f"{group_id(self.subscription, self.group)}/providers/"
        if self.parent:
            parent_type, child_type = self.type.rsplit("/", 1)
            return f"{head}{parent_type}/{self.parent}/{child_type}/{self.name}"
        return f"{head}{self.type}/{self.name}"

    @property
    def key(self) -> str:
        return key_of(str(self))

    @property
    def group_key(self) -> str:
        return key_of(group_id(self.subscription, self.group))

    @property
    def parent_id(self) -> str:
        return str(Id(self.subscription, self.group, self.type.rsplit("/", 1)[0], self.parent))


def parse(text: str) -> Id | None:
    """The parts of an id, with the type as it was spelt; None for what is none."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    of = match.groupdict()
    if of["child"]:
        kind = f"{of['namespace']}/{of['type']}/{of['child_type']}"
        return Id(of["subscription"], of["group"], kind, of["child"], parent=of["name"])
    return Id(of["subscription"], of["group"], f"{of['namespace']}/{of['type']}", of["name"])


def parse_as(kind: str, text: object) -> Id:
    """The parts of a reference to a resource of this type. Raises LinkedInvalidPropertyId."""
    found = parse(text) if isinstance(text, str) else None
    if found is None or found.type.lower() != kind.lower():
        raise ArmError(
            "LinkedInvalidPropertyId",
            f"Property id '{text}' is invalid. Expect fully qualified resource Id of type '{kind}' that start with "
            "'/subscriptions/{subscriptionId}' or '/providers/{resourceProviderNamespace}/'.",
        )
    return Id(found.subscription, found.group, kind, found.name, found.parent)


def check_name(kind: str, name: str) -> None:
    if not _NAMES[kind].fullmatch(name):
        raise ArmError("InvalidResourceName", f"Resource name {name} of {kind} is invalid.", target="name")

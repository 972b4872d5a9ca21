"""What a machine has in its resource group: VMs, network interfaces and disks, found by name.

Each listing is by a part of the names, which follow from the machine's: Azure filters by tag too, but then shows no
tags of what it finds (API reference, *Resources - List By Resource Group*), and a new tag may be found late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drivers.azure import operations, places
from drivers.azure.calls import Arm
from drivers.azure.tags import UID_KEY, tags_of
from drivers.base import Identity
from drivers.errors import DriverError
from resources.clouds import Tags
from resources.errors import BegunOperation, ErrorClass

BelongingKind = Literal["vm", "nic", "disk"]
"""As a class calls them."""
TYPES: dict[str, BelongingKind] = {
    "microsoft.compute/virtualmachines": "vm",
    "microsoft.network/networkinterfaces": "nic",
    "microsoft.compute/disks": "disk",
}
CALLED: dict[BelongingKind, str] = {"vm": "virtual machine", "nic": "network interface", "disk": "disk"}
DELETING = "Deleting"
IN_USE = frozenset({"NicInUse", "OperationNotAllowed", "DiskIsAttachedToVM", "ResourceInUse", "Conflict", "409"})
"""Codes of a deletion that comes too early: something still holds the resource."""
RESERVED = "NicReservedForAnotherVm"
"""Azure keeps an interface for a VM whose creation has failed, for three minutes (P29)."""
RESERVED_WORDS = "reserved by Azure for a VM whose creation failed, for three minutes at most"
_DELETE = {"vm": "VirtualMachines_Delete", "nic": "NetworkInterfaces_Delete", "disk": "Disks_Delete"}


@dataclass(frozen=True)
class Belonging:
    kind: BelongingKind
    id: str
    name: str
    location: str
    tags: Tags
    state: str
    """Its provisioningState: Succeeded, Creating, Deleting, Failed, …"""

    @property
    def uid(self) -> str | None:
        return self.tags.get(UID_KEY)

    @property
    def is_going(self) -> bool:
        return self.state == DELETING

    @property
    def vm(self) -> str:
        """The name of the VM that it is, or was made for, in small letters; "" if it was made for none of ours."""
        return self.name.lower() if self.kind == "vm" else places.vm_made_for(self.name.lower())


def called_like(arm: Arm, machine: Identity) -> dict[str, Belonging]:
    """What was made for machines of this name, by id, and what happens to be called so; one call."""
    return _named(arm, places.stem(machine))


def by_name(arm: Arm, vm: str) -> dict[str, Belonging]:
    """The VM of this name and what was made for it, with or without tags; one call."""
    return {k: b for k, b in _named(arm, vm).items() if b.vm == vm.lower()}


def _named(arm: Arm, begin: str) -> dict[str, Belonging]:
    quoted = begin.replace("'", "''")
    found = filter(None, map(read, arm.resources(f"substringof('{quoted}', name)")))
    return {b.id.lower(): b for b in found if b.name.lower().startswith(begin.lower())}


def read(resource: Mapping[str, Any]) -> Belonging | None:
    """The belonging; None for anything else that has the tag. The state stands with the resource itself in one listing,
    and among its properties in others."""
    kind = TYPES.get(str(resource.get("type", "")).lower())
    if kind is None:
        return None
    state = resource.get("provisioningState") or (resource.get("properties") or {}).get("provisioningState") or ""
    place = str(resource.get("location", ""))
    return Belonging(kind, str(resource["id"]), str(resource["name"]), place, tags_of(resource), str(state))


def of_kind(found: Mapping[str, Belonging], kind: BelongingKind) -> Iterator[Belonging]:
    yield from (found[k] for k in sorted(found) if found[k].kind == kind)


def delete(arm: Arm, belonging: Belonging) -> tuple[str, BegunOperation | None]:
    """Asks for its deletion; returns in words what becomes of it, "" where it is gone already, and the operation.
    Raises DriverError."""
    try:
        _, begun = operations.begin(arm, _DELETE[belonging.kind], arm.group, belonging.name, what=belonging.name)
    except DriverError as e:
        if e.error_class is ErrorClass.NOT_FOUND:
            return "", None
        if e.provider_code == RESERVED:
            return RESERVED_WORDS, None
        if e.provider_code in IN_USE:
            return "in use", None
        raise
    return "deleting", begun

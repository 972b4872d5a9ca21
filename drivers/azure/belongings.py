"""What a machine has in its resource group: VMs, network interfaces and disks, found by tag or by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drivers.azure.calls import Arm
from drivers.azure.tags import UID_KEY, tags_of
from drivers.errors import DriverError
from resources.clouds import Tags
from resources.errors import ErrorClass

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


def of_uid(arm: Arm, uid: str) -> dict[str, Belonging]:
    """What carries the machine's uid, by id; one call."""
    return by_tag(arm, UID_KEY, uid)


def by_tag(arm: Arm, key: str, value: str) -> dict[str, Belonging]:
    return _known(arm.resources(f"tagName eq '{_quoted(key)}' and tagValue eq '{_quoted(value)}'"))


def by_name(arm: Arm, vm: str) -> dict[str, Belonging]:
    """The VM of this name and what was made for it, with or without tags; one call."""
    found = _known(arm.resources(f"substringof('{_quoted(vm)}', name)"))
    return {k: b for k, b in found.items() if f"{b.name}-".lower().startswith(f"{vm}-".lower())}


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _known(resources: Iterable[Mapping[str, Any]]) -> dict[str, Belonging]:
    return {b.id.lower(): b for b in map(read, resources) if b is not None}


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


def delete(arm: Arm, belonging: Belonging) -> str:
    """Asks for its deletion; returns in words what becomes of it, "" where it is gone already. Raises DriverError."""
    try:
        arm.call(_DELETE[belonging.kind], arm.group, belonging.name)
    except DriverError as e:
        if e.error_class is ErrorClass.NOT_FOUND:
            return ""
        if e.provider_code == RESERVED:
            return RESERVED_WORDS
        if e.provider_code in IN_USE:
            return "in use"
        raise
    return "deleting"

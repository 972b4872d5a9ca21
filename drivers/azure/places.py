"""Where machines are: the cloud that a location belongs to, its resource group, and the names of what is made there.

A VM's name follows from machine, uid and token, and all else from the VM's name. So a creation that is begun again
finds what it has made, two attempts never share a VM, and no machine ever has a name that another has had: a providerID
names one machine's VM for ever.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from drivers.base import Identity
from drivers.errors import DriverError
from resources.clouds.azure.spec import Realm, plain_location, realm_of
from resources.errors import ErrorClass

NAME_LENGTH = 63
"""Characters of a VM's name: Azure takes 64, but it becomes the Node's name, and so a label's value."""
RESOURCE_NAME_LENGTH = 80
"""Characters of an interface's and a disk's name."""
_MARK = 10
"""Hexadecimal digits at the end of a name: among a million VMs of one machine's name two would be alike once in a
million."""
_MARKED = re.compile(r"-[0-9a-f]{10}(?=-)")
_PARTS = ("-nic", "-os-disk", "-data-disk")
"""How the names of what is made for a VM end."""
_PROVIDER_ID = re.compile(r"azure:///([^/]+)/([^/]+)")


@dataclass(frozen=True)
class Place:
    """A location and a resource group."""

    location: str
    group: str

    @property
    def realm(self) -> Realm:
        return realm_of(self.location)


def place_of(provider_spec: dict[str, Any], provider_id: str | None = None) -> Place:
    """The place, read from a spec that may otherwise be stale or wrong, else (without a group) from the providerID."""
    location = provider_spec.get("location")
    group = next((g for k in ("resourceGroup", "resource_group") if (g := provider_spec.get(k))), "")
    if not isinstance(location, str) or not location:
        found = _PROVIDER_ID.fullmatch(provider_id or "")
        location = found[1] if found else ""
    if not location or not isinstance(group, str):
        raise DriverError(ErrorClass.INVALID, "providerSpec: location is missing, or resourceGroup is no name")
    return Place(plain_location(location), group)


def with_group(place: Place) -> Place:
    """The place. Raises DriverError of class invalid where the spec names no resource group."""
    if not place.group:
        raise DriverError(ErrorClass.INVALID, "providerSpec: resourceGroup is missing")
    return place


def provider_id(location: str, vm: str) -> str:
    """Gardener's form, in the one spelling that visibility is asked with."""
    return f"azure:///{location}/{vm.lower()}"


def vm_of(provider_id: str) -> str:
    """The VM's name in `azure:///<location>/<vm>`. Raises DriverError of class invalid."""
    found = _PROVIDER_ID.fullmatch(provider_id)
    if found is None:
        raise DriverError(
            ErrorClass.INVALID, f"providerID {provider_id!r} does not have the form azure:///<location>/<VM>"
        )
    return found[2]


def stem(machine: Identity) -> str:
    """How the names of all that is made for a machine of this name begin. Azure's names have no dots."""
    return f"{machine.name[: NAME_LENGTH - _MARK - 1].replace('.', '-').rstrip('-')}-"


def vm_name(machine: Identity, token: str) -> str:
    """The name of the VM that this token makes."""
    mark = hashlib.sha256(f"{machine.uid}\0{token}".encode()).hexdigest()[:_MARK]
    return f"{stem(machine)}{mark}"


def nic_name(vm: str) -> str:
    return f"{vm}-nic"


def os_disk_name(vm: str) -> str:
    return f"{vm}-os-disk"


def data_disk_name(vm: str, lun: int, name: str | None) -> str:
    """The name, which its lun alone tells from others: of the class's own word it has what there is room for."""
    end = f"-{lun}-data-disk"
    return (f"{vm}-{name}" if name else vm)[: RESOURCE_NAME_LENGTH - len(end)] + end


def vm_made_for(name: str) -> str:
    """The name of the VM that an interface or a disk of this name was made for; "" if it is none of ours."""
    marks = list(_MARKED.finditer(name)) if name.endswith(_PARTS) else []
    return name[: marks[-1].end()] if marks else ""

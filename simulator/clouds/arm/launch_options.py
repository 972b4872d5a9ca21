"""The parts of a VM's body, checked as Azure does: size, placement, operating system, Spot, identity."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, invalid, unsupported
from simulator.clouds.arm.identifiers import Id, parse_as
from simulator.clouds.arm.wire import Row
from simulator.clouds.arm.world import VmSize, World

MAX_CUSTOM_DATA = 87380
"""Characters in Base64."""
DISALLOWED_NAMES = frozenset({"administrator", "admin", "user", "user1", "test", "root", "guest", "actuser"})
"""Some of the names that no administrator may have ("VM FAQ: username requirements")."""

_PLACES = {
    "availabilitySet": ("Microsoft.Compute/availabilitySets", "Availability Set"),
    "virtualMachineScaleSet": ("Microsoft.Compute/virtualMachineScaleSets", "Virtual Machine Scale Set"),
}


def read_size(properties: Row, world: World) -> tuple[str, VmSize]:
    name = (properties.get("hardwareProfile") or {}).get("vmSize")
    if not name:
        raise invalid("vmSize", "Required parameter 'hardwareProfile.vmSize' is missing (null).")
    size = world.size(str(name))
    if size is None:
        raise invalid(
            "vmSize",
            f"The value {name} provided for the VM size is not valid. The valid sizes in the current region are: "
            f"{','.join(world.sizes)}.",
        )
    return size


def check_placement(id: Id, zones: list[str], properties: Row, size: tuple[str, VmSize], context: Context) -> None:
    """Zone, availability set, scale set and capacity reservation: what there is, and what goes together."""
    name, of = size
    world = context.world
    given = [k for k in _PLACES if properties.get(k)]
    if zones and "availabilitySet" in given:
        raise ArmError(
            "BadRequest",
            "Virtual Machine cannot be created because both Availability Zone and Availability Set were specified. "
            "Deploying an Availability Set to an Availability Zone isn’t supported.",
        )
    if len(given) > 1:
        raise ArmError("BadRequest", "A VM cannot be both in an availability set and in a virtual machine scale set.")
    known = {"availabilitySet": world.availability_sets, "virtualMachineScaleSet": world.scale_sets}
    for place in given:
        kind, words = _PLACES[place]
        check_reference(kind, words, properties[place].get("id"), known[place], world)
    reservation = (properties.get("capacityReservation") or {}).get("capacityReservationGroup")
    if reservation:
        kind, words = "Microsoft.Compute/capacityReservationGroups", "Capacity Reservation Group"
        check_reference(kind, words, reservation.get("id"), world.capacity_reservation_groups, world)
    if any(zone not in of.zones for zone in zones):
        raise ArmError(
            "SkuNotAvailable",
            f"The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {name}' is "
            f"currently not available in location '{world.location}' zone '{','.join(zones)}'. Please try another size "
            "or deploy to a different location or different zone. See https://aka.ms/azureskunotavailable for details.",
        )


def check_reference(kind: str, words: str, given: object, known: tuple[str, ...], world: World) -> None:
    """Something of the world's first group that a VM belongs to. Raises NotFound."""
    id = parse_as(kind, given)
    if id.group.lower() != world.groups[0].lower() or id.name.lower() not in {k.lower() for k in known}:
        raise ArmError("NotFound", f"{words} '{id}' cannot be found.")


def read_os_profile(id: Id, profile: Row) -> tuple[Row, str]:
    """The profile as it is answered, and the custom data in Base64."""
    custom_data = profile.get("customData") or ""
    check_custom_data(custom_data)
    user = profile.get("adminUsername")
    if not user:
        raise invalid("adminUsername", "Required parameter 'osProfile.adminUsername' is missing (null).")
    if user.lower() in DISALLOWED_NAMES:
        raise invalid(
            "adminUsername",
            "The Admin Username specified is not allowed. For more information about disallowed usernames, see "
            "https://aka.ms/vmosprofile",
        )
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    without_password = linux.get("disablePasswordAuthentication", not profile.get("adminPassword"))
    if (without_password and not keys) or (not without_password and not profile.get("adminPassword")):
        raise invalid(
            "linuxConfiguration",
            "Authentication using either SSH or by user name and password must be enabled in Linux profile.",
        )
    for n, key in enumerate(keys):
        if key.get("path") != f"/home/{user}/.ssh/authorized_keys":
            raise invalid(
                "linuxConfiguration.ssh.publicKeys.path",
                f"Destination path for SSH public keys is currently limited to its default value "
                f"/home/{user}/.ssh/authorized_keys due to a known issue in Linux provisioning agent.",
            )
        if not _is_key(key.get("keyData")):
            raise invalid(
                f"linuxConfiguration.ssh.publicKeys[{n}].keyData",
                "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid.",
            )
    name = profile.get("computerName") or id.name
    if len(name) > 64:
        raise invalid("computerName", "Linux host name cannot exceed 64 characters in length.")
    shown = {k: v for k, v in profile.items() if k not in ("customData", "adminPassword")}
    linux = {"provisionVMAgent": True, **linux, "disablePasswordAuthentication": without_password}
    return {**shown, "computerName": name, "linuxConfiguration": linux, "allowExtensionOperations": True}, custom_data


def _is_key(data: object) -> bool:
    return isinstance(data, str) and len(data.split()) >= 2 and data.startswith(("ssh-", "ecdsa-"))


def check_custom_data(data: str) -> None:
    try:
        base64.b64decode(data, validate=True)
        good = len(data) <= MAX_CUSTOM_DATA
    except (binascii.Error, ValueError):
        good = False
    if not good:
        raise invalid(
            "customData",
            f"Custom data in OSProfile must be in Base64 encoding and with a maximum length of {MAX_CUSTOM_DATA} "
            "characters.",
        )


def check_spot(properties: Row) -> None:
    priority = properties.get("priority", "Regular")
    if priority not in ("Regular", "Low", "Spot"):
        raise invalid("priority", f"The value '{priority}' of parameter 'priority' is invalid.")
    if priority == "Regular":
        for name in ("evictionPolicy", "billingProfile"):
            if properties.get(name):
                raise ArmError("BadRequest", f"{name} can be set only on Azure Spot Virtual Machines.")
    policy = properties.get("evictionPolicy", "Deallocate")
    if policy not in ("Deallocate", "Delete"):
        raise invalid("evictionPolicy", f"The value '{policy}' of parameter 'evictionPolicy' is invalid.")


def read_identity(identity: Row | None, world: World) -> Row | None:
    if not identity or identity.get("type", "None") == "None":
        return None
    kind = identity["type"]
    if kind != "UserAssigned":
        raise unsupported(f"the identity type '{kind}' of VMs")
    read: dict[str, Mapping[str, Any]] = {}
    for given in identity.get("userAssignedIdentities") or {}:
        parse_as("Microsoft.ManagedIdentity/userAssignedIdentities", given)
        read[given] = {"principalId": world.principals[0].client_id, "clientId": world.principals[0].client_id}
    return {"type": kind, "userAssignedIdentities": read}


def check_unchanged(before: Row, after: Row, names: tuple[str, ...]) -> None:
    """Raises PropertyChangeNotAllowed for the first of these, as dotted paths, that a body changes. What it does not
    say stays as it is."""
    for name in names:
        new = _at(after, name)
        if new is not None and not _same(new, _at(before, name)):
            raise ArmError("PropertyChangeNotAllowed", f"Changing property '{name}' is not allowed.", target=name)


def _same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_same(v, b.get(k)) for k, v in a.items() if v is not None)
    if isinstance(a, str) and isinstance(b, str):
        return a.lower() == b.lower() if a.startswith("/") else a == b
    return a == b


def _at(row: Row, path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value

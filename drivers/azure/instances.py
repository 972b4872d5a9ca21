"""Reads VMs: finds those of a machine, and puts what Azure says of one in the contract's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drivers.azure import belongings, places
from drivers.azure.belongings import Belonging
from drivers.azure.calls import Arm, Resource
from drivers.azure.failures import of_vm, scrub
from drivers.azure.tags import CLUSTER_KEY, INSTALLATION_KEY, MACHINE_KEY, OWNER_KEY, UID_KEY, tags_of
from drivers.base import (
    GetMachineStatusRequest,
    Identity,
    ListMachinesRequest,
    MachineStatus,
    NameTaken,
    VmState,
    is_of,
)
from drivers.errors import DriverError
from resources.clouds import Tags
from resources.clouds.azure.spec import TAG_RULES, plain_location
from resources.errors import ErrorClass
from resources.names import OWNER

FAILED = "Failed"
_POWER = {
    "starting": VmState.PENDING,
    "running": VmState.RUNNING,
    "stopping": VmState.STOPPING,
    "deallocating": VmState.STOPPING,
    "stopped": VmState.STOPPED,
    "deallocated": VmState.STOPPED,  # also a spot VM that was taken away
}
_PROVISIONING = {"Creating": VmState.PENDING, FAILED: VmState.STOPPED}
"""What a VM without a power state is: it has never run."""


def get(arm: Arm, vm: str) -> Resource | None:
    """The VM with its power state; None when Azure knows none of this name."""
    return arm.found("VirtualMachines_Get", arm.group, vm, expand="instanceView")


def provisioning_of(vm: Mapping[str, Any]) -> str:
    return str((vm.get("properties") or {}).get("provisioningState") or "")


def power_of(vm: Mapping[str, Any]) -> str:
    """running, stopped, …; "" for a VM that has none, or that was read without."""
    properties = vm.get("properties") or {}
    statuses = (properties.get("instanceView") or {}).get("statuses") or ()
    graph = ((properties.get("extended") or {}).get("instanceView") or {}).get("powerState") or {}
    codes = [str(s.get("code", "")) for s in (*statuses, graph)]
    return next((c.partition("/")[2] for c in codes if c.startswith("PowerState/")), "")


def state_of(vm: Mapping[str, Any]) -> VmState:
    """The state. A VM that was read without its power state is taken to run."""
    if provisioning_of(vm) == belongings.DELETING:
        return VmState.TERMINATING
    if power := power_of(vm):
        return _POWER.get(power, VmState.PENDING)
    return _PROVISIONING.get(provisioning_of(vm), VmState.RUNNING)


def has_failed(vm: Mapping[str, Any]) -> bool:
    """Whether its creation has failed: one that was made and failed at something later has a power state."""
    return provisioning_of(vm) == FAILED and not power_of(vm)


# -- one machine -------------------------------------------------------------------------------------------------------


def get_status(
    arm: Arm, request: GetMachineStatusRequest, found_none: Callable[[Arm, Identity], None] = lambda arm, machine: None
) -> MachineStatus:
    """The status: two calls by id (the VM, and its network interface for the addresses); else one or two more, by the
    machine's name and by that which follows from the token."""
    machine = request.machine
    if request.provider_id:
        vm = get(arm, places.vm_of(request.provider_id))
        what = f"machine {machine.name} ({request.provider_id})"
    else:
        listed = belongings.called_like(arm, machine)
        if not (listed or request.token):
            found_none(arm, machine)
        vm = _looked_up(arm, machine, request.token, listed)
        what = f"machine {machine.name} (uid {machine.uid})"
    if vm is None:
        raise DriverError(ErrorClass.NOT_FOUND, f"{what} has no VM: Azure knows none")
    status = describe(arm, vm, nic_of(arm, vm))
    return status.model_copy(update={"impaired": impaired(vm)}) if request.diagnose else status


def _looked_up(arm: Arm, machine: Identity, token: str, listed: Mapping[str, Belonging]) -> Resource | None:
    """The machine's own VM, by its uid and by the name that its token makes. One whose creation has failed is none, nor
    is one on its way out: it is deleted at once, and nobody may take it over.

    Raises NameTaken where there is none, but a living one of the same name; DriverError of class conflict for two.
    """
    ours = {OWNER_KEY: OWNER, CLUSTER_KEY: machine.cluster, MACHINE_KEY: machine.name}
    named = [
        b
        for b in belongings.of_kind(listed, "vm")
        if all(b.tags.get(key) == TAG_RULES.value(value) for key, value in ours.items())
    ]
    own = {b.name.lower() for b in named if b.uid == machine.uid and not b.is_going}
    vm = get(arm, places.vm_name(machine, token)) if token else None
    if vm is not None and state_of(vm) is not VmState.TERMINATING:
        own.add(str(vm["name"]).lower())
    if len(own) > 1:
        raise DriverError(
            ErrorClass.CONFLICT,
            f"machine {machine.name} (uid {machine.uid}) has {len(own)} VMs: {' and '.join(sorted(own))}; delete the "
            "machine or all but one",
        )
    if own:
        name = own.pop()
        vm = vm if vm is not None and str(vm["name"]).lower() == name else get(arm, name)
        return None if vm is None or has_failed(vm) else vm
    others = [b for b in named if b.uid != machine.uid and not b.is_going]
    if taken := [b for b in others if is_of(b.tags.get(INSTALLATION_KEY), machine.installation)]:
        raise NameTaken(machine, [of_listing(arm, b, VmState.RUNNING) for b in taken])
    return None


def nic_of(arm: Arm, vm: Mapping[str, Any]) -> Resource | None:
    """The VM's first network interface; None where it cannot be seen (any longer)."""
    nics = ((vm.get("properties") or {}).get("networkProfile") or {}).get("networkInterfaces") or ()
    name = str(nics[0]["id"]).rsplit("/", 1)[-1] if nics else places.nic_name(str(vm["name"]))
    return arm.found("NetworkInterfaces_Get", arm.group, name)


def describe(arm: Arm, vm: Mapping[str, Any], nic: Mapping[str, Any] | None) -> MachineStatus:
    place = plain_location(str(vm.get("location", "")))
    return _status(arm, place, str(vm["name"]), tags_of(vm), state_of(vm), addresses(nic))


def of_listing(arm: Arm, vm: Belonging, state: VmState) -> MachineStatus:
    return _status(arm, plain_location(vm.location), vm.name, vm.tags, state, [])


def _status(arm: Arm, location: str, name: str, tags: Tags, state: VmState, found: list[str]) -> MachineStatus:
    return MachineStatus(
        provider_id=places.provider_id(location, name),
        node_name=name.lower(),
        addresses=found,
        state=state,
        uid=tags.get(UID_KEY),
        name=tags.get(MACHINE_KEY),
        account_id=arm.subscription,
        installation=tags.get(INSTALLATION_KEY),
    )


def addresses(nic: Mapping[str, Any] | None) -> list[str]:
    """The private addresses, each once."""
    configurations = ((nic or {}).get("properties") or {}).get("ipConfigurations") or ()
    found = [(c.get("properties") or {}).get("privateIPAddress") for c in configurations]
    return list(dict.fromkeys(str(a) for a in found if a))


def impaired(vm: Mapping[str, Any]) -> str | None:
    """What Azure itself finds wrong with the VM, in its words."""
    view = (vm.get("properties") or {}).get("instanceView") or {}
    if provisioning_of(vm) == FAILED:
        return of_vm(vm).message
    bad = [s for s in view.get("statuses") or () if str(s.get("level", "")) == "Error"]
    health = ((view.get("vmHealth") or {}).get("status")) or {}
    bad += [health] if str(health.get("code", "")).endswith("/unhealthy") else []
    return "; ".join(scrub(f"{s.get('code')}: {s.get('message') or s.get('displayStatus') or ''}") for s in bad) or None


# -- all machines ------------------------------------------------------------------------------------------------------


def list_machines(arm: Arm, request: ListMachinesRequest) -> list[MachineStatus]:
    """The VMs of these ids: one listing of the resource group, which shows at once what is deleted. Else all of the
    cluster: one query of the resource graph, which also has power states, and interfaces and disks without a VM."""
    if request.provider_ids:
        wanted = {places.vm_of(p).lower() for p in request.provider_ids}
        found = in_group(arm)
        return [describe(arm, vm, None) for vm in found if str(vm["name"]).lower() in wanted]
    rows = [row for row in arm.graph(_query(arm.group, request.cluster)) if _is_here(arm, row)]
    vms = [row for row in rows if belongings.TYPES.get(str(row.get("type", "")).lower()) == "vm"]
    return [*(describe(arm, vm, None) for vm in vms), *_orphans(arm, rows, [str(vm["name"]).lower() for vm in vms])]


def in_group(arm: Arm) -> list[Resource]:
    """The VMs of the resource group; none where there is no such group."""
    try:
        return list(arm.call("VirtualMachines_List", arm.group))
    except DriverError as e:
        if e.provider_code != "ResourceGroupNotFound":
            raise
        return []


def _query(group: str, cluster: str) -> str:
    types = ", ".join(f"'{name}'" for name in belongings.TYPES)
    return " | ".join(
        [
            "resources",
            f"where type in~ ({types})",
            f"where resourceGroup =~ {_literal(group)}",
            f"where tags[{_literal(OWNER_KEY)}] == {_literal(OWNER)}",
            f"where tags[{_literal(CLUSTER_KEY)}] == {_literal(TAG_RULES.value(cluster))}",
            "project id, name, type, location, tags, properties",
            "order by id asc",
        ]
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _is_here(arm: Arm, row: Mapping[str, Any]) -> bool:
    return plain_location(str(row.get("location", ""))) == arm.location


def _orphans(arm: Arm, rows: Iterable[Mapping[str, Any]], vms: list[str]) -> Iterator[MachineStatus]:
    """A VM for each set of interfaces and disks that has none: the one that they were made for. A sweep would never
    find them otherwise."""
    seen: set[str] = set()
    for belonging in filter(None, map(belongings.read, rows)):
        name = belonging.name.lower()
        if belonging.kind == "vm" or any(name.startswith(f"{vm}-") for vm in vms):
            continue
        made_for = places.vm_made_for(name)
        if made_for and made_for not in seen:
            seen.add(made_for)
            yield _status(arm, arm.location, made_for, belonging.tags, VmState.PENDING, [])

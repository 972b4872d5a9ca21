"""Reads instances: finds those of a machine, and puts what Google says of one in the contract's words.

An instance is named like its machine, and a name is unique in its project and zone: one read by name finds the
machine's VM, whatever has become of its labels and network tags, and no second one can be made beside it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from drivers.gcp import operations
from drivers.gcp.calls import Gce, Resource, named
from drivers.gcp.tags import KEY_CLUSTER, KEY_INSTALLATION, KEY_MACHINE, KEY_OWNER, KEY_UID, labels_of, owned
from resources.clouds.gcp.names import LABEL_RULES, is_name
from resources.errors import ErrorClass
from resources.names import OWNER
from resources.redact import hide_secrets

STOPPING = "STOPPING"
"""On its way down: to be stopped, or to be deleted."""
_STATES = {
    "PROVISIONING": VmState.PENDING,
    "STAGING": VmState.PENDING,
    "RUNNING": VmState.RUNNING,
    "REPAIRING": VmState.PENDING,
    "PENDING_STOP": VmState.STOPPING,
    STOPPING: VmState.STOPPING,
    "SUSPENDING": VmState.STOPPING,
    "SUSPENDED": VmState.STOPPED,
    "STOPPED": VmState.STOPPED,
    "TERMINATED": VmState.STOPPED,
}
"""Google's statuses. TERMINATED is a VM that is stopped, by a person or by preemption: it exists, and could be started.
One that is deleted is not found."""
CONSOLE_BYTES = 16 * 1024
CONSOLE_LINES = 25
CONSOLE_LENGTH = 600
"""Characters of the console. It becomes part of a failure's message."""
_PROVIDER_ID = re.compile(r"gce:///?([^/]+)/([^/]+)/([^/]+)")


@dataclass(frozen=True)
class VmId:
    """Where an instance is, and its name."""

    project: str
    zone: str
    name: str

    @classmethod
    def of(cls, provider_id: str) -> VmId:
        """That of a providerID, by whomever it was written. Raises DriverError of class invalid."""
        found = _PROVIDER_ID.fullmatch(provider_id)
        if found is None or not is_name(found[3]):
            raise DriverError(
                ErrorClass.INVALID, f"providerID {provider_id!r} does not have the form gce:///<project>/<zone>/<name>"
            )
        return cls(*found.groups())

    def __str__(self) -> str:
        return f"gce:///{self.project}/{self.zone}/{self.name}"


def vm_name(machine: Identity) -> str:
    """The name of the machine's VM. Raises DriverError of class invalid."""
    if not is_name(machine.name):
        raise DriverError(
            ErrorClass.INVALID,
            f"the machine {machine.name} cannot have a VM on Google Cloud: a VM is named like its machine, and its "
            "name begins with a letter and has but lower-case letters, digits and -; create one of another name",
        )
    return machine.name


def zone_of(provider_spec: dict[str, Any], provider_id: str | None = None) -> str:
    """The zone of the VM, read from its providerID, else from a spec that may otherwise be stale or wrong.

    Raises DriverError of class invalid.
    """
    if provider_id:
        return VmId.of(provider_id).zone
    zone = provider_spec.get("zone")
    if not isinstance(zone, str) or not zone:
        raise DriverError(ErrorClass.INVALID, "providerSpec: zone is missing")
    return zone


def status_of(instance: Resource) -> str:
    return str(instance.get("status", ""))


def uid_of(instance: Resource) -> str | None:
    return labels_of(instance).get(KEY_UID)


def by_name(gce: Gce, zone: str, name: str) -> Resource | None:
    """The instance; None when Google does not know it (any longer, or yet)."""
    try:
        return gce.call("instances.get", zone=zone, instance=name)
    except DriverError as e:
        if e.provider_code in ("notFound", "404"):
            return None
        raise


def by_id(gce: Gce, provider_id: str) -> Resource | None:
    """The instance of a providerID. None also where the credentials open another project: there is none there."""
    vm = VmId.of(provider_id)
    return by_name(gce, vm.zone, vm.name) if vm.project == gce.project else None


def find(gce: Gce, zone: str, wanted: str) -> Iterator[Resource]:
    return gce.pages("instances.list", zone=zone, filter=wanted)


def get_status(gce: Gce, request: GetMachineStatusRequest) -> MachineStatus:
    """The status: one call; one more for a VM that stops or is gone, as only an operation says which; with a diagnosis
    one more, for the console."""
    machine, provider_id = request.machine, request.provider_id
    zone = zone_of(request.provider_spec, provider_id)
    if provider_id:
        name, what = VmId.of(provider_id).name, f"machine {machine.name} ({provider_id})"
        instance = by_id(gce, provider_id)
    else:
        name, what = vm_name(machine), f"machine {machine.name} (uid {machine.uid})"
        instance = _own(gce, machine, by_name(gce, zone, name), zone)
    if instance is None:
        raise DriverError(ErrorClass.NOT_FOUND, f"{what} has no VM: {_why_none(gce, request, zone, name)}")
    status = describe(gce, zone, instance, _dying(gce, zone, [instance]))
    if not request.diagnose:
        return status
    return status.model_copy(update={"console": _console(gce, zone, name)})


def _dying(gce: Gce, zone: str, found: Sequence[Resource]) -> Collection[str]:
    """Ids of those that are being deleted: their status is that of VMs which are only stopped, and only an operation
    tells. It is asked for once, and not at all where it was us who had them deleted."""
    for instance in found:
        if status_of(instance) != STOPPING:
            gce.dying.put(str(instance.get("id")), None)  # also where a deletion has failed
    stopping = [str(i.get("id")) for i in found if status_of(i) == STOPPING]
    if any(gce.dying.get(number) is None for number in stopping):
        for number in operations.being_deleted(gce, zone):
            gce.dying.put(number, True)
    return [number for number in stopping if gce.dying.get(number)]


def _own(gce: Gce, machine: Identity, instance: Resource | None, zone: str) -> Resource | None:
    """The instance, if it is the machine's; None where it is another's. Raises NameTaken for one of a former life that
    is not on its way out."""
    if instance is None or uid_of(instance) == machine.uid:
        return instance
    labels = labels_of(instance)
    ours = {KEY_OWNER: OWNER, KEY_CLUSTER: LABEL_RULES.value(machine.cluster)}
    same = all(labels.get(k) == v for k, v in ours.items())
    installation = LABEL_RULES.value(machine.installation)
    if same and is_of(labels.get(KEY_INSTALLATION), installation) and status_of(instance) != STOPPING:
        raise NameTaken(machine, [describe(gce, zone, instance)])
    return None


def _why_none(gce: Gce, request: GetMachineStatusRequest, zone: str, name: str) -> str:
    known = request.provider_id and VmId.of(request.provider_id).project == gce.project
    deletion = operations.deletion_of(gce, zone, name, request.token) if known else None
    if deletion is None:
        return f"Google knows none in {gce.project}/{zone}"
    return f"{name} is terminated: {deletion.get('user', 'somebody')} deleted it"


def list_machines(gce: Gce, request: ListMachinesRequest) -> list[MachineStatus]:
    """Those of a cluster; or those of some providerIDs, which a caller has had deleted: then what stops is going."""
    zone = zone_of(request.provider_spec, next(iter(request.provider_ids), None))
    if request.provider_ids:
        asked = [VmId.of(p) for p in request.provider_ids]
        names = [vm.name for vm in asked if vm.project == gce.project and vm.zone == zone]
        found = list(named(gce, "instances.list", zone, names))
        return [describe(gce, zone, i, [str(i.get("id"))]) for i in found]
    found = list(find(gce, zone, owned(request.cluster)))
    dying = _dying(gce, zone, found)
    return [describe(gce, zone, i, dying) for i in found]


def describe(gce: Gce, zone: str, instance: Resource, dying: Collection[str] = ()) -> MachineStatus:
    """`dying`: ids of instances that are being deleted, where one that stops may be one of them."""
    labels, status = labels_of(instance), status_of(instance)
    going = status == STOPPING and str(instance.get("id")) in dying
    return MachineStatus(
        provider_id=str(VmId(gce.project, zone, instance["name"])),
        node_name=instance["name"],
        addresses=_addresses(instance),
        state=VmState.TERMINATING if going else _STATES.get(status, VmState.PENDING),
        uid=labels.get(KEY_UID),
        name=labels.get(KEY_MACHINE),
        account_id=gce.project,
        installation=labels.get(KEY_INSTALLATION),
    )


def _addresses(instance: Resource) -> list[str]:
    """The addresses: internal before IPv6 before external, each once."""
    nics = instance.get("networkInterfaces") or ()
    found = [n.get("networkIP") for n in nics] + [n.get("ipv6Address") for n in nics]
    found += [a.get("externalIpv6") for n in nics for a in n.get("ipv6AccessConfigs") or ()]
    found += [a.get("natIP") for n in nics for a in n.get("accessConfigs") or ()]
    return list(dict.fromkeys(a for a in found if a))


def _console(gce: Gce, zone: str, name: str) -> str:
    """The last lines, or why there are none: a diagnosis that fails must not hide the status."""
    try:
        reply = gce.call("instances.getSerialPortOutput", zone=zone, instance=name, start=-CONSOLE_BYTES)
    except DriverError as e:
        return f"(the console cannot be read: {e.message})"
    # Secrets are hidden before the cut: half a token would not be recognised.
    lines = hide_secrets(str(reply.get("contents") or "")).splitlines()
    text = "\n".join(lines[-CONSOLE_LINES:])
    return text if len(text) <= CONSOLE_LENGTH else f"…{text[1 - CONSOLE_LENGTH :]}"

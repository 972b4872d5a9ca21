"""Reads instances: finds those of a machine, and puts what EC2 says of one in the contract's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from drivers.aws.calls import Ec2, Resource
from drivers.aws.failures import hide_secrets, scrub
from drivers.aws.tags import tags_of
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
from resources.errors import ErrorClass
from resources.names import OWNER, TAG_CLUSTER, TAG_INSTALLATION, TAG_MACHINE, TAG_OWNER, TAG_UID

NOT_FOUND = "InvalidInstanceID.NotFound"
TERMINATED = "terminated"
SHUTTING_DOWN = "shutting-down"
OWNER_ID = "OwnerId"
_STATES = {
    "pending": VmState.PENDING,
    "running": VmState.RUNNING,
    "stopping": VmState.STOPPING,
    "stopped": VmState.STOPPED,
    SHUTTING_DOWN: VmState.TERMINATING,
}
"""EC2's states; `terminated` is not among ours: such a VM no longer exists."""

IDS_MOST = 200
"""Values of one filter in one call (EC2 user guide, *List and filter using the CLI and API*)."""
CONSOLE_LINES = 25
CONSOLE_LENGTH = 600
"""Characters of the console. It becomes part of a failure's message."""
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]+")  # the beginning of a zone's name, also of a local zone's


def instance_id(provider_id: str) -> str:
    """The id in `aws:///<region or zone>/<id>`. Raises DriverError of class invalid."""
    last = provider_id.rsplit("/", 1)[-1]
    if not provider_id.startswith("aws://") or not _INSTANCE_ID.fullmatch(last):
        raise DriverError(
            ErrorClass.INVALID, f"providerID {provider_id!r} does not have the form aws:///<region>/<instance id>"
        )
    return last


def provider_id(instance: Resource, region: str) -> str:
    return f"aws:///{region}/{instance['InstanceId']}"


def node_name(instance: Resource) -> str:
    """The node's name; empty once the instance is terminated."""
    return instance.get("PrivateDnsName") or ""


def region_of(provider_spec: dict[str, Any], provider_id: str | None = None) -> str:
    """The region, read from a spec that may otherwise be stale or wrong, else from the providerID.

    Raises DriverError of class invalid.
    """
    region = provider_spec.get("region")
    if isinstance(region, str) and region:
        return region
    place = _REGION.match((provider_id or "").removeprefix("aws:///"))
    if place is None:
        raise DriverError(ErrorClass.INVALID, "providerSpec: region is missing")
    return place[0]


def state_of(instance: Resource) -> str:
    return str(instance.get("State", {}).get("Name", ""))


def is_living(instance: Resource) -> bool:
    """Whether it runs, will run or could run again; one that is shutting down is on its way out."""
    return state_of(instance) not in (TERMINATED, SHUTTING_DOWN)


def of_reservation(reservation: Resource) -> Iterator[Resource]:
    """A reservation's instances, each with the account that owns them all: EC2 names it once."""
    for instance in reservation.get("Instances", ()):
        yield {**instance, OWNER_ID: reservation.get(OWNER_ID, "")}


def find(ec2: Ec2, filters: Mapping[str, str | Sequence[str]]) -> Iterator[Resource]:
    for reservation in ec2.find("DescribeInstances", "Reservations", filters):
        yield from of_reservation(reservation)


def by_id(ec2: Ec2, wanted: str) -> Resource | None:
    """The instance, in whatever state; None when EC2 does not know it (any longer, or yet)."""
    try:
        reply = ec2.call("DescribeInstances", InstanceIds=[wanted])
    except DriverError as e:
        if e.provider_code == NOT_FOUND:
            return None
        raise
    return next((i for r in reply.get("Reservations", ()) for i in of_reservation(r)), None)


def by_uid(ec2: Ec2, uid: str) -> dict[str, Resource]:
    """Instances by id, in whatever state."""
    return {i["InstanceId"]: i for i in find(ec2, {f"tag:{TAG_UID}": uid})}


def by_name(ec2: Ec2, machine: Identity) -> dict[str, Resource]:
    """Instances by id, in whatever state: what any life of this name, in any installation, has left."""
    filters = {f"tag:{TAG_OWNER}": OWNER, f"tag:{TAG_CLUSTER}": machine.cluster, f"tag:{TAG_MACHINE}": machine.name}
    return {i["InstanceId"]: i for i in find(ec2, filters)}


def by_token(ec2: Ec2, token: str) -> dict[str, Resource]:
    """Instances by id, in whatever state: what RunInstances made with this ClientToken."""
    return {i["InstanceId"]: i for i in find(ec2, {"client-token": token})}


def the_one(found: Iterable[Resource], what: str) -> Resource:
    """The living one; if none lives, one that is shutting down. Raises not_found, or conflict when several live."""
    everyone = list(found)
    living = [i for i in everyone if is_living(i)]
    if len(living) > 1:
        ids = " and ".join(i["InstanceId"] for i in living)
        raise DriverError(
            ErrorClass.CONFLICT, f"{what} has {len(living)} VMs: {ids}; delete the machine or all but one"
        )
    dying = [i for i in everyone if state_of(i) == SHUTTING_DOWN]
    if living or dying:
        return (living + dying)[0]
    gone = "; ".join(f"{i['InstanceId']} is terminated{_reason(i)}" for i in everyone)
    raise DriverError(ErrorClass.NOT_FOUND, f"{what} has no VM: {gone or 'EC2 knows none'}")


def _reason(instance: Resource) -> str:
    """Why EC2 ended it, e.g. ` (Client.VolumeLimitExceeded: …)`."""
    message = (instance.get("StateReason") or {}).get("Message")
    return f" ({scrub(message)})" if message else ""


def get_status(ec2: Ec2, request: GetMachineStatusRequest) -> MachineStatus:
    """The status: one call by id, else two by tag and token; with a diagnosis two more, the checks only for a VM that
    runs."""
    machine = request.machine
    if request.provider_id:
        known = by_id(ec2, instance_id(request.provider_id))
        found = [known] if known else []
        what = f"machine {machine.name} ({request.provider_id})"
    else:
        found, others = _looked_up(ec2, machine, request.token)
        if others and not any(map(is_living, found)):
            raise NameTaken(machine, [describe(i, ec2.region) for i in others])
        what = f"machine {machine.name} (uid {machine.uid})"
    instance = the_one(found, what)
    status = describe(instance, ec2.region)
    if not request.diagnose:
        return status
    vm = instance["InstanceId"]
    impaired = _impaired(ec2, vm) if status.state is VmState.RUNNING else None
    return status.model_copy(update={"impaired": impaired, "console": _console(ec2, vm)})


def _looked_up(ec2: Ec2, machine: Identity, token: str) -> tuple[list[Resource], list[Resource]]:
    """The machine's own instances, in whatever state, and living ones that have its name and are not its own: one
    listing for both. Also by the token, as a tag may be visible later than its instance."""
    named = by_name(ec2, machine)
    own = {k: i for k, i in named.items() if tags_of(i).get(TAG_UID) == machine.uid}
    if token:
        own |= by_token(ec2, token)
    others = [named[k] for k in sorted(named) if k not in own and is_living(named[k])]
    ours = [i for i in others if is_of(tags_of(i).get(TAG_INSTALLATION), machine.installation)]
    return [own[k] for k in sorted(own)], ours


def list_machines(ec2: Ec2, request: ListMachinesRequest) -> list[MachineStatus]:
    ids = [instance_id(p) for p in request.provider_ids]
    if ids:  # by filter, for which an unknown id is no error
        parts = [ids[n : n + IDS_MOST] for n in range(0, len(ids), IDS_MOST)]
        found = [i for part in parts for i in find(ec2, {"instance-id": part})]
    else:
        found = list(find(ec2, {f"tag:{TAG_OWNER}": OWNER, f"tag:{TAG_CLUSTER}": request.cluster}))
    return [describe(i, ec2.region) for i in found if state_of(i) != TERMINATED]


def describe(instance: Resource, region: str) -> MachineStatus:
    tags = tags_of(instance)
    return MachineStatus(
        provider_id=provider_id(instance, region),
        node_name=node_name(instance),
        addresses=_addresses(instance),
        state=_STATES[state_of(instance)],
        uid=tags.get(TAG_UID),
        name=tags.get(TAG_MACHINE),
        account_id=instance.get(OWNER_ID, ""),
        installation=tags.get(TAG_INSTALLATION),
    )


def _addresses(instance: Resource) -> list[str]:
    """The addresses: private before IPv6 before public, each once; EC2 may show them later than the VM itself."""
    nics = instance.get("NetworkInterfaces") or ()
    found = [instance.get("PrivateIpAddress")]
    found += [a.get("PrivateIpAddress") for n in nics for a in n.get("PrivateIpAddresses") or ()]
    found += [a.get("Ipv6Address") for n in nics for a in n.get("Ipv6Addresses") or ()]
    found += [instance.get("PublicIpAddress")]
    return list(dict.fromkeys(a for a in found if a))


def _impaired(ec2: Ec2, wanted: str) -> str | None:
    """EC2's own status checks, when one fails: `system status impaired (reachability failed)`."""
    try:
        reply = ec2.call("DescribeInstanceStatus", InstanceIds=[wanted])
    except DriverError as e:
        if e.provider_code == NOT_FOUND:  # the checks lag behind the instance
            return None
        raise
    troubles = []
    for status in reply.get("InstanceStatuses", ()):
        for key, name in (("SystemStatus", "system"), ("InstanceStatus", "instance"), ("AttachedEbsStatus", "EBS")):
            check = status.get(key) or {}
            if check.get("Status") == "impaired":
                failed = [f"{d.get('Name')} {d.get('Status')}" for d in check.get("Details") or ()]
                troubles.append(f"{name} status impaired" + (f" ({', '.join(failed)})" if failed else ""))
    return "; ".join(troubles) or None


def _console(ec2: Ec2, wanted: str) -> str:
    """The last lines, or why there are none: a diagnosis that fails must not hide the status."""
    try:
        reply = _console_output(ec2, wanted)
    except DriverError as e:
        return f"(the console cannot be read: {e.message})"
    # botocore has decoded the base64. Secrets are hidden before the cut: half a token would not be recognised.
    lines = hide_secrets(str(reply.get("Output") or "")).splitlines()
    text = "\n".join(lines[-CONSOLE_LINES:])
    return text if len(text) <= CONSOLE_LENGTH else f"…{text[1 - CONSOLE_LENGTH :]}"


def _console_output(ec2: Ec2, wanted: str) -> Resource:
    """The console as it is now, where the machine type can; else what EC2 kept of the boot."""
    try:
        return ec2.call("GetConsoleOutput", InstanceId=wanted, Latest=True)
    except DriverError as e:
        if e.error_class is not ErrorClass.INVALID:
            raise
    return ec2.call("GetConsoleOutput", InstanceId=wanted)

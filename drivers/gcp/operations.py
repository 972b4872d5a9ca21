"""Reads operations: what is being made or deleted, and what has become of it. Google keeps them for some days."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from drivers.errors import DriverError, OperationFailed
from drivers.gcp.calls import Gce, Resource, named
from drivers.gcp.failures import of_operation
from drivers.gcp.tokens import operation_ids
from drivers.operations import Course
from resources.errors import BegunOperation, ErrorClass

_NAME = re.compile(r"[a-z0-9-]{1,200}")


def begun_by(call: str, what: str, operation: Resource) -> BegunOperation | None:
    """The handle of an operation that goes on."""
    if operation.get("status") == "DONE" or not may_be_asked(str(operation.get("name", ""))):
        return None
    return BegunOperation(call=call, what=what, address=operation["name"])


def may_be_asked(name: str) -> bool:
    """Whether it is an operation's name, which becomes a part of an address."""
    return _NAME.fullmatch(name) is not None


def course(gce: Gce, zone: str, begun: BegunOperation) -> Course:
    """How an operation goes; one call. Raises OperationFailed for one that has ended badly; DriverError."""
    if not may_be_asked(begun.address):
        return Course.UNKNOWN
    try:
        operation = gce.call("zoneOperations.get", zone=zone, operation=begun.address)
    except DriverError as e:
        if e.error_class is not ErrorClass.NOT_FOUND:
            raise
        return Course.UNKNOWN
    if failure := of_operation(begun.call, operation):
        raise OperationFailed.of(failure)
    return Course.OVER if operation.get("status") == "DONE" else Course.GOES_ON


def by_name(gce: Gce, zone: str, names: Sequence[str]) -> dict[str, Resource]:
    """Those that Google knows of these."""
    return {str(o["name"]): o for o in named(gce, "zoneOperations.list", zone, names)}


def deletion_of(gce: Gce, zone: str, name: str, token: str) -> Resource | None:
    """The operation that has deleted the very VM that this attempt made; None where Google knows none.

    A name may have had VMs before: the attempt's own insert operation says which one is meant.
    """
    link = f".*/projects/{gce.project}/zones/{zone}/instances/{name}"
    known = list(gce.pages("zoneOperations.list", zone=zone, filter=f'targetLink eq "{link}"'))
    ours = set(operation_ids(token)) if token else set()
    made = {o.get("targetId") for o in known if o.get("clientOperationId") in ours}
    ended = [
        o for o in known if o.get("operationType") == "delete" and o.get("status") == "DONE" and not o.get("error")
    ]
    return next((o for o in ended if o.get("targetId") in made), None)


def being_deleted(gce: Gce, zone: str) -> Iterator[str]:
    """Ids of the instances that are being deleted."""
    running = gce.pages("zoneOperations.list", zone=zone, filter='(operationType = "delete") AND (status != "DONE")')
    return (str(o.get("targetId")) for o in running)

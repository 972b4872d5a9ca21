"""Reads operations: what is being made or deleted, and what has become of it. Google keeps them for some days."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drivers.gcp.calls import Gce, Resource, named
from drivers.gcp.tokens import operation_ids


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

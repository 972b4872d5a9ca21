"""Disks of a machine, and whether they go with it. Network interfaces are part of the VM here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drivers.base import Identity
from drivers.errors import DriverError
from drivers.gcp import operations
from drivers.gcp.calls import Gce, Resource
from drivers.gcp.tags import KEY_RELEASED, labelled, labels_of
from drivers.tags import released_value
from resources.clouds import Tags
from resources.clouds.base import OUR_TAGS
from resources.clouds.gcp.names import LABEL_RULES, shortened
from resources.errors import BegunOperation

OUR_KEYS = tuple(map(LABEL_RULES.key, OUR_TAGS))
IN_USE = ("resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "resourceInUse", "RESOURCE_IN_USE")
GONE = ("notFound", "404", "RESOURCE_NOT_FOUND")
_ENDING = re.compile(r"-(\d{1,4}-[0-9a-f]{8})$")
"""How the name of a disk ends that was made with its instance: its place in the spec, and the request's."""


@dataclass(frozen=True)
class DiskOfMachine:
    name: str
    state: str
    """Google's: READY, CREATING, DELETING, …"""
    labels: Tags
    fingerprint: str
    attached: bool
    was_used: bool
    """Whether a VM has ever had it: what a failed insert has left has no data."""

    def __str__(self) -> str:
        return f"{self.name} {self.state}"

    def is_released(self, machine: Identity) -> bool:
        return self.labels.get(KEY_RELEASED) == released_value(LABEL_RULES, machine)

    @property
    def has_our_labels(self) -> bool:
        return any(key in self.labels for key in OUR_KEYS)

    def released_labels(self, machine: Identity) -> Tags:
        """Its labels once it is nobody's: the mark in place of our own."""
        rest = {k: v for k, v in self.labels.items() if k not in OUR_KEYS}
        return {**rest, KEY_RELEASED: released_value(LABEL_RULES, machine)}


def read(disk: Resource) -> DiskOfMachine:
    return DiskOfMachine(
        name=disk["name"],
        state=disk.get("status", ""),
        labels=labels_of(disk),
        fingerprint=disk.get("labelFingerprint", ""),
        attached=bool(disk.get("users")),
        was_used=bool(disk.get("users") or disk.get("lastAttachTimestamp")),
    )


def of_machine(gce: Gce, zone: str, machine: Identity) -> list[DiskOfMachine]:
    """What carries the machine's uid, and what it has released before."""
    uid, released = labelled(uid=machine.uid), labelled(released=released_value(LABEL_RULES, machine))
    found = gce.pages("disks.list", zone=zone, filter=f"({uid}) OR ({released})")
    return sorted(map(read, found), key=lambda disk: disk.name)


def by_name(gce: Gce, zone: str, name: str) -> DiskOfMachine | None:
    try:
        return read(gce.call("disks.get", zone=zone, disk=name))
    except DriverError as e:
        if e.provider_code in GONE:
            return None
        raise


def held(instance: Resource) -> dict[int, str]:
    """Names of the disks that were made with an instance and are attached to it, by their place in the spec, which the
    name tells (drivers.gcp.launch.with_disks). Their place in Google's list does not: whatever is detached leaves no
    gap there, and what others attach fills it."""
    names = [d["source"].rsplit("/", 1)[-1] for d in instance.get("disks") or () if d.get("source")]
    endings = {name: found[1] for name in names if (found := _ENDING.search(name))}
    ours = {name: ending for name, ending in endings.items() if name == shortened(instance["name"], ending)}
    return {int(ending.partition("-")[0]): name for name, ending in ours.items()}


def outlive(instance: Resource) -> Iterator[str]:
    """Names of the instance's disks that stay when it goes, in the instance's own words."""
    for disk in instance.get("disks") or ():
        if disk.get("source") and not disk.get("autoDelete"):
            yield disk["source"].rsplit("/", 1)[-1]


def spec_keeps(provider_spec: dict[str, Any]) -> bool:
    """Whether the spec keeps any disk. The spec may be stale or wrong, so it is not parsed, only looked at."""
    disks = provider_spec.get("disks")
    found = [disk for disk in disks if isinstance(disk, dict)] if isinstance(disks, list) else []
    return any(disk.get(key) is False for disk in found for key in ("autoDelete", "auto_delete"))


def set_labels(gce: Gce, zone: str, disk: DiskOfMachine, labels: Tags) -> None:
    """Sets all of a disk's labels, and waits until they are set. Raises DriverError."""
    body = {"labels": labels, "labelFingerprint": disk.fingerprint}
    gce.finish("disks.setLabels", gce.call("disks.setLabels", body, zone=zone, resource=disk.name), zone)


def delete(gce: Gce, zone: str, disk: DiskOfMachine) -> BegunOperation | None:
    """Has it deleted. Raises DriverError; its provider_code is one of IN_USE or GONE when that is why."""
    begun = gce.call("disks.delete", zone=zone, disk=disk.name)
    return operations.begun_by("disks.delete", disk.name, begun)

"""Instances: their states, what get and list say of them, and what ends with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from simulator.clouds.gce.context import Context, Fingerprinted, Row, Written, fingerprint, newest
from simulator.clouds.gce.disks import Disks
from simulator.clouds.gce.errors import OperationError, not_found, not_ready
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import last, link, timestamp
from simulator.clouds.gce.network import Interface
from simulator.clouds.gce.operations import Operation

Status = Literal["PROVISIONING", "STAGING", "RUNNING", "STOPPING", "TERMINATED"]


class Attachment(BaseModel):
    """A disk as its instance has it."""

    disk: str = ""
    """Its path; empty: a local SSD, which is no resource of its own."""
    device_name: str
    boot: bool
    auto_delete: bool
    echoed: dict[str, Any] = {}
    """Type, mode, interface, size."""

    def row(self, index: int) -> Row:
        found: Row = {
            "kind": "compute#attachedDisk",
            "index": index,
            "deviceName": self.device_name,
            "boot": self.boot,
            "autoDelete": self.auto_delete,
            **self.echoed,
        }
        return {**found, "source": link(self.disk)} if self.disk else found


class Instance(BaseModel):
    path: str
    id: str
    created: Written
    status: Status = "PROVISIONING"
    deleting: bool = False
    gone_at: float | None = None
    """When it ended for good, in seconds since the epoch; from then on the API does not know it."""
    runs_at: float | None = None
    """When it leaves STAGING on its own, in seconds since the epoch."""
    started_at: float | None = None
    stopped_at: float | None = None
    machine_type: str
    """Its path."""
    labels: Fingerprinted
    tags: Fingerprinted
    """Network tags."""
    metadata: Fingerprinted
    """Items, as JSON shows them."""
    interfaces: list[Interface]
    disks: list[Attachment]
    scheduling: dict[str, Any]
    service_accounts: list[dict[str, Any]] = []
    accelerators: list[dict[str, Any]] = []
    protected: bool = False
    """deletionProtection."""
    echoed: dict[str, Any] = {}
    """What an insert gives and nothing changes."""
    console: str = ""

    @property
    def name(self) -> str:
        return last(self.path)

    @property
    def project(self) -> str:
        return self.path.split("/")[1]

    @property
    def zone(self) -> str:
        return self.path.split("/")[3]


class Instances:
    """All instances. `changed` is called after each change of a status, also of one that is gone."""

    def __init__(self, context: Context, disks: Disks) -> None:
        self._context = context
        self._disks = disks
        self.records: dict[str, Instance] = {}
        """Instances by id; one that is gone stays for a while, behind the curtain."""
        self.changed: Callable[[Instance], None] = lambda instance: None

    def living(self, path: str) -> Instance | None:
        return next((i for i in self.records.values() if i.path == path and i.gone_at is None), None)

    def lookup(self, path: str) -> Instance | None:
        """The instance if calls see it already."""
        instance = self.living(path)
        return instance if instance is not None and self._context.sees(instance.created) else None

    def find(self, call: MethodCall) -> Instance:
        """The instance that a call names, or whose id it gives. Raises notFound."""
        path, named = f"{call.scope}/instances/{call.params['instance']}", self.records.get(call.params["instance"])
        if named is not None and named.path.startswith(f"{call.scope}/") and named.gone_at is None:
            path = named.path
        instance = self.lookup(path)
        if instance is None:
            raise not_found(path)
        return instance

    def find_changeable(self, call: MethodCall) -> Instance:
        """The same, for a change. Raises resourceNotReady for one that is being deleted."""
        instance = self.find(call)
        if instance.deleting:
            raise not_ready(instance.path)
        return instance

    def target(self, operation: Operation) -> Instance:
        """The instance that an operation is about, at its end. Raises RESOURCE_NOT_FOUND for one that is gone."""
        instance = self.records.get(operation.target_id)
        if instance is None or instance.gone_at is not None:
            raise OperationError("RESOURCE_NOT_FOUND", f"The resource '{operation.target}' was not found")
        return instance

    def within(self, scope: str) -> list[Row]:
        mine = (i for i in self.records.values() if i.gone_at is None and i.path.startswith(f"{scope}/"))
        return [self.row(i, self._context.read) for i in mine if self._context.sees(i.created)]

    # -- states

    def enter(self, instance: Instance, status: Status) -> None:
        if instance.gone_at is not None or instance.status == status:
            return
        instance.status, instance.runs_at = status, None
        if status == "RUNNING":
            instance.started_at = time.time()
        if status == "TERMINATED":
            instance.stopped_at = time.time()
        self.changed(instance)

    def boot(self, instance: Instance) -> None:
        """What an insert or a start ends with: it runs, now or after its boot."""
        if self._context.boot_delay <= 0:
            self.enter(instance, "RUNNING")
        else:
            self.enter(instance, "STAGING")
            instance.runs_at = time.time() + self._context.boot_delay
            self._context.wake()

    def settle(self) -> None:
        """Makes every change of a status whose time has come, and forgets those that have been gone for long enough."""
        now = time.time()
        for instance in [i for i in self.records.values() if i.runs_at is not None and i.runs_at <= now]:
            self.enter(instance, "RUNNING")
        before = now - self._context.gone_visible
        for instance in [i for i in self.records.values() if i.gone_at is not None and i.gone_at < before]:
            del self.records[instance.id]

    def fast_forward(self) -> None:
        for instance in [i for i in self.records.values() if i.runs_at is not None]:
            self.enter(instance, "RUNNING")

    def next_due(self) -> float | None:
        return min((i.runs_at for i in self.records.values() if i.runs_at is not None), default=None)

    def remove(self, instance: Instance) -> None:
        """The end of an instance, and of the disks that say so."""
        if instance.gone_at is not None:
            return
        instance.gone_at, instance.runs_at = time.time(), None
        for attachment in instance.disks:
            disk = self._disks.records.get(attachment.disk)
            if disk is None:
                continue
            disk.users = [user for user in disk.users if user != instance.path]
            if attachment.auto_delete and not disk.users:
                del self._disks.records[disk.path]
        self._context.wake()
        self.changed(instance)

    # -- rows

    def row(self, instance: Instance, read: Callable[[Fingerprinted], Any] = newest) -> Row:
        """An instance as get shows it; `read` says what a list sees of what has just been written."""
        labels, tags, items = read(instance.labels), read(instance.tags), read(instance.metadata)
        path = instance.path
        found: Row = {
            "kind": "compute#instance",
            "id": instance.id,
            "name": instance.name,
            "selfLink": link(path),
            "zone": link(path.rsplit("/", 2)[0]),
            "status": instance.status,
            "machineType": link(instance.machine_type),
            "cpuPlatform": "Intel Cascade Lake" if instance.status == "RUNNING" else "Unknown CPU Platform",
            "creationTimestamp": timestamp(instance.created.at),
            "labelFingerprint": fingerprint(labels),
            "tags": {"fingerprint": fingerprint(tags), **({"items": tags} if tags else {})},
            "metadata": {
                "kind": "compute#metadata",
                "fingerprint": fingerprint(items),
                **({"items": items} if items else {}),
            },
            "networkInterfaces": [interface.row() for interface in instance.interfaces],
            "disks": [attachment.row(n) for n, attachment in enumerate(instance.disks)],
            "scheduling": instance.scheduling,
            "deletionProtection": instance.protected,
            "startRestricted": False,
            **instance.echoed,
        }
        optional = {
            "labels": labels,
            "serviceAccounts": instance.service_accounts,
            "guestAccelerators": instance.accelerators,
            "lastStartTimestamp": timestamp(instance.started_at) if instance.started_at else "",
            "lastStopTimestamp": timestamp(instance.stopped_at) if instance.stopped_at else "",
        }
        return {**found, **{key: value for key, value in optional.items() if value}}

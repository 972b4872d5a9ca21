"""Disks: with their instance or alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from simulator.clouds.gce.context import Context, Fingerprinted, Row, Written, fingerprint, newest
from simulator.clouds.gce.errors import GceError, OperationError, invalid, not_found
from simulator.clouds.gce.fields import DiskBody, DiskParams, LabelsBody, read
from simulator.clouds.gce.images import Images
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import check_labels, check_name, last, link, new_id, resolve, timestamp
from simulator.clouds.gce.operations import Operation, Operations

DEFAULT_SIZE = {"pd-standard": 500, "pd-balanced": 100, "pd-ssd": 100}
"""GB of a disk without an image, when an insert says none."""
STALE_LABELS = "Labels fingerprint either invalid or resource labels have changed"


class Disk(BaseModel):
    path: str
    id: str
    created: Written
    status: Literal["CREATING", "READY"] = "READY"
    size_gb: int
    type: str
    """Its path."""
    labels: Fingerprinted
    image: str = ""
    users: list[str] = []
    """Paths of the instances that it is attached to."""
    echoed: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return last(self.path)


class Disks:
    def __init__(self, context: Context, operations: Operations, images: Images) -> None:
        self._context = context
        self._operations = operations
        self._images = images
        self.records: dict[str, Disk] = {}
        """Disks by path."""

    def lookup(self, path: str) -> Disk | None:
        """The disk if calls see it already."""
        disk = self.records.get(path)
        return disk if disk is not None and self._context.sees(disk.created) else None

    def find(self, path: str) -> Disk:
        """The disk of this path, whose last part may also be its id. Raises notFound."""
        scope, _, name = path.rpartition("/")
        named = (d.path for d in self.records.values() if d.id == name and d.path.rpartition("/")[0] == scope)
        disk = self.lookup(next(named, path) if name.isdecimal() else path)
        if disk is None:
            raise not_found(path)
        return disk

    def within(self, scope: str) -> list[Row]:
        mine = (disk for path, disk in self.records.items() if path.startswith(f"{scope}/"))
        return [self.row(disk, self._context.read) for disk in mine if self._context.sees(disk.created)]

    def row(self, disk: Disk, read: Callable[[Fingerprinted], Any] = newest) -> Row:
        labels = read(disk.labels)
        found: Row = {
            "kind": "compute#disk",
            "id": disk.id,
            "name": disk.name,
            "selfLink": link(disk.path),
            "zone": link(disk.path.rsplit("/", 2)[0]),
            "status": disk.status,
            "sizeGb": str(disk.size_gb),
            "type": link(disk.type),
            "creationTimestamp": timestamp(disk.created.at),
            "labelFingerprint": fingerprint(labels),
            "users": [link(user) for user in disk.users],
            **disk.echoed,
        }
        if labels:
            found["labels"] = labels
        if disk.image:
            found["sourceImage"] = link(disk.image)
        return found

    # -- making

    def make(self, path: str, body: DiskParams | DiskBody, *, size: int | None, kind: str | None, field: str) -> Disk:
        """A disk that nobody uses yet. It is not recorded yet either: an insert that is refused makes none."""
        project, zone = path.split("/")[1], path.split("/")[3]
        check_name(last(path), f"{field}.name")
        if path in self.records:
            raise GceError("alreadyExists", f"The resource '{path}' already exists")
        image = self._images.resolve(body.source_image, project) if body.source_image else None
        type_ = resolve(kind or "pd-standard", project, f"zones/{zone}/diskTypes", f"{field}.diskType")
        if last(type_) not in self._context.world.disk_types or type_.split("/")[3] != zone:
            raise invalid(f"{field}.diskType", kind, "The referenced resource does not exist.")
        least = image[1].disk_size_gb if image else 0
        if size is not None and size < least:
            raise invalid(
                f"{field}.diskSizeGb", size, f"Requested disk size cannot be smaller than the image size ({least} GB)"
            )
        given = body.row("labels")
        kept = ("description", "provisionedIops", "provisionedThroughput", "storagePool", "diskEncryptionKey")
        return Disk(
            path=path,
            id=new_id(),
            created=self._context.created(),
            size_gb=size or least or DEFAULT_SIZE.get(last(type_), 100),
            type=type_,
            labels=self._context.fresh(check_labels(body.labels, f"{field}.labels")),
            image=image[0] if image else "",
            echoed={key: given[key] for key in kept if key in given},
        )

    # -- calls

    def insert(self, call: MethodCall) -> Operation:
        body = read(DiskBody, {**({"sourceImage": i} if (i := call.query.get("sourceImage")) else {}), **call.body})
        path = f"{call.scope}/disks/{check_name(body.name)}"
        disk = self.make(path, body, size=body.size_gb, kind=body.type, field="resource")
        disk.status = "CREATING"
        self.records[path] = disk
        return self._operations.begin("insert", path, disk.id, delay=self._context.change_delay, query=call.query)

    def inserted(self, operation: Operation) -> None:
        disk = self.records.get(operation.target)
        if disk is not None and disk.id == operation.target_id:
            if operation.error is not None:
                del self.records[operation.target]
            disk.status = "READY"

    def delete(self, call: MethodCall) -> Operation:
        disk = self.find(f"{call.scope}/disks/{call.params['disk']}")
        if disk.users:
            raise GceError("resourceInUseByAnotherResource", in_use(disk))
        return self._operations.begin("delete", disk.path, disk.id, delay=self._context.change_delay, query=call.query)

    def deleted(self, operation: Operation) -> None:
        disk = self._target(operation)
        if operation.error is None:
            if disk.users:
                raise OperationError("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", in_use(disk))
            del self.records[disk.path]

    def set_labels(self, call: MethodCall) -> Operation:
        disk = self.find(f"{call.scope}/disks/{call.params['disk']}")
        body = read(LabelsBody, call.body)
        check_labels(body.labels, "resource.labels")
        if body.label_fingerprint != disk.labels.fingerprint:
            raise GceError("conditionNotMet", STALE_LABELS)
        return self._operations.begin(
            "setLabels", disk.path, disk.id, delay=self._context.change_delay, query=call.query, request=body.row()
        )

    def labels_set(self, operation: Operation) -> None:
        disk = self._target(operation)
        if operation.error is None:
            if operation.request["labelFingerprint"] != disk.labels.fingerprint:
                raise OperationError("CONDITION_NOT_MET", STALE_LABELS)
            self._context.write(disk.labels, operation.request.get("labels", {}))

    def _target(self, operation: Operation) -> Disk:
        disk = self.records.get(operation.target)
        if disk is None or disk.id != operation.target_id:
            raise OperationError("RESOURCE_NOT_FOUND", f"The resource '{operation.target}' was not found")
        return disk


def in_use(disk: Disk) -> str:
    return f"The disk resource '{disk.path}' is already being used by '{disk.users[0]}'"

"""The simulated Compute Engine without its wire: its parts put together, time, and what is behind the curtain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.clouds import CloudResource
from simulator.clouds.base import SimulatedCloud, dumped
from simulator.clouds.gce import listing
from simulator.clouds.gce.auth import GceAuthenticator, Session
from simulator.clouds.gce.changes import Changes
from simulator.clouds.gce.context import Context, Row
from simulator.clouds.gce.disks import Disk, Disks
from simulator.clouds.gce.images import Images
from simulator.clouds.gce.instances import Instance, Instances, Status
from simulator.clouds.gce.launch import Launcher
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import last, link
from simulator.clouds.gce.network import Networks
from simulator.clouds.gce.operations import Operation, Operations, operation_row
from simulator.clouds.gce.power import InstancePower
from simulator.clouds.gce.world import World
from simulator.frame import Frame
from simulator.kubelet.machine import Power as VmPower
from simulator.kubelet.machine import Size

SERVICE = "gce"
"""The name in fault rules and the journal."""
ARCHITECTURES = {"X86_64": "amd64", "ARM64": "arm64"}
USER_DATA = ("user-data", "startup-script")
"""Metadata that a VM configures itself by; the first that it has counts."""


@dataclass(frozen=True)
class GceVm:
    """An instance as its hypervisor knows it: the truth, without any lag."""

    instance_id: str
    name: str
    project: str
    status: Status | None
    """None: it is gone."""
    private_ip: str
    zone: str
    region: str
    instance_type: str
    size: Size
    user_data: bytes
    labels: dict[str, str]

    @property
    def power(self) -> VmPower:
        if self.status is None:
            return VmPower.GONE
        return VmPower.ON if self.status == "RUNNING" else VmPower.OFF

    @property
    def private_dns_name(self) -> str:
        return self.name

    @property
    def provider_id(self) -> str:
        """The providerID as cloud-provider-gcp writes it."""
        return f"gce://{self.project}/{self.zone}/{self.name}"


class GceCloud(SimulatedCloud[GceVm]):
    """The simulated projects."""

    service = SERVICE

    def __init__(
        self,
        frame: Frame,
        *,
        world: World | None = None,
        insert_delay: float = 0.0,
        boot_delay: float = 0.0,
        terminate_delay: float = 0.0,
        change_delay: float = 0.0,
        gone_visible: float = 3600.0,
    ) -> None:
        super().__init__(frame)
        self.world = world or World()
        self.settings = Context(
            frame, self.world, insert_delay, boot_delay, terminate_delay, change_delay, gone_visible, self._wake.set
        )
        """Its delays may be changed at any time; they count for the next operation."""
        context = self.settings
        self._images = Images(self.world)
        self._operations = Operations(context)
        self._networks = Networks(context, self._operations)
        self._disks = Disks(context, self._operations, self._images)
        self._instances = Instances(context, self._disks)
        self._instances.changed = self._notify
        parts = (context, self._operations, self._instances, self._disks, self._networks, self._images)
        self._launcher = Launcher(*parts)
        self._changes = Changes(*parts)
        self._power = InstancePower(context, self._operations, self._instances)
        self._operations.half = self._halfway
        self._operations.done = self._end
        self.authenticator = GceAuthenticator(self.world)
        self.changes = self._changing()
        self.reads = self._reading()

    def _changing(self) -> Mapping[str, Callable[[MethodCall], Operation]]:
        changes, power = self._changes, self._power
        return {
            "instances.insert": self._launcher.insert,
            "instances.delete": power.delete,
            "instances.start": power.start,
            "instances.stop": power.stop,
            "instances.reset": power.reset,
            "instances.setLabels": changes.set_labels,
            "instances.setTags": changes.set_tags,
            "instances.setMetadata": changes.set_metadata,
            "instances.setMachineType": changes.set_machine_type,
            "instances.setMachineResources": changes.set_machine_resources,
            "instances.setServiceAccount": changes.set_service_account,
            "instances.setScheduling": changes.set_scheduling,
            "instances.setDeletionProtection": changes.set_deletion_protection,
            "instances.setDiskAutoDelete": changes.set_disk_auto_delete,
            "instances.updateNetworkInterface": changes.update_network_interface,
            "instances.attachDisk": changes.attach_disk,
            "instances.detachDisk": changes.detach_disk,
            "disks.insert": self._disks.insert,
            "disks.delete": self._disks.delete,
            "disks.setLabels": self._disks.set_labels,
            "networks.insert": self._networks.insert_network,
            "subnetworks.insert": self._networks.insert_subnetwork,
        }

    def _reading(self) -> Mapping[str, Callable[[MethodCall], Row]]:
        images, networks, power = self._images, self._networks, self._power
        find = lambda c: operation_row(self.operation(c))  # noqa: E731
        listed = lambda c: self._list(c, [operation_row(o) for o in self._operations.within(c.scope)])  # noqa: E731
        return {
            "projects.get": lambda c: self._project(c.project),
            "instances.get": lambda c: self._instances.row(self._instances.find(c)),
            "instances.list": lambda c: self._list(c, self._instances.within(c.scope)),
            "instances.aggregatedList": lambda c: self._aggregated(c, "instances", self._instances.within),
            "instances.getSerialPortOutput": power.get_serial_port_output,
            "disks.get": lambda c: self._disks.row(self._disks.find(f"{c.scope}/disks/{c.params['disk']}")),
            "disks.list": lambda c: self._list(c, self._disks.within(c.scope)),
            "disks.aggregatedList": lambda c: self._aggregated(c, "disks", self._disks.within),
            **{f"{kind}Operations.{v}": find for kind in ("zone", "region", "global") for v in ("get", "wait")},
            **{f"{kind}Operations.list": listed for kind in ("zone", "region", "global")},
            "zones.get": lambda c: images.zone(c.project, c.params["zone"]),
            "zones.list": lambda c: self._list(c, images.zones(c.project)),
            "regions.get": lambda c: images.region(c.project, c.params["region"]),
            "machineTypes.get": lambda c: images.machine_type(c.scope, c.params["machineType"]),
            "machineTypes.list": lambda c: self._list(c, images.machine_types(c.scope)),
            "images.get": lambda c: images.image(f"{c.scope}/images/{c.params['image']}"),
            "images.getFromFamily": lambda c: images.image(f"{c.scope}/images/family/{c.params['family']}"),
            "images.list": lambda c: self._list(c, images.images(c.project)),
            "networks.get": lambda c: networks.find(f"{c.scope}/networks/{c.params['network']}"),
            "networks.list": lambda c: self._list(c, networks.below(f"{c.scope}/networks")),
            "subnetworks.get": lambda c: networks.find(f"{c.scope}/subnetworks/{c.params['subnetwork']}"),
            "subnetworks.list": lambda c: self._list(c, networks.below(f"{c.scope}/subnetworks")),
        }

    # -- calls

    def operation(self, call: MethodCall) -> Operation:
        return self._operations.find(call.scope, call.params["operation"])

    def _project(self, project: str) -> Row:
        number = self.world.projects[project].number
        path = f"projects/{project}"
        return {"kind": "compute#project", "id": number, "name": project, "selfLink": link(path)}

    def _list(self, call: MethodCall, rows: list[Row]) -> Row:
        shown, more = listing.page(listing.select(rows, call.query), call.query)
        collection = call.method.id.partition(".")[0]
        found: Row = {
            "kind": f"compute#{collection.removesuffix('s')}List",
            "id": f"{call.scope}/{collection}",
            "selfLink": link(f"{call.scope}/{collection}"),
        }
        if shown:
            found["items"] = shown
        return {**found, "nextPageToken": more} if more else found

    def _aggregated(self, call: MethodCall, collection: str, within: Callable[[str], list[Row]]) -> Row:
        rows = [row for zone in self.world.zones for row in within(f"projects/{call.project}/zones/{zone}")]
        shown, more = listing.page(listing.select(rows, call.query), call.query)
        items: Row = {f"zones/{zone}": _nothing(f"zones/{zone}") for zone in self.world.zones}
        for row in shown:
            scope = items[f"zones/{last(row['zone'])}"]
            scope.pop("warning", None)
            scope.setdefault(collection, []).append(row)
        found: Row = {
            "kind": f"compute#{collection.removesuffix('s')}AggregatedList",
            "id": f"projects/{call.project}/aggregated/{collection}",
            "selfLink": link(f"projects/{call.project}/aggregated/{collection}"),
            "items": items,
        }
        return {**found, "nextPageToken": more} if more else found

    # -- time

    def settle(self) -> None:
        """Takes every operation as far as its time has come."""
        self._operations.settle()
        self._instances.settle()

    def _due(self) -> Iterable[float | None]:
        return self._operations.next_due(), self._instances.next_due()

    def fast_forward(self) -> None:
        """Ends every operation under way at once, whatever its delay."""
        self._operations.fast_forward()
        self._instances.fast_forward()

    def _halfway(self, operation: Operation) -> None:
        if operation.type in ("insert", "start") and "/instances/" in operation.target:
            self._launcher.staged(operation)

    def _end(self, operation: Operation) -> None:
        """Does what an operation is for. Raises OperationError."""
        collection = operation.target.rsplit("/", 2)[1]
        effects: dict[str, Callable[[Operation], None]] = {
            "instances.insert": self._launcher.inserted,
            "instances.delete": self._power.deleted,
            "instances.start": self._power.started,
            "instances.stop": self._power.stopped,
            "disks.insert": self._disks.inserted,
            "disks.delete": self._disks.deleted,
            "disks.setLabels": self._disks.labels_set,
        }
        if collection in ("instances", "disks"):
            effects.get(f"{collection}.{operation.type}", self._changes.done)(operation)

    # -- behind the curtain

    def instances(self, include_gone: bool = False) -> list[GceVm]:
        self.settle()
        return [self._vm(i) for i in self._instances.records.values() if include_gone or i.gone_at is None]

    def _living(self) -> Iterable[GceVm]:
        return self.instances()

    def has_vm(self, instance_id: str) -> bool:
        self.settle()
        return self._known(instance_id) is not None

    def resources(self) -> list[CloudResource]:
        """Instances that are gone are there for an hour more, which the API does not show."""
        self.settle()
        return [
            *(
                CloudResource(i.id, "instances", dict(i.labels.value), vm=True, gone=i.gone_at is not None)
                for i in self._instances.records.values()
            ),
            *(CloudResource(d.id, "disks", dict(d.labels.value)) for d in self._disks.records.values()),
        ]

    def set_console(self, instance_id: str, text: str) -> None:
        """Appends to what the first serial port answers."""
        self._find(instance_id).console += text

    def impair(self, instance_id: str, impaired: bool) -> None:
        """Compute Engine has no health check of its own that an API call shows."""

    def kill(self, instance_id: str) -> None:
        """The VM dies behind everyone's back: preempted if it may be, deleted otherwise, whatever protects it."""
        self.settle()
        self._power.kill(self._find(instance_id))

    def tag(self, resource_id: str, tags: dict[str, str]) -> None:
        self.settle()
        disk = next((d for d in self._disks.records.values() if d.id == resource_id), None)
        labels = (disk or self._find(resource_id)).labels
        self.settings.write(labels, {**labels.value, **tags})

    def _known(self, instance_id: str) -> Instance | None:
        """Finds an instance by its id, also one that is gone, or by its name, by which people know it."""
        records = self._instances.records
        named = (i for i in records.values() if i.name == instance_id and i.gone_at is None)
        return records.get(instance_id) or next(named, None)

    def _find(self, instance_id: str) -> Instance:
        found = self._known(instance_id)
        if found is None:
            raise KeyError(instance_id)
        return found

    def _notify(self, instance: Instance) -> None:
        self._tell(self._vm(instance))

    def _vm(self, instance: Instance) -> GceVm:
        items = {item["key"]: item.get("value", "") for item in instance.metadata.value}
        type_ = self.world.machine_types.get(last(instance.machine_type))
        size = Size()  # of a world that this state was saved in
        if type_ is not None:
            size = Size(cpus=type_.vcpus, memory_mib=type_.memory_mib, architecture=ARCHITECTURES[type_.architecture])
        return GceVm(
            instance_id=instance.id,
            name=instance.name,
            project=instance.project,
            status=None if instance.gone_at is not None else instance.status,
            private_ip=instance.interfaces[0].ip,
            zone=instance.zone,
            region=instance.zone.rpartition("-")[0],
            instance_type=last(instance.machine_type),
            size=size,
            user_data=next((items[key] for key in USER_DATA if key in items), "").encode(),
            labels=dict(instance.labels.value),
        )

    # -- state

    def dump(self) -> dict[str, Any]:
        """Everything that calls have made, fit for JSON. The world and the delays are not part of it."""
        return {
            "instances": dumped(self._instances.records),
            "disks": dumped(self._disks.records),
            "operations": dumped(self._operations.records),
            "networks": dict(self._networks.made),
            "addresses": dict(self._networks.taken),
            "sessions": dumped(self.authenticator.sessions),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `dump` gave, in place of everything here; subscribers hear of every living instance."""
        self._instances.records = {k: Instance.model_validate(v) for k, v in state["instances"].items()}
        self._disks.records = {k: Disk.model_validate(v) for k, v in state["disks"].items()}
        self._operations.records = {k: Operation.model_validate(v) for k, v in state["operations"].items()}
        self._networks.made = dict(state["networks"])
        self._networks.taken = dict(state["addresses"])
        self.authenticator.sessions = {k: Session.model_validate(v) for k, v in state["sessions"].items()}
        self._wake.set()
        for instance in list(self._instances.records.values()):
            if instance.gone_at is None:
                self._notify(instance)


def _nothing(scope: str) -> Row:
    warning = {
        "code": "NO_RESULTS_ON_PAGE",
        "message": f"There are no results for scope '{scope}' on this page.",
        "data": [{"key": "scope", "value": scope}],
    }
    return {"warning": warning}

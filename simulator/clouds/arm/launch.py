"""VirtualMachines_CreateOrUpdate and _Update: everything is checked before anything is made."""

from __future__ import annotations

import copy
import uuid

from simulator.clouds.arm.attachments import InterfaceReader
from simulator.clouds.arm.context import Context
from simulator.clouds.arm.disks import Disks, read_zones
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import VMS, Id, check_name
from simulator.clouds.arm.images import Images
from simulator.clouds.arm.interfaces import Interfaces
from simulator.clouds.arm.launch_options import (
    check_placement,
    check_spot,
    check_unchanged,
    read_identity,
    read_os_profile,
    read_size,
)
from simulator.clouds.arm.machines import Machine, Machines
from simulator.clouds.arm.operations import Operations
from simulator.clouds.arm.quotas import Quotas
from simulator.clouds.arm.resources import check_conditions, check_location, read_tags
from simulator.clouds.arm.storage import StorageReader
from simulator.clouds.arm.wire import Answer, ArmCall, Row

FIXED = (
    "availabilitySet",
    "evictionPolicy",
    "osProfile.adminUsername",
    "osProfile.computerName",
    "osProfile.linuxConfiguration.ssh",
    "priority",
    "storageProfile.imageReference",
    "storageProfile.osDisk.name",
    "virtualMachineScaleSet",
)
"""What no VM can change; customData and zones are compared on their own."""


class Launcher:
    def __init__(
        self,
        context: Context,
        operations: Operations,
        machines: Machines,
        interfaces: Interfaces,
        disks: Disks,
        images: Images,
        quotas: Quotas,
    ) -> None:
        self._context = context
        self._operations = operations
        self._machines = machines
        self._interfaces = interfaces
        self._images = images
        self._quotas = quotas
        self._storage = StorageReader(context, disks, images)
        self._attachments = InterfaceReader(interfaces)

    # -------------------------------------------------------------------------------------------- operations

    def create_or_update(self, call: ArmCall) -> Answer:
        id = call.id(VMS)
        check_name(VMS, id.name)
        existing = self._machines.store.records.get(id.key)
        check_conditions(call, existing)
        location = check_location(call, self._context, existing)
        if existing is not None:
            machine = self._change(call, existing, call.body, read_tags(call.body))
            return self._answer(call, machine, "update", 200)
        return self._answer(call, self._create(call, id, location), "create", 201)

    def update(self, call: ArmCall) -> Answer:
        """A body that says only what changes: objects are merged, lists and tags replaced."""
        machine = self._machines.store.find(call.id(VMS))
        check_conditions(call, machine)
        before = {"properties": machine.properties, "identity": machine.identity}
        body = _merged(before, {k: v for k, v in call.body.items() if k != "tags"})
        tags = read_tags(call.body) if "tags" in call.body else dict(machine.tags)
        return self._answer(call, self._change(call, machine, body, tags), "update", 200)

    def failed(self, call: ArmCall) -> None:
        """Notes a creation that was refused at once: its NICs are reserved for the VM all the same."""
        profile = (call.body.get("properties") or {}).get("networkProfile") or {}
        nics = [n["id"] for n in profile.get("networkInterfaces") or [] if isinstance(n.get("id"), str)]
        if call.id(VMS).key not in self._machines.store.records:
            self._interfaces.reserve(nics, str(call.id(VMS)))

    def _answer(self, call: ArmCall, machine: Machine, verb: str, status: int) -> Answer:
        operation = self._machines.begin(machine, verb, call.fails)
        changed = [machine.id, *(n["id"] for n in machine.interfaces), *(d["managedDisk"]["id"] for d in machine.disks)]
        headers = {**self._operations.links(operation, call), "ETag": machine.etag}
        del headers["Location"]  # a PUT is polled by its operation, and read at its own address
        return Answer(
            status, self._machines.row(machine, written=True), headers, changed if verb == "create" else [machine.id]
        )

    # ------------------------------------------------------------------------------------------------- making

    def _create(self, call: ArmCall, id: Id, location: str) -> Machine:
        world, body = self._context.world, call.body
        tags, zones, given = read_tags(body), read_zones(body, self._context), body.get("properties") or {}
        properties = {k: copy.deepcopy(v) for k, v in given.items() if v is not None}
        size_name, size = read_size(properties, world)
        check_placement(id, zones, properties, (size_name, size), self._context)
        check_spot(properties)
        identity = read_identity(body.get("identity"), world)
        storage = self._storage.read(id, zones, properties.get("storageProfile") or {}, size, None)
        reference = properties["storageProfile"].get("imageReference") or {}
        self._images.check_plan(id.subscription, self._images.platform(reference), body.get("plan"))
        os_profile, custom_data = read_os_profile(id, properties.get("osProfile") or {})
        interfaces = self._attachments.read(id, properties.get("networkProfile") or {}, size, None)
        self._quotas.check(id.subscription, size, bool(properties.get("priority") in ("Spot", "Low")))
        properties |= {
            "hardwareProfile": {"vmSize": size_name},
            "storageProfile": storage.profile,
            "osProfile": os_profile,
            "networkProfile": {"networkInterfaces": interfaces},
        }
        machine = Machine(
            id=str(id),
            created=self._context.created(),
            location=location,
            zones=zones,
            properties=properties,
            identity=identity,
            plan=body.get("plan"),
            custom_data=custom_data,
            vm_id=str(uuid.uuid4()),
        )
        machine.write_tags(tags, self._context.tagged())
        machine.touch()
        self._machines.store.records[machine.key] = machine
        self._storage.make(storage, machine, [], tags)
        self._interfaces.attach(interfaces, machine.id, [])
        return machine

    def _change(self, call: ArmCall, machine: Machine, body: Row, tags: dict[str, str]) -> Machine:
        if machine.provisioning == "Deleting":
            raise ArmError(
                "OperationNotAllowed",
                f"Operation '{call.operation}' is not allowed on VM '{machine.name}' since the VM is marked for "
                "deletion. "
                "You can only retry the Delete operation (or wait for an ongoing one to complete).",
            )
        id, given = machine.parts, body.get("properties") or {}
        check_unchanged(machine.properties, given, FIXED)
        self._check_fixed(machine, body, given)
        size_name, size = read_size({**machine.properties, **given}, self._context.world)
        profile = given.get("storageProfile") or machine.properties["storageProfile"]
        storage = self._storage.read(id, machine.zones, profile, size, machine)
        nics = given.get("networkProfile") or machine.properties["networkProfile"]
        interfaces = self._attachments.read(id, nics, size, machine)
        if size_name != machine.size:
            self._quotas.check(id.subscription, size, machine.spot, replaced=machine)
        before, had = machine.disks, machine.interfaces
        machine.properties = {
            **machine.properties,
            **{k: copy.deepcopy(v) for k, v in given.items() if k in ("diagnosticsProfile", "capacityReservation")},
            "hardwareProfile": {"vmSize": size_name},
            "storageProfile": storage.profile,
            "networkProfile": {"networkInterfaces": interfaces},
        }
        if "identity" in body:
            machine.identity = read_identity(body["identity"], self._context.world)
        machine.write_tags(tags, self._context.tagged())
        machine.touch()
        self._storage.make(storage, machine, before, tags)
        self._interfaces.attach(interfaces, machine.id, had)
        return machine

    @staticmethod
    def _check_fixed(machine: Machine, body: Row, given: Row) -> None:
        custom_data = (given.get("osProfile") or {}).get("customData")
        changed = {
            "osProfile.customData": custom_data is not None and custom_data != machine.custom_data,
            "zones": body.get("zones") is not None and [str(z) for z in body["zones"]] != machine.zones,
        }
        for name, is_changed in changed.items():
            if is_changed:
                raise ArmError("PropertyChangeNotAllowed", f"Changing property '{name}' is not allowed.", target=name)


def _merged(before: object, after: object) -> Row:
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    merged = dict(before)
    for key, value in after.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged

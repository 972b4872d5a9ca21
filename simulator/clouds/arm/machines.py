"""Virtual machines: their states in time and what reads say of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.disks import Disks
from simulator.clouds.arm.errors import STARTED, ArmError
from simulator.clouds.arm.identifiers import VMS, key_of
from simulator.clouds.arm.interfaces import Interfaces
from simulator.clouds.arm.operations import Operation, Operations
from simulator.clouds.arm.resources import ArmResource, ArmStore
from simulator.clouds.arm.wire import Row, timestamp

MachineState = Literal["none", "starting", "running", "stopping", "stopped", "deallocating", "deallocated"]

OFF: dict[str, MachineState] = {"powerOff": "stopped", "deallocate": "deallocated", "evict": "deallocated"}
"""The power after operations that end it."""


class Machine(ArmResource):
    properties: dict[str, Any] = Field(default_factory=dict)
    """As they were written, completed, without secrets."""
    identity: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    custom_data: str = ""
    """Base64, as it was given."""
    vm_id: str
    version: int = 1
    power: MachineState = "none"
    runs_at: float | None = None
    """When it will have booted, in seconds since the epoch."""
    failure: str = ""
    """The code of the error with which its last operation ended."""
    failure_message: str = ""
    console: str = ""
    impaired: bool = False

    @property
    def size(self) -> str:
        return str(self.properties["hardwareProfile"]["vmSize"])

    @property
    def computer_name(self) -> str:
        return str((self.properties.get("osProfile") or {}).get("computerName") or self.name)

    @property
    def spot(self) -> bool:
        return self.properties.get("priority") in ("Spot", "Low")

    @property
    def eviction(self) -> str:
        return str(self.properties.get("evictionPolicy", "Deallocate"))

    @property
    def interfaces(self) -> list[Row]:
        return list((self.properties.get("networkProfile") or {}).get("networkInterfaces") or [])

    @property
    def disks(self) -> list[Row]:
        """OS and data disks, as the storage profile has them."""
        storage = self.properties["storageProfile"]
        return [storage["osDisk"], *storage.get("dataDisks", [])]

    def touch(self) -> None:
        self.version += bool(self.etag)
        self.etag = f'"{self.version}"'


class Gone(BaseModel):
    """What is remembered of a VM that is gone."""

    id: str
    vm_id: str
    tags: dict[str, str]
    at: float


class Machines:
    """All virtual machines. `changed` is called after each change of a state, and with `gone` at the end."""

    def __init__(self, context: Context, operations: Operations, interfaces: Interfaces, disks: Disks) -> None:
        self._context = context
        self._operations = operations
        self._interfaces = interfaces
        self._disks = disks
        self.store: ArmStore[Machine] = ArmStore(context, VMS)
        self.gone: dict[str, Gone] = {}
        """VMs that are gone, by vmId."""
        self.changed: Callable[[Machine, bool], None] = lambda machine, gone: None

    def named(self, vm: str) -> Machine | None:
        """A VM by its vmId, its id, or its name."""
        wanted = vm.lower()
        for machine in self.store.records.values():
            if wanted in (machine.vm_id, machine.key, machine.name.lower()):
                return machine
        return None

    # -------------------------------------------------------------------------------------------------- time

    def settle(self) -> None:
        """Lets those run that have booted."""
        now = time.time()
        for machine in [m for m in self.store.records.values() if m.runs_at is not None and m.runs_at <= now]:
            if machine.runs_at is not None:
                self.enter(machine, "running")

    def next_due(self) -> float | None:
        return min((m.runs_at for m in self.store.records.values() if m.runs_at is not None), default=None)

    def fast_forward(self) -> None:
        for machine in [m for m in self.store.records.values() if m.runs_at is not None]:
            self.enter(machine, "running")

    def _boot(self, machine: Machine) -> None:
        if self._context.delays.boot:
            machine.runs_at = time.time() + self._context.delays.boot
            self._context.wake()
        else:
            self.enter(machine, "running")

    def enter(self, machine: Machine, power: MachineState) -> None:
        machine.runs_at = None
        if machine.power != power:
            machine.power = power
            for disk in self._disks.of(machine.disks):
                disk.running = power != "deallocated"
            self.changed(machine, False)

    def begin(self, machine: Machine, verb: str, fails: ArmError | None = None) -> Operation:
        """Begins what takes time; what went on is preempted."""
        delays = self._context.delays
        slow = {"create": delays.create, "start": delays.create, "restart": delays.create, "update": delays.resource}
        delay = slow.get(verb, delays.terminate)
        going = self._operations.going(machine.key)
        if going is not None and going.verb == "create" and verb in ("create", "update"):
            # The VM is still being made: what replaces the operation has the rest of it to do.
            verb, delay = "create", max(0.0, going.due - time.time())
        states: dict[str, Literal["Creating", "Deleting"]] = {"create": "Creating", "delete": "Deleting"}
        machine.provisioning = states.get(verb, "Updating")
        operation = self._operations.begin(verb, machine.key, delay, fails)
        on_the_way: dict[str, MachineState] = {
            "create": "starting",
            "start": "starting",
            "restart": "starting",
            "powerOff": "stopping",
            "deallocate": "deallocating",
            "delete": "stopping",
        }
        if verb in on_the_way and not (verb == "delete" and machine.power in ("none", "stopped", "deallocated")):
            self.enter(machine, on_the_way[verb])
        self._operations.settle()
        return operation

    def finish(self, operation: Operation) -> None:
        machine = self.store.records.get(operation.target)
        if machine is None:
            return
        verb, code = operation.verb, operation.error["code"] if operation.error else ""
        machine.failure = code
        machine.failure_message = operation.error["message"] if operation.error else ""
        if code:
            machine.provisioning = "Failed"
            if verb in ("create", "start", "restart"):
                self.enter(machine, "running" if code in STARTED else "none" if verb == "create" else "deallocated")
            if verb == "create" and code not in STARTED:
                self._interfaces.reserve((n["id"] for n in machine.interfaces), machine.id)
            return
        if verb == "delete":
            self.end(machine)
            return
        machine.provisioning = "Succeeded"
        if verb in ("create", "start", "restart"):
            self._boot(machine)
        elif verb in OFF:
            self.enter(machine, OFF[verb])

    def end(self, machine: Machine) -> None:
        """The VM is gone, and with it what goes with it."""
        doomed = {key_of(d["managedDisk"]["id"]) for d in machine.disks if d.get("deleteOption", "Detach") == "Delete"}
        del self.store.records[machine.key]
        now = time.time()
        self.gone = {k: g for k, g in self.gone.items() if g.at + self._context.delays.gone_visible > now}
        self.gone[machine.vm_id] = Gone(id=machine.id, vm_id=machine.vm_id, tags=machine.tags, at=now)
        self._operations.forget_target(machine.key)
        self._interfaces.release(machine.interfaces)
        self._disks.release(machine.disks, doomed)
        self.changed(machine, True)

    def evict(self, machine: Machine) -> None:
        """Azure takes a Spot VM back: it is deallocated, or deleted, by its policy."""
        if machine.eviction == "Delete":
            self.end(machine)
        else:
            self._operations.preempt(machine.key)
            machine.provisioning = "Succeeded"
            self.enter(machine, "deallocated")

    # -------------------------------------------------------------------------------------------------- rows

    def row(self, machine: Machine, view: bool = False, written: bool = False) -> Row:
        properties = copy.deepcopy(machine.properties)
        for disk in [properties["storageProfile"]["osDisk"], *properties["storageProfile"].get("dataDisks", [])]:
            # Compute tells the ids of disks with the group in capitals, whatever its spelling elsewhere.
            disk["managedDisk"]["id"] = _loud(disk["managedDisk"]["id"])
        properties |= {
            "vmId": machine.vm_id,
            "provisioningState": machine.provisioning,
            "timeCreated": timestamp(machine.created.at),
        }
        if view:
            properties["instanceView"] = self.view(machine)
        row: Row = {**self.store.head(machine, written), "etag": machine.etag, "properties": properties}
        if machine.identity:
            row["identity"] = copy.deepcopy(machine.identity)
        if machine.plan:
            row["plan"] = dict(machine.plan)
        return row

    def view(self, machine: Machine) -> Row:
        code = f"ProvisioningState/{machine.provisioning.lower()}"
        if machine.provisioning == "Failed":
            code += f"/{machine.failure}"
        level = "Error" if machine.provisioning == "Failed" else "Info"
        shown = f"Provisioning {machine.provisioning.lower()}"
        statuses: list[Row] = [{"code": code, "level": level, "displayStatus": shown}]
        if machine.failure:
            statuses[0]["message"] = machine.failure_message
        if machine.power != "none":
            statuses.append(
                {"code": f"PowerState/{machine.power}", "level": "Info", "displayStatus": f"VM {machine.power}"}
            )
        view: Row = {"statuses": statuses, "hyperVGeneration": "V2", "computerName": machine.computer_name}
        if machine.power == "running":
            state, level = ("Not Ready", "Warning") if machine.impaired else ("Ready", "Info")
            code = "ProvisioningState/Unavailable" if machine.impaired else "ProvisioningState/succeeded"
            agent = {"code": code, "level": level, "displayStatus": state}
            view["vmAgent"] = {"vmAgentVersion": "2.15.0.1", "statuses": [agent]}
        return view

    def holding(self, subscription: str) -> list[Machine]:
        """The VMs of a subscription that hold vCPUs: those that are deallocated hold none."""
        head = f"/subscriptions/{subscription}/".lower()
        every = self.store.records.items()
        return [m for k, m in every if k.startswith(head) and m.power not in ("none", "deallocated")]


def _loud(disk_id: str) -> str:
    parts = disk_id.split("/")
    parts[4] = parts[4].upper()
    return "/".join(parts)

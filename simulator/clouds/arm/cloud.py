"""The simulated Azure without its wire: its parts put together, time, and what tests and the hypervisor see."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.clouds import CloudResource
from simulator.clouds.arm.anything import Anything
from simulator.clouds.arm.auth import ArmAuthenticator, Client, Token
from simulator.clouds.arm.context import Context, Delays
from simulator.clouds.arm.disks import Disk, Disks
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.graph import Graph
from simulator.clouds.arm.groups import Group, Groups
from simulator.clouds.arm.images import Images
from simulator.clouds.arm.interfaces import Interface, Interfaces
from simulator.clouds.arm.launch import Launcher
from simulator.clouds.arm.machines import Gone, Machine, Machines, MachineState
from simulator.clouds.arm.network import Networks, VirtualNetwork
from simulator.clouds.arm.operations import Operation, Operations
from simulator.clouds.arm.places import Places
from simulator.clouds.arm.power import MachinePower
from simulator.clouds.arm.quotas import Quotas
from simulator.clouds.arm.resources import ArmResource
from simulator.clouds.arm.wire import Answer, ArmCall, Row
from simulator.clouds.arm.world import World
from simulator.clouds.base import SimulatedCloud, dumped
from simulator.frame import Frame
from simulator.kubelet.machine import Power, Size

SERVICE = "arm"
"""The name in fault rules and the journal."""
ARCHITECTURES = {"x64": "amd64", "Arm64": "arm64"}
POWERS: dict[MachineState, Power] = {"running": Power.ON}
"""In any other state a VM is off for its kubelet."""


@dataclass(frozen=True)
class ArmVm:
    """A VM as its hypervisor knows it: the truth, without any lag."""

    instance_id: str
    """vmId."""
    id: str
    name: str
    power: Power
    private_dns_name: str
    private_ip: str
    zone: str
    region: str
    instance_type: str
    size: Size
    user_data: bytes
    tags: dict[str, str]

    @property
    def provider_id(self) -> str:
        """The providerID as the cloud's controller manager writes it: the resource's id, with the group in lower
        case."""
        parts = self.id.split("/")
        parts[4] = parts[4].lower()
        return f"azure://{'/'.join(parts)}"


class ArmCloud(SimulatedCloud[ArmVm]):
    """The simulated subscriptions."""

    service = SERVICE

    def __init__(self, frame: Frame, *, world: World | None = None, delays: Delays | None = None) -> None:
        super().__init__(frame)
        self.world = world or World()
        self.settings = Context(frame, self.world, delays or Delays(), wake=self._wake.set)
        """Its delays may be changed at any time; they count for the next operation."""
        self._operations = Operations(self.settings)
        self._operations.finish = self._finish
        self._groups = Groups(self.settings, self._operations)
        self._groups.slowest = self._slowest
        self._images = Images(self.settings)
        self._networks = Networks(self.settings, self._operations)
        self._interfaces = Interfaces(self.settings, self._operations, self._networks)
        self._disks = Disks(self.settings, self._operations, self._images)
        self._machines = Machines(self.settings, self._operations, self._interfaces, self._disks)
        self._machines.changed = self._notify
        self._interfaces.accelerates = self._accelerates
        self.quotas = Quotas(self.settings, self._machines)
        self._launcher = Launcher(
            self.settings,
            self._operations,
            self._machines,
            self._interfaces,
            self._disks,
            self._images,
            self.quotas,
        )
        self.authenticator = ArmAuthenticator(self.world)
        self.operations = self._handlers()
        self._seeds: list[str] = []
        self._seed()

    def _handlers(self) -> Mapping[str, Callable[[ArmCall], Answer]]:
        power = MachinePower(self.settings, self._operations, self._machines)
        graph = Graph(self._graph_rows, self._may_open)
        places = Places(self.settings)
        anything = Anything(self.settings, self._stores())
        groups, disks = self._groups, self._disks
        networks, interfaces = self._networks, self._interfaces
        return {
            "Subscriptions_Get": groups.get_subscription,
            "ResourceGroups_Get": groups.get,
            "ResourceGroups_CheckExistence": groups.check_existence,
            "ResourceGroups_CreateOrUpdate": groups.create_or_update,
            "ResourceGroups_Delete": groups.delete,
            "Resources_List": anything.list_resources,
            "Resources_ListByResourceGroup": anything.list_resources,
            "Tags_GetAtScope": anything.get_tags,
            "Tags_UpdateAtScope": anything.update_tags,
            "VirtualMachines_Get": power.get,
            "VirtualMachines_CreateOrUpdate": self._launcher.create_or_update,
            "VirtualMachines_Update": self._launcher.update,
            "VirtualMachines_Delete": power.delete,
            "VirtualMachines_List": power.list_machines,
            "VirtualMachines_ListAll": power.list_all,
            "VirtualMachines_InstanceView": power.view,
            "VirtualMachines_Start": power.start,
            "VirtualMachines_PowerOff": power.power_off,
            "VirtualMachines_Deallocate": power.deallocate,
            "VirtualMachines_Restart": power.restart,
            "VirtualMachines_SimulateEviction": power.simulate_eviction,
            "VirtualMachines_RetrieveBootDiagnosticsData": power.boot_diagnostics,
            "Disks_Get": disks.get,
            "Disks_CreateOrUpdate": disks.create_or_update,
            "Disks_Update": disks.update,
            "Disks_Delete": disks.delete,
            "Disks_ListByResourceGroup": disks.list_all,
            "Disks_List": disks.list_all,
            "NetworkInterfaces_Get": interfaces.get,
            "NetworkInterfaces_CreateOrUpdate": interfaces.create_or_update,
            "NetworkInterfaces_UpdateTags": interfaces.update_tags,
            "NetworkInterfaces_Delete": interfaces.delete,
            "NetworkInterfaces_List": interfaces.list_all,
            "NetworkInterfaces_ListAll": interfaces.list_all,
            "VirtualNetworks_Get": networks.get,
            "VirtualNetworks_CreateOrUpdate": networks.create_or_update,
            "VirtualNetworks_Delete": networks.delete,
            "VirtualNetworks_List": networks.list_all,
            "Subnets_Get": networks.get_subnet,
            "Subnets_List": networks.list_subnets,
            "ResourceSkus_List": self.quotas.list_skus,
            "Usage_List": self.quotas.list_usage,
            "VirtualMachineImages_Get": self._images.get_image,
            "VirtualMachineImages_List": self._images.list_versions,
            "MarketplaceAgreements_Get": self._images.get_agreement,
            "MarketplaceAgreements_Create": self._images.create_agreement,
            "AvailabilitySets_Get": places.get_availability_set,
            "VirtualMachineScaleSets_Get": places.get_scale_set,
            "ResourceGraph_Resources": graph.resources,
            "Operations_Get": self._operations.get_status,
            "Operations_Result": self._operations.get_result,
        }

    def _stores(self) -> list[Any]:
        return [self._machines.store, self._disks.store, self._interfaces.store, self._networks.store]

    def _seed(self) -> None:
        """What the world holds and nobody here has seen before: what calls delete does not come back."""
        for subscription in self.world.subscriptions:
            for group in self.world.groups:
                if self._new(f"{subscription}/{group}"):
                    self._groups.seed(subscription, group)
            for network in self.world.networks:
                if self._new(f"{subscription}/{network.group}/{network.name}"):
                    self._networks.seed(subscription, network)

    def _new(self, seed: str) -> bool:
        if seed in self._seeds:
            return False
        self._seeds.append(seed)
        return True

    def handle(self, call: ArmCall, client_id: str) -> Answer:
        """Works on one call of an application. Raises ArmError."""
        if call.subscription:
            self.authenticator.check(client_id, call.subscription, call.operation)
        self.settle()
        if call.group and not call.operation.startswith("ResourceGroups_"):
            if call.operation.endswith("_CreateOrUpdate"):
                self._groups.check_writable(call)
            else:
                self._groups.check(call)
        return self.operations[call.operation](call)

    def launch_failed(self, call: ArmCall) -> None:
        """Notes a VirtualMachines_CreateOrUpdate that was refused: its NICs are reserved for the VM all the same."""
        self._launcher.failed(call)

    def _may_open(self, call: ArmCall, subscription: str) -> None:
        self.authenticator.check(call.path["client"], subscription, call.operation)

    def _graph_rows(self, subscription: str) -> Iterable[Row]:
        whole = ArmCall("", {"subscription": subscription})
        for machine in self._machines.store.listed(whole):
            row = self._machines.row(machine)
            view = {"powerState": {"code": f"PowerState/{machine.power}", "displayStatus": f"VM {machine.power}"}}
            row["properties"]["extended"] = {"instanceView": view if machine.power != "none" else {}}
            yield row
        yield from map(self._disks.row, self._disks.store.listed(whole))
        yield from map(self._interfaces.row, self._interfaces.store.listed(whole))
        yield from map(self._networks.row, self._networks.store.listed(whole))

    def _accelerates(self, vm_id: str) -> bool:
        machine = self._machines.store.records.get(vm_id.lower())
        size = self.world.size(machine.size) if machine else None
        return size is None or size[1].accelerated_networking

    # -------------------------------------------------------------------------------------------------- time

    def settle(self) -> None:
        """Ends every operation whose time has come."""
        self._operations.settle()
        self._machines.settle()

    def _due(self) -> Iterable[float | None]:
        return self._operations.next_due(), self._machines.next_due()

    def fast_forward(self) -> None:
        """Ends every operation that goes on, and every reservation, now."""
        self._operations.fast_forward()
        self._machines.fast_forward()
        self._interfaces.fast_forward()

    def _finish(self, operation: Operation) -> None:
        if "/providers/" not in operation.target:
            self._drop_group(operation.target)
        elif operation.target in self._machines.store.records:
            self._machines.finish(operation)
        elif operation.target in self._disks.store.records:
            self._disks.finish(operation)
        elif operation.target in self._interfaces.store.records:
            self._interfaces.finish(operation)
        else:
            self._networks.finish(operation)

    def _slowest(self, group: str) -> float:
        delays, inside = self.settings.delays, f"{group}/"
        return delays.terminate if any(k.startswith(inside) for k in self._machines.store.records) else delays.resource

    def _drop_group(self, group: str) -> None:
        inside = f"{group}/"
        for machine in [m for k, m in self._machines.store.records.items() if k.startswith(inside)]:
            self._machines.end(machine)
        for key in [k for k in self._disks.store.records if k.startswith(inside)]:
            self._disks.drop(key)
        for key in [k for k in self._interfaces.store.records if k.startswith(inside)]:
            self._interfaces.drop(key)
        for key in [k for k in self._networks.store.records if k.startswith(inside)]:
            self._networks.drop(key)
        self._groups.finish_delete(group)

    # ------------------------------------------------------------------------------------- behind the curtain

    def machines(self) -> list[ArmVm]:
        self.settle()
        return [self._vm(m) for m in self._machines.store.records.values()]

    def _living(self) -> Iterable[ArmVm]:
        return self.machines()

    def has_vm(self, instance_id: str) -> bool:
        """Whether there is such a VM, also by its name or its id: the last part of a VM's providerID is its name."""
        self.settle()
        return instance_id in self._machines.gone or self._machines.named(instance_id) is not None

    def resources(self) -> list[CloudResource]:
        """VMs that are gone are remembered for an hour."""
        self.settle()
        return [
            *(CloudResource(m.vm_id, "virtualMachines", dict(m.tags), vm=True) for m in self._all_machines()),
            *(
                CloudResource(g.vm_id, "virtualMachines", dict(g.tags), vm=True, gone=True)
                for g in self._machines.gone.values()
            ),
            *(CloudResource(d.id, "disks", dict(d.tags)) for d in self._disks.store.records.values()),
            *(CloudResource(n.id, "networkInterfaces", dict(n.tags)) for n in self._interfaces.store.records.values()),
        ]

    def _all_machines(self) -> Iterable[Machine]:
        return self._machines.store.records.values()

    def console(self, instance_id: str) -> str:
        return self._find(instance_id).console

    def set_console(self, instance_id: str, text: str) -> None:
        """Appends to the serial console's log, which boot diagnostics show."""
        self._find(instance_id).console += text

    def impair(self, instance_id: str, impaired: bool) -> None:
        """Makes the VM's agent stop reporting, or report again."""
        self._find(instance_id).impaired = impaired

    def kill(self, instance_id: str) -> None:
        """The VM dies behind everyone's back: deleted at once, with what goes with it."""
        if instance_id not in self._machines.gone:
            self._machines.end(self._find(instance_id))

    def tag(self, resource_id: str, tags: dict[str, str]) -> None:
        self.settle()
        stores = (self._machines.store, self._disks.store, self._interfaces.store)
        every: Iterable[ArmResource] = (r for store in stores for r in store.records.values())
        resource = next(r for r in every if resource_id in (r.id, getattr(r, "vm_id", r.id)))
        resource.write_tags({**resource.tags, **tags}, self.settings.tagged())

    def evict(self, instance_id: str) -> None:
        """Azure takes a Spot VM back."""
        self._machines.evict(self._find(instance_id))

    def _find(self, instance_id: str) -> Machine:
        self.settle()
        machine = self._machines.named(instance_id)
        if machine is None:
            raise ArmError("ResourceNotFound", f"There is no VM {instance_id}.")
        return machine

    def _notify(self, machine: Machine, gone: bool) -> None:
        self._tell(self._vm(machine, gone))

    def _vm(self, machine: Machine, gone: bool = False) -> ArmVm:
        nics = (self._interfaces.store.records.get(n["id"].lower()) for n in machine.interfaces)
        primary = next((n for n in nics if n is not None and (n.primary or len(machine.interfaces) == 1)), None)
        return ArmVm(
            instance_id=machine.vm_id,
            id=machine.id,
            name=machine.name,
            power=Power.GONE if gone else POWERS.get(machine.power, Power.OFF),
            private_dns_name=machine.computer_name.lower(),
            private_ip=primary.private_ip if primary else "",
            # A VM without a zone has its fault domain there (cloud-provider-azure).
            zone=f"{machine.location}-{machine.zones[0]}" if machine.zones else "0",
            region=machine.location,
            instance_type=machine.size,
            size=self._size(machine.size),
            user_data=base64.b64decode(machine.custom_data),
            tags=dict(machine.tags),
        )

    def _size(self, name: str) -> Size:
        found = self.world.size(name)
        if found is None:  # of a world that this state was saved in
            return Size()
        size = found[1]
        architecture = ARCHITECTURES[size.architecture]
        return Size(cpus=size.vcpus, memory_mib=int(size.memory_gib * 1024), architecture=architecture)

    # ------------------------------------------------------------------------------------------------- state

    def dump(self) -> dict[str, Any]:
        """Everything that calls have made, fit for JSON. The world and the delays are not part of it."""
        return {
            "seeds": list(self._seeds),
            "groups": dumped(self._groups.records),
            "virtualNetworks": dumped(self._networks.store.records),
            "networkInterfaces": dumped(self._interfaces.store.records),
            "disks": dumped(self._disks.store.records),
            "virtualMachines": dumped(self._machines.store.records),
            "gone": dumped(self._machines.gone),
            "operations": dumped(self._operations.records),
            "acceptedPlans": {k: list(v) for k, v in self._images.accepted.items()},
            "clients": dumped(self.authenticator.clients),
            "tokens": dumped(self.authenticator.tokens),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes over what `dump` gave, in place of everything here; subscribers hear of every living VM."""
        self._groups.records = {k: Group.model_validate(v) for k, v in state["groups"].items()}
        networks, interfaces = self._networks.store, self._interfaces.store
        networks.records = {k: VirtualNetwork.model_validate(v) for k, v in state["virtualNetworks"].items()}
        interfaces.records = {k: Interface.model_validate(v) for k, v in state["networkInterfaces"].items()}
        self._disks.store.records = {k: Disk.model_validate(v) for k, v in state["disks"].items()}
        self._machines.store.records = {k: Machine.model_validate(v) for k, v in state["virtualMachines"].items()}
        self._machines.gone = {k: Gone.model_validate(v) for k, v in state["gone"].items()}
        self._operations.restore({k: Operation.model_validate(v) for k, v in state["operations"].items()})
        self._images.accepted = {k: list(v) for k, v in state["acceptedPlans"].items()}
        self.authenticator.clients = {k: Client.model_validate(v) for k, v in state["clients"].items()}
        self.authenticator.tokens = {k: Token.model_validate(v) for k, v in state["tokens"].items()}
        self._seeds = list(state["seeds"])
        self._seed()
        self._wake.set()
        for machine in list(self._all_machines()):
            self._notify(machine, gone=False)

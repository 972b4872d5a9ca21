"""The network interfaces of a VM's body: all of them exist, are free, and fit its size."""

from __future__ import annotations

from simulator.clouds.arm.errors import ArmError, invalid
from simulator.clouds.arm.identifiers import NICS, Id, key_of, parse_as
from simulator.clouds.arm.interfaces import Interfaces
from simulator.clouds.arm.machines import Machine
from simulator.clouds.arm.network import not_provisioned
from simulator.clouds.arm.wire import Row
from simulator.clouds.arm.world import VmSize


class InterfaceReader:
    def __init__(self, interfaces: Interfaces) -> None:
        self._interfaces = interfaces

    def read(self, vm: Id, profile: Row, size: VmSize, before: Machine | None) -> list[Row]:
        """The references as they are answered."""
        given = profile.get("networkInterfaces") or []
        if not given:
            raise invalid("networkProfile", "Required parameter 'networkProfile' is missing (null).")
        if len(given) > size.nics:
            raise ArmError(
                "NetworkInterfaceCountExceeded",
                f"The number of network interfaces for virtual machine {vm.name} exceeds the maximum allowed for the "
                f"virtual machine size. The number of network interfaces is {len(given)} and the maximum allowed is "
                f"{size.nics}.",
            )
        primary = [n for n in given if (n.get("properties") or {}).get("primary")]
        if len(given) > 1 and len(primary) != 1:
            raise ArmError(
                "VirtualMachineMustHaveOneNetworkInterfaceAsPrimary",
                f"Virtual machine {vm.name} must have one network interface set as the primary.",
            )
        has = {key_of(n["id"]) for n in before.interfaces} if before else set()
        for nic in given:
            self._check(vm, parse_as(NICS, nic.get("id")), size, key_of(str(nic["id"])) in has)
        return [dict(n) for n in given]

    def _check(self, vm: Id, id: Id, size: VmSize, has_it: bool) -> None:
        nic = self._interfaces.store.records.get(id.key)
        if nic is None:
            raise ArmError("NotFound", f"Resource {id} not found.")
        if nic.vm_id and key_of(nic.vm_id) != vm.key:
            raise ArmError(
                "NicInUse",
                f"Network Interface {nic.id} is used by existing resource {nic.vm_id}, and cannot be used by "
                f"{vm}, too.",
            )
        self._interfaces.check_reserved(nic, str(vm))
        if not has_it and nic.provisioning != "Succeeded":
            raise not_provisioned(nic.id, str(vm), nic.provisioning)
        if nic.accelerated and not size.accelerated_networking:
            raise ArmError(
                "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
                f"VM {vm.name} with its size cannot have {nic.id}, on which accelerated networking is enabled.",
            )

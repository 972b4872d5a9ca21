"""Sizes of VMs, and how many vCPUs a subscription may have of them."""

from __future__ import annotations

from collections import defaultdict

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.machines import Machine, Machines
from simulator.clouds.arm.wire import Answer, ArmCall, Row, page
from simulator.clouds.arm.world import VmSize

ALL = "cores"
SPOT = "lowPriorityCores"


class Quotas:
    def __init__(self, context: Context, machines: Machines) -> None:
        self._context = context
        self._machines = machines
        self.limits: dict[str, int] = {}
        """Limits by quota that replace the world's."""

    def check(self, subscription: str, size: VmSize, spot: bool, replaced: Machine | None = None) -> None:
        """Whether there is room for one more VM of this size. Raises OperationNotAllowed, with the numbers."""
        used = self.used(subscription, replaced)
        for quota in (SPOT,) if spot else (size.family, ALL):
            limit = self.limit(quota)
            if used[quota] + size.vcpus > limit:
                words = {ALL: "Total Regional Cores", SPOT: "LowPriorityCores"}.get(quota, f"{quota} Cores")
                raise ArmError(
                    "OperationNotAllowed",
                    f"Operation could not be completed as it results in exceeding approved {words} quota. Additional "
                    f"details - Deployment Model: Resource Manager, Location: {self._context.world.location}, Current "
                    f"Limit: {limit}, Current Usage: {used[quota]}, Additional Required: {size.vcpus}, (Minimum) New "
                    f"Limit Required: {used[quota] + size.vcpus}.",
                )

    def limit(self, quota: str) -> int:
        world = self._context.world
        if quota in self.limits:
            return self.limits[quota]
        if quota == SPOT:
            return world.low_priority_cores
        return world.family_cores.get(quota, world.cores)

    def used(self, subscription: str, replaced: Machine | None = None) -> dict[str, int]:
        """vCPUs by quota."""
        used: dict[str, int] = defaultdict(int)
        for machine in self._machines.holding(subscription):
            size = self._context.world.size(machine.size)
            if size is None or machine is replaced:  # of a world that this state was saved in
                continue
            for quota in (SPOT,) if machine.spot else (size[1].family, ALL):
                used[quota] += size[1].vcpus
        return used

    # -------------------------------------------------------------------------------------------- operations

    def list_usage(self, call: ArmCall) -> Answer:
        used = self.used(call.subscription)
        quotas = sorted({ALL, SPOT, *(s.family for s in self._context.world.sizes.values())})
        rows = [
            {
                "unit": "Count",
                "currentValue": used[quota],
                "limit": self.limit(quota),
                "name": {"value": quota, "localizedValue": quota},
            }
            for quota in quotas
        ]
        return Answer(body={"value": rows})

    def list_skus(self, call: ArmCall) -> Answer:
        """Sizes of VMs, which are some of all that Azure lists here; `$filter` takes the location alone, as there."""
        location = self._context.world.location
        wanted = call.query.get("$filter", f"location eq '{location}'")
        shown = wanted.replace('"', "'") == f"location eq '{location}'"
        sizes = list(self._context.world.sizes.items()) if shown else []
        return page(sizes, call, self._context.page, lambda s: s[0], lambda s: self._sku_row(*s))

    def _sku_row(self, name: str, size: VmSize) -> Row:
        location = self._context.world.location
        capabilities = {
            "vCPUs": size.vcpus,
            "MemoryGB": f"{size.memory_gib:g}",
            "MaxDataDiskCount": size.data_disks,
            "MaxNetworkInterfaces": size.nics,
            "CpuArchitectureType": size.architecture,
            "AcceleratedNetworkingEnabled": size.accelerated_networking,
            "PremiumIO": size.premium_disks,
        }
        return {
            "resourceType": "virtualMachines",
            "name": name,
            "family": size.family,
            "locations": [location],
            "locationInfo": [{"location": location, "zones": list(size.zones), "zoneDetails": []}],
            "capabilities": [{"name": k, "value": str(v)} for k, v in capabilities.items()],
            "restrictions": [],
        }

"""What a VM may belong to and nobody makes here: availability sets and Flexible scale sets."""

from __future__ import annotations

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import Id
from simulator.clouds.arm.wire import Answer, ArmCall, Row

AVAILABILITY_SETS = "Microsoft.Compute/availabilitySets"
SCALE_SETS = "Microsoft.Compute/virtualMachineScaleSets"


class Places:
    def __init__(self, context: Context) -> None:
        self._context = context

    def get_availability_set(self, call: ArmCall) -> Answer:
        row = self._row(call, AVAILABILITY_SETS, self._context.world.availability_sets)
        properties = {"platformFaultDomainCount": 3, "platformUpdateDomainCount": 5, "virtualMachines": []}
        return Answer(body={**row, "sku": {"name": "Aligned"}, "properties": properties})

    def get_scale_set(self, call: ArmCall) -> Answer:
        row = self._row(call, SCALE_SETS, self._context.world.scale_sets)
        properties = {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1, "provisioningState": "Succeeded"}
        return Answer(body={**row, "properties": properties})

    def _row(self, call: ArmCall, kind: str, known: tuple[str, ...]) -> Row:
        of = call.id(kind)
        world = self._context.world
        if of.group.lower() != world.groups[0].lower() or of.name.lower() not in {k.lower() for k in known}:
            raise ArmError(
                "ResourceNotFound", f"The Resource '{kind}/{of.name}' under resource group '{of.group}' was not found."
            )
        return self._head(of)

    def _head(self, of: Id) -> Row:
        return {"id": str(of), "name": of.name, "type": of.type, "location": self._context.world.location, "tags": {}}

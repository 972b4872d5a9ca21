"""Operations on VMs that exist: read, list, delete, start, power off, deallocate, evict, console."""

from __future__ import annotations

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, unsupported
from simulator.clouds.arm.identifiers import VMS
from simulator.clouds.arm.machines import Machine, Machines
from simulator.clouds.arm.operations import Operations
from simulator.clouds.arm.wire import Answer, ArmCall, page

CONSOLE_BYTES = 1024 * 1024
"""How much of the serial console's log is answered."""
CONSOLE_PATH = "/_console/"
"""Where the blobs of boot diagnostics are served."""


class MachinePower:
    def __init__(self, context: Context, operations: Operations, machines: Machines) -> None:
        self._context = context
        self._operations = operations
        self._machines = machines

    # ------------------------------------------------------------------------------------------------- reads

    def get(self, call: ArmCall) -> Answer:
        machine = self._find(call)
        expand = call.query.get("$expand", "").lower()
        if expand not in ("", "instanceview", "userdata"):
            raise unsupported(f"$expand '{call.query['$expand']}' of VMs")
        return Answer(body=self._machines.row(machine, expand == "instanceview"), headers={"ETag": machine.etag})

    def view(self, call: ArmCall) -> Answer:
        return Answer(body=self._machines.view(self._find(call)))

    def list_machines(self, call: ArmCall) -> Answer:
        """Lists a group's VMs without any state of power, which Azure adds to single scale sets alone."""
        for name in ("$filter", "$expand"):
            if name in call.query:
                raise unsupported(f"{name} of this listing")
        return self._list(call, view=False)

    def list_all(self, call: ArmCall) -> Answer:
        if "$filter" in call.query:
            raise unsupported("$filter of this listing")
        return self._list(call, view=call.query.get("statusOnly", "false").lower() == "true")

    def _list(self, call: ArmCall, view: bool) -> Answer:
        listed = self._machines.store.listed(call)
        return page(listed, call, self._context.page, lambda m: m.key, lambda m: self._machines.row(m, view))

    def boot_diagnostics(self, call: ArmCall) -> Answer:
        """Addresses of blobs, which need no token; only where the VM has boot diagnostics."""
        machine = self._find(call)
        diagnostics = (machine.properties.get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
        if not diagnostics.get("enabled"):
            raise ArmError(
                "BadRequest", f"Boot diagnostics is not enabled for VM '{machine.name}'.", target="bootDiagnostics"
            )
        blob = f"{call.base}{CONSOLE_PATH}{machine.vm_id}"
        return Answer(body={"consoleScreenshotBlobUri": f"{blob}.bmp", "serialConsoleLogBlobUri": f"{blob}.log"})

    # ------------------------------------------------------------------------------------------------ states

    def delete(self, call: ArmCall) -> Answer:
        """Idempotent; 204 once the VM is gone."""
        machine = self._machines.store.records.get(call.id(VMS).key)
        if machine is None:
            return Answer(204)
        operation = self._operations.going(machine.key)
        if operation is None or operation.verb != "delete":
            operation = self._machines.begin(machine, "delete", call.fails)
        return Answer(202, headers=self._operations.links(operation, call), changed=[machine.id])

    def start(self, call: ArmCall) -> Answer:
        return self._act(call, "start")

    def restart(self, call: ArmCall) -> Answer:
        return self._act(call, "restart")

    def power_off(self, call: ArmCall) -> Answer:
        """Its vCPUs are still held, and paid for."""
        return self._act(call, "powerOff")

    def deallocate(self, call: ArmCall) -> Answer:
        return self._act(call, "deallocate")

    def simulate_eviction(self, call: ArmCall) -> Answer:
        machine = self._find(call)
        if not machine.spot:
            raise ArmError("OperationNotAllowed", f"VM '{machine.name}' is not a Spot VM: it cannot be evicted.")
        self._machines.evict(machine)
        return Answer(204, changed=[machine.id])

    def _act(self, call: ArmCall, verb: str) -> Answer:
        machine = self._find(call)
        if machine.provisioning == "Deleting":
            raise ArmError(
                "OperationNotAllowed",
                f"Operation '{verb}' is not allowed on VM '{machine.name}' since the VM is marked for deletion.",
            )
        if machine.provisioning == "Creating" or machine.power == "none":
            raise ArmError(
                "OperationNotAllowed",
                f"Operation '{verb}' is not allowed on VM '{machine.name}' since the VM is not provisioned yet, or its "
                "provisioning has failed.",
            )
        operation = self._machines.begin(machine, verb, call.fails)
        return Answer(202, headers=self._operations.links(operation, call), changed=[machine.id])

    def _find(self, call: ArmCall) -> Machine:
        return self._machines.store.find(call.id(VMS))

"""What starts and ends instances: delete, stop, start, reset, preemption; and their console."""

from __future__ import annotations

from simulator.clouds.gce.context import Context, Row
from simulator.clouds.gce.errors import GceError, invalid
from simulator.clouds.gce.instances import Instance, Instances
from simulator.clouds.gce.methods import MethodCall
from simulator.clouds.gce.names import link
from simulator.clouds.gce.operations import Operation, Operations

CONSOLE_BYTES = 1024 * 1024
"""How much of a serial port's output is kept (Compute Engine documentation, *Serial port output*)."""
PREEMPTED = "compute.instances.preempted"


class InstancePower:
    def __init__(self, context: Context, operations: Operations, instances: Instances) -> None:
        self._context = context
        self._operations = operations
        self._instances = instances

    # -- calls

    def delete(self, call: MethodCall) -> Operation:
        """One that is being deleted already is deleted once more: the later operation ends with RESOURCE_NOT_FOUND."""
        instance = self._instances.find(call)
        if instance.protected:
            raise GceError(
                "invalidResourceUsage",
                "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.",
            )
        before = instance.status
        instance.deleting = True
        self._instances.enter(instance, "STOPPING")
        return self._begin("delete", call, instance, self._context.terminate_delay, before)

    def deleted(self, operation: Operation) -> None:
        instance = self._instances.target(operation)
        if operation.error is None:
            self._instances.remove(instance)
            return
        instance.deleting = False
        self._instances.enter(instance, operation.request["before"])

    def stop(self, call: MethodCall) -> Operation:
        instance = self._instances.find_changeable(call)
        before = instance.status
        if before != "TERMINATED":
            self._instances.enter(instance, "STOPPING")
        return self._begin("stop", call, instance, self._context.terminate_delay, before)

    def stopped(self, operation: Operation) -> None:
        instance = self._instances.target(operation)
        if not instance.deleting:
            self._instances.enter(instance, operation.request["before"] if operation.error else "TERMINATED")

    def start(self, call: MethodCall) -> Operation:
        """One that runs is left as it is."""
        instance = self._instances.find_changeable(call)
        before = instance.status
        if before == "STOPPING":
            raise GceError("resourceNotReady", f"The resource '{instance.path}' is not ready")
        if before == "TERMINATED":
            self._instances.enter(instance, "PROVISIONING")
        return self._begin("start", call, instance, self._context.insert_delay, before)

    def started(self, operation: Operation) -> None:
        instance = self._instances.target(operation)
        if instance.status in ("PROVISIONING", "STAGING"):
            if operation.error is None:
                self._instances.boot(instance)
            else:
                self._instances.enter(instance, operation.request["before"])

    def reset(self, call: MethodCall) -> Operation:
        instance = self._instances.find_changeable(call)
        if instance.status != "RUNNING":
            raise GceError("resourceNotReady", f"The resource '{instance.path}' is not ready")
        return self._begin("reset", call, instance, self._context.change_delay, instance.status)

    def _begin(self, kind: str, call: MethodCall, instance: Instance, delay: float, before: str) -> Operation:
        return self._operations.begin(
            kind, instance.path, instance.id, delay=delay, query=call.query, request={"before": before}
        )

    def get_serial_port_output(self, call: MethodCall) -> Row:
        """`start` is the position of the first byte that is wanted; a negative one counts from the end."""
        instance = self._instances.find(call)
        port, start = call.query.get("port", "1"), int(call.query.get("start", "0"))
        if port not in ("1", "2", "3", "4"):
            raise invalid("port", port, "Must be a value between 1 and 4.")
        text = instance.console.encode() if port == "1" else b""
        first = max(0, len(text) - CONSOLE_BYTES)
        start = max(first, start if start >= 0 else len(text) + start)
        return {
            "kind": "compute#serialPortOutput",
            "selfLink": link(f"{instance.path}/serialPort"),
            "contents": text[start:].decode(errors="replace"),
            "start": str(start),
            "next": str(len(text)),
        }

    # -- behind the curtain

    def kill(self, instance: Instance) -> None:
        """A spot or preemptible VM is preempted, as the cloud does; any other one is deleted, as a person does in the
        console. At once, whatever protects it."""
        if instance.scheduling["preemptible"]:
            self._operations.note(PREEMPTED, instance.path, instance.id, "Instance was preempted.")
            if instance.scheduling.get("instanceTerminationAction") != "DELETE":
                self._instances.enter(instance, "TERMINATED")
                return
        self._instances.remove(instance)

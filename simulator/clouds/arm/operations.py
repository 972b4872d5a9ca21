"""Long-running operations: what a call has begun, how it is polled, and how it ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.wire import Answer, ArmCall, timestamp

Status = Literal["InProgress", "Succeeded", "Failed", "Canceled"]

KEPT = 3600.0
"""Seconds that an operation can still be asked for after its end."""
LONGEST_POLL = 10
"""The seconds of Retry-After that Azure tells while an operation goes on."""
PREEMPTED = ("OperationPreempted", "Operation execution has been preempted by a more recent operation.")


class Operation(BaseModel):
    id: str
    verb: str
    """What happens to its resource at the end: create, update, delete, start, powerOff, deallocate, restart."""
    target: str
    """The key of the resource."""
    subscription: str
    namespace: str
    started: float
    due: float
    """Seconds since the epoch."""
    status: Status = "InProgress"
    ended: float | None = None
    error: dict[str, Any] | None = None
    """With what it will end, or has ended."""
    shown: bool = True
    """False for one that nobody was told of: it is only the time that a change takes."""

    @property
    def going(self) -> bool:
        return self.status == "InProgress"


class Operations:
    """All operations. `finish` does to a resource what the end of an operation means."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.records: dict[str, Operation] = {}
        self._going: dict[str, str] = {}
        """The id of the operation that goes on, by the key of its resource."""
        self.finish: Callable[[Operation], None] = lambda operation: None

    def begin(self, verb: str, target: str, delay: float, error: ArmError | None = None) -> Operation:
        """Begins one; another that goes on with the same resource is preempted, as in Azure."""
        self.preempt(target)
        _, _, subscription, _, _, _, namespace, *_ = [*target.split("/"), "", "", "", ""]
        now = time.time()
        operation = Operation(
            id=str(uuid.uuid4()),
            verb=verb,
            target=target,
            subscription=subscription,
            namespace="Microsoft.Network" if namespace.endswith("network") else "Microsoft.Compute",
            started=now,
            due=now + delay,
            error=error.body if error else None,
        )
        self.records[operation.id] = operation
        self._going[target] = operation.id
        self._context.wake()
        return operation

    def going(self, target: str) -> Operation | None:
        return self.records.get(self._going.get(target, ""))

    def preempt(self, target: str) -> None:
        operation = self.going(target)
        if operation is not None:
            code, message = PREEMPTED
            operation.error = {"code": code, "message": message}
            self._end(operation, "Canceled")

    def forget_target(self, target: str) -> None:
        """The resource is gone, however that came: what went on with it has ended."""
        operation = self.going(target)
        if operation is not None:
            self._end(operation, "Succeeded" if operation.verb == "delete" else "Canceled")

    def restore(self, records: dict[str, Operation]) -> None:
        self.records = records
        self._going = {o.target: o.id for o in records.values() if o.going}

    def _end(self, operation: Operation, status: Status) -> None:
        operation.status, operation.ended = status, time.time()
        self._going.pop(operation.target, None)

    # -------------------------------------------------------------------------------------------------- time

    def settle(self) -> None:
        """Ends every operation whose time has come."""
        now = time.time()
        due = sorted((o for o in map(self.records.get, self._going.values()) if o and o.due <= now), key=_due)
        for operation in due:
            if operation.going:  # the end of an earlier one may have ended this one, too
                self._end(operation, "Failed" if operation.error else "Succeeded")
                self.finish(operation)
        for old in [o.id for o in self.records.values() if o.ended is not None and o.ended + KEPT < now]:
            del self.records[old]

    def fast_forward(self) -> None:
        for operation in self.records.values():
            if operation.going:
                operation.due = time.time()
        self.settle()

    def next_due(self) -> float | None:
        return min((self.records[o].due for o in self._going.values()), default=None)

    # ------------------------------------------------------------------------------------------------- polls

    def get_status(self, call: ArmCall) -> Answer:
        """Where `Azure-AsyncOperation` leads: the status, and the error of a failure, in an answer that is a 200."""
        operation = self._find(call)
        body: dict[str, Any] = {
            "name": operation.id,
            "status": operation.status,
            "startTime": timestamp(operation.started),
        }
        if operation.ended is not None:
            body["endTime"] = timestamp(operation.ended)
            if operation.error is not None:
                body["error"] = operation.error
            return Answer(body=body)
        return Answer(body=body, headers=self.retry_after(operation))

    def get_result(self, call: ArmCall) -> Answer:
        """Where `Location` leads: 202 while it goes on, then what the call itself would have answered."""
        operation = self._find(call)
        if operation.going:
            return Answer(status=202, headers=self.links(operation, call))
        if operation.error is not None:
            raise ArmError(operation.error["code"], operation.error["message"], status=409)
        return Answer(status=204 if operation.verb == "delete" else 200)

    def _find(self, call: ArmCall) -> Operation:
        operation = self.records.get(call.path["id"])
        if operation is None or operation.subscription.lower() != call.subscription.lower():
            raise ArmError("NotFound", f"The entity with name '{call.path['id']}' was not found in this location.")
        return operation

    def links(self, operation: Operation, call: ArmCall) -> dict[str, str]:
        """The headers by which a call that has begun an operation says where it is polled."""
        version = call.query.get("api-version", "")
        place = (
            f"{call.base}/subscriptions/{operation.subscription}/providers/{operation.namespace}"
            f"/locations/{self._context.world.location}"
        )
        return {
            "Azure-AsyncOperation": f"{place}/operations/{operation.id}?api-version={version}",
            "Location": f"{place}/operationResults/{operation.id}?api-version={version}",
            **self.retry_after(operation),
        }

    @staticmethod
    def retry_after(operation: Operation) -> dict[str, str]:
        """What is left, in whole seconds, at most those that Azure tells."""
        return {"Retry-After": str(max(0, min(LONGEST_POLL, round(operation.due - time.time()))))}


def _due(operation: Operation) -> float:
    return operation.due

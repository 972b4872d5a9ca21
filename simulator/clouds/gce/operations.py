"""Operations: what a changing call answers with. Each takes its time, may end with an error, and is kept for two hours.

`requestId` (Compute Engine API, *Request IDs*): a call that comes again with the same id is the same operation,
whatever became of it meanwhile.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pydantic import BaseModel

from simulator.clouds.gce.context import Context, Row
from simulator.clouds.gce.errors import PHRASES, OperationError, invalid, not_found
from simulator.clouds.gce.names import link, new_id, timestamp

KEPT = 7200.0
"""Seconds that an operation is known after its end. Google keeps it for two weeks, and a request id for an hour."""

Progress = Literal["PENDING", "RUNNING", "DONE"]


class Error(BaseModel):
    code: str
    message: str
    status: int


class Operation(BaseModel):
    name: str
    id: str
    scope: str
    """The path of the project and zone, region or `global` that it is in."""
    type: str
    """`operationType`, which names the effect as well."""
    target: str
    """The path of the resource."""
    target_id: str
    request: dict[str, Any] = {}
    """What the effect needs to know of the call."""
    request_id: str = ""
    user: str
    begun: float
    """Seconds since the epoch."""
    half: float | None = None
    """When its status becomes RUNNING, with what that means for its target."""
    due: float
    status: Progress = "PENDING"
    fails: Error | None = None
    """How it will end, by a fault rule, instead of with its effect."""
    error: Error | None = None
    message: str = ""

    @property
    def path(self) -> str:
        return f"{self.scope}/operations/{self.name}"


class Operations:
    """All operations. `half` and `done` hear of each that gets so far; `done` may raise OperationError."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.records: dict[str, Operation] = {}
        """Operations by path."""
        self.half: Callable[[Operation], None] = lambda operation: None
        self.done: Callable[[Operation], None] = lambda operation: None
        self._user = "system"
        self._fails: Error | None = None

    # -- making

    @contextlib.contextmanager
    def acting(self, user: str, fails: Error | None) -> Iterator[None]:
        """A context in which operations are this user's, and will end in this way instead of with their effect."""
        self._user, self._fails = user, fails
        try:
            yield
        finally:
            self._user, self._fails = "system", None

    def begin(
        self, kind: str, target: str, target_id: str, *, delay: float, scope: str = "", query: Row | None = None,
        request: Row | None = None,
    ) -> Operation:  # fmt: skip
        """A new operation that ends after `delay` seconds. `query` has the call's requestId."""
        now = time.time()
        name = f"operation-{int(now * 1000)}-{uuid.uuid4().hex[:13]}-{secrets.token_hex(4)}-{secrets.token_hex(4)}"
        operation = Operation(
            name=name,
            id=new_id(),
            scope=scope or target.rsplit("/", 2)[0],
            type=kind,
            target=target,
            target_id=target_id,
            request=request or {},
            request_id=(query or {}).get("requestId", ""),
            user=self._user,
            begun=now,
            half=now + delay / 2,
            due=now + delay,
            fails=self._fails,
        )
        self.records[operation.path] = operation
        self._context.wake()
        return operation

    def note(self, kind: str, target: str, target_id: str, message: str) -> None:
        """What the cloud did on its own, and is over."""
        operation = self.begin(kind, target, target_id, delay=0.0)
        operation.message, operation.status, operation.half = message, "DONE", None

    def repeated(self, project: str, query: dict[str, str]) -> Operation | None:
        """The operation of an earlier call with the same requestId. Raises invalid for an id that is no UUID."""
        request_id = query.get("requestId")
        if not request_id:
            return None
        if not re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", request_id) or not int(
            request_id.replace("-", ""), 16
        ):
            raise invalid("requestId", request_id, "Must be a non-zero UUID.")
        mine = (o for o in self.records.values() if o.request_id == request_id)
        return next((o for o in mine if o.scope.split("/")[1] == project), None)

    # -- time

    def settle(self) -> None:
        """Takes every operation as far as its time has come."""
        now = time.time()
        for operation in [o for o in self.records.values() if o.status != "DONE"]:
            if operation.half is not None and operation.half <= now and operation.status == "PENDING":
                operation.status, operation.half = "RUNNING", None
                self.half(operation)
            if operation.due <= now and operation.status == "RUNNING":
                self._end(operation)
        for path in [p for p, o in self.records.items() if o.status == "DONE" and o.due + KEPT < now]:
            del self.records[path]

    def _end(self, operation: Operation) -> None:
        operation.status = "DONE"
        operation.error = operation.fails
        try:
            self.done(operation)
        except OperationError as e:
            operation.error = Error(code=e.code, message=e.message, status=e.status)

    def fast_forward(self) -> None:
        for operation in self.records.values():
            if operation.status != "DONE":
                operation.due = time.time()
                operation.half = operation.due if operation.status == "PENDING" else None
        self.settle()

    def next_due(self) -> float | None:
        running = (o for o in self.records.values() if o.status != "DONE")
        return min((o.due if o.half is None else o.half for o in running), default=None)

    # -- reading

    def find(self, scope: str, name: str) -> Operation:
        operation = self.records.get(f"{scope}/operations/{name}")
        if operation is None:
            raise not_found(f"{scope}/operations/{name}")
        return operation

    def within(self, scope: str) -> list[Operation]:
        return [o for o in self.records.values() if o.scope == scope]


def operation_row(operation: Operation) -> Row:
    kind = operation.scope.split("/")
    done = operation.status == "DONE"
    found: Row = {
        "kind": "compute#operation",
        "id": operation.id,
        "name": operation.name,
        "operationType": operation.type,
        "targetLink": link(operation.target),
        "targetId": operation.target_id,
        "status": operation.status,
        "user": operation.user,
        "progress": 100 if done else 0,
        "insertTime": timestamp(operation.begun),
        "startTime": timestamp(operation.begun),
        "selfLink": link(operation.path),
    }
    if kind[2] != "global":
        found[kind[2].removesuffix("s")] = link(operation.scope)
    if operation.request_id:
        found["clientOperationId"] = operation.request_id
    if operation.message:
        found["statusMessage"] = operation.message
    if done:
        found["endTime"] = timestamp(operation.due)
    if operation.error is not None:
        found["error"] = {"errors": [{"code": operation.error.code, "message": operation.error.message}]}
        found["httpErrorStatusCode"] = operation.error.status
        found["httpErrorMessage"] = PHRASES.get(operation.error.status, "BAD REQUEST")
    return found

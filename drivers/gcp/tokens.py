"""What an attempt's token becomes at Google: the `requestId` of its insert, and its mark on the VM."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from drivers.gcp.calls import Resource
from drivers.gcp.failures import of_operation

_SPACE = uuid.UUID("6f6c2c0e-5d0f-4e53-9c9b-9f5a2f1d7c11")
TOLD_WITHIN = timedelta(seconds=30)
"""A failure that is older was told of by whoever saw it: a worker that only finds it begins another operation."""
TRIES = 20
"""How often an attempt may begin again with the same token, after operations that have failed."""


def operation_ids(token: str) -> Iterator[str]:
    """The request ids of an attempt, in order.

    Google answers a request id with the operation that it began, whatever became of it. Once that one has failed, the
    next id begins another; none of them can make a second VM, as the name is taken from the first one's beginning.
    """
    for n in range(TRIES):
        yield str(uuid.uuid5(_SPACE, f"{token}/{n}"))


def mark(token: str, body: Resource) -> str:
    """The label of an attempt's VM: which attempt made it, and a digest of what it asked for."""
    asked = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return f"{attempt(token)}-{asked}"


def attempt(token: str) -> str:
    """The beginning of the mark."""
    return uuid.uuid5(_SPACE, token).hex


def is_old_failure(operation: Resource) -> bool:
    """Whether an insert has failed and somebody has been told, by the worker's own clock: one that is wrong costs
    another try, or the same failure told twice."""
    if of_operation("instances.insert", operation) is None or not operation.get("endTime"):
        return False
    return datetime.now(UTC) - datetime.fromisoformat(operation["endTime"]) > TOLD_WITHIN

"""How long to wait after a failed call, by what kind of failure it was.

Sources: machine-controller-manager's retry periods (machineutils/utils.go: short 5 s, medium 3 min, long 10 min) and
which code gets which (machine_util.go, machineCreateErrorHandler); throttling there costs minutes for no reason.
"""

from __future__ import annotations

from datetime import timedelta

from resources.errors import ErrorClass, ErrorInfo
from resources.timings import Timings

SHORT = timedelta(seconds=5)
MEDIUM = timedelta(minutes=3)
LONG = timedelta(minutes=10)

WAIT: dict[ErrorClass, timedelta] = {
    ErrorClass.CAPACITY: LONG,  # MCM C5: ResourceExhausted, cluster-autoscaler looks elsewhere meanwhile
    ErrorClass.QUOTA: LONG,
    ErrorClass.AUTH: MEDIUM,  # a person must act; soon enough after they did
    ErrorClass.INVALID: MEDIUM,
    ErrorClass.NOT_FOUND: MEDIUM,
    ErrorClass.UNKNOWN: MEDIUM,
    ErrorClass.THROTTLED: timedelta(seconds=30),  # the activity has tried for half a minute already
    ErrorClass.CONFLICT: SHORT,
    ErrorClass.TRANSIENT: SHORT,
}

REASON: dict[ErrorClass, str] = {
    ErrorClass.CAPACITY: "OutOfCapacity",
    ErrorClass.QUOTA: "QuotaExceeded",
    ErrorClass.AUTH: "NotAuthorized",
    ErrorClass.INVALID: "InvalidSpec",
    ErrorClass.NOT_FOUND: "ReferenceNotFound",
    ErrorClass.UNKNOWN: "ProviderError",
    ErrorClass.THROTTLED: "Throttled",
    ErrorClass.CONFLICT: "Conflict",
    ErrorClass.TRANSIENT: "ProviderUnavailable",
}


RECOVERABLE = (ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.CONFLICT, ErrorClass.UNKNOWN)
"""Seed 002 knows errors of a hot update that go by themselves, and long-recoverable ones that a person must mend."""


def wait_after_update(info: ErrorInfo, failures: int, timings: Timings) -> timedelta:
    """Of a hot update that has failed so many times in a row: 5 s, doubled up to 3 min, or 10 min and more."""
    recoverable = info.error_class in RECOVERABLE
    wait = min(SHORT * (1 << min(failures - 1, 10)), MEDIUM) if recoverable else LONG
    wait = timings.retry.get(info.error_class, wait)
    return max(wait, timedelta(seconds=info.retry_after or 0))


def wait_after(info: ErrorInfo, timings: Timings) -> timedelta:
    """The configured or the class's own wait; longer when the provider asked for longer."""
    wait = timings.retry.get(info.error_class, WAIT[info.error_class])
    asked = timedelta(seconds=info.retry_after or 0)
    return max(wait, asked)

"""How long to wait after a failed call, by the kind of failure.

Sources: machine-controller-manager's retry periods (machineutils/utils.go: short 5 s, medium 3 min, long 10 min) and
which code gets which (machine_util.go, machineCreateErrorHandler); throttling there costs minutes for no reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from resources.errors import ErrorClass, ErrorInfo
from resources.timings import Timings

SHORT = timedelta(seconds=5)
MEDIUM = timedelta(minutes=3)
LONG = timedelta(minutes=10)

WAIT: dict[ErrorClass, timedelta] = {
    ErrorClass.CAPACITY: LONG,  # MCM C5: ResourceExhausted, cluster-autoscaler looks elsewhere meanwhile
    ErrorClass.QUOTA: LONG,
    ErrorClass.AUTH: MEDIUM,  # a person must act; this is soon enough after they did
    ErrorClass.INVALID: MEDIUM,
    ErrorClass.NOT_FOUND: MEDIUM,
    ErrorClass.UNKNOWN: MEDIUM,
    ErrorClass.THROTTLED: timedelta(seconds=30),  # the activity has already tried for half a minute
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
"""Seed 002 knows errors of a hot update that pass on their own, and long-recoverable ones that a person must
correct."""


GROWING: dict[ErrorClass, timedelta] = {
    ErrorClass.TRANSIENT: MEDIUM,
    ErrorClass.THROTTLED: MEDIUM,
    ErrorClass.CONFLICT: MEDIUM,
    ErrorClass.UNKNOWN: LONG,
}
"""How far the waits after errors grow that pass on their own, and sooner where fewer ask, or of which nobody knows
whether they do. For the others the seed's wait holds as it is: somebody must act, or the cloud has nothing to give."""
GROWS_TO = 8
"""A wait grows to no more than this many times the first one."""
SPREAD = 0.25
"""A wait is longer by up to this share of itself, at random: machines that failed together do not try again
together."""


@dataclass(frozen=True)
class Tries:
    """What lengthens a wait, besides its class."""

    failures: int = 1
    """Failures of one kind, in a row."""
    chance: float = 0.0
    """A random number from 0 to 1."""


FIRST = Tries()


def wait_after_update(info: ErrorInfo, timings: Timings, tries: Tries = FIRST) -> timedelta:
    """The wait after a hot update that has failed so many times in a row: 5 s, doubled up to 3 min, or 10 min and
    more."""
    recoverable = info.error_class in RECOVERABLE
    wait = min(SHORT * (1 << min(tries.failures - 1, 10)), MEDIUM) if recoverable else LONG
    wait = timings.retry.get(info.error_class, wait)
    return _spread(max(wait, _asked(info)), tries if recoverable else FIRST)


def wait_after(info: ErrorInfo, timings: Timings, tries: Tries = FIRST) -> timedelta:
    """The configured wait or the class's own; longer when the provider asked for longer. Where it grows it doubles
    after each further failure, within a bound."""
    wait = timings.retry.get(info.error_class, WAIT[info.error_class])
    if info.error_class not in GROWING:
        return max(wait, _asked(info))
    grown = min(wait * (1 << min(tries.failures - 1, 10)), wait * GROWS_TO, max(wait, GROWING[info.error_class]))
    return _spread(max(grown, _asked(info)), tries)


def _asked(info: ErrorInfo) -> timedelta:
    return timedelta(seconds=info.retry_after or 0)


def _spread(wait: timedelta, tries: Tries) -> timedelta:
    return wait * (1 + SPREAD * tries.chance)

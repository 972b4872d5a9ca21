"""What can go wrong at the entry points, in words for people. Every error says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.service import RPCError, RPCStatusCode


class HostlerError(Exception):
    """The base of all errors that the SDK raises on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


class Refused(HostlerError):
    """The request was understood and will not be done; the message says why and what to do."""


class NotPreserved(Refused):
    """A preservation cannot be ended or moved, for there is none."""


class NotFound(HostlerError):
    """There is no such thing, or it is gone."""


class NoAnswer(HostlerError):
    """Temporal answers, but no worker does."""


class Unreachable(HostlerError):
    """Temporal, or the API server of a cluster, cannot be reached."""

    exit_code = 3


class Interrupted(Unreachable):
    """Temporal has answered before, and does not now: its frontend closes connections every few minutes, and is
    upgraded now and then. `starter.sdk.patience` asks again."""


class WaitTimeout(HostlerError):
    """Something did not happen in time; it may still happen."""

    exit_code = 124


def no_such_workflow(error: RPCError) -> bool:
    """Whether the workflow is missing. A missing namespace has the same code and must not look like a lost machine."""
    return error.status == RPCStatusCode.NOT_FOUND and not error.message.lower().startswith("namespace")


@contextmanager
def translated() -> Iterator[None]:
    """Translates Temporal's errors that no caller handles into words."""
    try:
        yield
    except RPCError as e:
        raise _translate(e) from e


def _translate(error: RPCError) -> HostlerError:
    text = error.message or error.status.name
    if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
        return Interrupted(f"Temporal no longer answers: {text}; try again, or look at its log")
    if "search attribute" in text:
        return Refused(f"Temporal's namespace does not know Hostler's search attributes ({text}): run `hostler setup`")
    if error.status == RPCStatusCode.NOT_FOUND and text.lower().startswith("namespace"):
        return Unreachable(f"Temporal: {text.rstrip('.')}: create it, or set TEMPORAL_NAMESPACE or temporal.namespace")
    if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
        return Refused(f"Temporal refuses: {text}: check the API key or the client certificate (temporal.toml)")
    return HostlerError(f"Temporal: {error.status.name}: {text}")

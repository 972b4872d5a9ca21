"""One way to say what people read everywhere: a time, and an error. A duration is `resources.base.format_duration`."""

from __future__ import annotations

import errno
import os
import ssl
from datetime import UTC, datetime


def utc(time: datetime | None) -> str:
    """`2026-03-01 14:05:00 UTC`."""
    if time is None:
        return "(unknown)"
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def utc_clock(time: datetime) -> str:
    """`14:05:00 UTC`, for a moment of which everybody knows the day."""
    return f"{time.astimezone(UTC):%H:%M:%S} UTC"


def kube_time(time: datetime) -> str:
    """`2026-03-01T14:05:00Z`: as Kubernetes' API has times (metav1.Time), in whole seconds."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def by_whom(who: str, why: str = "") -> str:
    """` by alice: too old`, to go after what was done; "" where neither is known."""
    return f"{f' by {who}' if who else ''}{f': {why}' if why else ''}"


def cause(error: BaseException) -> str:
    """What the error says. Many say nothing (a timeout, a connection that was closed): these are called by their name.
    An error is never false, so `{e or …}` would not do. One of a connection that could not be made
    (aiohttp.ClientConnectorError) also tells its library's innards, which are left out."""
    of = getattr(error, "os_error", None)
    if isinstance(of, OSError) and not isinstance(of, ssl.SSLError):
        known = (
            os.strerror(of.errno) if of.errno is not None and of.errno in errno.errorcode else of.strerror or str(of)
        )
        return f"{getattr(error, 'host', '')}:{getattr(error, 'port', '')}: {known}"
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)

"""What becomes of failed calls, the same for every cloud: what may be quoted of one, and how several become one."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence

from drivers.errors import DriverError, OperationFailed
from resources.base import waited
from resources.errors import ErrorClass
from resources.redact import hide_secrets

LONGER_WAIT = (
    ErrorClass.INVALID,
    ErrorClass.AUTH,
    ErrorClass.QUOTA,
    ErrorClass.CAPACITY,
    ErrorClass.NOT_FOUND,
    ErrorClass.UNKNOWN,
    ErrorClass.CONFLICT,
    ErrorClass.THROTTLED,
    ErrorClass.TRANSIENT,
)
"""Classes ordered by their wait, longest first: several errors together wait as the one with the longest wait does."""
MESSAGE_LENGTH = 500
_WORD = re.compile(r"[^\s\"'`,;:=]{16,}")


def combine(errors: Iterable[DriverError]) -> DriverError:
    """Combines several failures into one: the class with the longest wait, and every message (seed 002: a combined
    error)."""
    ordered = sorted(errors, key=lambda e: LONGER_WAIT.index(e.error_class))
    first = ordered[0]
    if len(ordered) == 1:
        return first
    waits = [e.retry_after for e in ordered if e.retry_after is not None]
    kind = OperationFailed if any(isinstance(e, OperationFailed) for e in ordered) else DriverError
    return kind(
        first.error_class,
        "; ".join(dict.fromkeys(e.message for e in ordered)),
        provider_code=first.provider_code,
        retry_after=max(waits, default=None),
    )


def about(error: DriverError, resources: Iterable[str]) -> DriverError:
    """The same error, with the ids of the resources that the call was for."""
    kind = OperationFailed if isinstance(error, OperationFailed) else DriverError
    return kind(
        error.error_class,
        f"{', '.join(resources)}: {error.message}",
        provider_code=error.provider_code,
        retry_after=error.retry_after,
        code=error.code,
    )


def asked_to_wait(retry_after: str) -> float | None:
    """The seconds that a header Retry-After asks for; None where it has a date, or there is none."""
    return waited(float(retry_after)) if retry_after.isdecimal() else None


def words_of(user_data: str | bytes) -> list[str]:
    """The whole of the user data, encoded too, and every longer word in it, in case an error quotes it. Compressed user
    data has no words: nobody can quote it but encoded."""
    if not user_data:
        return []
    if isinstance(user_data, bytes):
        return [base64.b64encode(user_data).decode()]
    words = sorted(_WORD.findall(user_data), key=len, reverse=True)
    return [user_data, base64.b64encode(user_data.encode()).decode(), *words]


def scrub(text: str, hide: Sequence[str] = (), own: Callable[[str], str] = str) -> str:
    """The text in one line, bounded, without the values of `hide` and without what looks like a secret; `own` removes
    what looks like one of the cloud's own secrets."""
    for value in hide:
        text = text.replace(value, "***")
    text = " ".join(hide_secrets(own(text)).split())
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 1] + "…"

"""What Google's error codes mean, in one table, and how a failed call or operation becomes a DriverError in our words.

There are two shapes. A call that is refused has a `reason` in camelCase; an operation that fails later has a code in
capitals. Sources: Compute Engine API reference, *Handling API errors* and *Troubleshooting VM creation*;
google/api/error_reason.proto; machine-controller-manager's GCP provider, pkg/gcp/errors/errors.go (ResourceExhausted).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import requests.exceptions as http
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from drivers import failures
from drivers.errors import DriverError
from resources.errors import ErrorClass

_CODES: dict[ErrorClass, str] = {
    ErrorClass.CAPACITY: """
        IP_SPACE_EXHAUSTED IP_SPACE_EXHAUSTED_WITH_DETAILS REGION_RESOURCE_POOL_EXHAUSTED RESERVATION_CAPACITY_EXCEEDED
        RESOURCE_POOL_EXHAUSTED STOCKOUT ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS""",
    ErrorClass.QUOTA: """
        LIMIT_EXCEEDED QUOTA_EXCEEDED QUOTA_LIMIT_EXCEEDED dailyLimitExceeded limitExceeded quotaExceeded
        resourceExhausted""",
    ErrorClass.THROTTLED: """
        429 RATE_LIMIT_EXCEEDED RESOURCE_OPERATION_RATE_EXCEEDED concurrentLimitExceeded operationRateLimitExceeded
        rateLimitExceeded resourceOperationRateExceeded userRateLimitExceeded variableTermLimitExceeded""",
    ErrorClass.AUTH: """
        401 403 ACCESS_TOKEN_EXPIRED ACCESS_TOKEN_SCOPE_INSUFFICIENT ACCOUNT_STATE_INVALID BILLING_DISABLED
        CONSUMER_INVALID CREDENTIALS_MISSING PERMISSIONS_ERROR PERMISSION_DENIED SERVICE_DISABLED USER_PROJECT_DENIED
        accessNotConfigured accountDisabled accountSuspended authError authenticationRequired billingNotEnabled expired
        forbidden insufficientPermissions invalidCredentials invalid_client invalid_grant loginRequired
        unauthorized unauthorized_client""",
    ErrorClass.NOT_FOUND: """
        404 410 NOT_FOUND RESOURCE_NOT_FOUND deleted notFound resourceNotFound""",
    ErrorClass.CONFLICT: """
        409 412 CONDITION_NOT_MET RESOURCE_ALREADY_EXISTS RESOURCE_IN_USE RESOURCE_IN_USE_BY_ANOTHER_RESOURCE
        RESOURCE_NOT_READY alreadyExists conditionNotMet conflict duplicate fingerprintMismatch operationInProgress
        resourceInUse resourceInUseByAnotherResource resourceNotReady""",
    ErrorClass.INVALID: """
        400 405 413 DISK_SIZE_TOO_SMALL INVALID_ARGUMENT INVALID_FIELD_VALUE INVALID_USAGE
        IMAGE_ARCHITECTURE_MISMATCH MACHINE_TYPE_DISK_TYPE_MISMATCH POLICY_VIOLATION UNSUPPORTED_OPERATION
        badRequest constraintViolated fieldNotWritable invalid invalidArgument invalidParameter invalidQuery
        invalidResourceUsage methodNotAllowed parseError required resourceTypeMismatch unknownApi unsupportedOperation
        uploadTooLarge wrongUrlForUpload""",
    ErrorClass.TRANSIENT: """
        408 500 502 503 504 ABORTED DEADLINE_EXCEEDED INTERNAL INTERNAL_ERROR SERVICE_UNAVAILABLE TIMEOUT UNAVAILABLE
        backendConnectionClosed backendError backendNotConnected badGateway gatewayTimeout internalError
        internalServerError serviceUnavailable timeout transientError""",
}

CODES: dict[str, ErrorClass] = {code: cls for cls, codes in _CODES.items() for code in codes.split()}
"""The table. Bare numbers are HTTP statuses, where the answer has no reason."""

_FAMILIES = (
    ("RATE_LIMIT", ErrorClass.THROTTLED),
    ("RateLimit", ErrorClass.THROTTLED),
    ("QUOTA", ErrorClass.QUOTA),
    ("Quota", ErrorClass.QUOTA),
    ("EXHAUSTED", ErrorClass.CAPACITY),
    ("NOT_FOUND", ErrorClass.NOT_FOUND),
    ("ALREADY_EXISTS", ErrorClass.CONFLICT),
    ("IN_USE", ErrorClass.CONFLICT),
)
"""Parts that Google uses alike for every resource; looked at only for codes that the table does not have."""

_WORDS = (
    # A zone without this machine type: another one may have it (MCM: ResourceExhausted).
    (re.compile(r"does not exist in zone", re.IGNORECASE), ErrorClass.CAPACITY),
    # An organization's policy answers with conditionNotMet, as a stale fingerprint does.
    (re.compile(r"constraint \S+ violated", re.IGNORECASE), ErrorClass.INVALID),
)
"""Only the message tells these."""

_OAUTH = re.compile(r"\b(invalid_grant|invalid_client|unauthorized_client)\b")


def classify(code: str, message: str = "", status: int = 0) -> ErrorClass:
    """The class of a reason or an operation's code; UNKNOWN when nobody has met it yet, unless its status says that it
    is the service's own trouble."""
    for words, cls in _WORDS:
        if words.search(message):
            return cls
    if code in CODES:
        return CODES[code]
    for part, cls in _FAMILIES:
        if part in code:
            return cls
    return ErrorClass.TRANSIENT if status >= 500 else ErrorClass.UNKNOWN


def translate(operation: str, error: Exception, hide: Sequence[str] = ()) -> DriverError:
    """The DriverError of a failed call. `hide` holds values that must not be quoted, whatever the cloud writes."""
    if isinstance(error, api.GoogleAPICallError):
        return _from_reply(operation, error, hide)
    if isinstance(error, auth.DefaultCredentialsError):
        return DriverError(
            ErrorClass.AUTH,
            f"{operation}: no usable Google Cloud credentials: give the Secret serviceAccountJSON, or "
            "credentialsConfig and projectID, or run the worker where a metadata server knows a service account",
        )
    if isinstance(error, auth.TransportError):
        return DriverError(ErrorClass.TRANSIENT, f"{operation}: the credentials' token: {scrub(str(error), hide)}")
    if isinstance(error, auth.GoogleAuthError):
        # Its second argument is the token endpoint's whole answer, which is not passed on.
        found = _OAUTH.search(str(error))
        code = found[1] if found else type(error).__name__
        retried = bool(getattr(error, "retryable", False)) and not found
        cls = ErrorClass.TRANSIENT if retried else ErrorClass.AUTH
        why = found[1] if found else scrub(str(next(iter(error.args), "")), hide)
        return DriverError(cls, f"{operation}: the credentials give no token: {why}", provider_code=code)
    if isinstance(error, http.RequestException):
        return DriverError(ErrorClass.TRANSIENT, f"{operation}: {type(error).__name__}: {scrub(str(error), hide)}")
    if isinstance(error, OSError):
        # Only reading a workload identity's token gets here: `requests` wraps what goes wrong on the network.
        return DriverError(
            ErrorClass.AUTH, f"{operation}: the identity's token cannot be read: {error.strerror or type(error)}"
        )
    if isinstance(error, ValueError):  # what is parsed is the answer, and the message quotes it
        return DriverError(
            ErrorClass.TRANSIENT, f"{operation}: the answer is not from Google Cloud; is there a proxy in between?"
        )
    return DriverError(ErrorClass.UNKNOWN, f"{operation}: {type(error).__name__}", provider_code=type(error).__name__)


def _from_reply(operation: str, error: api.GoogleAPICallError, hide: Sequence[str]) -> DriverError:
    given = next((e for e in error.errors or () if isinstance(e, Mapping)), {})
    status = int(error.code or 0)
    code, message = str(given.get("reason") or status), str(given.get("message") or error.message or "")
    wait = str((getattr(error.response, "headers", None) or {}).get("retry-after", ""))
    return DriverError(
        ErrorClass.AUTH if status == 401 else classify(code, message, status),
        f"{operation}: {code}: {scrub(message, hide)}",
        provider_code=code,
        retry_after=failures.asked_to_wait(wait),
    )


def of_operation(operation: str, done: Mapping[str, Any], hide: Sequence[str] = ()) -> DriverError | None:
    """The DriverError of an operation that has ended badly; None for one that has not."""
    given = next(iter((done.get("error") or {}).get("errors") or ()), None)
    status = int(done.get("httpErrorStatusCode") or 0)
    if given is None and status < 400:
        return None
    code, message = str((given or {}).get("code") or status), str((given or {}).get("message") or "")
    words = message or str(done.get("httpErrorMessage", ""))
    return DriverError(
        classify(code, message, status), f"{operation}: {code}: {scrub(words, hide)}", provider_code=code
    )


def scrub(text: str, hide: Sequence[str] = ()) -> str:
    """One line, bounded, without anything that looks like a secret."""
    return failures.scrub(text, hide)

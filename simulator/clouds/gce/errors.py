"""The one error of the simulated Compute Engine, with the HTTP statuses that Google sends."""

from __future__ import annotations

from typing import Any

STATUS = {
    "alreadyExists": 409,
    "authError": 401,
    "backendError": 503,
    "conditionNotMet": 412,
    "forbidden": 403,
    "insufficientPermissions": 403,
    "accessNotConfigured": 403,
    "internalError": 500,
    "notFound": 404,
    "quotaExceeded": 403,
    "rateLimitExceeded": 403,
    "userRateLimitExceeded": 403,
    "resourceExhausted": 429,
}
"""HTTP status by reason; every other reason is a 400. Google also sends 429 with rateLimitExceeded."""

OPERATION_STATUS = {
    "CONDITION_NOT_MET": 412,
    "INTERNAL_ERROR": 500,
    "PERMISSIONS_ERROR": 403,
    "QUOTA_EXCEEDED": 403,
    "RATE_LIMIT_EXCEEDED": 403,
    "RESOURCE_ALREADY_EXISTS": 409,
    "RESOURCE_NOT_FOUND": 404,
    "RESOURCE_OPERATION_RATE_EXCEEDED": 429,
    "RESOURCE_POOL_EXHAUSTED": 503,
    "ZONE_RESOURCE_POOL_EXHAUSTED": 503,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": 503,
}
"""`httpErrorStatusCode` of an operation by its error's code; every other code is a 400."""

PHRASES = {
    400: "BAD REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT FOUND",
    409: "CONFLICT",
    412: "PRECONDITION FAILED",
    429: "TOO MANY REQUESTS",
    500: "INTERNAL SERVER ERROR",
    503: "SERVICE UNAVAILABLE",
}
"""`httpErrorMessage` by status."""


class GceError(Exception):
    """An error as Compute Engine would answer it."""

    def __init__(self, reason: str, message: str = "", status: int | None = None) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message or reason
        self.status = status or STATUS.get(reason, 400)

    def body(self) -> dict[str, Any]:
        item = {"message": self.message, "domain": "global", "reason": self.reason}
        return {"error": {"code": self.status, "message": self.message, "errors": [item]}}


class OperationError(Exception):
    """What an operation ends with that fails late."""

    def __init__(self, code: str, message: str = "", status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message or code
        self.status = status or OPERATION_STATUS.get(code, 400)


def invalid(field: str, value: object, why: str = "") -> GceError:
    return GceError("invalid", f"Invalid value for field '{field}': '{value}'. {why}".strip())


def not_found(path: str) -> GceError:
    return GceError("notFound", f"The resource '{path}' was not found")


def not_ready(path: str) -> GceError:
    return GceError("resourceNotReady", f"The resource '{path}' is not ready")


def unsupported(what: str) -> GceError:
    """The refusal of something that real Compute Engine knows and the simulator does not."""
    return GceError("badRequest", f"The simulator does not emulate {what}.")

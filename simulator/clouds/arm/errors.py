"""The one error of the simulated Azure Resource Manager, with the HTTP statuses that Azure sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STATUS = {
    "AnotherOperationInProgress": 429,
    "AuthenticationFailed": 401,
    "AuthorizationFailed": 403,
    "Conflict": 409,
    "ConflictingUserInput": 409,
    "ExpiredAuthenticationToken": 401,
    "InternalServerError": 500,
    "InvalidAuthenticationToken": 401,
    "InvalidAuthenticationTokenTenant": 401,
    "InvalidResourceType": 404,
    "NotFound": 404,
    "NotImplemented": 501,
    "OperationNotAllowed": 409,
    "ParentResourceNotFound": 404,
    "PlatformImageNotFound": 404,
    "PreconditionFailed": 412,
    "PropertyChangeNotAllowed": 409,
    "QuotaExceeded": 409,
    "ResourceGroupBeingDeleted": 409,
    "ResourceGroupNotFound": 404,
    "ResourceNotFound": 404,
    "ResourceQuotaExceeded": 409,
    "RetryableError": 429,
    "ScopeLocked": 409,
    "ServerTimeout": 503,
    "ServiceUnavailable": 503,
    "SkuNotAvailable": 409,
    "SubscriptionNotFound": 404,
    "SubscriptionRequestsThrottled": 429,
    "TooManyRequests": 429,
}
"""HTTP status by error code; every other code is a 400 (Azure's REST API reference and the SDKs' issues)."""

RETRY_AFTER = 5
"""Seconds in the Retry-After of a 429 that nothing else gives one."""

LATE = frozenset(
    {
        "AllocationFailed",
        "InternalExecutionError",
        "NetworkingInternalOperationError",
        "OSProvisioningClientError",
        "OSProvisioningInternalError",
        "OSProvisioningTimedOut",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "VMStartTimedOut",
        "ZonalAllocationFailed",
    }
)
"""Codes that Azure never answers at once: the call is accepted, and its operation ends with them."""

STARTED = frozenset(
    {"OSProvisioningClientError", "OSProvisioningInternalError", "OSProvisioningTimedOut", "VMStartTimedOut"}
)
"""Those of them with which the VM runs all the same."""


class ArmError(Exception):
    """An error as Azure Resource Manager would answer it."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        target: str | None = None,
        details: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message or code
        self.status = status or STATUS.get(code, 400)
        self.target = target
        self.details = list(details)

    @property
    def headers(self) -> dict[str, str]:
        if self.status == 429:
            return {"Retry-After": str(RETRY_AFTER)}
        if self.status == 401:
            return {"WWW-Authenticate": f'Bearer error="invalid_token", error_description="{self.code}"'}
        return {}

    @property
    def body(self) -> dict[str, Any]:
        """The error object of the answer, and of an operation that ends with it."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.target is not None:
            error["target"] = self.target
        if self.details:
            error["details"] = self.details
        return error


def unsupported(what: str) -> ArmError:
    """The refusal of something that the real Azure knows and the simulator does not."""
    return ArmError("NotImplemented", f"The simulator does not emulate {what}.")


def invalid(target: str, message: str) -> ArmError:
    """A parameter that Azure refuses, by its name."""
    return ArmError("InvalidParameter", message, target=target)

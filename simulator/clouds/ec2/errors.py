"""The one error of the simulated EC2, with the HTTP statuses that EC2 sends."""

from __future__ import annotations

STATUS = {
    "AuthFailure": 401,
    "DryRunOperation": 412,
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "MissingAuthenticationToken": 403,
    "RequestLimitExceeded": 503,
    "SignatureDoesNotMatch": 403,
    "UnauthorizedOperation": 403,
    "Unavailable": 503,
}
"""HTTP status by error code; every other code is a 400 (EC2 API reference, "Error codes").

Capacity is a 500 on purpose: SDKs with retries on swallow it, which is a trap for callers that want to see it.
"""


class Ec2Error(Exception):
    """An error as EC2 would answer it."""

    def __init__(self, code: str, message: str = "", status: int | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message or code
        self.status = status or STATUS.get(code, 400)


def unsupported(what: str) -> Ec2Error:
    """The refusal of something that real EC2 knows and the simulator does not."""
    return Ec2Error("UnsupportedOperation", f"The simulator does not emulate {what}.")

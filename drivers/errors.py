"""The one exception that a driver raises; `NameTaken`, which carries VMs, stands beside those in base.py."""

from __future__ import annotations

from resources.calls.cloud import ResourceUpdate
from resources.errors import CODE_OF, Code, ErrorClass, ErrorInfo


class DriverError(Exception):
    """A provider call failed. `message` is in our own words: provider errors may quote a request body.

    `code` is the gRPC-style code of machine_error_codes.md; `error_class` says what to do next; `retry_after` is in
    seconds, where the provider asked for it.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        message: str,
        *,
        provider_code: str = "",
        retry_after: float | None = None,
        code: Code | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message
        self.provider_code = provider_code
        self.retry_after = retry_after
        self.code = code or CODE_OF[error_class]

    @property
    def silent(self) -> bool:
        """The cloud did not answer: there is no code of its own, or only a proxy's number."""
        nobody = not self.provider_code or self.provider_code.isdecimal()
        return self.error_class is ErrorClass.TRANSIENT and nobody

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(
            error_class=self.error_class,
            code=self.code,
            message=self.message,
            retry_after=self.retry_after,
            provider_code=self.provider_code,
        )


class IdempotencyMismatch(DriverError):
    """The attempt's token is bound to other parameters, or to an instance that is dead (`terminated`)."""

    def __init__(self, message: str, *, provider_code: str, terminated: bool) -> None:
        super().__init__(ErrorClass.CONFLICT, message, provider_code=provider_code)
        self.terminated = terminated


class OperationFailed(DriverError):
    """What an earlier call had begun has ended badly. Nothing of it is under way any longer: its operation tells no
    more, and the next call begins anew."""

    @classmethod
    def of(cls, error: DriverError) -> OperationFailed:
        """The error, as that of an operation."""
        return cls(
            error.error_class,
            error.message,
            provider_code=error.provider_code,
            retry_after=error.retry_after,
            code=error.code,
        )


class WrongAccount(DriverError):
    """The credentials open another account (`opened`) than the one in question: "not found" there says nothing, and
    nothing is made there."""

    def __init__(self, message: str, opened: str = "") -> None:
        super().__init__(ErrorClass.AUTH, message)
        self.opened = opened


class PartialUpdate(DriverError):
    """A hot update failed on some resources and went on with the others: one error, of the class with the longest wait,
    with what became of each."""

    def __init__(self, error: DriverError, resources: list[ResourceUpdate]) -> None:
        super().__init__(
            error.error_class,
            error.message,
            provider_code=error.provider_code,
            retry_after=error.retry_after,
            code=error.code,
        )
        self.resources = resources


class Unimplemented(DriverError):
    """The driver has no such method for this cloud."""

    def __init__(self, method: str, provider: str) -> None:
        super().__init__(ErrorClass.INVALID, f"{provider}: {method} is not implemented", code=Code.UNIMPLEMENTED)

"""Errors as a Kubernetes API server answers them: a `Status` object with code, reason and details.

The texts are those of k8s.io/apimachinery (pkg/api/errors and pkg/util/validation/field).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from simulator.kube.objects import Obj

if TYPE_CHECKING:
    from simulator.kube.resources import Resource

STATUS_OF_REASON = {
    "BadRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Gone": 410,
    "Expired": 410,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "Invalid": 422,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
    "ServerTimeout": 500,
}


class ApiError(Exception):
    """An answer that is not a success; the server turns it into a Status object."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Obj | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def body(self) -> Obj:
        status: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.status,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return status


def _details(resource: Resource, name: str | None) -> Obj:
    details: Obj = {"kind": resource.plural}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_resource() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str, subresource: str = "") -> ApiError:
    qualified = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def modified(resource: Resource, name: str) -> ApiError:
    """The optimistic lock: somebody wrote the object since the caller read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: Resource, name: str | None, why: str, causes: list[Obj] | None = None) -> ApiError:
    named = f'{resource.qualified} "{name}"' if name else resource.qualified
    details = _details(resource, name)
    if causes:
        details["causes"] = causes
    return ApiError(403, "Forbidden", f"{named} is forbidden: {why}", details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unsupported_media_type(message: str) -> ApiError:
    return ApiError(415, "UnsupportedMediaType", message)


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def version_too_large(asked: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1}, {"Retry-After": "1"})


def too_many_requests(message: str, causes: list[Obj] | None = None, retry_after: int = 0) -> ApiError:
    details: Obj = {"causes": causes} if causes else {}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return ApiError(429, "TooManyRequests", message, details, headers)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class FieldErrors:
    """Collects what is wrong with an object, field by field; `check` raises one 422 Invalid for all of it."""

    def __init__(self) -> None:
        self._causes: list[Obj] = []

    def _add(self, reason: str, field: str, message: str) -> None:
        self._causes.append({"reason": reason, "message": message, "field": field})

    def invalid(self, field: str, value: Any, why: str) -> None:
        self._add("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {why}")

    def required(self, field: str, why: str = "") -> None:
        self._add("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")

    def forbidden(self, field: str, why: str) -> None:
        self._add("FieldValueForbidden", field, f"Forbidden: {why}")

    def duplicate(self, field: str, value: Any) -> None:
        self._add("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")

    def unsupported(self, field: str, value: Any, supported: Iterable[Any]) -> None:
        listed = ", ".join(_shown(s) for s in supported)
        message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
        self._add("FieldValueNotSupported", field, message)

    def __bool__(self) -> bool:
        return bool(self._causes)

    def check(self, resource: Resource, name: str) -> None:
        if not self._causes:
            return
        texts = [f"{c['field']}: {c['message']}" for c in self._causes]
        said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        details: Obj = {"name": name, "kind": resource.kind, "causes": self._causes}
        if resource.group:
            details["group"] = resource.group
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        raise ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {said}', details)

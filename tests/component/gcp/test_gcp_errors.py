"""The error table, in both of its shapes, and what a message may say."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from drivers.gcp import failures
from resources.errors import ErrorClass


def replied(status: int, reason: str, message: str = "words", **headers: str) -> api.GoogleAPICallError:
    """What Google's client raises for such an answer."""
    response: Any = requests.Response()
    response.status_code, response.headers["retry-after"] = status, headers.get("retry_after", "")
    response.request = requests.Request("GET", "https://compute.googleapis.com/").prepare()
    response._content = b"{}"
    error = api.from_http_status(status, message, errors=[{"reason": reason, "message": message}], response=response)
    assert isinstance(error, api.GoogleAPICallError)
    return error


@pytest.mark.parametrize("code", sorted(failures.CODES))
def test_the_table_is_what_a_refused_call_and_a_failed_operation_raise(code: str) -> None:
    wanted = failures.CODES[code]
    refused = failures.translate("instances.insert", replied(400, code))
    assert (refused.error_class, refused.provider_code) == (wanted, code)
    assert refused.message == f"instances.insert: {code}: words"
    ended = {"status": "DONE", "httpErrorStatusCode": 400, "error": {"errors": [{"code": code, "message": "words"}]}}
    failed = failures.of_operation("instances.insert", ended)
    assert failed is not None
    assert (failed.error_class, failed.provider_code, failed.message) == (wanted, code, refused.message)


BY_REFERENCE = {
    # machine-controller-manager-provider-gcp, pkg/gcp/errors/errors.go: ResourceExhausted
    "RESOURCE_POOL_EXHAUSTED": ErrorClass.CAPACITY,
    "ZONE_RESOURCE_POOL_EXHAUSTED": ErrorClass.CAPACITY,
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": ErrorClass.CAPACITY,
    "QUOTA_EXCEEDED": ErrorClass.QUOTA,
    # what a person or a wait mends, by the wait that its class has
    **dict.fromkeys(("forbidden", "accessNotConfigured", "PERMISSIONS_ERROR", "billingNotEnabled"), ErrorClass.AUTH),
    **dict.fromkeys(("rateLimitExceeded", "userRateLimitExceeded", "operationRateLimitExceeded"), ErrorClass.THROTTLED),
    **dict.fromkeys(("notFound", "RESOURCE_NOT_FOUND"), ErrorClass.NOT_FOUND),
    **dict.fromkeys(("alreadyExists", "resourceNotReady", "conditionNotMet"), ErrorClass.CONFLICT),
    **dict.fromkeys(("invalid", "badRequest", "POLICY_VIOLATION"), ErrorClass.INVALID),
    **dict.fromkeys(("backendError", "internalError", "INTERNAL_ERROR"), ErrorClass.TRANSIENT),
    "SOME_NEW_QUOTA": ErrorClass.QUOTA,
    "SOME_OTHER_POOL_EXHAUSTED": ErrorClass.CAPACITY,
    "newQuotaExceeded": ErrorClass.QUOTA,
    "newRateLimitExceeded": ErrorClass.THROTTLED,
    "IMAGE_NOT_FOUND": ErrorClass.NOT_FOUND,
    "ADDRESS_IN_USE": ErrorClass.CONFLICT,
    "nobodyKnows": ErrorClass.UNKNOWN,
    "NOBODY_KNOWS": ErrorClass.UNKNOWN,
}


@pytest.mark.parametrize(("code", "wanted"), BY_REFERENCE.items())
def test_gcp_codes_as_the_references_have_them(code: str, wanted: ErrorClass) -> None:
    assert failures.classify(code) is wanted


def test_no_gcp_code_is_in_the_table_twice() -> None:
    listed = [code for codes in failures._CODES.values() for code in codes.split()]
    assert len(listed) == len(set(listed))
    assert set(failures._CODES) == set(ErrorClass) - {ErrorClass.UNKNOWN}


def test_what_only_the_message_or_the_status_tells() -> None:
    absent = "Machine type with name 'x' does not exist in zone 'y'"
    assert failures.translate("x", replied(400, "invalid", absent)).error_class is ErrorClass.CAPACITY
    policy = "Constraint constraints/compute.vmExternalIpAccess violated for project 1"
    assert failures.translate("x", replied(412, "conditionNotMet", policy)).error_class is ErrorClass.INVALID
    assert failures.translate("x", replied(412, "conditionNotMet")).error_class is ErrorClass.CONFLICT
    assert failures.translate("x", replied(503, "nobodyKnows")).error_class is ErrorClass.TRANSIENT
    assert failures.translate("x", replied(401, "required")).error_class is ErrorClass.AUTH  # 400: a missing field
    assert failures.translate("x", replied(429, "rateLimitExceeded", retry_after="7")).retry_after == 7.0


def test_what_is_no_answer_of_google() -> None:
    cases: list[tuple[Exception, ErrorClass]] = [
        (requests.ConnectionError("reset by peer"), ErrorClass.TRANSIENT),
        (requests.Timeout("too long"), ErrorClass.TRANSIENT),
        (auth.TransportError("no route"), ErrorClass.TRANSIENT),
        (auth.RefreshError("invalid_grant: Invalid JWT", {"canary": 1}), ErrorClass.AUTH),
        (auth.DefaultCredentialsError("none"), ErrorClass.AUTH),
        (FileNotFoundError(2, "No such file"), ErrorClass.AUTH),
        (ValueError("<html>canary"), ErrorClass.TRANSIENT),
        (KeyError("x"), ErrorClass.UNKNOWN),
    ]
    for error, wanted in cases:
        said = failures.translate("instances.get", error)
        assert said.error_class is wanted, error
        assert "canary" not in said.message


def test_an_operation_that_has_not_failed_is_none() -> None:
    assert failures.of_operation("x", {"status": "DONE"}) is None
    assert failures.of_operation("x", {"status": "RUNNING"}) is None

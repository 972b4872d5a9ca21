"""The error table as Azure's own clients raise it, and what a message may say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from azure.core import exceptions as api
from azure.core.pipeline.transport import HttpRequest, RequestsTransportResponse
from paths import ROOT
from requests import Response

from drivers.azure import failures
from drivers.azure.calls import REFUSED
from resources.errors import ErrorClass


def replied(status: int, code: str, message: str = "words", **headers: str) -> api.HttpResponseError:
    """What Azure's client raises for such an answer; a long-running operation that failed has the status 200."""
    answer: Any = Response()
    answer.status_code, answer.headers = status, {**headers, "Content-Type": "application/json"}
    answer._content = json.dumps({"error": {"code": code, "message": message}}).encode()
    response = RequestsTransportResponse(HttpRequest("PUT", "https://management.azure.com/x"), answer)
    return api.HttpResponseError(response=response)


@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("code", sorted(c for c in failures.CODES if not c.isdigit()))
def test_the_table_is_what_a_refused_call_and_a_failed_operation_raise(code: str, status: int) -> None:
    error = failures.translate("VirtualMachines_CreateOrUpdate", replied(status, code))
    assert (error.error_class, error.provider_code) == (failures.CODES[code], code)
    assert error.message == f"VirtualMachines_CreateOrUpdate: {code}: words"


@pytest.mark.parametrize("status", [int(c) for c in failures.CODES if c.isdigit()])
def test_an_answer_without_a_code_goes_by_its_status(status: int) -> None:
    answer: Any = Response()
    answer.status_code, answer._content = status, b"<html>a proxy</html>"
    response = RequestsTransportResponse(HttpRequest("GET", "https://management.azure.com/x"), answer)
    error = failures.translate("VirtualMachines_Get", api.HttpResponseError(response=response))
    assert error.error_class is failures.CODES[str(status)]


@pytest.mark.parametrize(
    ("url", "renews"),
    [
        ("https://management.azure.com/subscriptions/s/resourceGroups/g", True),
        ("https://login.microsoftonline.com/t/oauth2/v2.0/token", False),
    ],
)
def test_a_401_without_a_body_is_a_token_to_renew_unless_it_is_the_logins(url: str, renews: bool) -> None:
    answer: Any = Response()
    answer.status_code, answer._content = 401, b""
    response = RequestsTransportResponse(HttpRequest("GET", url), answer)
    error = failures.translate("VirtualMachines_Get", api.ClientAuthenticationError("refused", response=response))
    assert error.error_class is ErrorClass.AUTH
    assert (error.provider_code in REFUSED) is renews


BY_WORDS = [
    # machine-controller-manager-provider-azure, access/errors/errors.go: ResourceExhausted
    ("OperationNotAllowed", "Operation could not be completed as it results in exceeding approved quota", "quota"),
    ("OperationNotAllowed", "the VM is being deallocated", "conflict"),
    ("BadRequest", "Availability zone is not supported in this region", "capacity"),
    ("BadRequest", "the body is no JSON", "invalid"),
    ("BadRequest", "Trusted launch is not supported for the VM size Standard_D2s_v5", "invalid"),
    *((code, "", "capacity") for code in ("AllocationFailed", "SkuNotAvailable", "ZonalAllocationFailed")),
    ("ResourceQuotaExceeded", "", "quota"),
    # what a person or a wait mends, by the wait that its class has
    *((code, "", "auth") for code in ("AuthorizationFailed", "MissingSubscriptionRegistration", "Unauthorized")),
    *((code, "", "throttled") for code in ("TooManyRequests", "OperationThrottled")),
    *((code, "", "not_found") for code in ("ResourceNotFound", "PlatformImageNotFound", "InvalidResourceReference")),
    *((code, "", "conflict") for code in ("ScopeLocked", "PreconditionFailed", "OperationPreempted")),
    *((code, "", "invalid") for code in ("RequestDisallowedByPolicy", "PropertyValidationFailed", "TooManyTags")),
    *((code, "", "transient") for code in ("OSProvisioningTimedOut", "InternalServerError", "OperationTimedOut")),
    ("SomethingQuotaExceeded", "", "quota"),
    ("SomethingNotFound", "", "not_found"),
    ("NobodyKnows", "", "unknown"),
]


@pytest.mark.parametrize(("code", "message", "wanted"), BY_WORDS)
def test_what_the_code_does_not_say_the_words_and_the_family_do(code: str, message: str, wanted: str) -> None:
    assert failures.classify(code, message) == wanted


def test_a_vm_shows_why_it_could_not_be_made() -> None:
    statuses = [
        {"code": "PowerState/stopped"},
        {"code": "ProvisioningState/failed/AllocationFailed", "message": "no room", "level": "Error"},
    ]
    error = failures.of_vm({"properties": {"instanceView": {"statuses": statuses}}})
    assert (error.error_class, error.provider_code) == (ErrorClass.CAPACITY, "AllocationFailed")
    assert failures.of_vm({}).error_class is not ErrorClass.CAPACITY


def test_azure_says_when_to_come_again_and_no_secret_is_quoted() -> None:
    refused = replied(429, "TooManyRequests", "key s3cr3t-key sig", **{"Retry-After": "17"})
    error = failures.translate("x", refused, ["s3cr3t-key"])
    assert error.retry_after == 17
    assert "s3cr3t-key" not in error.message


NOT_THE_CLOUDS = {
    "InUseSubnetCannotBeDeleted",  # of a subnet's deletion, which this driver never asks for
    "NotImplemented",  # what the simulator does not emulate
    "SubnetMissing",
    "SubnetWithoutPrefixOfVersion",
}
"""Codes of the simulated cloud that the driver never meets, or that are no words of Azure's."""


def test_every_code_that_the_simulated_cloud_answers_has_a_class() -> None:
    """The waits of a code that no table knows are those of an error that nobody understands."""
    sources = [file.read_text() for file in (ROOT / "simulator" / "clouds" / "arm").glob("*.py")]
    said = {code for source in sources for code in re.findall(r'ArmError\(\s*"([A-Za-z]+)"', source)}
    assert len(said) > 30
    unknown = {code for code in said if failures.classify(code) is ErrorClass.UNKNOWN}
    assert unknown == NOT_THE_CLOUDS


def test_no_code_is_in_the_table_twice() -> None:
    listed = [code for codes in failures._CODES.values() for code in codes.split()]
    assert len(listed) == len(set(listed))
    assert set(failures._CODES) == set(ErrorClass) - {ErrorClass.UNKNOWN}

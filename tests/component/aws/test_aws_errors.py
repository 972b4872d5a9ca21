"""The error table, and what a message may say."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from clouds.aws import secret
from clouds.drivers import AwsCloud, fault, machine

from drivers.aws import failures
from drivers.base import DriverSettings, ListMachinesRequest, load_driver
from drivers.errors import DriverError
from drivers.failures import LONGER_WAIT, combine
from resources.errors import ErrorClass


@pytest.mark.parametrize("code", sorted(failures.CODES))
def test_the_table_is_what_a_call_raises(code: str) -> None:
    said = ClientError({"Error": {"Code": code, "Message": "words"}}, "RunInstances")
    error = failures.translate("RunInstances", said)
    assert error.error_class is failures.CODES[code]
    assert (error.provider_code, error.message) == (code, f"RunInstances: {code}: words")


BY_REFERENCE = {
    # machine-controller-manager-provider-aws, pkg/aws/errors/codes.go: ResourceExhausted
    "InsufficientCapacity": ErrorClass.CAPACITY,
    "InsufficientAddressCapacity": ErrorClass.CAPACITY,
    "InsufficientInstanceCapacity": ErrorClass.CAPACITY,
    "InsufficientVolumeCapacity": ErrorClass.CAPACITY,
    "Unsupported": ErrorClass.CAPACITY,
    "InstanceLimitExceeded": ErrorClass.QUOTA,
    "VcpuLimitExceeded": ErrorClass.QUOTA,
    "MaxIOPSLimitExceeded": ErrorClass.QUOTA,
    "VolumeLimitExceeded": ErrorClass.QUOTA,
    "RouteLimitExceeded": ErrorClass.QUOTA,
    # what a person or a wait mends, by the wait that its class has
    **dict.fromkeys(("UnauthorizedOperation", "AuthFailure", "OptInRequired", "ExpiredToken"), ErrorClass.AUTH),
    **dict.fromkeys(("Throttling", "EC2ThrottledException"), ErrorClass.THROTTLED),
    **dict.fromkeys(("InvalidInstanceID.NotFound", "InvalidAMIID.Unavailable"), ErrorClass.NOT_FOUND),
    **dict.fromkeys(("VolumeInUse", "IncorrectInstanceState", "IdempotentParameterMismatch"), ErrorClass.CONFLICT),
    **dict.fromkeys(("InvalidParameterValue", "UnsupportedOperation", "TagPolicyViolation"), ErrorClass.INVALID),
    **dict.fromkeys(("InternalError", "Unavailable", "ServiceUnavailable"), ErrorClass.TRANSIENT),
    # families
    "SomeNewLimitExceeded": ErrorClass.QUOTA,
    "InvalidWhatever.NotFound": ErrorClass.NOT_FOUND,
    "InvalidWhatever.Malformed": ErrorClass.INVALID,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ErrorClass.AUTH,
    "Client.UnauthorizedOperation.Some.Detail": ErrorClass.AUTH,
    "NobodyKnows.Some.Detail": ErrorClass.UNKNOWN,
    # and what looks like one but is none
    "RequestLimitExceeded": ErrorClass.THROTTLED,
    "TagLimitExceeded": ErrorClass.INVALID,
    "Server.InsufficientInstanceCapacity": ErrorClass.CAPACITY,
    "NobodyKnows": ErrorClass.UNKNOWN,
}


@pytest.mark.parametrize(("code", "wanted"), BY_REFERENCE.items())
def test_codes_as_the_references_have_them(code: str, wanted: ErrorClass) -> None:
    assert failures.classify(code) is wanted


def test_no_code_is_in_the_table_twice() -> None:
    listed = [code for codes in failures._CODES.values() for code in codes.split()]
    assert len(listed) == len(set(listed))
    assert set(failures._CODES) == set(ErrorClass) - {ErrorClass.UNKNOWN}


def test_a_fresh_instance_profile_is_transient(cloud: AwsCloud) -> None:
    given = machine(cloud, iam={"name": "just-made"})
    with pytest.raises(DriverError) as unknown:
        cloud.driver.create_machine(given.creation())
    assert (unknown.value.provider_code, unknown.value.error_class) == ("InvalidParameterValue", ErrorClass.TRANSIENT)
    other = machine(cloud, machineType="m5.enormous")
    with pytest.raises(DriverError) as wrong:
        cloud.driver.create_machine(other.creation())
    assert (wrong.value.provider_code, wrong.value.error_class) == ("InvalidParameterValue", ErrorClass.INVALID)


def test_the_wait_that_ec2_asks_for_is_passed_on(cloud: AwsCloud) -> None:
    given = machine(cloud)
    fault(cloud, "DescribeInstances", "RequestLimitExceeded", headers={"Retry-After": "7"})
    with pytest.raises(DriverError) as throttled:
        cloud.driver.list_machines(given.listing())
    assert throttled.value.retry_after == 7.0


def test_no_connection_is_transient() -> None:
    settings = DriverSettings(endpoint="http://127.0.0.1:9")  # discard: nobody listens
    keys = secret(accessKeyID="key", secretAccessKey="canary")
    request = ListMachinesRequest(cluster="c", provider_spec={"region": "eu-west-1"}, secret=keys)
    with pytest.raises(DriverError, match="EndpointConnectionError") as failure:
        load_driver("AWS", settings).list_machines(request)
    assert failure.value.error_class is ErrorClass.TRANSIENT


def test_parameters_that_the_api_does_not_know_are_named_without_values() -> None:
    report = 'Invalid type for parameter UserData, value: canary\nUnknown parameter in input: "Colour"'
    error = failures.translate("RunInstances", ParamValidationError(report=report))
    assert error.error_class is ErrorClass.INVALID
    assert "UserData" in error.message
    assert "canary" not in error.message


@pytest.mark.parametrize("order", [1, -1])
def test_combined_errors_have_the_class_of_the_longest_wait(order: int) -> None:
    errors = [DriverError(c, c.value, retry_after=1.0) for c in LONGER_WAIT]
    assert set(LONGER_WAIT) == set(ErrorClass)
    for n, wanted in enumerate(LONGER_WAIT):
        both = combine(errors[n:][::order])
        assert both.error_class is wanted
        assert both.retry_after == 1.0
        assert all(e.message in both.message for e in errors[n:])


def test_long_messages_and_blobs_are_cut() -> None:
    assert failures.scrub("You are not authorized. Encoded authorization failure message: " + "x" * 900) == (
        "You are not authorized."
    )
    assert failures.scrub("key AKIAHOSTLERSIMULATOR and abcdef.0123456789abcdef") == "key *** and abcdef.***"
    assert len(failures.scrub("word " * 400)) == 500

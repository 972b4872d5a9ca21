"""What EC2's error codes mean, in one table, and how a failed call becomes a DriverError in our own words.

Codes: EC2 API reference, *Error codes*; STS API reference, *Common errors*. Where machine-controller-manager's AWS
provider has an opinion (pkg/aws/errors/codes.go: what is ResourceExhausted), the table follows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from drivers import failures
from drivers.errors import DriverError
from resources import redact
from resources.errors import ErrorClass

_CODES: dict[ErrorClass, str] = {
    ErrorClass.CAPACITY: """
        InsufficientAddressCapacity InsufficientCapacity InsufficientCapacityOnHost InsufficientCapacityOnOutpost
        InsufficientFreeAddressesInSubnet InsufficientHostCapacity InsufficientInstanceCapacity
        InsufficientReservedInstanceCapacity InsufficientVolumeCapacity ReservationCapacityExceeded SpotMaxPriceTooLow
        UnfulfillableCapacity Unsupported""",  # Unsupported: this zone has no such machine type, another may
    ErrorClass.QUOTA: """
        AddressLimitExceeded AttachmentLimitExceeded HostLimitExceeded InstanceLimitExceeded MaxIOPSLimitExceeded
        MaxSpotInstanceCountExceeded NetworkInterfaceLimitExceeded PrivateIpAddressLimitExceeded ResourceLimitExceeded
        RouteLimitExceeded SecurityGroupsPerInstanceLimitExceeded SecurityGroupsPerInterfaceLimitExceeded
        VcpuLimitExceeded VolumeLimitExceeded""",
    ErrorClass.THROTTLED: """
        429 BandwidthLimitExceeded EC2ThrottledException PriorRequestNotComplete RequestLimitExceeded RequestThrottled
        RequestThrottledException SlowDown ThrottledException Throttling ThrottlingException
        TooManyRequestsException""",
    ErrorClass.AUTH: """
        401 403 AccessDenied AccessDeniedException AuthFailure Blocked ExpiredToken ExpiredTokenException
        IDPRejectedClaim IncompleteSignature InvalidAccessKeyId InvalidClientTokenId InvalidIdentityToken
        InvalidSecurity.RequestHasExpired InvalidSecurityToken InvalidToken MissingAuthenticationToken OptInRequired
        PendingVerification RequestExpired RequestTimeTooSkewed SignatureDoesNotMatch UnauthorizedOperation
        UnrecognizedClientException""",
    ErrorClass.NOT_FOUND: """
        InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidCapacityReservationId.NotFound InvalidGroup.NotFound
        InvalidHostID.NotFound InvalidID InvalidInstanceID.NotFound InvalidKeyPair.NotFound
        InvalidNetworkInterfaceID.NotFound InvalidPlacementGroup.Unknown InvalidSecurityGroupID.NotFound
        InvalidSnapshot.NotFound InvalidSubnet.NotFound InvalidSubnetID.NotFound InvalidVolume.NotFound
        InvalidVpcID.NotFound NoSuchEntity""",
    ErrorClass.CONFLICT: """
        ConcurrentTagAccess DependencyViolation IdempotentInstanceTerminated IdempotentParameterMismatch
        IncorrectInstanceState IncorrectSpotRequestState IncorrectState InvalidIPAddress.InUse
        InvalidNetworkInterface.InUse InvalidState OperationNotPermitted VolumeInUse""",
    ErrorClass.INVALID: """
        400 EncryptedVolumesNotSupported InvalidAMIID.Malformed InvalidAction InvalidAvailabilityZone
        InvalidBlockDeviceMapping InvalidFilter InvalidGroupId.Malformed InvalidInput InvalidInstanceID
        InvalidInstanceID.Malformed InvalidInstanceType InvalidInterface.IpAddressLimitExceeded InvalidKeyPair.Format
        InvalidNextToken InvalidPaginationToken InvalidParameter InvalidParameterCombination InvalidParameterDependency
        InvalidParameterValue InvalidQueryParameter InvalidRequest InvalidSubnetID.Malformed InvalidTagKey.Malformed
        InvalidTenancy InvalidUserData.Malformed InvalidVolume.ZoneMismatch MalformedQueryString MissingAction
        MissingInput MissingParameter TagLimitExceeded TagPolicyViolation UnknownParameter UnsupportedInstanceAttribute
        UnsupportedOperation VPCIdNotSpecified ValidationError VolumeTypeNotAvailableInZone""",
    ErrorClass.TRANSIENT: """
        500 502 503 504 IDPCommunicationError InternalError InternalFailure InternalServerError RequestTimeout
        RequestTimeoutException ServerInternal ServiceUnavailable ServiceUnavailableException Unavailable""",
}

CODES: dict[str, ErrorClass] = {code: cls for cls, codes in _CODES.items() for code in codes.split()}
"""The table. Bare numbers are what botocore reports when a proxy answers without a body that it can read."""

_FAMILIES = (
    (".NotFound", ErrorClass.NOT_FOUND),
    (".Malformed", ErrorClass.INVALID),
    ("LimitExceeded", ErrorClass.QUOTA),
)
"""Endings that EC2 uses alike for every resource; looked at only for codes that the table does not have."""

_WORDS = (("InvalidParameterValue", re.compile(r"iam instance ?profile", re.IGNORECASE), ErrorClass.TRANSIENT),)
"""A fresh instance profile is unknown to EC2 for some seconds; only the message tells it from a bad parameter (P33:
karpenter-provider-aws#5018)."""

_TAIL = re.compile(r"(Encoded authorization failure message:|The Canonical String for this request).*", re.DOTALL)
_ACCESS_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


def classify(code: str, message: str = "") -> ErrorClass:
    """The class of an EC2 or STS error code; UNKNOWN when nobody has met it yet.

    What follows a dot says more of the same: `AuthFailure.ServiceLinkedRoleCreationNotPermitted` is an AuthFailure.
    """
    code = code.removeprefix("Server.").removeprefix("Client.")
    for known, words, cls in _WORDS:
        if code == known and words.search(message):
            return cls
    if code in CODES:
        return CODES[code]
    for ending, cls in _FAMILIES:
        if code.endswith(ending):
            return cls
    family, dot, _ = code.rpartition(".")
    return classify(family) if dot else ErrorClass.UNKNOWN


def translate(operation: str, error: Exception, hide: Sequence[str] = ()) -> DriverError:
    """The DriverError of a failed call. `hide` holds values that must not be quoted, whatever the cloud writes."""
    if isinstance(error, boto.ClientError):
        return _from_reply(operation, error, hide)
    if isinstance(error, boto.ParamValidationError):
        # Its text quotes values, user data among them: only the names of the parameters are passed on.
        names = sorted(set(re.findall(r'parameter (?:in )?"?([A-Za-z][\w.\[\]]*)', str(error))))
        return DriverError(
            ErrorClass.INVALID, f"{operation}: the API does not take these parameters: {', '.join(names)}"
        )
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.CredentialRetrievalError):
        return DriverError(
            ErrorClass.AUTH,
            f"{operation}: no usable AWS credentials ({type(error).__name__}): give the Secret accessKeyID and "
            "secretAccessKey, or workloadIdentityTokenFile and roleARN, or give the worker an AWS profile or role",
        )
    if isinstance(error, boto.ProfileNotFound | boto.NoRegionError | boto.ConfigParseError):
        return DriverError(
            ErrorClass.AUTH, f"{operation}: the worker's own AWS configuration: {scrub(str(error), hide)}"
        )
    if isinstance(error, boto.HTTPClientError | boto.ConnectionError):
        return DriverError(ErrorClass.TRANSIENT, f"{operation}: {type(error).__name__}: {scrub(str(error), hide)}")
    if isinstance(error, ResponseParserError):  # its message quotes the answer
        return DriverError(
            ErrorClass.TRANSIENT, (f"{operation}: the answer is not from EC2; is there a proxy in between?")
        )
    if isinstance(error, boto.ValidationError | ValueError):
        return DriverError(ErrorClass.INVALID, f"{operation}: {scrub(str(error), hide)}")
    if isinstance(error, OSError):
        # Only reading a web identity token gets here: botocore wraps what goes wrong on the network.
        return DriverError(
            ErrorClass.AUTH, f"{operation}: the workloadIdentityTokenFile cannot be read: {error.strerror or error}"
        )
    return DriverError(ErrorClass.UNKNOWN, f"{operation}: {type(error).__name__}", provider_code=type(error).__name__)


def _from_reply(operation: str, error: boto.ClientError, hide: Sequence[str]) -> DriverError:
    reply = error.response.get("Error", {})
    code, message = str(reply.get("Code", "")), str(reply.get("Message", ""))
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    wait = str(headers.get("retry-after", ""))
    where = operation if error.operation_name == operation else f"{operation} ({error.operation_name})"
    return DriverError(
        classify(code, message),
        f"{where}: {code}: {scrub(message, hide)}",
        provider_code=code,
        retry_after=failures.asked_to_wait(wait),
    )


def scrub(text: str, hide: Sequence[str] = ()) -> str:
    """One line, bounded, without anything that looks like a key or an encoded body."""
    return failures.scrub(text, hide, own=lambda t: _ACCESS_KEY_ID.sub("***", _TAIL.sub("", t)))


def hide_secrets(text: str) -> str:
    """The text without access keys and without anything else that looks like a secret: a boot script that echoes its
    work writes its user data and its bootstrap token to the console."""
    return redact.hide_secrets(_ACCESS_KEY_ID.sub("***", text))

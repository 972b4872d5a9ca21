"""What Azure's error codes mean, in one table, and how a failed call becomes a DriverError in our own words.

Codes: Azure Resource Manager, *Resolve common errors*; Virtual Machines, *Error messages* and *Allocation failures*;
Microsoft Entra, *AADSTS error codes*. Where machine-controller-manager's Azure provider has an opinion
(pkg/azure/access/errors: what is ResourceExhausted), the table follows it. Only the code counts, never the class of
the SDK's exception or the status: an operation that ends badly raises with status 200, and a size that is sold out
with 409.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from azure.core import exceptions as azure
from azure.identity import CredentialUnavailableError

from drivers import failures
from drivers.errors import DriverError
from resources.errors import ErrorClass

_CODES: dict[ErrorClass, str] = {
    ErrorClass.CAPACITY: """
        AllocationFailed InsufficientCapacity NotAvailableForSubscription OverconstrainedAllocationRequest
        OverconstrainedZonalAllocationRequest SkuNotAvailable SpotVMEvicted SubnetIsFull
        SubnetWithExternalResourcesIsFull VMSizeNotAvailable ZonalAllocationFailed""",
    ErrorClass.QUOTA: """
        CoreQuotaExceeded NetworkInterfaceCountLimitReached PublicIPCountLimitReached QuotaExceeded
        ResourceCountLimitExceeded ResourceQuotaExceeded""",
    ErrorClass.THROTTLED: """
        429 OperationThrottled RateLimiting RequestsThrottled ResourceCollectionRequestsThrottled
        ResourceRequestsThrottled SubscriptionRequestsThrottled TenantRequestsThrottled TooManyRequests""",
    ErrorClass.AUTH: """
        401 403 AccountIsDisabled AuthenticationFailed AuthenticationFailedInvalidHeader AuthorizationFailed
        ClientAuthenticationError DisallowedProvider ExpiredAuthenticationToken Forbidden InvalidAuthenticationToken
        InvalidAuthenticationTokenAudience InvalidAuthenticationTokenTenant InvalidSubscriptionId
        LinkedAccessCheckFailed LinkedAuthorizationFailed MarketplacePurchaseEligibilityFailed
        MissingSubscriptionRegistration ReadOnlyDisabledSubscription ResourcePurchaseValidationFailed
        SubscriptionNotFound SubscriptionNotRegistered Unauthorized""",
    ErrorClass.NOT_FOUND: """
        404 DiskEncryptionSetNotFound GalleryImageNotFound ImageNotFound InvalidResourceReference NotFound
        ParentResourceNotFound PlatformImageNotFound ReferencedResourceNotFound ResourceGroupNotFound ResourceNotFound
        SubnetNotFound VMImageNotFound VirtualNetworkNotFound""",
    ErrorClass.CONFLICT: """
        409 412 AnotherOperationInProgress AttachDiskWhileBeingDetached CanceledAndSupersededDueToAnotherOperation
        Canceled Conflict ConflictingUserInput DiskIsAttachedToVM ImageInUse InUseResourceCannotBeDeleted NicInUse
        NicReservedForAnotherVm OperationNotAllowed OperationPreempted PreconditionFailed PropertyChangeNotAllowed
        ReferencedResourceNotProvisioned ResourceExists ResourceGroupBeingDeleted ResourceInUse
        ResourceNotProvisioned RetryableErrorDueToAnotherOperation ScopeLocked VMBeingDeleted""",
    ErrorClass.INVALID: """
        400 405 413 BadRequest ImageVersionDeprecated InvalidApiVersionParameter InvalidParameter InvalidParameterValue
        InvalidRequestContent InvalidRequestFormat InvalidResource InvalidResourceId InvalidResourceName
        InvalidResourceType InvalidTagNameCharacters LinkedInvalidPropertyId LocationNotAvailableForResourceType
        LocationRequired MethodNotAllowed MissingApiVersionParameter MissingRequestBody NetcfgInvalidSubnet
        NetworkAcceleratedNetworkingNotSupported NetworkInterfaceMustHaveAtLeastOneIpConfiguration
        NetworkInterfaceMustHaveOnePrimaryIpConfiguration NoRegisteredProviderFound PrivateIPAddressNotInSubnet
        PropertyValidationFailed RequestBodyTooLarge RequestContentTooLarge RequestDisallowedByPolicy
        RequestEntityTooLarge ReservedTagNamePrefix TagCountExceeded TooManyTags UnsupportedMediaType
        VMMarketplaceInvalidInput VMSizeIsNotPermittedToEnableAcceleratedNetworking VMSizeNotSupported
        VirtualMachineMustHaveOneNetworkInterfaceAsPrimary""",
    ErrorClass.TRANSIENT: """
        408 500 502 503 504 BadGateway FailedIdentityOperation GatewayTimeout InternalDiskManagementError InternalError
        InternalExecutionError InternalOperationError InternalServerError NetworkingInternalOperationError
        OSProvisioningClientError OSProvisioningInternalError OSProvisioningTimedOut OperationTimedOut RequestTimeout
        RetryableError ServerBusy ServerTimeout ServiceTimeout ServiceUnavailable StorageFailure
        StorageFailure/SocketException VMAgentStatusCommunicationError VMStartTimedOut""",
}

CODES: dict[str, ErrorClass] = {code: cls for cls, codes in _CODES.items() for code in codes.split()}
"""The table. Bare numbers stand for an answer without a code, as a proxy gives it."""

_FAMILIES = (
    (re.compile(r"AADSTS(50196|90055)"), ErrorClass.THROTTLED),
    (re.compile(r"AADSTS(90006|90012|90024|90033)"), ErrorClass.TRANSIENT),  # Entra's own trouble
    (re.compile(r"AADSTS\d+"), ErrorClass.AUTH),
    (re.compile(r".*NotFound"), ErrorClass.NOT_FOUND),
    (re.compile(r".*(QuotaExceeded|LimitReached|LimitExceeded|CountExceeded)"), ErrorClass.QUOTA),
    (re.compile(r".*Throttled"), ErrorClass.THROTTLED),
    (re.compile(r".*InUse"), ErrorClass.CONFLICT),
    (re.compile(r"(Invalid|Unsupported).*|.*NotSupported"), ErrorClass.INVALID),
)
"""Names that Azure builds alike for every resource; looked at only for codes that the table does not have."""

_WORDS = (
    ("OperationNotAllowed", ("exceed", "quota"), ErrorClass.QUOTA),
    *(("BadRequest", ("not supported", place), ErrorClass.CAPACITY) for place in ("zone", "location", "region")),
    ("BadRequest", ("not available in",), ErrorClass.CAPACITY),
)
"""One code for several causes, which only the message tells apart: a quota from a VM that is in no state for it; a size
that this zone does not have from a bad request (P21). machine-controller-manager-provider-azure takes every "not
supported" for the latter; a feature that a size does not have will not come by waiting for room."""

UNSAID = "ProvisioningFailed"
"""The code of a VM that does not show why its creation has failed."""
_OUTER = frozenset({"MultipleErrorsOccurred", "DeploymentFailed", "ResourceOperationFailure", "Failed"})
"""Codes that say only that there is another inside."""
_AADSTS = re.compile(r"AADSTS\d+")
_HTTP = re.compile(r"HTTP Error: (5\d\d)")
"""How azure-identity words an answer of Entra that is none of its own: a proxy's, or that of a service that is down."""
_TAIL = re.compile(r" ?(Trace ID|Correlation ID|Timestamp): \S+( \S+)?")
_SAS = re.compile(r"([?&]sig=)[^&\s]+")


def classify(code: str, message: str = "") -> ErrorClass:
    """The class of an error code; UNKNOWN when nobody has met it yet."""
    for known, words, cls in _WORDS:
        if code == known and all(word in message.lower() for word in words):
            return cls
    if code in CODES:
        return CODES[code]
    return next((cls for name, cls in _FAMILIES if name.fullmatch(code)), ErrorClass.UNKNOWN)


def translate(operation: str, error: Exception, hide: Sequence[str] = ()) -> DriverError:
    """The DriverError of a failed call. `hide` holds values that must not be quoted, whatever the cloud writes."""
    if isinstance(error, CredentialUnavailableError):
        return DriverError(
            ErrorClass.AUTH,
            f"{operation}: no usable Azure credentials: {scrub(error.message or '', hide)}; give the Secret "
            "subscriptionID, tenantID, clientID and clientSecret (or clientCertificate, or "
            "workloadIdentityTokenFile), or run the worker where it has a managed identity",
        )
    if isinstance(error, azure.ClientAuthenticationError) and error.error is None and not _is_answer(error):
        if isinstance(error.__cause__, azure.ServiceRequestError | azure.ServiceResponseError):
            return translate(f"{operation} (login)", error.__cause__, hide)
        return _of_login(operation, error, hide)
    if isinstance(error, azure.DecodeError | azure.DeserializationError):  # its message quotes the answer
        return DriverError(
            ErrorClass.TRANSIENT, f"{operation}: the answer is not from Azure; is there a proxy in between?"
        )
    if isinstance(error, azure.HttpResponseError) and error.response is not None:
        return _from_reply(operation, error, hide)
    if isinstance(error, azure.ServiceRequestError | azure.ServiceResponseError):
        return DriverError(ErrorClass.TRANSIENT, f"{operation}: {type(error).__name__}: {scrub(str(error), hide)}")
    if isinstance(error, ValueError | OSError):  # a certificate or a token file that cannot be read
        return DriverError(
            ErrorClass.AUTH, f"{operation}: the credentials cannot be used: {scrub(_plain(error), hide)}"
        )
    return DriverError(ErrorClass.UNKNOWN, f"{operation}: {type(error).__name__}", provider_code=type(error).__name__)


def _is_answer(error: azure.ClientAuthenticationError) -> bool:
    """Whether it is Azure's own 401 without a body, and not what became of a login."""
    request = getattr(error.response, "request", None)
    return request is not None and "/oauth2/" not in str(request.url)


def _plain(error: Exception) -> str:
    """A file's error without what it holds."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def _of_login(operation: str, error: azure.ClientAuthenticationError, hide: Sequence[str]) -> DriverError:
    """Entra's refusal, or its own trouble, which says nothing about the credentials: the code stands in the text."""
    text = str(error)
    if found := _AADSTS.search(text):
        code = found[0]
    elif found := _HTTP.search(text):
        code = found[1]
    else:
        code = "ClientAuthenticationError"
    return DriverError(classify(code), f"{operation} (login): {scrub(text, hide)}", provider_code=code)


def _from_reply(operation: str, error: azure.HttpResponseError, hide: Sequence[str]) -> DriverError:
    code, message = _said(error)
    wait = str(error.response.headers.get("Retry-After", "")) if error.response else ""
    return DriverError(
        classify(code, message),
        f"{operation}: {code}: {scrub(message, hide)}",
        provider_code=code,
        retry_after=failures.asked_to_wait(wait),
    )


def _said(error: azure.HttpResponseError) -> tuple[str, str]:
    said: Any = error.error
    while said is not None and said.code in _OUTER and said.details:
        said = said.details[0]
    code = said.code if said is not None and said.code else str(error.status_code)
    return str(code), str(said.message or "") if said is not None else ""


def of_status(operation: str, ended: Mapping[str, Any], hide: Sequence[str] = ()) -> DriverError:
    """The error of an operation that has ended badly, as its own address tells it."""
    said = ended.get("error") or {}
    while said.get("code") in _OUTER and said.get("details"):
        said = said["details"][0]
    code, message = str(said.get("code") or ended.get("status")), str(said.get("message") or "Azure does not say why")
    words = f"{operation}: {code}: {scrub(message, hide)}"
    return DriverError(classify(code, message), words, provider_code=code)


def of_vm(vm: Mapping[str, Any], hide: Sequence[str] = ()) -> DriverError:
    """The error with which a VM's creation has ended, as the VM itself shows it:
    `ProvisioningState/failed/AllocationFailed`."""
    statuses = ((vm.get("properties") or {}).get("instanceView") or {}).get("statuses") or ()
    code, message = UNSAID, "Azure does not say why"
    for status in statuses:
        what, _, rest = str(status.get("code", "")).partition("/failed")
        if what == "ProvisioningState" and rest.strip("/"):
            code, message = rest.strip("/"), str(status.get("message") or status.get("displayStatus") or "")
    words = f"VirtualMachines_CreateOrUpdate: {code}: {scrub(message, hide)}"
    return DriverError(classify(code, message), words, provider_code=code)


def scrub(text: str, hide: Sequence[str] = ()) -> str:
    """One line, bounded, without anything that looks like a key, a signature or an encoded body."""
    return failures.scrub(text, hide, own=lambda t: _SAS.sub(r"\1***", _TAIL.sub("", t)))

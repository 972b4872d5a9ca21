"""What can go wrong at a provider, in the words that drivers, planners and workflows share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError

from resources.base import Key, Seconds, Text, Value, Word


class ErrorClass(StrEnum):
    """What a failure means for what to do next. A driver's table maps each code of its cloud to one of these; one table
    in planners/ maps each of these to a wait."""

    CAPACITY = "capacity"
    """The cloud has no such machine to give right now."""
    QUOTA = "quota"
    """The account may not have more."""
    THROTTLED = "throttled"
    """Too many calls."""
    AUTH = "auth"
    """Credentials are missing, wrong, or may not do this."""
    NOT_FOUND = "not_found"
    """Something that the request names does not exist."""
    CONFLICT = "conflict"
    """The resource is in a state that does not allow it now, or somebody else changed it."""
    INVALID = "invalid"
    """The request will never be accepted as it is."""
    TRANSIENT = "transient"
    """Try again: network, time-out, the service's own trouble."""
    UNKNOWN = "unknown"
    """A code that no table knows; it is reported with the code, so that the table can grow."""


PASSING = frozenset({ErrorClass.TRANSIENT, ErrorClass.THROTTLED})
"""Errors that pass on their own: whatever did not answer now may answer soon. All others are an answer."""


class Code(StrEnum):
    """gRPC status codes by name, as machine-controller-manager's drivers return them (machine_error_codes.md)."""

    OK = "OK"
    UNKNOWN = "Unknown"
    INVALID_ARGUMENT = "InvalidArgument"
    NOT_FOUND = "NotFound"
    PERMISSION_DENIED = "PermissionDenied"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    ABORTED = "Aborted"
    UNIMPLEMENTED = "Unimplemented"
    UNAVAILABLE = "Unavailable"


CODE_OF: dict[ErrorClass, Code] = {
    ErrorClass.CAPACITY: Code.RESOURCE_EXHAUSTED,  # cluster-autoscaler backs off a node group on this one
    ErrorClass.QUOTA: Code.RESOURCE_EXHAUSTED,
    ErrorClass.THROTTLED: Code.UNAVAILABLE,
    ErrorClass.AUTH: Code.PERMISSION_DENIED,
    ErrorClass.NOT_FOUND: Code.NOT_FOUND,
    ErrorClass.CONFLICT: Code.ABORTED,
    ErrorClass.INVALID: Code.INVALID_ARGUMENT,
    ErrorClass.TRANSIENT: Code.UNAVAILABLE,
    ErrorClass.UNKNOWN: Code.UNKNOWN,
}


ADDRESS_MOST = 4000
"""Characters of an operation's address; Azure's are up to 2,000, with a signature."""
Address = Annotated[str, Field(max_length=ADDRESS_MOST)]
"""Where an operation is asked for: a URL may carry a signature longer than any key. Refuses."""


class BegunOperation(Value):
    """What a cloud is at, as it says itself: a handle that any worker can ask with. Never holds a request, whose body
    may have secrets in it."""

    call: Key
    """The call that has begun it: `VirtualMachines_CreateOrUpdate`."""
    what: Text
    """What it makes or deletes: `VM worker-1-3f9c2d1a7b`."""
    address: Address
    """What the cloud calls it: a URL at the cloud's own endpoint, or a name."""

    @classmethod
    def read(cls, found: Any) -> BegunOperation | None:
        """The operation that a heartbeat has; None for anything else that somebody may have written there."""
        try:
            return cls.model_validate(found)
        except ValidationError:
            return None


class ErrorInfo(Value):
    """A classified failure as it travels from an activity to its workflow. Never holds a secret."""

    error_class: ErrorClass = ErrorClass.UNKNOWN
    """The class of the error, which decides how long the next try waits."""
    code: Code = Code.UNKNOWN
    """Gardener's code for it."""
    message: Text = ""
    """What went wrong, in words."""
    retry_after: Seconds | None = None
    """Seconds that the provider asked to wait."""
    provider_code: Key = ""
    """The cloud's own code, e.g. InsufficientInstanceCapacity."""
    account_id: Key = ""
    """The account in which a creation that failed may have made a VM all the same."""
    begun: BegunOperation | None = None
    """What the cloud is still at, of a creation; the next call goes on with it."""
    silent: Word = ""
    """Who did not answer, `API` (the Kubernetes API server) or `cloud`; "": somebody answered, or it is not known."""

    @classmethod
    def of(cls, error_class: ErrorClass, message: str) -> ErrorInfo:
        """The error with the code that goes with its class."""
        return cls(error_class=error_class, code=CODE_OF[error_class], message=message)


API, CLOUD = "API", "cloud"
"""Values of ErrorInfo.silent."""

# Failure types of activities that are not a provider's error; the workflow branches on them.
NOT_YET = "NotYet"
"""One pass of a poller found that it is not over; the message is the blocker."""
IDEMPOTENCY = "IdempotencyMismatch"
"""The attempt's token is bound to other parameters or to a dead machine: the attempt is over."""
NAME_TAKEN = "NameTaken"
"""A living VM of the same cluster and machine name carries another uid: no second one is made beside it."""
MISSING_CREDENTIALS = "CredentialsMissing"
"""A Secret that holds credentials or user data cannot be read."""
WRONG_ACCOUNT = "WrongAccount"
"""The credentials open another account than the one in which the VM was made."""
NOT_WANTED = "NotWanted"
"""A create call was about to make a VM, and its machine is leaving: none was made."""
IN_PROGRESS = "InProgress"
"""What a create call makes takes longer than an activity may; the same call continues with it."""
NOT_PRESERVED = "NotPreserved"
"""A machine has refused to end or move its preservation: it has none."""

TOO_EARLY = "the workflow has not handled its pending signals yet; ask again"
"""The message of a query that failed and can be repeated at once (workflows/runner.py)."""

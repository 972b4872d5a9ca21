"""What Azure is at: the address by which a change can be asked for, and how it goes.

A change that takes its time is answered with an address (Azure Resource Manager, *Track asynchronous Azure
operations*): `Azure-AsyncOperation`, which tells a status, or else `Location`. It is followed at the account's own
endpoint and in its own subscription alone, since whoever is asked there is given the account's token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from drivers.azure.calls import Arm, Resource
from drivers.azure.failures import of_status
from drivers.errors import DriverError, OperationFailed
from drivers.operations import Course
from resources.errors import ADDRESS_MOST, BegunOperation, ErrorClass

GOES_ON = "InProgress"
ENDED_WELL = "Succeeded"
ENDED_BADLY = frozenset({"failed", "canceled"})


def begin(
    arm: Arm, call: str, *path: Any, what: str, hide: Sequence[str] = (), **parameters: Any
) -> tuple[Resource, BegunOperation | None]:
    """Makes a change: the resource as Azure answers it, and the operation; None where the change is done, or has no
    address that may be asked."""
    headers: dict[str, str] = {}

    def seen(reply: Any, answer: Any, _: Any) -> Any:
        headers.update({k.lower(): v for k, v in reply.http_response.headers.items()})
        return answer

    made = arm.call(call, *path, hide=hide, cls=seen, **parameters)
    address = headers.get("azure-asyncoperation") or headers.get("location") or ""
    return made, BegunOperation(call=call, what=what, address=address) if may_be_asked(arm, address) else None


def may_be_asked(arm: Arm, address: str) -> bool:
    """Whether an address is one of this subscription's at the account's own endpoint."""
    try:
        asked, own = urlsplit(address), urlsplit(arm.endpoint)
        at = (asked.scheme.lower(), (asked.hostname or "").lower(), asked.port, asked.username)
        home = (own.scheme.lower(), (own.hostname or "").lower(), own.port, None)
    except ValueError:
        return False
    within = asked.path.lower().startswith(f"/subscriptions/{arm.subscription.lower()}/") and "/../" not in asked.path
    return at == home and within and len(address) <= ADDRESS_MOST


def course(arm: Arm, begun: BegunOperation, hide: Sequence[str] = ()) -> Course:
    """How an operation goes; one call. Raises OperationFailed for one that has ended badly; DriverError."""
    if not may_be_asked(arm, begun.address):
        return Course.UNKNOWN
    try:
        status, answer = arm.poll(begun.address)
    except DriverError as e:
        if e.error_class is not ErrorClass.NOT_FOUND:
            raise
        return Course.UNKNOWN
    return _course(begun, status, answer, hide)


def _course(begun: BegunOperation, status: int, answer: Mapping[str, Any], hide: Sequence[str]) -> Course:
    """A `Location` has no status of its own but HTTP's: 202 while it goes on."""
    word = str(answer.get("status") or (GOES_ON if status == 202 else ENDED_WELL))
    if word.lower() in ENDED_BADLY:
        raise OperationFailed.of(of_status(begun.call, answer, hide))
    return Course.OVER if word.lower() == ENDED_WELL.lower() else Course.GOES_ON

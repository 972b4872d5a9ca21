"""How activities are called: the two retry policies, and what a failed call was about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from planners.waits import REASON
    from resources.cluster.accounts import Account
    from resources.errors import API, MISSING_CREDENTIALS, WRONG_ACCOUNT, BegunOperation, ErrorClass, ErrorInfo


def short(first: timedelta) -> RetryPolicy:
    """The retry policy for transient, short trouble: five tries, the first wait this long and each next one twice as
    long. Bounded by attempts and never by schedule-to-close: an absent worker is a wait."""
    return RetryPolicy(initial_interval=first, backoff_coefficient=2, maximum_interval=15 * first, maximum_attempts=5)


SHORT = short(timedelta(seconds=1))


class Urgency:
    """Which activity of a task queue goes first when the queue's rate limit makes them wait."""

    CREATE = Priority(priority_key=1)
    DELETE = Priority(priority_key=2)
    OTHER = Priority(priority_key=3)
    POLL = Priority(priority_key=5)


@dataclass(frozen=True)
class Share(Priority):
    """The priority of a call that a cloud account is to pay for."""

    account: str = ""
    """Account.key, by which the call may find a task queue of its own (routing.py)."""


def share(urgency: Priority, account: Account | None) -> Priority:
    """Adds the account's share of its cloud's task queue, so that a busy account delays no other: the server takes the
    accounts in turns (`matching.enableFairness`), each at its own rate (`callsPerSecondPerAccount`)."""
    if account is None:
        return urgency
    return Share(priority_key=urgency.priority_key, fairness_key=account.fairness_key, account=account.key)


def watching(duration: timedelta, heartbeat: timedelta) -> dict[str, Any]:
    """The options of a watch that follows an API server for so long, and then returns with its cursor, or sooner where
    it is asked to."""
    return {
        "start_to_close_timeout": duration + timedelta(minutes=5),
        "heartbeat_timeout": heartbeat,
        "retry_policy": poller(timedelta(seconds=1)),  # it is itself patient with the API server
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    }


def poller(interval: timedelta) -> RetryPolicy:
    """The retry policy of an activity that waits for something outside: one pass per attempt, without an end of its
    own.

    Coefficient 1: with the default, one stray error after twelve passes would cause a wait of 100 s.
    """
    return RetryPolicy(initial_interval=interval, backoff_coefficient=1)


@dataclass(frozen=True)
class Failure:
    """A failed call: the failure's type, what is known about it, and further details."""

    kind: str
    info: ErrorInfo
    details: tuple[Any, ...] = ()

    @property
    def words(self) -> str:
        """What went wrong, with the cloud's code where its message does not have it."""
        message, code = self.info.message, self.info.provider_code
        return f"{message} ({code})" if code and code not in message else message

    @property
    def reason(self) -> str:
        """The reason of the wait that follows."""
        if self.kind == WRONG_ACCOUNT:
            return WRONG_ACCOUNT
        if self.info.silent == API:
            return "APIRefused" if self.info.error_class is ErrorClass.AUTH else "APIUnreachable"
        return MISSING_CREDENTIALS if self.kind == MISSING_CREDENTIALS else REASON[self.info.error_class]


def failure_of(error: ActivityError) -> Failure:
    """What a failed activity failed by. If its workers died in the middle of each attempt, that is a transient
    failure."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.details:
        return Failure(cause.type or "", ErrorInfo.model_validate(cause.details[0]), tuple(cause.details[1:]))
    if isinstance(cause, TimeoutError):
        info = ErrorInfo.of(ErrorClass.TRANSIENT, f"no answer: {cause.message}")
        return Failure("Timeout", info.model_copy(update=_left_behind(cause)))
    message = cause.message if isinstance(cause, ApplicationError) else str(cause)
    return Failure("Unknown", ErrorInfo.of(ErrorClass.UNKNOWN, message))


def _left_behind(cause: TimeoutError) -> dict[str, Any]:
    """The account in which it may have made something before it fell silent, and what the cloud is at there
    (activities/boundary.py, ACCOUNT and BEGUN)."""
    last = cause.last_heartbeat_details
    progress = last[0] if last else None
    if not isinstance(progress, dict):
        return {}
    return {
        "account_id": str(progress.get("account", "")),
        "begun": BegunOperation.read(progress.get("begun")),
    }

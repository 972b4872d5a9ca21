"""The one boundary between an activity and its workflow: heartbeats, errors in our own words, metrics.

It is an interceptor, so that no activity can be registered without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.kube.client import KubeError
from activities.kube.etcd import EtcdError
from activities.secrets import SecretMissing
from drivers.base import NameTaken
from drivers.errors import DriverError, IdempotencyMismatch, OperationFailed, PartialUpdate, WrongAccount
from resources.clouds import UnknownScope
from resources.errors import (
    API,
    CLOUD,
    IDEMPOTENCY,
    IN_PROGRESS,
    MISSING_CREDENTIALS,
    NAME_TAKEN,
    NOT_WANTED,
    NOT_YET,
    PASSING,
    WRONG_ACCOUNT,
    BegunOperation,
    ErrorClass,
    ErrorInfo,
)
from resources.settings import SettingsError
from resources.words import cause

# What Temporal itself retries: short troubles. All else goes back to the workflow, which waits visibly.
RETRIED = PASSING

SPREAD = 0.5
"""The next try comes later by up to this share of the wait: after waits of 1, 2, 4 and 8 s, calls that began together
are up to 7 s apart."""

ACCOUNT = "account"
"""Key in an activity's progress: the account in which it is about to make something, or has made it."""

BEGUN = "begun"
"""Key in an activity's progress: what the cloud is at, as BegunOperation has it."""

_progress: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("progress")


def progress(message: str, **details: Any) -> None:
    """Sets what `describe` shows while this attempt runs, and what the next one starts from. Never a secret."""
    now = _progress.get()
    now.clear()
    now.update(message=message, **details)
    activity.heartbeat(now)


def last_progress() -> dict[str, Any]:
    """The details of the previous attempt's last heartbeat; empty when there is none."""
    details = activity.info().heartbeat_details
    return dict(details[0]) if details else {}


async def remember(client: Client, message: str, **details: Any) -> None:
    """Like `progress`, but the server has it before this returns: intent before effect, within an activity.

    Raises RPCError where the server has given this attempt up meanwhile.
    """
    progress(message, **details)
    handle = client.get_async_activity_handle(task_token=activity.info().task_token)
    await handle.heartbeat(dict(_progress.get()))


class NotYet(Exception):
    """One pass of a poller found that the work is not over. The message is the blocker; `again` is when to look
    next."""

    def __init__(self, message: str, again: timedelta) -> None:
        super().__init__(message)
        self.again = again


class NotWanted(Exception):
    """What was about to be made is no longer wanted. The message says why."""


class StillMaking(Exception):
    """A creation at the cloud takes longer than this activity may wait. The message is what is being made."""

    def __init__(self, message: str, again: timedelta) -> None:
        super().__init__(message)
        self.again = again


class Boundary(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Boundary(next)


class _Boundary(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        # The details are one dict, so that the beating task sees what the activity sets.
        _progress.set(last_progress())
        beating = asyncio.create_task(_beat(_progress.get()))
        try:
            with translated():
                return await super().execute_activity(input)
        except ApplicationError as e:
            _count(e)
            raise
        finally:
            beating.cancel()


def _count(error: ApplicationError) -> None:
    """Counts each failed attempt that has a class; "not over yet" is no failure."""
    if error.type == IN_PROGRESS:
        return
    info = next((d for d in error.details if isinstance(d, ErrorInfo)), None)
    if info is not None:
        activity.metric_meter().create_counter("hostler_call_errors", "Failed attempts of activities by class").add(
            1, {"activity": activity.info().activity_type, "error_class": str(info.error_class)}
        )


async def _beat(details: dict[str, Any]) -> None:
    timeout = activity.info().heartbeat_timeout
    if not timeout:
        return
    while True:
        await asyncio.sleep(timeout.total_seconds() / 4)  # first: most activities are over by then
        activity.heartbeat(*([details] if details else []))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Every error that a workflow can see is raised here, without its cause: a provider's error may quote a request."""
    try:
        yield
    except NotYet as e:
        raise ApplicationError(
            str(e), type=NOT_YET, next_retry_delay=e.again, category=ApplicationErrorCategory.BENIGN
        ) from None
    except NotWanted as e:
        info = _placed(ErrorInfo.of(ErrorClass.CONFLICT, str(e)))
        raise ApplicationError(str(e), info, type=NOT_WANTED, non_retryable=True) from None
    except StillMaking as e:
        info = ErrorInfo.of(ErrorClass.TRANSIENT, str(e)).model_copy(update={"retry_after": e.again.total_seconds()})
        benign = ApplicationErrorCategory.BENIGN
        raise ApplicationError(str(e), _placed(info), type=IN_PROGRESS, non_retryable=True, category=benign) from None
    except IdempotencyMismatch as e:
        info = _placed(e.info, ended=True)
        raise ApplicationError(e.message, info, e.terminated, type=IDEMPOTENCY, non_retryable=True) from None
    except WrongAccount as e:
        raise ApplicationError(e.message, _placed(e.info), type=WRONG_ACCOUNT, non_retryable=True) from None
    except NameTaken as e:
        raise ApplicationError(e.message, _placed(e.info), type=NAME_TAKEN, non_retryable=True) from None
    except OperationFailed as e:
        raise _classified(e.info, ended=True) from None
    except PartialUpdate as e:
        raise _classified(e.info, e.resources) from None
    except DriverError as e:
        raise _classified(e.info.model_copy(update={"silent": CLOUD if e.silent else ""})) from None
    except KubeError as e:
        info = ErrorInfo.of(e.error_class, f"Kubernetes API: {e.message}")
        more = {"retry_after": e.retry_after, "provider_code": e.reason, "silent": API if e.locked_out else ""}
        raise _classified(info.model_copy(update=more)) from None
    except EtcdError as e:
        raise _classified(ErrorInfo.of(e.error_class, f"etcd: {e.message}")) from None
    except SecretMissing as e:
        info = _placed(ErrorInfo.of(ErrorClass.AUTH, str(e)))
        raise ApplicationError(str(e), info, type=MISSING_CREDENTIALS, non_retryable=True) from None
    except (SettingsError, UnknownScope) as e:
        raise _classified(ErrorInfo.of(ErrorClass.INVALID, str(e))) from None
    except ApplicationError:
        raise
    except Exception as e:
        # Raised unchanged, except for one thing that its workflow must not miss.
        if not _account():
            raise
        words = cause(e)
        raise ApplicationError(words, _placed(ErrorInfo.of(ErrorClass.UNKNOWN, words)), type=type(e).__name__) from e


def _placed(info: ErrorInfo, ended: bool = False) -> ErrorInfo:
    """The error's info with the account in which the failed activity may have made something, and with what the cloud
    is still at there; `ended`: nothing any longer."""
    begun = None if ended else BegunOperation.read(_progress.get({}).get(BEGUN))
    return info.model_copy(update={"account_id": _account(), "begun": begun})


def _account() -> str:
    return str(_progress.get({}).get(ACCOUNT, ""))


def _classified(info: ErrorInfo, *details: Any, ended: bool = False) -> ApplicationError:
    retried = info.error_class in RETRIED
    return ApplicationError(
        info.message,
        _placed(info, ended),
        *details,
        type=str(info.error_class),
        non_retryable=not retried,
        next_retry_delay=_next_try(info.retry_after) if retried else None,
    )


def _next_try(asked: float | None) -> timedelta | None:
    """The wait that was asked for, or else the retry policy's, plus a random share: Temporal's own waits are the same
    for all, and machines that were throttled together would be throttled together again."""
    policy = activity.info().retry_policy if activity.in_activity() else None
    if asked:
        wait = timedelta(seconds=asked)
    elif policy is not None:
        wait = policy.initial_interval * policy.backoff_coefficient ** min(activity.info().attempt - 1, 20)
        wait = min(wait, policy.maximum_interval or wait)
    else:
        return None
    return wait * (1 + SPREAD * random.random())

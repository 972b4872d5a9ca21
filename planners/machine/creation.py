"""Decisions about creating a machine: the table of design *Create*, whose rows cite seed 000 (triggerCreationFlow)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from planners.machine.health import Health
from planners.waits import FIRST, REASON, Tries, wait_after
from resources.base import format_duration, later, seconds, whole_seconds
from resources.errors import MISSING_CREDENTIALS, PASSING, Code, ErrorClass, ErrorInfo
from resources.machine.state import (
    Attempt,
    Cause,
    ClassSnapshot,
    FailureStreak,
    MachineState,
    OperationState,
    OperationType,
    Phase,
)
from resources.timings import Timings

PASSING_REASONS = frozenset({*(REASON[c] for c in PASSING), "APIUnreachable", "APIRefused"})
"""Reasons of failures that pass on their own."""
IN_FLIGHT = {"CreatingVM", "HotUpdate", "PostStartUpdate", "NodeTemplate", "ReadyTaint"}
"""Reasons of a machine whose call is under way: they say nothing about what holds it up."""


def token_of(uid: str, attempt: int) -> str:
    """The token of an attempt: one per attempt, and the same after any crash."""
    return str(uuid.uuid5(uuid.UUID(uid), str(attempt)))


def uid_of(first_run: str, life: int) -> str:
    """The uid of one life: its number in a chain of runs, which the id of the first run names.

    A reset keeps that id, so the machine keeps its uid and tokens and finds its VM. A workflow that is started again
    under the name begins another chain, and `recreate` counts on: both have another uid.
    """
    return str(uuid.uuid5(uuid.UUID(first_run), str(life)))


def plan_attempt(former: Attempt | None, over: bool, current: ClassSnapshot, uid: str, now: datetime) -> Attempt:
    """The attempt to go on with. `over`: the former one's token can never serve again.

    A changed class needs a new attempt, because a token is bound to the parameters it was first used with. The caller
    has waited for the lag window since the former call, and the create activity first looks for a VM of this uid: so a
    new token never makes a second VM.
    """
    if former is not None and not over and former.machine_class == current:
        return former
    number = former.number + 1 if former else 1
    return Attempt(number=number, token=token_of(uid, number), started=now, machine_class=current)


def may_have_asked(before: bool, failure: str, account_id: str) -> bool:
    """Whether a create call may have asked the cloud for a VM, now that one has failed with this type: not for want of
    a Secret, which is read before. `before`: whether an earlier one may have; `account_id`: where an earlier try of
    this one may have."""
    return before or failure != MISSING_CREDENTIALS or bool(account_id)


@dataclass(frozen=True)
class Retry:
    """What a machine becomes after a failed step."""

    phase: Phase
    operation: OperationType
    state: OperationState
    code: Code | None
    reason: str
    message: str
    next_try: datetime
    attempt_over: bool = False


def after_failed_create(
    info: ErrorInfo, now: datetime, timings: Timings, reason: str | None = None, tries: Tries = FIRST
) -> Retry:
    """What follows after GetMachineStatus (other than not found) or CreateMachine failed: CrashLoopBackOff,
    Create/Failed.

    The creation deadline, not this, makes it Failed. `reason`: a better one than the error class's.
    """
    return Retry(
        phase=Phase.CRASH_LOOP_BACK_OFF,
        operation=OperationType.CREATE,
        state=OperationState.FAILED,
        code=info.code,
        reason=reason or REASON[info.error_class],
        message=info.message,
        next_try=now + wait_after(info, timings, tries),
    )


def still_making(info: ErrorInfo, now: datetime, phase: Phase) -> Retry:
    """The cloud is still making the VM; this is no failure, and the same call continues. The creation deadline still
    counts."""
    return Retry(
        phase=phase,
        operation=OperationType.CREATE,
        state=OperationState.PROCESSING,
        code=None,
        reason="CreatingVM",
        message=info.message,
        next_try=later(now, seconds(info.retry_after or 0.0)),
    )


def after_lost_token(info: ErrorInfo, now: datetime, timings: Timings, attempt: int = 1) -> Retry:
    """The token is bound to other parameters, or to a VM that is dead: after the lag window, look again by uid and
    adopt what is found, or else begin a new attempt with a new token.

    Each attempt may have made a VM that somebody has terminated and that no pool can count. So the window doubles with
    each: where every VM is taken away before its answer arrives, a machine costs a handful, not one a minute (I15).
    """
    return Retry(
        phase=Phase.CRASH_LOOP_BACK_OFF,
        operation=OperationType.CREATE,
        state=OperationState.FAILED,
        code=info.code,
        reason="AttemptIsOver",
        message=f"{info.message}; a new attempt follows unless a VM of this machine appears",
        next_try=now + timings.consistency * (1 << min(attempt - 1, 10)),
        attempt_over=True,
    )


def after_taken_name(info: ErrorInfo, now: datetime, timings: Timings) -> Retry:
    """A living VM has the machine's name and another uid: none is made beside it. It may disappear or be given away."""
    return after_failed_create(info, now, timings, reason="NameTaken")


def may_update_after_start(
    phase: Phase, operation: OperationType | None, state: OperationState | None, done: bool
) -> bool:
    """Whether the post-start update may run. Seed 000: only in Pending, with Create/Processing or Update/Failed, and
    never again after success."""
    if done or phase != Phase.PENDING:
        return False
    return (operation, state) in (
        (OperationType.CREATE, OperationState.PROCESSING),
        (OperationType.UPDATE, OperationState.FAILED),
    )


def after_failed_update(
    info: ErrorInfo, made: datetime, now: datetime, timings: Timings, reason: str | None = None, tries: Tries = FIRST
) -> Retry | None:
    """What follows a failed post-start update: Pending, Update/Failed; create is not repeated. None: the VM is gone.

    Not found soon after the creation is a lagging read; later it is the cloud's word, because an id was recorded.
    """
    if info.error_class != ErrorClass.NOT_FOUND:
        return again_after_update(info, now, timings, reason, tries)
    if now >= made + timings.consistency:
        return None
    lagging = min(wait_after(info, timings), timings.poll)
    return replace(again_after_update(info, now, timings), next_try=now + lagging)


def again_after_update(
    info: ErrorInfo, now: datetime, timings: Timings, reason: str | None = None, tries: Tries = FIRST
) -> Retry:
    failed = after_failed_create(info, now, timings, reason, tries)
    return replace(failed, phase=Phase.PENDING, operation=OperationType.UPDATE)


# -- the creation deadline --------------------------------------------------------------------------------------------


def creation_deadline(s: MachineState, now: datetime) -> datetime:
    """The time by which a machine must be Running. It stands still while its API server or cloud account does not
    answer: an outage fails no machine (design, *Reachability*; invariant I5)."""
    assert s.created is not None
    silent = now - s.silent_since if s.silent_since else timedelta(0)
    return later(s.created, s.spec.creation_timeout + s.stood_still + silent)


def cause_after(former: Cause | None, reason: str, info: ErrorInfo, words: str, now: datetime) -> Cause | None:
    """What is known to be against the creation after one more failure: one that passes on its own hides nothing."""
    if info.error_class in PASSING or info.silent:
        return former
    since = former.since if former is not None and former.reason == reason else now
    return Cause(reason=reason, message=words, since=since)


def hides_cause(s: MachineState) -> bool:
    """Whether the last failure passes on its own, and one before it does not."""
    return s.cause is not None and s.trouble is not None and s.trouble.reason in PASSING_REASONS


# -- too late ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Late:
    """Why a machine is not Running at its creation deadline."""

    cause: FailureStreak | None
    """What held it up, and since when: that, and not the clock, is what a person must see. None: only the clock is
    known."""
    message: str
    """The cause's own words first."""


def why_late(state: MachineState, now: datetime, health: Health | None = None, found: str = "") -> Late:
    """What held a machine up. `health`: of the Node of a machine that has a VM; `found`: what fresh looks saw besides.

    A step of ours that was refused is the cause; without one, it is what the Node lacks. What passes on its own is the
    cause only where nothing else was refused.
    """
    if state.cause is not None and hides_cause(state):
        held = FailureStreak(reason=state.cause.reason, since=state.cause.since)
        passed = state.status.last_operation
        last = passed.description if passed and passed.state == OperationState.FAILED else ""
        words = f"{state.cause.message} (for {format_duration(whole_seconds(now - state.cause.since))})"
        return Late(held, "; ".join(filter(None, (words, last and f"last: {last}", found, _late(state)))))
    operation, waiting = state.status.last_operation, state.status.waiting_for
    failed = operation.description if operation and operation.state == OperationState.FAILED else ""
    cause = state.trouble if failed or health is None or health.healthy else None
    refused = state.create_failure.message if cause and health is None and state.create_failure else ""
    waited = waiting if waiting and (health is None or (cause and waiting.reason == cause.reason)) else None
    words = failed or refused or (waited.message if waited else "")
    if cause is not None:
        words = f"{words} (for {format_duration(whole_seconds(now - cause.since))})"
    elif health is not None and not health.healthy:
        cause = FailureStreak(reason=health.reason, since=state.made or now)
    elif waited is not None and waited.reason not in IN_FLIGHT:
        cause = FailureStreak(reason=waited.reason, since=waited.since)
    if health is not None and not (found and health.reason == "NodeNotSeen"):  # the looks say why it was not seen
        words = "; ".join(filter(None, (words, health.message)))
    return Late(cause, "; ".join(filter(None, (words, found, _late(state)))))


def _late(s: MachineState) -> str:
    stood = format_duration(whole_seconds(s.stood_still))
    more = f", which stood still for {stood} in outages" if s.stood_still else ""
    return f"not Running within creationTimeout ({format_duration(s.spec.creation_timeout)}{more})"

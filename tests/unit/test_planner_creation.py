"""Creation: attempts, tokens, and what a failed step makes of the machine. Rows cite seed 000 and MCM's cases (C…)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifekit import examples

from planners.machine.creation import (
    after_failed_create,
    after_failed_update,
    after_lost_token,
    after_taken_name,
    cause_after,
    creation_deadline,
    may_have_asked,
    may_update_after_start,
    plan_attempt,
    token_of,
    uid_of,
    why_late,
)
from planners.machine.health import Health
from planners.waits import REASON, WAIT, wait_after
from resources.errors import API, CLOUD, CODE_OF, MISSING_CREDENTIALS, Code, ErrorClass, ErrorInfo
from resources.machine.manifest import SecretRef
from resources.machine.state import (
    Cause,
    ClassSnapshot,
    FailureStreak,
    LastOperation,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    Status,
    WaitingFor,
)
from resources.timings import Timings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = str(uuid.UUID(int=7))
TIMINGS = Timings()


def snapshot(machine_type: str = "m5.large", generation: int = 1) -> ClassSnapshot:
    return ClassSnapshot(
        name="c",
        generation=generation,
        provider="AWS",
        provider_spec={"machineType": machine_type},
        secret_ref=SecretRef(name="s"),
    )


def info(error_class: ErrorClass, retry_after: float | None = None) -> ErrorInfo:
    return ErrorInfo(error_class=error_class, code=CODE_OF[error_class], message="m", retry_after=retry_after)


def test_an_attempt_keeps_its_token_through_any_number_of_tries() -> None:
    first = plan_attempt(None, False, snapshot(), UID, NOW)
    again = plan_attempt(first, False, snapshot(), UID, NOW + timedelta(hours=1))
    assert again == first
    assert first.token == token_of(UID, 1)


@pytest.mark.parametrize(("over", "machine_type"), [(True, "m5.large"), (False, "m5.xlarge"), (True, "m5.xlarge")])
def test_a_new_attempt_has_a_new_token(over: bool, machine_type: str) -> None:
    """IdempotentInstanceTerminated ends an attempt; a corrected class needs a new one (design *Create*)."""
    first = plan_attempt(None, False, snapshot(), UID, NOW)
    second = plan_attempt(first, over, snapshot(machine_type), UID, NOW + timedelta(minutes=5))
    assert second.number == 2
    assert second.token != first.token
    assert second.started == NOW + timedelta(minutes=5)
    assert second.machine_class == snapshot(machine_type)


@given(st.integers(1, 1000), st.integers(1, 1000), st.uuids(), st.uuids())
def test_tokens_are_stable_and_distinct(a: int, b: int, one: uuid.UUID, two: uuid.UUID) -> None:
    assert token_of(str(one), a) == token_of(str(one), a)
    assert (token_of(str(one), a) == token_of(str(two), b)) == ((one, a) == (two, b))


@pytest.mark.parametrize(
    ("error_class", "code", "reason", "wait"),
    [
        pytest.param(ErrorClass.CAPACITY, Code.RESOURCE_EXHAUSTED, "OutOfCapacity", timedelta(minutes=10), id="C5"),
        pytest.param(ErrorClass.QUOTA, Code.RESOURCE_EXHAUSTED, "QuotaExceeded", timedelta(minutes=10), id="quota"),
        pytest.param(ErrorClass.UNKNOWN, Code.UNKNOWN, "ProviderError", timedelta(minutes=3), id="C4, seed: 3 min"),
        pytest.param(ErrorClass.AUTH, Code.PERMISSION_DENIED, "NotAuthorized", timedelta(minutes=3), id="auth"),
        pytest.param(ErrorClass.INVALID, Code.INVALID_ARGUMENT, "InvalidSpec", timedelta(minutes=3), id="invalid"),
        pytest.param(ErrorClass.NOT_FOUND, Code.NOT_FOUND, "ReferenceNotFound", timedelta(minutes=3), id="not found"),
        pytest.param(ErrorClass.THROTTLED, Code.UNAVAILABLE, "Throttled", timedelta(seconds=30), id="throttled"),
        pytest.param(ErrorClass.CONFLICT, Code.ABORTED, "Conflict", timedelta(seconds=5), id="MCM: Aborted is short"),
        pytest.param(
            ErrorClass.TRANSIENT, Code.UNAVAILABLE, "ProviderUnavailable", timedelta(seconds=5), id="MCM: short"
        ),
    ],
)
def test_failed_create_is_crash_loop_back_off(
    error_class: ErrorClass, code: Code, reason: str, wait: timedelta
) -> None:
    retry = after_failed_create(info(error_class), NOW, TIMINGS)
    assert (retry.phase, retry.operation, retry.state) == (
        Phase.CRASH_LOOP_BACK_OFF,
        OperationType.CREATE,
        OperationState.FAILED,
    )
    assert (retry.code, retry.reason, retry.next_try) == (code, reason, NOW + wait)
    assert not retry.attempt_over


def test_every_error_class_has_a_wait_and_a_reason() -> None:
    assert set(WAIT) == set(REASON) == set(CODE_OF) == set(ErrorClass)
    assert len(set(REASON.values())) == len(REASON)


@pytest.mark.parametrize(
    ("configured", "asked", "expected"),
    [
        pytest.param({}, None, timedelta(minutes=10), id="the table's"),
        pytest.param({ErrorClass.CAPACITY: timedelta(minutes=9)}, None, timedelta(minutes=9), id="C6: configured"),
        pytest.param({}, 900.0, timedelta(minutes=15), id="the provider asked for longer"),
        pytest.param({}, 1.0, timedelta(minutes=10), id="the provider asked for less"),
    ],
)
def test_wait_after(configured: dict[ErrorClass, timedelta], asked: float | None, expected: timedelta) -> None:
    assert wait_after(info(ErrorClass.CAPACITY, asked), Timings(retry=configured)) == expected


@pytest.mark.parametrize(
    ("before", "failure", "account", "expected"),
    [
        pytest.param(False, MISSING_CREDENTIALS, "", False, id="a Secret is read before the cloud is called"),
        pytest.param(False, MISSING_CREDENTIALS, "1234", True, id="an earlier try of the call had it"),
        pytest.param(True, MISSING_CREDENTIALS, "", True, id="an earlier call had it"),
        pytest.param(False, str(ErrorClass.AUTH), "", True, id="the cloud was called"),
        pytest.param(False, "Timeout", "", True, id="nobody knows"),
    ],
)
def test_whether_a_vm_may_have_been_asked_for(before: bool, failure: str, account: str, expected: bool) -> None:
    assert may_have_asked(before, failure, account) is expected


def test_a_lost_token_waits_for_the_lag_window_and_ends_the_attempt() -> None:
    retry = after_lost_token(info(ErrorClass.CONFLICT), NOW, TIMINGS)
    assert retry.attempt_over
    assert retry.next_try == NOW + TIMINGS.consistency
    assert retry.reason == "AttemptIsOver"


def test_vms_that_are_gone_before_their_answer_arrives_are_a_handful() -> None:
    """Each attempt makes one, and somebody terminates it: counted over a creationTimeout of 20 minutes."""
    now, attempts = NOW, 0
    while now < NOW + timedelta(minutes=20):
        attempts += 1
        now = after_lost_token(info(ErrorClass.CONFLICT), now, Timings(), attempts).next_try
    assert attempts <= 6


def test_a_taken_name_is_a_wait_that_ends_no_attempt() -> None:
    retry = after_taken_name(info(ErrorClass.CONFLICT), NOW, TIMINGS)
    assert (retry.phase, retry.reason, retry.attempt_over) == (Phase.CRASH_LOOP_BACK_OFF, "NameTaken", False)
    assert retry.next_try == NOW + wait_after(info(ErrorClass.CONFLICT), TIMINGS)


@given(st.uuids(), st.uuids(), st.integers(0, 50), st.integers(0, 50))
def test_a_uid_is_of_a_chain_of_runs_and_a_life(one: uuid.UUID, two: uuid.UUID, a: int, b: int) -> None:
    """A reset keeps both; an apply under a used name begins another chain, `recreate` continues the count."""
    assert (uid_of(str(one), a) == uid_of(str(two), b)) == ((one, a) == (two, b))


def test_post_start_update_only_where_the_seed_allows_it() -> None:
    """Seed 000, *Enhancement*, 3.1: Pending with Create/Processing or Update/Failed."""
    allowed = {
        (OperationType.CREATE, OperationState.PROCESSING),
        (OperationType.UPDATE, OperationState.FAILED),
    }
    for phase, operation, state, done in product(Phase, [None, *OperationType], [None, *OperationState], [False, True]):
        expected = phase == Phase.PENDING and not done and (operation, state) in allowed
        assert may_update_after_start(phase, operation, state, done) == expected


@pytest.mark.parametrize(
    ("error_class", "age", "expected"),
    [
        pytest.param(ErrorClass.NOT_FOUND, timedelta(seconds=1), "retry", id="soon after: a lagging read"),
        pytest.param(ErrorClass.NOT_FOUND, timedelta(seconds=60), None, id="an id was recorded: gone, C11"),
        pytest.param(ErrorClass.AUTH, timedelta(hours=1), "retry", id="403 is not gone: I5"),
        pytest.param(ErrorClass.TRANSIENT, timedelta(hours=1), "retry", id="an outage is not gone: I5"),
    ],
)
def test_failed_post_start_update(error_class: ErrorClass, age: timedelta, expected: str | None) -> None:
    """Seed 000, 3.3: Pending, Update/Failed; create is not repeated."""
    retry = after_failed_update(info(error_class), NOW - age, NOW, TIMINGS)
    if expected is None:
        assert retry is None
        return
    assert retry is not None
    assert (retry.phase, retry.operation, retry.state) == (Phase.PENDING, OperationType.UPDATE, OperationState.FAILED)
    assert retry.next_try > NOW
    if error_class == ErrorClass.NOT_FOUND:
        assert retry.next_try == NOW + TIMINGS.poll


# -- too late ---------------------------------------------------------------------------------------------------------

AGO = NOW - timedelta(minutes=20)
LATE = "not Running within creationTimeout (20m)"
NO_CAPACITY = "no m5.large left in eu-west-1a"
NOT_SEEN = Health(False, "NodeNotSeen", "no node has joined yet")
TAINTED = Health(False, "StartupTaint", "node n is Ready; waits for its taint")
READY = Health(True, "NodeHealthy", "node n is Ready")


def waits(reason: str, message: str) -> dict[str, WaitingFor]:
    return {"waiting_for": WaitingFor(reason=reason, message=message, since=AGO)}


def failing(type: OperationType, words: str) -> dict[str, LastOperation]:
    return {"last_operation": LastOperation(type=type, state=OperationState.FAILED, description=words, time=NOW)}


# given: the last failures' reason, the status, the Node's health, what looks found -> then: the cause, its words
LATES: dict[str, tuple[str, dict[str, object], Health | None, str, str, str]] = {
    "capacity": (
        *("OutOfCapacity", {**failing(OperationType.CREATE, NO_CAPACITY), **waits("OutOfCapacity", NO_CAPACITY)}),
        *(None, "", "OutOfCapacity", f"{NO_CAPACITY} (for 20m)"),
    ),
    "capacity, and the next call is under way": (
        *("OutOfCapacity", waits("CreatingVM", "the create call is in progress"), None, ""),
        *("OutOfCapacity", f"{NO_CAPACITY} (for 20m)"),
    ),
    "one call without an answer: nothing is known": (
        *("", waits("CreatingVM", "the create call is in progress"), None, "", "", "the create call is in progress"),
    ),
    "no class": ("", waits("ClassMissing", "asks class c"), None, "", "ClassMissing", "asks class c"),
    "it never joined": (
        *("", waits("NodeNotSeen", "no node has joined yet; Failed at 12:00 if nothing changes"), NOT_SEEN),
        *("vm is running; console: hang", "NodeNotSeen", "vm is running; console: hang"),
    ),
    "it never joined, and nobody could look": ("", {}, NOT_SEEN, "", "NodeNotSeen", "no node has joined yet"),
    "its taint stays, and the cloud hiccuped": (
        *("ProviderUnavailable", {}, TAINTED, "vm is running", "StartupTaint"),
        "node n is Ready; waits for its taint; vm is running",
    ),
    "the update after the start is refused": (
        *("NotAuthorized", failing(OperationType.UPDATE, "may not modify"), NOT_SEEN, "vm is running"),
        *("NotAuthorized", "may not modify (for 20m); vm is running"),
    ),
    "a step at a healthy node is refused": (
        *("NotAuthorized", waits("NotAuthorized", "may not patch nodes"), READY, "vm is running"),
        *("NotAuthorized", "may not patch nodes (for 20m); node n is Ready; vm is running"),
    ),
    "our own steps were slow": ("", {}, READY, "vm is running", "", "node n is Ready; vm is running"),
}


def answered(*answers: tuple[ErrorClass, str, str]) -> Cause | None:
    """The cause after failures one minute apart: class, reason, who was silent."""
    cause = None
    for minute, (cls, reason, silent) in enumerate(answers):
        info = ErrorInfo(error_class=cls, message=reason.lower(), silent=silent)
        cause = cause_after(cause, reason, info, reason.lower(), AGO + timedelta(minutes=minute))
    return cause


FULL, AWAY = (ErrorClass.CAPACITY, "OutOfCapacity", ""), (ErrorClass.TRANSIENT, "ProviderUnavailable", CLOUD)
LOCKED = (ErrorClass.AUTH, "NotAuthorized", API)
BAD = (ErrorClass.INVALID, "InvalidSpec", "")


@pytest.mark.parametrize(
    ("answers", "reason", "since"),
    [
        pytest.param((FULL, AWAY, FULL, AWAY), "OutOfCapacity", 0, id="what passes in between does not begin it anew"),
        pytest.param((FULL, BAD, AWAY), "InvalidSpec", 1, id="another answer"),
        pytest.param((AWAY, LOCKED), "", 0, id="nobody has said anything of it"),
    ],
)
def test_what_passes_hides_no_answer(answers: tuple[tuple[ErrorClass, str, str], ...], reason: str, since: int) -> None:
    cause = answered(*answers)
    assert (cause.reason if cause else "") == reason
    assert cause is None or cause.since == AGO + timedelta(minutes=since)


def test_the_deadline_stands_still_while_nobody_answers() -> None:
    spec = examples().machines[0].spec.model_copy(update={"creation_timeout": timedelta(minutes=20)})
    state = MachineState(name="m-1", spec=spec, created=AGO, stood_still=timedelta(minutes=3))
    assert creation_deadline(state, NOW) == NOW + timedelta(minutes=3)
    silent = state.model_copy(update={"silent_since": NOW - timedelta(minutes=2)})
    assert creation_deadline(silent, NOW) == NOW + timedelta(minutes=5)
    assert creation_deadline(silent, NOW + timedelta(hours=1)) == NOW + timedelta(minutes=65)


def test_a_hiccup_at_the_deadline_hides_no_cause() -> None:
    spec = examples().machines[0].spec.model_copy(update={"creation_timeout": timedelta(minutes=20)})
    state = MachineState(
        name="m-1",
        spec=spec,
        status=Status().model_copy(update=failing(OperationType.CREATE, "503 from RunInstances")),
        trouble=FailureStreak(reason="ProviderUnavailable", since=NOW - timedelta(seconds=30)),
        cause=answered(FULL, AWAY),
        stood_still=timedelta(minutes=1),
    )
    late = why_late(state, NOW)
    assert (late.cause.reason, late.cause.since) == ("OutOfCapacity", AGO) if late.cause else False
    end = "not Running within creationTimeout (20m, which stood still for 1m in outages)"
    assert late.message == f"outofcapacity (for 20m); last: 503 from RunInstances; {end}"


@pytest.mark.parametrize(("trouble", "status", "health", "found", "cause", "words"), LATES.values(), ids=LATES)
def test_what_held_it_up_comes_before_the_deadline(
    trouble: str, status: dict[str, object], health: Health | None, found: str, cause: str, words: str
) -> None:
    loaded = examples()
    state = MachineState(
        name="m-1",
        spec=loaded.machines[0].spec.model_copy(update={"creation_timeout": timedelta(minutes=20)}),
        status=Status().model_copy(update=status),
        made=AGO if health else None,
        trouble=FailureStreak(reason=trouble, since=AGO, failures=3) if trouble else None,
        create_failure=ErrorInfo(error_class=ErrorClass.CAPACITY, message=NO_CAPACITY) if trouble else None,
    )
    late = why_late(state, NOW, health, found)
    assert (late.cause.reason if late.cause else "", late.message) == (cause, f"{words}; {LATE}")
    assert late.cause is None or late.cause.since == AGO

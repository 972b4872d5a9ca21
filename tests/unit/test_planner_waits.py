"""How long the wait after a failure is: the seed's and MCM's waits stand, the others grow within a bound, with a random
part."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.waits import GROWING, GROWS_TO, MEDIUM, SPREAD, WAIT, Tries, wait_after, wait_after_update
from resources.errors import ErrorClass, ErrorInfo
from resources.timings import Timings

CONFIGURED = Timings(retry={ErrorClass.THROTTLED: timedelta(seconds=1), ErrorClass.CONFLICT: timedelta(minutes=10)})


def info(error_class: ErrorClass, asked: float | None = None) -> ErrorInfo:
    return ErrorInfo.of(error_class, "no").model_copy(update={"retry_after": asked})


def seconds(
    error_class: ErrorClass, failures: int, timings: Timings | None = None, asked: float | None = None
) -> float:
    return wait_after(info(error_class, asked), timings or Timings(), Tries(failures)).total_seconds()


@pytest.mark.parametrize(
    ("error_class", "timings", "waits"),
    [
        pytest.param(ErrorClass.THROTTLED, None, [30, 60, 120, 180, 180], id="throttled: no longer than 3 min"),
        pytest.param(ErrorClass.TRANSIENT, None, [5, 10, 20, 40, 40], id="transient: no more than 8 times the first"),
        pytest.param(ErrorClass.CONFLICT, None, [5, 10, 20, 40, 40], id="conflict"),
        pytest.param(ErrorClass.UNKNOWN, None, [180, 360, 600, 600, 600], id="seed 000: 3 min at first"),
        pytest.param(ErrorClass.CAPACITY, None, [600] * 5, id="MCM C5: 10 min, each time"),
        pytest.param(ErrorClass.AUTH, None, [180] * 5, id="somebody must act"),
        pytest.param(ErrorClass.THROTTLED, CONFIGURED, [1, 2, 4, 8, 8], id="what is configured is the first one"),
        pytest.param(ErrorClass.CONFLICT, CONFIGURED, [600] * 5, id="and is never made shorter"),
    ],
)
def test_how_a_wait_grows(error_class: ErrorClass, timings: Timings | None, waits: list[float]) -> None:
    assert [seconds(error_class, failures, timings) for failures in (1, 2, 3, 4, 99)] == waits


def test_a_cloud_that_asks_for_longer_gets_it() -> None:
    assert [seconds(ErrorClass.THROTTLED, n, asked=100) for n in (1, 2, 3)] == [100, 100, 120]
    assert seconds(ErrorClass.CAPACITY, 1, asked=900) == 900


@given(st.sampled_from(ErrorClass), st.integers(1, 10**6), st.floats(0, 1), st.one_of(st.none(), st.floats(0, 3600)))
def test_the_bounds_of_all_waits(error_class: ErrorClass, failures: int, chance: float, asked: float | None) -> None:
    """A wait is never shorter than the table or the cloud says, never beyond the bound, and random only where it may
    be."""
    wait, base = wait_after(info(error_class, asked), Timings(), Tries(failures, chance)), WAIT[error_class]
    least = max(base, timedelta(seconds=asked or 0))
    most = max(least, min(base * GROWS_TO, GROWING.get(error_class, base))) * (1 + SPREAD)
    assert least <= wait <= (most if error_class in GROWING else least)
    update = wait_after_update(info(error_class), Timings(), Tries(failures, chance))
    assert timedelta(seconds=5) <= update <= max(MEDIUM * (1 + SPREAD), timedelta(minutes=10))

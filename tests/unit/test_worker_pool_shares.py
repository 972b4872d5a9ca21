"""How a worker pool's numbers are distributed over its zones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.worker_pool.shares import amounts, evenly, steps, unequal

COUNTS = [
    # number, zones, share of each: what each row is about
    (2, 2, [1, 1]),  # seed 003: "if machinePreserveMax is set to 2, and the worker pool has 2 zones, … 1 per zone"
    (0, 3, [0, 0, 0]),
    (1, 2, [1, 0]),  # Gardener, DistributeOverZones: the first zones first
    (5, 3, [2, 2, 1]),
    (6, 3, [2, 2, 2]),
    (7, 3, [3, 2, 2]),
    (3, 1, [3]),
]


@pytest.mark.parametrize(("number", "zones", "shares"), COUNTS)
def test_a_count(number: int, zones: int, shares: list[int]) -> None:
    assert evenly(number, zones) == shares


@given(st.integers(0, 5000), st.integers(1, 50))
def test_nothing_is_lost_and_no_zone_has_two_more_than_another(number: int, zones: int) -> None:
    shares = evenly(number, zones)
    assert sum(shares) == number
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


PERCENTAGES = [
    # percentage, zones, machines, shares (Gardener's machines_test.go, DistributePercentOverZones)
    ("10%", 2, 4, ["10%", "10%"]),  # it divides: each zone reckons with its own machines
    ("10%", 1, 3, ["10%"]),
    ("10%", 2, 3, ["14%", "7%"]),  # 2 and 1 of 3
    ("10%", 3, 5, ["12%", "12%", "6%"]),
    ("10%", 2, 0, ["10%", "10%"]),
    ("0%", 2, 3, ["0%", "0%"]),
]


@pytest.mark.parametrize(("percentage", "zones", "machines", "shares"), PERCENTAGES)
def test_a_percentage(percentage: str, zones: int, machines: int, shares: list[str]) -> None:
    assert amounts(percentage, zones, machines) == shares


def test_a_percentage_of_what_may_be_unavailable_is_never_more_than_all() -> None:
    assert amounts("100%", 2, 3) == ["134%", "67%"]
    assert amounts("100%", 2, 3, most=100) == ["100%", "67%"]


STEPS = [
    # maxSurge, maxUnavailable, zones, each zone's: minimum 3, maximum 6
    (2, 0, 2, [(1, 0), (1, 0)]),
    (1, 1, 2, [(1, 1), (1, 0)]),  # the second zone: neither, so one more VM rather than one machine less
    (1, 0, 3, [(1, 0), (1, 0), (1, 0)]),
    (0, 1, 2, [(0, 1), (1, 0)]),
    ("10%", 0, 2, [("10%", 0), ("10%", 0)]),
]


@pytest.mark.parametrize(("surge", "unavailable", "zones", "each"), STEPS)
def test_no_zone_is_left_without_a_way_to_roll(
    surge: int | str, unavailable: int | str, zones: int, each: list[tuple[int | str, int | str]]
) -> None:
    assert steps(surge, unavailable, zones, 3, 6) == each


def test_a_number_that_does_not_divide_is_said_with_each_zones_share() -> None:
    assert list(unequal({"minimum": 2, "maximum": 5, "autoPreserveFailedMachineMax": 1}, ["a", "b"])) == [
        "maximum: 5 over 2 zones is a 3, b 2",
        "autoPreserveFailedMachineMax: 1 over 2 zones is a 1, b 0",
    ]

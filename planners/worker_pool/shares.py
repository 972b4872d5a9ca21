"""How the numbers of a worker pool are distributed over its zones: evenly, the first zones first.

Sources: Gardener's extension library (extensions/pkg/controller/worker/machines.go, DistributeOverZones,
DistributePercentOverZones), seed 003 (machinePreserveMax: 2 over 2 zones is 1 for each).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil

from resources.pool.manifest import percent_of


def evenly(number: int, zones: int) -> list[int]:
    """The number over so many zones; the first ones get one more where it does not divide."""
    least, more = divmod(number, zones)
    return [least + (n < more) for n in range(zones)]


def amounts(amount: int | str, zones: int, machines: int, most: int | None = None) -> list[int | str]:
    """A count, or a percentage, over so many zones that have `machines` together.

    A percentage stays what it is where the machines divide evenly, for each zone reckons with its own. Elsewhere it is
    weighed by the zone's machines and rounded up: so all zones together have a little more, never less. `most`: of a
    percentage.
    """
    percent = percent_of(amount)
    if percent is None:
        assert isinstance(amount, int)
        return [*evenly(amount, zones)]
    if machines % zones == 0:
        return [amount] * zones
    weights = [Fraction(share * zones, machines) for share in evenly(machines, zones)]
    weighed = [ceil(percent * weight) for weight in weights]
    return [f"{value if most is None else min(value, most)}%" for value in weighed]


def steps(
    surge: int | str, unavailable: int | str, zones: int, minimum: int, maximum: int
) -> list[tuple[int | str, int | str]]:
    """maxSurge and maxUnavailable of each zone.

    A zone whose shares both come to 0 could replace nothing, and a pool would then take away a machine first, though
    maxUnavailable may say 0 for the sake of its users: it gets one VM more instead.
    """
    pairs = zip(amounts(surge, zones, maximum), amounts(unavailable, zones, minimum, most=100), strict=True)
    return [(1, lost) if more in _NONE and lost in _NONE else (more, lost) for more, lost in pairs]


_NONE = (0, "0%")


def unequal(numbers: Mapping[str, int], zones: Sequence[str]) -> Iterator[str]:
    """A warning for each number that does not divide evenly, with each zone's share."""
    for name, number in numbers.items():
        if number % len(zones):
            shares = evenly(number, len(zones))
            listed = ", ".join(f"{zone} {share}" for zone, share in zip(zones, shares, strict=True))
            yield f"{name}: {number} over {len(zones)} zones is {listed}"

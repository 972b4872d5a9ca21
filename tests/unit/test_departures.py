"""One read for all VMs of an account that are on their way out (activities/departures.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from activities.departures import FORGOTTEN, Departures


class Cloud:
    """Which VMs are on their way out, and what was asked."""

    def __init__(self, *going: str) -> None:
        self.now = 100.0
        self.going = set(going)
        self.reads: list[list[str]] = []
        self.departures = Departures(lambda: self.now)

    async def read(self, vms: Sequence[str]) -> list[str]:
        self.reads.append(list(vms))
        await asyncio.sleep(0)
        return [vm for vm in vms if vm in self.going]

    async def still(self, *vms: str) -> bool:
        return await self.departures.still_going(vms, 5.0, self.read)


async def test_one_read_serves_all_who_ask_soon_after_and_whoever_asks_at_once() -> None:
    cloud = Cloud("a", "b", "c")
    assert not await cloud.still("a")  # alone: its own pass finds out as much with as many calls
    assert cloud.reads == []
    assert await cloud.still("b")
    assert await asyncio.gather(cloud.still("a"), cloud.still("b"), cloud.still("a")) == [True] * 3
    assert cloud.reads == [["a", "b"]]
    assert await cloud.still("c")  # nobody has asked about this one yet
    assert cloud.reads == [["a", "b"], ["a", "b", "c"]]
    cloud.now += 5
    assert await cloud.still("c")
    assert await cloud.still("a", "b")
    assert len(cloud.reads) == 3


async def test_whoever_is_expected_is_in_the_first_read() -> None:
    cloud = Cloud("a", "b", "c")
    cloud.departures.expect(["a", "b"])
    cloud.departures.expect(["c"])
    assert [await cloud.still(vm) for vm in "abc"] == [True] * 3
    assert cloud.reads == [["a", "b", "c"]]


async def test_who_has_ended_is_no_longer_asked_about() -> None:
    cloud = Cloud("a", "b")
    await cloud.still("a")
    assert await cloud.still("b")
    cloud.going.remove("a")
    cloud.now += 5
    assert not await cloud.still("a")
    assert not await cloud.still("b")  # alone now
    assert cloud.reads == [["a", "b"], ["a", "b"]]


async def test_who_does_not_ask_any_more_is_forgotten() -> None:
    """Its machine ended, or is another worker's now."""
    cloud = Cloud("a", "b")
    await cloud.still("a")
    assert await cloud.still("b")
    cloud.now += FORGOTTEN
    assert not await cloud.still("b")
    assert cloud.reads == [["a", "b"]]


async def test_a_read_that_fails_is_made_again() -> None:
    cloud = Cloud("a", "b")
    await cloud.still("a")

    async def refused(_: Sequence[str]) -> list[str]:
        raise ValueError("refused")

    for _ in range(2):
        try:
            await cloud.departures.still_going(["b"], 5.0, refused)
        except ValueError:
            continue
        raise AssertionError("the error was swallowed")
    assert await cloud.still("b")

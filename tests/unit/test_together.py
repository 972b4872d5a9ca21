"""One read for all threads that look at things of their own (drivers/together.py)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from drivers.together import FORGOTTEN, Together


class Cloud:
    """What is there, and how it was asked for."""

    def __init__(self, **there: str) -> None:
        self.now = 100.0
        self.there = there
        self.reads: list[list[str]] = []
        self.broken = False
        self.together = Together[str](2.0, lambda: self.now)

    def read(self, names: Sequence[str]) -> dict[str, str]:
        self.reads.append(list(names))
        if self.broken:
            raise OSError("no answer")
        return {name: self.there[name] for name in names if name in self.there}

    def look(self, name: str) -> str | None:
        return self.together.look(name, lambda: f"{self.there[name]}, alone", self.read)


def test_whoever_is_alone_asks_alone() -> None:
    cloud = Cloud(a="pending")
    assert [cloud.look("a"), cloud.look("a")] == ["pending, alone"] * 2
    assert cloud.reads == []


def test_one_read_serves_all_who_ask_soon_after() -> None:
    cloud = Cloud(a="pending", b="pending")
    cloud.look("a")
    assert [cloud.look("b"), cloud.look("a")] == ["pending"] * 2
    assert cloud.reads == [["a", "b"]]
    cloud.there["a"] = "done"
    assert cloud.look("a") == "pending"
    cloud.now += 2
    assert cloud.look("a") == "done"
    assert cloud.reads == [["a", "b"], ["a", "b"]]


def test_a_thing_that_the_last_read_was_not_about_is_read_and_one_that_is_not_found_is_none() -> None:
    cloud = Cloud(a="pending", b="pending")
    cloud.look("a")
    cloud.look("b")
    assert cloud.look("c") is None
    assert cloud.reads == [["a", "b"], ["a", "b", "c"]]


def test_who_is_done_or_no_longer_asked_about_is_not_read() -> None:
    cloud = Cloud(a="pending", b="pending", c="pending")
    for name in "abc":
        cloud.look(name)
    cloud.together.done("a")
    cloud.now += FORGOTTEN - 1
    cloud.look("b")
    assert cloud.reads[-1] == ["b", "c"]
    cloud.now += 2
    assert cloud.look("b") == "pending, alone"


def test_after_a_read_that_failed_others_ask_alone_and_not_one_after_the_other() -> None:
    cloud = Cloud(a="pending", b="pending")
    cloud.look("a")
    cloud.broken = True
    with pytest.raises(OSError, match="no answer"):
        cloud.look("b")
    assert [cloud.look("a"), cloud.look("b")] == ["pending, alone"] * 2
    cloud.now += 2
    cloud.broken = False
    assert cloud.look("a") == "pending"
    assert len(cloud.reads) == 2


def test_threads_that_ask_at_once_share_one_read() -> None:
    cloud = Cloud(**dict.fromkeys("abcd", "pending"))
    for name in "abcd":
        cloud.together.look(name, lambda: None, lambda names: {})
    cloud.now += 2
    begun = threading.Barrier(4)

    def look(name: str) -> str | None:
        begun.wait()
        return cloud.look(name)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(look, "abcd")) == ["pending"] * 4
    assert cloud.reads == [["a", "b", "c", "d"]]

"""One read for all threads that look again and again at things of their own, in one place of one account.

A creation takes up to a minute, and a rollout or a scale-up begins many at a time. Whoever looks at one that nobody
else's is beside asks for it alone; otherwise one thread reads all that are awaited, and what it finds serves whoever
asks soon after.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

FORGOTTEN = 60.0
"""Seconds after which nobody waits for a thing any more; looks at one are some seconds apart."""

T = TypeVar("T")


class Together(Generic[T]):
    """Thread-safe."""

    def __init__(self, fresh: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`fresh`: for how many seconds a read serves others."""
        self._fresh = fresh
        self._clock = clock
        self._awaited: dict[str, float] = {}
        """Name to when it was begun or last looked at."""
        self._asked: frozenset[str] = frozenset()
        """What the last read was about,"""
        self._found: Mapping[str, T] = {}
        """and what it found."""
        self._read_at = self._failed_at = -fresh - FORGOTTEN
        self._table = threading.Lock()
        self._reading = threading.Lock()

    def look(
        self, name: str, alone: Callable[[], T | None], all_of: Callable[[Sequence[str]], Mapping[str, T]]
    ) -> T | None:
        """The thing of this name as it is, or was at most `fresh` seconds ago; None where the read did not find it.

        Raises what `alone` or `all_of` raises; after a failure others ask alone for a while, and do not queue for it.
        """
        if len(self.expect(name)) == 1:
            return alone()
        with self._reading:
            now = self._clock()
            if name in self._asked and now - self._read_at < self._fresh:
                return self._found.get(name)
            if now - self._failed_at >= self._fresh:
                return self._read(now, all_of).get(name)
        return alone()

    def expect(self, *names: str) -> list[str]:
        """These are waited for from now on: whoever reads next reads them too. Returns all that are."""
        with self._table:
            now = self._clock()
            recent = {name: at for name, at in self._awaited.items() if now - at < FORGOTTEN}
            self._awaited = recent | dict.fromkeys(names, now)
            return sorted(self._awaited)

    def done(self, name: str) -> None:
        """Nobody waits for it any more."""
        with self._table:
            self._awaited.pop(name, None)

    def _read(self, now: float, all_of: Callable[[Sequence[str]], Mapping[str, T]]) -> Mapping[str, T]:
        asked = self.expect()
        try:
            found = all_of(asked)
        except Exception:
            self._failed_at = now
            raise
        self._asked, self._found, self._read_at = frozenset(asked), found, now
        return found

"""How many calls of one account a worker makes at the same time, so that one that hangs delays no other account.

A call that hangs keeps a thread and an activity's slot until the driver's timeout, and a burst of machines of one
account would keep them all. So each account has a few places. A call that finds none waits, which a healthy account
makes short. While an account gives no answer at all, nobody waits for it: the attempt fails as for a cloud that does
not answer, and gives its slot back. The first place that becomes free is the next try.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from drivers.errors import DriverError
from resources.errors import ErrorClass

PATIENCE = 5.0
"""Seconds without an answer to any of the calls under way, after which no call waits for a place. RunInstances, the
slowest call, takes 1 to 3 s."""
REMEMBERED = 60.0
"""Seconds that a call which hung is held against its account. Anything that looks after VMs calls far more often."""


class Places:
    """The places of one account (Secret and region) in one worker. To be used from one event loop."""

    def __init__(self, account: str, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._account = account
        self._limit = self._free = limit
        self._clock = clock
        self._queue: deque[asyncio.Future[None]] = deque()
        self._patient_from = clock()
        """Silence counts from the last answer; for an account of which nothing bad is known, from when all of its
        places were taken."""
        self._hung_until = clock()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def enter(self) -> float:
        """Takes a place, which `leave` gives back. Returns the time, by the clock of `leave`.

        Raises DriverError, transient, while the account does not answer.
        """
        if self._free:
            return self._take()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            while not turn.done():
                patience = self._patient_from + PATIENCE - self._clock()
                if patience <= 0:
                    raise DriverError(ErrorClass.TRANSIENT, self._words())
                await asyncio.wait({turn}, timeout=patience)
        except BaseException:
            if turn.done():  # it was given a place at the same moment
                self._give_back()
            else:
                self._queue.remove(turn)
            raise
        return self._clock()

    def leave(self, began: float, call: Future[Any]) -> None:
        """The call is over, however late its thread is."""
        now = self._clock()
        if not call.cancelled():  # otherwise it was not even made
            error = call.exception()
            silent = isinstance(error, DriverError) and error.error_class is ErrorClass.TRANSIENT
            if not silent:
                self._patient_from, self._hung_until = now, now
            elif now - began >= PATIENCE:  # an error that comes at once keeps nobody waiting
                self._hung_until = now + REMEMBERED
        self._give_back()

    def _take(self) -> float:
        now = self._clock()
        self._free -= 1
        if not self._free and now >= self._hung_until:
            self._patient_from = now
        return now

    def _give_back(self) -> None:
        self._free += 1
        if self._queue:
            self._take()
            self._queue.popleft().set_result(None)

    def _words(self) -> str:
        silent = self._clock() - self._patient_from
        return (
            f"the cloud does not answer: {self._limit} calls of account {self._account} are under way in this worker, "
            f"and none was answered for {silent:.0f} s; this one was not made"
        )

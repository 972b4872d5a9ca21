"""One read for all VMs of an account that are on their way out.

A VM takes a minute to end, and a rollout or a scale-down ends many at a time. Each machine waits in an activity of its
own; what they ask meanwhile, whether their VMs are still there, is asked for all of them in one call, and an answer
serves whoever asks soon after. It is only ever a reason to go on waiting: whether a VM has ended, and what it has left
behind, the machine's own pass finds out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

FORGOTTEN = 300.0
"""Seconds after which nobody asks about a VM any more; looks at one are at most a minute apart."""

Read = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""Takes providerIDs; returns those of VMs that are still on their way out."""


class Departures:
    """The VMs of one account (Secret and region) that a worker waits for. To be used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._awaited: dict[str, float] = {}
        """ProviderID to when it was last asked about."""
        self._read: frozenset[str] = frozenset()
        """What the last read was about,"""
        self._there: frozenset[str] = frozenset()
        """and what it found."""
        self._read_at = clock()
        self._lock = asyncio.Lock()

    def expect(self, vms: Collection[str]) -> None:
        """These are on their way out from now on: whoever reads next reads them too."""
        now = self._clock()
        recent = {vm: asked for vm, asked in self._awaited.items() if now - asked < FORGOTTEN}
        self._awaited = recent | dict.fromkeys(vms, now)

    async def still_going(self, vms: Collection[str], fresh: float, read: Read) -> bool:
        """Whether all of a machine's VMs are still on their way out, by a read no older than `fresh` seconds.

        False also where no other machine waits: then its own pass costs no more than a read, and finds out more.
        Raises what `read` raises.
        """
        self.expect(vms)
        if self._awaited.keys() <= set(vms):
            return False
        async with self._lock:
            if not (self._read.issuperset(vms) and self._clock() - self._read_at < fresh):
                awaited, now = sorted(self._awaited), self._clock()
                there = await read(awaited)
                self._read, self._there, self._read_at = frozenset(awaited), frozenset(there), now
        if self._there.issuperset(vms):
            return True
        for vm in vms:
            self._awaited.pop(vm, None)
        return False

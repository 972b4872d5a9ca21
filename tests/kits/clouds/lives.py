"""Lives of machines, of which each activity is attempted when its time has come, to count what they ask of a cloud."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from activitykit import CONSISTENCY, Attempts, instance
from temporalio.exceptions import ApplicationError

from activities.cloud.machine import MachineActivities
from clouds.drivers import Given
from resources.calls.cloud import CreateInput, DeleteInput, DeleteOutput, UpdateInput
from resources.calls.machine import Target
from resources.errors import NOT_YET

LAG = 2 * CONSISTENCY.total_seconds()


@dataclass
class Life:
    """One machine, of which each activity is attempted when its time has come; no time passes meanwhile."""

    attempts: Attempts
    given: Given
    target: Target
    heartbeat: tuple[Any, ...] = ()
    told: float | None = None
    """When the VM was told to end, in seconds of the test's own time."""
    over: DeleteOutput | None = None

    @property
    def vm(self) -> str:
        assert self.target.provider_id is not None
        return instance(self.target.provider_id)

    async def begin(self) -> None:
        now, activities = datetime.now(UTC), MachineActivities(self.attempts.deps)
        create = CreateInput(target=self.target, attempt=1, started=now, deadline=now + timedelta(minutes=20))
        made = await self.attempts.attempt(activities.create_machine, create)
        known = {"provider_id": made.provider_id, "account_id": made.account_id}
        self.target = self.target.model_copy(update=known)
        update = UpdateInput(target=self.target, tagged=made.tagged)
        await self.attempts.attempt(activities.update_machine, update)
        self.heartbeat = ()

    async def delete(self, at: datetime | None = None) -> float:
        """Makes an attempt; returns the seconds until the next one, 0 when it is over."""
        self.attempts.heartbeat = self.heartbeat
        try:
            self.over = await self.attempts.attempt(
                MachineActivities(self.attempts.deps).delete_machine, DeleteInput(target=self.target), at
            )
        except ApplicationError as e:
            if e.type != NOT_YET or e.next_retry_delay is None:
                raise
            return e.next_retry_delay.total_seconds()
        finally:
            self.heartbeat = self.attempts.heartbeat
        return 0.0


async def lives(
    attempts: Attempts, count: int, latency: float, ends: Callable[[Life], None], **spec: Any
) -> list[Life]:
    """Lives from creation to the end, of which all are deleted at the same time; VMs end `latency` seconds later, by
    `ends`."""
    attempts.cloud.set_delays(boot=0.0, terminate=3600.0)
    made = []
    for n in range(count):
        given = attempts.given(**spec)
        identity = given.machine.model_copy(update={"name": f"m-{n}", "uid": str(uuid.uuid4())})
        given = Given(attempts.cloud, identity, given.spec)
        made.append(Life(attempts, given, attempts.target(given)))
        await made[-1].begin()
    now, began = [0.0], datetime.now(UTC)
    attempts.deps.departures(made[0].target)._clock = lambda: now[0]
    due = [(n / 10, n) for n in range(count)]
    while due:
        now[0], n = heapq.heappop(due)
        for life in made:
            if life.told is not None and now[0] >= life.told + latency:
                ends(life)
        wait = await made[n].delete(began + timedelta(seconds=now[0]))
        if made[n].told is None:
            made[n].told = now[0]
        if made[n].over is None:
            assert now[0] < 2 * latency + 10 + LAG, "it is noticed in time"
            heapq.heappush(due, (now[0] + wait, n))
    assert all(attempts.cloud.left(life.given.machine.uid) == {} for life in made)
    return made

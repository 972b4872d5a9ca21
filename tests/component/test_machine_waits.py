"""Machines that are throttled together do not try again together, and try less and less often. Stubs; time is
skipped."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from lifekit import eventually
from machine.stubs import Handle, Machines, classified, state
from temporalio.testing import WorkflowEnvironment

from resources.errors import ErrorClass
from resources.machine.state import MachineState, Phase

COUNT = 6


async def failed(handle: Handle, times: int) -> timedelta:
    """How long it waits after this many failures."""

    def waits(s: MachineState) -> bool:
        return s.create_failures == times and s.status.waiting_for is not None and s.status.waiting_for.reason == KIND

    seen = await eventually(lambda: state(handle), waits, f"{times} failures")
    assert seen.status.waiting_for.next_try is not None
    return seen.status.waiting_for.next_try - _time(seen)


async def to_next_try(temporal: WorkflowEnvironment, handle: Handle) -> None:
    """Skips to just after it, and no further: what is left of a skip counts for the next wait too."""
    at = (await state(handle)).status.waiting_for.next_try
    await temporal.fast_forward(handle, at - await temporal.get_current_time(handle) + timedelta(seconds=1))


KIND = "Throttled"


def _time(s: MachineState) -> datetime:
    assert s.status.last_operation is not None
    return s.status.last_operation.time


async def test_throttled_machines_spread(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """No two of six machines that fail at the same moment try again in the same tenth of a second, and the waits grow;
    one that has got its VM starts over with the next error."""
    machines.stubs.always["create_machine"] = classified(ErrorClass.THROTTLED, "RequestLimitExceeded", last=True)
    handles = [await machines.start(machines.new_state(f"m-{n}")) for n in range(COUNT)]
    first = await asyncio.gather(*(failed(handle, 1) for handle in handles))
    assert all(timedelta(seconds=30) <= wait <= timedelta(seconds=37.5) for wait in first)
    assert len({round(wait.total_seconds(), 1) for wait in first}) > COUNT / 2
    handle = handles[0]
    for times, least in ((2, 60), (3, 120), (4, 180), (5, 180)):
        await to_next_try(temporal, handle)
        wait = await failed(handle, times)
        assert timedelta(seconds=least) <= wait <= timedelta(seconds=least * 1.25)
    machines.stubs.always.pop("create_machine")
    machines.stubs.then("update_machine", classified(ErrorClass.THROTTLED, last=True))
    await to_next_try(temporal, handle)

    def anew(s: MachineState) -> bool:
        return s.status.phase == Phase.PENDING and s.trouble is not None and s.trouble.failures == 1

    again = await eventually(lambda: state(handle), anew, "a first failure of the update")
    assert again.status.waiting_for.next_try - _time(again) < timedelta(seconds=40)

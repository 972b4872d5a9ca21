"""A machine that flaps gets a verdict too. By its health deadline plus a bound it is Running, or Failed, or it says why
neither. Stubs; time is skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lifekit import eventually
from machine.stubbed import Pool, listening
from machine.stubs import Handle, Machines, classified, looked, phase, reason, state
from temporalio.testing import WorkflowEnvironment

from planners.machine.health import fails_at
from resources.calls.cluster import LookInput, NodeLook
from resources.errors import ErrorClass
from resources.fleet.membership import MemberReport
from resources.machine.state import MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

TWO = timedelta(minutes=2)
SPELL = timedelta(seconds=20)
TIMINGS = Timings(settle=timedelta(seconds=45))
"""A busy machine adds seconds of its own to the 20 that are skipped."""
BOUND = TIMINGS.confirm + TIMINGS.settle
"""The bound after the health deadline (planners/health.confirm)."""


class Flapping:
    """A Node that is Ready for 20 s and ill for 20 s, again and again; a look finds it as it is."""

    def __init__(self, temporal: WorkflowEnvironment, machines: Machines, handle: Handle) -> None:
        self.temporal, self.machines, self.handle = temporal, machines, handle
        self.ready, self.changed = True, datetime(2026, 1, 1, tzinfo=UTC)
        machines.stubs.always["look_at_node"] = self.look

    def look(self, input: LookInput) -> NodeLook:
        return looked(ready=self.ready, status="True" if self.ready else "False", changed=self.changed)

    async def turn(self) -> None:
        self.ready, self.changed = not self.ready, self.changed + SPELL
        await self.handle.signal(MachineWorkflow.observe, self.machines.facts(ready=self.ready))

    async def go_on(self, turns: int) -> MachineState:
        """Goes on as long as the machine is Unknown, and this many times at most."""
        for _ in range(turns):
            await self.turn()
            await self.temporal.fast_forward(self.handle, SPELL)
            seen = await state(self.handle)
            if seen.status.phase is Phase.FAILED or (seen.asks_permit and not seen.permitted):
                break
        return await state(self.handle)


async def running(machines: Machines) -> Handle:
    handle = await machines.start(machines.new_state("m-1", TIMINGS, health_timeout=TWO))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


async def test_flapping_that_never_settles_is_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Ready for 20 s and ill for 20 s: it never settles, nor is it ill for the minute between two looks."""
    handle = await running(machines)
    failed = await Flapping(temporal, machines, handle).go_on(turns=20)
    assert failed.status.phase is Phase.FAILED
    at = next(h.time for h in failed.journal if h.reason == "HealthTimeout")
    assert timedelta(0) <= at - fails_at(failed.illness, TWO) <= BOUND + 2 * SPELL  # the test's steps are that long
    assert "two fresh looks" in next(c.message for c in failed.status.conditions if c.type == "Failed")


async def test_one_that_settles_in_the_end_is_running(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """It is mended just in time: the second look finds it Ready, and it stays so."""
    handle = await running(machines)
    node = Flapping(temporal, machines, handle)
    await node.go_on(turns=4)
    if not node.ready:
        await node.turn()
    await temporal.fast_forward(handle, TIMINGS.settle + timedelta(seconds=1))
    well = await phase(handle, Phase.RUNNING)
    assert "health" not in well.status.deadlines
    assert "HealthTimeout" not in [h.reason for h in well.journal]


async def test_what_the_watch_told_late_fails_nobody(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """I5: news of an illness that is over arrives again and again. The looks find that Ready has not changed."""
    handle = await running(machines)
    machines.stubs.always["look_at_node"] = looked(changed=datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(12):
        await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
        await temporal.fast_forward(handle, SPELL)
    well = await eventually(
        lambda: state(handle), lambda s: "Recovered" in [h.reason for h in s.journal], "Running by the looks"
    )
    assert "HealthTimeout" not in [h.reason for h in well.journal]
    assert len(machines.stubs.called("look_at_node")) >= 2


async def test_while_it_cannot_be_looked_at_there_is_none(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The API server answers nobody: that is reported, and the two looks begin when it does."""
    handle = await running(machines)
    node = Flapping(temporal, machines, handle)
    machines.stubs.always["look_at_node"] = classified(ErrorClass.AUTH, "not now")
    blind = await node.go_on(turns=20)
    assert blind.status.phase is Phase.UNKNOWN
    assert "CannotConfirm" in [h.reason for h in blind.journal]
    machines.stubs.always["look_at_node"] = node.look
    assert (await node.go_on(turns=20)).status.phase is Phase.FAILED


async def test_of_a_pool_it_asks_and_goes_on_asking(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """A question that every healthy moment withdrew would never be answered."""
    async with listening(machines) as pool:
        handle = await pool.running(timings=TIMINGS, health_timeout=TWO)
        node = Flapping(temporal, machines, handle)
        assert (await node.go_on(turns=20)).asks_permit
        for _ in range(3):
            await node.turn()
            await temporal.fast_forward(handle, SPELL)
        assert [r.asks for r in await _since_asked(pool)] == [True]
        assert (await state(handle)).status.phase is Phase.UNKNOWN
        await pool.permits(handle)
        assert (await node.go_on(turns=8)).status.phase is Phase.FAILED


async def _since_asked(pool: Pool) -> list[MemberReport]:
    heard = await pool.heard()
    return heard[next(i for i, r in enumerate(heard) if r.asks) :]

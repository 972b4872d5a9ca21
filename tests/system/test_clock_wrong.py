"""Whole lives on a worker whose wall clock is wrong, or jumps: only the server's time decides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from lifekit import Stack, eventually, new_stack, result_of
from paths import KITS, ROOT
from temporalio.testing import WorkflowEnvironment

from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineResult, MachineState, Phase
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule

HOURS = 3 * 3600.0  # seconds
TOLERATED = 800.0  # seconds; EC2 refuses a request whose date is 15 minutes off (EC2 API reference, RequestExpired)
WITHIN = timedelta(seconds=60)
"""How late a busy computer may be; a deadline that went by the wrong clock is off by TOLERATED."""
LIMIT = timedelta(seconds=6)


@dataclass
class Wrong:
    """A stack whose only worker is a process of its own."""

    stack: Stack
    offset: Path

    def jump(self, seconds: float) -> None:
        """Sets the worker's wall clock off by this much from now on."""
        new = self.offset.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.offset)

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": self.stack.client.service_client.config.target_host,
            "PYTHONPATH": str(KITS / "wrongclock"),
            "WALL_CLOCK_OFFSET": str(self.offset),
        }
        argv = (sys.executable, "-m", "worker", "--settings", str(self.stack.settings_file))
        with self.offset.with_name("worker.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            await process.wait()

    def unusual(self, name: str, **knobs: object) -> None:
        rule = KnobRule.model_validate({"match": name, "knobs": knobs})
        kubelets = self.stack.simulator.simulator.kubelets
        self.stack.simulator.call(lambda: kubelets.set_knobs([*kubelets.knobs, rule]))

    def refuse(self, **rule: object) -> None:
        made = FaultRule.model_validate(rule)
        self.stack.simulator.call(lambda: self.stack.simulator.simulator.frame.faults.append(made))

    async def told(self, reason: str, name: str) -> MachineState:
        def tells(s: MachineState) -> bool:
            return reason in [h.reason for h in s.journal]

        return await eventually(lambda: self.stack.state(name), tells, f"{name} {reason}")


@pytest_asyncio.fixture
async def wrong(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Wrong]:
    async with new_stack(temporal.client) as stack:
        wrong = Wrong(stack, tmp_path / "offset")
        wrong.jump(0)
        async with wrong.worker():
            yield wrong


def when(state: MachineState | MachineResult, reason: str) -> datetime:
    return next(h.time for h in state.journal if h.reason == reason)


@pytest.mark.parametrize(
    "off",
    [pytest.param(TOLERATED, id="ahead", marks=pytest.mark.exhaustive), pytest.param(-TOLERATED, id="behind")],
)
async def test_deadlines_lag_window_and_health_of_lives_on_a_wrong_clock(wrong: Wrong, off: float) -> None:
    """The clock is off by less than the cloud refuses, and by far more than any wait of these machines."""
    wrong.jump(off)
    wrong.unusual("silent", never_joins=True)
    wrong.refuse(service="ec2", operation="RunInstances", match="refused", code="InvalidParameterValue", times=None)
    stack, began = wrong.stack, datetime.now(UTC)
    await stack.create("silent", creation_timeout=LIMIT)
    await stack.create("ill", health_timeout=LIMIT)
    await stack.create("refused")

    running = await stack.phase(Phase.RUNNING, "ill")  # so its bootstrap token was valid by the API server's clock
    assert began <= running.created < began + WITHIN
    wrong.unusual("ill", unready=True)
    unknown = await stack.phase(Phase.UNKNOWN, "ill")
    failed = await wrong.told("HealthTimeout", "ill")
    assert timedelta(0) <= when(failed, "HealthTimeout") - unknown.illness.began - LIMIT < WITHIN

    timed_out = await wrong.told("CreationTimeout", "silent")
    assert timedelta(0) <= when(timed_out, "CreationTimeout") - timed_out.created - LIMIT < WITHIN
    assert timed_out.status.provider_id is not None

    # Nothing is found of what the cloud never made: "gone" takes two looks that are further apart than the lag window.
    await stack.reason("InvalidSpec", "refused")
    gone = await stack.delete("refused")
    took = when(gone, "VMDeleted") - when(gone, "Terminating")
    assert stack.settings.timings.consistency <= took < stack.settings.timings.consistency + WITHIN

    for name in ("ill", "silent"):
        assert stack.leftovers((await stack.delete(name)).uid) == {}


async def test_a_clock_that_jumps_by_hours_decides_nothing(wrong: Wrong) -> None:
    """The cloud refuses what is signed by such a clock; so nothing is known of the VM, and nobody is Failed or gone."""
    stack = wrong.stack
    for name in ("ill", "well", "leaving"):
        await stack.create(name, health_timeout=LIMIT)
        await stack.phase(Phase.RUNNING, name)
    wrong.jump(HOURS)
    wrong.unusual("ill", unready=True)
    cannot = await stack.reason("CannotConfirm", "ill")
    assert "RequestExpired" in cannot.status.waiting_for.message
    assert cannot.status.phase == Phase.UNKNOWN
    await stack.started["leaving"].signal("delete", DeleteIntent(id="d"))
    refused = await stack.reason("NotAuthorized", "leaving")
    assert "RequestExpired" in refused.status.waiting_for.message

    wrong.jump(-HOURS)
    passed = cannot.illness.began + LIMIT
    await eventually(lambda: stack.state("ill"), lambda s: s.status.waiting_for.next_try > passed, "a look after it")
    assert (await stack.state("ill")).status.phase == Phase.UNKNOWN
    well = await stack.state("well")
    assert well.status.phase == Phase.RUNNING
    assert "Unknown" not in [h.reason for h in well.journal]
    assert stack.leftovers(refused.uid)

    wrong.jump(0)
    failed = await wrong.told("HealthTimeout", "ill")
    assert when(failed, "HealthTimeout") > passed
    await result_of(stack.started["leaving"])
    assert stack.leftovers(refused.uid) == {}
    assert (await stack.state("well")).journal == well.journal

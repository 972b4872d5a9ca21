"""Deadlines are absolute, across restarts of worker and server. After an outage they fire at once, and what ends a
machine that has a VM takes fresh looks first (invariants I5, I7)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from lifekit import eventually
from machine.stubs import (
    SICK,
    Handle,
    Machines,
    classified,
    end_soon,
    looked,
    not_yet,
    phase,
    reason,
    server_time,
    state,
    stubbed,
    when,
)
from processes.children import OwnServer, own_server
from temporalio.client import Client

from resources.calls.cloud import CreateInput, CreateOutput
from resources.calls.cluster import LookInput
from resources.calls.drain import DrainInput, DrainOutput
from resources.errors import ErrorClass
from resources.machine.intents import DeleteIntent
from resources.machine.state import MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

Outage = Literal["worker", "server"]
SOON = timedelta(seconds=6)
"""The time from the beginning of a wait to its deadline, in real time, unless the computer is busy."""
BIRTHS = 12
"""Within the time that so many machines take to be born one after the other, all of them wait, with room to spare."""
CONFIRM = timedelta(seconds=1)
HOUR = timedelta(hours=1)
WITHIN = timedelta(seconds=30)
"""The tolerance after a deadline, or after the recovery where that came later (I7)."""


# -- worker and server restarts ---------------------------------------------------------------------------------------


@dataclass
class World:
    """A Temporal server of its own, the activities as stubs, and a worker of workflows that can be taken away."""

    server: OwnServer
    client: Client
    machines: Machines
    soon: timedelta = SOON
    """Longer where all takes longer: no deadline may pass before all machines wait and the outage has begun."""
    worker: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    looks: defaultdict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    tries: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    async def begin(self) -> None:
        await self.worker.enter_async_context(self.machines.workflow_worker())

    async def outage(self, what: Outage, until: datetime) -> datetime:
        """Takes it away; brings it back at this time at the earliest. Returns when it was there again."""
        if what == "worker":
            await self.worker.aclose()
        else:
            await self.server.kill()
        await eventually(server_time, lambda now: now >= until, "the end of the outage")
        if what == "worker":
            await self.begin()
        else:
            await self.server.start()
        return datetime.now(UTC)

    # What the stubs answer, by the machine's name.

    def create(self, input: CreateInput) -> CreateOutput:
        name = input.target.machine.name
        self.tries[name] += 1
        if name == "uncreated":
            raise classified(ErrorClass.QUOTA, "limit 100")
        if name == "retried" and self.tries[name] == 1:
            raise classified(ErrorClass.CAPACITY, "no m5.large left")
        return CreateOutput(provider_id=vm(name), node_name=name)

    def look(self, input: LookInput) -> Any:
        name = input.machine.name
        self.looks[name].append(datetime.now(UTC))
        facts: dict[str, Any] = {"ill": SICK, "unjoined": {"exists": False}}.get(name, {})
        return looked(name=name, providerID=vm(name), **facts)

    def drain(self, input: DrainInput) -> DrainOutput:
        if input.force:
            return DrainOutput(pods=1)
        raise not_yet("0 of 1 pods gone; default/web-1 blocked by PDB web", timedelta(days=1))


def vm(name: str) -> str:
    return f"aws:///eu-west-1/i-{name}"


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with own_server(tmp_path) as server:
        client = await server.client()
        async with stubbed(client, workflows=False) as machines:
            world = World(server, client, machines)
            for name, answer in (
                ("create_machine", world.create),
                ("look_at_node", world.look),
                ("drain_node", world.drain),
            ):
                machines.stubs.then(name, *[answer] * 99)
            async with world.worker:
                await world.begin()
                yield world


async def begin(world: World, name: str, waits_for: str) -> Handle:
    retry = {ErrorClass.CAPACITY: world.soon, ErrorClass.QUOTA: HOUR}
    settle = world.soon if name == "settling" else timedelta(0)
    timings = Timings(confirm=CONFIRM, vm_look=HOUR, settle=settle, retry=retry)
    timeouts = {"creation_timeout": HOUR, "health_timeout": HOUR, "drain_timeout": world.soon}
    handle = await world.machines.start(world.machines.new_state(name, timings, **timeouts))
    await reason(handle, waits_for)
    return handle


async def running(world: World, name: str) -> Handle:
    handle = await begin(world, name, "NodeNotSeen")
    await observe(world, handle, name)
    await phase(handle, Phase.RUNNING)
    return handle


async def observe(world: World, handle: Handle, name: str, **facts: Any) -> None:
    news = world.machines.facts(name=name, providerID=vm(name), **facts)
    await handle.signal(MachineWorkflow.observe, news)


async def all_waiting(world: World) -> dict[str, Handle]:
    """One machine for each kind of deadline, side by side. Only when all are there, time begins to run out."""
    began = time.monotonic()
    lives: dict[str, Handle] = {"ill": await running(world, "ill")}
    world.soon = max(SOON, BIRTHS * timedelta(seconds=time.monotonic() - began))
    for name in ("recovered", "settling", "draining"):
        lives[name] = await running(world, name)
    lives["uncreated"] = await begin(world, "uncreated", "QuotaExceeded")
    for name in ("unjoined", "joined"):
        lives[name] = await begin(world, name, "NodeNotSeen")
    for name in ("ill", "recovered", "settling"):
        await observe(world, lives[name], name, **SICK)
        await phase(lives[name], Phase.UNKNOWN)

    async def settle() -> None:
        await observe(world, lives["settling"], "settling")
        await reason(lives["settling"], "Settling")

    async def drain() -> None:
        await lives["draining"].execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
        await reason(lives["draining"], "Draining")

    short = [end_soon(lives[name], world.soon) for name in ("ill", "recovered", "uncreated", "unjoined", "joined")]
    retried = asyncio.create_task(begin(world, "retried", "OutOfCapacity"))
    await asyncio.gather(retried, settle(), drain(), *short)
    return {**lives, "retried": retried.result()}


DEADLINES = {
    "retried": "retry",
    "uncreated": "creation",
    "unjoined": "creation",
    "ill": "health",
    "settling": "settle",
    "draining": "drain",
}
ENDS = {
    "retried": "VMCreated",
    "uncreated": "CreationTimeout",
    "unjoined": "CreationTimeout",
    "ill": "HealthTimeout",
    "settling": "Recovered",
    "draining": "DrainForced",
}


# A worker that is away is the fault matrix's (never joins), and test_life_troubles.py's for longer than a deadline.
@pytest.mark.parametrize(
    ("what", "meanwhile"),
    [
        pytest.param("worker", True, id="worker-deadlines pass meanwhile", marks=pytest.mark.exhaustive),
        pytest.param("worker", False, id="worker-deadlines to come", marks=pytest.mark.exhaustive),
        pytest.param("server", True, id="server-deadlines pass meanwhile"),
        pytest.param("server", False, id="server-deadlines to come", marks=pytest.mark.exhaustive),
    ],
)
async def test_deadlines_fire_at_their_time_or_at_once_on_recovery(world: World, what: Outage, meanwhile: bool) -> None:
    """They fail nobody that is well by then."""
    lives = await all_waiting(world)
    before = {name: await state(handle) for name, handle in lives.items()}
    deadlines = {name: before[name].status.deadlines[kind] for name, kind in DEADLINES.items()}
    back = await world.outage(what, max(deadlines.values()) if meanwhile else datetime.now(UTC))
    ended = {name: await _told(lives[name], end) for name, end in ENDS.items()}
    for name, deadline in deadlines.items():
        fired = when(ended[name], ENDS[name])
        assert deadline <= fired < max(deadline, back) + WITHIN, name
    phases = {name: state.status.phase for name, state in ended.items()}
    assert {n for n, p in phases.items() if p == Phase.FAILED} == {"uncreated", "unjoined", "ill"}
    assert world.tries["retried"] == 2
    await _nobody_fails_who_is_well(world, lives)
    # A machine that Failed with a VM was looked at twice, the last time at its deadline or later; a first look before
    # the outage still counts, as the second one decides.
    for name in ("unjoined", "ill"):
        *_, first, last = world.looks[name]
        assert last - first >= CONFIRM, name
        assert last >= deadlines[name], name


async def _nobody_fails_who_is_well(world: World, lives: dict[str, Handle]) -> None:
    """No news has come of either: the fresh look finds that one node has recovered and the other one has joined."""
    for name, told in (("recovered", "NotConfirmed"), ("joined", "Running")):
        seen = await phase(lives[name], Phase.RUNNING)
        assert told in [h.reason for h in seen.journal]
        assert seen.status.conditions == []
        assert world.looks[name]


async def _told(handle: Handle, reason: str) -> MachineState:
    return await eventually(lambda: state(handle), lambda s: reason in [h.reason for h in s.journal], reason)

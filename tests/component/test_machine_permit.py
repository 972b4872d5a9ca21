"""A pool's machine that is ill asks before it is Failed: the question, the permit, the look after it. Stubs; time is
skipped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from lifekit import eventually
from machine.stubbed import Pool, listening
from machine.stubs import VM, Handle, Machines, classified, looked, phase, reason, state
from temporalio.testing import WorkflowEnvironment

from resources.calls.cloud import VmLook
from resources.cluster.news import Reachability
from resources.errors import ErrorClass
from resources.fleet.member import Trouble, Vm
from resources.fleet.membership import MemberReport, TemplateNews
from resources.intents import Intent
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent
from resources.machine.manifest import MachineTemplate
from resources.machine.state import MachineState, Phase
from workflows.machine import MachineWorkflow

SICK = {"ready": False, "reason": "NodeStatusUnknown: Kubelet stopped posting node status."}
TEN = timedelta(minutes=10)
MINUTE = timedelta(minutes=1, seconds=1)


@pytest_asyncio.fixture
async def pool(machines: Machines) -> AsyncIterator[Pool]:
    async with listening(machines) as pool:
        yield pool


async def sick(pool: Pool, **spec: Any) -> Handle:
    handle = await pool.running(**{"health_timeout": TEN, **spec})
    await handle.signal(MachineWorkflow.observe, pool.machines.facts(**SICK))
    await phase(handle, Phase.UNKNOWN)
    return handle


async def asking(temporal: WorkflowEnvironment, pool: Pool, **spec: Any) -> Handle:
    """A machine that asks ten minutes later, when two looks have found it ill."""
    handle = await sick(pool, **spec)
    pool.machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, MINUTE)
    await reason(handle, "RepairPermit")
    await pool.told(lambda r: r.asks, "the question")
    return handle


def looks(machines: Machines) -> int:
    return len([n for n, _ in machines.stubs.asked if n == "look_at_node"])


async def looked_again(machines: Machines, count: int) -> None:
    async def so_many() -> int:
        return looks(machines)

    await eventually(so_many, lambda n: n >= count, f"{count} looks")


def since_asked(heard: list[MemberReport]) -> list[tuple[str, bool]]:
    first = next(i for i, r in enumerate(heard) if r.asks)
    return [(str(r.phase), r.asks) for r in heard[first:]]


# -- the question -----------------------------------------------------------------------------------------------------


async def test_it_asks_and_stays_unknown(temporal: WorkflowEnvironment, machines: Machines, pool: Pool) -> None:
    handle = await asking(temporal, pool)
    waits = await state(handle)
    assert waits.status.phase is Phase.UNKNOWN
    words = waits.status.waiting_for.message
    assert words.startswith("unhealthy for healthTimeout (10m): node node-1 is not Ready: NodeStatusUnknown")
    assert words.endswith(f"waiting for a permit from pool {pool.name}")
    assert "two fresh looks" in next(h.message for h in waits.journal if h.reason == "RepairPermit")
    assert machines.stubs.called("tell_node")[-1].story[0].reason == "RepairPermit"
    assert waits.status.waiting_for.next_try == waits.status.deadlines["confirm"]
    assert waits.status.deadlines["confirm"] >= waits.status.deadlines["health"] + TEN
    asked = (await pool.heard())[-1]
    assert (asked.phase, asked.trouble, asked.vm) == (Phase.UNKNOWN, Trouble.NONE, Vm.LIVES)
    assert machines.stubs.called("drain_node") == []
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert len(machines.stubs.called("drain_node")) == 1


async def test_it_asks_once_and_looks_again_every_health_timeout(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    for more in (1, 2):
        before = (await state(handle)).status.deadlines["confirm"]
        machines.stubs.then("look_at_node", looked(**SICK))
        await temporal.fast_forward(handle, timedelta(minutes=10, seconds=1))
        await looked_again(machines, 2 + more)
        after = await eventually(
            lambda: state(handle), lambda s, b=before: s.status.deadlines["confirm"] > b, "the next look"
        )
        assert TEN <= after.status.deadlines["confirm"] - before < TEN + timedelta(seconds=30)
    seen = await reason(handle, "RepairPermit")
    assert seen.status.phase is Phase.UNKNOWN
    assert [h.reason for h in seen.journal].count("RepairPermit") == 1
    assert looks(machines) == 4
    assert since_asked(await pool.heard()) == [("Unknown", True)]


async def test_a_look_that_finds_it_well_takes_the_question_back(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_node", looked())
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=1))
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=31))
    well = await phase(handle, Phase.RUNNING)
    await pool.told(lambda r: not r.asks)
    await pool.permits(handle)  # it crossed the news
    assert (well.asks_permit, well.permitted) == (False, False)
    assert since_asked(await pool.heard()) == [("Unknown", True), ("Running", False)]


async def test_the_watchs_good_news_takes_it_back_too(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """It does so when the node has settled, and not before: one that comes and goes would ask for ever."""
    handle = await asking(temporal, pool)
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    assert (await reason(handle, "RepairPermit")).asks_permit
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=31))
    await phase(handle, Phase.RUNNING)
    await pool.told(lambda r: not r.asks)
    assert since_asked(await pool.heard()) == [("Unknown", True), ("Running", False)]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"healthTimeout": "9h"}, id="more"),
        pytest.param({"disableHealthTimeout": True}, id="never", marks=pytest.mark.exhaustive),
    ],
)
async def test_more_time_takes_it_back(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool, change: dict[str, Any]
) -> None:
    handle = await asking(temporal, pool)
    spec = {**(await state(handle)).spec.model_dump(by_alias=True), **change}
    news = TemplateNews(generation=2, template=MachineTemplate.model_validate({"spec": spec}))
    await handle.signal(MachineWorkflow.template_changed, news)
    told = await pool.told(lambda r: not r.asks)
    assert told.phase is Phase.UNKNOWN
    await pool.permits(handle)
    seen = await state(handle)
    assert (seen.status.phase, seen.permitted) == (Phase.UNKNOWN, False)


# -- the permit -------------------------------------------------------------------------------------------------------


async def test_with_the_permit_one_more_look_makes_it_failed(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_node", looked(**SICK))
    await pool.permits(handle, "0 of 1 repairs were in progress")
    failed = await phase(handle, Phase.FAILED)
    assert looks(machines) == 3
    said = [h for h in failed.journal if h.reason in ("RepairPermitted", "HealthTimeout")]
    assert [h.reason for h in said] == ["RepairPermitted", "HealthTimeout"]
    assert said[0].message == f"pool {pool.name}: 0 of 1 repairs were in progress"
    assert "unhealthy for healthTimeout (10m)" in said[1].message
    drained = await pool.told(lambda r: r.drained)
    assert (drained.phase, drained.trouble, drained.vm) == (Phase.FAILED, Trouble.HEALTH, Vm.LIVES)
    assert (await reason(handle, "HealthTimeout")).deletion is None  # its pool decides what becomes of it
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert [d.again for d in machines.stubs.called("drain_node")] == [False, True]
    heard = await pool.heard()
    last = [
        (str(r.phase), r.vm.name, r.trouble.name, r.drained, r.asks, r.ended) for r in heard if r.seq >= drained.seq
    ]
    assert last == [
        ("Failed", "LIVES", "HEALTH", True, True, False),
        ("Terminating", "LIVES", "HEALTH", False, True, False),
        ("Terminating", "GONE", "HEALTH", False, True, False),
        ("Terminating", "GONE", "HEALTH", False, True, True),
    ]


async def test_one_that_is_well_by_then_gives_the_permit_back(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_node", looked())
    await pool.permits(handle)
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(seconds=31))
    well = await phase(handle, Phase.RUNNING)
    assert (well.asks_permit, well.permitted) == (False, False)
    await pool.told(lambda r: not r.asks)
    assert machines.stubs.called("drain_node") == []


async def test_what_cannot_be_read_keeps_the_permit(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """I5: then the looks begin again, and the second one makes it Failed without another question."""
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_node", classified(ErrorClass.AUTH, "not now"), *[looked(**SICK)] * 2)
    await pool.permits(handle)
    cannot = await reason(handle, "CannotConfirm")
    assert (cannot.status.phase, cannot.permitted, cannot.suspicion) == (Phase.UNKNOWN, True, None)
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    first = await reason(handle, "ConfirmingFailure")
    assert first.status.phase is Phase.UNKNOWN
    await temporal.fast_forward(handle, MINUTE)
    await phase(handle, Phase.FAILED)
    assert looks(machines) == 5


async def test_after_an_outage_the_permit_takes_two_looks(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """What was seen before it is old news, though the pool has acted on it."""
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    for reachable in (False, True):
        news = Reachability(reachable=reachable, message="refused", time=datetime.now(UTC))
        await handle.signal(MachineWorkflow.cluster_news, news)
    await pool.permits(handle)
    first = await reason(handle, "ConfirmingFailure")
    assert (first.status.phase, looks(machines)) == (Phase.UNKNOWN, 3)
    await temporal.fast_forward(handle, MINUTE)
    await phase(handle, Phase.FAILED)
    assert looks(machines) == 4
    assert [asks for _, asks in since_asked(await pool.heard())[:1]] == [True]


async def test_while_it_asks_an_outage_is_no_end_of_the_question(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """The next look fails, and the one after it is a first look: the machine goes on asking, and says so."""
    handle = await asking(temporal, pool)
    cannot = [classified(ErrorClass.AUTH, "not now")]
    machines.stubs.then("look_at_node", *cannot, *[looked(**SICK)] * 2)
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=1))
    await reason(handle, "CannotConfirm")
    await temporal.fast_forward(handle, timedelta(minutes=3, seconds=1))
    await looked_again(machines, 4)
    asks = await reason(handle, "RepairPermit")
    assert asks.suspicion is not None
    await temporal.fast_forward(handle, MINUTE)
    await looked_again(machines, 5)
    assert (await state(handle)).status.phase is Phase.UNKNOWN
    assert since_asked(await pool.heard()) == [("Unknown", True)]


async def test_a_permit_that_nobody_asked_for_changes_nothing(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    """It is not kept either: the machine must ask when its time comes."""
    handle = await sick(pool)
    before = await state(handle)
    await pool.permits(handle)
    after = await state(handle)
    assert after.model_copy(update={"messages": before.messages}) == before
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 3)
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, MINUTE)
    await reason(handle, "RepairPermit")
    for _ in range(2):  # nor does a repeated one
        await pool.permits(handle)
    failed = await phase(handle, Phase.FAILED)
    assert [h.reason for h in failed.journal].count("RepairPermitted") == 1


async def test_question_and_permit_outlive_a_new_run(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    first = (await handle.describe()).run_id
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="n"))
    await eventually(handle.describe, lambda d: d.run_id != first, "a new run")
    assert (await reason(handle, "RepairPermit")).asks_permit
    machines.stubs.then("look_at_node", looked(**SICK))
    await pool.permits(handle)
    await phase(handle, Phase.FAILED)
    assert looks(machines) == 3


# -- no permit is needed ----------------------------------------------------------------------------------------------


async def test_a_vm_that_is_gone_needs_no_permit(temporal: WorkflowEnvironment, machines: Machines, pool: Pool) -> None:
    handle = await sick(pool)
    machines.stubs.always["look_at_node"] = looked(**SICK)
    machines.stubs.always["look_at_vm"] = VmLook(state="gone", message=f"{VM} is gone")
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.claim and s.claim.look, "the first look")
    await temporal.fast_forward(handle, timedelta(seconds=41))
    gone = await pool.told(lambda r: r.vm is Vm.GONE, "its Lease stands still")  # the pool replaces it already
    assert (gone.phase, gone.trouble) == (Phase.UNKNOWN, Trouble.GONE)
    await temporal.fast_forward(handle, MINUTE)
    await phase(handle, Phase.FAILED)
    failed = await pool.told(lambda r: r.phase is Phase.FAILED)
    assert (failed.trouble, failed.vm, failed.asks) == (Trouble.GONE, Vm.GONE, False)


async def test_one_that_asks_and_loses_its_vm_waits_no_longer(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await asking(temporal, pool)
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    await handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=1, provider_id=VM, state="gone"))
    gone = await pool.told(lambda r: r.vm is Vm.GONE)
    assert (gone.asks, gone.trouble) == (True, Trouble.GONE)
    machines.stubs.then("look_at_node", looked(**SICK))
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    await temporal.fast_forward(handle, timedelta(minutes=10, seconds=1))
    await phase(handle, Phase.FAILED)


async def test_a_machine_of_no_pool_asks_nobody(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1", health_timeout=TEN))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    await phase(handle, Phase.UNKNOWN)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, MINUTE)
    failed: MachineState = await phase(handle, Phase.FAILED)
    assert not failed.asks_permit

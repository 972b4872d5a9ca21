"""Health: machine-controller-manager's cases H1 to H14, M1 and F1 to F6, and what surrounds them. docs/conformance.md
is the table."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from histories.deadlines import at_once
from hypothesis import given
from hypothesis import strategies as st
from lifekit import eventually
from machine.stubbed import called, delete, ended, past, past_both_looks, phase, reason, running, state, with_vm
from machine.stubs import NODE, VM, Machines, classified, looked, stubbed
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import worker
from planners.machine.health import Health, Outcome, confirm, fails_at, fall_ill, judge, plan_health
from resources.calls.cloud import VmLook
from resources.calls.cluster import LookInput, NodeLook
from resources.cluster.news import Reachability
from resources.errors import ErrorClass
from resources.machine.facts import NodeFacts
from resources.machine.intents import RecreateIntent
from resources.machine.manifest import DEFAULT_NODE_CONDITIONS
from resources.machine.state import Illness, Look, MachineState, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE, TIMEOUT, MINUTE = timedelta(seconds=30), timedelta(minutes=10), timedelta(minutes=1)
ILL = Health(False, "NodeNotReady", "not Ready")
LISTED = list(DEFAULT_NODE_CONDITIONS)


def node(**fields: Any) -> NodeFacts:
    return NodeFacts.model_validate({"epoch": 1, "seq": 1, "exists": True, "name": NODE, "ready": True, **fields})


# -- the decision -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "facts", "after"),
    [
        pytest.param(Phase.RUNNING, node(ready=False, reason="NodeStatusUnknown"), Phase.UNKNOWN, id="H4"),
        pytest.param(Phase.RUNNING, node(conditions={"KernelDeadlock": "True"}), Phase.UNKNOWN, id="H5"),
        pytest.param(Phase.RUNNING, node(exists=False), Phase.UNKNOWN, id="H6"),
        pytest.param(Phase.UNKNOWN, node(), Phase.RUNNING, id="H7"),
        pytest.param(Phase.UNKNOWN, node(startup_taints=["x"]), Phase.RUNNING, id="H13"),
        pytest.param(Phase.RUNNING, node(conditions={"DiskPressure": "Unknown"}), Phase.UNKNOWN, id="H14"),
        pytest.param(Phase.RUNNING, node(conditions={"MemoryPressure": "True"}), Phase.RUNNING, id="H14: not listed"),
        pytest.param(Phase.RUNNING, None, Phase.UNKNOWN, id="H14: no conditions at all"),
        pytest.param(Phase.RUNNING, node(unschedulable=True), Phase.RUNNING, id="a cordon is no illness"),
    ],
)
def test_h04_to_h07_h13_h14_running_and_unknown(before: Phase, facts: NodeFacts | None, after: Phase) -> None:
    verdict = plan_health(before, judge(facts, LISTED), NOW - SETTLE, NOW, SETTLE)
    assert verdict.phase == after


# -- Pending ----------------------------------------------------------------------------------------------------------


async def test_h01_h02_h03_pending_too_long_is_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """It is Failed by its age, whatever happened in between."""
    timings = Timings(vm_look=timedelta(days=1))
    machines.stubs.then("look_at_node", *[looked(ready=False)] * 9)
    handle = await machines.start(machines.new_state("m-1", timings=timings, creation_timeout=timedelta(minutes=20)))
    await reason(handle, "NodeNotSeen")
    await temporal.fast_forward(handle, timedelta(minutes=15))
    assert (await state(handle)).status.phase == Phase.PENDING  # H2
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    await reason(handle, "NodeNotReady")  # H3: news, five minutes before
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    assert [c.reason for c in failed.status.conditions if c.type == "Failed"] == ["CreationTimeout"]
    at = next(h.time for h in failed.journal if h.reason == "CreationTimeout")
    assert failed.created is not None
    await at_once(handle, failed.created + timedelta(minutes=20), at)


async def test_h11_h12_a_startup_taint_keeps_it_pending(machines: Machines) -> None:
    taint = "node.gardener.cloud/critical-components-not-ready"
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts(startup_taints=[taint]))
    seen = await reason(handle, "StartupTaint")
    assert seen.status.phase == Phase.PENDING
    assert seen.status.waiting_for is not None
    assert taint in seen.status.waiting_for.message
    foreign = "node.cloudprovider.kubernetes.io/uninitialized"
    await handle.signal(MachineWorkflow.observe, machines.facts(startup_taints=[foreign]))
    words = f"cloud-controller-manager to remove its taint {foreign}"
    await eventually(lambda: state(handle), lambda s: s.status.waiting_for and words in s.status.waiting_for.message)
    assert machines.stubs.called("remove_ready_taint") == []
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)


# -- Unknown for too long ---------------------------------------------------------------------------------------------


async def unknown(machines: Machines, name: str = "m-1", **spec: Any) -> Any:
    handle = await running(machines, name, health_timeout=TIMEOUT, **spec)
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False, reason="NodeStatusUnknown"))
    await phase(handle, Phase.UNKNOWN)
    return handle


def began(s: MachineState) -> datetime:
    assert s.illness is not None
    return s.illness.began


@pytest.mark.parametrize("exists", [pytest.param(True, id="H8"), pytest.param(False, id="H9")])
async def test_h08_h09_unknown_too_long_is_failed(
    temporal: WorkflowEnvironment, machines: Machines, exists: bool
) -> None:
    machines.stubs.then("look_at_node", *[looked(exists=exists, ready=False)] * 2)
    handle = await unknown(machines)
    before = await state(handle)
    assert before.status.deadlines["health"] == began(before) + TIMEOUT
    assert before.status.waiting_for is not None
    assert before.status.waiting_for.next_try == began(before) + TIMEOUT - MINUTE  # the first look
    if not exists:
        await handle.signal(MachineWorkflow.observe, machines.facts(exists=False))
        await reason(handle, "NodeMissing")
    await temporal.fast_forward(handle, timedelta(minutes=8))
    assert (await state(handle)).status.phase == Phase.UNKNOWN
    assert machines.stubs.called("look_at_node") == []
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    happened = next(h for h in failed.journal if h.reason == "HealthTimeout")
    await at_once(handle, began(failed) + TIMEOUT, happened.time)
    assert "two fresh looks" in happened.message
    assert (len(machines.stubs.called("look_at_node")), len(machines.stubs.called("look_at_vm"))) == (2, 2)
    assert len(machines.stubs.called("create_machine")) == 1


async def test_h10_with_disable_health_timeout_it_stays_unknown(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await unknown(machines, disable_health_timeout=True)
    seen = await state(handle)
    assert seen.status.deadlines == {}
    assert seen.status.waiting_for is not None
    assert "disableHealthTimeout" in seen.status.waiting_for.message
    await temporal.fast_forward(handle, timedelta(hours=5))
    assert (await state(handle)).status.phase == Phase.UNKNOWN
    assert machines.stubs.called("look_at_node") == []
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")


async def test_m01_each_of_two_machines_of_no_pool_fails_by_itself(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """A permit is given by a pool (M2 to M9); a machine of no pool needs none."""
    machines.stubs.then("look_at_node", *[looked(exists=False)] * 4)
    handles = [await unknown(machines, name) for name in ("m-1", "m-2")]
    for handle in handles:
        await past_both_looks(temporal, handle)
        await phase(handle, Phase.FAILED)


async def test_failed_is_drained_in_failed_and_once(temporal: WorkflowEnvironment, machines: Machines) -> None:
    machines.stubs.then("look_at_node", *[looked(exists=False)] * 2)
    handle = await unknown(machines)
    await past_both_looks(temporal, handle)
    failed = await reason(handle, "HealthTimeout")
    assert (failed.status.phase, failed.drained, failed.deletion) == (Phase.FAILED, True, None)
    assert "HealthTimeout" in [c.reason for c in failed.status.conditions]
    await handle.signal(MachineWorkflow.observe, machines.facts())  # well again; MCM: Running until it is replaced
    await eventually(lambda: state(handle), lambda s: s.node is not None and s.node.ready)
    await delete(handle)
    result = await ended(handle)
    assert [d.again for d in machines.stubs.called("drain_node")] == [False, True]  # a look before the VM goes
    reasons = [h.reason for h in result.journal]
    assert reasons.index("HealthTimeout") < reasons.index("Drained") < reasons.index("Terminating")


async def test_recreate_is_a_delete_to_the_end_and_a_new_life(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    machines.stubs.then("look_at_node", *[looked(exists=False)] * 2)
    handle = machines.client.get_workflow_handle((await unknown(machines)).id)
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    hold = machines.stubs.holds["delete_machine"] = asyncio.Event()
    await handle.execute_update(MachineWorkflow.recreate, RecreateIntent(id="r-1", requested_by="test"))
    assert (await reason(handle, "DeletingVM")).status.phase == Phase.TERMINATING
    assert len(machines.stubs.called("create_machine")) == 1  # one VM at a time
    hold.set()
    again = await eventually(lambda: state(handle), lambda s: s.uid not in ("", failed.uid), "a new life")
    assert again.spec == failed.spec
    assert again.journal[0] == failed.journal[0]
    await called(machines, "create_machine", 2)
    first, second = machines.stubs.called("create_machine")
    assert (first.target.machine.uid, second.target.machine.uid) == (failed.uid, again.uid)
    assert first.target.token != second.target.token
    hold.clear()
    await delete(handle)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(MachineWorkflow.recreate, RecreateIntent(id="r-2"))
    assert "is being deleted" in str(refused.value.cause)
    hold.set()
    await ended(handle)


async def test_a_node_that_joins_after_failed_gets_no_work(temporal: WorkflowEnvironment, machines: Machines) -> None:
    timings = Timings(vm_look=timedelta(days=1))
    handle = await machines.start(machines.new_state("m-1", timings=timings))
    await reason(handle, "NodeNotSeen")
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    late = failed.journal[-1].time + MINUTE
    await handle.signal(MachineWorkflow.observe, machines.facts(created=late))
    seen = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "JoinedLate")
    assert seen.status.phase == Phase.FAILED
    assert machines.stubs.called("join_node") == machines.stubs.called("remove_ready_taint") == []


# -- flapping ---------------------------------------------------------------------------------------------------------

flaps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30)


@given(flaps)
def test_flapping_cannot_put_the_deadline_off(spells: list[tuple[int, int]]) -> None:
    """Ill and well in turn for minutes, each time shorter than the timeout: the clock adds up the time that it was
    ill."""
    illness, now, ill_so_far = None, NOW, timedelta(0)
    for ill, well in spells:
        illness = fall_ill(illness, now, TIMEOUT)
        assert fails_at(illness, TIMEOUT) == max(now, now + TIMEOUT - ill_so_far)
        now += ill * MINUTE
        ill_so_far += ill * MINUTE
        illness = illness.model_copy(update={"ended": now})
        now += well * MINUTE
    after_a_long_health = fall_ill(illness, now + TIMEOUT, TIMEOUT)
    assert fails_at(after_a_long_health, TIMEOUT) == now + 2 * TIMEOUT


async def test_condition_flapping_across_the_deadline(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Six minutes ill, one well, and ill again: Failed after four more. MCM skips its check at each change (#811)."""
    machines.stubs.then("look_at_node", *[looked(ready=False)] * 2)
    handle = await unknown(machines)
    await temporal.fast_forward(handle, timedelta(minutes=6))
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, MINUTE)
    await phase(handle, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False, reason="NodeStatusUnknown"))
    seen = await phase(handle, Phase.UNKNOWN)
    assert [c.type for c in seen.status.conditions] == ["Flapping"]
    left = seen.status.deadlines["health"] - began(seen)
    assert 3 * MINUTE < left <= 4 * MINUTE
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    assert "HealthTimeout" in [h.reason for h in failed.journal]


# -- two looks before it is Failed ------------------------------------------------------------------------------------


def look(minutes: float, lease: datetime | None = NOW, vm: str = "running", **facts: Any) -> Look:
    usual = {"ready": False, "lease": lease}
    return Look(time=NOW + minutes * MINUTE, node=looked(**{**usual, **facts}), vm=VmLook(state=vm))


RENEWED = NOW + MINUTE


@pytest.mark.parametrize(
    ("first", "second", "outcome", "why"),
    [
        pytest.param(None, look(9), Outcome.UNSURE, "ConfirmingFailure", id="one look is not enough"),
        pytest.param(look(9), look(10), Outcome.FAILED, "NodeNotReady", id="silent in both"),
        pytest.param(look(9), look(10, ready=True), Outcome.SETTLING, "NodeHealthy", id="well in the second"),
        pytest.param(look(9, ready=True), look(10, ready=True), Outcome.WELL, "NodeHealthy", id="well in both"),
        pytest.param(look(9), look(10, RENEWED), Outcome.UNSURE, "KubeletAlive", id="its Lease moves"),
        pytest.param(look(9), look(16, RENEWED), Outcome.FAILED, "NodeNotReady", id="alive, silent for 5 min"),
        pytest.param(
            look(9), look(10, RENEWED, status="False"), Outcome.FAILED, "NodeNotReady", id="it says so itself"
        ),
        pytest.param(look(9), look(10, vm="gone"), Outcome.FAILED, "VMGone", id="its VM is gone"),
        pytest.param(
            look(9), look(10, RENEWED, vm="gone"), Outcome.UNSURE, "KubeletAlive", id="not found, and its Lease moves"
        ),
        pytest.param(look(9, exists=False), look(10, exists=False), Outcome.FAILED, "NodeMissing", id="no Node"),
    ],
)
def test_two_fresh_looks_decide(first: Look | None, second: Look, outcome: Outcome, why: str) -> None:
    said = confirm(first, second, VM, LISTED, NOW + TIMEOUT, Timings())
    assert (said.outcome, said.reason) == (outcome, why)
    assert said.message
    assert (said.look_again is None) == (outcome in (Outcome.FAILED, Outcome.WELL))


OUTAGE = Reachability(reachable=False, message="demo cannot be reached", time=NOW)


@pytest.mark.parametrize("was_away", [pytest.param(True, id="F1"), pytest.param(False, id="F2")])
async def test_f01_f02_with_both_readable_it_is_decided(
    temporal: WorkflowEnvironment, machines: Machines, was_away: bool
) -> None:
    """It makes no difference whether there was an outage before."""
    machines.stubs.then("look_at_node", *[looked(ready=False)] * 2)
    handle = await unknown(machines)
    if was_away:
        await handle.signal(MachineWorkflow.cluster_news, OUTAGE)
        await handle.signal(MachineWorkflow.cluster_news, OUTAGE.model_copy(update={"reachable": True}))
    await past_both_looks(temporal, handle)
    await phase(handle, Phase.FAILED)


async def test_f03_an_outage_before_the_deadline_changes_nothing(machines: Machines) -> None:
    handle = await unknown(machines)
    before = await state(handle)
    await handle.signal(MachineWorkflow.cluster_news, OUTAGE)
    seen = await eventually(lambda: state(handle), lambda s: s.status.conditions)
    assert [c.type for c in seen.status.conditions] == ["APIUnreachable"]
    assert (seen.status.phase, seen.status.deadlines) == (Phase.UNKNOWN, before.status.deadlines)
    await handle.signal(MachineWorkflow.cluster_news, OUTAGE.model_copy(update={"reachable": True}))
    await eventually(lambda: state(handle), lambda s: not s.status.conditions)
    assert (await state(handle)).status.phase == Phase.UNKNOWN  # MCM sets every Unknown machine to Running


@pytest.mark.parametrize(
    ("unreadable", "words"),
    [
        pytest.param("look_at_node", "Node and Lease cannot be read", id="F5"),
        pytest.param("look_at_vm", "the VM cannot be read", id="F6"),
    ],
)
async def test_f04_f05_f06_what_cannot_be_read_decides_nothing(
    temporal: WorkflowEnvironment, machines: Machines, unreadable: str, words: str
) -> None:
    down: dict[str, Any] = {"answers": False}

    def answer(usual: Any) -> Callable[[Any], Any]:
        def look(_: Any) -> Any:
            if not down["answers"]:
                raise classified(ErrorClass.AUTH, "no answer")
            return usual

        return look

    usual = looked(exists=False) if unreadable == "look_at_node" else VmLook(state="running")
    machines.stubs.then(unreadable, *[answer(usual)] * 50)
    handle = await unknown(machines)
    seen = await reason(handle, "NodeNotReady")
    assert machines.stubs.called(unreadable) == []  # F4: long before the deadline nobody asks
    await past(temporal, handle, "confirm")
    seen = await reason(handle, "CannotConfirm")
    first = seen.status.deadlines["confirm"]
    await past(temporal, handle, "confirm")  # three minutes later, behind the health deadline
    seen = await eventually(lambda: state(handle), lambda s: s.status.deadlines["confirm"] > first, "the next look")
    assert first > seen.status.deadlines["health"]
    assert (seen.status.phase, len(machines.stubs.called(unreadable))) == (Phase.UNKNOWN, 2)
    assert seen.status.waiting_for is not None
    assert words in seen.status.waiting_for.message
    down["answers"] = True
    await past_both_looks(temporal, handle)
    await phase(handle, Phase.FAILED)


def unknown_for_an_hour(machines: Machines) -> MachineState:
    """A machine that was Unknown when everything went down, an hour ago: its deadline has passed meanwhile."""
    then = datetime.now(UTC) - 6 * TIMEOUT
    s = with_vm(machines, joined=True, was_running=True, post_start_done=True)
    s.timings = Timings(settle=timedelta(0), confirm=timedelta(seconds=1))
    s.spec = s.spec.model_copy(update={"health_timeout": TIMEOUT})
    s.node, s.illness = machines.facts(ready=False), Illness(began=then)
    s.status.phase = Phase.UNKNOWN
    s.status.last_applied_node_template = s.spec.node_template
    s.status.deadlines = {"health": then + TIMEOUT, "confirm": then + TIMEOUT - MINUTE}
    return s


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.exhaustive)])
async def test_many_machines_whose_timers_all_fired_meanwhile(temporal: WorkflowEnvironment, count: int) -> None:
    """The worker comes back after an hour, and all deadlines have passed. Only the one that is found ill is Failed."""
    async with stubbed(temporal.client, workflows=False) as machines:
        ill, names = "m-17", [f"m-{n}" for n in range(count)]

        def look(input: LookInput) -> NodeLook:
            return looked(ready=input.machine.name != ill)

        machines.stubs.then("look_at_node", *[look] * (count + 2))
        s = unknown_for_an_hour(machines)
        states = [s.model_copy(deep=True, update={"name": name, "uid": str(uuid.uuid4())}) for name in names]
        handles = dict(zip(names, await asyncio.gather(*map(machines.start, states)), strict=True))
        async with Worker(
            temporal.client,
            task_queue=machines.prefix,
            workflows=worker.WORKFLOWS,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            await phase(handles.pop(ill), Phase.FAILED)
            others = [await phase(handle, Phase.RUNNING) for handle in handles.values()]
        assert [s.name for s in others if "HealthTimeout" in [h.reason for h in s.journal]] == []

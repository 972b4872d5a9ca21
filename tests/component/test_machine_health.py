"""From Unknown to Failed and back: the clock, the two fresh looks, the drain in Failed. Stubs; time is skipped."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from histories.deadlines import at_once
from lifekit import eventually
from machine.stubs import (
    NODE,
    SICK,
    TEN,
    VM,
    Handle,
    Machines,
    classified,
    failed_of_health,
    looked,
    not_yet,
    phase,
    reason,
    sick,
    state,
    to_first_look,
)
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from resources.calls.cloud import VmLook
from resources.calls.drain import DrainInput, DrainOutput
from resources.cluster.news import Reachability
from resources.errors import API, ErrorClass
from resources.intents import Intent
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.state import ApplyIntent, Attempt, Phase
from resources.timings import Timings
from workflows.machine import MachineWorkflow


async def running(machines: Machines, **spec: Any) -> Handle:
    handle = await machines.start(machines.new_state("m-1", **{"health_timeout": TEN, **spec}))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


# -- the clock and the two looks ---------------------------------------------------------------------------------------


async def test_a_deletion_goes_on_with_the_drain_of_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The deadline is the drain's own, counted from the failure; the phase shows at once that it is leaving."""

    def blocked(input: DrainInput) -> DrainOutput:
        if input.force:
            return DrainOutput(pods=1)
        raise not_yet("0 of 1 pods gone; default/web-1 blocked by PDB web", timedelta(days=1))

    machines.stubs.then("drain_node", *[blocked] * 9)
    handle = await failed_of_health(temporal, machines, drain_timeout=timedelta(minutes=5))
    waits = await reason(handle, "Draining")
    assert waits.status.phase == Phase.FAILED
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    leaving = await phase(handle, Phase.TERMINATING)
    assert leaving.status.deadlines["drain"] == leaving.drain_began + timedelta(minutes=5)
    assert leaving.drain_began < leaving.deletion.time
    await eventually(lambda: _pending(handle), lambda p: p == ["drain_node"], "the drain goes on")
    await temporal.fast_forward(handle, timedelta(minutes=4, seconds=56))  # not beyond it: then it would be that late
    result = await handle.result()
    forced = next(h for h in result.journal if h.reason == "DrainForced")
    await at_once(handle, leaving.status.deadlines["drain"], forced.time)


async def _pending(handle: Handle) -> list[str]:
    activities = (await handle.describe()).raw_description.pending_activities
    return [a.activity_type.name for a in activities if a.last_failure.message]


async def test_a_healthy_look_does_not_fail_it(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The watch was late, or away: what the look finds counts as news."""
    handle = await running(machines)
    await sick(machines, handle)
    machines.stubs.then("look_at_node", looked())
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    settling = await reason(handle, "Settling")
    assert settling.node.ready
    assert settling.status.deadlines["health"] == settling.illness.began + TEN  # it has not settled yet
    await temporal.fast_forward(handle, timedelta(seconds=31))
    await phase(handle, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))  # what the watch tells next is newer
    await phase(handle, Phase.UNKNOWN)


async def test_a_look_that_news_has_overtaken_is_taken_again(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Its answer may be older than what the watch has told meanwhile, and does not tell again."""
    handle = await running(machines)
    await sick(machines, handle)
    hold = machines.stubs.holds["look_at_node"] = asyncio.Event()
    machines.stubs.then("look_at_node", looked(**SICK), looked())
    await temporal.fast_forward(handle, timedelta(minutes=9, seconds=1))
    await machines.stubs.until_called("look_at_node")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await eventually(lambda: state(handle), lambda s: s.node.ready, "the news")
    hold.set()
    assert (await reason(handle, "Settling")).node.ready
    assert len(machines.stubs.called("look_at_node")) == 2


async def test_a_lease_that_moves_holds_it_back(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """After an API outage every Node says Unknown, and the kubelet renews its Lease before its status."""
    handle = await running(machines)
    await sick(machines, handle)
    first = datetime(2026, 1, 1, tzinfo=UTC)  # by the node's clock, which may say what it likes
    machines.stubs.then("look_at_node", looked(first, **SICK), looked(first + timedelta(seconds=50), **SICK), looked())
    await to_first_look(temporal, handle)
    await temporal.fast_forward(handle, timedelta(seconds=62))
    alive = await reason(handle, "KubeletAlive")
    assert alive.status.phase == Phase.UNKNOWN
    await temporal.fast_forward(handle, timedelta(seconds=62))
    await reason(handle, "Settling")


async def test_news_of_an_outage_makes_the_first_look_old(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await running(machines)
    await sick(machines, handle)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 3)
    await to_first_look(temporal, handle)
    for reachable in (False, True):
        news = Reachability(reachable=reachable, message="refused", time=datetime.now(UTC))
        await handle.signal(MachineWorkflow.cluster_news, news)
    await temporal.fast_forward(handle, timedelta(seconds=61))
    again = await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "a first look again")
    assert again.status.phase == Phase.UNKNOWN
    await temporal.fast_forward(handle, timedelta(seconds=62))
    await phase(handle, Phase.FAILED)


async def test_a_node_that_cannot_be_written_is_said_until_it_can(machines: Machines) -> None:
    handle = await running(machines)

    async def said() -> list[str]:
        return [c.message for c in (await state(handle)).status.conditions if c.type == "NodeUnwritable"]

    for words in ("failed calling webhook", "failed calling another webhook"):
        await handle.signal(MachineWorkflow.observe, machines.facts(unwritable=words))
    first = ["node node-1 cannot be written; it is tried again: failed calling webhook"]
    assert await eventually(said, first.__eq__, "the condition")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await eventually(said, lambda found: found == [], "no condition")
    await handle.signal(MachineWorkflow.observe, machines.facts(unwritable="failed calling webhook"))
    await eventually(said, first.__eq__, "the condition, again")
    now = await state(handle)
    assert now.status.phase == Phase.RUNNING
    assert [h.message for h in now.journal if h.reason == "NodeUnwritable"] == first


async def test_flapping_is_said_and_does_not_set_the_clock_back(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Field case P57: four minutes ill, four minutes well, and so on."""
    handle = await running(machines)
    machines.stubs.then("look_at_node", *[looked(**SICK)] * 2)
    await sick(machines, handle)
    for _ in range(2):
        await temporal.fast_forward(handle, timedelta(minutes=4))
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await reason(handle, "Settling")
        await temporal.fast_forward(handle, timedelta(minutes=4))
        await phase(handle, Phase.RUNNING)
        await sick(machines, handle)
    third = await state(handle)
    assert third.illness.spells == 3
    assert timedelta(minutes=8) <= third.illness.spent < timedelta(minutes=8, seconds=20)
    assert third.status.deadlines["health"] == third.illness.began + TEN - third.illness.spent
    assert "unhealthy 3 times" in next(c.message for c in third.status.conditions if c.type == "Flapping")
    await temporal.fast_forward(handle, timedelta(seconds=61))  # the look is due 40 to 60 s from now
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    await phase(handle, Phase.FAILED)


async def test_health_for_as_long_sets_the_clock_back(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await running(machines)
    await sick(machines, handle)
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await reason(handle, "Settling")
    await temporal.fast_forward(handle, timedelta(minutes=11))
    await phase(handle, Phase.RUNNING)
    again = await sick(machines, handle)
    assert (again.illness.spells, again.illness.spent) == (1, timedelta(0))


async def test_a_changed_timeout_counts_at_once(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await running(machines, health_timeout=timedelta(hours=9))
    seen = await sick(machines, handle)
    shorter = seen.spec.model_copy(update={"health_timeout": TEN})
    await handle.execute_update(
        MachineWorkflow.apply, ApplyIntent(id="a", spec=shorter, machine_class=seen.machine_class)
    )
    changed = await eventually(lambda: state(handle), lambda s: s.status.deadlines["health"] == s.illness.began + TEN)
    assert changed.status.phase == Phase.UNKNOWN


async def test_disable_health_timeout_keeps_it_unknown(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """MCM H10."""
    handle = await running(machines, disable_health_timeout=True)
    await handle.signal(MachineWorkflow.observe, machines.facts(**SICK))
    waits = await reason(handle, "HealthTimeoutDisabled")
    assert "Kubelet stopped posting" in waits.status.waiting_for.message
    assert waits.status.deadlines == {}
    enabled = waits.spec.model_copy(update={"disable_health_timeout": False})
    await handle.execute_update(
        MachineWorkflow.apply, ApplyIntent(id="a", spec=enabled, machine_class=waits.machine_class)
    )
    await eventually(lambda: state(handle), lambda s: "health" in s.status.deadlines, "the clock")


# -- the creation deadline ---------------------------------------------------------------------------------------------


async def test_a_node_that_joined_unheard_is_found_at_the_creation_deadline(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """The watch is away; the fresh look says that the node is Ready, and joining goes on."""
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(hours=1))))
    await reason(handle, "NodeNotSeen")
    machines.stubs.then("look_at_node", looked())
    await temporal.fast_forward(handle, timedelta(minutes=19, seconds=2))
    alive = await phase(handle, Phase.RUNNING)
    assert "CreationTimeout" not in [h.reason for h in alive.journal]


async def test_an_api_out_of_reach_at_the_creation_deadline_fails_nobody(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(hours=1))))
    await reason(handle, "NodeNotSeen")
    machines.stubs.then("look_at_node", *[classified(ErrorClass.AUTH, "no route")] * 2)
    await temporal.fast_forward(handle, timedelta(minutes=20, seconds=30))
    cannot = await reason(handle, "CannotConfirm")
    assert cannot.status.phase == Phase.PENDING
    await temporal.fast_forward(handle, timedelta(minutes=4))  # it answers again: two looks, and no node
    await temporal.fast_forward(handle, timedelta(minutes=2))
    failed = await phase(handle, Phase.FAILED)
    assert failed.journal[-1].reason == "CreationTimeout"


async def test_an_outage_before_there_is_a_vm_fails_nobody(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """The API server, of which a create call needs the token, does not answer for longer than creationTimeout. The
    first call after that is the fresh look, and the rest of the time counts from there (I5, I7)."""
    no_answer = classified(ErrorClass.TRANSIENT, "no route", last=True, silent=API)
    machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY, "no m5.large"))
    machines.stubs.always["create_machine"] = no_answer
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=12)))
    await reason(handle, "OutOfCapacity")
    await temporal.fast_forward(handle, timedelta(minutes=11))
    waits = await reason(handle, "APIUnreachable")
    assert "creation" not in waits.status.deadlines
    assert "creationTimeout stands still" in waits.status.waiting_for.message
    await temporal.fast_forward(handle, timedelta(minutes=4))
    assert (await state(handle)).status.phase == Phase.CRASH_LOOP_BACK_OFF
    machines.stubs.always["create_machine"] = classified(ErrorClass.CAPACITY, "no m5.large")
    goes_on = await reason(handle, "OutOfCapacity")
    (said,) = [h for h in goes_on.journal if h.reason == "CreationGoesOn"]
    left = timedelta(minutes=12) - (waits.silent_since - waits.created)
    assert goes_on.status.deadlines["creation"] == said.time + left
    until = machines.stubs.called("create_machine")[-1].deadline
    assert until > goes_on.created + timedelta(minutes=12), "its bootstrap token lives until then"
    await temporal.fast_forward(handle, timedelta(minutes=3))
    failed = await phase(handle, Phase.FAILED)
    assert failed.status.waiting_for.reason == "OutOfCapacity"


async def test_a_last_call_without_an_answer_hides_no_cause(temporal: WorkflowEnvironment, machines: Machines) -> None:
    full = classified(ErrorClass.CAPACITY, "no m5.large")
    hiccup = classified(ErrorClass.TRANSIENT, "InternalError", last=True, provider_code="InternalError")
    machines.stubs.then("create_machine", full, full)
    machines.stubs.always["create_machine"] = hiccup
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=21)))
    first = await reason(handle, "OutOfCapacity")
    await temporal.fast_forward(handle, timedelta(minutes=20, seconds=30))
    await reason(handle, "ProviderUnavailable")
    await temporal.fast_forward(handle, timedelta(minutes=1))
    failed = await phase(handle, Phase.FAILED)
    assert failed.status.waiting_for.reason == "OutOfCapacity"
    assert failed.status.waiting_for.since == first.journal[1].time
    assert failed.journal[-1].message.startswith("no m5.large (for 21m); ")


async def test_an_outage_while_a_node_should_join_fails_nobody(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """No Node can be seen, and no kubelet can register. Afterwards there is a fresh look at once, the rest of the time,
    and a token that lasts as long."""
    rarely, five = Timings(vm_look=timedelta(minutes=1)), timedelta(minutes=5)
    handle = await machines.start(machines.new_state("m-1", timings=rarely, creation_timeout=five))
    before = await reason(handle, "NodeNotSeen")
    machines.stubs.always["look_at_node"] = classified(ErrorClass.TRANSIENT, "no route", last=True, silent=API)
    await temporal.fast_forward(handle, timedelta(minutes=1))
    gone = Reachability(reachable=False, message="no route", time=before.created, since=before.created)
    await handle.signal(MachineWorkflow.cluster_news, gone)
    waits = await eventually(lambda: state(handle), lambda s: s.silent_since is not None, "the standstill")
    assert waits.silent_since == before.created
    await temporal.fast_forward(handle, timedelta(minutes=7))
    assert (await state(handle)).status.phase == Phase.PENDING
    looks = len(machines.stubs.called("look_at_node"))
    del machines.stubs.always["look_at_node"]
    machines.stubs.then("look_at_node", looked(exists=False))
    await handle.signal(MachineWorkflow.cluster_news, Reachability(reachable=True, time=before.created))
    goes_on = await eventually(lambda: state(handle), lambda s: "creation" in s.status.deadlines, "the deadline")
    assert goes_on.status.deadlines["creation"] - goes_on.journal[-1].time == five
    await machines.stubs.until_called("look_at_node", looks + 1)
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "a fresh look")
    assert machines.stubs.called("watch_machine")[-1].deadline == goes_on.status.deadlines["creation"]
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)


async def test_the_console_of_a_vm_whose_node_never_joins(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Field case P13."""
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(hours=1))))
    await reason(handle, "NodeNotSeen")
    words = f"{VM} is running; console: kubelet: no such host api.example"
    machines.stubs.then("look_at_vm", VmLook(state="running"), VmLook(state="running", message=words))
    await temporal.fast_forward(handle, timedelta(minutes=19, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None)
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=1))
    failed = await phase(handle, Phase.FAILED)
    assert "no such host" in failed.journal[-1].message
    assert [i.diagnose for i in machines.stubs.called("look_at_vm")] == [False, True]


async def test_a_node_of_another_name_is_matched_by_its_provider_id(machines: Machines) -> None:
    """Field case P35."""
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts(name="m-1.corp"))
    seen = await phase(handle, Phase.RUNNING)
    assert seen.status.node_name == "m-1.corp"
    said = next(h.message for h in seen.journal if h.reason == "NodeNameDiffers")
    assert NODE in said
    assert "m-1.corp" in said


async def test_a_node_that_joins_in_the_second_in_which_it_failed_is_said_and_gets_no_work(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    """Kubernetes tells a Node's creation in whole seconds: one of the same second has an earlier time."""
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(hours=1))))
    await reason(handle, "NodeNotSeen")
    await temporal.fast_forward(handle, timedelta(minutes=19, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None)
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=2))
    failed = await phase(handle, Phase.FAILED)
    late = machines.facts(created=failed.status.phase_since.replace(microsecond=0))
    await handle.signal(MachineWorkflow.observe, late)
    seen = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "JoinedLate")
    assert seen.status.phase == Phase.FAILED
    assert machines.stubs.called("remove_ready_taint") == []


# -- recreate and adopt ------------------------------------------------------------------------------------------------


async def test_recreate_is_a_delete_to_the_end_and_a_new_life(machines: Machines) -> None:
    handle = await running(machines)
    former = await state(handle)
    better = former.machine_class.model_copy(update={"generation": 2})
    await handle.execute_update(MachineWorkflow.apply, ApplyIntent(id="a", spec=former.spec, machine_class=better))
    intent = RecreateIntent(id="r", requested_by="ops", reason="bad disk")
    answer = await handle.execute_update(MachineWorkflow.recreate, intent, id="r")
    assert "then created again" in answer.message
    new = await reason(handle, "NodeNotSeen")
    assert new.uid != former.uid
    assert len(machines.stubs.called("delete_machine")) == 1
    assert new.machine_class.generation == 2
    assert new.deletion is None
    reasons = [h.reason for h in new.journal]
    assert reasons.index("Terminating") < reasons.index("Gone") < reasons.index("Recreated")
    tokens = [i.target.token for i in machines.stubs.called("create_machine")]
    assert len(set(tokens)) == 2
    again = await handle.execute_update(MachineWorkflow.recreate, intent, id="another")
    assert again == answer  # the same intent counts once, over lives too
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()


async def test_a_delete_after_recreate_is_the_last_word(machines: Machines) -> None:
    handle = await running(machines)
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    await handle.signal("recreate", RecreateIntent(id="r"))
    await phase(handle, Phase.TERMINATING)
    answer = await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    assert "will not be recreated" in answer.message
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(MachineWorkflow.recreate, RecreateIntent(id="r2"))
    assert "apply it again when it is gone" in str(refused.value.cause)
    hold.set()
    await handle.result()
    assert len(machines.stubs.called("create_machine")) == 1


async def test_an_adopted_machine_asks_for_its_node_itself(machines: Machines) -> None:
    """The watch tells only changes, and this node does not change."""
    new = machines.new_state("m-1")
    new.uid = str(uuid.uuid4())
    new.status.provider_id = VM
    new.attempt = Attempt(number=2, token="", started=datetime.now(UTC), machine_class=new.machine_class)
    machines.stubs.then("look_at_node", looked())
    handle = await machines.start(new)
    seen = await phase(handle, Phase.RUNNING)
    assert seen.uid == new.uid
    assert seen.journal[0].reason == "Adopted"
    assert machines.stubs.called("create_machine") == []
    assert len(machines.stubs.called("update_machine")) == 1  # it looks first and changes only what differs
    await handle.signal("renew", Intent(id="n"))
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert machines.stubs.called("forget_machine")[0].attempts == 2

"""Hooks hold a machine before its drain and before its VM is deleted, until each is removed. Stubs; time is skipped."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from lifekit import eventually
from machine.stubbed import listening
from machine.stubs import (
    SICK,
    TEN,
    Handle,
    Machines,
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

from resources.calls.drain import DrainInput, DrainOutput
from resources.fleet.membership import TemplateNews
from resources.intents import Answer, Intent
from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.manifest import Hook, HookKind, LifecycleHooks, MachineTemplate
from resources.machine.state import ApplyIntent, Condition, MachineState, OperationType, Phase
from workflows.machine import MachineWorkflow

DRAIN, TERMINATE = HookKind.PRE_DRAIN, HookKind.PRE_TERMINATE
ETCD = Hook(name="EtcdQuorumOperator", owner="clusteroperator/etcd")
HELD = LifecycleHooks(pre_drain=[ETCD])
KEPT = LifecycleHooks(pre_terminate=[Hook(name="example.com/Backup", owner="alice")])
REMOVE = "`hostler hook remove m-1 EtcdQuorumOperator --kind preDrain --owner clusteroperator/etcd --cluster "


async def running(machines: Machines, hooks: LifecycleHooks | None = None, **spec: Any) -> Handle:
    """A machine that runs. The handle is of whichever run there is."""
    spec |= {"lifecycle_hooks": hooks or LifecycleHooks()}
    started = await machines.start(machines.new_state("m-1", **spec))
    handle: Handle = machines.client.get_workflow_handle_for(MachineWorkflow.run, started.id)
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    return handle


def a_hook(name: str = "Backup", owner: str = "alice", **fields: Any) -> HookIntent:
    return HookIntent(id=uuid.uuid4().hex, requested_by="ops@desk", name=name, owner=owner, **fields)


def a_removal(name: str = ETCD.name, **fields: Any) -> HookIntent:
    return a_hook(name, **{"owner": "", **fields}, remove=True)


async def tell(handle: Handle, intent: HookIntent) -> str:
    answer: Answer = await handle.execute_update("hook", intent, id=intent.id, result_type=Answer)
    return answer.message


async def delete(handle: Handle, **fields: Any) -> None:
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id=uuid.uuid4().hex, **fields))


def calls(machines: Machines) -> list[str]:
    """Calls on the way out, in their order."""
    names = ("drain_node", "delete_machine", "forget_machine")
    return [name for name, _ in machines.stubs.asked if name in names]


def conditions(seen: MachineState) -> dict[str, Condition]:
    return {c.type: c for c in seen.status.conditions}


# -- before the drain -------------------------------------------------------------------------------------------------


async def test_pre_drain_hooks_hold_the_drain_until_the_last_is_gone(machines: Machines) -> None:
    handle = await running(machines, HELD)
    seen = await state(handle)
    assert (conditions(seen)["Drainable"].reason, "Terminable" in conditions(seen)) == ("HookPresent", False)
    assert "it holds up the drain until it is removed" in await tell(handle, a_hook(reason="backup runs"))
    await delete(handle)
    held = await reason(handle, "PreDrainHook")
    assert held.status.phase == Phase.TERMINATING
    waiting = held.status.waiting_for.message
    assert waiting.startswith(
        "the drain is held up by EtcdQuorumOperator of clusteroperator/etcd, Backup of alice; when"
    )
    assert REMOVE in waiting
    assert f"`hostler hook remove m-1 Backup --kind preDrain --owner alice --cluster {machines.prefix}`" in waiting
    assert held.status.last_operation.type == OperationType.DRAIN

    async def told_on_the_node() -> bool:
        return "PreDrainHook" in [i.story[-1].reason for i in machines.stubs.called("tell_node")]

    await eventually(told_on_the_node, what="an Event on the Node, where its owner looks")
    left = await tell(handle, a_removal())
    gone = "preDrain hook EtcdQuorumOperator of clusteroperator/etcd"
    assert left == f"{gone} is removed; the drain is still held up by Backup of alice"
    one = await eventually(lambda: state(handle), lambda s: REMOVE not in s.status.waiting_for.message, "one hook less")
    assert one.status.waiting_for.reason == "PreDrainHook"
    assert conditions(one)["Drainable"].message == "preDrain hooks hold up the drain: Backup of alice"
    assert calls(machines) == []
    await handle.signal("hook", a_removal("Backup"))
    result = await handle.result()
    assert calls(machines) == ["drain_node", "delete_machine", "forget_machine"]
    happened = [h.reason for h in result.journal]
    assert happened.count("PreDrainHook") == 1
    story = [h.message for h in result.journal if h.reason in ("HookAdded", "HookRemoved")]
    assert story == [
        "preDrain hook Backup of alice was added by ops@desk: backup runs",
        "preDrain hook EtcdQuorumOperator of clusteroperator/etcd was removed by ops@desk",
        "preDrain hook Backup of alice was removed by ops@desk",
    ]


async def test_a_drain_that_was_held_has_its_whole_time(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Otherwise hooks of three hours would mean that pods are killed without an eviction (I12)."""
    handle = await running(machines, HELD, drain_timeout=timedelta(hours=2))
    await delete(handle)
    await reason(handle, "PreDrainHook")
    await temporal.fast_forward(handle, timedelta(hours=3))
    held = await state(handle)
    assert held.status.waiting_for.reason == "PreDrainHook"
    machines.stubs.then("drain_node", not_yet("0 of 1 pods gone", timedelta(days=1)))
    await tell(handle, a_removal())
    draining = await reason(handle, "Draining")
    (gone,) = (h.time for h in draining.journal if h.reason == "HookRemoved")
    assert draining.deletion.time + timedelta(hours=3) <= gone
    assert gone <= draining.drain_began < gone + timedelta(minutes=1)
    assert draining.status.deadlines["drain"] == draining.drain_began + timedelta(hours=2)
    await machines.stubs.until_called("drain_node")
    assert [i.force for i in machines.stubs.called("drain_node")] == [False]


async def test_force_does_not_skip_hooks(machines: Machines) -> None:
    handle = await running(machines, LifecycleHooks(pre_drain=HELD.pre_drain, pre_terminate=KEPT.pre_terminate))
    await delete(handle)
    await reason(handle, "PreDrainHook")
    await delete(handle, force=True)
    held = await eventually(
        lambda: state(handle), lambda s: "force does not skip hooks" in s.status.waiting_for.message, "that word"
    )
    assert held.status.waiting_for.reason == "PreDrainHook"
    assert calls(machines) == []
    await tell(handle, a_removal())
    await reason(handle, "PreTerminateHook")
    assert [i.force for i in machines.stubs.called("drain_node")] == [True]
    assert calls(machines) == ["drain_node"]
    await tell(handle, a_removal("example.com/Backup"))
    await handle.result()


async def test_it_holds_the_drain_of_a_machine_that_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    handle = await failed_of_health(temporal, machines, lifecycle_hooks=HELD)
    held = await reason(handle, "PreDrainHook")
    assert held.status.phase == Phase.FAILED
    assert not held.drained
    assert calls(machines) == []
    await tell(handle, a_removal())
    seen = await reason(handle, "HealthTimeout")
    assert seen.drained
    assert calls(machines) == ["drain_node"]
    assert seen.status.last_operation.type == OperationType.HEALTH_CHECK
    assert "Drainable" not in conditions(seen)


async def test_a_deletion_of_a_machine_that_failed_is_held_too(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await failed_of_health(temporal, machines, lifecycle_hooks=HELD)
    await reason(handle, "PreDrainHook")
    await delete(handle)
    held = await phase(handle, Phase.TERMINATING)  # at once: it shows that it is leaving
    assert held.status.waiting_for.reason == "PreDrainHook"
    assert calls(machines) == []
    await tell(handle, a_removal())
    await handle.result()
    assert calls(machines) == ["drain_node", "delete_machine", "forget_machine"]


async def test_a_machine_without_a_node_has_no_drain_to_hold(machines: Machines) -> None:
    """OpenShift: `Node drain skipped`."""
    both = LifecycleHooks(pre_drain=HELD.pre_drain, pre_terminate=KEPT.pre_terminate)
    started = await machines.start(machines.new_state("m-1", lifecycle_hooks=both))
    await reason(started, "NodeNotSeen")
    await delete(started)
    held = await reason(started, "PreTerminateHook")
    assert "PreDrainHook" not in [h.reason for h in held.journal]
    assert calls(machines) == []
    await tell(started, a_removal("example.com/Backup"))
    await started.result()
    assert calls(machines) == ["delete_machine", "forget_machine"]


async def test_a_drain_that_has_begun_is_not_held_any_more(temporal: WorkflowEnvironment, machines: Machines) -> None:
    def blocked(input: DrainInput) -> DrainOutput:
        raise not_yet("0 of 1 pods gone", timedelta(days=1))

    machines.stubs.then("drain_node", *[blocked] * 9)
    handle = await failed_of_health(temporal, machines)
    await reason(handle, "Draining")
    assert "has already begun and is not held up; later drains are" in await tell(handle, a_hook())
    assert (await state(handle)).status.waiting_for.reason == "Draining"


# -- before the deletion ----------------------------------------------------------------------------------------------


async def test_pre_terminate_hooks_hold_the_vm_after_the_drain(machines: Machines) -> None:
    handle = await running(machines, KEPT)
    assert set(conditions(await state(handle))) == {"Terminable"}
    await delete(handle)
    held = await reason(handle, "PreTerminateHook")
    assert calls(machines) == ["drain_node"]
    assert held.status.last_operation.type == OperationType.DELETE
    assert held.status.waiting_for.message == (
        "the deletion of the VM is held up by example.com/Backup of alice; when their work is done: `hostler hook "
        f"remove m-1 example.com/Backup --kind preTerminate --owner alice --cluster {machines.prefix}`"
    )
    await tell(handle, a_removal("example.com/Backup", owner="alice"))
    await handle.result()
    # It may have been held for long: its Node is looked at once more.
    assert calls(machines) == ["drain_node", "drain_node", "delete_machine", "forget_machine"]
    assert [drain.again for drain in machines.stubs.called("drain_node")] == [False, True]


async def test_a_new_life_has_the_hooks_of_its_spec_again(machines: Machines) -> None:
    handle = await running(machines, KEPT)
    before = await state(handle)
    await tell(handle, a_hook("Once", kind=TERMINATE))
    await handle.execute_update(MachineWorkflow.recreate, RecreateIntent(id="r"))
    await reason(handle, "PreTerminateHook")
    for name in ("example.com/Backup", "Once"):
        await tell(handle, a_removal(name))
    fresh = await eventually(lambda: state(handle), lambda s: s.uid not in ("", before.uid), "another life")
    assert [h.name for h in fresh.hooks.effective(fresh.spec.lifecycle_hooks, TERMINATE)] == ["example.com/Backup"]
    assert set(conditions(fresh)) == {"Terminable"}


# -- over runs --------------------------------------------------------------------------------------------------------


async def test_a_hold_goes_on_in_a_new_run(machines: Machines) -> None:
    handle = await running(machines, HELD)
    await delete(handle)
    await reason(handle, "PreDrainHook")
    run = (await handle.describe()).run_id
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="r"))

    async def another_run() -> bool:
        return (await handle.describe()).run_id != run

    await eventually(another_run, what="a new run")
    held = await reason(handle, "PreDrainHook")
    assert [h.reason for h in held.journal].count("PreDrainHook") == 1
    assert calls(machines) == []
    await tell(handle, a_removal())
    await handle.result()
    assert calls(machines) == ["drain_node", "delete_machine", "forget_machine"]


async def test_the_last_hook_may_go_between_two_runs(machines: Machines) -> None:
    """The new run finds no hook, and must not mistake the drain for one that began hours ago."""
    handle = await running(machines, HELD, drain_timeout=timedelta(minutes=30))
    await delete(handle)
    await reason(handle, "PreDrainHook")
    between = await state(handle)
    await handle.terminate("its state goes on below")
    assert between.deletion is not None
    between.deletion = between.deletion.model_copy(update={"time": between.deletion.time - timedelta(hours=1)})
    between.spec.lifecycle_hooks = LifecycleHooks()
    machines.stubs.then("drain_node", lambda i: DrainOutput(pods=7))
    after = await machines.start(between)
    result = await after.result()
    assert [i.force for i in machines.stubs.called("drain_node")] == [False]
    assert "DrainForced" not in [h.reason for h in result.journal]
    assert "pods evicted: 7" in next(h.message for h in result.journal if h.reason == "Drained")


# -- intents ----------------------------------------------------------------------------------------------------------


async def test_an_intent_by_update_and_by_signal_counts_once(machines: Machines) -> None:
    handle = await running(machines)
    added, removed = a_hook(), a_removal("Backup")
    first = await tell(handle, added)
    await handle.signal("hook", added)
    assert await handle.execute_update("hook", added, id="again", result_type=Answer) == Answer(message=first)
    assert "unchanged" in await tell(handle, a_hook())  # another one of the same meaning
    assert "is removed; the drain is no longer held up" in await tell(handle, removed)
    await handle.signal("hook", removed)  # it is not refused as a hook that does not exist
    assert "Refused" not in [h.reason for h in (await state(handle)).journal]
    await handle.signal("hook", a_removal("Other"))
    seen = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "Refused", "a refusal")
    assert [h.reason for h in seen.journal if "Hook" in h.reason] == ["HookAdded", "HookRemoved"]
    assert seen.journal[-1].message == "machine m-1 has no hook 'Other'; it has none at all"


async def test_a_refused_intent_leaves_no_history_by_update(machines: Machines) -> None:
    handle = await running(machines, HELD)
    before = len((await handle.fetch_history()).events)
    for intent, words in (
        (a_hook("no name"), "is not a hook's name"),
        (a_hook(ETCD.name), "owned by clusteroperator/etcd"),
        (a_removal(owner="alice"), "not to alice"),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await tell(handle, intent)
        assert words in str(refused.value.cause)
    assert len((await handle.fetch_history()).events) == before


async def test_after_the_deletion_hooks_are_only_removed(machines: Machines) -> None:
    handle = await running(machines, HELD)
    await delete(handle)
    await reason(handle, "PreDrainHook")
    for kind in HookKind:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await tell(handle, a_hook(kind=kind))
        assert "its hooks can only be removed now" in str(refused.value.cause)
    await tell(handle, a_removal())
    await handle.result()


async def test_plain_json_is_enough(machines: Machines) -> None:
    """JSON as in `temporal workflow signal --name hook --input …`."""
    handle = await running(machines)
    await handle.signal("hook", {"name": "Backup", "owner": "alice"})
    seen = await eventually(lambda: state(handle), lambda s: s.hooks.added, "the hook")
    assert conditions(seen)["Drainable"].message == "preDrain hooks hold up the drain: Backup of alice"
    await handle.signal("hook", {"name": "Backup", "remove": True})
    await eventually(lambda: state(handle), lambda s: not s.hooks.added, "no hook")


# -- the spec ---------------------------------------------------------------------------------------------------------


async def apply(handle: Handle, hooks: LifecycleHooks) -> MachineState:
    seen = await state(handle)
    spec = seen.spec.model_copy(update={"lifecycle_hooks": hooks})
    intent = ApplyIntent(
        id=uuid.uuid4().hex, spec=spec, machine_class=seen.machine_class, labels={"n": uuid.uuid4().hex}
    )
    await handle.execute_update(MachineWorkflow.apply, intent)
    return await state(handle)


async def test_a_spec_that_is_applied_again_undoes_nothing(machines: Machines) -> None:
    handle = await running(machines, HELD)
    await tell(handle, a_removal())
    await tell(handle, a_hook(kind=TERMINATE))
    seen = await apply(handle, HELD)
    assert seen.spec.lifecycle_hooks == HELD
    assert set(conditions(seen)) == {"Terminable"}
    gone = await apply(handle, LifecycleHooks())
    assert (gone.hooks.removed, set(conditions(gone))) == ([], {"Terminable"})
    again = await apply(handle, HELD)  # it is a new wish
    assert set(conditions(again)) == {"Drainable", "Terminable"}


async def test_a_spec_without_the_hook_lets_a_failed_machine_go_on(
    temporal: WorkflowEnvironment, machines: Machines
) -> None:
    handle = await failed_of_health(temporal, machines, lifecycle_hooks=HELD)
    await reason(handle, "PreDrainHook")
    assert calls(machines) == []
    await apply(handle, LifecycleHooks())
    await reason(handle, "HealthTimeout")
    assert calls(machines) == ["drain_node"]


async def test_a_pools_machine_has_those_of_the_template(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """It has the template's hooks. A changed template reaches it where it is, and frees one that Failed; until then its
    pool hears of no drain."""
    async with listening(machines) as pool:
        handle = await pool.running(lifecycle_hooks=HELD, health_timeout=TEN)
        await sick(machines, handle)
        machines.stubs.then("look_at_node", *[looked(**SICK)] * 3)
        await to_first_look(temporal, handle)
        await temporal.fast_forward(handle, timedelta(seconds=62))
        await reason(handle, "RepairPermit")
        await pool.permits(handle)
        held = await reason(handle, "PreDrainHook")
        failed = await pool.told(lambda r: r.phase is Phase.FAILED, "a report that it has Failed")
        assert not failed.drained
        spec = held.spec.model_copy(update={"lifecycle_hooks": LifecycleHooks()}).model_dump(by_alias=True)
        template = MachineTemplate.model_validate({"spec": spec | {"providerID": None}})
        await handle.signal(MachineWorkflow.template_changed, TemplateNews(generation=2, template=template))
        await pool.told(lambda r: r.drained, "a report that it is drained")
        assert calls(machines) == ["drain_node"]


async def test_without_hooks_nothing_is_different(machines: Machines) -> None:
    handle = await running(machines)
    assert conditions(await state(handle)) == {}
    drained = machines.stubs.holds["drain_node"] = asyncio.Event()
    await delete(handle)
    await reason(handle, "Draining")
    drained.set()
    result = await handle.result()
    assert not {"PreDrainHook", "PreTerminateHook", "HookPresent"} & {h.reason for h in result.journal}
    assert calls(machines) == ["drain_node", "delete_machine", "forget_machine"]

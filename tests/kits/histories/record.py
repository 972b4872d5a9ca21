"""Records the histories of every flow, for the replay test: `make histories`, or `python -m histories.record` with some
names.

Run it when a workflow gets a new flow, or a change that a patch marker guards: then the old recordings stay and a new
one is added beside them. What names the recording computer is taken out.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from faults.control_plane_flows import LiveControlPlane
from lifekit import CLUSTER, DEADLINE, Stack, end_running, eventually, examples, new_stack
from machine.classes import LiveClass, refuse, relent, start_by_hand, tagged
from machine.lives import knobs
from machine_configs.cases import config_node
from machine_configs.workflows import PlayedOwner, new_configs, old_nodes
from paths import TESTS
from pools.lives import Pool, killing, machine_handle, pool_class, pool_spec
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from resources.attributes import ALL, REASON
from resources.calls.machine_config import NodesNews, SyncOutput
from resources.converter import data_converter
from resources.errors import ErrorClass
from resources.fleet.lending import Borrowing
from resources.intents import Intent
from resources.machine.facts import VmFacts
from resources.machine.hooks import HookIntent
from resources.machine.intents import RecreateIntent
from resources.machine.manifest import HookKind
from resources.machine.preservation import ExtendIntent, PreserveIntent, ReleaseIntent
from resources.machine.state import ApplyIntent, Phase
from resources.names import (
    PRESERVE_ANNOTATION,
    UPDATE_CONCURRENCY_ANNOTATION,
    UPDATES_AFTER_ANNOTATION,
    class_id,
    cluster_id,
    config_rollout_id,
    machine_id,
    pool_id,
    rollout_id,
)
from resources.orders import in_ms
from resources.owner import CONTROL_PLANE, Owner
from resources.pool.intents import PoolIntent, ResumeIntent, VerdictIntent
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule
from starter.local.stack import KNOBS, dynamic_config
from workflows.control_plane import ControlPlaneWorkflow
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow
from workflows.pool import MachineDeploymentWorkflow

HISTORIES = TESTS / "histories"
IDENTITY = "recorder"
HOUR = timedelta(hours=1)


async def a_whole_life(stack: Stack) -> None:
    await stack.create()
    await stack.phase(Phase.RUNNING)
    await stack.delete()


async def a_hard_life(stack: Stack) -> None:
    """The waits and ways back that a machine has: capacity, a failed post-start update, Unknown, a forced drain."""
    frame, kubelets = stack.simulator.simulator.frame, stack.simulator.simulator.kubelets
    faults = [
        FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity"),
        FaultRule(service="ec2", operation="ModifyInstanceAttribute", code="UnauthorizedOperation"),
    ]
    stack.simulator.call(lambda: frame.faults.extend(faults))
    await stack.create(drain_timeout=timedelta(seconds=1))
    await stack.phase(Phase.RUNNING)
    for unready, phase in ((True, Phase.UNKNOWN), (False, Phase.RUNNING)):
        rule = KnobRule.model_validate({"match": "m-1*", "knobs": {"unready": unready}})
        stack.simulator.call(lambda rule=rule: kubelets.set_knobs([rule]))
        await stack.phase(phase)
    await stack.started["m-1"].cancel()
    await stack.delete(force=True)


async def a_failed_life(stack: Stack) -> None:
    """The node stays sick: two looks, Failed, drained in Failed; then the machine is made again."""
    await stack.create(health_timeout=timedelta(seconds=4))
    uid = (await stack.phase(Phase.RUNNING)).uid
    rule = KnobRule.model_validate({"match": "m-1*", "knobs": {"unready": True}})
    stack.simulator.call(lambda: stack.simulator.simulator.kubelets.set_knobs([rule]))
    await stack.phase(Phase.FAILED)
    await stack.reason("HealthTimeout")
    stack.simulator.call(lambda: stack.simulator.simulator.kubelets.set_knobs([]))
    await stack.started["m-1"].execute_update(MachineWorkflow.recreate, RecreateIntent(id="r"), id="r")
    await eventually(stack.state, lambda s: s.uid not in ("", uid) and s.status.phase == Phase.RUNNING)
    await stack.delete()


async def a_hot_life(stack: Stack) -> None:
    """A class and its machine: a hot update; one that fails half-way, and goes on in a new run of both; the class is
    set back after another such failure; a deletion is refused; and both are gone."""
    of = LiveClass(stack, **tagged({"team": "a", "old": "1"}))
    await of.start()
    await start_by_hand(stack, "m-1", of, {ErrorClass.AUTH: timedelta(seconds=3), ErrorClass.INVALID: HOUR})
    uid = (await stack.phase(Phase.RUNNING)).uid
    await of.known("m-1")
    await of.apply(**tagged({"team": "b"}, hops=3))
    await of.updated(2)
    rule = refuse(stack, uid, "UnauthorizedOperation")
    await of.apply(**tagged({"team": "c"}))
    await in_trouble(stack)
    await renewed(stack.started["m-1"], MachineWorkflow.renew_by_update)
    await renewed(of.handle, MachineClassWorkflow.renew_by_update)
    relent(stack, rule)
    await of.updated(3)
    rule = refuse(stack, uid, "TagLimitExceeded")
    await of.apply(**tagged({"team": "d"}))
    await in_trouble(stack)
    relent(stack, rule)
    await of.apply(**tagged({"team": "c"}))
    await of.updated(5)
    assert "is used by 1 machine (m-1)" in await of.refusal()
    await stack.delete()
    await of.delete()
    await of.handle.result()


async def in_trouble(stack: Stack) -> None:
    await eventually(stack.state, lambda s: s.status.update_trouble is not None, "the failure")


async def renewed(handle: WorkflowHandle[Any, Any], renew: Any) -> None:
    """Waits until it goes on in a new run."""
    former = (await handle.describe()).run_id
    await handle.execute_update(renew, Intent(id="renew"), id="renew")
    await eventually(handle.describe, lambda d: d.run_id != former, f"a new run of {handle.id}")


async def a_pools_life(stack: Stack) -> dict[str, str]:
    """A class, and two machines made from it. An edit of the class rolls them, with a canary; a label comes to them in
    place; one is repaired, and is the machine that is recorded: born in a rollout, told a template, asked for a permit,
    replaced. The pool goes on in a new run, shrinks and is deleted."""
    pool, of = Pool(stack), LiveClass(stack, **tagged({"team": "a"}))
    await of.start()
    await pool.start(pool_spec(2, rolling={"pauseAfter": 1}), of.wanted)
    await pool.rolled_out(2)
    await eventually(of.state, lambda s: Owner(name=pool.name).user in s.users, "the pool among the users")
    await of.apply(**tagged({"team": "a"}), ami=OTHER_IMAGE)
    await pool.waits("Canary")
    await pool.ask("resume")
    await pool.rolled_out(2, revision=2)
    template = pool.spec.template
    labels = {**template.metadata.labels, "rack": "b"}
    metadata = template.metadata.model_copy(update={"labels": labels})
    template = template.model_copy(update={"metadata": metadata})
    await pool.apply(pool.spec.model_copy(update={"template": template}))
    await eventually(pool.machines, lambda found: all(m.labels.get("rack") for m in found.values()), "the label")
    ill = min(await pool.machines())
    knobs(stack, f"{ill}*", unready=True)
    await eventually(pool.state, lambda s: ill not in s.members, "the repair")
    await pool.rolled_out(2)
    await renewed(pool.handle, MachineDeploymentWorkflow.renew_by_update)
    await pool.scale(1)
    await pool.rolled_out(1)
    await pool.delete()
    await of.delete()
    await of.handle.result()
    await end_running(stack)
    return {"machine": machine_handle(stack, ill).id}


async def a_preserved_life(stack: Stack) -> None:
    """The machine is kept on request, for longer, and released. It is then wanted on the Node before it fails under a
    hook; it is kept, over a new run, and well again; it is ill once more and kept until its end, when another hook
    holds its VM."""
    await stack.create(health_timeout=timedelta(seconds=3))
    node = (await stack.phase(Phase.RUNNING)).status.node_name
    machine = stack.started["m-1"]

    async def ask(name: str, intent: Intent) -> None:
        await machine.execute_update(name, intent)

    async def shows(phase: str) -> None:
        await eventually(stack.state, lambda s: s.status.shown_phase == phase, phase)

    await ask("preserve", PreserveIntent(id="p", requested_by="somebody", reason="a look", lasts=HOUR))
    await shows("Running:Preserved")
    await ask("extend", ExtendIntent(id="e", lasts=2 * HOUR))
    await ask("release", ReleaseIntent(id="r"))
    await shows("Running")
    stack.kubectl("annotate", "node", str(node), f"{PRESERVE_ANNOTATION}=when-failed")
    held = HookIntent(id="h", name="Evacuate", owner="storage")
    await ask("hook", held)
    knobs(stack, "m-1*", unready=True)
    await stack.reason("PreDrainHook")
    await ask("hook", held.model_copy(update={"id": "h2", "remove": True}))
    await shows("Failed:Preserved")
    await eventually(stack.state, lambda s: s.status.preserve.protected, "the Node is protected")
    await renewed(machine, MachineWorkflow.renew_by_update)
    knobs(stack, "m-1*", unready=False)
    await shows("Running:Preserved")
    knobs(stack, "m-1*", unready=True)
    await shows("Failed:Preserved")
    held = HookIntent(id="h3", name="Dump", owner="analysis", kind=HookKind.PRE_TERMINATE)
    await ask("hook", held)
    await ask("extend", ExtendIntent(id="e2", lasts=timedelta(seconds=2)))
    await stack.reason("PreTerminateHook")
    await ask("hook", held.model_copy(update={"id": "h4", "remove": True}))
    await asyncio.wait_for(machine.result(), DEADLINE)


async def a_pool_with_a_slot(stack: Stack) -> dict[str, str]:
    """Two of three machines fail: one is kept in the only slot, and is the machine that is recorded; the other one is
    replaced. Then the slot is taken, over a new run of the pool."""
    pool = Pool(stack)
    await pool.start(pool_spec(3, autoPreserveFailedMax=1))
    await pool.rolled_out(3)
    ill = sorted((await pool.state()).members)[:2]
    for name in ill:
        knobs(stack, name, unready=True)
    await eventually(pool.state, lambda s: len(s.members.keys() & set(ill)) == 1, "one of them is replaced")
    await pool.when(lambda s: s.available == 2 and s.preserved == 1, "the other one is kept")
    (kept,) = (await pool.state()).members.keys() & set(ill)
    await renewed(pool.handle, MachineDeploymentWorkflow.renew_by_update)
    await pool.apply(pool_spec(3))
    await eventually(pool.state, lambda s: kept not in s.members, "its slot was taken")
    await pool.rolled_out(3)
    await pool.delete()
    await end_running(stack)
    return {"machine": machine_handle(stack, kept).id}


async def a_gated_pool(stack: Stack) -> None:
    """A tag waits for a window that is hours away, which the class tells the pool; an image waits for an approval, and
    meanwhile a second machine is made of the first revision, over a new run. Then a person approves, and does not wait
    for the window."""
    pool, of = Pool(stack), LiveClass(stack, **tagged({"team": "a"}))
    await of.start()
    begin = datetime.now(UTC) + 6 * HOUR
    window = {"begin": f"{begin:%H:%M}", "end": f"{begin + HOUR:%H:%M}"}
    gates = {"maintenance": {"windows": [window]}, "approval": {"required": True, "timeout": "1h"}}
    await pool.start(pool_spec(1, **gates), of.wanted)
    await pool.rolled_out(1)
    await eventually(of.state, lambda s: len(s.users) == 2, "the pool and its machine")
    await of.apply(**tagged({"team": "b"}))
    await eventually(pool.state, lambda s: s.held is not None and s.held.machines == 1, "its machine waits")
    await of.apply(**tagged({"team": "b"}), ami=OTHER_IMAGE)
    await pool.waits("Approval")
    await pool.scale(2)
    await pool.when(lambda s: s.available == 2, "another one")
    await renewed(pool.handle, MachineDeploymentWorkflow.renew_by_update)
    await pool.ask("approve", VerdictIntent(requested_by="somebody"))
    await pool.ask("resume", ResumeIntent(now=True))
    await pool.rolled_out(2, revision=2)
    await pool.delete()
    await of.delete()
    await of.handle.result()
    await end_running(stack)


Flow = Callable[[Stack], Awaitable[dict[str, str] | None]]
"""Names the workflows to record, where they are others than IDS."""
OTHER_IMAGE = "ami-0a1b2c3d4e5f60002"


async def a_life_that_is_cut_short(stack: Stack) -> None:
    """Somebody terminates its VM: what the cloud says is weighed by looks at the Lease, and believed; the machine is
    drained without waiting for a kubelet that no longer exists, and deleted."""
    await stack.create(health_timeout=timedelta(seconds=5))
    provider_id = str((await stack.phase(Phase.RUNNING)).status.provider_id)
    await asyncio.to_thread(stack.ec2().terminate_instances, InstanceIds=[provider_id.rsplit("/", 1)[-1]])
    await stack.phase(Phase.FAILED)
    await stack.reason("HealthTimeout")
    await stack.delete()


async def a_life_that_hears_nonsense(stack: Stack) -> None:
    """It hears news of the future and a deletion with a word too many, and takes neither. Its Node falls ill, and then
    somebody terminates its VM: that is the reason from then on."""
    handle = await stack.create()
    node = (await stack.phase(Phase.RUNNING)).node
    assert node is not None
    await handle.signal("observe", node.model_copy(update={"epoch": 2**53}))
    await handle.signal("delete", {"dryRun": True})
    await eventually(stack.state, lambda s: [h.reason for h in s.journal].count("Refused") == 2, "both refused")
    knobs(stack, "m-1", unready=True)
    ill = await stack.phase(Phase.UNKNOWN)
    vm = str(ill.status.provider_id).rsplit("/", 1)[-1]
    await asyncio.to_thread(stack.ec2().terminate_instances, InstanceIds=[vm])
    await stack.reason("VMGone")
    await stack.delete()


async def a_lost_life(stack: Stack) -> None:
    """Its VM ends at once, and its Node falls ill between the two looks."""
    await stack.create()
    running = await stack.phase(Phase.RUNNING)
    vm = str(running.status.provider_id).rsplit("/", 1)[-1]
    stack.simulator.call(lambda: stack.cloud.kill(vm))
    await stack.reason("VMGone")
    await stack.delete()


async def an_overtaken_life(stack: Stack) -> None:
    """Its VM ends while the cloud is slow: the look at it is still on its way when the watch tells that the Node has
    fallen ill."""
    handle = await stack.create()
    vm = str((await stack.phase(Phase.RUNNING)).status.provider_id)
    slow = FaultRule(service="ec2", operation="DescribeInstances", delay=2.5, times=None)
    frame = stack.simulator.simulator.frame
    stack.simulator.call(lambda: frame.faults.append(slow))
    stack.simulator.call(lambda: stack.cloud.kill(vm.rsplit("/", 1)[-1]))
    news = VmFacts(epoch=in_ms(datetime.now(UTC)), seq=1, provider_id=vm, state="gone")
    await handle.signal(MachineWorkflow.observe_vm, news)
    await stack.reason("VMGone")
    stack.simulator.call(lambda: frame.faults.remove(slow))
    await stack.delete()


async def an_asked_life(stack: Stack) -> None:
    """The annotation of its manifest asks to preserve it, and is withdrawn; a manifest with a label that no API server
    would take is refused."""
    handle = await stack.create()
    state = await stack.phase(Phase.RUNNING)
    assert state.machine_class is not None

    def wish(number: int, labels: dict[str, str], annotations: dict[str, str]) -> ApplyIntent:
        given = {"labels": labels, "annotations": annotations}
        return ApplyIntent(id=f"a{number}", spec=state.spec, machine_class=state.machine_class, **given)

    await handle.execute_update(MachineWorkflow.apply, wish(1, {}, {PRESERVE_ANNOTATION: "now"}), id="a1")
    await eventually(stack.state, lambda s: s.status.preserve.expiry_time is not None)
    await handle.execute_update(MachineWorkflow.apply, wish(2, {"team": "a"}, {}), id="a2")
    await eventually(stack.state, lambda s: s.status.preserve.expiry_time is None)
    await handle.signal("apply", wish(3, {"a b": ""}, {}))
    await eventually(stack.state, lambda s: any(h.reason == "Refused" for h in s.journal))
    await stack.delete()


async def a_late_life(stack: Stack) -> None:
    """There is no capacity until its creation deadline."""
    none = FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity", times=None)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(none))
    await stack.create(creation_timeout=timedelta(seconds=4))
    await stack.phase(Phase.FAILED)
    await stack.delete()


async def an_outage_life(stack: Stack) -> None:
    """There is no capacity; then its API server does not answer, and its creation deadline stands still; then the cloud
    only fails, until it is Failed for want of capacity."""
    frame = stack.simulator.simulator.frame
    full = FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity")
    away = FaultRule(service="kubernetes", match="bootstrap-token", code="InternalError", times=None)
    ill = FaultRule(service="ec2", operation="RunInstances", code="InternalError", times=None)
    stack.simulator.call(lambda: frame.faults.append(full))
    await stack.create(creation_timeout=timedelta(seconds=20))
    await stack.reason("OutOfCapacity")
    stack.simulator.call(lambda: frame.faults.append(away))
    await eventually(stack.state, lambda s: s.silent_since is not None, "the standstill")
    stack.simulator.call(lambda: (frame.faults.remove(away), frame.faults.append(ill)))
    await stack.phase(Phase.FAILED)
    stack.simulator.call(lambda: frame.faults.remove(ill))
    await stack.delete()


async def a_silent_cloud(stack: Stack) -> None:
    """The cloud does not answer for a while, which the cluster shows."""
    frame = stack.simulator.simulator.frame
    cluster = stack.client.get_workflow_handle(cluster_id(CLUSTER))
    silent = FaultRule(service="ec2", operation="DescribeInstances", code="InternalError", times=None)

    async def reason() -> str | None:
        return (await cluster.describe()).typed_search_attributes.get(REASON)

    await stack.create()
    await stack.phase(Phase.RUNNING)
    stack.simulator.call(lambda: frame.faults.append(silent))
    await eventually(reason, lambda r: r == "CloudUnreachable", "the reason")
    stack.simulator.call(lambda: frame.faults.remove(silent))
    await eventually(reason, lambda r: r is None, "the cloud")
    await stack.delete()


async def a_patient_life(stack: Stack) -> None:
    """Its node does not join; its creation deadline is moved while somebody watches the VM."""
    knobs(stack, "m-1", never_joins=True)
    handle = await stack.create(creation_timeout=timedelta(minutes=1))
    state = await stack.reason("NodeNotSeen")
    assert state.machine_class is not None

    async def watches() -> int:
        events = (await handle.fetch_history()).events
        scheduled = (e.activity_task_scheduled_event_attributes.activity_type.name for e in events)
        return sum(name == "watch_machine" for name in scheduled)

    await eventually(watches)
    patient = state.spec.model_copy(update={"creation_timeout": timedelta(minutes=2)})
    apply = ApplyIntent(id="a1", spec=patient, machine_class=state.machine_class)
    await handle.execute_update(MachineWorkflow.apply, apply, id="a1")
    await eventually(watches, lambda count: count == 2)
    await stack.delete()


async def a_refused_pool(stack: Stack) -> None:
    """There is no capacity for its machines at first, and that is what it waits for until they have their VMs."""
    none = FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity", times=3)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(none))
    pool = Pool(stack)
    await pool.start(pool_spec(2))
    await pool.waits("OutOfCapacity")
    await pool.rolled_out(2)
    await pool.delete()
    await end_running(stack)


async def a_braked_pool(stack: Stack) -> dict[str, str]:
    """Each of its VMs is terminated at once, until it backs off. A person lets it go on; then one more is terminated,
    that of a running machine, and is replaced as a repair."""
    pool = Pool(stack)
    await pool.start(pool_spec(2))
    async with killing(pool):
        await pool.waits("MachinesNeverJoin")
    await pool.ask("resume")
    await pool.rolled_out(2)
    name, state = min((await pool.machines()).items())
    vm = str(state.status.provider_id).rsplit("/", 1)[-1]
    await asyncio.to_thread(stack.ec2().terminate_instances, InstanceIds=[vm])
    await eventually(pool.state, lambda s: name not in s.members, "the repair")
    await pool.rolled_out(2)
    await pool.delete()
    await end_running(stack)
    return {"machine": machine_handle(stack, name).id}


async def an_unwanted_life(stack: Stack) -> None:
    """The machine is deleted while its create call is in flight, and is Terminating at once."""
    frame = stack.simulator.simulator.frame
    late = FaultRule(service="ec2", operation="RunInstances", delay=1.0)
    stack.simulator.call(lambda: frame.faults.append(late))
    await stack.create()
    await stack.reason("CreatingVM")
    await stack.delete()


async def a_contradicted_pool(stack: Stack) -> dict[str, str]:
    """The cloud does not find the VM of a Ready Node, and the pool says so, until it finds it again."""
    pool = Pool(stack)
    await pool.start(pool_spec(1))
    await pool.rolled_out(1)
    ((name, state),) = (await pool.machines()).items()
    vm = str(state.status.provider_id)
    lie = FaultRule(
        service="ec2",
        operation="DescribeInstances",
        match=vm.rsplit("/", 1)[-1],
        code="InvalidInstanceID.NotFound",
        times=None,
    )
    frame = stack.simulator.simulator.frame
    stack.simulator.call(lambda: frame.faults.append(lie))
    news = VmFacts(epoch=in_ms(datetime.now(UTC)), seq=1, provider_id=vm, state="gone")
    await machine_handle(stack, name).signal(MachineWorkflow.observe_vm, news)
    await pool.waits("VMContradiction")
    stack.simulator.call(lambda: frame.faults.remove(lie))
    await eventually(pool.state, lambda s: not s.waits, "it is found again")
    await pool.delete()
    await end_running(stack)
    return {"machine": machine_handle(stack, name).id}


async def a_control_planes_life(stack: Stack) -> dict[str, str]:
    """Three machines made by hand are taken over. An edit of their class replaces one after the other; the set goes on
    in a new run; a person deletes one, which is held until its replacement is ready. The set is deleted, and lets its
    machines go: the one recorded is the first one's replacement, which dies after that."""
    cp = LiveControlPlane(stack, "cp")
    await cp.by_hand()
    await cp.start()
    await cp.complete()
    await cp.of.apply(machineType="m5.xlarge")
    summary = await cp.complete(*cp.hands)
    first, second = (summary.indexes[index].hosts[0].name for index in (0, 1))
    await renewed(cp.handle, ControlPlaneWorkflow.renew_by_update)
    await cp.delete(second)
    await cp.complete(second)
    await cp.end()
    await end_running(stack)
    return {"machine": machine_handle(stack, first).id}


async def a_machine_configs_life(stack: Stack) -> dict[str, str]:
    """A cluster's machine configs and one pool, whose nodes are in memory: a config that one node cannot apply, a new
    run in the middle, the way back, a pause, one more config, and the end of all."""
    async with new_configs(stack.client) as c, c.worker():
        c.degrades = {"n1"}
        c.put(*old_nodes(3))
        c.pool("v1", maxUnavailable=1)
        c.synced = SyncOutput(pools=[c.brief(target="v1")], written=["rendered v1 for pool worker"])
        await c.start_configs()
        await eventually(c.configs_state, lambda s: s.living, "its pool")
        await c.waits("ConfigNodesDegraded")
        for handle in (c.handle, c.configs):
            former = (await handle.describe()).run_id
            await handle.signal("renew", Intent(id="r"))
            await eventually(handle.describe, lambda d, run=former: d.run_id != run, "a new run")
        await c.target("v0", maxUnavailable=1)
        await c.updated("v0")
        c.degrades = set()
        await c.target("v2", maxUnavailable=2, paused=True)
        await c.waits("ConfigPoolPaused")
        await c.target("v2", maxUnavailable=2)
        await c.updated("v2")
        await c.configs.signal("remove", Intent(id="x"))
        await c.configs.result()
        await c.handle.result()
    return {
        "machineconfigs": c.configs.id,
        "machineconfigpool": c.handle.id,
        "configrollout": config_rollout_id(c.cluster, "worker", "v1"),
    }


async def a_borrowing_pool(stack: Stack) -> dict[str, str]:
    """A config pool borrows the machines of its nodes. Their owner refuses at first, and then lends one at a time."""
    async with new_configs(stack.client) as c, c.worker(PlayedOwner):
        owner = await stack.client.start_workflow(PlayedOwner.run, id=pool_id(c.cluster, "demo"), task_queue=c.cluster)
        c.pool("v1", maxUnavailable=3)
        c.put(*(n._replace(machine=f"m-{n.name}") for n in old_nodes(3)))
        c.owners = {"m-n0": "demo", "m-n1": "demo"}
        await c.start()
        await c.waits("MachinesNotLent")
        await owner.signal("be_willing")
        await c.updated()
        await c.handle.signal("remove", Intent(id="x"))
        await c.handle.result()
    return {"machineconfigpool": c.handle.id}


async def a_life_of_strays(stack: Stack) -> dict[str, str]:
    """A node of no pool is drained for its daemon, over two runs; and a pool goes in the middle of its rollout."""
    async with new_configs(stack.client) as c, c.worker():
        c.stands = True
        c.put(*old_nodes(2), config_node("alone", "v0=v0", labels={}, desired_drain="drain-v9"))
        c.pool("v1", maxUnavailable=1)
        c.synced = SyncOutput(pools=[c.brief(target="v1")])
        await c.start_configs()
        await eventually(c.configs_state, lambda s: s.living, "its pool")
        await c.when(lambda s: s.story is not None and s.story.started, "its rollout")
        for seq, wish in enumerate(("drain-v9", "uncordon-v9")):
            c.change("alone", desired_drain=wish)
            await c.configs.signal("drains_asked", NodesNews(epoch=1, seq=seq, nodes=["alone"]))
            done = f"alone has got {wish}"
            await eventually(c.configs_state, lambda s, words=done: words in [h.message for h in s.journal], done)
            former = (await c.configs.describe()).run_id
            await c.configs.signal("renew", Intent(id=wish))
            await eventually(c.configs.describe, lambda d, run=former: d.run_id != run, "a new run")
        c.pools.clear()
        await c.nudge()
        await c.handle.result()
        await c.configs.signal("remove", Intent(id="x"))
        await c.configs.result()
    return {"machineconfigs": c.configs.id, "machineconfigpool": c.handle.id}


async def a_lending_pool(stack: Stack) -> None:
    """A machine is lent to a config pool, and comes back."""
    pool = Pool(stack)
    await pool.start(pool_spec(2))
    await pool.rolled_out(2)
    one, two = sorted(await pool.machines())
    for machine in (one, two):
        asked = Borrowing(machine=machine, borrower="worker", config="v1", time=datetime.now(UTC))
        await pool.handle.signal("lend", asked)
    await eventually(pool.state, lambda s: list(s.lent) == [one], "lent")
    await pool.handle.signal("give_back", Borrowing(machine=one, borrower="worker", time=datetime.now(UTC)))
    await eventually(pool.state, lambda s: not s.lent, "back")
    await pool.delete()
    await end_running(stack)


async def a_pool_in_turn(stack: Stack) -> None:
    """Two pools share one place: machines of the one that is recorded take a changed template after the other's."""
    first, pool = Pool(stack, "p0"), Pool(stack)
    marks = {UPDATE_CONCURRENCY_ANNOTATION: "1"}
    await first.start(pool_spec(2), annotations=marks)
    await pool.start(pool_spec(1), annotations={**marks, UPDATES_AFTER_ANNOTATION: first.name})
    for p, machines in ((first, 2), (pool, 1)):
        await p.rolled_out(machines)
    for p, machines in ((first, 2), (pool, 1)):
        spec = pool_spec(machines, machine={"drainTimeout": "7m"})
        annotations = (await p.state()).annotations
        await p.ask("apply", PoolIntent(spec=spec, machine_class=p.machine_class, annotations=annotations))
    await pool.waits("UpdatesAfterPool")
    await pool.when(lambda s: not s.template_pending, "it has its turn")
    for p in (pool, first):
        await p.delete()
    await end_running(stack)


async def a_corrected_pool(stack: Stack) -> None:
    """Another image is tried on one machine, and taken back before a person resumes anything. Then a newer template
    comes while the first machine is at work on the older one: it keeps the only place."""
    pool = Pool(stack)
    marks, rolling = {UPDATE_CONCURRENCY_ANNOTATION: "1"}, {"pauseAfter": 1}
    await pool.start(pool_spec(2, rolling=rolling), annotations=marks)
    await pool.rolled_out(2)
    first = set(await pool.machines())
    await pool.apply(machine_class=pool_class(2, ami=OTHER_IMAGE))
    await eventually(pool.machines, lambda found: len(found) > len(first), "the canary")
    await pool.apply(machine_class=pool_class(3))
    await pool.rolled_out(2, revision=3)
    assert set(await pool.machines()) == first
    for timeout in ("7m", "8m"):
        spec = pool_spec(2, machine={"drainTimeout": timeout}, rolling=rolling)
        await pool.ask("apply", PoolIntent(spec=spec, machine_class=pool.machine_class, annotations=marks))
    await pool.when(lambda s: not s.template_pending, "all have the newest")
    await pool.delete()
    await end_running(stack)


IDS = {
    "machine": machine_id(CLUSTER, "m-1"),
    "cluster": cluster_id(CLUSTER),
    "class": class_id(CLUSTER, examples().classes[0].metadata.name),
    "pool": pool_id(CLUSTER, "p1"),
    "rollout": rollout_id(CLUSTER, "p1", 2),
    "controlplane": CONTROL_PLANE.id(CLUSTER, CONTROL_PLANE.only),
}
"""What can be recorded, by kind."""
FLOWS: dict[str, tuple[Flow, tuple[str, ...]]] = {
    "whole-life": (a_whole_life, ("machine", "cluster")),
    "hard-life": (a_hard_life, ("machine", "cluster")),
    "failed-life": (a_failed_life, ("machine", "cluster")),
    "hot-life": (a_hot_life, ("machine", "class")),
    "pool-life": (a_pools_life, ("pool", "machine", "rollout", "class", "cluster")),
    "preserved-life": (a_preserved_life, ("machine", "cluster")),
    "slot": (a_pool_with_a_slot, ("pool", "machine")),
    "cut-short-life": (a_life_that_is_cut_short, ("machine", "cluster")),
    "braked-pool": (a_braked_pool, ("pool", "machine", "cluster")),
    "unwanted-life": (an_unwanted_life, ("machine",)),
    "contradicted-pool": (a_contradicted_pool, ("pool", "machine", "cluster")),
    "newer-pool-life": (a_pools_life, ("pool", "machine", "rollout", "class", "cluster")),
    "nonsense-life": (a_life_that_hears_nonsense, ("machine",)),
    "lost-life": (a_lost_life, ("machine",)),
    "overtaken-life": (an_overtaken_life, ("machine",)),
    "refused-pool": (a_refused_pool, ("pool", "cluster")),
    "told-pool": (a_refused_pool, ("pool",)),
    "asked-life": (an_asked_life, ("machine",)),
    "late-life": (a_late_life, ("machine",)),
    "outage-life": (an_outage_life, ("machine",)),
    "patient-life": (a_patient_life, ("machine",)),
    "worst-first-life": (a_control_planes_life, ("controlplane",)),
    "held-life": (a_control_planes_life, ("controlplane", "machine")),
    "configs-life": (a_machine_configs_life, ("machineconfigs", "machineconfigpool", "configrollout")),
    "strays-life": (a_life_of_strays, ("machineconfigs", "machineconfigpool")),
    "lending-pool": (a_lending_pool, ("pool",)),
    "borrowing-pool": (a_borrowing_pool, ("machineconfigpool",)),
    "owned-life": (a_control_planes_life, ("machine",)),
    "pool-in-turn": (a_pool_in_turn, ("pool",)),
    "silent-cloud": (a_silent_cloud, ("cluster",)),
    "corrected-pool": (a_corrected_pool, ("pool",)),
    "lasting-pool-life": (a_pools_life, ("pool", "machine", "rollout", "class", "cluster")),
    "gated-pool": (a_gated_pool, ("pool", "class")),
}


def anonymous(value: Any) -> Any:
    """The history without stack traces: they name the paths of the computer that recorded it."""
    if isinstance(value, dict):
        return {k: "" if k == "stackTrace" else anonymous(v) for k, v in value.items()}
    return [anonymous(v) for v in value] if isinstance(value, list) else value


async def runs(client: Client, workflow_id: str) -> AsyncIterator[WorkflowHistory]:
    """The history of each run, the first one first."""
    described = await client.get_workflow_handle(workflow_id).describe()
    run = described.raw_description.workflow_execution_info.first_run_id
    while run:
        history = await client.get_workflow_handle(workflow_id, run_id=run).fetch_history()
        yield history
        run = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def record(client: Client, name: str) -> None:
    flow, kinds = FLOWS[name]
    async with new_stack(client) as stack:
        async with stack.worker():
            ids = {**IDS, **(await flow(stack) or {})}
        for kind in kinds:
            numbers = itertools.count(1)
            async for history in runs(client, ids[kind]):
                n = next(numbers)
                file = f"{kind}-{name}" if n == 1 else f"{kind}-{name}-{n}"
                content = {"workflowId": ids[kind], **anonymous(json.loads(history.to_json()))}
                (HISTORIES / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
                print(f"{file}: {len(history.events)} events")


async def main() -> None:
    async with await WorkflowEnvironment.start_local(
        data_converter=data_converter,
        search_attributes=list(ALL),
        identity=IDENTITY,
        dev_server_existing_path=str(Path(sys.executable).parent / "temporal"),
        dev_server_extra_args=dynamic_config(KNOBS),
    ) as env:
        for name in sys.argv[1:] or FLOWS:
            await record(env.client, name)
    await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())

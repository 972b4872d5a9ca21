"""What goes wrong in production: field cases P01 to P41 that touch one machine. docs/conformance.md is the table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from activitykit import OneMachine, instance
from apiserver.simulated import NODES
from clouds.drivers import AwsCloud, calls, delete_until_gone, fault, machine, mark, until
from faults.flows import FLOWS
from faults.strike import Fault, faulty_worker
from histories.deadlines import at_once
from lifekit import Stack, eventually, new_stack
from machine.stubbed import called, delete, ended, past_both_looks, phase, reason, running, state
from machine.stubs import NODE, VM, Machines, classified, looked
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.cluster.node import NodeActivities
from activities.deps import Deps
from activities.temporal.orphans import OrphanActivities
from drivers.base import Evidence
from drivers.errors import DriverError
from planners.machine.creation import after_failed_create
from planners.machine.health import Outcome, confirm
from planners.waits import wait_after
from resources.calls.cloud import VmLook
from resources.calls.cluster import JoinInput, ReadyInput
from resources.errors import Code, ErrorClass
from resources.machine.facts import VmFacts
from resources.machine.manifest import NodeTemplate
from resources.machine.state import Look, Phase
from resources.names import INSTANCE_NOT_READY_TAINT, STARTUP_TAINTS
from resources.orphans import OwnedVm, OwnersInput
from resources.settings import Settings
from resources.timings import Timings
from simulator.frame import FaultRule
from workflows.machine import MachineWorkflow

MINUTE = timedelta(minutes=1)
MUST_TAGS = {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"}


# -- duplicates, leaks, crashes --------------------------------------------------------------------------------------


async def test_p01_killed_five_times_between_create_and_recording(one: OneMachine) -> None:
    """Nothing of the answer is kept, and reads lag: every time it is the same VM."""
    one.cloud.frame.lag.describe_after_create = 60.0
    made = [await one.create() for _ in range(3)]
    one.cloud.frame.lag.describe_after_create = 0.0
    made += [await one.create() for _ in range(3)]
    assert {m.provider_id for m in made} == {made[0].provider_id}
    assert one.living() == [instance(made[0].provider_id)]
    assert [m.adopted for m in made] == [False] * 3 + [True] * 3
    assert one.launches() == 3  # while reads lag only the token prevents a second VM


async def test_p03_one_token_for_an_attempt_and_another_for_another_request(one: OneMachine) -> None:
    fault(one.cloud, "RunInstances", "UnfulfillableCapacity", times=2)
    for _ in range(2):
        with pytest.raises(ApplicationError):
            await one.create(1)
    one.given.spec = one.cloud.spec(machineType="m5.xlarge")
    made = await one.create(2)
    first, again, second = (c.request["ClientToken"] for c in calls(one.cloud, "RunInstances"))
    assert first == again != second
    assert one.living() == [instance(made.provider_id)]


@pytest.mark.system
async def test_p05_delete_during_create_with_crash(temporal: WorkflowEnvironment) -> None:
    """The worker dies when the cloud has made the VM; what its flow asks at the end is in tests/kits/faults/."""
    async with new_stack(temporal.client) as stack:
        async with faulty_worker(stack, Fault("create_machine", "killed after")) as (faults, _):
            await FLOWS["delete during create"](stack)
            assert not faults.left()
        assert len(stack.launched()) == 1


async def test_p07_a_node_object_that_somebody_deletes(stack: Stack) -> None:
    """MCM deletes the machine with its Node. Ours keeps the VM: its kubelet registers again, and the new Node gets what
    the former one had before its machine is Running."""
    await stack.create()
    name = str((await stack.phase(Phase.RUNNING)).status.node_name)
    frame = stack.simulator.simulator.frame
    barred = FaultRule(service="kubernetes", operation="create nodes", code="InternalError", times=None)
    stack.simulator.call(lambda: frame.faults.append(barred))
    stack.kubectl("delete", "node", name)
    seen = await stack.reason("NodeMissing")
    assert seen.status.phase == Phase.UNKNOWN
    stack.simulator.call(frame.clear_faults)
    again = await stack.phase(Phase.RUNNING)
    node = json.loads(stack.kubectl("get", "node", name, "-o", "json"))
    assert node["metadata"]["labels"]["worker.hostler.io/pool"] == "demo"
    assert INSTANCE_NOT_READY_TAINT not in [t["key"] for t in node["spec"].get("taints", ())]
    told = [h.reason for h in again.journal if h.reason != "NodeNotReady"]  # a new Node is not Ready for a moment
    assert told[-3:] == ["NodeMissing", "NodeRejoined", "Recovered"]
    assert len(stack.launched()) == 1
    await stack.delete()
    assert stack.leftovers(again.uid) == {}


async def test_p07_nobody_saw_that_it_was_away(machines: Machines) -> None:
    handle = await running(machines)
    for uid in ("first", "second"):
        await handle.signal(MachineWorkflow.observe, machines.facts(uid=uid, not_ready_taint=True))
        await eventually(lambda: state(handle), lambda s, uid=uid: s.ready_uid == uid, f"{uid} made ready")
    joins = machines.stubs.called("join_node")
    assert [i.last_applied for i in joins[1:]] == [None, None]  # nothing of ours is on a new Node
    assert len(machines.stubs.called("remove_ready_taint")) == len(joins) == 3


@pytest.mark.parametrize("there", [False, True], ids=["P09", "P09: the VM is there"])
def test_p09_a_403_of_terminate(cloud: AwsCloud, there: bool) -> None:
    given = machine(cloud)
    vm = cloud.driver.create_machine(given.creation()).provider_id
    rule = fault(cloud, "TerminateInstances", "UnauthorizedOperation", delay=0.3)
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(cloud.driver.delete_machine, given.deletion(vm))
        until(lambda: rule.hits)
        if not there:  # it vanishes while the call is under way
            cloud.do(lambda: cloud.ec2.kill(instance(vm)))
    if there:
        with pytest.raises(DriverError, match="UnauthorizedOperation") as refused:
            deleting.result()
        assert refused.value.error_class is ErrorClass.AUTH
        assert cloud.living(given.machine.uid) == [instance(vm)]
    else:
        assert deleting.result().evidence is Evidence.PRESENT
    assert delete_until_gone(given, vm).evidence is Evidence.TERMINATED


async def test_p11_a_sweep_knows_the_owner_of_a_vm_that_nobody_has_recorded_yet(machines: Machines) -> None:
    """Its workflow exists before the VM; so no grace period is needed."""
    machines.stubs.holds["create_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    await called(machines, "create_machine")
    uid = (await state(handle)).uid
    young = OwnedVm(provider_id=VM, machine="m-1", uid=uid, state="pending", account="a")
    former = young.model_copy(update={"uid": "of a former life", "provider_id": "aws:///eu-west-1/i-0"})
    owners = OrphanActivities(Deps(Settings(), machines.client))
    # Stubbed machines have the prefix of their task queues for a cluster.
    input = OwnersInput(cluster=machines.prefix, vms=[young, former])
    found = await ActivityEnvironment().run(owners.find_owners, input)
    assert [o.vm for o in found.orphans] == [former]
    machines.stubs.holds["create_machine"].set()


async def test_p13_a_zombie_that_never_joins(temporal: WorkflowEnvironment, machines: Machines) -> None:
    console = "console: cloud-init[812]: Could not resolve host api.example.com"
    machines.stubs.then("look_at_vm", *[VmLook(state="running", message=f"{VM} is running; {console}")] * 2)
    timings = Timings(vm_look=timedelta(days=1))
    handle = await machines.start(machines.new_state("m-1", timings=timings, creation_timeout=timedelta(minutes=15)))
    await reason(handle, "NodeNotSeen")
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    why = next(h for h in failed.journal if h.reason == "CreationTimeout")
    assert console in why.message
    assert failed.created is not None
    await at_once(handle, failed.created + timedelta(minutes=15), why.time)
    assert [i.diagnose for i in machines.stubs.called("look_at_vm")] == [False, True]


def test_p17b_tags_that_a_user_gives_are_not_ours(cloud: AwsCloud) -> None:
    tags = {**MUST_TAGS, "Name": "sample", "hostler.io/uid": "mine", "hostler.io/machine": "mine"}
    given = [machine(cloud, name, tags=tags) for name in ("worker-1", "worker-2")]
    for _ in range(3):  # looked for by tag, and created only where nothing is found
        for m in given:
            try:
                cloud.driver.get_machine_status(m.status(token=""))
            except DriverError:
                cloud.driver.create_machine(m.creation())
    assert len(calls(cloud, "RunInstances")) == 2
    assert [len(cloud.living(m.machine.uid)) for m in given] == [1, 1]
    assert cloud.living("mine") == []


# -- capacity, quota, throttling -------------------------------------------------------------------------------------


async def test_p21_a_quota_is_said_with_its_numbers(cloud: AwsCloud, machines: Machines) -> None:
    words = "You have requested more vCPU capacity than your current vCPU limit of 100 allows: 56 in use, 64 asked for"
    given = machine(cloud)
    fault(cloud, "RunInstances", "VcpuLimitExceeded", message=words)
    with pytest.raises(DriverError) as full:
        cloud.driver.create_machine(given.creation())
    assert full.value.error_class is ErrorClass.QUOTA
    machines.stubs.then("create_machine", classified(ErrorClass.QUOTA, full.value.message))
    seen = await reason(await machines.start(machines.new_state("m-1")), "QuotaExceeded")
    assert seen.status.waiting_for is not None
    assert seen.status.last_operation is not None
    assert words in seen.status.waiting_for.message
    assert seen.status.last_operation.error_code == Code.RESOURCE_EXHAUSTED  # cluster-autoscaler looks elsewhere


async def test_p23_a_connection_that_breaks_after_the_call(one: OneMachine) -> None:
    one.cloud.frame.lag.describe_after_create = 60.0  # the read before the next call does not find it
    fault(one.cloud, "RunInstances", drop=True)
    with pytest.raises(ApplicationError) as broken:
        await one.create()
    assert broken.value.type == ErrorClass.TRANSIENT
    made = await one.create()
    first, again = calls(one.cloud, "RunInstances")
    assert first.request["ClientToken"] == again.request["ClientToken"]
    assert one.living() == [instance(made.provider_id)]


def test_p25_one_listing_for_all_and_no_retries_of_the_sdk(cloud: AwsCloud) -> None:
    given = [machine(cloud, f"worker-{n}", cluster="c-1") for n in range(5)]
    for m in given:
        cloud.driver.create_machine(m.creation())
    before = mark(cloud)
    assert len(cloud.driver.list_machines(given[0].listing()).machines) == 5
    assert [c.operation for c in calls(cloud, since=before)] == ["DescribeInstances"]
    before = mark(cloud)
    fault(cloud, "DescribeInstances", "RequestLimitExceeded")
    with pytest.raises(DriverError) as throttled:
        cloud.driver.list_machines(given[0].listing())
    assert throttled.value.error_class is ErrorClass.THROTTLED
    assert len(calls(cloud, since=before)) == 1


async def test_p25_creating_goes_before_deleting_before_looking(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(0))))
    await called(machines, "watch_machine")
    await delete(handle)
    await ended(handle)
    keys = {}
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            keys[scheduled.activity_type.name] = scheduled.priority.priority_key
    assert keys["create_machine"] < keys["delete_machine"] < keys["watch_machine"]


@pytest.mark.parametrize("reserved", [False, True], ids=["P27", "P29"])
def test_p27_p29_a_nic_without_a_vm_is_deleted(cloud: AwsCloud, reserved: bool) -> None:
    """It is found by its uid tag. One that the cloud does not release yet is left for the next pass, and is no
    failure."""
    plain = cloud.spec()["networkInterfaces"][0]
    given = machine(cloud, networkInterfaces=[plain, {**plain, "deleteOnTermination": False}])
    vm = cloud.driver.create_machine(given.creation()).provider_id
    cloud.do(lambda: cloud.ec2.kill(instance(vm)))
    (nic,) = cloud.left(given.machine.uid)["networkInterfaces"]
    rule = fault(cloud, "DeleteNetworkInterface", "InvalidNetworkInterface.InUse" if reserved else None)
    given.spec = cloud.spec()  # nothing should be kept
    first = cloud.driver.delete_machine(given.deletion())
    assert rule.hits == 1
    assert first.evidence is Evidence.PRESENT
    assert first.left == [f"{nic} {'available' if reserved else 'deleting'}"]
    delete_until_gone(given)
    assert cloud.left(given.machine.uid) == {}
    deletions = [c.error for c in calls(cloud, "DeleteNetworkInterface")]
    assert deletions == (["InvalidNetworkInterface.InUse", None] if reserved else [None])


# -- consistency and identity ----------------------------------------------------------------------------------------


async def test_p31_what_a_description_lacks_is_no_trouble(machines: Machines) -> None:
    handle = await running(machines)
    assert (await state(handle)).status.addresses == []
    half = VmFacts(epoch=1, seq=1, provider_id=VM, state="running")
    await handle.signal(MachineWorkflow.observe_vm, half)
    await handle.signal(MachineWorkflow.observe, last := machines.facts(addresses=[]))
    seen = await eventually(lambda: state(handle), lambda s: s.vm == half and s.node == last)
    assert (seen.status.phase, seen.status.waiting_for) == (Phase.RUNNING, None)
    stopped = half.model_copy(update={"seq": 2, "state": "stopped"})
    await handle.signal(MachineWorkflow.observe_vm, stopped)
    await phase(handle, Phase.UNKNOWN)


def test_p33_an_instance_profile_that_is_not_known_yet(cloud: AwsCloud) -> None:
    given = machine(cloud, iam={"name": "just-made"})
    with pytest.raises(DriverError) as unknown:
        cloud.driver.create_machine(given.creation())
    info = unknown.value.info
    assert (info.error_class, info.provider_code) == (ErrorClass.TRANSIENT, "InvalidParameterValue")
    assert wait_after(info, Timings()) == timedelta(seconds=5)
    retry = after_failed_create(info, datetime.now(UTC), Timings())
    assert not retry.attempt_over  # the same attempt, the same token


async def test_p35_a_node_of_another_name_is_known_by_its_provider_id(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    other = machines.facts(name=NODE, providerID="aws:///eu-west-1/i-2")  # of the expected name, and another VM's
    await handle.signal(MachineWorkflow.observe, other)
    await handle.signal(MachineWorkflow.observe, machines.facts(name="x1.corp"))
    seen = await phase(handle, Phase.RUNNING)
    assert seen.status.node_name == "x1.corp"
    said = next(h for h in seen.journal if h.reason == "NodeNameDiffers")
    assert NODE in said.message
    assert "x1.corp" in said.message
    assert [i.node_name for i in machines.stubs.called("join_node")] == ["x1.corp"]


@pytest.mark.parametrize(
    "skew", [-3 * MINUTE, 4 * MINUTE, timedelta(hours=-9)], ids=["P37", "P37: +4 min", "P37: -9 h"]
)
async def test_p37_a_nodes_clock_decides_nothing(machines: Machines, skew: timedelta) -> None:
    """A Lease is alive when its time moves, whatever the time is; creation is counted by the server's clock."""
    now = datetime.now(UTC)
    lease = now + skew

    def look(minutes: int, renewed: datetime) -> Look:
        return Look(time=now + minutes * MINUTE, node=looked(renewed, ready=False), vm=VmLook(state="running"))

    def said(renewed: datetime) -> Outcome:
        return confirm(look(9, lease), look(10, renewed), VM, [], now + 10 * MINUTE, Timings()).outcome

    assert said(lease + timedelta(seconds=10)) == Outcome.UNSURE
    assert said(lease) == Outcome.FAILED
    handle = await machines.start(machines.new_state("m-1"))
    before = (await reason(handle, "NodeNotSeen")).status.deadlines
    await handle.signal(MachineWorkflow.observe, machines.facts(created=lease, ready=False))
    assert (await reason(handle, "NodeNotReady")).status.deadlines == before
    await handle.signal(MachineWorkflow.observe, machines.facts(created=lease))
    await phase(handle, Phase.RUNNING)


# -- taints and templates --------------------------------------------------------------------------------------------


def taints(*keys: str) -> list[dict[str, str]]:
    return [{"key": key, "effect": "NoSchedule"} for key in keys]


async def between_read_and_write(one: OneMachine, write: Coroutine[Any, Any, Any], theirs: dict[str, Any]) -> None:
    """Somebody else writes the Node after the activity has read it and before it writes."""
    one.world.frame.reset_journal()
    late = FaultRule(operation="patch nodes", delay=0.5)
    one.world.frame.faults.append(late)

    async def hit() -> int:
        return late.hits

    under_way = asyncio.create_task(write)
    await eventually(hit, what="its first write")
    await one.world.kube.patch(f"{NODES}/{NODE}", theirs)
    await under_way
    assert [c.error for c in one.world.frame.calls("kubernetes", "patch nodes")] == [None, "Conflict", None]


async def test_p39_a_taint_that_another_actor_removes_meanwhile(one: OneMachine) -> None:
    all_three = taints("ebs", "efs", INSTANCE_NOT_READY_TAINT)
    body = {"metadata": {"name": NODE}, "spec": {"providerID": VM, "taints": all_three}}
    await one.world.kube.create(NODES, body)
    remove = one.attempts.attempt(
        NodeActivities(one.attempts.deps).remove_ready_taint,
        ReadyInput(machine=one.ref, node_name=NODE, provider_id=VM),
    )
    gone = {"spec": {"taints": taints("ebs", INSTANCE_NOT_READY_TAINT)}}
    await between_read_and_write(one, remove, gone)
    left = await one.world.kube.get(f"{NODES}/{NODE}")
    assert left["spec"]["taints"] == taints("ebs")


def template(*taint_keys: str, **labels: str) -> NodeTemplate:
    return NodeTemplate.model_validate({"metadata": {"labels": labels}, "spec": {"taints": taints(*taint_keys)}})


async def test_a_changed_template_on_a_living_node(one: OneMachine) -> None:
    """What others own stays, a taint that others removed stays away, an edit of one of our keys is corrected."""
    theirs = {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}
    body = {"metadata": {"name": NODE, **theirs}, "spec": {"providerID": VM, "taints": taints("theirs")}}
    await one.world.kube.create(NODES, body)
    nodes = NodeActivities(one.attempts.deps)
    common: dict[str, Any] = {"machine": one.ref, "attempt": 1, "node_name": NODE, "provider_id": VM}
    first, second = template("ours", "removed", a="1", b="1"), template("ours", "removed", "new", a="1", c="1")
    await one.attempts.attempt(nodes.join_node, JoinInput(**common, node_template=first))
    edited = {"metadata": {"labels": {"a": "edited"}}, "spec": {"taints": taints("theirs", "ours")}}
    await one.world.kube.patch(f"{NODES}/{NODE}", edited)
    change = one.attempts.attempt(nodes.join_node, JoinInput(**common, node_template=second, last_applied=first))
    await between_read_and_write(one, change, {"metadata": {"labels": {"meanwhile": "1"}}})
    node = await one.world.kube.get(f"{NODES}/{NODE}")
    assert node["metadata"]["labels"] == {"theirs": "1", "meanwhile": "1", "a": "1", "c": "1"}
    assert node["metadata"]["annotations"] == {"theirs": "1"}
    assert node["spec"]["taints"] == taints("theirs", "ours", "new")


async def test_p41_a_taint_of_the_cloud_provider_that_stays(temporal: WorkflowEnvironment, machines: Machines) -> None:
    taint = STARTUP_TAINTS[0]
    machines.stubs.then("look_at_node", *[looked(startup_taints=[taint])] * 9)
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(days=1))))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts(startup_taints=[taint]))
    seen = await reason(handle, "StartupTaint")
    assert seen.status.waiting_for is not None
    words = f"waits for cloud-controller-manager to remove its taint {taint}"
    assert words in seen.status.waiting_for.message
    await past_both_looks(temporal, handle)
    failed = await phase(handle, Phase.FAILED)
    assert words in next(h.message for h in failed.journal if h.reason == "CreationTimeout")

"""What a pool has done for it: machines started and told through Temporal's real server, Nodes marked at a simulated
API server."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from activitykit import Attempts
from apiserver.simulated import NODES, Obj, new_world
from lifekit import eventually, examples
from temporalio import workflow
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.batch import PARALLEL
from activities.cluster.marks import LISTED, MarkActivities
from activities.deps import Deps
from activities.temporal.members import MemberActivities
from activities.temporal.workflows import CONFIG_POOL
from resources import attributes as at
from resources import starts
from resources.cluster.state import PoolsInput
from resources.fleet.membership import (
    ForgetPoolInput,
    MarkNodesInput,
    MembersFound,
    PermitGranted,
    PreserveGrant,
    SlotTaken,
    StartMachinesInput,
    StartMachinesOutput,
    TellMachinesInput,
    TellMachinesOutput,
    TemplateNews,
)
from resources.histories import message_of
from resources.machine.intents import DeleteIntent, RepairIntent
from resources.machine.manifest import MachineTemplate
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, MachineState
from resources.machine_class.state import ClassState
from resources.machine_config.state import MachineConfigPoolState
from resources.names import (
    MACHINE_NAME_LABEL,
    ROLLOUT_TAINT,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    class_id,
    cluster_id,
    machine_id,
    pool_id,
    rollout_id,
)
from resources.owner import OwnerRef
from resources.pool.rollout import RolloutState
from resources.settings import ClusterSettings, Settings
from simulator.frame import FaultRule
from starter.sdk.starts import start_class

CREATED = datetime(2031, 1, 1, 14, 5, tzinfo=UTC)


@workflow.defn(name="MachineWorkflow")
class GoneMachine:
    """A machine that comes to its end at once."""

    @workflow.run
    async def run(self, state: MachineState) -> None:
        pass


class Pool:
    """A pool's activities, with a test's own cluster and a task queue that nobody polls."""

    def __init__(self, attempts: Attempts, cluster: str) -> None:
        self.attempts, self.cluster, self.client = attempts, cluster, attempts.deps.client
        self.activities, self.marks = MemberActivities(attempts.deps), MarkActivities(attempts.deps)
        self.ref = OwnerRef(cluster=cluster, name="p")
        self.asked: set[str] = set()
        """Machines that should be started: visibility may not list them yet when the test is over."""

    def machine(self, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(machine_id(self.cluster, name))

    async def start(self, *names: str, pool: str = "p", **fields: Any) -> StartMachinesOutput:
        self.asked |= set(names)
        (manifest,) = examples("of-pool").machines
        state = MachineState(name="", cluster=self.cluster, spec=manifest.spec, queue_prefix=self.cluster, pool=pool)
        input = StartMachinesInput(names=list(names), state=state.model_copy(update=fields))
        return await self.attempts.attempt(self.activities.start_machines, input)

    async def tell(self, *names: str, **message: Any) -> TellMachinesOutput:
        input = TellMachinesInput(cluster=self.cluster, names=list(names), **message)
        return await self.attempts.attempt(self.activities.tell_members, input)

    async def end(self) -> None:
        ids = {machine_id(self.cluster, name) for name in self.asked}
        ids |= {found.id async for found in self.client.list_workflows(f"TaskQueue = '{self.cluster}'")}
        for one in ids:
            with contextlib.suppress(RPCError):
                await self.client.get_workflow_handle(one).terminate("the test is over")

    async def forget(self, *classes: str) -> None:
        input = ForgetPoolInput(cluster=self.cluster, name="p", classes=list(classes))
        await self.attempts.attempt(self.activities.forget_pool, input)

    # -- its nodes

    async def node(self, machine: str, name: str = "", **annotations: str) -> Obj:
        taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        labels = {MACHINE_NAME_LABEL: machine}
        metadata = {"name": name or machine, "labels": labels, "annotations": {"color": "blue"} | annotations}
        made: Obj = await self.attempts.world.kube.create(NODES, {"metadata": metadata, "spec": {"taints": [taint]}})
        return made

    async def mark(self, *machines: str, on: bool = True) -> None:
        input = MarkNodesInput(cluster=self.cluster, pool="p", machines=list(machines), on=on)
        await self.attempts.attempt(self.marks.mark_nodes, input)

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Annotates as a person does."""
        body = {"metadata": {"annotations": annotations}}
        await self.attempts.world.kube.patch(f"{NODES}/{name}", body)

    async def annotations(self, name: str) -> dict[str, str]:
        """Annotations without the one that does not concern us."""
        found = (await self.attempts.world.kube.get(f"{NODES}/{name}"))["metadata"]["annotations"]
        return {k: v for k, v in found.items() if k != "color"}

    async def taints(self, name: str) -> list[str]:
        """Taints without those that the API server itself sets."""
        found = (await self.attempts.world.kube.get(f"{NODES}/{name}"))["spec"]["taints"]
        others = (t for t in found if not t["key"].startswith("node.kubernetes.io/"))
        return [f"{t['key']}={t['value']}:{t['effect']}" for t in others]

    def fault(self, operation: str, **rule: Any) -> None:
        self.attempts.world.frame.faults.append(FaultRule(operation=operation, **rule))


@pytest.fixture
async def pool(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Pool]:
    cluster = f"p{uuid.uuid4().hex[:8]}"
    async with new_world() as world:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(world.kube.kubeconfig())
        settings = Settings(queue_prefix=cluster, clusters={cluster: ClusterSettings(kubeconfig=kubeconfig)})
        deps = Deps(settings, temporal.client)
        made = Pool(Attempts(world, None, deps, None), cluster)
        try:
            yield made
        finally:
            await made.end()
            await deps.close()


async def signals(handle: WorkflowHandle[Any, Any], kind: type[Any] | None = None) -> list[tuple[str, Any]]:
    """What a workflow was told, from its history: no worker is needed."""
    told = []
    async for event in handle.fetch_history_events():
        if (message := message_of(event)) is not None:
            name, payloads = message
            arguments = await handle._client.data_converter.decode(list(payloads), [kind] * len(payloads))
            told.append((name, *arguments))
    return told


# -- starting ---------------------------------------------------------------------------------------------------------


async def test_machines_are_started_as_the_way_in_starts_them_and_only_once(pool: Pool) -> None:
    assert await pool.start("a", "b", created=CREATED, revision=3) == StartMachinesOutput()
    first = {name: await pool.machine(name).describe() for name in ("a", "b")}
    assert await pool.start("a", "b", "c", created=CREATED, revision=3) == StartMachinesOutput()
    for name, found in first.items():
        assert (await pool.machine(name).describe()).run_id == found.run_id
        said = {k: found.typed_search_attributes.get(k) for k in (at.CLUSTER, at.POOL, at.PHASE, at.REASON, at.CLASS)}
        assert said == {
            at.CLUSTER: pool.cluster,
            at.POOL: "p",
            at.PHASE: "Pending",
            at.REASON: "CreatingVM",
            at.CLASS: examples("of-pool").machines[0].spec.class_.name,
        }
        assert await found.memo_value("created") == CREATED.isoformat()
        assert await found.static_summary() == f"Machine {name} of cluster {pool.cluster}"
        details = await found.static_details()
        assert details is not None
        assert "no worker answers" in details, "the page says it where a worker cannot"
        begun = await anext(pool.machine(name).fetch_history_events())
        payloads = begun.workflow_execution_started_event_attributes.input.payloads
        (state,) = await pool.client.data_converter.decode(list(payloads), [MachineState])
        assert (state.name, state.pool, state.revision) == (name, "p", 3)
    assert (await pool.machine("c").describe()).status == WorkflowExecutionStatus.RUNNING


async def test_a_name_whose_machine_is_gone_is_told_and_not_started_again(pool: Pool) -> None:
    await pool.start("a")
    ended = (await pool.machine("a").describe()).run_id
    await pool.machine("a").terminate()
    assert await pool.start("a", "b") == StartMachinesOutput(used=["a"])
    assert (await pool.machine("a").describe()).run_id == ended
    assert (await pool.machine("b").describe()).status == WorkflowExecutionStatus.RUNNING


async def test_without_a_time_a_machine_was_created_when_it_was_first_asked_for(pool: Pool) -> None:
    (manifest,) = examples("of-pool").machines
    state = MachineState(name="", cluster=pool.cluster, spec=manifest.spec, queue_prefix=pool.cluster)
    input = StartMachinesInput(names=["a"], state=state)
    await pool.attempts.attempt(pool.activities.start_machines, input, scheduled=CREATED)
    assert await (await pool.machine("a").describe()).memo_value("created") == CREATED.isoformat()


async def test_one_that_cannot_be_started_keeps_none_of_the_others(pool: Pool) -> None:
    names = [f"m-{n}" for n in range(2 * PARALLEL)]
    server, started = pool.client, []

    async def start(workflow: str, state: MachineState, **options: Any) -> None:
        if state.name == names[0]:
            raise RPCError("not now", RPCStatusCode.UNAVAILABLE, b"")
        started.append(state.name)

    pool.attempts.deps.client = SimpleNamespace(start_workflow=start)  # type: ignore[assignment]
    with pytest.raises(RPCError, match="not now"):
        await pool.start(*names)
    assert sorted(started) == sorted(names[1:])
    assert pool.attempts.heartbeat[0]["message"] == f"{len(names) - 1} of {len(names)} machines started"
    pool.attempts.deps.client = server
    assert await pool.start(*names) == StartMachinesOutput()


# -- telling ----------------------------------------------------------------------------------------------------------

TEMPLATE = MachineTemplate.model_validate({"spec": {"class": {"kind": "MachineClass", "name": "c"}}})
MESSAGES = {
    "delete": ("delete", DeleteIntent(id="i-1", reason="scaled down", force=True)),
    "permit": ("permit", PermitGranted(reason="1 of 1 repairs")),
    "preserve": ("preserve_granted", PreserveGrant(by=PreservedBy.AUTO, reason="0 of 1 slots")),
    "repair": ("repair", RepairIntent(id="i-2", reason="no slot is free")),
    "slot_taken": ("slot_taken", SlotTaken(reason="lowered to 0")),
    "template": ("template_changed", TemplateNews(generation=2, template=TEMPLATE, requested_by="alice")),
}


@pytest.mark.parametrize("field", sorted(MESSAGES))
async def test_every_machine_hears_it(pool: Pool, field: str) -> None:
    await pool.start("a", "b", "c")
    name, message = MESSAGES[field]
    assert await pool.tell("a", "b", **{field: message}) == TellMachinesOutput()
    heard = {n: await signals(pool.machine(n), type(message)) for n in ("a", "b", "c")}
    assert heard == {"a": [(name, message)], "b": [(name, message)], "c": []}


async def test_without_a_message_they_are_asked_to_report(pool: Pool) -> None:
    await pool.start("a")
    assert await pool.tell("a") == TellMachinesOutput()
    assert await signals(pool.machine("a")) == [("report_again",)]


async def test_those_that_cannot_be_told_are_gone_or_lost(pool: Pool) -> None:
    async with Worker(
        pool.client,
        task_queue=pool.cluster,
        workflows=[GoneMachine],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        await pool.start("ended")
        await pool.machine("ended").result()
    await pool.start("killed", "lives")
    await pool.machine("killed").terminate()
    told = await pool.tell("ended", "killed", "lives", "never", permit=PermitGranted(reason="1 of 1"))
    assert told == TellMachinesOutput(gone=["ended"], lost={"killed": "TERMINATED", "never": ""})
    assert [name for name, _ in await signals(pool.machine("lives"))] == ["permit"]


async def test_one_that_was_started_meanwhile_is_told_by_the_next_attempt(pool: Pool) -> None:
    """It is started between the signal that found nobody and the look at what became of it."""
    server = pool.client
    await pool.start("a")

    async def nobody(*_: Any, **__: Any) -> None:
        raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")

    def handle(id: str, **_: Any) -> Any:
        return SimpleNamespace(id=id, signal=nobody, describe=server.get_workflow_handle(id).describe)

    pool.attempts.deps.client = SimpleNamespace(get_workflow_handle=handle)  # type: ignore[assignment]
    with pytest.raises(ApplicationError, match="started a moment ago"):
        await pool.tell("a")
    pool.attempts.deps.client = server
    assert await pool.tell("a") == TellMachinesOutput()
    assert await signals(pool.machine("a")) == [("report_again",)]


async def test_members_that_run_are_found_by_their_pool(pool: Pool) -> None:
    await pool.start("b", "a", "dead")
    await pool.start("of-another", pool="p2")
    await pool.start("alone", pool="")
    await pool.machine("dead").terminate()

    async def found() -> MembersFound:
        return await pool.attempts.attempt(pool.activities.find_members, pool.ref)

    await eventually(found, lambda members: members.names == ["a", "b"])
    other = pool.ref.model_copy(update={"name": "p2"})
    assert (await pool.attempts.attempt(pool.activities.find_members, other)).names == ["of-another"]


# -- its cluster and its rollouts -------------------------------------------------------------------------------------


async def test_a_pool_makes_itself_known_to_its_cluster_which_is_started_for_it(pool: Pool) -> None:
    cluster = pool.client.get_workflow_handle(cluster_id(pool.cluster))
    await pool.forget()  # there is none, and none is made for it
    with pytest.raises(RPCError, match="not found"):
        await cluster.describe()
    await pool.attempts.attempt(pool.activities.register_pool, pool.ref)
    await pool.attempts.attempt(pool.activities.register_pool, pool.ref.model_copy(update={"name": "p2"}))
    await pool.forget()
    assert await signals(cluster, str) == [("register_pool", "p"), ("register_pool", "p2"), ("forget_pool", "p")]
    found = await cluster.describe()
    assert found.typed_search_attributes.get(at.CLUSTER) == pool.cluster
    await cluster.terminate()
    await pool.forget()
    assert len(await signals(cluster, str)) == 3


async def test_its_classes_forget_a_pool_that_ends(pool: Pool) -> None:
    snapshot = ClassSnapshot.of(examples("of-pool").classes[0])
    state = ClassState(name="c1", cluster=pool.cluster, machine_class=snapshot, queue_prefix=pool.cluster)
    await start_class(pool.client, state)
    await pool.forget("gone", "c1")
    handle = pool.client.get_workflow_handle(class_id(pool.cluster, "c1"))
    assert await signals(handle, str) == [("forget_user", "pool/p")]


async def test_pools_that_run_are_found_by_their_cluster(pool: Pool) -> None:
    async def begin(name: str, cluster: str) -> None:
        await pool.client.start_workflow(
            "MachineDeploymentWorkflow",
            id=pool_id(cluster, name),
            task_queue=pool.cluster,
            search_attributes=TypedSearchAttributes([SearchAttributePair(at.CLUSTER, cluster)]),
        )

    for name in ("b", "a", "dead"):
        await begin(name, pool.cluster)
    await begin("elsewhere", f"{pool.cluster}-2")
    await pool.client.get_workflow_handle(pool_id(pool.cluster, "dead")).terminate()
    configs = MachineConfigPoolState(name="worker", cluster=pool.cluster, queue_prefix=pool.cluster)
    await pool.client.start_workflow(CONFIG_POOL, configs, **starts.of_config_pool(configs))

    async def found() -> list[str]:
        return (await pool.attempts.attempt(pool.activities.find_pools, PoolsInput(cluster=pool.cluster))).names

    await eventually(found, lambda names: names == ["a", "b", "mcp/worker"], "config pools hear of a pause, too")


async def test_a_rollout_has_one_story_at_a_time(pool: Pool) -> None:
    state = RolloutState(pool="p", cluster=pool.cluster, revision=2, queue_prefix=pool.cluster)
    story = pool.client.get_workflow_handle(rollout_id(pool.cluster, "p", 2))
    runs = []
    for _ in range(2):
        await pool.attempts.attempt(pool.activities.start_rollout, state)
        found = await story.describe()
        runs.append(found.run_id)
    said = {k: found.typed_search_attributes.get(k) for k in (at.CLUSTER, at.POOL, at.PHASE)}
    assert said == {at.CLUSTER: pool.cluster, at.POOL: "p", at.PHASE: "Rolling"}
    await story.terminate()
    await pool.attempts.attempt(pool.activities.start_rollout, state)
    runs.append((await story.describe()).run_id)
    assert runs[0] == runs[1] != runs[2]


# -- marks ------------------------------------------------------------------------------------------------------------

MARK = f"{ROLLOUT_TAINT}=True:PreferNoSchedule"
OURS = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY: "p"}


async def test_marks_come_and_go_and_leave_everything_else(pool: Pool) -> None:
    for name in ("m-1", "m-2", "m-3"):
        await pool.node(name)
    before = await pool.attempts.world.kube.get(f"{NODES}/m-1")
    await pool.mark("m-1", "m-2", "without-a-node")
    for name in ("m-1", "m-2"):
        assert await pool.taints(name) == ["dedicated=gpu:NoSchedule", MARK]
        assert await pool.annotations(name) == OURS
    assert (await pool.taints("m-3"), await pool.annotations("m-3")) == (["dedicated=gpu:NoSchedule"], {})
    await pool.mark("m-1", on=False)
    after = await pool.attempts.world.kube.get(f"{NODES}/m-1")
    for field in ("labels", "annotations"):
        assert after["metadata"][field] == before["metadata"][field]
    assert after["spec"] == before["spec"]
    assert await pool.annotations("m-2") == OURS


async def test_what_is_as_it_should_be_is_not_written_again(pool: Pool) -> None:
    await pool.node("m-1")
    await pool.mark("m-1", on=False)
    await pool.mark("m-1")
    await pool.mark("m-1")
    assert len(pool.attempts.world.frame.calls(operation="patch nodes")) == 1


async def test_what_a_person_has_set_before_stays_after(pool: Pool) -> None:
    await pool.node("m-1", **{SCALE_DOWN_DISABLED: "true"})
    await pool.mark("m-1")
    assert (await pool.taints("m-1"))[1:] == [MARK]
    assert await pool.annotations("m-1") == {SCALE_DOWN_DISABLED: "true"}
    await pool.mark("m-1", on=False)
    assert (await pool.taints("m-1"))[1:] == []
    assert await pool.annotations("m-1") == {SCALE_DOWN_DISABLED: "true"}


@pytest.mark.parametrize("theirs", ["false", None], ids=["changed", "taken away"])
async def test_what_a_person_has_done_with_our_annotation_stays(pool: Pool, theirs: str | None) -> None:
    await pool.node("m-1")
    await pool.mark("m-1")
    await pool.annotate("m-1", **{SCALE_DOWN_DISABLED: theirs})
    left = {} if theirs is None else {SCALE_DOWN_DISABLED: theirs}
    await pool.mark("m-1")
    assert await pool.annotations("m-1") == {SCALE_DOWN_DISABLED_BY: "p"} | left
    await pool.mark("m-1", on=False)
    assert await pool.annotations("m-1") == left


async def test_another_pools_marker_is_not_ours_to_take(pool: Pool) -> None:
    theirs = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_BY: "p2"}
    await pool.node("m-1", **theirs)
    await pool.mark("m-1", on=False)
    assert await pool.annotations("m-1") == theirs
    await pool.annotate("m-1", **OURS)
    await pool.mark("m-1", on=False)
    assert await pool.annotations("m-1") == {}


async def test_a_taint_of_the_same_key_and_another_effect_is_somebody_elses(pool: Pool) -> None:
    await pool.node("m-1")
    theirs = {"key": ROLLOUT_TAINT, "value": "x", "effect": "NoSchedule"}
    await pool.attempts.world.kube.patch(f"{NODES}/m-1", {"spec": {"taints": [theirs]}})
    await pool.mark("m-1")
    assert await pool.taints("m-1") == [f"{ROLLOUT_TAINT}=x:NoSchedule", MARK]
    await pool.mark("m-1", on=False)
    assert await pool.taints("m-1") == [f"{ROLLOUT_TAINT}=x:NoSchedule"]


async def test_who_writes_at_the_same_time_is_read_again(pool: Pool) -> None:
    await pool.node("m-1")
    pool.fault("patch nodes", code="Conflict", times=4)
    await pool.mark("m-1")
    assert (await pool.taints("m-1"))[1:] == [MARK]
    pool.fault("patch nodes", code="Conflict", times=5)
    with pytest.raises(ApplicationError) as caught:
        await pool.mark("m-1", on=False)
    assert caught.value.type == "conflict"
    await pool.mark("m-1", on=False)
    assert await pool.annotations("m-1") == {}


async def test_the_write_carries_the_version_that_was_read(pool: Pool) -> None:
    """A taint that somebody sets between our read and our write is not lost."""
    read = (await pool.node("m-1"))["metadata"]["resourceVersion"]
    await pool.mark("m-1")
    (call,) = pool.attempts.world.frame.calls(operation="patch nodes")
    assert call.request["body"]["metadata"]["resourceVersion"] == read


async def test_a_node_that_goes_meanwhile_is_no_error(pool: Pool) -> None:
    for name in ("m-1", "m-2"):
        await pool.node(name)
    pool.fault("patch nodes", match="m-1", code="NotFound")
    await pool.mark("m-1", "m-2")
    assert (await pool.taints("m-1"))[1:] == []
    assert (await pool.taints("m-2"))[1:] == [MARK]


async def test_one_that_cannot_be_written_keeps_none_of_the_others(pool: Pool) -> None:
    for name in ("m-1", "m-2"):
        await pool.node(name)
    pool.fault("patch nodes", match="m-1", code="Forbidden", times=None)
    with pytest.raises(ApplicationError, match="Forbidden"):
        await pool.mark("m-1", "m-2")
    assert (await pool.annotations("m-1"), await pool.annotations("m-2")) == ({}, OURS)


async def test_twins_are_marked_both(pool: Pool) -> None:
    for name in ("n-1", "n-2"):
        await pool.node("m-1", name)
    await pool.mark("m-1")
    assert [await pool.annotations(name) for name in ("n-1", "n-2")] == [OURS, OURS]


async def test_many_are_looked_for_in_a_few_calls(pool: Pool) -> None:
    names = [f"m-{n}" for n in range(2 * LISTED + 1)]
    for name in names:
        await pool.node(name)
    await pool.mark(*names)
    assert len(pool.attempts.world.frame.calls(operation="list nodes")) == 3
    assert len(pool.attempts.world.frame.calls(operation="patch nodes")) == len(names)
    assert pool.attempts.heartbeat[0]["message"] == f"{len(names)} of {len(names)} Nodes done"

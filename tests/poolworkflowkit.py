"""The real pool and the story of its rollouts on the real server, with a pool's real activities and stand-ins for its
machines: they obey, and say what the test wants.

How a machine behaves is said by its class (`habits` of the provider spec), or by the test afterwards (signal `be`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import DEADLINE, eventually
from stubs import not_yet
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowRunner,
)

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.pools import PoolActivities
from planners.hot_update import rolling_hash
from resources import starts
from resources.converter import data_converter
from resources.machine import ClassSnapshot, MachineState, Phase
from resources.machine_class import ClassNews, ClassRef, ReportInput
from resources.machine_deployment import MachineDeploymentSpec
from resources.manifests import MachineSpec, SecretRef
from resources.membership import MarkNodesInput, MemberReport, Permit, PoolRef, TemplateNews
from resources.messages import Answer, ClusterNews, DeleteIntent, Intent
from resources.names import cluster_queue, machine_id, pool_id, rollout_id
from resources.pool import PoolState, Trouble, Vm
from resources.pool_intents import PoolIntent, PoolSummary, ScaleIntent, UndoIntent
from resources.rollout import RolloutResult, RolloutState
from resources.settings import Settings
from workflows.pool import MachineDeploymentWorkflow
from workflows.rollout import RolloutWorkflow

MUTE, UNBORN, SLOW, NEVER_JOINS = "mute", "unborn", "slow", "never joins"
"""Says nothing at all · says that it is there · gets a VM and waits · gets a VM, and then Failed. Without: it joins."""
LINGERS, DEAF = "lingers", "deaf"
"""Is Terminating, or Failed and not drained, until the test lets it go on · does not take a changed template."""


# -- machines ---------------------------------------------------------------------------------------------------------


@workflow.defn(name="MachineWorkflow")
class PlayedMachine:
    """Says its reports one after the other, so that none overtakes another."""

    @workflow.init
    def __init__(self, state: MachineState) -> None:
        assert state.machine_class
        self.s = state
        self.habits = list(state.machine_class.provider_spec.get("habits", ()))
        self.heard: list[tuple[str, Any]] = []
        self.untold: list[MemberReport] = []
        self.over = False
        self.now: dict[str, Any] = {"seq": 0, "phase": Phase.PENDING, "vm": Vm.UNBORN, "template": state.template}
        self.now["since"] = workflow.now()

    @workflow.run
    async def run(self, state: MachineState) -> None:
        if MUTE not in self.habits:
            self.say()
            if UNBORN not in self.habits:
                self.say(vm=Vm.LIVES)
                if NEVER_JOINS in self.habits:
                    self.say(phase=Phase.FAILED, trouble=Trouble.JOIN, drained=True, message="no Node came")
                elif SLOW not in self.habits:
                    self.say(phase=Phase.RUNNING)
        while not self.over or self.untold:
            await workflow.wait_condition(lambda: self.over or bool(self.untold))
            while self.untold:
                pool = workflow.get_external_workflow_handle(pool_id(self.s.cluster, self.s.pool))
                with contextlib.suppress(Exception):
                    await pool.signal("report", self.untold.pop(0))

    def say(self, **changes: Any) -> None:
        if changes.get("phase", self.now["phase"]) != self.now["phase"]:
            self.now["since"] = workflow.now()
        once = {k: changes.pop(k) for k in ("failure", "machine_class", "hash") if k in changes}
        self.now |= {"seq": self.now["seq"] + 1, **changes}
        self.untold.append(MemberReport.model_validate({"machine": self.s.name, **self.now, **once}))

    @workflow.signal
    def be(self, changes: dict[str, Any]) -> None:
        """`habits` are the test's to change too."""
        self.habits = changes.pop("habits", self.habits)
        self.over = self.over or bool(changes.get("ended"))
        if changes:
            self.say(**changes)

    @workflow.signal
    def delete(self, intent: DeleteIntent) -> None:
        self.heard.append(("delete", intent))
        if self.now["phase"] is not Phase.TERMINATING:
            self.say(phase=Phase.TERMINATING)
        if LINGERS not in self.habits and not self.over:
            self.over = True
            self.say(vm=Vm.GONE, ended=True)

    @workflow.signal
    def permit(self, permit: Permit) -> None:
        self.heard.append(("permit", permit))
        if self.now["phase"] == Phase.UNKNOWN and self.now.get("asks"):
            self.say(phase=Phase.FAILED, trouble=Trouble.HEALTH, drained=LINGERS not in self.habits)

    @workflow.signal
    def template_changed(self, news: TemplateNews) -> None:
        self.heard.append(("template_changed", news))
        if DEAF not in self.habits:
            self.say(template=news.generation)

    @workflow.signal
    def report_again(self) -> None:
        self.heard.append(("report_again", None))
        made_from = self.s.machine_class
        if MUTE not in self.habits and made_from:
            self.say(machine_class=made_from.name, hash=rolling_hash(made_from.provider, made_from.provider_spec))

    @workflow.query
    def what(self) -> list[str]:
        return [name for name, _ in self.heard]

    @workflow.query
    def deletions(self) -> list[DeleteIntent]:
        return [said for name, said in self.heard if name == "delete"]

    @workflow.query
    def describe(self) -> MachineState:
        return self.s


class Runner(WorkflowRunner):
    """Ours in the strict sandbox, stand-ins without one."""

    def __init__(self, strict: bool) -> None:
        self.ours, self.theirs = worker.sandbox(strict), UnsandboxedWorkflowRunner()

    def prepare_workflow(self, defn: Any) -> None:
        self._of(defn).prepare_workflow(defn)

    def create_instance(self, det: Any) -> Any:
        return self._of(det.defn).create_instance(det)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        for runner in (self.ours, self.theirs):
            runner.set_worker_level_failure_exception_types(types)

    def _of(self, defn: Any) -> WorkflowRunner:
        return self.theirs if defn.cls is PlayedMachine else self.ours


# -- activities -------------------------------------------------------------------------------------------------------


@dataclass
class Deeds(Interceptor):
    """Writes down what the pool has done for it, and gets in its way. By activity type: errors to raise `before` or
    `after` the deed, one for each attempt, and `holds`: the deed waits until the event is set."""

    client: Client
    done: list[tuple[str, Any]] = field(default_factory=list)
    """Attempts that have been begun."""
    before: dict[str, deque[Exception]] = field(default_factory=dict)
    after: dict[str, deque[Exception]] = field(default_factory=dict)
    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds that such a deed takes."""
    classes: dict[str, ClassSnapshot] = field(default_factory=dict)
    """Those that can be asked."""
    first_news: ClusterNews | None = field(default_factory=lambda: ClusterNews(time=datetime(2026, 1, 1, tzinfo=UTC)))
    """What the cluster answers when the pool makes itself known."""

    def of(self, name: str) -> list[Any]:
        return [input for n, input in self.done if n == name]

    def fail(self, name: str, *errors: Exception, after: bool = False) -> None:
        (self.after if after else self.before).setdefault(name, deque()).extend(errors)

    def hold(self, name: str) -> asyncio.Event:
        self.holds[name] = asyncio.Event()
        return self.holds[name]

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Deed(next, self)

    @activity.defn(name="mark_nodes")
    async def mark(self, input: MarkNodesInput) -> None: ...

    @activity.defn(name="register_pool")
    async def register(self, input: PoolRef) -> None:
        if self.first_news is not None:
            await self.client.get_workflow_handle(pool_id(input.cluster, input.name)).signal(
                "cluster_news", self.first_news
            )

    @activity.defn(name="report_to_class")
    async def report(self, input: ReportInput) -> bool:
        return True

    @activity.defn(name="ask_class")
    async def ask(self, input: ClassRef) -> ClassSnapshot:
        if input.name not in self.classes:
            raise not_yet(f"class {input.name} is not there", timedelta(seconds=0.2))
        return self.classes[input.name]


class _Deed(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, deeds: Deeds) -> None:
        super().__init__(next)
        self.deeds = deeds

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name, deeds = activity.info().activity_type, self.deeds
        deeds.done.append((name, input.args[0]))
        if name in deeds.holds:
            await deeds.holds[name].wait()
        await asyncio.sleep(deeds.slow.get(name, 0))
        if errors := deeds.before.get(name):
            raise errors.popleft()
        answer = await super().execute_activity(input)
        if errors := deeds.after.get(name):
            raise errors.popleft()
        return answer


# -- manifests --------------------------------------------------------------------------------------------------------


def snapshot(
    generation: int = 1, image: int = 1, team: str = "a", name: str = "c1", habits: tuple[str, ...] = ()
) -> ClassSnapshot:
    """A class of AWS: another image rolls machines, another team is a tag and does not."""
    spec = {
        "ami": f"ami-{image}",
        "region": "eu-west-1",
        "machineType": "m5.large",
        "blockDevices": [{"ebs": {"volumeSize": 20}}],
        "networkInterfaces": [{"subnetID": "s", "securityGroupIDs": ["g"]}],
        "vmTags": {"team": team},
        "habits": list(habits),
    }
    return ClassSnapshot(
        name=name, generation=generation, provider="AWS", provider_spec=spec, secret_ref=SecretRef(name="s")
    )


def spec(
    replicas: int,
    surge: int | str = 1,
    unavailable: int | str = 0,
    machine_class: str = "c1",
    machine: Mapping[str, Any] | None = None,
    rolling: Mapping[str, Any] | None = None,
    **more: Any,
) -> MachineDeploymentSpec:
    """`machine` of the template's spec, `rolling` of rollingUpdate, `more` of the pool's."""
    update = {"maxSurge": surge, "maxUnavailable": unavailable, **(rolling or {})}
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"class": {"name": machine_class}, **(machine or {})}}
    return MachineDeploymentSpec.model_validate(
        {"replicas": replicas, "template": template, "strategy": {"rollingUpdate": update}, **more}
    )


def marks_due(state: PoolState) -> int:
    """Machines whose Nodes are not known to carry what they should."""
    return sum(m.marks_due for m in state.members.values())


# -- the pool ---------------------------------------------------------------------------------------------------------


class Pool:
    """One pool in a cluster of its own, on task queues of its own."""

    def __init__(self, client: Client, queue: str, name: str = "p1") -> None:
        self.client, self.queue, self.cluster, self.name = client, queue, queue, name
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(pool_id(self.cluster, name))
        self.deps = Deps(Settings(queue_prefix=queue), client)
        self.deeds = Deeds(client)
        self.spec, self.machine_class = spec(0), snapshot()
        self.replays = True
        """Whether its histories are replayed at the end: not where a test has changed our code for a while."""

    @contextlib.asynccontextmanager
    async def worker(self, strict: bool = True, **options: Any) -> AsyncIterator[None]:
        async with self.workflows_worker(strict, **options), self.deeds_worker():
            yield

    def workflows_worker(self, strict: bool = True, **options: Any) -> Worker:
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[MachineDeploymentWorkflow, RolloutWorkflow, PlayedMachine],
            workflow_runner=Runner(strict),
            **options,
        )

    @contextlib.asynccontextmanager
    async def deeds_worker(self) -> AsyncIterator[None]:
        """For activities alone."""
        real, deeds = PoolActivities(self.deps), self.deeds
        temporal = [real.start_machines, real.tell_members, real.find_members, real.forget_pool, real.start_rollout]
        per_queue: dict[str, list[Callable[..., Any]]] = {
            self.queue: [*temporal, deeds.register, deeds.report, deeds.ask],
            cluster_queue(self.cluster, self.queue): [deeds.mark],
        }
        async with contextlib.AsyncExitStack() as stack:
            for queue, activities in per_queue.items():
                made = Worker(self.client, task_queue=queue, activities=activities, interceptors=[Boundary(), deeds])
                await stack.enter_async_context(made)
            yield

    def new_state(self, wanted: MachineDeploymentSpec, **fields: Any) -> PoolState:
        self.spec = wanted
        self.machine_class = fields.pop("machine_class", self.machine_class)
        return PoolState(
            name=self.name,
            cluster=self.cluster,
            spec=wanted,
            machine_class=self.machine_class,
            queue_prefix=self.queue,
            **fields,
        )

    async def start(self, wanted: MachineDeploymentSpec, **fields: Any) -> None:
        await self.client.start_workflow(
            MachineDeploymentWorkflow.run, self.new_state(wanted, **fields), id=self.handle.id, task_queue=self.queue
        )

    async def ready(self, wanted: MachineDeploymentSpec, **fields: Any) -> None:
        """Started, and with all its machines."""
        await self.start(wanted, **fields)
        await self.rolled_out(wanted.replicas)

    # -- what it says -------------------------------------------------------------------------------------------------

    async def state(self) -> PoolState:
        found: PoolState = await self.handle.query(MachineDeploymentWorkflow.describe)
        return found

    async def summary(self) -> PoolSummary:
        found: PoolSummary = await self.handle.query(MachineDeploymentWorkflow.summary)
        return found

    async def when(self, until: Callable[[PoolState], object], what: str = "") -> PoolState:
        return await eventually(self.state, until, f"pool: {what}")

    async def rolled_out(self, replicas: int, revision: int = 0) -> PoolSummary:
        def done(s: PoolSummary) -> bool:
            return s.rolled_out and s.machines == replicas and s.leaving == 0 and s.revision >= revision

        return await eventually(self.summary, done, f"{replicas} machines, rolled out")

    async def waits(self, reason: str) -> str:
        """The words of that wait, once there is one."""
        found = await self.when(lambda s: any(w.reason == reason for w in s.waits), f"waits: {reason}")
        return next(w.message for w in found.waits if w.reason == reason)

    async def journal(self, reason: str = "") -> list[str]:
        return [h.message for h in (await self.state()).journal if reason in ("", h.reason)]

    async def noted(self, reason: str) -> str:
        """The newest line of the journal with this reason, once there is one."""
        found = await self.when(lambda s: any(h.reason == reason for h in s.journal), f"journal: {reason}")
        return [h.message for h in found.journal if h.reason == reason][-1]

    async def members(self, *phases: Phase, revision: int = 0) -> list[str]:
        found = (await self.state()).members.items()
        right = (n for n, m in found if m.phase in (phases or list(Phase)) and revision in (0, m.revision))
        return sorted(right)

    async def scheduled(self, run: str | None = None) -> list[str]:
        """Activities of a run, in their order."""
        handle = self.client.get_workflow_handle(self.handle.id, run_id=run)
        return [
            event.activity_task_scheduled_event_attributes.activity_type.name
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]

    async def run_id(self) -> str:
        return (await self.handle.describe()).run_id

    async def another_run(self, than: str) -> None:
        async def other() -> bool:
            return await self.run_id() != than

        await eventually(other, bool, "a new run")

    # -- what people, class and cluster want --------------------------------------------------------------------------

    async def ask(self, name: str, intent: Intent | None = None, id: str = "") -> str:
        intent = (intent or Intent()).model_copy(update={"id": id or uuid.uuid4().hex})
        answer: Answer = await self.handle.execute_update(name, intent, id=intent.id, result_type=Answer)
        return answer.message

    async def refused(self, name: str, intent: Intent | None = None) -> str:
        try:
            answer = await self.ask(name, intent)
        except WorkflowUpdateFailedError as e:
            return str(e.cause).removeprefix("Refused: ")
        raise AssertionError(f"it was taken: {answer}")

    def manifest(
        self, wanted: MachineDeploymentSpec | None = None, machine_class: ClassSnapshot | None = None, **more: Any
    ) -> PoolIntent:
        self.spec, self.machine_class = wanted or self.spec, machine_class or self.machine_class
        return PoolIntent(spec=self.spec, machine_class=self.machine_class, **more)

    async def apply(
        self, wanted: MachineDeploymentSpec | None = None, machine_class: ClassSnapshot | None = None, **more: Any
    ) -> str:
        return await self.ask("apply", self.manifest(wanted, machine_class, **more))

    async def scale(self, replicas: int | None = None, current: int | None = None, remove: tuple[str, ...] = ()) -> str:
        return await self.ask("scale", ScaleIntent(replicas=replicas, current=current, remove=list(remove)))

    async def undo(self, to: int | None = None) -> str:
        return await self.ask("undo", UndoIntent(to=to))

    async def delete(self, force: bool = False) -> str:
        return await self.ask("delete", DeleteIntent(force=force))

    async def gone(self) -> None:
        await asyncio.wait_for(self.handle.result(), DEADLINE)

    async def class_changed(self, machine_class: ClassSnapshot, **who: str) -> None:
        self.machine_class = machine_class
        await self.handle.signal("class_changed", ClassNews(machine_class=machine_class, **who))

    async def cluster_news(self, **news: Any) -> None:
        time = news.pop("time", datetime.now(UTC))
        await self.handle.signal("cluster_news", ClusterNews(time=time, **news))

    # -- its machines -------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(machine_id(self.cluster, name))

    async def be(self, *names: str, **changes: Any) -> None:
        for name in names:
            await self.until_there(name)
            await self.machine(name).signal("be", changes)

    async def until_there(self, name: str) -> None:
        """A member's workflow may be started a moment later."""
        await eventually(lambda: _found(self.machine(name).describe()), bool, f"machine {name}")

    async def heard(self, name: str) -> list[str]:
        found: list[str] = await self.machine(name).query(PlayedMachine.what)
        return found

    async def until_heard(self, name: str, what: str, times: int = 1) -> None:
        await eventually(lambda: self.heard(name), lambda h: h.count(what) >= times, f"{name}: {what}")

    async def report(self, machine: str, seq: int, phase: Phase = Phase.RUNNING, **more: Any) -> None:
        """In a machine's name."""
        fields: dict[str, Any] = {"machine": machine, "seq": seq, "phase": phase, "since": datetime.now(UTC)}
        said = MemberReport.model_validate({**fields, "vm": Vm.LIVES, "template": 1, **more})
        await self.handle.signal("report", said)

    async def machine_there(self, name: str, made_from: ClassSnapshot, template: int = 1) -> WorkflowHandle[Any, Any]:
        """One of a former workflow of this pool."""
        state = MachineState(
            name=name,
            cluster=self.cluster,
            spec=MachineSpec.model_validate({"class": {"name": made_from.name}}),
            machine_class=made_from,
            queue_prefix=self.queue,
            pool=self.name,
            revision=7,
            template=template,
        )
        options = starts.of_machine(state, reason="", created=datetime.now(UTC))
        return await self.client.start_workflow(PlayedMachine.run, state, **options)

    def started(self) -> list[str]:
        """Machines, in the order in which they were asked for."""
        return [name for input in self.deeds.of("start_machines") for name in input.names]

    # -- rollouts -----------------------------------------------------------------------------------------------------

    def story(self, revision: int) -> WorkflowHandle[Any, RolloutResult]:
        return self.client.get_workflow_handle_for(RolloutWorkflow.run, rollout_id(self.cluster, self.name, revision))

    async def told(self, revision: int) -> RolloutState:
        return await self.story(revision).query(RolloutWorkflow.describe)

    async def until_told(self, revision: int, until: Callable[[RolloutState], object], what: str = "") -> RolloutState:
        async def look() -> RolloutState | None:
            try:
                return await self.told(revision)
            except RPCError:
                return None  # not there yet

        found = await eventually(look, lambda s: s is not None and until(s), f"rollout {revision}: {what}")
        assert found
        return found

    async def result(self, revision: int) -> RolloutResult:
        await eventually(lambda: _found(self.story(revision).describe()), bool, f"rollout {revision}")
        return await asyncio.wait_for(self.story(revision).result(), DEADLINE)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        await self.deps.close()
        async for found in self.client.list_workflows(f"TaskQueue = '{self.queue}' AND ExecutionStatus = 'Running'"):
            with contextlib.suppress(RPCError):
                await self.client.get_workflow_handle(found.id).terminate("the test is over")

    async def replay(self) -> None:
        """Each run of the pool and of its rollouts, by the code as it is."""
        kinds = [MachineDeploymentWorkflow, RolloutWorkflow]
        replayer = Replayer(workflows=kinds, data_converter=data_converter, workflow_runner=worker.sandbox(False))
        kinds_named = ", ".join(f"'{kind.__name__}'" for kind in kinds)
        where = f"TaskQueue = '{self.queue}' AND WorkflowType IN ({kinds_named})"
        async for history in self.client.list_workflows(where).map_histories():
            await replayer.replay_workflow(history)


async def _found(look: Awaitable[object]) -> bool:
    try:
        await look
    except RPCError:
        return False
    return True


@contextlib.asynccontextmanager
async def new_pool(client: Client) -> AsyncIterator[Pool]:
    """Without a worker. Its histories are replayed at the end."""
    pool = Pool(client, f"w{uuid.uuid4().hex[:8]}")
    try:
        yield pool
    finally:
        await pool.end()
    if pool.replays:
        await pool.replay()

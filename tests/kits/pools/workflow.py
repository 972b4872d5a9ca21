"""The real pool and the story of its rollouts on the real server, with a pool's real activities and stand-ins for its
machines (standins.py)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lifekit import DEADLINE, STICKY, asked, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

import worker
from activities.base import methods
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.members import MemberActivities
from activities.temporal.pools import PoolActivities
from pools.standins import DEAF, LINGERS, MUTE, NEVER_JOINS, SLOW, UNBORN, Calls, PlayedMachine
from resources import starts
from resources.cluster.news import ClusterNews
from resources.converter import data_converter
from resources.fleet.member import Member, Vm
from resources.fleet.membership import MemberReport
from resources.fleet.revision import Revision
from resources.intents import Intent
from resources.machine.intents import DeleteIntent
from resources.machine.manifest import MachineSpec, SecretRef
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassNews
from resources.names import cluster_queue, machine_id, pool_id, rollout_id
from resources.pool.intents import PoolIntent, PoolSummary, ScaleIntent, UndoIntent
from resources.pool.manifest import MachineDeploymentSpec
from resources.pool.rollout import RolloutResult, RolloutState
from resources.pool.state import PoolState
from resources.settings import Settings
from starter.sdk import intents
from workflows.pool import MachineDeploymentWorkflow
from workflows.pool.rollout import RolloutWorkflow

# -- manifests --------------------------------------------------------------------------------------------------------


def snapshot(
    generation: int = 1, image: int = 1, team: str = "a", name: str = "c1", habits: tuple[str, ...] = ()
) -> ClassSnapshot:
    """A class of AWS: another image rolls machines; another team is a tag and does not."""
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
    """The spec; `machine`: fields of the template's spec, `rolling`: of rollingUpdate, `more`: of the pool's."""
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
        self.calls = Calls(client)
        self.spec, self.machine_class = spec(0), snapshot()
        self.replays = True
        """Whether its histories are replayed at the end: not where a test has changed our code temporarily."""

    @contextlib.asynccontextmanager
    async def worker(self, strict: bool = False, **options: Any) -> AsyncIterator[None]:
        async with self.workflows_worker(strict, **options), self.activities_worker():
            yield

    def workflows_worker(self, strict: bool = False, **options: Any) -> Worker:
        return Worker(
            self.client,
            task_queue=self.queue,
            workflows=[MachineDeploymentWorkflow, RolloutWorkflow, PlayedMachine],
            workflow_runner=worker.sandbox(strict),
            **{"sticky_queue_schedule_to_start_timeout": STICKY, **options},
        )

    @contextlib.asynccontextmanager
    async def activities_worker(self) -> AsyncIterator[None]:
        """A worker for activities alone."""
        real, calls = MemberActivities(self.deps), self.calls
        temporal = [real.start_machines, real.tell_members, real.find_members, real.forget_pool, real.start_rollout]
        per_queue: dict[str, list[Callable[..., Any]]] = {
            self.queue: [*temporal, *methods(PoolActivities(self.deps)), calls.register, calls.report, calls.ask],
            cluster_queue(self.cluster, self.queue): [calls.mark],
        }
        async with contextlib.AsyncExitStack() as stack:
            for queue, activities in per_queue.items():
                made = Worker(self.client, task_queue=queue, activities=activities, interceptors=[Boundary(), calls])
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
        """Starts the pool, and waits for all its machines."""
        await self.start(wanted, **fields)
        await self.rolled_out(wanted.replicas)

    # -- what it says -------------------------------------------------------------------------------------------------

    async def state(self) -> PoolState:
        found: PoolState = await asked(self.handle, MachineDeploymentWorkflow.describe)
        return found

    async def summary(self) -> PoolSummary:
        found: PoolSummary = await asked(self.handle, MachineDeploymentWorkflow.summary)
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
        return (await intents.ask(self.handle, name, intent)).message

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
        await eventually(lambda: found(self.machine(name).describe()), bool, f"machine {name}")

    async def heard(self, name: str) -> list[str]:
        found: list[str] = await asked(self.machine(name), PlayedMachine.what)
        return found

    async def until_heard(self, name: str, what: str, times: int = 1) -> None:
        await eventually(lambda: self.heard(name), lambda h: h.count(what) >= times, f"{name}: {what}")

    async def report(self, machine: str, seq: int, phase: Phase = Phase.RUNNING, **more: Any) -> None:
        """Reports in a machine's name."""
        fields: dict[str, Any] = {"machine": machine, "seq": seq, "phase": phase, "since": datetime.now(UTC)}
        said = MemberReport.model_validate({**fields, "vm": Vm.LIVES, "template": 1, **more})
        await self.handle.signal("report", said)

    async def machine_there(self, name: str, made_from: ClassSnapshot, template: int = 1) -> WorkflowHandle[Any, Any]:
        """A machine of a former workflow of this pool."""
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
        """Machines, in the order in which they were first asked for: a call that the server has cut off is made
        again."""
        return list(dict.fromkeys(self.asked_for()))

    def asked_for(self) -> list[str]:
        """The same, once for each attempt."""
        return [name for input in self.calls.of("start_machines") for name in input.names]

    # -- rollouts -----------------------------------------------------------------------------------------------------

    def story(self, revision: int) -> WorkflowHandle[Any, RolloutResult]:
        return self.client.get_workflow_handle_for(RolloutWorkflow.run, rollout_id(self.cluster, self.name, revision))

    async def told(self, revision: int) -> RolloutState:
        return await asked(self.story(revision), RolloutWorkflow.describe)

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
        await eventually(lambda: found(self.story(revision).describe()), bool, f"rollout {revision}")
        return await asyncio.wait_for(self.story(revision).result(), DEADLINE)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        await self.deps.close()
        async for found in self.client.list_workflows(f"TaskQueue = '{self.queue}' AND ExecutionStatus = 'Running'"):
            with contextlib.suppress(RPCError):
                await self.client.get_workflow_handle(found.id).terminate("the test is over")

    async def replay(self) -> None:
        """Replays each run of the pool and of its rollouts, with the code as it is."""
        kinds = [MachineDeploymentWorkflow, RolloutWorkflow]
        replayer = Replayer(workflows=kinds, data_converter=data_converter, workflow_runner=worker.sandbox(False))
        kinds_named = ", ".join(f"'{kind.__name__}'" for kind in kinds)
        where = f"TaskQueue = '{self.queue}' AND WorkflowType IN ({kinds_named})"
        async for history in self.client.list_workflows(where).map_histories():
            await replayer.replay_workflow(history)


async def found(look: Awaitable[object]) -> bool:
    try:
        await look
    except RPCError:
        return False
    return True


@contextlib.asynccontextmanager
async def new_pool(client: Client) -> AsyncIterator[Pool]:
    """A pool without a worker. Its histories are replayed at the end."""
    pool = Pool(client, f"w{uuid.uuid4().hex[:8]}")
    try:
        yield pool
    finally:
        await pool.end()
    if pool.replays:
        await pool.replay()


__all__ = [
    "DEAF",
    "LINGERS",
    "MUTE",
    "NEVER_JOINS",
    "SLOW",
    "UNBORN",
    "PlayedMachine",
    "Pool",
    "marks_due",
    "new_pool",
    "snapshot",
    "spec",
]


def grown(pool: Pool, count: int, **fields: object) -> PoolState:
    """A pool with this many Running machines, as a former run hands it over."""
    now = datetime.now(UTC)
    made_from = snapshot()
    wanted = spec(count)
    revision = Revision(counter=1, machine_class=made_from, hash="h", template=wanted.template, created=now)
    members = {
        f"p1-aaaaa-{n:05d}": Member(1, now, now, Phase.RUNNING, Vm.LIVES, template=1, seq=3) for n in range(count)
    }
    ready = {"created": now, "searched": True, "registered": True, "class_told": "c1 1", "classes": ["c1"]}
    state = pool.new_state(wanted, members=members, revisions=[revision], **ready)
    return state.model_copy(update={"news": pool.calls.first_news, **fields})


async def begin(pool: Pool, state: PoolState) -> None:
    await pool.client.start_workflow("MachineDeploymentWorkflow", state, id=pool.handle.id, task_queue=pool.queue)

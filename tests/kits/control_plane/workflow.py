"""The real workflow of a control plane on the real server, with an owner's real activities and stand-ins for its
machines: they obey, are held by a hook, and are what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import DEADLINE, STICKY, asked, end_running_of, eventually
from pools.standins import NEVER_JOINS, SLOW, Calls
from pools.workflow import found
from pools.workflow import snapshot as of_pools
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.worker import Replayer, Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.members import MemberActivities
from planners.machine.domain import domain_digest
from planners.machine.hot_update import rolling_hash
from resources import attributes as at
from resources import starts
from resources.calls.cluster import ControlPlaneNode, ControlPlaneNodes, ControlPlaneNodesInput
from resources.cluster.news import ClusterNews
from resources.control_plane.intents import ApplyControlPlane
from resources.control_plane.spec import HOLD, ControlPlaneSpec
from resources.control_plane.state import ControlPlaneState
from resources.control_plane.summary import ControlPlaneSummary
from resources.converter import data_converter
from resources.fleet.member import PreserveWish, Trouble, Vm
from resources.fleet.membership import (
    MemberReport,
    OwnerNews,
    PermitGranted,
    PlaceNews,
    PreserveGrant,
    TemplateNews,
)
from resources.intents import Intent
from resources.machine.hooks import HookIntent
from resources.machine.intents import DeleteIntent, RepairIntent
from resources.machine.manifest import LifecycleHooks, MachineSpec
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassNews
from resources.names import cluster_queue, machine_id
from resources.settings import Settings
from resources.timings import Timings
from starter.sdk import intents
from workflows.control_plane import ControlPlaneWorkflow


def snapshot(type: str = "m5.large", **more: Any) -> ClassSnapshot:
    """A class of AWS: another type rolls machines, as another image does not; another team is a tag."""
    made = of_pools(**more)
    return made.model_copy(update={"provider_spec": {**made.provider_spec, "machineType": type}})


DOMAINS = {zone: {"placement": {"availabilityZone": zone}} for zone in ("eu-west-1a", "eu-west-1b", "eu-west-1c")}


@workflow.defn(name="MachineWorkflow", sandboxed=False)
class PlayedHost:
    """Sends its reports one after the other, so that none overtakes another."""

    @workflow.init
    def __init__(self, state: MachineState) -> None:
        assert state.machine_class
        self.s = state
        self.habits = list(state.machine_class.provider_spec.get("habits", ()))
        self.heard: list[str] = []
        self.untold: list[MemberReport] = []
        self.over = self.leaving = self.wanted = False
        self.now: dict[str, Any] = {"seq": 0, "phase": Phase.PENDING, "vm": Vm.UNBORN, "template": state.template}
        self.now |= {"since": workflow.now()}

    @workflow.run
    async def run(self, state: MachineState) -> None:
        self.say(vm=Vm.LIVES)
        if NEVER_JOINS in self.habits:
            self.say(phase=Phase.FAILED, trouble=Trouble.JOIN, drained=True, message="no Node came")
        elif SLOW not in self.habits:
            self.say(phase=Phase.RUNNING)
        while not self.over or self.untold:
            await workflow.wait_condition(lambda: self.over or bool(self.untold))
            while self.untold:
                report = self.untold.pop(0)
                if self.s.owner is not None:
                    owner = workflow.get_external_workflow_handle(self.s.owner.workflow_id(self.s.cluster))
                    with contextlib.suppress(Exception):
                        await owner.signal("report", report)

    @property
    def joined(self) -> bool:
        return self.now["phase"] is not Phase.PENDING and self.now.get("trouble") != Trouble.JOIN

    def say(self, **changes: Any) -> None:
        if changes.get("phase", self.now["phase"]) != self.now["phase"]:
            self.now["since"] = workflow.now()
        once = {k: changes.pop(k) for k in ("failure", "machine_class", "hash", "made_from") if k in changes}
        place = changes.pop("place", {})
        self.now |= {"seq": self.now["seq"] + 1, **changes}
        hooks = [h.name for h in self.s.spec.lifecycle_hooks.pre_drain]
        failing = self.now["phase"] is Phase.FAILED and not self.now.get("drained")
        news = PlaceNews(
            joined=self.joined,
            node_ready=self.now["phase"] in (Phase.RUNNING, Phase.TERMINATING) and self.joined,
            held=(self.leaving or failing) and self.joined and HOLD in hooks,
            domain=domain_digest(self.s.domain),
            wanted=self.wanted,
        ).model_copy(update=place)
        said = {"machine": self.s.name, **self.now, **once, "placement": self.s.placement}
        self.untold.append(MemberReport.model_validate({**said, "place": news if self.s.placement else None}))

    @workflow.signal
    def be(self, changes: dict[str, Any]) -> None:
        self.over = self.over or bool(changes.get("ended"))
        self.say(**changes)

    @workflow.signal
    def delete(self, intent: DeleteIntent) -> None:
        self.heard.append("delete")
        self._go(intent)

    @workflow.signal
    def repair(self, intent: RepairIntent) -> None:
        self.heard.append("repair")
        self._go(intent)

    def _go(self, intent: DeleteIntent) -> None:
        joined, hooks = self.joined, [h.name for h in self.s.spec.lifecycle_hooks.pre_drain]
        self.leaving = True
        if joined and HOLD in hooks:
            self.say(phase=Phase.TERMINATING, place={"forced": intent.force})
        else:
            self._end()

    def _end(self) -> None:
        if not self.over:
            self.over = True
            self.say(phase=Phase.TERMINATING, vm=Vm.GONE, ended=True)

    @workflow.signal
    def hook(self, intent: HookIntent) -> None:
        self.heard.append(f"hook {intent.name}")
        kept = [h for h in self.s.spec.lifecycle_hooks.pre_drain if h.name != intent.name]
        self._hooks(LifecycleHooks(pre_drain=kept))
        if self.leaving:
            self._end()
        elif self.wanted:
            self.say(drained=True, keep=PreserveWish.ASKED)

    @workflow.signal
    def keep(self) -> None:
        """Somebody asks to preserve it when it fails."""
        self.wanted = True
        self.say()

    @workflow.signal
    def permit(self, granted: PermitGranted) -> None:
        self.heard.append("permit")
        self.say(phase=Phase.FAILED, trouble=Trouble.HEALTH, asks=False)

    @workflow.signal
    def preserve_granted(self, granted: PreserveGrant) -> None:
        self.heard.append("preserve_granted")
        until = workflow.now() + timedelta(hours=72)
        self.say(keep=PreserveWish.UNDECIDED, preserved_until=until, preserved_by=granted.by)

    def _hooks(self, hooks: LifecycleHooks) -> None:
        self.s.spec = self.s.spec.model_copy(update={"lifecycle_hooks": hooks})

    @workflow.signal
    def template_changed(self, news: TemplateNews) -> None:
        self.heard.append("template_changed")
        if not self.leaving:
            self._hooks(news.template.spec.lifecycle_hooks)
        self.say(template=news.generation)

    @workflow.signal
    def owner_changed(self, news: OwnerNews) -> None:
        self.heard.append("released" if news.released else "owned")
        self.s.owner = None if news.released else news.owner
        if news.placement is not None:
            self.s.placement, self.s.domain = news.placement, news.domain
        self.report_again()

    @workflow.signal
    def report_again(self) -> None:
        of = self.s.machine_class
        assert of
        self.say(machine_class=of.name, hash=rolling_hash(of.provider, of.provider_spec), made_from=of)

    @workflow.query
    def what(self) -> list[str]:
        return self.heard

    @workflow.query
    def describe(self) -> MachineState:
        return self.s


def wanted(state: str = "Active", strategy: str = "RollingUpdate", **more: Any) -> ControlPlaneSpec:
    machine = {"class": {"name": "c1"}, **more.pop("machine", {})}
    template = {"metadata": {"labels": {"role": "master"}}, "spec": machine}
    given = {"state": state, "strategy": strategy, "namePrefix": "cp", "template": template, **more}
    return ControlPlaneSpec.model_validate(given)


@dataclass
class ControlPlane:
    """One in a cluster of its own, on task queues of its own."""

    client: Client
    cluster: str = field(default_factory=lambda: f"cp{uuid.uuid4().hex[:8]}")
    nodes: list[ControlPlaneNode] = field(default_factory=list)
    """The Nodes with its role that belong to no machine of it; those of its own are left out."""
    looks: int = 0
    beside: Sequence[Callable[..., Any]] = ()
    """More activities of the cluster's role."""
    timings: Timings = field(default_factory=Timings)

    def __post_init__(self) -> None:
        self.handle: WorkflowHandle[Any, Any] = self.client.get_workflow_handle(f"controlplane/{self.cluster}")
        self.deps, self.calls = Deps(Settings(queue_prefix=self.cluster), self.client), Calls(self.client)
        self.spec, self.machine_class = wanted(), snapshot()

    @activity.defn(name="find_control_plane_nodes")
    async def find(self, input: ControlPlaneNodesInput) -> ControlPlaneNodes:
        self.looks += 1
        return ControlPlaneNodes(nodes=self.nodes)

    @contextlib.asynccontextmanager
    async def worker(self, strict: bool = False, **options: Any) -> AsyncIterator[None]:
        real, calls = MemberActivities(self.deps), self.calls
        temporal = [real.start_machines, real.tell_members, real.find_members, real.forget_pool]
        per_queue: dict[str, list[Callable[..., Any]]] = {
            self.cluster: [*temporal, calls.register, calls.report, calls.ask],
            cluster_queue(self.cluster, self.cluster): [self.find, *self.beside],
        }
        async with contextlib.AsyncExitStack() as stack:
            # Who lists all clusters of the server would wait for those whom nobody serves any longer.
            stack.push_async_callback(end_running_of, self.client, self.cluster)
            for queue, activities in per_queue.items():
                made = Worker(self.client, task_queue=queue, activities=activities, interceptors=[Boundary(), calls])
                await stack.enter_async_context(made)
            of_workflows = {"sticky_queue_schedule_to_start_timeout": STICKY, **options}
            both = [ControlPlaneWorkflow, PlayedHost]
            made = Worker(
                self.client,
                task_queue=self.cluster,
                workflows=both,
                workflow_runner=worker.sandbox(strict),
                **of_workflows,
            )
            await stack.enter_async_context(made)
            yield

    async def start(self, spec: ControlPlaneSpec | None = None, machine_class: ClassSnapshot | None = None) -> None:
        self.spec, self.machine_class = spec or self.spec, machine_class or self.machine_class
        state = ControlPlaneState(
            name="cluster",
            cluster=self.cluster,
            spec=self.spec,
            machine_class=self.machine_class,
            queue_prefix=self.cluster,
            timings=self.timings,
        )
        await self.client.start_workflow(ControlPlaneWorkflow.run, state, id=self.handle.id, task_queue=self.cluster)

    async def by_hand(self, count: int = 3, zones: bool = False) -> list[str]:
        """Machines that belong to nobody, and their Nodes: what every set begins with, since one of which no machine is
        ready makes none."""
        names = [f"master-{index}" for index in range(count)]
        for name, zone in zip(names, (*DOMAINS, "eu-west-1a", "eu-west-1b"), strict=False):
            spec = {**self.machine_class.provider_spec, **(DOMAINS[zone] if zones else {})}
            state = MachineState(
                name=name,
                cluster=self.cluster,
                spec=MachineSpec.model_validate({"class": {"name": "c1"}}),
                machine_class=self.machine_class.model_copy(update={"provider_spec": spec}),
                queue_prefix=self.cluster,
            )
            options = starts.of_machine(state, reason="", created=datetime.now(UTC))
            await self.client.start_workflow(PlayedHost.run, state, **options)
        self.nodes = [ControlPlaneNode(name=f"node-{name}", machine=name) for name in names]
        return names

    async def ready(
        self, spec: ControlPlaneSpec | None = None, zones: bool = False, habits: tuple[str, ...] = ()
    ) -> list[str]:
        """Starts the control plane over machines made by hand, and waits until all are its own. `habits`: of those
        that it makes."""
        names = await self.by_hand(zones=zones)
        await self.start(spec, snapshot(habits=habits))
        await self.done()
        self.nodes = []
        return names

    # -- what it says -------------------------------------------------------------------------------------------------

    async def state(self) -> ControlPlaneState:
        found: ControlPlaneState = await asked(self.handle, ControlPlaneWorkflow.describe)
        return found

    async def summary(self) -> ControlPlaneSummary:
        found: ControlPlaneSummary = await asked(self.handle, ControlPlaneWorkflow.summary)
        return found

    async def when(self, until: Callable[[ControlPlaneState], object], what: str) -> ControlPlaneState:
        return await eventually(self.state, until, f"control plane: {what}")

    async def done(self, machines: int = 3, revision: int = 0, without: Sequence[str] = ()) -> ControlPlaneSummary:
        """`without`: machines that are gone by then."""

        def over(s: ControlPlaneSummary) -> bool:
            gone = not any(h.name in without for i in s.indexes for h in i.hosts)
            held = s.state == "Inactive" or s.template_pending == 0
            return s.rolled_out and s.machines == machines and s.revision >= revision and gone and held

        return await eventually(self.summary, over, f"{machines} machines, each up to date")

    async def phase(self) -> str:
        described = await self.handle.describe()
        return described.typed_search_attributes.get(at.PHASE) or ""

    async def members(self, prefix: str = "", count: int = 0) -> list[str]:
        """Its machines whose names begin so; `count`: once there are so many."""

        def named(s: ControlPlaneState) -> list[str]:
            return sorted(n for n in s.members if n.startswith(prefix))

        least = count or bool(prefix)
        return named(await self.when(lambda s: len(named(s)) >= least, f"{least} machines {prefix}"))

    async def gone(self, name: str) -> None:
        await self.when(lambda s: name not in s.members, f"{name} is gone")

    async def machine_state(self, name: str) -> MachineState:
        return await asked(self.machine(name), PlayedHost.describe)

    async def waits(self, reason: str) -> str:
        found = await self.when(lambda s: any(w.reason == reason for w in s.waits), f"waits: {reason}")
        return next(w.message for w in found.waits if w.reason == reason)

    async def journal(self, *reasons: str) -> list[str]:
        return [h.message for h in (await self.state()).journal if h.reason in reasons]

    # -- what is done to it -------------------------------------------------------------------------------------------

    async def ask(self, name: str, intent: Intent | None = None) -> str:
        intent = (intent or Intent()).model_copy(update={"id": uuid.uuid4().hex})
        return (await intents.ask(self.handle, name, intent)).message

    async def refused(self, name: str, intent: Intent | None = None) -> str:
        try:
            answer = await self.ask(name, intent)
        except WorkflowUpdateFailedError as e:
            return str(e.cause).removeprefix("Refused: ")
        raise AssertionError(f"it was taken: {answer}")

    async def apply(self, spec: ControlPlaneSpec | None = None, machine_class: ClassSnapshot | None = None) -> str:
        self.spec, self.machine_class = spec or self.spec, machine_class or self.machine_class
        return await self.ask("apply", ApplyControlPlane(spec=self.spec, machine_class=self.machine_class))

    async def class_changed(self, machine_class: ClassSnapshot) -> None:
        self.machine_class = machine_class
        await self.handle.signal("class_changed", ClassNews(machine_class=machine_class))

    async def cluster_news(self, **news: Any) -> None:
        await self.handle.signal("cluster_news", ClusterNews(time=datetime.now(UTC), **news))

    def machine(self, name: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(machine_id(self.cluster, name))

    async def be(self, name: str, **changes: Any) -> None:
        """A member's workflow may be started a moment later than its set says that it has it."""
        await eventually(lambda: found(self.machine(name).describe()), bool, f"machine {name}")
        await self.machine(name).signal("be", changes)

    async def delete(self, *names: str, force: bool = False) -> None:
        for name in names:
            await self.machine(name).signal("delete", DeleteIntent(force=force))

    async def heard(self, name: str) -> list[str]:
        found: list[str] = await asked(self.machine(name), PlayedHost.what)
        return found

    async def end(self) -> None:
        await self.deps.close()
        for name in (await self.state()).members:
            with contextlib.suppress(Exception):
                await self.machine(name).terminate()
        replayer = Replayer(
            workflows=[ControlPlaneWorkflow],
            data_converter=data_converter,
            workflow_runner=worker.sandbox(strict=False),
        )
        await replayer.replay_workflow(await self.handle.fetch_history())
        with contextlib.suppress(Exception):
            await self.handle.terminate()

    async def over(self) -> None:
        await asyncio.wait_for(self.handle.result(), DEADLINE)

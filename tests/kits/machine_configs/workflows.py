"""The workflows of machine configs on the real server, with a cluster in memory: its MachineConfigPools, its nodes, and
daemons that do what they are told. What only needs Temporal is the real thing."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lifekit import STICKY, asked, eventually
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.configs import ConfigActivities
from machine_configs.cases import config_node, config_pool
from planners.machine_config.view import strays_of, tainted_of, view_of
from resources import starts
from resources.calls.machine_config import (
    ConfigDrainInput,
    ConfigDrainOutput,
    ConfigNews,
    ConfigsCursor,
    FindOwnersInput,
    FindOwnersOutput,
    NodeRef,
    NodesNews,
    PoolBrief,
    PoolStatusInput,
    PoolStatusOutput,
    ReadPoolInput,
    ReadStraysInput,
    SelectMachinesInput,
    SelectMachinesOutput,
    SyncInput,
    SyncOutput,
    TaintedNodes,
    TaintInput,
    TargetInput,
    TargetOutput,
    WatchConfigsInput,
)
from resources.converter import data_converter
from resources.fleet.lending import Borrowing, LendAnswer
from resources.machine_config.node import ConfigNode, DaemonState
from resources.machine_config.objects import MachineConfigPool
from resources.machine_config.state import ConfigRolloutResult, MachineConfigPoolState, MachineConfigsState
from resources.machine_config.view import ConfigPoolView, StrayNodes
from resources.names import (
    cluster_queue,
    config_pool_id,
    config_rollout_id,
    drain_queue,
    machine_configs_id,
    watch_queue,
)
from resources.settings import Settings
from resources.timings import Timings
from workflows.machine_config import ConfigRolloutWorkflow, MachineConfigPoolWorkflow, MachineConfigsWorkflow

QUICK = Timings.fast().model_copy(update={"poll": timedelta(milliseconds=100)})
POOL = "worker"
WORKFLOWS = [MachineConfigsWorkflow, MachineConfigPoolWorkflow, ConfigRolloutWorkflow]


class Configs:
    """A cluster with machine configs, on task queues of its own."""

    def __init__(self, client: Client) -> None:
        self.client, self.cluster = client, f"mc{uuid.uuid4().hex[:8]}"
        self.deps = Deps(Settings(queue_prefix=self.cluster), client)
        self.handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(config_pool_id(self.cluster, POOL))
        self.configs: WorkflowHandle[Any, Any] = client.get_workflow_handle(machine_configs_id(self.cluster))
        self.pools: dict[str, MachineConfigPool] = {}
        self.nodes: dict[str, ConfigNode] = {}
        self.statuses: list[dict[str, Any]] = []
        self.calls: list[tuple[str, Any]] = []
        self.fails: dict[str, list[Exception]] = {}
        """What the next calls of an activity fail with, after their effect."""
        self.owners: dict[str, str] = {}
        self.after_owners: Callable[[], None] = lambda: None
        """What happens when the owners of machines have just been looked up."""
        self.synced = SyncOutput()
        self.degrades: set[str] = set()
        """Nodes whose daemons fail with v1."""
        self.goes: set[str] = set()
        """Nodes that go just before they are given a config."""
        self.stands = False
        """Whether daemons do nothing."""
        self.worst = 0
        """The most nodes that were on their way at a time."""
        self.seq = itertools.count(1)
        self.version = 0

    # -- the cluster --------------------------------------------------------------------------------------------------

    def pool(self, target: str = "v1", name: str = POOL, **spec: Any) -> None:
        self.pools[name] = config_pool(name, target, **spec)

    async def target(self, config: str, **spec: Any) -> None:
        """What rendering does to the pool, and tells."""
        self.pool(config, **spec)
        self.synced = SyncOutput(pools=[self.brief(target=config, paused=bool(spec.get("paused")))])
        news = ConfigNews(epoch=int(datetime.now(UTC).timestamp() * 1000), seq=next(self.seq), kinds=["MachineConfig"])
        await self.configs.signal("configs_changed", news)

    def put(self, *nodes: ConfigNode) -> None:
        self.nodes |= {n.name: n for n in nodes}
        self.version += 1
        self.worst = max(self.worst, self.on_the_way)

    def change(self, name: str, **fields: Any) -> None:
        self.put(self.nodes[name]._replace(**fields))

    @property
    def on_the_way(self) -> int:
        return sum(n.current != n.desired or n.unschedulable for n in self.nodes.values())

    def having(self, config: str) -> list[str]:
        return sorted(n.name for n in self.nodes.values() if n.current == n.desired == config)

    async def nudge(self) -> None:
        now = datetime.now(UTC)
        news = NodesNews(epoch=int(now.timestamp() * 1000), seq=next(self.seq))
        with contextlib.suppress(RPCError):
            await self.handle.signal("nodes_changed", news)

    async def daemons(self) -> None:
        """Each node's daemon: it asks for a drain, applies its config, and asks for the end of the cordon."""
        while True:
            await asyncio.sleep(0.05)
            before = self.version
            for name in sorted(self.nodes):
                if not self.stands:
                    self._step(name)
            if self.version != before:
                await self.nudge()

    def _step(self, name: str) -> None:
        n = self.nodes[name]
        drain, uncordon = f"drain-{n.desired}", f"uncordon-{n.desired}"
        if n.current == n.desired:
            uncordoned = n.desired_drain == uncordon == n.last_drain and n.state is DaemonState.WORKING
            if uncordoned or n.state is DaemonState.DEGRADED:  # given back what it has
                self.change(name, state=DaemonState.DONE)
        elif n.desired_drain != drain:
            self.change(name, desired_drain=drain, state=DaemonState.WORKING)
        elif n.last_drain == drain:
            if name in self.degrades and n.desired == "v1":
                if n.state is not DaemonState.DEGRADED:
                    self.change(name, state=DaemonState.DEGRADED, reason="disk full", unschedulable=False)
            else:
                self.change(name, current=n.desired, desired_drain=uncordon, state=DaemonState.WORKING)

    # -- activities ---------------------------------------------------------------------------------------------------

    def _done(self, name: str, input: Any) -> None:
        self.calls.append((name, input))
        if self.fails.get(name):
            raise self.fails[name].pop(0)

    def of(self, name: str) -> list[Any]:
        return [input for called, input in self.calls if called == name]

    @activity.defn
    async def read_config_pool(self, input: ReadPoolInput) -> ConfigPoolView:
        self._done("read_config_pool", input)
        pools = [self.pools[name] for name in sorted(self.pools)]
        nodes = list(self.nodes.values())
        return view_of(input.pool, pools, nodes, input.keep, input.machines, self.version)

    @activity.defn
    async def read_stray_nodes(self, input: ReadStraysInput) -> StrayNodes:
        self._done("read_stray_nodes", input)
        return strays_of(list(self.pools.values()), list(self.nodes.values()), input.machines)

    @activity.defn
    async def read_tainted_nodes(self, input: ReadPoolInput) -> TaintedNodes:
        self._done("read_tainted_nodes", input)
        found = tainted_of(input.pool, list(self.pools.values()), self.nodes.values(), input.machines)
        return TaintedNodes(nodes=[NodeRef(name=n.name, uid=n.uid) for n in found])

    @activity.defn
    async def target_config_nodes(self, input: TargetInput) -> TargetOutput:
        for name in self.goes & {n.name for n in input.nodes}:
            self.nodes.pop(name, None)
        gone = [n.name for n in input.nodes if n.name not in self.nodes]
        for wanted in input.nodes:
            node = self.nodes.get(wanted.name)
            if node is not None and node.uid == wanted.uid and node.desired in (wanted.was, input.config):
                self.change(node.name, desired=input.config)
        self._done("target_config_nodes", input)
        return TargetOutput(targeted=[n.name for n in input.nodes if n.name not in gone], gone=gone)

    @activity.defn
    async def set_update_taints(self, input: TaintInput) -> None:
        for refs, on in ((input.on, True), (input.off, False)):
            for ref in refs:
                if ref.name in self.nodes:
                    self.change(ref.name, tainted=on)
        self._done("set_update_taints", input)

    @activity.defn
    async def write_pool_status(self, input: PoolStatusInput) -> PoolStatusOutput:
        self.statuses.append(input.status)
        done = input.status.get("configuration")
        if done and input.pool in self.pools:
            raw = self.pools[input.pool].to_dict()
            raw["status"]["configuration"] = done
            self.pools[input.pool] = MachineConfigPool.of_dict(raw)
        self._done("write_pool_status", input)
        return PoolStatusOutput(written=True)

    @activity.defn
    async def drain_for_config(self, input: ConfigDrainInput) -> ConfigDrainOutput:
        self._done("drain_for_config", input)
        self.change(input.node.name, unschedulable=True, last_drain=input.request)
        return ConfigDrainOutput(answered=True)

    @activity.defn
    async def uncordon_for_config(self, input: ConfigDrainInput) -> ConfigDrainOutput:
        self._done("uncordon_for_config", input)
        self.change(input.node.name, unschedulable=False, last_drain=input.request)
        return ConfigDrainOutput(answered=True)

    @activity.defn
    async def find_owners_of_machines(self, input: FindOwnersInput) -> FindOwnersOutput:
        self._done("find_owners_of_machines", input)
        output = FindOwnersOutput(owners={m: self.owners.get(m, "") for m in input.machines})
        self.after_owners()
        return output

    @activity.defn
    async def select_machines(self, input: SelectMachinesInput) -> SelectMachinesOutput:
        self._done("select_machines", input)
        return SelectMachinesOutput(
            machines=[n.machine for n in self.nodes.values() if n.machine.startswith(input.machine_set)]
        )

    @activity.defn
    async def sync_configs(self, input: SyncInput) -> SyncOutput:
        self._done("sync_configs", input)
        return self.synced

    @activity.defn
    async def watch_configs(self, input: WatchConfigsInput) -> ConfigsCursor:
        self._done("watch_configs", input)
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.1)
        return ConfigsCursor()

    # -- workers ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def worker(self, *others: type, strict: bool = False) -> AsyncIterator[None]:
        """A worker for all of it. `others`: workflows beside these."""
        real = ConfigActivities(self.deps)
        client = [
            real.start_config_pools,
            real.start_config_rollout,
            self.find_owners_of_machines,
            self.select_machines,
        ]
        nodes = [
            self.read_config_pool,
            self.read_stray_nodes,
            self.read_tainted_nodes,
            self.target_config_nodes,
            self.set_update_taints,
            self.write_pool_status,
        ]
        queues: dict[str, list[Callable[..., Any]]] = {
            cluster_queue(self.cluster, self.cluster): [*nodes, self.sync_configs],
            drain_queue(self.cluster, self.cluster): [self.drain_for_config, self.uncordon_for_config],
            watch_queue(self.cluster, self.cluster): [self.watch_configs],
        }
        async with contextlib.AsyncExitStack() as stack:
            of_workflows = Worker(
                self.client,
                task_queue=self.cluster,
                workflows=[*WORKFLOWS, *others],
                activities=client,
                interceptors=[Boundary()],
                workflow_runner=worker.sandbox(strict),
                sticky_queue_schedule_to_start_timeout=STICKY,
            )
            await stack.enter_async_context(of_workflows)
            for queue, methods in queues.items():
                made = Worker(self.client, task_queue=queue, activities=methods, interceptors=[Boundary()])
                await stack.enter_async_context(made)
            daemons = asyncio.create_task(self.daemons())
            stack.callback(daemons.cancel)
            yield

    # -- what is asked ------------------------------------------------------------------------------------------------

    async def start(self, **fields: Any) -> None:
        state = MachineConfigPoolState(
            name=POOL, cluster=self.cluster, queue_prefix=self.cluster, **{"timings": QUICK, **fields}
        )
        await self.client.start_workflow(MachineConfigPoolWorkflow.run, state, **starts.of_config_pool(state))

    async def start_configs(self, **fields: Any) -> None:
        given = {"timings": QUICK, "render_delay": timedelta(milliseconds=300), **fields}
        state = MachineConfigsState(name=self.cluster, queue_prefix=self.cluster, **given)
        await self.client.start_workflow(MachineConfigsWorkflow.run, state, **starts.of_machine_configs(state))

    async def state(self) -> MachineConfigPoolState:
        found: MachineConfigPoolState = await asked(self.handle, MachineConfigPoolWorkflow.describe)
        return found

    async def when(self, until: Callable[[MachineConfigPoolState], object], what: str = "") -> MachineConfigPoolState:
        return await eventually(self.state, until, what or "the pool")

    async def updated(self, config: str = "v1") -> MachineConfigPoolState:
        """Waits until every node has it, and the rollout is told."""
        return await self.when(
            lambda s: (
                self.having(config) == sorted(self.nodes)
                and s.counts.done == len(self.nodes)
                and not (s.reservations or s.story or s.former)
            ),
            f"every node has {config}",
        )

    async def waits(self, reason: str) -> str:
        found = await self.when(lambda s: any(w.reason == reason for w in s.waits), f"waits: {reason}")
        return next(w.message for w in found.waits if w.reason == reason)

    async def noted(self, reason: str) -> str:
        found = await self.when(lambda s: any(h.reason == reason for h in s.journal), f"journal: {reason}")
        return [h.message for h in found.journal if h.reason == reason][-1]

    async def result(self, config: str = "v1") -> ConfigRolloutResult:
        handle = self.client.get_workflow_handle(
            config_rollout_id(self.cluster, POOL, config), result_type=ConfigRolloutResult
        )
        found: ConfigRolloutResult = await handle.result()
        return found

    async def configs_state(self) -> MachineConfigsState:
        found: MachineConfigsState = await asked(self.configs, MachineConfigsWorkflow.describe)
        return found

    def brief(self, name: str = POOL, **fields: Any) -> PoolBrief:
        return PoolBrief(name=name, uid=f"uid-{name}", **fields)

    async def end(self) -> None:
        """Ends all that runs on its queue, after its histories were replayed."""
        running = f"TaskQueue = '{self.cluster}'"
        ids = [(e.id, e.run_id, e.close_time) async for e in self.client.list_workflows(running)]
        replayer = Replayer(
            workflows=WORKFLOWS,
            workflow_runner=worker.sandbox(strict=False),
            data_converter=data_converter,
        )
        ours = ("machineconfigs/", "machineconfigpool/", "configrollout/")
        for id, run, _ in ids:
            if not id.startswith(ours):
                continue
            handle = self.client.get_workflow_handle(id, run_id=run)
            await replayer.replay_workflow(await handle.fetch_history())
        for id, _, closed in ids:
            if closed is None:
                with contextlib.suppress(RPCError):
                    await self.client.get_workflow_handle(id).terminate()


@contextlib.asynccontextmanager
async def new_configs(client: Client) -> AsyncIterator[Configs]:
    configs = Configs(client)
    try:
        yield configs
    finally:
        await configs.end()


def old_nodes(count: int, says: str = "v0=v0", **fields: Any) -> list[ConfigNode]:
    return [config_node(f"n{i}", says, **fields) for i in range(count)]


@workflow.defn(name="MachineDeploymentWorkflow", sandboxed=False)
class PlayedOwner:
    """An owner that lends one machine at a time, and none before it is told to."""

    def __init__(self) -> None:
        self.lent: list[str] = []
        self.most = self.willing = 0
        self.told: list[str] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    async def lend(self, asked: Borrowing) -> None:
        known = asked.machine in self.lent
        granted = known or (bool(self.willing) and not self.lent)
        self.told.append(f"lend {asked.machine} {granted}")
        if granted and not known:
            self.lent.append(asked.machine)
        self.most = max(self.most, len(self.lent))
        cluster = workflow.info().workflow_id.split("/")[1]
        answer = LendAnswer(
            machine=asked.machine,
            owner="demo",
            granted=granted,
            message="" if granted else "its budget is spent",
            time=workflow.now(),
        )
        borrower = workflow.get_external_workflow_handle(config_pool_id(cluster, asked.borrower))
        await borrower.signal("lent", answer)

    @workflow.signal
    def give_back(self, given: Borrowing) -> None:
        self.told.append(f"back {given.machine}")
        self.lent = [m for m in self.lent if m != given.machine]

    @workflow.signal
    def be_willing(self) -> None:
        self.willing = 1

    @workflow.query
    def seen(self) -> tuple[list[str], int, list[str]]:
        return self.lent, self.most, self.told

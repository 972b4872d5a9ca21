"""What the tests of the node watch share: real Temporal, a simulated API server without controllers, a door in front of
it, and machines that only write down what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from apiserver.simulated import ADMIN_TOKEN, NODES, STRATEGIC, KubeTarget, Obj, serving
from lifekit import asked, eventually
from temporalio import workflow
from temporalio.client import Client, ListWorkflowsInput, OutboundInterceptor, SignalWorkflowInput, WorkflowHandle
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

import worker
from activities.boundary import Boundary
from activities.deps import Deps
from activities.temporal.uses import UsesActivities
from resources import attributes
from resources.clouds import indexed, provider_key
from resources.cluster.state import ClusterState
from resources.machine.facts import NodeFacts
from resources.machine.manifest import MachineSpec, SecretRef
from resources.machine.state import ClassSnapshot, MachineState
from resources.names import cluster_id, machine_id
from resources.settings import Settings, load_settings
from resources.timings import Timings
from simulator.frame import Call, FaultRule, Frame
from simulator.kube import KubeApi
from workflows.cluster import ClusterWorkflow

CLASS = "c"


@workflow.defn(name="MachineWorkflow", sandboxed=False)
class Recorder:
    """Stands for a machine: it writes down every signal of the watch, even those that a machine would drop as old."""

    def __init__(self) -> None:
        self.told: list[NodeFacts] = []
        self.over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.over)

    @workflow.signal
    def observe(self, facts: NodeFacts) -> None:
        self.told.append(facts)

    @workflow.signal
    def is_vm(self, provider_id: str) -> None:
        workflow.upsert_search_attributes([attributes.PROVIDER_ID.value_set(indexed(provider_id))])

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def describe(self) -> MachineState:
        """Its state, like that of a machine that was started without a class's workflow."""
        return MachineState(
            name="m",
            spec=MachineSpec.model_validate({"class": {"name": CLASS}}),
            machine_class=ClassSnapshot(
                name=CLASS, provider="AWS", provider_spec={"region": "eu-west-1"}, secret_ref=SecretRef(name="cloud")
            ),
        )

    @workflow.query
    def facts(self) -> list[NodeFacts]:
        return self.told


class Spy(ClientInterceptor):
    """What the watch asks of visibility, and when. `gate` holds answers back."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, list[str]]] = []
        """Keys of the VMs that were asked about."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.broken: set[str] = set()
        """Signals by name that fail once."""
        self.full: set[str] = set()
        """Machines whose workflow takes no signals of the watch."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        spy = self

        class Out(OutboundInterceptor):
            def list_workflows(self, input: ListWorkflowsInput) -> Any:
                _, asks, ids = (input.query or "").partition("HostlerProviderID IN ")
                answer = super().list_workflows(input)
                if not asks:
                    return answer

                async def held() -> AsyncIterator[Any]:
                    when = time.monotonic()
                    found = [execution async for execution in answer]
                    spy.asked.append((when, sorted(set(map(provider_key, re.findall("'([^']+)'", ids))))))
                    await spy.gate.wait()
                    for execution in found:
                        yield execution

                return held()

            async def signal_workflow(self, input: SignalWorkflowInput) -> None:
                if input.signal in spy.broken:
                    spy.broken.remove(input.signal)
                    raise ConnectionResetError("the test breaks this signal")
                if input.signal == "observe" and input.id.rpartition("/")[2] in spy.full:
                    raise RPCError("exceeded workflow execution limit for signals", RPCStatusCode.INVALID_ARGUMENT, b"")
                await super().signal_workflow(input)

        return Out(next)


class Door:
    """A port in front of the API server that can be shut: connections are cut, new ones refused."""

    def __init__(self, url: str) -> None:
        self.target = int(url.rpartition(":")[2])
        self.port = 0
        self.server: asyncio.Server | None = None
        self.pipes: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        assert self.server is not None
        self.server.close()
        for pipe in self.pipes:
            pipe.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        pair = {writer, far_writer}
        self.pipes |= pair
        try:
            with contextlib.suppress(OSError):
                await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        finally:
            self.pipes -= pair

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


class SilentDoor(Door):
    """A door that can go silent: nothing passes any longer, and nobody is told. A lost NAT entry looks like that."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.mute: set[asyncio.StreamWriter] = set()
        self.silent = False
        """While set, new connections are made, and carry nothing."""
        self.thawed = asyncio.Event()
        self.thawed.set()

    def silence(self) -> None:
        """Silences only the connections that are open now."""
        self.mute |= self.pipes

    def freeze(self) -> None:
        """Freezes it like a process that is stopped: nothing is lost, and it goes on when it is thawed."""
        self.thawed.clear()

    def thaw(self) -> None:
        self.thawed.set()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # type: ignore[override]
        try:
            while data := await reader.read(1 << 16):
                await self.thawed.wait()
                if self.silent:
                    self.mute.add(writer)  # for good: it has lost something
                if writer not in self.mute:
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


class World:
    """One cluster, its API server behind a door, and the workflows that hear of its nodes."""

    def __init__(
        self, client: Client, spy: Spy, frame: Frame, api: KubeApi, kube: KubeTarget, door: Door, file: Path
    ) -> None:
        self.client, self.spy, self.frame, self.api, self.kube, self.door = client, spy, frame, api, kube, door
        self.file = file
        self.settings: Settings = load_settings(file)
        self.name = self.settings.default_cluster
        self.started: list[WorkflowHandle[Any, Any]] = []

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with worker.running(self.client, self.settings):
            yield

    # -- workflows

    @property
    def cluster(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(cluster_id(self.name))

    async def watch(self, name: str | None = None) -> None:
        name = name or self.name
        timings = self.settings.timings
        self.started.append(
            await self.client.start_workflow(
                ClusterWorkflow.run,
                ClusterState(
                    name=name, queue_prefix=self.settings.queue_prefix, heartbeat=timings.heartbeat, looked=True
                ),
                id=cluster_id(name),
                task_queue=self.settings.queue_prefix,
            )
        )

    async def machine(
        self, name: str, cluster: str | None = None, *said: SearchAttributePair[Any]
    ) -> WorkflowHandle[Any, Any]:
        handle = await self.client.start_workflow(
            Recorder.run,
            id=machine_id(cluster or self.name, name),
            task_queue=self.settings.queue_prefix,
            search_attributes=TypedSearchAttributes(
                [
                    SearchAttributePair(attributes.CLUSTER, cluster or self.name),
                    SearchAttributePair(attributes.CLASS, CLASS),
                    *said,
                ]
            ),
        )
        self.started.append(handle)
        return handle

    async def announce(self, machine: str, provider_id: str, cluster: str | None = None) -> None:
        """The machine knows its VM, and so does visibility soon."""
        handle = self.client.get_workflow_handle(machine_id(cluster or self.name, machine))
        await handle.signal(Recorder.is_vm, provider_id)

    async def joined(self, machine: str = "m-1", node: str = "n-1", vm: str = "i-1") -> None:
        """A machine with a node that it has been told of."""
        await self.machine(machine)
        await self.announce(machine, provider_id(vm))
        await self.node(node, vm)
        await self.told(machine, 1)

    async def watched(self) -> None:
        """A machine with a node, and an open watch: only the watch tells what changes after the list."""
        await self.joined()
        await self.only_this_change("m-1", 1)

    async def undisturbed(self) -> None:
        """There was no news of trouble, and no trouble ended the activity."""
        state = await self.state()
        assert state.journal == [], state.journal
        assert state.api is not None
        assert state.api.reachable
        attempt = await self.attempt()
        assert attempt.attempt == 1, attempt

    async def reachable(self) -> bool | None:
        api = (await self.state()).api
        return api.reachable if api else None

    async def reasons(self) -> list[str]:
        return [h.reason for h in (await self.state()).journal]

    @property
    def silent_door(self) -> SilentDoor:
        assert isinstance(self.door, SilentDoor)
        return self.door

    async def state(self) -> ClusterState:
        return await asked(self.cluster, ClusterWorkflow.describe)

    async def facts(self, machine: str, cluster: str | None = None) -> list[NodeFacts]:
        handle = self.client.get_workflow_handle(machine_id(cluster or self.name, machine))
        return await asked(handle, Recorder.facts)

    async def told(self, machine: str, count: int, cluster: str | None = None) -> list[NodeFacts]:
        """All that it was told, once it is that many; more is an error."""
        look = await eventually(
            lambda: self.facts(machine, cluster), lambda seen: len(seen) >= count, f"{machine} told {count} times"
        )
        assert len(look) == count, look
        return look

    async def only_this_change(self, machine: str, before: int, node: str = "n-1") -> None:
        """Makes the one change that is news, and checks that the machine was told of nothing else."""
        await self.ready(node, False, "KubeletNotReady", f"a change {uuid.uuid4().hex}")
        seen = await self.told(machine, before + 1)
        assert "a change" in seen[-1].reason

    async def attempt(self) -> Any:
        """The pending watch activity, as Temporal describes it."""

        async def look() -> Any:
            described = await self.cluster.describe()
            pending = described.raw_description.pending_activities
            return next((p for p in pending if p.activity_type.name == "watch_nodes"), None)

        return await eventually(look)

    async def beat(self) -> dict[str, Any]:
        """What its last heartbeat said, when it has said something."""

        async def look() -> dict[str, Any]:
            payloads = (await self.attempt()).heartbeat_details.payloads
            return dict(json.loads(payloads[0].data)) if payloads else {}

        return await eventually(look, what="a heartbeat")

    # -- nodes

    async def node(self, name: str, vm: str | None, **metadata: Any) -> None:
        """A node registers, and is ready at once."""
        spec = {"providerID": provider_id(vm)} if vm else {}
        status = {"conditions": [_ready(True, "KubeletReady", "kubelet is posting ready status")]}
        await self.kube.create(NODES, {"metadata": {"name": name, **metadata}, "spec": spec, "status": status})

    async def empty(self, name: str, vm: str) -> None:
        """A Node object that no kubelet stands behind."""
        await self.kube.create(NODES, {"metadata": {"name": name}, "spec": {"providerID": provider_id(vm)}})

    async def ready(self, name: str, ready: bool, reason: str, message: str) -> None:
        """A report of the node's kubelet."""
        await self.patch(name, {"status": {"conditions": [_ready(ready, reason, message)]}}, "/status")

    async def patch(self, name: str, body: Obj, sub: str = "") -> Obj:
        found: Obj = await self.kube.patch(f"{NODES}/{name}{sub}", body, STRATEGIC)
        return found

    async def delete(self, name: str) -> None:
        await self.kube.delete(f"{NODES}/{name}")

    def fault(self, operation: str, **fields: Any) -> FaultRule:
        rule = FaultRule(service="kubernetes", operation=operation, **fields)
        self.frame.faults.append(rule)
        return rule

    def calls(self, operation: str) -> list[Call]:
        return self.frame.calls("kubernetes", operation)

    async def struck(self, rule: FaultRule) -> None:
        async def look() -> bool:
            return bool(rule.hits)

        await eventually(look, what=f"a call of {rule.operation}")


def _ready(ready: bool, reason: str, message: str) -> Obj:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": str(ready), "reason": reason, "message": message, "lastHeartbeatTime": now}


def provider_id(vm: str, where: str = "eu-west-1") -> str:
    return f"aws:///{where}/{vm}"


@contextlib.asynccontextmanager
async def new_world(temporal: Client, history: int = 4000, real: KubeTarget | None = None) -> AsyncIterator[World]:
    """A world with workers of the workflows; those of the watch are the test's. `real`: an API server other than the
    simulator's, of which the frame sees nothing."""
    spy, frame = Spy(), Frame()
    config: dict[str, Any] = {**temporal.config(), "interceptors": [spy]}
    client = Client(**config)
    async with contextlib.AsyncExitStack() as leaving:
        root = Path(leaving.enter_context(tempfile.TemporaryDirectory()))
        api = KubeApi(frame, admin_token=ADMIN_TOKEN, history=history)
        kube = real or await leaving.enter_async_context(serving(api))
        door = Door(kube.url)
        await door.open()
        leaving.callback(door.shut)
        kubeconfig = kube.kubeconfig().replace(kube.url, f"https://127.0.0.1:{door.port}")
        (root / "kubeconfig").write_text(kubeconfig)
        (root / "settings.yaml").write_text(yaml.safe_dump(_settings(heartbeat="10s" if real else "1s")))
        world = World(client, spy, frame, api, kube, door, root / "settings.yaml")
        workflows = Worker(
            client,
            task_queue=world.settings.queue_prefix,
            workflows=[ClusterWorkflow, Recorder],
            activities=[UsesActivities(Deps(world.settings, client)).find_uses],
            interceptors=[Boundary()],
            workflow_runner=worker.sandbox(strict=False),
        )
        await leaving.enter_async_context(workflows)
        try:
            yield world
        finally:
            spy.gate.set()
            for handle in world.started:
                with contextlib.suppress(RPCError):
                    await handle.terminate("the test is over")


def _settings(heartbeat: str) -> dict[str, Any]:
    """`heartbeat`: a real API server beside it leaves a busy machine's worker no time to beat every second."""
    name = f"w{uuid.uuid4().hex[:8]}"
    return {
        "queuePrefix": name,
        "defaultCluster": name,
        "clusters": {name: {"kubeconfig": "kubeconfig"}, f"{name}-b": {"kubeconfig": "kubeconfig"}},
        "worker": {"roles": ["watch"], "health": None, "metrics": None, "gracefulShutdown": "100ms"},
        "timings": {**Timings.fast().model_dump(by_alias=True, mode="json"), "heartbeat": heartbeat},
    }

"""What tests of whole lives share: a simulated cloud and cluster, a Temporal server, workers, and helpers to ask with.

A `Stack` has its own task queues and its own simulator, so that stacks do not meet on the one Temporal server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import boto3
import yaml
from paths import ROOT
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Interceptor
from typer.testing import CliRunner

import worker
from resources.errors import TOO_EARLY
from resources.machine.intents import DeleteIntent
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.manifests import Loaded, load_manifests
from resources.names import TAG_UID, class_id, cluster_id, machine_id
from resources.settings import Settings, load_settings
from resources.timings import Timings
from simulator.clouds.ec2 import Ec2
from simulator.frame import Call
from simulator.kubelet import Timings as SimulatorTimings
from simulator.server import SimulatorSettings, SimulatorThread
from workflows.machine import MachineWorkflow

T = TypeVar("T")

EXAMPLES = ROOT / "examples" / "aws"
DEADLINE = 60.0  # seconds; a passing test never waits for it
CLUSTER = "demo"


async def eventually(
    look: Callable[[], Awaitable[T]],
    until: Callable[[T], object] = bool,
    what: str = "it",
    within: float = DEADLINE,
) -> T:
    """Looks again and again until the answer is as wanted; `within` this many seconds."""
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if until(seen):
            return seen
        assert time.monotonic() < deadline, f"{what} did not come about; last seen: {seen!r:.3000}"
        await asyncio.sleep(0.05)


async def asked(handle: WorkflowHandle[Any, Any], query: Callable[[Any], T]) -> T:
    """The answer to a query; asked again while a worker that was to answer is being killed."""
    give_up = time.monotonic() + DEADLINE
    while True:
        try:
            return await handle.query(query, rpc_timeout=timedelta(seconds=10))
        except (RPCError, WorkflowQueryFailedError) as e:
            passes = e.status != RPCStatusCode.NOT_FOUND if isinstance(e, RPCError) else TOO_EARLY in str(e)
            if not passes or time.monotonic() > give_up:
                raise


def examples(name: str = "m-1", **spec: Any) -> Loaded:
    """The manifests of examples/aws, with the machine's name and fields of its spec replaced."""
    loaded = load_manifests("---\n".join(p.read_text() for p in sorted(EXAMPLES.glob("*.yaml"))), "examples/aws")
    machine = loaded.machines[0]
    machine.metadata.name = name
    machine.spec = machine.spec.model_copy(update=spec)
    return loaded


@dataclass
class Stack:
    client: Client
    simulator: SimulatorThread
    settings: Settings
    settings_file: Path
    cluster: str = CLUSTER
    canary: str = ""
    """A line of the machines' user data that nobody may see."""
    secret_key: str = ""
    started: dict[str, WorkflowHandle[Any, Any]] = field(default_factory=dict)

    # -- machines ---------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str = "m-1",
        *,
        timings: Timings | None = None,
        machine_class: ClassSnapshot | None = None,
        provider_spec: dict[str, Any] | None = None,
        secret: str = "",
        **spec: Any,
    ) -> WorkflowHandle[Any, Any]:
        """Starts a machine as the command line does, of the examples' class unless another is given; `secret`: with one
        of its own."""
        loaded = examples(name, **spec)
        snapshot = machine_class or ClassSnapshot.of(loaded.classes[0])
        if provider_spec:
            snapshot = snapshot.model_copy(update={"provider_spec": {**snapshot.provider_spec, **provider_spec}})
        if secret:
            snapshot = snapshot.model_copy(update={"secret_ref": SecretRef(name=secret)})
        machine = loaded.machines[0]
        self.started[name] = handle = await self.client.start_workflow(
            MachineWorkflow.run,
            MachineState(
                name=name,
                cluster=self.cluster,
                labels=machine.metadata.labels,
                spec=machine.spec,
                machine_class=snapshot,
                queue_prefix=self.settings.queue_prefix,
                timings=timings or self.settings.timings,
                life=1,
            ),
            id=machine_id(self.cluster, name),
            task_queue=self.settings.queue_prefix,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        return handle

    async def state(self, name: str = "m-1") -> MachineState:
        return await asked(self.started[name], MachineWorkflow.describe)

    async def phase(self, phase: Phase, name: str = "m-1") -> MachineState:
        return await eventually(lambda: self.state(name), lambda s: s.status.phase == phase, f"{name} {phase}")

    async def born(self, name: str = "m-1") -> MachineState:
        """Waits until it is decided whether it comes to life: Running or Failed."""
        decided = (Phase.RUNNING, Phase.FAILED)
        return await eventually(lambda: self.state(name), lambda s: s.status.phase in decided, f"{name} born")

    async def reason(self, reason: str, name: str = "m-1") -> MachineState:
        def waits(s: MachineState) -> bool:
            return s.status.waiting_for is not None and s.status.waiting_for.reason == reason

        return await eventually(lambda: self.state(name), waits, f"{name} waiting for {reason}")

    async def delete(self, name: str = "m-1", **fields: Any) -> Any:
        intent = DeleteIntent(id=str(uuid.uuid4()), requested_by="test", **fields)
        await self.started[name].execute_update(MachineWorkflow.delete, intent, id=intent.id)
        return await asyncio.wait_for(self.started[name].result(), DEADLINE)

    @property
    def cloud(self) -> Ec2:
        """The simulated cloud itself, as `call` of the simulator may use it."""
        cloud = self.simulator.simulator.clouds["aws"]
        assert isinstance(cloud, Ec2)
        return cloud

    # -- what the cloud and the cluster say ---------------------------------------------------------------------------

    def calls(self, operation: str, service: str = "ec2") -> list[Call]:
        return self.simulator.call(lambda: self.simulator.simulator.frame.calls(service, operation))

    def leftovers(self, uid: str) -> dict[str, list[str]]:
        """What the cloud holds with the machine's uid tag, now and without lag."""
        found = self.simulator.call(lambda: self.cloud.leftovers(TAG_UID, uid))
        return {kind: ids for kind, ids in found.items() if ids}

    def launched(self) -> list[str]:
        """Instances that the cloud has ever made."""
        ids = [i for c in self.calls("RunInstances") if not c.error for i in c.result.get("instanceIds", ())]
        return sorted(set(ids))

    def tags(self, resource: str) -> dict[str, str]:
        """Tags as they are at the cloud, whatever reads show."""
        return dict(self.simulator.call(lambda: self.cloud._tags.of(resource)))

    def ec2(self) -> Any:
        """The account's own tools, as somebody else uses them."""
        (secret,) = examples().secrets
        keys = {k: v.decode() for k, v in secret.plain().items()}
        return boto3.client(
            "ec2",
            endpoint_url=self.settings.clouds["aws"].endpoint,
            region_name="eu-west-1",
            aws_access_key_id=keys["providerAccessKeyId"],
            aws_secret_access_key=keys["providerSecretAccessKey"],
        )

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(Path(worker.sys.executable).parent / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def kubectl_beside(self, *arguments: str) -> str:
        """The same, while the worker of this process goes on: for whoever asks again and again."""
        return await asyncio.to_thread(self.kubectl, *arguments)

    @property
    def kubeconfig(self) -> Path:
        return self.settings.path(Path("kubeconfig"))

    @contextlib.asynccontextmanager
    async def worker(self, interceptors: Iterable[Interceptor] = ()) -> AsyncIterator[None]:
        async with worker.running(self.client, self.settings, interceptors):
            yield


async def hostler(stack: Stack, *arguments: str, expect: int = 0, stdin: str | None = None) -> str:
    """Runs the command in this process, which saves the second that its imports take; returns what it prints. The exit
    code is part of the contract, and an error's words follow where one is expected."""
    from starter.main import app

    def invoke() -> tuple[int, str, str]:
        done = CliRunner().invoke(app, arguments, input=stdin, env=environment(stack), prog_name="hostler")
        return done.exit_code, done.stdout, done.stderr

    # In a thread: the command has an event loop of its own, and the worker of the test needs ours.
    code, out, err = await asyncio.to_thread(invoke)
    assert code == expect, f"hostler {' '.join(arguments)}: {out}{err}"
    return out + (err if expect else "")


def environment(stack: Stack) -> dict[str, str]:
    """The environment of the `hostler` command."""
    address = stack.client.service_client.config.target_host
    return {**os.environ, "HOSTLER_SETTINGS": str(stack.settings_file), "TEMPORAL_ADDRESS": address}


def settings_for(thread: SimulatorThread, root: Path, cluster: str) -> Path:
    """Settings of a worker for one cluster of this name, with task queues of its own."""
    (root / "kubeconfig").write_text(thread.simulator.kubeconfig)
    content = {
        "queuePrefix": f"t{uuid.uuid4().hex[:8]}",
        "defaultCluster": cluster,
        "clusters": {cluster: {"kubeconfig": "kubeconfig", "fullName": "shoot--hostler--demo"}},
        "secrets": {"source": "kubernetes", "cluster": cluster},
        "clouds": {name: {"endpoint": url} for name, url in thread.cloud_urls.items()},
        "worker": {"health": None, "metrics": None, "stickyTimeout": "1s", "gracefulShutdown": "200ms"},
        "timings": Timings.fast().model_dump(by_alias=True, mode="json"),
    }
    file = root / "settings.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@contextlib.asynccontextmanager
async def new_stack(client: Client, **simulator: Any) -> AsyncIterator[Stack]:
    """A stack without workers; `simulator` are fields of SimulatorSettings."""
    thread = SimulatorThread(SimulatorSettings(cluster=CLUSTER, timings=SimulatorTimings.fast(), **simulator))
    async with contextlib.AsyncExitStack() as leaving:
        root = Path(leaving.enter_context(tempfile.TemporaryDirectory()))
        await asyncio.to_thread(thread.__enter__)  # it has a loop of its own, which must not start inside ours
        leaving.push_async_callback(asyncio.to_thread, thread.__exit__)
        file = settings_for(thread, root, CLUSTER)
        stack = Stack(client, thread, load_settings(file), file)
        await plant(stack)
        leaving.push_async_callback(end_all, stack)
        yield stack


@contextlib.asynccontextmanager
async def tenant(stack: Stack, cluster: str) -> AsyncIterator[Stack]:
    """Another cluster name and other task queues on the same simulator, for cases that run side by side."""
    with tempfile.TemporaryDirectory() as folder:
        file = settings_for(stack.simulator, Path(folder), cluster)
        other = Stack(stack.client, stack.simulator, load_settings(file), file, cluster, stack.canary, stack.secret_key)
        try:
            yield other
        finally:
            await end_all(other)


async def plant(stack: Stack) -> None:
    """The examples' Secret, with a canary in its user data."""
    (secret,) = examples().secrets
    values = secret.plain()
    stack.canary = f"canary-{uuid.uuid4().hex}"
    stack.secret_key = next(v.decode() for k, v in values.items() if "secret" in k.lower())
    values["userData"] += f"\n# {stack.canary}\n".encode()
    await write_secret(stack, secret.metadata.name, values)


async def write_secret(stack: Stack, name: str, values: dict[str, bytes]) -> None:
    from activities.kube.client import ApiServers, secret_path

    clusters = ApiServers(stack.settings)
    try:
        kube = await clusters.get(stack.cluster)
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {k: v.decode() for k, v in values.items()},
        }
        if await kube.find(secret_path("default", name)):
            await kube.merge_patch(secret_path("default", name), body)
        else:
            await kube.create(secret_path("default"), body)
    finally:
        await clusters.close()


async def end_all(stack: Stack) -> None:
    """Leaves no trace of the workflows of a test that is over. The next stack has the same names, and a cluster that
    was only terminated would be begun again there with its last state: its pause, its journal, its troubles."""
    ids = {handle.id for handle in stack.started.values()} | {cluster_id(stack.cluster)}
    ids |= {class_id(stack.cluster, c.metadata.name) for c in examples().classes}
    await asyncio.gather(*(forget(stack.client, id) for id in ids))
    await end_running(stack)


async def end_running(stack: Stack) -> None:
    """Ends what runs, also what nobody here has started: machines of pools, stories of rollouts. Their histories can
    still be read."""
    query = f"TaskQueue='{stack.settings.queue_prefix}' AND ExecutionStatus='Running'"
    with contextlib.suppress(Exception):
        async for found in stack.client.list_workflows(query):
            with contextlib.suppress(Exception):
                await stack.client.get_workflow_handle(found.id).terminate("the test is over")


async def forget(client: Client, workflow_id: str) -> None:
    """Ends the workflow, and returns when the server knows nobody of this id; one that came to its own end is left as
    it is.

    The server deletes a running workflow at once, and a closed one only after a minute: so one that somebody has
    terminated gets a successor first, which nobody serves.
    """
    handle = client.get_workflow_handle(workflow_id)
    execution = WorkflowExecution(workflow_id=workflow_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)

    async def gone() -> bool:
        try:
            if (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED:
                return True
            running = WorkflowIDConflictPolicy.USE_EXISTING
            await client.start_workflow("Forgotten", id=workflow_id, task_queue="nobody", id_conflict_policy=running)
            await client.workflow_service.delete_workflow_execution(request)
        except RPCError as e:
            return e.status == RPCStatusCode.NOT_FOUND  # a busy server is asked again
        return False

    await eventually(gone, what=f"the end of {workflow_id}")

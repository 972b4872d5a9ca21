"""What tests of whole lives share: a simulated cloud and cluster, a Temporal server, workers, and helpers to ask with.

A `Stack` has its own task queues and its own simulator, so that stacks do not meet on the one Temporal server.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
import json
import os
import random
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import boto3
import yaml
from paths import ROOT
from simulated.support import leftovers
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, DescribeWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Interceptor
from typer.testing import CliRunner

import worker
from resources.clouds import PROVIDERS, Provider, TagRules
from resources.errors import TOO_EARLY
from resources.machine.intents import DeleteIntent
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.manifests import Loaded, load_manifests
from resources.names import TAG_UID, class_id, cluster_id, machine_id
from resources.settings import Settings, load_settings
from resources.timings import Timings
from simulator.clouds import CloudResource
from simulator.frame import Call
from simulator.kubelet import Timings as SimulatorTimings
from simulator.server import CloudSettings, SimulatorSettings, SimulatorThread
from workflows.machine import MachineWorkflow

T = TypeVar("T")

EXAMPLES = ROOT / "examples" / "aws"
DEADLINE = 60.0  # seconds; a passing test never waits for it
CLUSTER = "demo"
STICKY = timedelta(seconds=1)
"""How long a task waits for the worker that has its run cached: the SDK's ten are lost after each worker that goes."""


async def eventually(
    look: Callable[[], Awaitable[T]],
    until: Callable[[T], object] = bool,
    what: str = "it",
    within: float = DEADLINE,
) -> T:
    """Looks again and again until the answer is as wanted; `within` this many seconds, in which a computer that is not
    busy has three looks each. On one that is starved a look takes seconds, as does all that is waited for: it has two
    looks for each second all the same. A look that a busy server has not answered is no answer.

    The longer it has waited, the less often it looks: a question to a workflow takes 14 ms of a core, a quarter of it
    where twenty are asked in a second."""
    began, looks = time.monotonic(), 0
    while True:
        seen: T | RPCError
        try:
            seen = await look()
            if until(seen):
                return seen
        except RPCError as e:
            if e.status not in BUSY:
                raise
            seen = e
        looks += 1
        waited = time.monotonic() - began
        assert waited < within or looks < 2 * within, f"{what} did not come about; last seen: {seen!r:.3000}"
        await asyncio.sleep(min(0.2, 0.03 + 0.15 * waited))


BUSY = (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED)


async def result_of(handle: WorkflowHandle[Any, Any]) -> Any:
    """What the workflow ends with, once it has ended."""
    await eventually(
        handle.describe, lambda d: d.status is not WorkflowExecutionStatus.RUNNING, f"the end of {handle.id}"
    )
    return await handle.result()


async def asked(handle: WorkflowHandle[Any, Any], query: Callable[[Any], T]) -> T:
    """The answer to a query; asked again while a worker that was to answer is being killed.

    While its history is as long as it was, a workflow is what it was, and its last answer is given again, which nobody
    may change: the length costs the server and us a quarter of what an answer costs, and whoever waits asks five times
    a second. After FRESH seconds a worker has to answer again: while one is coming up, nobody counts looks at what
    cannot change.
    """
    give_up = time.monotonic() + DEADLINE
    while True:
        try:
            point = await _point(handle)
            now = time.monotonic()
            if (before := _answers.get((handle.id, query))) and before[0] == point and now < before[2] + FRESH:
                return cast(T, before[1])
            answer = await handle.query(query, rpc_timeout=timedelta(seconds=10))
            if len(_answers) > 200:
                _answers.clear()  # those of tests that are over
            _answers[handle.id, query] = point, answer, time.monotonic()
            return answer
        except (RPCError, WorkflowQueryFailedError) as e:
            passes = e.status != RPCStatusCode.NOT_FOUND if isinstance(e, RPCError) else TOO_EARLY in str(e)
            if not passes or time.monotonic() > give_up:
                raise


FRESH = 5.0
_answers: dict[tuple[str, Any], tuple[tuple[str, int], Any, float]] = {}
"""The last answer by workflow and query, the point of its history that it is at least as new as, and when it came."""


async def _point(handle: WorkflowHandle[Any, Any]) -> tuple[str, int]:
    """The run, and how many events it has."""
    execution = WorkflowExecution(workflow_id=handle.id, run_id=handle.run_id or "")
    request = DescribeWorkflowExecutionRequest(namespace=handle._client.namespace, execution=execution)
    described = await handle._client.workflow_service.describe_workflow_execution(
        request, timeout=timedelta(seconds=10), retry=True
    )
    info = described.workflow_execution_info
    return info.execution.run_id, info.history_length


@functools.cache
def examples_of(cloud: str) -> Loaded:
    """The manifests of a cloud's example, which nobody may change."""
    files = sorted((ROOT / "examples" / cloud).glob("*.yaml"))
    return load_manifests("---\n".join(file.read_text() for file in files), f"examples/{cloud}")


def examples(name: str = "m-1", cloud: str = "aws", **spec: Any) -> Loaded:
    """The manifests of a cloud's example, with the machine's name and fields of its spec replaced."""
    loaded = copy.deepcopy(examples_of(cloud))
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
    home: str = "aws"
    """The cloud in whose example's words its machines are made, by its name in the settings."""
    canary: str = ""
    """A line of the machines' user data that nobody may see."""
    secret_key: str = ""
    """A part of the credentials that nobody may see."""
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
        loaded = examples(name, self.home, **spec)
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
        return await result_of(self.started[name])

    @property
    def cloud(self) -> Any:
        """The simulated cloud that its machines are in, as `call` of the simulator may use it: a simulator.clouds.Cloud
        and what else that one has."""
        return self.simulator.simulator.clouds[self.home]

    @property
    def provider(self) -> Provider:
        return next(provider for name, provider in PROVIDERS.items() if name.lower() == self.home)

    @property
    def tag_rules(self) -> TagRules:
        return self.provider.spec.TAGS

    # -- what the cloud and the cluster say ---------------------------------------------------------------------------

    def calls(self, operation: str, service: str = "ec2") -> list[Call]:
        return self.simulator.call(lambda: self.simulator.simulator.frame.calls(service, operation))

    def resources(self) -> list[CloudResource]:
        """What was made in all clouds, VMs that are gone included."""
        clouds = self.simulator.simulator.clouds.values()
        return self.simulator.call(lambda: [resource for cloud in clouds for resource in cloud.resources()])

    def leftovers(self, uid: str) -> dict[str, list[str]]:
        """What the cloud holds with the machine's uid tag, now and without lag."""
        return leftovers(self.resources(), self.tag_rules.key(TAG_UID), uid)

    def launched(self) -> list[str]:
        """VMs that were ever made."""
        return sorted(resource.id for resource in self.resources() if resource.vm)

    def tags(self, resource: str) -> dict[str, str]:
        """Tags as they are at the cloud, whatever reads show."""
        return next((found.tags for found in self.resources() if found.id == resource), {})

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


async def hostler(
    stack: Stack, *arguments: str, expect: int = 0, stdin: str | None = None, errors: bool = False
) -> str:
    """Runs the command in this process; returns what it prints. The exit code is part of the contract, and what it says
    on standard error follows where an error is expected, or asked for."""
    code, out, err = await command(arguments, environment(stack), stdin)
    assert code == expect, f"hostler {' '.join(arguments)}: {out}{err}"
    return out + (err if expect or errors else "")


_one_command = threading.Lock()
"""A command that runs in this process has the process's standard output for itself."""


async def command(
    arguments: Iterable[str], environment: Mapping[str, str | None], stdin: str | None = None
) -> tuple[int, str, str]:
    """Runs the command in this process, which saves the second that its imports take: its exit code and output."""
    from starter.main import app

    def invoke() -> tuple[int, str, str]:
        with _one_command:
            done = CliRunner().invoke(app, list(arguments), input=stdin, env=environment, prog_name="hostler")
        return done.exit_code, done.stdout, done.stderr

    # In a thread: the command has an event loop of its own, and the worker of the test needs ours.
    return await asyncio.to_thread(invoke)


def environment(stack: Stack) -> dict[str, str]:
    """The environment of the `hostler` command."""
    address = stack.client.service_client.config.target_host
    return {**os.environ, "HOSTLER_SETTINGS": str(stack.settings_file), "TEMPORAL_ADDRESS": address}


def an_etcd() -> dict[str, Any]:
    """Settings of an etcd that may come to be (etcd/fake.py): a worker reads them when it starts."""
    address = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
    files = {"certificate": "etcd/client.crt", "key": "etcd/client.key", "authority": "etcd/ca.crt"}
    return {"endpoints": [f"https://{address}:2379"], **files}


def settings_for(thread: SimulatorThread, root: Path, cluster: str, **of_cluster: Any) -> Path:
    """Settings of a worker for one cluster of this name, with task queues of its own."""
    (root / "kubeconfig").write_text(thread.simulator.kubeconfig)
    content = {
        "queuePrefix": f"t{uuid.uuid4().hex[:8]}",
        "defaultCluster": cluster,
        "clusters": {cluster: {"kubeconfig": "kubeconfig", "fullName": "shoot--hostler--demo", **of_cluster}},
        "secrets": {"source": "kubernetes", "cluster": cluster},
        # What a call without an answer has made is looked for after this time.
        "clouds": {name: {"endpoint": url, "callTimeout": "8s"} for name, url in thread.cloud_urls.items()},
        "worker": {"health": None, "metrics": None, "stickyTimeout": "1s", "gracefulShutdown": "200ms"},
        "timings": Timings.fast().model_dump(by_alias=True, mode="json"),
    }
    file = root / "settings.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@contextlib.asynccontextmanager
async def new_stack(
    client: Client, clouds: Iterable[str] = (), home: str = "aws", **simulator: Any
) -> AsyncIterator[Stack]:
    """A stack without workers, whose machines are made at `home`; `clouds`: those that there are, unless that one
    alone; `simulator`: fields of SimulatorSettings."""
    served = {name: CloudSettings() for name in clouds or (home,)}
    timings = SimulatorTimings.fast()
    thread = SimulatorThread(SimulatorSettings(cluster=CLUSTER, timings=timings, clouds=served, **simulator))
    async with contextlib.AsyncExitStack() as leaving:
        root = Path(leaving.enter_context(tempfile.TemporaryDirectory()))
        await asyncio.to_thread(thread.__enter__)  # it has a loop of its own, which must not start inside ours
        leaving.push_async_callback(asyncio.to_thread, thread.__exit__)
        file = settings_for(thread, root, CLUSTER)
        stack = Stack(client, thread, load_settings(file), file, home=home)
        await plant(stack)
        leaving.push_async_callback(end_all, stack)
        yield stack


@contextlib.asynccontextmanager
async def tenant(stack: Stack, cluster: str, **of_cluster: Any) -> AsyncIterator[Stack]:
    """Another cluster name and other task queues on the same simulator, for cases that run side by side; `of_cluster`:
    more of the cluster's settings."""
    with tempfile.TemporaryDirectory() as folder:
        file = settings_for(stack.simulator, Path(folder), cluster, etcd=an_etcd(), **of_cluster)
        other = dataclasses.replace(
            stack, settings=load_settings(file), settings_file=file, cluster=cluster, started={}
        )
        try:
            yield other
        finally:
            await end_all(other)


async def plant(stack: Stack) -> None:
    """The examples' Secret, with a canary in its user data."""
    (secret,) = examples_of(stack.home).secrets
    values = dict(secret.plain())
    stack.canary = f"canary-{uuid.uuid4().hex}"
    proof = next(v.decode() for k, v in values.items() if "secret" in k.lower() or k == "serviceAccountJSON")
    stack.secret_key = json.loads(proof)["private_key"].splitlines()[1] if proof.startswith("{") else proof
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
    ids |= {class_id(stack.cluster, c.metadata.name) for c in examples_of(stack.home).classes}
    await asyncio.gather(*(forget(stack.client, id) for id in ids))
    await end_running(stack)


async def end_running(stack: Stack) -> None:
    """Ends what runs, also what nobody here has started: machines of pools, stories of rollouts. Their histories can
    still be read."""
    await end_running_of(stack.client, stack.settings.queue_prefix)


async def end_running_of(client: Client, queue: str) -> None:
    """The same for what runs on a task queue of its own."""
    with contextlib.suppress(Exception):
        async for found in client.list_workflows(f"TaskQueue='{queue}' AND ExecutionStatus='Running'"):
            with contextlib.suppress(Exception):
                await client.get_workflow_handle(found.id).terminate("the test is over")


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

"""Activities, one attempt at a time: real drivers on simulated clouds and API server, no Temporal server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from apiserver.simulated import LEASES, NODES, SECRETS, Obj, World, new_world
from clouds.drivers import AwsCloud, Given, aws, calls, machine, mutating
from temporalio.api.workflow.v1 import WorkflowExecutionExtendedInfo
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import RetryPolicy, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.boundary import Boundary
from activities.cloud.machine import MachineActivities
from activities.deps import Deps
from activities.kube.tokens import token_id
from planners.machine.creation import token_of
from resources.attributes import PHASE, PROVIDER_ID
from resources.calls.cloud import CreateInput, CreateOutput
from resources.calls.machine import MachineRef, Target
from resources.clouds import indexed
from resources.errors import NOT_YET
from resources.machine.manifest import SecretRef
from resources.machine.state import Phase
from resources.names import machine_id
from resources.settings import CloudSettings, ClusterSettings, SecretsSettings, Settings

P = TypeVar("P")
R = TypeVar("R")

CLUSTER = "demo"
CONSISTENCY = timedelta(seconds=60)


class Innermost(ActivityInboundInterceptor):
    """The innermost interceptor: the activity itself."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return await input.fn(*input.args)


async def once(method: Callable[[P], Awaitable[R]], input: P) -> R:
    """One attempt behind the boundary, as a worker makes it."""
    execution = Boundary().intercept_activity(Innermost())
    call = ExecuteActivityInput(fn=method, args=[input], executor=None, headers={})
    output: R = await ActivityEnvironment().run(execution.execute_activity, call)
    return output


class NoServer:
    """Stands in place of Temporal's client and writes down what it is asked to do."""

    def __init__(self) -> None:
        self.service_client = SimpleNamespace(config=SimpleNamespace(runtime=None))
        self.started: list[str] = []
        self.signals: list[tuple[Any, ...]] = []
        self.owners: dict[str, str] = {}
        """What the memo of clusters says; `described` asks for Temporal's own."""
        self.described: list[str] = []
        self.vms: dict[str, str] = {}
        """Workflows of machines that run, with their VMs."""
        self.beats: list[Any] = []
        """Heartbeats that were sent and awaited."""
        self.phase, self.status = str(Phase.PENDING), WorkflowExecutionStatus.RUNNING
        """Phase and status of the machine whose activities run."""
        self.first_run = "run"
        """The first run of its chain."""

    async def start_workflow(self, workflow: str, *_: Any, **options: Any) -> Any:
        self.started.append(options["id"])
        return SimpleNamespace(result_run_id="run")

    def get_workflow_handle(self, id: str, run_id: str | None = None) -> Any:
        async def signal(name: str, *arguments: Any, args: Sequence[Any] = ()) -> None:
            self.signals.append((name, *arguments, *args))

        async def memo_value(key: str, default: Any, type_hint: type) -> Any:
            return self.owners or default

        async def describe() -> Any:
            self.described.append(id)
            info = SimpleNamespace(first_run_id=self.first_run)
            raw = SimpleNamespace(workflow_execution_info=info, workflow_extended_info=WorkflowExecutionExtendedInfo())
            pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(PHASE, self.phase)]
            if id in self.vms:
                pairs.append(SearchAttributePair(PROVIDER_ID, indexed(self.vms[id])))
            over = run_id is None and id.startswith("machine/") and id not in self.vms
            return SimpleNamespace(
                status=WorkflowExecutionStatus.COMPLETED if over else self.status,
                close_time=None,
                raw_description=raw,
                memo_value=memo_value,
                typed_search_attributes=TypedSearchAttributes(pairs),
            )

        return SimpleNamespace(signal=signal, describe=describe, id=id)

    async def count_workflows(self, query: str) -> Any:
        return SimpleNamespace(count=len(self.vms))

    def get_async_activity_handle(self, *, task_token: bytes) -> Any:
        async def heartbeat(details: Any) -> None:
            self.beats.append(details)

        return SimpleNamespace(heartbeat=heartbeat)


@dataclass
class Attempts:
    world: World
    cloud: AwsCloud
    deps: Deps
    client: NoServer
    heartbeat: tuple[Any, ...] = ()
    """The last attempt's heartbeat, which the next one finds."""
    tried: int = field(default=0)
    policy: RetryPolicy | None = None
    longest: timedelta | None = None
    """An attempt's time; None: a second, as the SDK's environment for tests has it."""

    async def attempt(
        self,
        method: Callable[[P], Awaitable[R]],
        input: P,
        at: datetime | None = None,
        scheduled: datetime | None = None,
    ) -> R:
        """Makes one attempt, which the server starts at a time by its own clock, by default the worker's."""
        self.tried += 1
        started = at or datetime.now(UTC)
        environment = ActivityEnvironment()
        environment.info = replace(
            environment.info,
            attempt=self.tried,
            retry_policy=self.policy,
            heartbeat_details=self.heartbeat,
            start_to_close_timeout=self.longest or environment.info.start_to_close_timeout,
            started_time=started,
            current_attempt_scheduled_time=started,
            scheduled_time=scheduled or started,
        )
        environment.on_heartbeat = self._beat
        execution = Boundary().intercept_activity(Innermost())
        call = ExecuteActivityInput(fn=method, args=[input], executor=None, headers={})
        output: R = await environment.run(execution.execute_activity, call)
        return output

    async def waits(self, method: Callable[[P], Awaitable[Any]], input: P, at: datetime | None = None) -> str:
        """The words of an attempt that found that the work is not over."""
        failure = await self.fails(method, input, at)
        assert failure.type == NOT_YET, failure
        return failure.message

    async def fails(
        self, method: Callable[[P], Awaitable[Any]], input: P, at: datetime | None = None
    ) -> ApplicationError:
        with pytest.raises(ApplicationError) as caught:
            await self.attempt(method, input, at)
        return caught.value

    def _beat(self, *details: Any) -> None:
        self.heartbeat = details

    # -- the machine

    def given(self, **spec: Any) -> Given:
        return machine(self.cloud, "worker-1", CLUSTER, **spec)

    def target(self, given: Given, provider_id: str | None = None) -> Target:
        return Target(
            machine=ref(given),
            provider=self.cloud.provider,
            provider_spec=given.spec,
            secret_ref=SecretRef(name="credentials"),
            provider_id=provider_id,
            token=given.token,
            consistency=CONSISTENCY,
            poll=timedelta(seconds=5),
        )

    def runs(self, given: Given, provider_id: str) -> None:
        """The machine has a workflow, and knows its VM."""
        self.client.vms[machine_id(CLUSTER, given.machine.name)] = provider_id

    # -- its node

    async def node(self, name: str, provider_id: str = "", ready: str = "", **metadata: Any) -> Obj:
        """A node registers, with a providerID and a Ready condition where they are given."""
        spec = {"providerID": provider_id} if provider_id else {}
        status = {"conditions": [{"type": "Ready", "status": ready}]} if ready else {}
        body = {"metadata": {"name": name, **metadata}, "spec": spec, "status": status}
        made: Obj = await self.world.kube.create(NODES, body)
        return made

    async def lease(self, name: str, renewed: str) -> None:
        spec = {"holderIdentity": name, "renewTime": renewed}
        await self.world.kube.create(LEASES, {"metadata": {"name": name}, "spec": spec})


def ref(given: Given) -> MachineRef:
    return MachineRef(cluster=CLUSTER, name=given.machine.name, uid=given.machine.uid)


@pytest.fixture(scope="module")
def running() -> Iterator[AwsCloud]:
    with aws() as cloud:
        yield cloud


@pytest.fixture
async def attempts(running: AwsCloud, tmp_path: Path) -> AsyncIterator[Attempts]:
    running.reset()
    async with new_attempts(running, tmp_path) as attempts:
        yield attempts


@asynccontextmanager
async def new_attempts(cloud: AwsCloud, root: Path) -> AsyncIterator[Attempts]:
    secret = root / "secrets" / "default" / "credentials"
    secret.mkdir(parents=True)
    for key, value in cloud.secret.items():
        (secret / key).write_text(value.get_secret_value())
    (secret / "userData").write_text("#cloud-config\n# <<BOOTSTRAP_TOKEN>>\n")
    async with new_world() as world:
        (root / "kubeconfig").write_text(world.kube.kubeconfig())
        settings = Settings(
            installation="here",
            clusters={CLUSTER: ClusterSettings(kubeconfig=root / "kubeconfig")},
            secrets=SecretsSettings(source="directory", directory=root / "secrets"),
            clouds={cloud.provider.lower(): CloudSettings(endpoint=cloud.endpoint)},
        )
        client = NoServer()
        deps = Deps(settings, client)  # type: ignore[arg-type]
        try:
            yield Attempts(world, cloud, deps, client)
        finally:
            await deps.close()


# -- one machine's creation and end -----------------------------------------------------------------------------------

USER_DATA = "#cloud-config\n# <<BOOTSTRAP_TOKEN>> of <<MACHINE_NAME>>\n"


@dataclass
class OneMachine:
    attempts: Attempts
    given: Given
    secret: Path
    """The folder that holds the class's Secret."""

    @property
    def cloud(self) -> AwsCloud:
        return self.attempts.cloud

    @property
    def world(self) -> World:
        return self.attempts.world

    @property
    def ref(self) -> MachineRef:
        return ref(self.given)

    def named(self, name: str) -> OneMachine:
        """The same machine under another name."""
        identity = self.given.machine.model_copy(update={"name": name})
        return OneMachine(self.attempts, Given(self.cloud, identity, self.given.spec), self.secret)

    def target(self, number: int = 1) -> Target:
        target = self.attempts.target(self.given)
        return target.model_copy(update={"token": token_of(self.given.machine.uid, number)})

    async def create(self, number: int = 1, started: datetime | None = None, **more: Any) -> CreateOutput:
        """Makes one try of attempt `number`; `more` of its input."""
        now = datetime.now(UTC)
        input = CreateInput(
            target=self.target(number),
            attempt=number,
            started=started or now,
            deadline=now + timedelta(minutes=20),
            **more,
        )
        return await self.attempts.attempt(MachineActivities(self.attempts.deps).create_machine, input)

    def launches(self) -> int:
        """Calls that ask for a VM."""
        return len(calls(self.cloud, "RunInstances"))

    def changes(self) -> list[str]:
        return mutating(self.cloud)

    def living(self) -> list[str]:
        return self.cloud.living(self.given.machine.uid)

    async def nodes(self) -> list[str]:
        return sorted(n["metadata"]["name"] for n in (await self.world.kube.get(NODES))["items"])

    def token_path(self, number: int = 1) -> str:
        return f"{SECRETS}/bootstrap-token-{token_id(self.given.machine.uid, number)}"


def one_machine(attempts: Attempts, root: Path) -> OneMachine:
    secret = root / "secrets" / "default" / "credentials"
    (secret / "userData").write_text(USER_DATA)
    identity = attempts.given().machine.model_copy(update={"name": "m-1", "uid": str(uuid.uuid4())})
    return OneMachine(attempts, Given(attempts.cloud, identity, attempts.cloud.spec()), secret)


def instance(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]

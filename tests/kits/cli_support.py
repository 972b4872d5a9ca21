"""What the tests of the command line and of the SDK share: a stand-in for MachineWorkflow with the same contract (its
messages, attributes and result), so that they test only the entry point, and the real `hostler` in a process of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from typer.testing import CliRunner

from activities.deps import Deps
from activities.temporal.classes import ClassActivities
from resources import attributes
from resources.cluster.state import ClusterState
from resources.errors import NOT_PRESERVED, NOT_YET
from resources.intents import Answer, Intent
from resources.journal import Happening
from resources.machine.intents import DeleteIntent
from resources.machine.preservation import (
    ExtendIntent,
    PreservedBy,
    PreserveIntent,
    PreserveRequest,
    PreserveValue,
    ReleaseIntent,
)
from resources.machine.state import (
    ApplyIntent,
    Deletion,
    LastOperation,
    MachineResult,
    MachineState,
    OperationState,
    OperationType,
    Phase,
    WaitingFor,
)
from resources.machine_class.state import ClassNews, ClassReport, UpdateState
from resources.names import class_id
from resources.settings import load_settings
from starter.sdk import intents, live
from workflows.machine_class import MachineClassWorkflow

DEADLINE = 60.0  # seconds; a passing test never waits for it
HOSTLER = Path(sys.executable).parent / "hostler"
BLOCKER = "2 of 3 pods gone; default/web-1 blocked by PDB web"

# Labels that tell the stand-in what to play.
BECOMES = "play/becomes"
KEEPS = "play/keeps"
DRAINS = "play/drains"
REFUSES = "play/refuses"
UPDATE_FAILS = "play/update-fails"


@activity.defn
async def drain_node(mode: str) -> None:
    """Never done: `blocked` fails every pass with the blocker, `silent` says it by heartbeat and then nothing."""
    if mode == "silent" and activity.info().attempt == 1:
        activity.heartbeat({"message": BLOCKER})
        await asyncio.Event().wait()
    raise ApplicationError(
        BLOCKER, type=NOT_YET, next_retry_delay=timedelta(hours=1), category=ApplicationErrorCategory.BENIGN
    )


@workflow.defn(name="MachineWorkflow")
class PlayedMachine:
    @workflow.init
    def __init__(self, state: MachineState) -> None:
        self.state = state
        self.again = False
        self.reported = ""
        if not state.uid:
            state.uid = str(workflow.uuid4())
            state.created = workflow.now()
            self.journal("Created", f"machine {state.name} begins")

    @workflow.run
    async def run(self, state: MachineState) -> MachineResult:
        labels = state.labels
        self.become(Phase(labels.get(BECOMES, Phase.RUNNING)))
        if DRAINS in labels:
            workflow.start_activity(
                drain_node,
                labels[DRAINS],
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=timedelta(seconds=1),
                retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), backoff_coefficient=1),
                summary=f"drain the node of {state.name}",
            )
        await self.report()
        while not self.again and self.state.deletion is None:
            await workflow.wait_condition(
                lambda: self.again or self.state.deletion is not None or self.reported != self.generation()
            )
            await self.report()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self.again:
            workflow.continue_as_new(self.state)
        await self.tell_class(self.state.spec.class_.name, "forget_user", state.name)
        self.become(Phase.TERMINATING)
        self.journal("Gone", "nothing is left")
        kept = [labels[KEEPS]] if KEEPS in labels else []
        return MachineResult(
            name=state.name, cluster=state.cluster, uid=self.state.uid, kept=kept, journal=self.state.journal
        )

    def generation(self) -> str:
        snapshot = self.state.machine_class
        return f"{snapshot.name}/{snapshot.generation}" if snapshot else ""

    async def report(self) -> None:
        """Reports directly. The real one does so through an activity, which would stand among the pending ones here."""
        snapshot, state = self.state.machine_class, self.state
        if snapshot is None or self.reported == self.generation():
            return
        left, self.reported = self.reported.partition("/")[0], self.generation()
        if left not in ("", snapshot.name):
            await self.tell_class(left, "forget_user", state.name)
        fails = UPDATE_FAILS in state.labels and snapshot.generation > 1
        report = ClassReport(
            user=state.name,
            generation=snapshot.generation,
            applied=snapshot.generation - fails,
            state=UpdateState.FAILED if fails else UpdateState.UPDATED,
            reason="NotAuthorized" if fails else "",
            message="may not create tags" if fails else "",
            next_try=workflow.now() + timedelta(minutes=10) if fails else None,
            time=workflow.now(),
        )
        await self.tell_class(snapshot.name, "report", report)

    async def tell_class(self, name: str, signal: str, value: Any) -> None:
        handle = workflow.get_external_workflow_handle(class_id(self.state.cluster, name))
        with contextlib.suppress(ApplicationError):  # there is no such class
            await handle.signal(signal, value)

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        current = self.state.machine_class
        if current is None or news.machine_class.generation > current.generation:
            self.state.machine_class = news.machine_class
        else:
            self.reported = ""

    def become(self, phase: Phase) -> None:
        now, status = workflow.now(), self.state.status
        status.phase = phase
        state = OperationState.FAILED if phase is Phase.FAILED else OperationState.SUCCESSFUL
        status.last_operation = LastOperation(type=OperationType.CREATE, state=state, description="played", time=now)
        status.deadlines = {"health": now + timedelta(minutes=30)}
        status.waiting_for = WaitingFor(reason="Playing", message=f"plays {phase}", since=now)
        status.node_name, status.provider_id = f"node-{self.state.name}", f"aws:///eu-west-1/i-{self.state.name}"
        self.state.was_running |= phase is Phase.RUNNING
        self.journal(phase, f"{self.state.name} is {phase}")
        workflow.upsert_search_attributes(
            [
                attributes.PHASE.value_set(status.shown_phase),
                attributes.REASON.value_set("Playing"),
                attributes.NODE.value_set(status.node_name),
                attributes.PROVIDER_ID.value_set(status.provider_id),
                attributes.DEADLINE.value_set(status.deadlines["health"]),
            ]
        )

    def journal(self, reason: str, message: str) -> None:
        self.state.journal.append(Happening(time=workflow.now(), reason=reason, message=message))

    def once(self, intent: Intent, answer: str) -> str:
        """The first answer to an intent, however often and by whatever way it comes."""
        return self.state.intents.setdefault(intent.id, answer)

    @workflow.query
    def describe(self) -> MachineState:
        return self.state

    @workflow.signal
    def observe(self, fact: Any) -> None: ...

    @workflow.signal
    def turn(self, phase: Phase) -> None:
        """The machine falls ill, or is well again."""
        self.become(phase)

    @workflow.signal
    def take_node(self, name: str) -> None:
        """The machine says that this Node is its own."""
        self.state.status.node_name = name
        workflow.upsert_search_attributes([attributes.NODE.value_set(name)])

    def _delete(self, intent: DeleteIntent) -> Answer:
        now = workflow.now()
        self.state.deletion = self.state.deletion or Deletion(
            time=now, requested_by=intent.requested_by, reason=intent.reason, force=intent.force
        )
        return Answer(message=self.once(intent, "will drain, then delete"))

    @workflow.update
    def delete(self, intent: DeleteIntent) -> Answer:
        return self._delete(intent)

    @delete.validator
    def may_delete(self, intent: DeleteIntent) -> None:
        if REFUSES in self.state.labels and not intent.force:
            raise ApplicationError("a hook of alice holds it; use --force", type="Refused")

    @workflow.update
    def renew(self, intent: Intent) -> Answer:
        return self._renew(intent)

    def _renew(self, intent: Intent) -> Answer:
        if intent.id not in self.state.intents:
            self.again = True
        return Answer(message=self.once(intent, "continues in a new run"))

    @workflow.update
    def apply(self, intent: ApplyIntent) -> Answer:
        return self._apply(intent)

    def _apply(self, intent: ApplyIntent) -> Answer:
        current = self.state.machine_class
        assert current is not None
        newer = intent.machine_class.name != current.name or intent.machine_class.generation >= current.generation
        if intent.id not in self.state.intents and newer:
            self.state.spec, self.state.machine_class = intent.spec, intent.machine_class
            self.state.labels, self.state.annotations = intent.labels, intent.annotations
            workflow.upsert_search_attributes([attributes.CLASS.value_set(intent.machine_class.name)])
        return Answer(message=self.once(intent, f"configured; takes generation {intent.machine_class.generation}"))

    # -- preservation: `now` counts at once, whatever the phase --------------------------------------------------------

    def keep(self, until: datetime | None) -> None:
        p = self.state.status.preserve
        p.expiry_time, p.source = until, PreservedBy.ASKED if until else PreservedBy.NOBODY
        p.since = workflow.now() if until else None
        workflow.upsert_search_attributes(
            [
                attributes.PHASE.value_set(self.state.status.shown_phase),
                attributes.PRESERVED_UNTIL.value_set(until) if until else attributes.PRESERVED_UNTIL.value_unset(),
            ]
        )

    def _preserve(self, intent: PreserveIntent) -> Answer:
        now, value = workflow.now(), intent.value
        until = intent.until or now + (intent.lasts or self.state.spec.machine_preserve_timeout)
        if intent.id not in self.state.intents:
            self.state.status.preserve.own = PreserveRequest(
                value=value,
                time=now,
                requested_by=intent.requested_by,
                reason=intent.reason,
                lasts=intent.lasts,
                until=intent.until,
            )
            if value is not PreserveValue.WHEN_FAILED:
                self.keep(until if value is PreserveValue.NOW else None)
        kept = f"preserved until {until:%Y-%m-%d %H:%M:%S} UTC"
        return Answer(message=self.once(intent, kept if value is PreserveValue.NOW else f"takes {value}"))

    @workflow.update
    def preserve(self, intent: PreserveIntent) -> Answer:
        return self._preserve(intent)

    @workflow.signal(name="preserve")
    def preserve_signal(self, intent: PreserveIntent) -> None:
        self._preserve(intent)

    def _release(self, intent: ReleaseIntent) -> Answer:
        if intent.id not in self.state.intents:
            self.state.status.preserve.own = None
            self.keep(None)
        return Answer(message=self.once(intent, "is let go"))

    @workflow.update
    def release(self, intent: ReleaseIntent) -> Answer:
        return self._release(intent)

    @release.validator
    def may_release(self, intent: ReleaseIntent) -> None:
        p = self.state.status.preserve
        if p.expiry_time is None and p.own is None and intent.id not in self.state.intents:
            raise ApplicationError(f"machine {self.state.name} is not preserved", type=NOT_PRESERVED)

    @workflow.signal(name="release")
    def release_signal(self, intent: ReleaseIntent) -> None:
        self._release(intent)

    def _extend(self, intent: ExtendIntent) -> Answer:
        until = intent.until or workflow.now() + (intent.lasts or timedelta(0))
        if intent.id not in self.state.intents:
            self.keep(until)
        return Answer(message=self.once(intent, f"preserved until {until:%Y-%m-%d %H:%M:%S} UTC"))

    @workflow.update
    def extend(self, intent: ExtendIntent) -> Answer:
        return self._extend(intent)

    @extend.validator
    def may_extend(self, intent: ExtendIntent) -> None:
        if self.state.status.preserve.expiry_time is None:
            raise ApplicationError(f"machine {self.state.name} is not preserved", type=NOT_PRESERVED)

    @workflow.signal(name="extend")
    def extend_signal(self, intent: ExtendIntent) -> None:
        if self.state.status.preserve.expiry_time is not None:
            self._extend(intent)

    @workflow.signal(name="delete")
    def delete_signal(self, intent: DeleteIntent) -> None:
        self._delete(intent)

    @workflow.signal(name="renew")
    def renew_signal(self, intent: Intent) -> None:
        self._renew(intent)

    @workflow.signal(name="apply")
    def apply_signal(self, intent: ApplyIntent) -> None:
        self._apply(intent)


@workflow.defn(name="ClusterWorkflow")
class PlayedCluster:
    @workflow.init
    def __init__(self, state: ClusterState) -> None:
        self.state = state

    @workflow.run
    async def run(self, state: ClusterState) -> None:
        await workflow.wait_condition(lambda: self.state.removed)

    @workflow.query
    def describe(self) -> ClusterState:
        return self.state


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no worker, nothing is gained by waiting for it as long as a person would."""
    monkeypatch.setattr(live, "QUERY_TIMEOUT", 0.3)
    monkeypatch.setattr(intents, "UPDATE_TIMEOUT", 0.3)


@pytest.fixture
async def place(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Place]:
    async with new_place(temporal, tmp_path) as place:
        yield place


@pytest.fixture
async def working(place: Place) -> AsyncIterator[Place]:
    """A place with a worker."""
    async with place.worker():
        yield place


async def eventually(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Looks again and again until there is something."""
    end = time.monotonic() + DEADLINE
    while True:
        seen = await look()
        if seen:
            return seen
        assert time.monotonic() < end, f"{what} did not come about"
        await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def ok(self) -> str:
        assert self.code == 0, self
        return self.out


@dataclass
class Place:
    """A cluster and task queue of a test's own on the session's server, and a folder for settings and manifests."""

    env: WorkflowEnvironment
    folder: Path
    cluster: str
    queue: str

    @property
    def client(self) -> Client:
        return self.env.client

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.yaml"

    def environment(self) -> dict[str, str]:
        """The environment of the `hostler` process: nothing of the person's own settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOSTLER_", "TEMPORAL_"))}
        return kept | {"HOSTLER_SETTINGS": str(self.settings_file), "HOME": str(self.folder), "COLUMNS": "120"}

    def write_settings(self, **more: Any) -> None:
        content: dict[str, Any] = {
            "temporal": {
                "address": self.client.service_client.config.target_host,
                "namespace": self.client.namespace,
                "ui": "http://127.0.0.1:8233",
            },
            "queuePrefix": self.queue,
            "defaultCluster": self.cluster,
            "secrets": {"source": "directory", "directory": "secrets"},
            "timings": {"heartbeat": "1s"},
        }
        self.settings_file.write_text(yaml.safe_dump(content | more))

    async def run(self, *args: str, stdin: str = "", **variables: str) -> Ran:
        """Runs the command in this process, which saves the second that its imports take."""
        from starter.main import app

        def invoke() -> Ran:
            environment = {**dict.fromkeys(os.environ), **self.environment(), **variables}
            done = CliRunner().invoke(app, args, input=stdin, env=environment, prog_name="hostler")
            return Ran(done.exit_code, done.stdout, done.stderr)

        # In a thread: the command has an event loop of its own, and the worker of the test needs ours.
        return await asyncio.wait_for(asyncio.to_thread(invoke), DEADLINE)

    async def hostler(self, *args: str, stdin: str = "", **variables: str) -> Ran:
        """Runs the real command, to its end."""
        process = await self.start(*args, **variables)
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), DEADLINE)
        finally:
            await end(process)
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def start(self, *args: str, **variables: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            str(HOSTLER),
            *args,
            env=self.environment() | variables,
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """A worker: machines and clusters are played, classes are real."""
        deps = Deps(load_settings(self.settings_file), self.client)
        classes = ClassActivities(deps)
        try:
            async with Worker(
                self.client,
                task_queue=self.queue,
                workflows=[PlayedMachine, PlayedCluster, MachineClassWorkflow],
                activities=[drain_node, classes.tell_users, classes.find_users],
                workflow_runner=UnsandboxedWorkflowRunner(),
            ):
                yield
        finally:
            await deps.close()

    async def end_all(self) -> None:
        """Leaves no workflow of the test on the server."""
        async for execution in self.client.list_workflows(f"TaskQueue='{self.queue}' AND ExecutionStatus='Running'"):
            with contextlib.suppress(Exception):
                await self.client.get_workflow_handle(execution.id).terminate()


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def new_place(env: WorkflowEnvironment, folder: Path) -> AsyncIterator[Place]:
    unique = uuid.uuid4().hex[:8]
    place = Place(env, folder, cluster=f"c{unique}", queue=f"q{unique}")
    place.write_settings()
    try:
        yield place
    finally:
        await place.end_all()


# -- manifests --------------------------------------------------------------------------------------------------------


def class_yaml(name: str = "c1", ami: str = "ami-1", **tags: str) -> dict[str, Any]:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": {"name": name},
        "provider": "AWS",
        "secretRef": {"name": "s1", "namespace": "default"},
        "providerSpec": {
            "ami": ami,
            "region": "eu-west-1",
            "machineType": "m5.large",
            "networkInterfaces": [{"subnetID": "subnet-1"}],
            "vmTags": tags or {"team": "a"},
        },
    }


def machine_yaml(name: str = "m1", machine_class: str = "c1", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": name, "labels": labels},
        "spec": {"class": {"kind": "MachineClass", "name": machine_class}, "creationTimeout": "1h30m"},
    }


def secret_yaml(value: str, name: str = "s1", **more: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {"userData": value, **more},
    }


def text(*manifests: dict[str, Any]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False)


async def offered(place: Place, *words: str, **variables: str) -> list[str]:
    """Candidates for the last word, without their help."""
    ran = await place.run("__complete", "--", *words, **variables)
    assert ran.err == ""
    return [line.partition("\t")[0] for line in ran.ok().splitlines()]


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"node.gardener.cloud/machine-name": "m1"}},
    "spec": {"unschedulable": True, "providerID": "aws:///eu-west-1/i-1"},
}


async def kubectl(place: Place, *args: str, stdin: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        str(HOSTLER.parent / "kubectl"),
        *("--kubeconfig", str(place.folder / "kubeconfig"), *args),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), DEADLINE)
    assert process.returncode == 0, err
    return out.decode()

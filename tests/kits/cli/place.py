"""What the tests of the command line and of the SDK share: a place of their own with stand-ins of entities
(standins.py), so that they test only the entry point; `hostler`, in this process or in its own; manifests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from lifekit import command
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.deps import Deps
from activities.temporal.classes import ClassActivities
from cli.standins import PlayedCluster, PlayedMachine, drain_node
from resources.settings import load_settings
from starter import output
from starter.commands import candidates
from starter.sdk import intents, live
from workflows.machine_class import MachineClassWorkflow

DEADLINE = 60.0  # seconds; a passing test never waits for it
HOSTLER = Path(sys.executable).parent / "hostler"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no worker, nothing is gained by waiting for it as long as a person would."""
    monkeypatch.setattr(live, "QUERY_TIMEOUT", 0.3)
    monkeypatch.setattr(intents, "UPDATE_TIMEOUT", 0.3)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """While there is a worker, its answers are waited for: what a command says must not depend on how busy the computer
    is."""
    patient = (live, "QUERY_TIMEOUT"), (intents, "UPDATE_TIMEOUT"), (candidates, "PATIENCE")
    with contextlib.ExitStack() as stack:
        for module, name in patient:
            stack.enter_context(patch.object(module, name, DEADLINE / 2))
        yield


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
        """Runs the command in this process."""
        environment = {**dict.fromkeys(os.environ), **self.environment(), **variables}
        return Ran(*await asyncio.wait_for(command(args, environment, stdin), DEADLINE))

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
        worker = Worker(
            self.client,
            task_queue=self.queue,
            workflows=[PlayedMachine, PlayedCluster, MachineClassWorkflow],
            activities=[drain_node, classes.tell_users, classes.find_users],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        try:
            async with worker:
                with answering():
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
        # What a command says when it takes longer than a second depends on how busy the computer is.
        with patch.object(output, "PATIENCE", DEADLINE):
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

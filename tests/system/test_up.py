"""`hostler up`: everything runs and is found, state survives, and nothing is left running however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from processes.children import alive, children, locked, until
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from typer.testing import CliRunner

from activities.kube.client import secret_path
from resources.attributes import ALL, PHASE
from resources.clouds import simulations
from resources.timings import Timings
from starter.local.ports import Ports, UpError
from starter.local.processes import ProcessError
from starter.local.stack import CLUSTER, Options, Stack
from starter.local.up import words
from starter.main import app
from starter.sdk.errors import Unreachable
from starter.sdk.kube import connect_cluster
from starter.sdk.live import described
from starter.sdk.setup import SetupError, create_namespace, setup
from starter.sdk.webui import VIEWS, view_link

HOSTLER = Path(sys.executable).with_name("hostler")
FLAGS = {port.metadata["flag"]: port.name for port in fields(Ports) if port.metadata} | {"--ec2-port": "clouds"}
"""And what they set."""
ANY_PORTS = [x for flag in FLAGS for x in (flag, "0")]


def options(directory: Path, **more: Any) -> Options:
    return replace(Options(directory=directory, ports=Ports.any(), speed="fast"), **more)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest_asyncio.fixture(scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> AsyncIterator[Stack]:
    async with Stack(options(tmp_path_factory.mktemp("up")), said.append) as running:
        yield running
    await asyncio.sleep(0.1)  # sdk-python#300


def pids(stack: Stack) -> list[int]:
    return [child.pid for child in stack.processes.children.values()]


# -- what runs --------------------------------------------------------------------------------------------------------


async def test_everything_serves_where_the_settings_say(stack: Stack) -> None:
    settings = stack.settings
    assert settings.temporal.ui is not None
    async with aiohttp.ClientSession() as http:
        for address in (settings.temporal.ui, f"{settings.simulator}/healthz"):
            async with http.get(address) as answer:
                assert answer.status == 200
    client = await Client.connect(settings.temporal.address)
    assert [w async for w in client.list_workflows(f"{PHASE.name} = 'Running'")] == []
    async with connect_cluster(settings, settings.default_cluster) as kube:
        assert (await kube.get("/api/v1/nodes"))["items"] == []
    async with aiohttp.ClientSession() as http, http.get(f"{settings.simulator}/ec2/resources") as answer:
        assert await answer.json() == []


async def test_all_that_it_keeps_is_for_its_owner_alone(stack: Stack) -> None:
    kept = [p for p in stack.directory.rglob("*") if p.name == "temporal.db" or p.suffix in (".log", ".yaml", ".pid")]
    assert {"temporal.db", "worker.log", "settings.yaml", "up.pid"} <= {p.name for p in kept}
    assert [p for p in kept if p.stat().st_mode & 0o077] == []


async def test_the_settings_lead_through_their_own_folder(stack: Stack) -> None:
    cluster = stack.settings.cluster(CLUSTER)
    assert cluster.kubeconfig == Path("kubeconfig")
    assert stack.settings.path(cluster.kubeconfig) == stack.kubeconfig
    assert stack.kubeconfig.stat().st_mode & 0o077 == 0  # it holds the administrator's token
    assert cluster.full_name == "shoot--hostler--demo"
    assert stack.settings.secrets.cluster == CLUSTER


async def test_it_says_where_everything_is_and_what_to_try(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    text = "\n".join(words(stack))
    for word in (
        stack.ui,
        stack.clouds["aws"],
        f"https://127.0.0.1:{stack.ports.kube}",
        "apply -f",
        "get machines -w",
        "kubectl",
    ):
        assert word is not None
        assert word in text
    assert "TEMPORAL_ADDRESS" not in text
    monkeypatch.setenv("TEMPORAL_ADDRESS", "prod:7233")
    assert "TEMPORAL_ADDRESS=prod:7233 is set in this shell" in "\n".join(words(stack))


async def test_a_killed_worker_is_started_again(stack: Stack, said: list[str]) -> None:
    before = stack.processes.children["worker"].pid
    os.kill(before, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: any(line.startswith("the worker runs again") for line in said), 60)
    after = stack.processes.children["worker"].pid
    assert said[-2:] == [
        f"the worker was killed by SIGKILL; starting it again in 1 s ({stack.directory}/logs/worker.log)",
        f"the worker runs again (process {after})",
    ]
    assert alive(after)
    assert not alive(before)


async def test_another_temporal_server_is_used_and_left_running(stack: Stack, tmp_path: Path) -> None:
    async with Stack(options(tmp_path, temporal_address=stack.temporal), print) as other:
        assert list(other.processes.children) == ["simulator", "worker"]
        assert other.settings.temporal.address == stack.temporal
        others = pids(other)
    assert not any(alive(p) for p in others)
    assert all(alive(p) for p in pids(stack))


async def test_a_cluster_of_ones_own_is_used_beside_the_real_cloud(stack: Stack, tmp_path: Path) -> None:
    own = options(tmp_path, simulator=False, kubeconfig=stack.kubeconfig)
    async with Stack(own, print) as other:
        assert list(other.processes.children) == ["Temporal", "worker"]
        assert other.settings.cluster(CLUSTER).kubeconfig == stack.kubeconfig
        assert other.settings.clouds["aws"].endpoint is None
        assert other.settings.timings == Timings()  # a real cloud is polled as in production
        assert other.settings.simulator is None
        assert "the real ones: machines that you apply cost money" in "\n".join(words(other))
    assert not any(alive(p) for p in pids(other))


async def test_a_temporal_server_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"no Temporal server answers at 127\.0\.0\.1:1:"):
        async with Stack(options(tmp_path, temporal_address="127.0.0.1:1"), print):
            pass


# -- search attributes ------------------------------------------------------------------------------------------------


async def namespace(stack: Stack, name: str) -> Client:
    client = await Client.connect(stack.temporal, namespace=name)
    assert await create_namespace(client, timedelta(days=1))
    return client


async def test_setup_registers_what_is_missing_and_can_be_repeated(stack: Stack) -> None:
    names = tuple(key.name for key in ALL)
    again = await setup(await stack.connect())  # `hostler up` did it already
    assert (again.present, again.added) == (names, ())
    fresh = await namespace(stack, "fresh")
    first, second = await setup(fresh), await setup(fresh)
    assert (first.present, first.added) == ((), names)
    assert (second.present, second.added) == (names, ())


async def test_setup_refuses_an_attribute_of_another_type(stack: Stack) -> None:
    client = await namespace(stack, "foreign")
    kind = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST
    request = AddSearchAttributesRequest(namespace="foreign", search_attributes={PHASE.name: kind})
    await client.operator_service.add_search_attributes(request)
    with pytest.raises(SetupError, match="HostlerPhase is KeywordList, not Keyword; remove them"):
        await setup(client)


async def test_setup_needs_the_namespace_or_creates_it(stack: Stack) -> None:
    client = await Client.connect(stack.temporal, namespace="nowhere")
    with pytest.raises(SetupError, match="'nowhere' does not exist; create it: hostler setup --create-namespace"):
        await setup(client)
    with pytest.raises(SetupError, match=r"'nowhere' cannot be created: .*retention"):
        await create_namespace(client, timedelta(minutes=1))
    assert [await create_namespace(client, timedelta(days=d)) for d in (3, 5)] == [True, False]
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="nowhere"))
    assert described.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(days=3)
    assert (await setup(client)).added


async def test_setup_where_the_operator_api_is_refused(stack: Stack) -> None:
    """As on Temporal Cloud: it sees what is there, and says how to register the rest."""

    async def refuse(*_: object) -> None:
        raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")

    def only_workflows(client: Client) -> Client:
        client.operator_service.list_search_attributes = refuse  # type: ignore[method-assign,assignment]
        client.operator_service.add_search_attributes = refuse  # type: ignore[method-assign,assignment]
        return client

    assert (await setup(only_workflows(await stack.connect()))).added == ()
    with pytest.raises(SetupError) as error:
        await setup(only_workflows(await namespace(stack, "cloud")))
    assert "tcld namespace search-attributes add --namespace cloud" in str(error.value)
    assert "--search-attribute HostlerPhase=Keyword" in str(error.value)
    assert "--search-attribute HostlerDeadline=Datetime" in str(error.value)


async def test_the_setup_command_says_what_was_there(stack: Stack) -> None:
    argv = [str(HOSTLER), "--settings", str(stack.settings_file), "setup"]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    views = [f"{view.name}: {view_link(str(stack.ui), 'default', view)}" for view in VIEWS]
    assert lines == [f"searchattribute/{key.name} unchanged" for key in ALL] + views
    assert last == "namespace default is ready for Hostler"


# -- state ------------------------------------------------------------------------------------------------------------

REMEMBERED = "machine/demo/remembered"
BOOK = {"metadata": {"name": "book"}, "stringData": {"title": "x"}}


async def remember(stack: Stack) -> None:
    client = await stack.connect()
    await client.start_workflow("Anything", id=REMEMBERED, task_queue="nobody")
    async with connect_cluster(stack.settings, CLUSTER) as kube:
        await kube.create(secret_path("default"), BOOK)


async def remembered(stack: Stack) -> list[bool]:
    """Whether Temporal, and the simulated cluster, know what `remember` told them."""
    client = await stack.connect()
    workflow = await described(client.get_workflow_handle(REMEMBERED))
    async with connect_cluster(stack.settings, CLUSTER) as kube:
        return [workflow is not None, await kube.find(secret_path("default", "book")) is not None]


async def test_state_survives_a_child_that_cannot_start_stops_the_others_and_fresh_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")  # another server's: it does not concern this stack
    async with Stack(options(tmp_path), print) as first:
        await remember(first)
        assert await remembered(first) == [True, True]
    async with Stack(options(tmp_path), print) as second:
        assert await remembered(second) == [True, True]

    (tmp_path / "simulator" / "simulator.json").write_text("no JSON")
    broken = Stack(options(tmp_path), print)
    with pytest.raises(ProcessError, match=r"the simulator ended with exit code 1; its log is (.*\n)+.*cannot be read"):
        async with broken:
            pass
    assert list(broken.processes.children) == ["Temporal", "simulator"]
    assert not any(alive(p) for p in pids(broken))

    (tmp_path / "mine.txt").write_text("not of the stack")
    async with Stack(options(tmp_path, fresh=True), print) as third:
        assert await remembered(third) == [False, False]
    assert (tmp_path / "mine.txt").exists()


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kubeconfig": Path(__file__)}, "can never join.*--no-simulator"),
        ({"simulator": False}, "there is no cluster: give yours with --kubeconfig"),
        ({"simulator": False, "kubeconfig": Path("/nowhere")}, "/nowhere: there is no such kubeconfig"),
        ({"fresh": True, "temporal_address": "x:1"}, "not what is in x:1"),
        ({"fresh": True, "simulator": False, "kubeconfig": Path(__file__)}, "VMs exist in a real cloud"),
    ],
)
async def test_what_cannot_work_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UpError, match=message):
        async with Stack(options(tmp_path / "up", **changes), print):
            pass
    assert not (tmp_path / "up").exists()


async def test_a_second_one_in_the_same_folder_is_refused_with_the_pid(stack: Stack) -> None:
    with pytest.raises(UpError, match=f"already runs in {stack.directory}, as process {os.getpid()}; stop it"):
        async with Stack(options(stack.directory), print):
            pass
    assert all(alive(p) for p in pids(stack))


async def test_a_folder_whose_processes_are_still_being_stopped_is_refused(tmp_path: Path) -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    with (tmp_path / "up.pid").open("w") as lock:  # as the guardian holds it when `up` was killed
        lock.write(f"{gone.pid}\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UpError, match="still being stopped; try again in a few seconds"):
            async with Stack(options(tmp_path), print):
                pass
    assert not locked(tmp_path / "up.pid")


def test_the_clouds_that_run_are_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []

    async def run_stack(options: Options) -> None:
        asked.append(options)

    monkeypatch.setattr("starter.local.up.run_stack", run_stack)
    for given in ([], ["--provider", "gcp"], ["--provider", "aws", "--provider", "gcp", "--gce-port", "1234"]):
        assert CliRunner().invoke(app, ["up", "--dir", str(tmp_path), *given]).exit_code == 0
    first, second = {"aws": 7644}, {"gcp": 7646}
    assert [dict(options.ports.clouds) for options in asked] == [first, second, {**first, "gcp": 1234}]
    assert CliRunner().invoke(app, ["up", "--provider", "mars"]).exit_code == 2


def test_no_port_is_in_the_way_of_another() -> None:
    ports = Ports(clouds={name: simulation.port for name, simulation in simulations().items()})
    numbers = [*ports.clouds.values(), *(getattr(ports, port.name) for port in fields(ports) if port.metadata)]
    assert len({*numbers}) == len(numbers) == len(FLAGS) - 1 + len(simulations())


@pytest.mark.parametrize("flag", FLAGS)
async def test_a_port_that_is_taken_is_said_with_the_flag_that_changes_it(tmp_path: Path, flag: str) -> None:
    name = FLAGS[flag]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        ports = replace(Ports.any(), **{name: {"aws": number} if name == "clouds" else number})
        with pytest.raises(UpError, match=f"port {number} for .* is taken; .* with {flag}$"):
            async with Stack(options(tmp_path, ports=ports), print):
                pass
    assert getattr(ports.settled(frozenset()), name) == getattr(ports, name)  # it is free now, and used


# -- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def hostler_up(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The real command, once it is up, and the pids of all that it started."""
    argv = [str(HOSTLER), "up", "--dir", str(directory), "--speed", "fast", *ANY_PORTS]
    output = directory.with_suffix(".out")
    with output.open("w") as out, subprocess.Popen(argv, stdout=out, stderr=out, text=True) as process:
        try:
            until(lambda: "Try, in another terminal" in output.read_text() or process.poll() is not None, 60)
            started = children(process.pid)
            assert len(started) == 4, output.read_text()  # Temporal, the simulator, a worker, the guardian
            yield process, started
        finally:
            process.terminate()


@pytest.mark.exhaustive  # of the signal that stops the second one below
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_another_signal_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    with hostler_up(tmp_path / "up") as (process, started):
        assert all(alive(p) for p in started)
        process.send_signal(number)
        assert process.wait(30) == 0
        assert not any(alive(p) for p in started)
    assert f"stopped; the state stays in {tmp_path / 'up'}" in (tmp_path / "up.out").read_text()


def test_kill_9_leaves_nothing_running_and_a_signal_stops_the_next_one(tmp_path: Path) -> None:
    with hostler_up(tmp_path / "up") as (process, started):
        process.kill()
        until(lambda: not any(alive(p) for p in started))
    with hostler_up(tmp_path / "up") as (process, again):
        assert all(alive(p) for p in again)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not any(alive(p) for p in again)
    assert f"stopped; the state stays in {tmp_path / 'up'}" in (tmp_path / "up.out").read_text()


async def test_the_worker_command_becomes_a_worker_with_the_roles_asked_for(stack: Stack) -> None:
    ports = Ports.any().settled(frozenset())  # this stack's worker has those of the settings
    addresses = {"HEALTH": f"127.0.0.1:{ports.health}", "METRICS": f"127.0.0.1:{ports.metrics}"}
    environment = {**os.environ, **{f"HOSTLER_WORKER__{k}": v for k, v in addresses.items()}}
    process = await asyncio.create_subprocess_exec(
        *[str(HOSTLER), "worker", "--settings", str(stack.settings_file), "--role", "cloud", "--role", "drain"],
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            ready = (await process.stdout.readline()).decode()
        assert sorted(ready.removeprefix("worker ready: ").strip().split(", ")) == [
            "hostler-cloud-aws",
            "hostler-drain-demo",
        ]
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


def test_the_command_says_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(HOSTLER), "up", "--dir", str(tmp_path), "--no-simulator"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "error: without the simulator there is no cluster: give yours with --kubeconfig\n"

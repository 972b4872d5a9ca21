"""Runs the services of docker-compose.yml as processes, with what the file says of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paths import ROOT, TESTS

from stack.images import image
from stack.layers import PATH, Image, Inside
from stack.programs import COMPOSE, program

Spec = dict[str, Any]


class StackError(Exception):
    """The stack does not come up; the message has the end of the service's log."""


def configuration(
    profiles: Sequence[str] = (), environment: Mapping[str, str] | None = None, services: Sequence[str] = ()
) -> Spec:
    """docker-compose.yml as Docker Compose reads it: interpolated, merged, validated; only these services with what
    they depend on, if any are named. Raises StackError."""
    argv = [str(program(COMPOSE, "docker-compose"))]
    argv += [x for profile in profiles for x in ("--profile", profile)]
    argv += ["--project-directory", str(ROOT), "--env-file", os.devnull, "config", "--format", "json", *services]
    variables = {"PATH": os.environ["PATH"], "HOME": "/", **(environment or {})}
    done = subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise StackError(done.stderr.strip())
    read: Spec = json.loads(done.stdout.replace("$$", "$"))  # what is printed is a compose file again
    return read


def seconds(duration: str | None, default: float) -> float:
    """A duration as the file writes it: `1m0s`, `2s`, `500ms`."""
    if duration is None:
        return default
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", duration))


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 - what is waited for are other processes
        await asyncio.sleep(0.02)


async def _run(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE)
    _, said = await process.communicate()
    if process.returncode:
        raise StackError(f"{' '.join(argv)}: {said.decode().strip()}")


class Network:
    """The network of a service, or of several that share it: a namespace with an address on the stack's bridge."""

    def __init__(self, name: str, number: int, hub: Network | None) -> None:
        self.name = name
        self.number = number
        self.hub = hub
        self.address = f"10.0.0.{number}"
        self.holder: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self.holder is not None
        return self.holder.pid

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    async def open(self) -> None:
        held = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        self.holder = await asyncio.create_subprocess_exec(*held, stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        await self.holder.stdout.readline()
        await self._ip("link", "set", "lo", "up")
        if self.hub is None:
            await self._ip("link", "add", "hub", "type", "bridge")
            await self._ip("addr", "add", f"{self.address}/24", "dev", "hub")
            await self._ip("link", "set", "hub", "up")
            return
        wire = f"s{self.number}"
        await self.hub._ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        await self.hub._ip("link", "set", wire, "master", "hub", "up")
        await self._ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        await self._ip("link", "set", "eth0", "up")

    async def close(self) -> None:
        if self.holder is not None and self.holder.returncode is None:
            self.holder.kill()
            await self.holder.wait()

    async def _ip(self, *arguments: str) -> None:
        await _run("nsenter", f"--net={self.path}", "ip", *arguments)


class Service:
    """One service of the file. Its process is started again as its restart policy says."""

    def __init__(self, name: str, spec: Spec, stack: Engine) -> None:
        self.name = name
        self.spec = spec
        self.stack = stack
        self.image: Image = image(spec["image"])
        self.wanted = True
        self.process: asyncio.subprocess.Process | None = None
        self.exit_codes: list[int] = []
        self.healthy = False
        self.task: asyncio.Task[None] | None = None

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def log(self) -> Path:
        return self.stack.state / "logs" / f"{self.name}.log"

    @property
    def network(self) -> Network:
        mode = self.spec.get("network_mode", "")
        return self.stack.networks[mode.removeprefix("service:") or self.name]

    @cached_property
    def healthcheck(self) -> Spec | None:
        ours = self.spec.get("healthcheck") or {}
        given = {**(self.image.healthcheck or {}), **ours}
        return None if ours.get("disable") or not given else given

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int | None:
        """The first process of the container, as this machine numbers it."""
        if self.process is None or self.process.returncode is not None:
            return None
        with contextlib.suppress(OSError, IndexError):
            return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])
        return None

    def is_(self, condition: str) -> bool:
        """Whether a condition of `depends_on` is met."""
        if condition == "service_completed_successfully":
            return not self.running and bool(self.exit_codes) and self.exit_codes[-1] == 0
        return self.healthy if condition == "service_healthy" else self.running

    @property
    def settled(self) -> bool:
        """It has ended well, or runs, and is healthy where that is checked."""
        if self.is_("service_completed_successfully"):
            return True
        return self.is_("service_healthy" if self.healthcheck else "service_started")

    # -- what it does ---------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Waits for what it depends on, and then for its ends."""
        for other, needed in (self.spec.get("depends_on") or {}).items():
            await until(lambda other=other, needed=needed: self.stack.services[other].is_(needed["condition"]))
        pause = 0.1
        while self.wanted:
            began = time.monotonic()
            await self._start()
            assert self.process is not None
            async with _beside(self._look_after()):
                code = await self.process.wait()
            self.healthy = False
            self.exit_codes.append(code)
            policy = self.spec.get("restart", "no")
            if policy == "no" or (policy == "on-failure" and code == 0):
                return
            pause = 0.1 if time.monotonic() - began > 10 else min(2 * pause, 5)
            await asyncio.sleep(pause)

    async def _start(self) -> None:
        argv = ["nsenter", f"--net={self.network.path}", *self._inside().command()]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _inside(self) -> Inside:
        spec, made = self.spec, self.image
        entrypoint = spec.get("entrypoint")
        argv = [*(made.entrypoint if entrypoint is None else entrypoint)]
        argv += spec.get("command") or (made.command if entrypoint is None else [])
        if spec.get("init"):
            argv = ["/bin/sh", "-c", '"$@" & trap "kill $!" TERM; wait', "init", *argv]
        scratch = self.stack.state / "containers" / self.name
        shutil.rmtree(scratch, ignore_errors=True)
        return Inside(
            layers=made.layers,
            argv=argv,
            scratch=scratch,
            environment=self.environment,
            user=spec.get("user") or made.user,
            workdir=spec.get("working_dir") or made.workdir,
            hostname=self.name,
            binds=[*self._volumes(), *self._secrets(), (self.stack.hosts(self), "/etc/hosts", False)],
            tmpfs=spec.get("tmpfs") or [],
            read_only=spec.get("read_only", False),
            no_new_privileges="no-new-privileges:true" in (spec.get("security_opt") or []),
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": PATH, **self.image.environment, **(self.spec.get("environment") or {})}

    def _volumes(self) -> list[tuple[Path, str, bool]]:
        mounts = []
        for volume in self.spec.get("volumes") or []:
            named = self.stack.state / "volumes" / volume["source"]
            source = Path(volume["source"]) if volume["type"] == "bind" else named
            if volume["type"] == "volume":
                named.mkdir(parents=True, exist_ok=True)
            mounts.append((source, volume["target"], not volume.get("read_only", False)))
        return mounts

    def _secrets(self) -> list[tuple[Path, str, bool]]:
        files = self.stack.read["secrets"]
        return [
            (Path(files[secret["source"]]["file"]), f"/run/secrets/{secret['source']}", False)
            for secret in self.spec.get("secrets") or []
        ]

    async def _look_after(self) -> None:
        check = self.healthcheck
        if check is None:
            return
        began, failures = time.monotonic(), 0
        while True:
            ok = (await self.execute(*_words(check["test"]), timeout=seconds(check.get("timeout"), 30)))[0] == 0
            failures = 0 if ok else failures + 1
            starting = time.monotonic() - began < seconds(check.get("start_period"), 0)
            if ok:
                self.healthy = True
            elif failures >= int(check.get("retries", 3)) and not starting:
                self.healthy = False
            await asyncio.sleep(seconds(check.get("interval"), 30) if self.healthy else 1)

    async def execute(self, *argv: str, timeout: float = 60, stdin: str = "") -> tuple[int, str]:
        """Runs a command in the container, as its user; returns its exit code and its output (where it failed: its
        errors too); -1 where there is no container, or it takes too long."""
        pid = self.pid
        if pid is None:
            return -1, f"{self.name} does not run"
        user, _, group = (self.spec.get("user") or self.image.user).partition(":")
        inside = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--uts", "--root", "--wd"]
        inside += [f"--setuid={user}", f"--setgid={group or user}"]
        process = await asyncio.create_subprocess_exec(
            *[*inside, *argv],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            said, errors = await asyncio.wait_for(process.communicate(stdin.encode()), timeout)
        except TimeoutError:
            process.kill()
            return -1, f"not done after {timeout} s"
        assert process.returncode is not None
        return process.returncode, (said + errors if process.returncode else said).decode(errors="replace")

    async def stop(self) -> None:
        """The image's stop signal, and SIGKILL after the grace period; it stays down."""
        self.wanted = False
        if (pid := self.pid) is not None and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, self.image.stop_signal)
            try:
                await asyncio.wait_for(self.process.wait(), seconds(self.spec.get("stop_grace_period"), 10))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                await self.process.wait()
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def start(self) -> None:
        self.wanted, self.healthy = True, False  # whatever it was before it was stopped
        self.exit_codes.clear()
        self.task = asyncio.create_task(self.live())

    async def kill(self) -> None:
        """SIGKILL, as a crash, and its end: its restart policy decides what comes next."""
        ends = len(self.exit_codes)
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
            await until(lambda: len(self.exit_codes) > ends)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(it was not started)"


class Engine:
    """The stack, from `state` (a folder that keeps volumes and logs): all of the profiles, or some services with what
    they depend on. Leaving it stops everything."""

    def __init__(
        self,
        state: Path,
        profiles: Sequence[str] = ("demo",),
        environment: Mapping[str, str] | None = None,
        services: Sequence[str] = (),
    ) -> None:
        self.state = state
        self.read = configuration(profiles, environment, services)
        self.services = {name: Service(name, spec, self) for name, spec in sorted(self.read["services"].items())}
        self.hub = Network("hub", 1, None)
        own = [name for name, service in self.services.items() if not service.spec.get("network_mode")]
        self.networks = {name: Network(name, number, self.hub) for number, name in enumerate(own, 2)}
        self.forwarders: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        try:
            for network in (self.hub, *self.networks.values()):
                await network.open()
            await self._publish()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.down()
        for process in self.forwarders:
            if process.returncode is None:
                process.kill()
            await process.wait()
        for network in (*self.networks.values(), self.hub):
            await network.close()

    def up(self) -> None:
        for service in self.services.values():
            service.start()

    async def down(self) -> None:
        """Stops all, each after those that depend on it; volumes stay."""
        stopped: set[str] = set()

        async def stop(service: Service) -> None:
            users = {s.name for s in self.services.values() if service.name in (s.spec.get("depends_on") or {})}
            await until(lambda: users <= stopped)
            await service.stop()
            stopped.add(service.name)

        await asyncio.gather(*map(stop, self.services.values()))

    async def ready(self, timeout: float = 180) -> None:
        """Waits until every service runs, is healthy or has ended well. Raises StackError with the last words of one
        that is not."""
        end = time.monotonic() + timeout
        while waiting := [s for s in self.services.values() if not s.settled]:
            if time.monotonic() > end:
                raise StackError("\n".join(f"{s.name} ({s.exit_codes}): {s.tail()}" for s in waiting))
            await asyncio.sleep(0.1)

    def published(self, service: str, port: int) -> str:
        """host:port of this machine that leads to a port of a service."""
        for each in self.read["services"][service].get("ports", []):
            if each["target"] == port:
                return f"{each['host_ip']}:{each['published']}"
        raise LookupError(f"{service} publishes no port {port}")

    def hosts(self, service: Service) -> Path:
        """The service's /etc/hosts: localhost, itself, and all others by name."""
        lines = ["127.0.0.1 localhost", f"{service.network.address} {service.name}"]
        lines += [f"{network.address} {name}" for name, network in self.networks.items() if name != service.name]
        file = self.state / "hosts" / service.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n")
        return file

    async def _publish(self) -> None:
        for name, network in self.networks.items():
            for port in self.read["services"][name].get("ports", []):
                where = [
                    port["host_ip"],
                    str(port["published"]),
                    str(network.pid),
                    network.address,
                    str(port["target"]),
                ]
                process = await asyncio.create_subprocess_exec(
                    *["setpriv", "--pdeathsig", "KILL", sys.executable, str(TESTS / "stack" / "forward.py"), *where],
                    stdout=subprocess.PIPE,
                )
                self.forwarders.append(process)
                assert process.stdout is not None
                if not await process.stdout.readline():
                    raise StackError(f"port {port['published']} for {name} cannot be used")


@contextlib.asynccontextmanager
async def _beside(work: Any) -> Any:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _words(test: Sequence[str]) -> list[str]:
    """The command of a health check."""
    return ["/bin/sh", "-c", test[1]] if test[0] == "CMD-SHELL" else list(test[1:])

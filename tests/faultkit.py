"""Faults at activity boundaries: a worker that kills itself or loses a reply, and the invariants to ask for after.

The worker is a process of its own, killed by SIGKILL: nothing of it is left, neither heartbeats nor cached workflows.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lifekit import Stack
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

import worker
from activities.machine import MachineActivities
from drivers.base import CreateMachineRequest, DeleteMachineRequest, Driver
from drivers.errors import DriverError
from resources.machine import MachineState
from resources.messages import DeleteInput, DeleteOutput
from resources.settings import load_settings
from starter.connection import connect

Kind = Literal["killed before", "killed after", "reply lost"]
KINDS: tuple[Kind, ...] = ("killed before", "killed after", "reply lost")


@dataclass(frozen=True)
class Fault:
    """Strikes the first attempt of the first call of an activity, once in a machine's life."""

    activity: str
    kind: Kind


# -- inside the worker's process ------------------------------------------------------------------------------------


class Striker(Interceptor):
    def __init__(self, fault: Fault, marker: Path) -> None:
        self.fault, self.marker = fault, marker

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Striker(next, self.fault, self.marker)


class _Striker(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, fault: Fault, marker: Path) -> None:
        super().__init__(next)
        self.fault, self.marker = fault, marker

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.activity_type != self.fault.activity or self.marker.exists():
            return await super().execute_activity(input)
        self.marker.touch()
        if self.fault.kind == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await super().execute_activity(input)
        finally:
            if self.fault.kind == "killed after":
                os.kill(os.getpid(), signal.SIGKILL)
            # Silent until the server has given this attempt up: what is answered then, nobody hears.
            assert info.heartbeat_timeout is not None
            await asyncio.sleep(2 * info.heartbeat_timeout.total_seconds())


def serve(settings_file: str, address: str, fault: Fault, marker: str, sabotage: str | None) -> None:
    """The process: a worker as `python -m worker` has it, with a fault, and perhaps a saboteur."""
    os.environ["TEMPORAL_ADDRESS"] = address
    if sabotage:
        SABOTEURS[sabotage]()

    async def run() -> None:
        settings = load_settings(Path(settings_file))
        client = await connect(settings)
        async with worker.running(client, settings, [Striker(fault, Path(marker))]):
            await asyncio.Event().wait()

    asyncio.run(run())


# -- beside it ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def faulty_worker(stack: Stack, fault: Fault, sabotage: str | None = None) -> AsyncIterator[Path]:
    """A worker in a process that is started again whenever it was killed. Yields the file that says "it has struck"."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["worker", "faultkit"])
    marker = stack.settings_file.parent / f"struck-{uuid.uuid4().hex}"
    address = stack.client.service_client.config.target_host
    arguments = (str(stack.settings_file), address, fault, str(marker), sabotage)
    current: list[Any] = []

    async def keep() -> None:
        while True:
            process = processes.Process(target=serve, args=arguments, daemon=True)
            process.start()
            current[:] = [process]
            await asyncio.to_thread(process.join)

    keeper = asyncio.create_task(keep())
    try:
        yield marker
    finally:
        keeper.cancel()
        for process in current:
            process.kill()
            await asyncio.to_thread(process.join)


# -- saboteurs: each breaks one invariant, and its check must see it --------------------------------------------------


def _break_i1() -> None:
    """A create that neither looks first nor keeps its token."""

    async def blind(self: MachineActivities, target: Any) -> None:
        return None

    MachineActivities._find = blind  # type: ignore[method-assign]
    _wrap_driver("create_machine", lambda request: request.model_copy(update={"token": str(uuid.uuid4())}))


def _break_i5() -> None:
    """A status watch that takes an error for death."""
    looked = MachineActivities._look

    async def hasty(self: MachineActivities, target: Any, console: bool = False) -> Any:
        try:
            return await looked(self, target, console)
        except DriverError:
            request = await self.deps.request(DeleteMachineRequest, target, provider_id=target.provider_id)
            await asyncio.to_thread(self.deps.driver(target.provider).delete_machine, request)
            raise

    MachineActivities._look = hasty  # type: ignore[method-assign]


def _break_i6() -> None:
    """A delete that believes itself."""
    _replace_activity("delete_machine", lambda input: DeleteOutput())


def _break_i11() -> None:
    """A create that talks about what it sent."""

    def talk(request: CreateMachineRequest) -> CreateMachineRequest:
        from resources.errors import ErrorClass

        raise DriverError(ErrorClass.INVALID, f"refused: {request.user_data.get_secret_value()}")

    _wrap_driver("create_machine", talk)


def _wrap_driver(method: str, change: Callable[[Any], Any]) -> None:
    from activities.deps import Deps

    real = Deps.driver

    def driver(self: Deps, provider: str) -> Driver:
        inner = real(self, provider)

        class Wrapped:
            def __getattr__(self, name: str) -> Any:
                attribute = getattr(inner, name)
                return (lambda request: attribute(change(request))) if name == method else attribute

        return Wrapped()  # type: ignore[return-value]

    Deps.driver = driver  # type: ignore[method-assign]


def _replace_activity(name: str, answer: Callable[[Any], Any]) -> None:
    @activity.defn(name=name)
    async def replaced(self: MachineActivities, input: DeleteInput) -> DeleteOutput:
        result: DeleteOutput = answer(input)
        return result

    setattr(MachineActivities, name, replaced)


SABOTEURS: dict[str, Callable[[], None]] = {"I1": _break_i1, "I5": _break_i5, "I6": _break_i6, "I11": _break_i11}

# -- invariants, from the cloud's and the cluster's own books ---------------------------------------------------------


def made_for(stack: Stack, uid: str) -> set[str]:
    """Instances that were ever launched with this machine's uid tag."""
    found = set()
    for call in stack.calls("RunInstances"):
        tags = {t["Key"]: t["Value"] for s in call.request.get("TagSpecifications", ()) for t in s.get("Tags", ())}
        if tags.get("hostler.io/uid") == uid:
            found |= set(call.result.get("instanceIds", ()))
    return found


def check_i1(stack: Stack, state: MachineState) -> None:
    """At most one VM per machine uid: none of these flows may ever launch a second one."""
    made = made_for(stack, state.uid)
    assert len(made) <= 1, f"I1: {len(made)} instances were made for {state.name}: {sorted(made)}"


def check_i5(stack: Stack, state: MachineState) -> None:
    """Nothing is destroyed while the truth is unknown: no terminate before a deletion was wanted."""
    ours = made_for(stack, state.uid)
    since = state.deletion.time.timestamp() if state.deletion else float("inf")
    early = [c for c in stack.calls("TerminateInstances") if ours & set(c.request["InstanceIds"]) and c.time < since]
    assert not early, f"I5: {state.name} was terminated before anybody wanted it"


def check_i6(stack: Stack, uid: str) -> None:
    """When a workflow has ended, everything it created is gone."""
    left = stack.leftovers(uid)
    assert not left, f"I6: left behind: {left}"
    secrets = stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "yaml")
    assert uid not in secrets, "I6: a bootstrap token is left behind"

"""Workers that end while a cloud makes or deletes a VM: the next one asks for the operation that was begun, to its end,
and begins no second one. Of a worker that has ended nothing is left but what the server was told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from activitykit import Attempts, new_attempts
from clouds.drivers import CLOUDS, Given, calls, fault
from temporalio.exceptions import ApplicationError

from activities.cloud import creating
from activities.cloud.machine import MachineActivities
from activities.deps import Deps
from resources.calls.cloud import CreateInput, CreateOutput, DeleteInput
from resources.errors import IN_PROGRESS, NOT_YET, BegunOperation, ErrorInfo

SLOW = 3600.0


class Killed(BaseException):
    """The worker's process ends."""


@dataclass(frozen=True)
class Site:
    """What the test must know of a cloud that makes VMs by operations."""

    slow: Callable[[Any, float], None]
    """From now on, what is begun takes so many seconds, or until `finish`."""
    finish: Callable[[Any], None]
    forget: Callable[[Any], None]
    """The cloud knows no operation any longer."""
    ask: str
    """The call that asks for an operation."""
    late: str
    """A code with which a creation ends late."""
    delete: str = ""
    """The call that deletes a VM by an operation; "": there is no such."""


def _slow_arm(cloud: Any, seconds: float) -> None:
    cloud.arm.settings.delays.create = cloud.arm.settings.delays.terminate = seconds


def _slow_gce(cloud: Any, seconds: float) -> None:
    cloud.gce.settings.insert_delay = cloud.gce.settings.terminate_delay = seconds


def _slow_fake(cloud: Any, seconds: float) -> None:
    cloud.api.slow = seconds > 0


SITES = {
    "Azure": Site(
        _slow_arm,
        lambda cloud: cloud.do(cloud.arm.fast_forward),
        lambda cloud: cloud.do(cloud.arm._operations.records.clear),
        *("Operations_Get", "AllocationFailed", "VirtualMachines_Delete"),
    ),
    "GCP": Site(
        _slow_gce,
        lambda cloud: cloud.do(cloud.gce.fast_forward),
        lambda cloud: cloud.do(cloud.gce._operations.records.clear),
        *("zoneOperations.get", "ZONE_RESOURCE_POOL_EXHAUSTED", "instances.delete"),
    ),
    "Fake": Site(_slow_fake, lambda cloud: cloud.api.finish(), lambda cloud: None, ask="GetOperation", late="NoRoom"),
}


@dataclass
class Workers:
    """The workers of one machine's create call, one after another."""

    attempts: Attempts
    site: Site
    given: Given

    @property
    def cloud(self) -> Any:
        return self.attempts.cloud

    def input(self, begun: BegunOperation | None = None) -> CreateInput:
        now = datetime.now(UTC)
        target = self.attempts.target(self.given).model_copy(update={"poll": timedelta(milliseconds=10)})
        return CreateInput(target=target, attempt=1, started=now, deadline=now + timedelta(minutes=20), begun=begun)

    async def fresh(self) -> None:
        """A worker takes over. The server knows the heartbeats that were sent and awaited."""
        await self.fresh_with(tuple(self.attempts.client.beats[-1:]))

    async def fresh_with(self, heartbeat: tuple[Any, ...]) -> None:
        old, self.attempts.deps = self.attempts.deps, Deps(self.attempts.deps.settings, self.attempts.client)  # type: ignore[arg-type]
        await old.close()
        self.attempts.heartbeat = heartbeat

    async def make(self, begun: BegunOperation | None = None) -> CreateOutput:
        return await self.attempts.attempt(MachineActivities(self.attempts.deps).create_machine, self.input(begun))

    async def is_killed(self, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A worker ends after so many looks at what is being made; the next one takes over."""
        left = [looks + (1 if self.attempts.client.beats else 0)]  # one that takes over asks before its first look
        real = creating.standing

        async def standing(client: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return await real(client)

        with monkeypatch.context() as patch:
            patch.setattr(creating, "standing", standing)
            with pytest.raises(Killed):
                await self.make()
        await self.fresh()

    async def fails(self, begun: BegunOperation | None = None) -> tuple[str, ErrorInfo]:
        with pytest.raises(ApplicationError) as failure:
            await self.make(begun)
        return str(failure.value.type), failure.value.details[0]

    def launches(self) -> int:
        return len(calls(self.cloud, self.cloud.create))

    def asked(self) -> int:
        return len(calls(self.cloud, self.site.ask))

    def end_badly(self) -> None:
        """What is being made ends with the code that a fault rule has given its call."""
        if self.cloud.provider == "Fake":
            self.cloud.api.fail(self.site.late)
        self.site.finish(self.cloud)


@contextmanager
def served(provider: str) -> Iterator[Any]:
    with CLOUDS[provider]() as cloud:
        yield cloud


@pytest.fixture(scope="module", params=SITES)
def running(request: pytest.FixtureRequest) -> Iterator[Any]:
    with served(request.param) as cloud:
        yield cloud


@pytest.fixture
async def workers(running: Any, tmp_path: Path) -> AsyncIterator[Workers]:
    running.reset()
    async with new_attempts(running, tmp_path) as attempts:
        site, attempts.longest = SITES[running.provider], timedelta(hours=1)
        site.slow(running, SLOW)
        if running.provider == "Fake":
            running.api.failed.clear()
        yield Workers(attempts, site, attempts.given())
        await attempts.deps.close()


def late(workers: Workers) -> None:
    if workers.cloud.provider != "Fake":
        fault(workers.cloud, workers.cloud.create, workers.site.late)


async def to_the_vm(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a VM that is being made; the made-up cloud makes an interface first, which takes time as well."""
    if workers.cloud.provider == "Fake":
        await workers.is_killed(0, monkeypatch)
        workers.site.finish(workers.cloud)
    await workers.is_killed(0, monkeypatch)


async def test_a_worker_killed_at_each_look_makes_one_vm(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    await to_the_vm(workers, monkeypatch)
    assert workers.launches() == 1
    for looks in (0, 1, 2):
        before = workers.asked()
        await workers.is_killed(looks, monkeypatch)
        assert workers.asked() > before  # each begins by asking for the operation
    workers.site.finish(workers.cloud)
    made = await workers.make()
    assert (workers.launches(), made.adopted) == (1, False)
    assert [made.provider_id.rsplit("/", 1)[-1]] == workers.cloud.living(workers.given.machine.uid)


async def test_what_ends_badly_after_a_restart_says_with_which_code(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the VM that was being made would be taken for one that exists, and later for one that is gone."""
    late(workers)
    await to_the_vm(workers, monkeypatch)
    workers.end_badly()
    kind, info = await workers.fails()
    assert (kind, info.provider_code, info.begun) == ("capacity", workers.site.late, None)
    assert (await workers.fails())[1].provider_code == workers.site.late  # the answer may have been lost
    assert workers.launches() == 1
    workers.attempts.heartbeat = ()  # it was not: the next call is another activity
    workers.site.slow(workers.cloud, 0.0)
    workers.site.finish(workers.cloud)  # where the VM that failed must go
    made = await workers.make()
    assert workers.launches() == 2
    assert [made.provider_id.rsplit("/", 1)[-1]] == workers.cloud.living(workers.given.machine.uid)


async def test_the_call_after_the_activity_goes_on_with_its_operation(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An activity may take so long and no longer: what it has begun goes through its workflow to the next one."""
    late(workers)
    await to_the_vm(workers, monkeypatch)
    monkeypatch.setattr(creating, "time", _Late())
    kind, info = await workers.fails()
    assert kind == IN_PROGRESS
    assert info.begun is not None
    assert info.begun.what.startswith("VM ")
    workers.attempts.heartbeat, workers.attempts.client.beats[:] = (), []
    workers.end_badly()
    kind, ended = await workers.fails(info.begun)
    assert (kind, ended.provider_code, ended.begun) == ("capacity", workers.site.late, None)


class _Late:
    """A clock of which each reading is a day after the one before."""

    def __init__(self) -> None:
        self._days = 0

    def monotonic(self) -> float:
        self._days += 1
        return self._days * 86400.0


async def test_what_the_cloud_no_longer_knows_is_found_by_its_name(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await to_the_vm(workers, monkeypatch)
    workers.site.finish(workers.cloud)
    workers.site.forget(workers.cloud)
    made = await workers.make()
    assert workers.launches() == 1
    assert [made.provider_id.rsplit("/", 1)[-1]] == workers.cloud.living(workers.given.machine.uid)


async def test_a_machine_that_leaves_goes_on_with_no_operation(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await to_the_vm(workers, monkeypatch)
    asked = workers.asked()
    workers.attempts.client.phase = "Terminating"
    workers.site.finish(workers.cloud)
    made = await workers.make()
    assert (made.adopted, workers.asked(), workers.launches()) == (True, asked, 1)


async def test_a_deletion_that_ends_badly_says_with_which_code(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The VM is there as before, and nothing but the operation says why."""
    if not workers.site.delete:
        return
    await to_the_vm(workers, monkeypatch)
    workers.site.finish(workers.cloud)
    made = await workers.make()
    workers.attempts.heartbeat, workers.attempts.client.beats[:] = (), []
    target = workers.input().target.model_copy(update={"provider_id": made.provider_id})
    code = "OperationNotAllowed" if workers.cloud.provider == "Azure" else "UNSUPPORTED_OPERATION"
    fault(workers.cloud, workers.site.delete, code, status=200)

    async def attempt() -> ApplicationError:
        deletion = MachineActivities(workers.attempts.deps).delete_machine
        return await workers.attempts.fails(deletion, DeleteInput(target=target))

    assert (await attempt()).type == NOT_YET
    heartbeat = workers.attempts.heartbeat
    workers.site.finish(workers.cloud)
    await workers.fresh_with(heartbeat)
    failure = await attempt()
    assert failure.details[0].provider_code == code
    assert (await attempt()).type == NOT_YET  # it begins anew
    assert len(calls(workers.cloud, workers.site.delete)) == 2
    workers.site.finish(workers.cloud)
    assert workers.cloud.living(workers.given.machine.uid) == []

"""Metrics: the census of machines, calls of drivers, failures of activities. Their names: test_metrics_docs.py."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from lifekit import eventually
from metricskit import Samples, parse, value
from ports import free_port
from stubs import Machines, classified, stubbed
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from test_worker import get

from activities import census
from activities.boundary import Boundary, NotYet
from activities.census import Census
from activities.deps import Deps
from activities.kube import KubeError
from activities.metered import DEFECT, UNIMPLEMENTED, MeteredDriver
from activities.secrets import SecretMissing
from drivers.base import GetVolumeIDsRequest, GetVolumeIDsResponse
from drivers.errors import DriverError, IdempotencyMismatch, Unimplemented
from resources import attributes
from resources.converter import data_converter
from resources.errors import ErrorClass
from resources.settings import Settings, SettingsError, WorkerSettings


@dataclass
class Metered:
    """A client whose runtime serves metrics."""

    client: Client
    port: int

    def deps(self, prefix: str, interval: timedelta | None = None) -> Deps:
        return Deps(Settings(queue_prefix=prefix, worker=WorkerSettings(census=interval)), self.client)

    async def seen(self) -> Samples:
        return parse((await get(self.port, "/metrics"))[1])

    async def value(self, name: str, **labels: str) -> float | None:
        return value(await self.seen(), name, **labels)


@pytest.fixture
async def metered(temporal: WorkflowEnvironment) -> Metered:
    port = free_port()
    metrics = PrometheusConfig(bind_address=f"127.0.0.1:{port}", counters_total_suffix=True, unit_suffix=True)
    client = await Client.connect(
        temporal.client.service_client.config.target_host,
        namespace=temporal.client.namespace,
        data_converter=data_converter,
        runtime=Runtime(telemetry=TelemetryConfig(metrics=metrics)),
    )
    return Metered(client, port)


# -- the census -----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def stubbed_machines(metered: Metered) -> AsyncIterator[tuple[Machines, Census]]:
    async with stubbed(metered.client) as machines:
        yield machines, Census(metered.deps(machines.prefix))


async def test_machines_by_phase_and_reason_and_none_is_zero(metered: Metered) -> None:
    async with stubbed_machines(metered) as (machines, counting), stubbed(metered.client) as others:
        machines.stubs.then("create_machine", classified(ErrorClass.AUTH, "not authorized to RunInstances"))
        waiting = await machines.start(machines.new_state("m-1"))
        await eventually(lambda: asyncio.sleep(0, machines.stubs.called("create_machine")))
        for name in ("m-2", "m-3"):
            await machines.start(machines.new_state(name))
        # Another installation in the namespace: its workers count it.
        await others.start(others.new_state("m-4"))
        await eventually(lambda: asyncio.sleep(0, others.stubs.called("create_machine")))

        async def counted() -> list[float | None]:
            await counting.count()
            seen = await metered.seen()
            return [
                value(seen, "hostler_machines", cluster="demo", phase="CrashLoopBackOff", reason="NotAuthorized"),
                value(seen, "hostler_machines", cluster="demo", phase="Pending", reason="NodeNotSeen"),
            ]

        await eventually(counted, lambda c: c == [1, 2], "one that waits for rights, two for their nodes")
        before = await metered.value("hostler_census_timestamp_seconds")
        assert before is not None
        assert abs(before - time.time()) < 60
        await waiting.terminate("gone")
        await eventually(counted, lambda c: c == [0, 2], "zero, and not the last value")


async def test_deadlines_that_are_near(metered: Metered) -> None:
    async with stubbed_machines(metered) as (machines, counting):
        machines.stubs.holds["create_machine"] = asyncio.Event()
        try:
            near = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=5)))
            await machines.start(machines.new_state("m-2", creation_timeout=timedelta(minutes=20)))

            async def counted() -> tuple[float | None, float | None]:
                await counting.count()
                seen = await metered.seen()
                labels = {"cluster": "demo", "phase": "Pending"}
                return (
                    value(seen, "hostler_machines", reason="CreatingVM", **labels),
                    value(seen, "hostler_deadlines_near", **labels),
                )

            await eventually(counted, lambda c: c == (2, 1), "both are there, one deadline is near")
            await near.terminate("gone")
            await eventually(counted, lambda c: c == (1, 0), "the one that is left has time")
        finally:
            machines.stubs.holds["create_machine"].set()


async def test_a_retry_and_a_look_are_no_deadlines(metered: Metered) -> None:
    """Of what is due soon only that counts which ends something: a creation, a time of being Unknown, a drain."""
    async with stubbed_machines(metered) as (machines, counting):
        refused = classified(ErrorClass.AUTH, "not authorized to RunInstances")  # tried again in 3 minutes
        for name, minutes in (("m-1", 5), ("m-2", 60)):
            machines.stubs.then("create_machine", refused)
            await machines.start(machines.new_state(name, creation_timeout=timedelta(minutes=minutes)))
        await eventually(lambda: asyncio.sleep(0, machines.stubs.called("create_machine")), lambda c: len(c) == 2)
        await machines.start(machines.new_state("m-3", creation_timeout=timedelta(minutes=60)))  # looked at in 30 s

        async def counted() -> list[float | None]:
            await counting.count()
            seen = await metered.seen()
            reasons = {"CrashLoopBackOff": "NotAuthorized", "Pending": "NodeNotSeen"}
            return [
                number
                for phase, reason in reasons.items()
                for number in (
                    value(seen, "hostler_machines", phase=phase, reason=reason),
                    value(seen, "hostler_deadlines_near", phase=phase),
                )
            ]

        await eventually(counted, lambda c: c == [2, 1, 1, 0], "one creation ends soon")


def listed(name: str, deadline: timedelta | None = None, **said: str) -> Any:
    """A machine as visibility lists it."""
    keys = {"cluster": attributes.CLUSTER, "phase": attributes.PHASE, "reason": attributes.REASON}
    pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(keys[k], v) for k, v in said.items()]
    if deadline is not None:
        pairs.append(SearchAttributePair(attributes.DEADLINE, NOW + deadline))
    return SimpleNamespace(id=name, typed_search_attributes=TypedSearchAttributes(pairs))


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("deadline", "near"),
    [
        (None, 0),
        (timedelta(minutes=-1), 0),  # it has struck: the next news takes it away
        (timedelta(0), 1),
        (timedelta(minutes=10), 1),
        (timedelta(minutes=10, seconds=1), 0),
    ],
)
def test_near_is_within_ten_minutes(deadline: timedelta | None, near: int) -> None:
    tally = census.Tally(NOW)
    tally.add(listed("machine/demo/m-1", deadline, cluster="demo", phase="Unknown"))
    assert tally.near == {(("cluster", "demo"), ("phase", "Unknown")): near}


def test_a_machine_that_nobody_has_taken_up_is_counted() -> None:
    """`temporal workflow start` writes no attributes: the cluster is in the workflow's id."""
    tally = census.Tally(NOW)
    tally.add(listed("machine/elsewhere/m-1"))
    tally.add(listed("as-somebody-likes"))
    assert tally.machines == {
        (("cluster", "elsewhere"), ("phase", ""), ("reason", "")): 1,
        (("cluster", ""), ("phase", ""), ("reason", "")): 1,
    }


class Visibility:
    """A client whose listings are a script: each is the machines of its pages, and perhaps an error after them."""

    def __init__(self, real: Client, *script: list[Any]) -> None:
        self.service_client = real.service_client
        self.script = list(script)
        self.asked = 0

    async def list_workflows(self, query: str, **_: Any) -> AsyncIterator[Any]:
        self.asked += 1
        for item in self.script.pop(0) if len(self.script) > 1 else self.script[0]:
            if isinstance(item, Exception):
                raise item
            yield item


def down() -> RPCError:
    return RPCError("visibility is down", RPCStatusCode.UNAVAILABLE, b"")


async def test_half_a_list_moves_nothing(metered: Metered) -> None:
    one = listed("machine/demo/m-1", cluster="demo", phase="Running")
    deps = metered.deps("t")
    deps.client = Visibility(metered.client, [one, one], [one, down()], [one])  # type: ignore[assignment]
    counting = Census(deps)
    await counting.count()
    with pytest.raises(RPCError):
        await counting.count()
    assert await metered.value("hostler_machines", phase="Running") == 2
    await counting.count()
    assert await metered.value("hostler_machines", phase="Running") == 1


async def test_a_failing_visibility_is_said_once_and_tried_again(
    metered: Metered, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hostler.census")
    one = listed("machine/demo/m-1", cluster="demo", phase="Running")
    deps = metered.deps("t", timedelta(milliseconds=10))
    script = [[down()], [down()], [ValueError("and a bug of ours")], [one], [down()], [one]]
    deps.client = visibility = Visibility(metered.client, *script)  # type: ignore[assignment]
    async with census.taking(deps):
        await eventually(lambda: asyncio.sleep(0, visibility.asked), lambda n: n > 6, "six censuses")
        assert await metered.value("hostler_machines", phase="Running") == 1
    said = [r.getMessage() for r in caplog.records]
    assert [m.split(":")[0] for m in said] == ["machines cannot be counted", "machines are counted again"] * 2
    assert "visibility is down" in said[0]
    assert "trying again every 0.01s" in said[0]
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "census"]


async def test_no_census_where_it_is_not_wanted_or_not_seen(metered: Metered, temporal: WorkflowEnvironment) -> None:
    def running() -> bool:
        return "census" in [t.get_name() for t in asyncio.all_tasks()]

    unseen = Deps(Settings(queue_prefix="t"), temporal.client)  # its runtime serves no metrics
    for deps, expected in ((metered.deps("t", timedelta(hours=1)), True), (metered.deps("t"), False), (unseen, False)):
        async with census.taking(deps):
            assert running() is expected
        assert not running()


async def test_the_census_stops_with_a_worker_whose_visibility_hangs(metered: Metered) -> None:
    deps = metered.deps("t", timedelta(hours=1))
    hanging = asyncio.Event()

    async def list_workflows(query: str, **_: Any) -> AsyncIterator[Any]:
        hanging.set()
        await asyncio.Event().wait()
        yield

    deps.client = SimpleNamespace(list_workflows=list_workflows)  # type: ignore[assignment]
    async with asyncio.timeout(30):
        async with census.taking(deps):
            await hanging.wait()


# -- drivers ----------------------------------------------------------------------------------------------------------


class Answers:
    """A driver of one method, whose answers are a script."""

    def __init__(self, *script: Exception | GetVolumeIDsResponse) -> None:
        self.script = list(script)

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_driver_calls_by_error_class(metered: Metered) -> None:
    fine = GetVolumeIDsResponse(volume_ids=["vol-1"])
    errors = [DriverError(c, "no") for c in ErrorClass]
    odd = [Unimplemented("get_volume_ids", "AWS"), KeyError("a bug of the driver")]
    driver = MeteredDriver("AWS", Answers(fine, fine, *errors, *odd), metered.deps("t").meter)  # type: ignore[arg-type]
    request = GetVolumeIDsRequest(persistent_volume_specs=[])
    assert [driver.get_volume_ids(request) for _ in range(2)] == [fine, fine]
    for error in (*errors, *odd):
        with pytest.raises(type(error)) as raised:
            driver.get_volume_ids(request)
        assert raised.value is error
    seen = await metered.seen()
    labels = {"provider": "AWS", "operation": "get_volume_ids"}
    counted = {c: value(seen, "hostler_driver_calls_total", error_class=c, **labels) for c in ["", *ErrorClass]}
    assert counted == {"": 2} | dict.fromkeys(ErrorClass, 1)
    for odd_class in (UNIMPLEMENTED, DEFECT):
        assert value(seen, "hostler_driver_calls_total", error_class=odd_class, **labels) == 1
    took = "hostler_driver_call_duration_milliseconds_count"
    assert value(seen, took, **labels) == 2 + len(errors) + len(odd)


# -- activities of all kinds ------------------------------------------------------------------------------------------


class Failing:
    """What the boundary calls: the rest of the activity's interceptors."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def execute_activity(self, input: Any) -> None:
        raise self.error


async def test_failed_attempts_by_error_class(metered: Metered) -> None:
    errors: list[tuple[Exception, str | None]] = [
        (NotYet("2 of 5 pods are gone", timedelta(seconds=5)), None),  # a pass that is not over yet is no failure
        (DriverError(ErrorClass.CAPACITY, "no"), "capacity"),
        (IdempotencyMismatch("no", provider_code="IdempotentParameterMismatch", terminated=True), "conflict"),
        (KubeError(429, "TooManyRequests", "no"), "throttled"),
        (SecretMissing("Secret default/s is not there"), "auth"),
        (SettingsError("no such cluster"), "invalid"),
    ]
    for error, _ in errors:
        environment = ActivityEnvironment()
        environment.metric_meter = metered.deps("t").meter
        boundary = Boundary().intercept_activity(Failing(error))  # type: ignore[arg-type]
        with pytest.raises(ApplicationError):
            await environment.run(boundary.execute_activity, None)
    seen = await metered.seen()
    counted = {dict(labels)["error_class"]: n for (name, labels), n in seen.items() if name.startswith("hostler_call")}
    assert counted == {expected: 1 for _, expected in errors if expected}

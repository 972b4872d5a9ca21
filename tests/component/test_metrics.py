"""Metrics: the census of machines, calls of drivers, failures of activities. Their names: test_metrics_docs.py."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from lifekit import eventually
from machine.classes import Classes, snapshot
from machine.stubs import classified, stubbed
from metricskit import NOW, Metered, Visibility, listed, metered, stubbed_machines, value
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.boundary import Boundary, NotYet
from activities.census import census
from activities.census.census import Census
from activities.deps import Deps
from activities.kube.client import KubeError
from activities.metered import DEFECT, HOT_UPDATE, UNIMPLEMENTED, MeteredDriver
from activities.secrets import SecretMissing
from drivers.base import (
    GetVolumeIDsRequest,
    GetVolumeIDsResponse,
    Identity,
    UpdateMachineRequest,
    UpdateMachineResponse,
)
from drivers.errors import DriverError, IdempotencyMismatch, Unimplemented
from resources.errors import ErrorClass
from resources.machine_class.state import ClassChange, ClassProgress, ClassState, UpdateState, User
from resources.settings import Settings, SettingsError

__all__ = ["metered"]  # a fixture

# -- the census -----------------------------------------------------------------------------------------------------


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
                value(
                    seen, "hostler_machines", cluster=machines.prefix, phase="CrashLoopBackOff", reason="NotAuthorized"
                ),
                value(seen, "hostler_machines", cluster=machines.prefix, phase="Pending", reason="NodeNotSeen"),
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
                labels = {"cluster": machines.prefix, "phase": "Pending"}
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
    """Among what is due soon, only the end of something counts: of a creation, a time of being Unknown, a drain."""
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


async def test_machines_of_a_class_by_how_far_they_are(metered: Metered) -> None:
    classes = Classes(metered.client, f"t{uuid.uuid4().hex[:8]}")
    counting = Census(metered.deps(classes.queue))
    first, second, third = (NOW - timedelta(hours=h) for h in (3, 2, 1))
    changes = [ClassChange(generation=n, time=at) for n, at in enumerate((first, second, third), 1)]

    async def counted() -> dict[str, float | None]:
        await counting.count()
        seen, of = await metered.seen(), {"cluster": classes.cluster, "class": "c1"}
        return {
            "updated": value(seen, "hostler_class_machines", state="Updated", reason="", **of),
            "failed": value(seen, "hostler_class_machines", state="Failed", reason="NotAuthorized", **of),
            "since": value(seen, "hostler_class_unfinished_timestamp_seconds", **of),
            "updating": value(seen, "hostler_classes", phase="Updating", reason="NotAuthorized"),
            # Visibility may be behind, so that it was seen before it had users.
            "done": value(seen, "hostler_classes", phase="Updated", reason="") or 0,
        }

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(classes.end)
        await stack.enter_async_context(classes.worker())
        await stack.enter_async_context(classes.users_worker())
        await classes.start(machine_class=snapshot(3), changes=changes)
        await classes.user("m-1", generation=3)
        for user in ("m-2", "m-3"):
            await classes.user(user, generation=3, applied=1, state=UpdateState.FAILED, reason="NotAuthorized")
        since = int(second.timestamp())  # the time of the oldest change that one of the two does not carry
        wanted = {"updated": 1, "failed": 2, "since": since, "updating": 1, "done": 0}
        await eventually(counted, lambda c: c == wanted, "two that failed, for two hours")
        for user in ("m-2", "m-3"):
            await classes.report(user, 3)
        wanted = {"updated": 3, "failed": 0, "since": 0, "updating": 0, "done": 1}
        await eventually(counted, lambda c: c == wanted, "all are updated")
        await classes.handle.terminate("gone")
        wanted = dict.fromkeys(wanted, 0)
        await eventually(counted, lambda c: c == wanted, "zero, and not the last value")


async def test_a_class_that_does_not_answer_keeps_its_numbers(
    metered: Metered, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hostler.census")
    mended = ClassProgress(states=[(UpdateState.UPDATED, "", 2)])
    script: list[ClassProgress | Exception] = [
        ClassProgress(states=[(UpdateState.FAILED, "QuotaExceeded", 2)], unfinished_since=NOW),
        WorkflowQueryFailedError("unhandled error"),
        RPCError("no poller", RPCStatusCode.FAILED_PRECONDITION, b""),
        mended,
        RPCError("no poller", RPCStatusCode.FAILED_PRECONDITION, b""),
        WorkflowQueryRejectedError(None),  # it ended after it was listed
    ]

    async def query(name: str, **_: Any) -> ClassProgress:
        assert name == "progress"
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    deps = metered.deps("t")
    deps.client = client = Visibility(metered.client, [listed("machineclass/demo/c1", type="MachineClassWorkflow")])  # type: ignore[assignment]
    client.get_workflow_handle = lambda workflow_id: SimpleNamespace(query=query)  # type: ignore[attr-defined]
    counting, seen = Census(deps), []
    while script:
        await counting.count()
        labels = {"cluster": "demo", "class": "c1"}
        failed = await metered.value("hostler_class_machines", state="Failed", reason="QuotaExceeded", **labels)
        since = await metered.value("hostler_class_unfinished_timestamp_seconds", **labels)
        updated = await metered.value("hostler_class_machines", state="Updated", **labels)
        seen.append((failed, since, updated))
    at = int(NOW.timestamp())
    assert seen == [(2, at, None)] * 3 + [(0, 0, 2)] * 2 + [(0, 0, 0)]
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 2, "once each time that it begins"
    assert said[0].startswith("machineclass/demo/c1 does not answer: unhandled error; until then its numbers")


@pytest.mark.parametrize(
    ("users", "since"),
    [
        ({}, None),
        ({"m-1": User(generation=3, applied=3, state=UpdateState.UPDATED)}, None),
        ({"m-1": User(generation=3, applied=1, state=UpdateState.NOT_SUPPORTED)}, None),  # nothing more comes
        ({"m-1": User(generation=3, applied=0, state=UpdateState.PENDING)}, None),  # its VM is made with it
        ({"m-1": User(generation=3, applied=2, state=UpdateState.FAILED)}, 3),
        ({"m-1": User(generation=3, applied=1, state=UpdateState.UPDATING)}, 2),
        ({"m-1": User(generation=2, applied=2, state=UpdateState.UPDATED)}, 3),  # not told yet
        ({"m-1": User()}, 3),  # a former life's user that has said nothing: what it carries is not known
    ],
)
def test_since_when_a_class_is_unfinished(users: dict[str, User], since: int | None) -> None:
    changes = [ClassChange(generation=n, time=NOW + timedelta(minutes=n)) for n in (1, 2, 3)]
    state = ClassState(name="c1", machine_class=snapshot(3), changes=changes, users=users)
    expected = None if since is None else NOW + timedelta(minutes=since)
    assert (state.progress.unfinished_since, state.updated) == (expected, since is None)


def test_who_has_said_nothing_of_the_newest_generation_is_not_done_with_it() -> None:
    done = User(generation=3, applied=3, state=UpdateState.UPDATED)
    failed = done._replace(state=UpdateState.FAILED, reason="NotAuthorized")
    users = {"m-1": done, "m-2": failed, "m-3": done._replace(generation=2), "m-4": failed._replace(generation=2)}
    state = ClassState(name="c1", machine_class=snapshot(3), users=users)
    assert state.states == [
        (UpdateState.FAILED, "NotAuthorized", 1),
        (UpdateState.UPDATED, "", 1),
        (UpdateState.UPDATING, "", 2),
    ]
    assert state.progress.states == state.states


@pytest.mark.parametrize(
    ("deadline", "near"),
    [
        (None, 0),
        (timedelta(minutes=-1), 0),  # it has struck: the next news removes it
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
        return "hostler.census" in [t.get_name() for t in asyncio.all_tasks()]

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


class Updates:
    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        return UpdateMachineResponse()


async def test_a_hot_update_is_counted_apart_from_the_post_start_update(metered: Metered) -> None:
    driver = MeteredDriver("AWS", Updates(), metered.deps("t").meter)  # type: ignore[arg-type]
    machine = Identity(cluster="demo", name="m-1", uid="u", cluster_full_name="demo")
    for last in (None, {"ami": "ami-1"}, {"ami": "ami-1"}):
        request = UpdateMachineRequest(
            machine=machine, provider_spec={}, provider_id="aws:///eu-west-1/i-1", last_applied_provider_spec=last
        )
        assert driver.update_machine(request) == UpdateMachineResponse()
    seen = await metered.seen()
    for operation, calls in (("update_machine", 1), (HOT_UPDATE, 2)):
        assert value(seen, "hostler_driver_calls_total", operation=operation, error_class="") == calls


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

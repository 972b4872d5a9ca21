"""No activity decides by the wall clock of its machine: here the server's time is years off from it, either way."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from activitykit import CONSISTENCY, Attempts, attempts, ref, running
from apiserver.simulated import NODES

from activities.cloud.deleting import until_next_look, until_next_shutdown_look
from activities.cloud.instances import InstancesActivities
from activities.cloud.machine import MachineActivities
from activities.drain.nodes import DrainActivities
from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Evidence
from resources.calls.cloud import DeleteInput, DeleteOutput, InstancesInput, InstancesOutput, StatusInput, StatusOutput
from resources.calls.drain import DrainInput, DrainOutput
from resources.calls.machine import Target
from resources.cluster.accounts import Account
from resources.errors import NOT_YET
from resources.machine.manifest import SecretRef

__all__ = ["attempts", "running"]  # fixtures

UNKNOWN_VM = "aws:///eu-west-1/i-0123456789abcdef0"
SECOND = timedelta(seconds=1)

both_ways = pytest.mark.parametrize(
    "now", [datetime(2020, 2, 3, tzinfo=UTC), datetime(2040, 2, 3, tzinfo=UTC)], ids=["worker ahead", "worker behind"]
)


class Answers:
    """A driver whose deletions find what the test says."""

    def __init__(self, *evidence: Evidence, seconds: float = 0.0) -> None:
        self.evidence = list(evidence)
        self.seconds = seconds
        """How long each call takes."""

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        time.sleep(self.seconds)
        found = self.evidence.pop(0)
        return DeleteMachineResponse(evidence=found, left=["i-1 running"] if found is Evidence.PRESENT else [])


def answering(attempts: Attempts, monkeypatch: pytest.MonkeyPatch, *evidence: Evidence, seconds: float = 0.0) -> None:
    driver = Answers(*evidence, seconds=seconds)
    monkeypatch.setattr(attempts.deps, "driver", lambda provider: driver)


async def delete_again(attempts: Attempts, target: Target, at: datetime) -> timedelta:
    """Makes an attempt of a deletion that is not over; returns when the next one is to come."""
    failure = await attempts.fails(MachineActivities(attempts.deps).delete_machine, DeleteInput(target=target), at)
    assert failure.type == NOT_YET, failure
    assert failure.next_retry_delay is not None
    return failure.next_retry_delay


async def delete(attempts: Attempts, target: Target, at: datetime) -> DeleteOutput:
    return await attempts.attempt(MachineActivities(attempts.deps).delete_machine, DeleteInput(target=target), at)


@both_ways
async def test_gone_takes_two_looks_further_apart_than_the_lag_window(attempts: Attempts, now: datetime) -> None:
    target = attempts.target(attempts.given())
    again = await delete_again(attempts, target, now)
    assert CONSISTENCY - SECOND < again <= CONSISTENCY + SECOND
    again = await delete_again(attempts, target, now + CONSISTENCY / 2)
    assert again < CONSISTENCY - SECOND
    assert await delete(attempts, target, now + CONSISTENCY * 2) == DeleteOutput()


@pytest.mark.parametrize("jump", [7200.0, -7200.0], ids=["two hours ahead", "two hours back"])
async def test_a_wall_clock_that_jumps_changes_no_lag_window(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    answering(attempts, monkeypatch, *[Evidence.NOT_FOUND] * 3)
    target = attempts.target(attempts.given())
    now, true_time = datetime.now(UTC), time.time
    await delete_again(attempts, target, now)
    monkeypatch.setattr(time, "time", lambda: true_time() + jump)
    await delete_again(attempts, target, now + CONSISTENCY / 2)
    assert await delete(attempts, target, now + CONSISTENCY * 2) == DeleteOutput()


async def test_what_is_there_again_begins_the_window_anew(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(attempts, monkeypatch, Evidence.NOT_FOUND, Evidence.PRESENT, Evidence.NOT_FOUND, Evidence.NOT_FOUND)
    now, target = datetime(2040, 2, 3, tzinfo=UTC), attempts.target(attempts.given())
    await delete_again(attempts, target, now)
    assert await delete_again(attempts, target, now + 2 * CONSISTENCY) <= timedelta(seconds=5)
    again = await delete_again(attempts, target, now + 3 * CONSISTENCY)
    assert again > CONSISTENCY - SECOND
    assert await delete(attempts, target, now + 5 * CONSISTENCY) == DeleteOutput()


async def test_a_look_that_began_within_the_window_is_none_behind_it(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a slow call answers may have been read at its beginning."""
    answering(attempts, monkeypatch, *[Evidence.NOT_FOUND] * 3, seconds=0.3)
    now, window = datetime(2040, 2, 3, tzinfo=UTC), timedelta(seconds=0.2)
    target = attempts.target(attempts.given()).model_copy(update={"consistency": window})
    await delete_again(attempts, target, now)
    assert await delete_again(attempts, target, now + timedelta(seconds=0.4)) >= timedelta(seconds=0.1)
    assert await delete(attempts, target, now + CONSISTENCY) == DeleteOutput()


@both_ways
async def test_a_fresh_vm_that_reads_do_not_see_is_not_gone(attempts: Attempts, now: datetime) -> None:
    given = attempts.given()
    watch = MachineActivities(attempts.deps).watch_machine
    target = attempts.target(given, UNKNOWN_VM)
    input = StatusInput(target=target, since=now, interval=timedelta(seconds=30))
    words = await attempts.waits(watch, input, at=now + CONSISTENCY - SECOND)
    assert words.startswith(f"{UNKNOWN_VM} is not visible yet: ")
    output = await attempts.attempt(watch, input, at=now + CONSISTENCY + SECOND)
    assert isinstance(output, StatusOutput)
    assert output.gone


@both_ways
async def test_the_watch_of_an_account_returns_after_its_duration(attempts: Attempts, now: datetime) -> None:
    secret = SecretRef(name="credentials")
    input = InstancesInput(
        cluster="demo",
        account=Account(provider="AWS", region="eu-west-1", secret_ref=secret),
        interval=timedelta(seconds=60),
        duration=timedelta(hours=1),
    )
    watch = InstancesActivities(attempts.deps).watch_instances
    words = await attempts.waits(watch, input, at=now)
    assert words == f"0 VMs of {input.account.key}"
    output = await attempts.attempt(watch, input, at=now + timedelta(hours=1, seconds=1), scheduled=now)
    assert output == InstancesOutput()
    ((signal, news),) = attempts.client.signals
    assert signal == "cloud_reachability"
    assert timedelta(0) <= news.time - now < timedelta(minutes=1)  # told once, by the server's clock


@both_ways
async def test_a_kubelet_is_dead_by_the_servers_clock(attempts: Attempts, now: datetime) -> None:
    await attempts.node("n-1", UNKNOWN_VM)
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {
        "conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}],
        "volumesAttached": [{"name": "vol-1", "devicePath": ""}],
    }
    await attempts.world.kube.patch(f"{NODES}/n-1/status", {"status": status})
    input = DrainInput(
        machine=ref(attempts.given()), node_name="n-1", provider_id=UNKNOWN_VM, poll=timedelta(seconds=5), story=[]
    )
    drain = DrainActivities(attempts.deps).drain_node
    words = await attempts.waits(drain, input, at=now + timedelta(minutes=4))
    assert "waiting for volume vol-1 to detach" in words
    output = await attempts.attempt(drain, input, at=now + timedelta(minutes=6))
    assert output == DrainOutput(left=["volume vol-1 still attached"])


def test_looks_at_a_vm_that_goes_become_rarer() -> None:
    """Some VMs are gone within seconds, and the next machine of a rollout may wait for that. The longest wait is
    `poll`."""
    waits = [until_next_look(attempt, timedelta(seconds=5)).total_seconds() for attempt in (1, 2, 3, 4, 5, 6, 1000)]
    assert waits == [1.0, 1.5, 2.25, 3.375, 5.0, 5.0, 5.0]
    assert until_next_look(1, timedelta(seconds=0.5)) == timedelta(seconds=0.5)


def test_looks_at_a_vm_that_shuts_down_become_rarer_for_longer() -> None:
    """It takes EC2 half a minute, or two, and each look is a call."""
    waits = [until_next_shutdown_look(looks, timedelta(seconds=5)).total_seconds() for looks in range(1, 9)]
    assert [round(w, 1) for w in waits] == [2.5, 8.0, 12.8, 20.5, 32.8, 52.4, 60.0, 60.0]
    assert until_next_shutdown_look(1000, timedelta(seconds=5)) == timedelta(seconds=60)

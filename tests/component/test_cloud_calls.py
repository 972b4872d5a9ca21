"""What a life costs an account: calls to EC2, counted in the simulator's journal. The goal is 12 a life, whatever time
VMs take to end; machine-controller-manager makes 9."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest
from activitykit import Attempts, attempts, instance, running
from clouds.aws import KEPT_DISK, ROOT_DISK
from clouds.drivers import Given, calls, fault
from clouds.lives import Life, lives
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cloud.machine import MachineActivities
from resources.calls.cloud import DeleteInput, DeleteOutput
from resources.errors import MISSING_CREDENTIALS
from resources.machine.manifest import SecretRef

__all__ = ["attempts", "running"]  # fixtures

GOAL = 12
ONCE = ("DescribeImages", "GetCallerIdentity")
"""Asked once for all of an image, and of an account, so no single life's."""


def end(life: Life) -> None:
    life.attempts.cloud.do(lambda: life.attempts.cloud.ec2.kill(life.vm))


@pytest.mark.parametrize("latency", [2.0, 40.0, 120.0])
@pytest.mark.parametrize("count", [1, 5])
async def test_a_life_costs_few_calls_whatever_time_its_vm_takes_to_end(
    attempts: Attempts, count: int, latency: float
) -> None:
    await lives(attempts, count, latency, end)
    made = Counter(c.operation for c in calls(attempts.cloud))
    assert made["RunInstances"] == made["TerminateInstances"] == count
    assert made["DescribeVolumes"] == made["DescribeNetworkInterfaces"] == count  # once it has ended, and not before
    for once in ONCE:
        assert made.pop(once) == 1
    assert sum(made.values()) <= GOAL * count, made
    if count > 1:  # one read serves all: beside it each life reads at its creation, before its end and after it
        looks = made["DescribeInstances"] - 3 * count
        assert looks <= {2.0: 1, 40.0: 4, 120.0: 6}[latency]


async def test_a_vm_that_nobody_ever_asked_for_is_gone_without_credentials(attempts: Attempts) -> None:
    """Only the first run of a chain knows that: another one goes on from a state that may have been reset."""
    delete = MachineActivities(attempts.deps).delete_machine
    target = attempts.target(attempts.given()).model_copy(update={"secret_ref": SecretRef(name="missing")})
    never = DeleteInput(target=target, asked=False)
    assert (await attempts.fails(delete, never)).type == MISSING_CREDENTIALS
    attempts.client.first_run = ActivityEnvironment().info.workflow_run_id or ""
    assert await attempts.attempt(delete, never) == DeleteOutput()
    asked = never.model_copy(update={"asked": True})
    assert (await attempts.fails(delete, asked)).type == MISSING_CREDENTIALS


async def test_what_is_kept_is_protected_first_and_named_at_the_end(attempts: Attempts) -> None:
    (life,) = await lives(attempts, 1, 40.0, end, blockDevices=[ROOT_DISK, KEPT_DISK])
    assert life.over is not None
    (kept,) = calls(attempts.cloud, "RunInstances")[0].result["volumeIds"][1:]
    assert life.over.kept == [kept]
    order = [c.operation for c in calls(attempts.cloud)]
    protected, told = order.index("CreateTags"), order.index("TerminateInstances")
    assert protected < told
    assert "DescribeVolumes" in order[:protected]
    assert "DescribeVolumes" in order[protected:told]  # read back
    waited = order[told + 1 : order.index("DescribeVolumes", told)]
    assert set(waited) == {"DescribeInstances"}
    assert len(waited) > 2


async def test_what_only_the_instance_says_is_kept_is_protected_too(attempts: Attempts) -> None:
    """A person has switched DeleteOnTermination off: the spec does not say so, the attachment does."""

    def keep(vm: str) -> None:
        (volume,) = [v for v in attempts.cloud.ec2._volumes.records.values() if v.instance_id == vm]
        volume.delete_on_termination = False

    given = attempts.given()
    life = Life(attempts, given, attempts.target(given))
    await life.begin()
    attempts.cloud.do(lambda: keep(life.vm))
    while life.over is None:
        await life.delete()
    (volume,) = calls(attempts.cloud, "RunInstances")[0].result["volumeIds"]
    assert life.over.kept == [volume]


async def test_a_vm_that_comes_to_light_while_another_shuts_down_is_ended_too(attempts: Attempts) -> None:
    """Reads lag: an earlier attempt's VM is visible only when the other one is already on its way out."""
    attempts.cloud.set_delays(boot=0.0, terminate=3600.0)
    given = attempts.given()
    life = Life(attempts, given, attempts.target(given))
    await life.begin()
    await life.delete()
    other = attempts.cloud.driver.create_machine(given.creation(token="attempt-0")).provider_id
    await life.delete()
    assert attempts.cloud.do(lambda: attempts.cloud.ec2._instances.records[instance(other)].state) == "shutting-down"


async def test_a_shared_read_that_fails_is_an_error_and_the_next_attempt_goes_on(attempts: Attempts) -> None:
    attempts.cloud.set_delays(boot=0.0, terminate=3600.0)
    pair = []
    for n in range(2):
        given = attempts.given()
        identity = given.machine.model_copy(update={"name": f"m-{n}", "uid": str(uuid.uuid4())})
        pair.append(Life(attempts, given := Given(attempts.cloud, identity, given.spec), attempts.target(given)))
        await pair[-1].begin()
        await pair[-1].delete()
    rule = fault(attempts.cloud, "DescribeInstances", "RequestLimitExceeded", match="instance-id")
    with pytest.raises(ApplicationError, match="RequestLimitExceeded"):
        await pair[1].delete()
    assert rule.hits == 1
    for life in pair:
        attempts.cloud.do(lambda vm=life.vm: attempts.cloud.ec2.kill(vm))  # type: ignore[misc]
        while life.over is None:
            await life.delete()

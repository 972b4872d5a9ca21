"""Deletion: what is kept, what is left over, what EC2 refuses, a crash at any call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from clouds.aws import KEPT_DISK, NIC, ROOT_DISK, SUBNET, tags
from clouds.drivers import AwsCloud, Given, calls, delete_until_gone, fault, machine, until

from drivers.aws.calls import Ec2 as Ec2Calls
from drivers.base import Evidence
from drivers.errors import DriverError
from resources.errors import ErrorClass


def keeping(cloud: AwsCloud) -> tuple[Given, str, list[str]]:
    """A machine that keeps one of its volumes and one of its interfaces; its providerID, and what is to be kept."""
    nics = [NIC, {**NIC, "deleteOnTermination": False}]
    given = machine(cloud, blockDevices=[ROOT_DISK, KEPT_DISK], networkInterfaces=nics)
    made = cloud.driver.create_machine(given.creation())
    result = calls(cloud, "RunInstances")[-1].result
    return given, made.provider_id, sorted([result["volumeIds"][1], result["networkInterfaceIds"][1]])


def released(ec2: Any, given: Given) -> list[str]:
    """What exists with the released mark and without our tags."""
    value = f"{given.machine.name}/{given.machine.uid}"
    filters = [{"Name": "tag:hostler.io/released-by", "Values": [value]}]
    volumes = ec2.describe_volumes(Filters=filters)["Volumes"]
    nics = ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    for resource in volumes + nics:
        found = tags(resource)
        assert not {"hostler.io/owner", "hostler.io/cluster", "hostler.io/machine", "hostler.io/uid"} & set(found)
        assert found["Name"] == given.machine.name  # what is not ours stays
    return sorted([v["VolumeId"] for v in volumes] + [n["NetworkInterfaceId"] for n in nics])


def test_what_the_spec_keeps_is_released_and_named_on_every_pass(cloud: AwsCloud, ec2: Any) -> None:
    given, provider_id, kept = keeping(cloud)
    first = cloud.driver.delete_machine(given.deletion(provider_id))
    assert (first.evidence, sorted(first.kept)) == (Evidence.PRESENT, kept)
    for _ in range(2):
        last = delete_until_gone(given, provider_id)
        assert (last.evidence, sorted(last.kept), last.left) == (Evidence.TERMINATED, kept, [])
    assert cloud.left(given.machine.uid) == {}
    assert released(ec2, given) == kept


@pytest.mark.parametrize("operation", ["CreateTags", "DeleteTags", "TerminateInstances"])
@pytest.mark.parametrize("lost", [True, False], ids=["reply lost", "refused"])
def test_what_is_kept_survives_any_failure(cloud: AwsCloud, ec2: Any, operation: str, lost: bool) -> None:
    given, provider_id, kept = keeping(cloud)
    fault(cloud, operation, None if lost else "InternalError", drop=lost)
    with pytest.raises(DriverError) as failure:
        cloud.driver.delete_machine(given.deletion(provider_id))
    assert failure.value.error_class is ErrorClass.TRANSIENT
    assert sorted(delete_until_gone(given, provider_id).kept) == kept
    assert released(ec2, given) == kept
    assert [c for c in calls(cloud, "Delete*") if c.operation != "DeleteTags"] == []


def test_the_vm_is_not_told_to_go_before_what_is_kept_is_seen_as_released(cloud: AwsCloud, ec2: Any) -> None:
    given, provider_id, kept = keeping(cloud)
    cloud.frame.lag.tags = 60.0
    waiting = cloud.driver.delete_machine(given.deletion(provider_id))
    assert waiting.evidence is Evidence.PRESENT
    assert any("waits for the tags" in left for left in waiting.left)
    assert calls(cloud, "TerminateInstances") == []
    cloud.frame.lag.tags = 0.0
    assert sorted(delete_until_gone(given, provider_id).kept) == kept
    assert len(calls(cloud, "TerminateInstances")) == 1
    assert released(ec2, given) == kept


def test_a_vm_that_died_behind_our_back_loses_nothing_that_is_kept(cloud: AwsCloud, ec2: Any) -> None:
    given, provider_id, kept = keeping(cloud)
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    assert sorted(delete_until_gone(given, provider_id).kept) == kept
    assert released(ec2, given) == kept


class Interrupted(Exception):
    """The worker has gone."""


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> Callable[[], bool]:
    """Ends the driver's work before or after its call number `at`; returns whether it came to that."""
    real, seen = Ec2Calls.call, [0]

    def call(self: Ec2Calls, operation: str, **parameters: Any) -> Any:
        seen[0] += 1
        if seen[0] == at and not after:
            raise Interrupted
        reply = real(self, operation, **parameters)
        if seen[0] == at:
            raise Interrupted
        return reply

    monkeypatch.setattr(Ec2Calls, "call", call)
    return lambda: seen[0] >= at


@pytest.mark.parametrize("dies", [False, True], ids=["", "and the VM dies"])
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_a_crash_at_any_call_of_a_deletion_loses_nothing_and_leaves_nothing(
    cloud: AwsCloud, ec2: Any, after: bool, dies: bool
) -> None:
    at, reached = 0, True
    while reached:
        at += 1
        given, provider_id, kept = keeping(cloud)
        with pytest.MonkeyPatch.context() as patch:
            came_so_far = interrupt(patch, at, after)
            with contextlib.suppress(Interrupted):
                cloud.driver.delete_machine(given.deletion(provider_id))
            reached = came_so_far()
        if dies:
            cloud.do(lambda vm=provider_id.rsplit("/", 1)[-1]: cloud.ec2.kill(vm))  # type: ignore[misc]
        assert sorted(delete_until_gone(given, provider_id).kept) == kept, f"crash at call {at}"
        assert released(ec2, given) == kept, f"crash at call {at}"
        assert cloud.left(given.machine.uid) == {}, f"crash at call {at}"
    assert at > 8  # reads, tags, reads again, tags, terminate: every one of them had its crash


@pytest.mark.parametrize("how", ["reply lost", "refused", "lag"])
def test_what_a_dead_vm_was_to_keep_is_never_a_leftover(cloud: AwsCloud, ec2: Any, how: str) -> None:
    given, provider_id, kept = keeping(cloud)
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    if how == "lag":
        cloud.frame.lag.tags = 60.0
        first = cloud.driver.delete_machine(given.deletion(provider_id))
        assert (first.evidence, first.left) == (Evidence.PRESENT, [f"{k} available" for k in kept])
        cloud.frame.lag.tags = 0.0
    else:
        fault(cloud, "CreateTags", "InternalError" if how == "refused" else None, drop=how == "reply lost")
        with pytest.raises(DriverError):
            cloud.driver.delete_machine(given.deletion(provider_id))
    assert sorted(delete_until_gone(given, provider_id).kept) == kept
    assert released(ec2, given) == kept


def test_a_volume_that_a_person_detached_waits_for_the_vm_to_end(cloud: AwsCloud, ec2: Any) -> None:
    given, provider_id, kept = keeping(cloud)
    (volume,) = [k for k in kept if k.startswith("vol-")]
    cloud.set_delays(boot=0.0, terminate=60.0)
    cloud.do(lambda: setattr(cloud.ec2._volumes.records[volume], "instance_id", None))  # EC2 can, the driver cannot
    first = cloud.driver.delete_machine(given.deletion(provider_id))
    assert f"{volume} available" in first.left
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    assert sorted(delete_until_gone(given, provider_id).kept) == kept
    assert released(ec2, given) == kept


def test_leftovers_that_nobody_keeps_are_deleted(cloud: AwsCloud) -> None:
    given, provider_id, kept = keeping(cloud)
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    spec = cloud.spec()  # it keeps nothing, and EC2 no longer says how anything was attached
    first = cloud.driver.delete_machine(given.deletion(provider_id, provider_spec=spec))
    assert (first.evidence, first.left, first.kept) == (Evidence.PRESENT, [f"{k} deleting" for k in kept], [])
    second = cloud.driver.delete_machine(given.deletion(provider_id, provider_spec=spec))
    assert (second.evidence, second.left, second.kept) == (Evidence.TERMINATED, [], [])
    assert cloud.left(given.machine.uid) == {}


@pytest.mark.parametrize(
    ("operation", "code"),
    [("DeleteVolume", "VolumeInUse"), ("DeleteNetworkInterface", "InvalidNetworkInterface.InUse")],
)
def test_a_leftover_in_use_is_left_for_the_next_pass(cloud: AwsCloud, operation: str, code: str) -> None:
    given, provider_id, _ = keeping(cloud)
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    fault(cloud, operation, code)
    deletion = given.deletion(provider_id, provider_spec=cloud.spec())
    first = cloud.driver.delete_machine(deletion)
    assert len(first.left) == 2
    assert [left for left in first.left if left.endswith(" available")]
    until(lambda: cloud.driver.delete_machine(deletion).evidence is Evidence.TERMINATED)
    assert cloud.left(given.machine.uid) == {}


def test_a_leftover_that_somebody_else_deleted_meanwhile_is_no_error(cloud: AwsCloud) -> None:
    given, provider_id, kept = keeping(cloud)
    cloud.do(lambda: cloud.ec2.kill(provider_id.rsplit("/", 1)[-1]))
    fault(cloud, "DeleteVolume", "InvalidVolume.NotFound")
    (nic,) = [k for k in kept if k.startswith("eni-")]
    first = cloud.driver.delete_machine(given.deletion(provider_id, provider_spec=cloud.spec()))
    assert first.left == [f"{nic} deleting"]


def test_a_vm_that_terminate_does_not_know_is_not_gone_yet(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "TerminateInstances", "InvalidInstanceID.NotFound")
    first = cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert first.evidence is Evidence.PRESENT
    assert f"{made.provider_id.rsplit('/', 1)[-1]} running" in first.left
    assert delete_until_gone(given, made.provider_id).evidence is Evidence.TERMINATED


def test_a_stale_spec_and_a_vanished_image_do_not_stop_a_deletion(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    given.spec = {"region": "eu-west-1", "ami": "ami-0a1b2c3d4e5f6ffff", "blockDevices": "nonsense"}
    assert delete_until_gone(given, made.provider_id).evidence is Evidence.TERMINATED
    assert cloud.left(given.machine.uid) == {}


def test_termination_protection_is_a_conflict_that_says_what_to_do(cloud: AwsCloud, ec2: Any) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    ec2.modify_instance_attribute(InstanceId=vm, DisableApiTermination={"Value": True})
    command = f"aws ec2 modify-instance-attribute --region eu-west-1 --instance-id {vm} --no-disable-api-termination"
    for _ in range(2):
        with pytest.raises(DriverError) as refused:
            cloud.driver.delete_machine(given.deletion(made.provider_id))
        assert refused.value.error_class is ErrorClass.CONFLICT
        assert refused.value.message.startswith(f"{vm} has termination protection")
        assert f"whoever set it must remove it, with `{command}`" in refused.value.message
    assert cloud.living(given.machine.uid) == [vm]
    assert len(calls(cloud, "ModifyInstanceAttribute")) == 1  # the operator's own: we never switch it off
    ec2.modify_instance_attribute(InstanceId=vm, DisableApiTermination={"Value": False})
    delete_until_gone(given, made.provider_id)
    assert cloud.left(given.machine.uid) == {}


def test_a_protected_vm_does_not_hold_up_the_others(cloud: AwsCloud, ec2: Any) -> None:
    """Each gets its own call: EC2 refuses a whole call for one protected instance in it."""
    given = machine(cloud)
    first, second = (
        cloud.driver.create_machine(given.creation(token=t)).provider_id.rsplit("/", 1)[-1] for t in ("a-1", "a-2")
    )
    ec2.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": True})
    with pytest.raises(DriverError, match=f"^{first} has termination protection"):
        cloud.driver.delete_machine(given.deletion())
    until(lambda: cloud.living(given.machine.uid) == [first])
    ec2.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": False})
    delete_until_gone(given)
    assert second not in cloud.living(given.machine.uid)


def test_another_operation_that_is_not_permitted_is_not_taken_for_protection(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "TerminateInstances", "OperationNotPermitted", message="the instance is managed by another service")
    with pytest.raises(DriverError, match="managed by another service") as refused:
        cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert refused.value.error_class is ErrorClass.CONFLICT
    assert "termination protection" not in refused.value.message
    delete_until_gone(given, made.provider_id)


@pytest.mark.parametrize("found_by", ["id", "tag"])
def test_p09_a_403_of_a_vm_that_only_its_id_or_only_its_tag_finds_stays_an_error(
    cloud: AwsCloud, found_by: str
) -> None:
    given = machine(cloud)
    if found_by == "id":
        cloud.frame.lag.tags = 60.0
    made = cloud.driver.create_machine(given.creation())
    vm = made.provider_id.rsplit("/", 1)[-1]
    if found_by == "tag":
        fault(cloud, "DescribeInstances", "InvalidInstanceID.NotFound", match=f'"InstanceIds.*{vm}', times=None)
    rule = fault(cloud, "TerminateInstances", "UnauthorizedOperation")
    with pytest.raises(DriverError, match="UnauthorizedOperation") as refused:
        cloud.driver.delete_machine(given.deletion(made.provider_id, token=""))
    assert (refused.value.error_class, rule.hits) == (ErrorClass.AUTH, 1)
    assert cloud.living(given.machine.uid) == [vm]
    delete_until_gone(given, made.provider_id)


def test_p27_what_a_vm_that_nobody_has_left_behind_goes_and_its_subnet_is_free(cloud: AwsCloud, ec2: Any) -> None:
    """A NIC and a disk carry the machine's uid, and there is no VM: EC2 knows neither its id nor its tag."""
    nics = [NIC, {**NIC, "deleteOnTermination": False}]
    given = machine(cloud, blockDevices=[ROOT_DISK, KEPT_DISK], networkInterfaces=nics)
    made = cloud.driver.create_machine(given.creation())
    cloud.ec2.settings.terminated_visible = 0.0
    cloud.do(lambda: cloud.ec2.kill(made.provider_id.rsplit("/", 1)[-1]))
    given.spec = cloud.spec()  # it keeps nothing
    left = until(lambda: cloud.left(given.machine.uid) if cloud.living(given.machine.uid) == [] else None)
    assert left is not None
    assert sorted(left) == ["networkInterfaces", "volumes"]
    first = cloud.driver.delete_machine(given.deletion())
    assert (first.evidence, len(first.left)) == (Evidence.PRESENT, 2)
    assert delete_until_gone(given).evidence is Evidence.NOT_FOUND
    assert cloud.left(given.machine.uid) == {}
    assert (
        ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [SUBNET]}])["NetworkInterfaces"] == []
    )


def test_a_vm_found_only_by_its_tag_is_deleted(cloud: AwsCloud) -> None:
    """The providerID was never recorded, or is another one's, and the token is lost."""
    given = machine(cloud)
    cloud.driver.create_machine(given.creation())
    given.token = ""
    assert cloud.driver.delete_machine(given.deletion("aws:///eu-west-1/i-0123456789abcdef0")).evidence is (
        Evidence.PRESENT
    )
    until(lambda: cloud.left(given.machine.uid) == {})
    # Another's VM proves nothing: with an id of its own, or none, it takes two looks.
    assert delete_until_gone(given).evidence is Evidence.NOT_FOUND


@pytest.mark.parametrize("provider_id", [None, "aws:///eu-west-1/i-0123456789abcdef0"], ids=["without id", "with id"])
def test_v4_delete_of_what_does_not_exist_is_no_error_unless_it_cannot_be_looked_for(
    cloud: AwsCloud, provider_id: str | None
) -> None:
    given = machine(cloud)
    for operation in ("DescribeInstances", "DescribeVolumes", "DescribeNetworkInterfaces"):
        fault(cloud, operation, "UnauthorizedOperation")
        with pytest.raises(DriverError) as unread:
            cloud.driver.delete_machine(given.deletion(provider_id))
        assert unread.value.error_class is ErrorClass.AUTH
    found = cloud.driver.delete_machine(given.deletion(provider_id))
    assert (found.evidence, found.left, found.kept) == (Evidence.NOT_FOUND, [], [])
    assert [c for c in calls(cloud) if c.mutating] == []
    made = cloud.driver.create_machine(given.creation())
    assert delete_until_gone(given, made.provider_id).evidence is Evidence.TERMINATED


def test_unauthorized_of_a_vm_that_is_there_stays_an_error(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    fault(cloud, "TerminateInstances", "UnauthorizedOperation")
    with pytest.raises(DriverError, match="UnauthorizedOperation") as refused:
        cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert refused.value.error_class is ErrorClass.AUTH
    assert len(cloud.living(given.machine.uid)) == 1
    delete_until_gone(given, made.provider_id)


@pytest.mark.parametrize("visible", [3600.0, 0.0], ids=["terminated", "unknown"])
def test_unauthorized_of_a_vm_that_vanished_meanwhile_is_no_error(cloud: AwsCloud, visible: float) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    cloud.ec2.settings.terminated_visible = visible
    # The call takes a moment, in which the VM dies; then EC2 says "unauthorized" of it (runs-on#60).
    rule = fault(cloud, "TerminateInstances", "UnauthorizedOperation", delay=0.3)

    def die_while_it_waits() -> None:
        def check() -> None:
            if rule.hits:
                cloud.ec2.kill(made.provider_id.rsplit("/", 1)[-1])
            else:
                cloud.loop.call_later(0.01, check)

        check()

    cloud.do(die_while_it_waits)
    assert cloud.driver.delete_machine(given.deletion(made.provider_id)).evidence is Evidence.PRESENT
    last = cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert last.evidence is (Evidence.TERMINATED if visible else Evidence.NOT_FOUND)
    assert [c.error for c in calls(cloud, "TerminateInstances")] == ["UnauthorizedOperation"]


def test_the_vm_of_another_machine_is_not_deleted(cloud: AwsCloud) -> None:
    given, other = machine(cloud), machine(cloud)
    made = cloud.driver.create_machine(other.creation())
    with pytest.raises(DriverError, match="it belongs to another machine") as refused:
        cloud.driver.delete_machine(given.deletion(made.provider_id))
    assert refused.value.error_class is ErrorClass.CONFLICT
    assert len(cloud.living(other.machine.uid)) == 1
    delete_until_gone(other, made.provider_id)


def test_a_dead_vm_of_a_former_attempt_proves_nothing_of_the_next(cloud: AwsCloud) -> None:
    given = machine(cloud)
    first = cloud.driver.create_machine(given.creation(token="attempt-1"))
    cloud.do(lambda: cloud.ec2.kill(first.provider_id.rsplit("/", 1)[-1]))
    cloud.frame.lag.describe_after_create = 60.0
    second = cloud.driver.create_machine(given.creation(token="attempt-2"))
    for request in (given.deletion(token="attempt-2"), given.deletion(second.provider_id), given.deletion(token="")):
        assert cloud.driver.delete_machine(request).evidence is Evidence.NOT_FOUND
    cloud.frame.lag.describe_after_create = 0.0
    given.token = "attempt-2"
    assert delete_until_gone(given).evidence is Evidence.TERMINATED
    assert cloud.left(given.machine.uid) == {}


def test_a_vm_whose_tags_lag_is_found_by_its_token_beside_a_dead_one(cloud: AwsCloud) -> None:
    given = machine(cloud)
    first = cloud.driver.create_machine(given.creation(token="attempt-1"))
    cloud.do(lambda: cloud.ec2.kill(first.provider_id.rsplit("/", 1)[-1]))
    cloud.frame.lag.tags = 60.0
    cloud.driver.create_machine(given.creation(token="attempt-2"))
    given.token = "attempt-2"
    assert delete_until_gone(given).evidence is Evidence.TERMINATED
    assert cloud.left(given.machine.uid) == {}


def test_one_error_does_not_stop_the_rest_of_a_pass(cloud: AwsCloud) -> None:
    given = machine(cloud)
    for token in ("attempt-1", "attempt-2"):
        cloud.driver.create_machine(given.creation(token=token))
    fault(cloud, "TerminateInstances", "RequestLimitExceeded")
    with pytest.raises(DriverError) as failure:
        cloud.driver.delete_machine(given.deletion())
    assert failure.value.error_class is ErrorClass.THROTTLED
    until(lambda: len(cloud.living(given.machine.uid)) == 1)
    delete_until_gone(given)
